"""Looks up a request's topic, by name or id, its partition and leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import broker_error
from aioproducer.testing.faults import Target
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import FakeBroker
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.topics import Partition, Topic

__all__ = ["NO_ID", "Place", "endpoints", "find", "led", "name_leader", "targets"]

NO_ID: Final = bytes(16)


class Place(NamedTuple):
    """Holds the topic and partition that a request names; None: unknown."""

    target: Target
    topic: Topic | None
    partition: Partition | None


def find(cluster: FakeCluster, name: str, index: int, topic_id: bytes = NO_ID) -> Place:
    """Return the place of a partition, by its topic's id, or by the name if the request has none; the leader is not checked."""
    topic = cluster.topics.named(name) if topic_id == NO_ID else cluster.topics.identified(topic_id)
    target = Target(topic.name if topic else name or None, index)
    return Place(target, topic, topic.partition(index) if topic else None)


def targets(cluster: FakeCluster, request: Any, name: str = "name", index: str = "partition_index") -> list[Target]:
    """Return the targets of a request that names partitions within topics, by the fields `name` and `index`, or by ids of topics."""
    return [
        find(cluster, getattr(topic, name), getattr(asked, index), getattr(topic, "topic_id", NO_ID)).target
        for topic in request.topics
        for asked in topic.partitions
    ]


def led(place: Place, broker: FakeBroker, *, by_id: bool, epoch: int = -1) -> Partition:
    """Return a place's partition, on its leader.

    Raises:
        BrokerError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER; for a client's leader epoch that is not
            the current one, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
    """
    if place.topic is None and by_id:
        raise broker_error("UNKNOWN_TOPIC_ID", "no topic has this id")
    if place.partition is None:
        raise broker_error("UNKNOWN_TOPIC_OR_PARTITION", "this server does not host this topic-partition")
    if place.partition.leader != broker.node_id:
        raise broker_error("NOT_LEADER_OR_FOLLOWER", f"broker {broker.node_id} does not lead {place.target.topic}-{place.target.partition}")
    if 0 <= epoch != place.partition.leader_epoch:
        raise broker_error("FENCED_LEADER_EPOCH" if epoch < place.partition.leader_epoch else "UNKNOWN_LEADER_EPOCH")
    return place.partition


def name_leader(answer: Any, partition: Partition | None) -> None:
    """Write the partition's leader into its answer (KIP-951)."""
    if partition is not None:
        answer.current_leader.leader_id = -1 if partition.leader is None else partition.leader
        answer.current_leader.leader_epoch = partition.leader_epoch


def endpoints(cluster: FakeCluster, name: str, leaders: set[int]) -> list[Any]:
    """Return the addresses of the leaders that an answer names (KIP-951)."""
    brokers = [cluster.brokers[node] for node in sorted(leaders & cluster.brokers.keys())]
    return [message(f"{name}.node_endpoints", node_id=broker.node_id, host=broker.host, port=broker.port) for broker in brokers]
