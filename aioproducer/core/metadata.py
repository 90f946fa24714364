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
    same = known is not None and known.error is None and told.topic_id in (known.topic_id, NO_ID)
    before = known.partitions if known is not None and same else ()
    topic_id = known.topic_id if known is not None and same else told.topic_id
    found: dict[int, PartitionView] = {}
    for partition in told.partitions:
        index = partition.partition_index
        leader = partition.leader_id if partition.leader_id in brokers else -1
        view = PartitionView(leader, partition.leader_epoch)
        if 0 <= index < len(before) and 0 <= view.epoch < before[index].epoch:
            view = before[index]
        found[index] = view
    missing = PartitionView(-1, -1)
    count = len(before)
    while count in found:  # partitions are numbered without gaps; what lies beyond a gap is not usable yet
        count += 1
    partitions = tuple(found.get(index) or (before[index] if index < len(before) else missing) for index in range(count))
    if not partitions:  # nothing could be placed: as if its first partition had no leader yet
        return TopicView(told.name, error=broker_error("LEADER_NOT_AVAILABLE"))
    return TopicView(told.name, topic_id, partitions)
