"""Metadata: returns brokers, topics by name and by id, and leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.handler import answers
from aioproducer.testing.topics import is_legal_name
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message, message_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.call import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.frames import RequestHeader
    from aioproducer.testing.topics import Partition, Topic


_NO_LEADER: Final = broker_error("LEADER_NOT_AVAILABLE").code
_INVALID: Final = broker_error("INVALID_TOPIC_EXCEPTION").code
_UNKNOWN: Final = broker_error("UNKNOWN_TOPIC_OR_PARTITION").code
_DENIED: Final = broker_error("TOPIC_AUTHORIZATION_FAILED").code
_UNKNOWN_ID: Final = broker_error("UNKNOWN_TOPIC_ID").code
_FLEXIBLE: Final = 9
_LONG_NULL: Final = bytes(4)
# most bytes after the header of a request for all topics: null, three flags, no tags
_LONGEST_NULL: Final = 5


def _targets(cluster: FakeCluster, request: Any) -> Iterator[Target]:
    if request.topics is None:
        return (Target(topic.name) for topic in cluster.topics)
    return (Target(_name(cluster, asked)) for asked in request.topics)


def _name(cluster: FakeCluster, asked: Any) -> str | None:
    if asked.name is not None:
        return str(asked.name)
    topic = cluster.topics.identified(asked.topic_id)
    return topic.name if topic else None


def _mend(frame: bytes, header: RequestHeader) -> bytes:
    """Shorten a null that librdkafka writes in four bytes instead of one (its issue 5049).

    Kafka reads the first byte, and ignores the surplus at the end.
    """
    written_long = (
        header.version >= _FLEXIBLE
        and frame.startswith(_LONG_NULL, header.offset)
        and len(frame) > header.offset + _LONGEST_NULL
    )
    return (
        frame[: header.offset] + frame[header.offset + len(_LONG_NULL) - 1 :]
        if written_long
        else frame
    )


@answers(ApiKey.METADATA, (0, 13), _targets, mend=_mend)
def metadata(call: Call) -> None:
    """Versions 0-13: returns brokers, topics by name and by id, and leaders.

    As in Kafka: null requests all topics, in version 0 the empty list does. A topic that the request creates is unknown in its answer, and
    present in the next. A stopped broker is not named, and its partitions have no leader. A denied `Describe` is answered with
    TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not, and leaves the topic out of an answer about all topics; so is a denied `Create`
    of a topic that would be created.
    Deviations: no authorized operations; all topics are listed in the order of their creation.
    """
    cluster, request = call.cluster, call.request
    if request.topics is None or (call.version == 0 and not request.topics):
        shown = [topic for topic in cluster.topics if call.may("Describe", "topic", topic.name)]
        topics = [_known(call, topic, call.code(Target(topic.name))) for topic in shown]
    else:
        topics = [_asked(call, asked) for asked in request.topics]
    known = [broker for broker in cluster.brokers.values() if broker.is_known]
    brokers = [
        message(
            "Metadata.response.brokers",
            node_id=broker.node_id,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
        )
        for broker in known
    ]
    controller_id = known[0].node_id if known else -1
    call.reply(
        message(
            "Metadata.response",
            brokers=brokers,
            cluster_id=cluster.cluster_id,
            controller_id=controller_id,
            topics=topics,
        )
    )


def _asked(call: Call, asked: Any) -> Any:
    cluster = call.cluster
    name = _name(cluster, asked)
    code = call.code(Target(name))
    if name is not None and not call.may("Describe", "topic", name):
        return message(
            "Metadata.response.topics", error_code=_DENIED, name=asked.name, topic_id=asked.topic_id
        )
    if asked.name is None:
        topic = cluster.topics.identified(asked.topic_id)
        if topic is None:
            return message(
                "Metadata.response.topics",
                error_code=code or _UNKNOWN_ID,
                name=None,
                topic_id=asked.topic_id,
            )
        return _known(call, topic, code)
    topic = cluster.topics.named(asked.name)
    return _created(call, asked, code) if topic is None else _known(call, topic, code)


def _created(call: Call, asked: Any, code: int) -> Any:
    """Return the answer for a topic that is not there. Creates it if the cluster, the request and the ACLs allow that."""
    cluster = call.cluster
    if not is_legal_name(asked.name):
        code = code or _INVALID
    elif not code and cluster.auto_create and call.request.allow_auto_topic_creation:
        if not (
            call.may("Create", "topic", asked.name)
            and call.may("Create", "cluster", "kafka-cluster")
        ):
            return message("Metadata.response.topics", error_code=_DENIED, name=asked.name)
        cluster.create_topic(asked.name, cluster.default_partitions)
    return message("Metadata.response.topics", error_code=code or _UNKNOWN, name=asked.name)


def _known(call: Call, topic: Topic, code: int) -> Any:
    if code:
        return message(
            "Metadata.response.topics", error_code=code, name=topic.name, topic_id=topic.topic_id
        )
    known = {broker.node_id for broker in call.cluster.brokers.values() if broker.is_known}
    partitions = [_partition(partition, known) for partition in topic.partitions]
    return message(
        "Metadata.response.topics", name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )


def _partition(partition: Partition, known: set[int]) -> Any:
    leader = partition.leader if partition.leader in known else None
    here = tuple(node for node in partition.replicas if node in known)
    return message_type("Metadata.response.topics.partitions")(
        error_code=0 if leader is not None else _NO_LEADER,
        partition_index=partition.index,
        leader_id=-1 if leader is None else leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=here,
        offline_replicas=tuple(node for node in partition.replicas if node not in known),
    )
