"""What the answers of all kinds have in common: how they are registered, and how they look up partitions and coordinators.

A module of this package has the answers of one subject. Each is a function that `answers` registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import WHOLE, Target
from aioproducer.testing.groups import Committed
from aioproducer.wire.api import NAMES, ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.testing.broker import FakeBroker
    from aioproducer.testing.call import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.frames import RequestHeader
    from aioproducer.testing.groups import Group
    from aioproducer.testing.topics import Partition, Topic
    from aioproducer.testing.transactions import Holder, Touched

__all__ = [
    "HANDLERS",
    "NO_ID",
    "Handler",
    "Place",
    "answers",
    "check_coordinates",
    "code_of",
    "committed",
    "coordinated",
    "coordinator",
    "endpoints",
    "find",
    "led",
    "name_leader",
    "targets",
    "told_fenced",
    "verified",
]

NO_ID: Final = bytes(16)
_LONGEST_METADATA: Final = 4096  # Kafka's offset.metadata.max.bytes


@dataclass(frozen=True, slots=True)
class Handler:
    """Describes how a broker answers one kind of request.

    Attributes:
        key: the request's number.
        versions: lowest and highest version that it answers.
        targets: returns the topics and partitions of a request, for the scope of faults.
        answer: answers a call with `Call.reply`, at once or later.
        mend: corrects a client's well-known encoding mistake that Kafka's brokers tolerate.
    """

    key: ApiKey
    versions: tuple[int, int]
    targets: Callable[[FakeCluster, Any], Iterable[Target]]
    answer: Callable[[Call], None]
    mend: Callable[[bytes, RequestHeader], bytes] | None

    @property
    def name(self) -> str:
        """Return Kafka's name of the request."""
        return NAMES[self.key]


HANDLERS: Final[dict[ApiKey, Handler]] = {}


def answers(
    key: ApiKey,
    versions: tuple[int, int],
    targets: Callable[[FakeCluster, Any], Iterable[Target]] = lambda _cluster, _request: (WHOLE,),
    mend: Callable[[bytes, RequestHeader], bytes] | None = None,
) -> Callable[[Callable[[Call], None]], None]:
    """Register the function that answers a kind of request. The arguments are `Handler`'s."""

    def register(answer: Callable[[Call], None]) -> None:
        HANDLERS[key] = Handler(key, versions, targets, answer, mend)

    return register


# --- partitions


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


def targets(
    cluster: FakeCluster, request: Any, name: str = "name", index: str = "partition_index"
) -> list[Target]:
    """Return the targets of a request that names partitions within topics, by the fields `name` and `index`, or by ids of topics."""
    return [
        find(
            cluster, getattr(topic, name), getattr(asked, index), getattr(topic, "topic_id", NO_ID)
        ).target
        for topic in request.topics
        for asked in topic.partitions
    ]


def led(place: Place, broker: FakeBroker, *, by_id: bool = False, epoch: int = -1) -> Partition:
    """Return a place's partition, on its leader.

    Raises:
        BrokerError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER; for a client's leader epoch that is not
            the current one, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
    """
    if place.topic is None and by_id:
        raise broker_error("UNKNOWN_TOPIC_ID", "no topic has this id")
    if place.partition is None:
        raise broker_error(
            "UNKNOWN_TOPIC_OR_PARTITION", "this server does not host this topic-partition"
        )
    if place.partition.leader != broker.node_id:
        raise broker_error(
            "NOT_LEADER_OR_FOLLOWER",
            f"broker {broker.node_id} does not lead {place.target.topic}-{place.target.partition}",
        )
    if 0 <= epoch != place.partition.leader_epoch:
        raise broker_error(
            "FENCED_LEADER_EPOCH"
            if epoch < place.partition.leader_epoch
            else "UNKNOWN_LEADER_EPOCH"
        )
    return place.partition


