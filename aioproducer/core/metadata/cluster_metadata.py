"""What is known of the cluster, and how answers change it.

1. A partial answer changes only its topics; brokers and cluster id are the newest answer's (MET-03). Topics are taken one by one, and
   each in steps, so that a large answer can be taken in between other work; what a topic was last told to be is an immutable value.
2. An older leader epoch of the same topic id is a stale broker's: the known leader stays (MET-07). A new topic id is a new topic;
   a broker that tells none, or no epoch that can be trusted, is older than them.
3. An answer without brokers is a broker that is starting: nothing changes (MET-11). A broker without a usable address, or with two,
   is not told: what was known of it stays.
4. Another cluster id is another cluster: nothing that was known of the old one's topics holds.

Knows nothing of when to ask, or whom.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.core.incremental import STRIDE, whole
from aioproducer.errors import BrokerError, broker_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioproducer.core.incremental import Steps

__all__ = ["NO_ID", "Broker", "ClusterMetadata", "PartitionView", "TopicView"]

NO_ID: Final = bytes(16)
_VIEWS: Final = 4096  # of leaders and epochs that are one object for all who have them: topics by the thousand have few


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
        return self.error is None and not whole(self.may_settle())

    def may_settle(self) -> Steps[bool]:
        """Whether asking again may help: a leader is missing, or the error passes."""
        if self.error is not None:
            return self.error.retriable
        for at in range(0, len(self.partitions), STRIDE):
            if at:
                yield
            if any(partition.leader < 0 for partition in self.partitions[at : at + STRIDE]):
                return True
        return False


class ClusterMetadata:
    """What is known now.

    Attributes:
        brokers: by id; replaced whole, never changed.
        topics: by name.
        cluster_id: None until a broker tells it.
    """

    def __init__(self) -> None:
        self.brokers: Mapping[int, Broker] = {}
        self.topics: dict[str, TopicView] = {}
        self.cluster_id: str | None = None

    def is_of(self, cluster_id: str | None) -> bool:
        """Whether that may be the id of the cluster that is known."""
        return self.cluster_id is None or cluster_id is None or cluster_id == self.cluster_id

    def take_cluster(self, answer: Any) -> bool:
        """Take a decoded Metadata answer's brokers and cluster id; False: it names no broker that can be dialled, and nothing changes."""
        brokers = _brokers(answer.brokers, self.brokers)
        if not brokers:
            return False
        if not self.is_of(answer.cluster_id):
            self.topics = {}  # what is being taken of the old one's goes with it
        self.brokers = brokers
        self.cluster_id = answer.cluster_id or self.cluster_id
        return True

    def take_broker(self, broker: Broker) -> bool:
        """Take a broker that an answer named beside metadata: a coordinator. False: it has no address that can be dialled."""
        if self.brokers.get(broker.node_id, ())[:3] == broker[:3]:
            return True
        found = _brokers([broker], {})
        self.brokers = {**self.brokers, **found}
        return bool(found)

    def take_topic(self, told: Any, *, has_epochs: bool = True) -> TopicView | None:
        """`taking`, at once."""
        return whole(self.taking(told, has_epochs=has_epochs))

    def taking(self, told: Any, *, has_epochs: bool = True) -> Steps[TopicView | None]:
        """Take one topic of an answer; the topic if something of it differs now. It changes in the last step; until then nobody else may.

        Args:
            told: of a decoded answer, after `take_cluster`.
            has_epochs: whether its leader epochs can be trusted; before Metadata v9 they cannot (KAFKA-9835).
        """
        if told.name is None:
            return None
        topics = self.topics
        known = topics.get(told.name)
        topic = yield from _topic(told, known, self.brokers, has_epochs=has_epochs)
        if topic == known:
            return None
        topics[told.name] = topic
        return topic

    def take_leader(self, name: str, partition: int, leader: int, epoch: int, endpoints: Iterable[Any] = ()) -> TopicView | None:
        """Take a leader that a Produce answer told (KIP-951, LDR-01): of a known partition, newly elected, and reachable.

        Args:
            name: the topic.
            partition: its number.
            leader: the broker's id; -1: none, which is no news.
            epoch: of its election.
            endpoints: brokers as the answer tells them: `node_id`, `host`, `port`, `rack`.

        Returns:
            The topic with that leader, or None: then the hint is no news, or cannot be followed.
        """
        topic = self.topics.get(name)
        if topic is None or not 0 <= partition < len(topic.partitions) or epoch <= topic.partitions[partition].epoch:
            return None
        brokers = {**self.brokers, **_brokers([broker for broker in endpoints if broker.node_id == leader], self.brokers)}
        if leader not in brokers:
            return None
        partitions = list(topic.partitions)
        partitions[partition] = PartitionView(leader, epoch)
        topic = self.topics[name] = topic._replace(partitions=tuple(partitions))
        self.brokers = brokers
        return topic


