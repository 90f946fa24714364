"""What is known of the cluster, and how an answer changes it.

1. A view is immutable; a merge makes the next one and says which topics changed.
2. A partial answer changes only its topics; brokers and cluster id are the newest answer's (MET-03).
3. An older leader epoch of the same topic id is a stale broker's: the known leader stays (MET-07). A new topic id is a new topic;
   a broker that tells none, or no epoch, is older than them.
4. An answer without brokers is a broker that is starting: nothing changes (MET-11).

Knows nothing of when to ask, or whom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import BrokerError, broker_error

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Broker", "ClusterView", "Merged", "PartitionView", "TopicView"]

NO_ID: Final = bytes(16)


class Broker(NamedTuple):
    """A broker's id and the address that clients reach it by."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """A partition's leader, -1 for none, and the epoch of its election."""

    leader: int
    epoch: int


class TopicView(NamedTuple):
    """A topic as last told: partitions by index, or the error that stands in their place."""

    name: str
    topic_id: bytes = NO_ID
    partitions: tuple[PartitionView, ...] = ()
    error: BrokerError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether every partition has a leader."""
        return self.error is None and all(partition.leader >= 0 for partition in self.partitions)

    @property
    def may_settle(self) -> bool:
        """Whether asking again may help: a leader is missing, or the error passes."""
        return self.error.retriable if self.error is not None else not self.is_settled


class Merged(NamedTuple):
    """A merge's outcome: the view after it, and the topics of which something differs."""

    view: ClusterView
    changed: tuple[TopicView, ...]


class ClusterView(NamedTuple):
    """Brokers by id and topics by name."""

    brokers: Mapping[int, Broker] = {}
    topics: Mapping[str, TopicView] = {}
    cluster_id: str | None = None

    def merge(self, answer: Any) -> Merged:
        """The view after a decoded Metadata answer."""
        brokers = {
            broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in answer.brokers
            if broker.node_id >= 0 and 0 < broker.port < 65_536 and broker.host
        }
        if not brokers:
            return Merged(self, ())
        topics = dict(self.topics)
        changed = []
        for told in answer.topics:
            if told.name is None:
                continue
            known = topics.get(told.name)
            topic = _topic(told, known, brokers)
            if topic != known:
                topics[told.name] = topic
                changed.append(topic)
        return Merged(ClusterView(brokers, topics, answer.cluster_id), tuple(changed))


def _topic(told: Any, known: TopicView | None, brokers: Mapping[int, Broker]) -> TopicView:
    """One topic of an answer, with what is known of it kept where the answer is older."""
    if told.error_code and not told.partitions:
        error = broker_error(told.error_code)
        if known is not None and known.partitions and error.retriable:
            return known
        return TopicView(told.name, error=error)
    if known is None or known.error is not None or told.topic_id not in (known.topic_id, NO_ID):
        known = TopicView(told.name, told.topic_id)  # a new topic, or a new one of that name
    partitions = _partitions(told, known.partitions, brokers)
    if not partitions:  # nothing could be placed: as if its first partition had no leader yet
        return TopicView(told.name, error=broker_error("LEADER_NOT_AVAILABLE"))
    return TopicView(told.name, known.topic_id, partitions)


def _partitions(told: Any, before: tuple[PartitionView, ...], brokers: Mapping[int, Broker]) -> tuple[PartitionView, ...]:
    """The partitions of a topic, numbered without gaps: what lies beyond a gap is not usable yet."""
    found = dict(enumerate(before))
    for partition in told.partitions:
        leader = partition.leader_id if partition.leader_id in brokers else -1
        view = PartitionView(leader, partition.leader_epoch)
        known = before[partition.partition_index] if 0 <= partition.partition_index < len(before) else None
        if known is None or not 0 <= view.epoch < known.epoch:
            found[partition.partition_index] = view
    count = 0
    while count in found:
        count += 1
    return tuple(found[index] for index in range(count))