def name_leader(answer: Any, partition: Partition | None) -> None:
    """Write the partition's leader into its answer (KIP-951)."""
    if partition is not None:
        answer.current_leader.leader_id = -1 if partition.leader is None else partition.leader
        answer.current_leader.leader_epoch = partition.leader_epoch


def endpoints(cluster: FakeCluster, name: str, leaders: set[int]) -> list[Any]:
    """Return the addresses of the leaders that an answer names (KIP-951)."""
    brokers = [cluster.brokers[node] for node in sorted(leaders & cluster.brokers.keys())]
    return [
        message(
            f"{name}.node_endpoints", node_id=broker.node_id, host=broker.host, port=broker.port
        )
        for broker in brokers
    ]


def code_of(do: Callable[[], object]) -> int:
    """Return the code of the error that `do` raises, or 0."""
    try:
        do()
    except BrokerError as error:
        return error.code
    return 0


# --- coordinators


def coordinator(cluster: FakeCluster, key: str) -> FakeBroker | None:
    """Return the broker that `move_coordinator` set, if it is known; else the first known broker."""
    moved = cluster.brokers.get(cluster.coordinators.get(key, -1))
    if moved is not None and moved.is_known:
        return moved
    return next((broker for broker in cluster.brokers.values() if broker.is_known), None)


def coordinated(call: Call, group_id: str, *, may_be_nameless: bool = False) -> Group:
    """Return a group, at its coordinator.

    Raises:
        BrokerError: a scripted error; NOT_COORDINATOR; INVALID_GROUP_ID for the empty id, unless `may_be_nameless`.
    """
    call.check_scripted()
    if not group_id and not may_be_nameless:
        raise broker_error("INVALID_GROUP_ID", "the group's id is empty")
    check_coordinates(call, group_id)
    return call.cluster.groups[group_id]


def committed(asked: Any) -> Committed:
    """Return a partition's offset that a request commits.

    Raises:
        BrokerError: OFFSET_METADATA_TOO_LARGE.
    """
    if len((asked.committed_metadata or "").encode()) > _LONGEST_METADATA:
        raise broker_error("OFFSET_METADATA_TOO_LARGE")
    return Committed(
        asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata or ""
    )


def check_coordinates(call: Call, key: str) -> None:
    """Check that the broker coordinates a group or a transactional id.

    Raises:
        BrokerError: NOT_COORDINATOR.
    """
    if call.broker is not coordinator(call.cluster, key):
        raise broker_error(
            "NOT_COORDINATOR", f"broker {call.broker.node_id} does not coordinate this"
        )


def told_fenced(call: Call, error: BrokerError, *, since: int) -> int:
    """Return an error's code for the request's version: versions before `since` get INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    return (
        broker_error("INVALID_PRODUCER_EPOCH").code
        if error.name == "PRODUCER_FENCED" and call.version < since
        else error.code
    )


def verified(
    call: Call, holder: Holder, touched: Touched, *, adds: bool, knows_abortable: bool
) -> None:
    """Check with the coordinator that the request's transaction contains something, or add it, as brokers do (KIP-890).

    Raises:
        BrokerError: the coordinator's answer, as Kafka's AddPartitionsToTxnManager converts it.
    """
    cluster, transactional_id = call.cluster, call.request.transactional_id
    asked = coordinator(cluster, transactional_id)
    if asked is None or not asked.is_running:
        raise broker_error("COORDINATOR_NOT_AVAILABLE")
    try:
        if adds:
            cluster.transactions.add(transactional_id, holder, [touched], raises_epoch=True)
        else:
            cluster.transactions.verify(transactional_id, holder, touched)
    except BrokerError as error:
        if error.name == "PRODUCER_FENCED":
            raise broker_error("INVALID_PRODUCER_EPOCH", error.message) from error
        if error.name == "TRANSACTION_ABORTABLE" and not knows_abortable:
            raise broker_error(
                "INVALID_TXN_STATE", "Partition was not added to the transaction"
            ) from error
        raise