def _brokers(told: Iterable[Any], known: Mapping[int, Broker]) -> dict[int, Broker]:
    """Brokers that can be dialled, by id. One that is told without an address, or with two, is as it was known."""
    brokers: dict[int, Broker] = {}
    doubtful = set()
    for each in told:
        broker = Broker(each.node_id, each.host, each.port, each.rack)
        if broker.node_id < 0:
            continue
        if not broker.host or not 0 < broker.port < 65_536 or brokers.setdefault(broker.node_id, broker)[:3] != broker[:3]:
            doubtful.add(broker.node_id)
    for node_id in doubtful:
        brokers.pop(node_id, None)
        if node_id in known:
            brokers[node_id] = known[node_id]
    return brokers


def _topic(told: Any, known: TopicView | None, brokers: Mapping[int, Broker], *, has_epochs: bool) -> Steps[TopicView]:
    """One topic of an answer, with what is known of it kept where the answer is older."""
    if told.error_code and not told.partitions:
        error = broker_error(told.error_code)
        if known is not None and known.partitions and error.retriable:
            return known
        return TopicView(told.name, error=error)
    if known is None or known.error is not None or told.topic_id not in (known.topic_id, NO_ID):
        known = TopicView(told.name, told.topic_id)  # a new topic, or a new one of that name
    partitions = yield from _partitions(told, known.partitions, brokers, has_epochs=has_epochs)
    if not partitions:  # nothing could be placed: as if its first partition had no leader yet
        return TopicView(told.name, error=broker_error("LEADER_NOT_AVAILABLE"))
    return TopicView(told.name, known.topic_id, partitions)


def _partitions(
    told: Any, before: tuple[PartitionView, ...], brokers: Mapping[int, Broker], *, has_epochs: bool
) -> Steps[tuple[PartitionView, ...]]:
    """The partitions of a topic, numbered without gaps: what lies beyond a gap is not usable yet.

    Equal views are one object, those of other topics, too: a tuple of so many is compared and freed at once.
    """
    found, beyond = list(before), dict[int, PartitionView]()
    for number, partition in enumerate(told.partitions, 1):
        leader = partition.leader_id if partition.leader_id in brokers else -1
        view = _view(leader, partition.leader_epoch if has_epochs else -1)
        index = partition.partition_index
        if 0 <= index < len(found):
            known = found[index]
            if view != known and not 0 <= view.epoch < known.epoch:
                found[index] = view
        elif index == len(found):
            found.append(view)
        else:
            beyond[index] = view
        if not number % STRIDE:
            yield
    yield from _close_up(found, beyond)
    return tuple(found)


@lru_cache(_VIEWS)
def _view(leader: int, epoch: int) -> PartitionView:
    return PartitionView(leader, epoch)


def _close_up(found: list[PartitionView], beyond: dict[int, PartitionView]) -> Steps[None]:
    """What was told of before those that it lies beyond goes behind them."""
    while (next_one := beyond.pop(len(found), None)) is not None:
        found.append(next_one)
        if not len(found) % STRIDE:
            yield
