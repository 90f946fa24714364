"""Holds the metadata of the cluster, and applies answers to it.

1. A partial answer changes only its topics. The brokers and the cluster id are those of the newest answer (MET-03). Topics are
   applied one by one, each by a generator that yields where other work can run. The known state of a topic is an immutable value.
2. An older leader epoch of the same topic id comes from a stale broker: the known leader stays (MET-07). A new topic id is a new
   topic. An answer without a topic id, or without a reliable epoch, comes from a broker that is older than these fields. If the known
   leader does not work, and `_OLDER_ANSWERS` answers in a row have an older epoch, the known one is wrong: the older one is applied.
3. An answer without brokers comes from a broker that is starting: nothing changes (MET-11). An answer's entry for a broker without
   a usable address, or with two addresses, is ignored: the known entry stays.
4. Another cluster id is another cluster: all topics of the old cluster are dropped.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import BrokerError, broker_error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

_log = logging.getLogger(__name__)
NO_ID: Final = bytes(16)
# Partitions of a microsecond or two each between two `yield`s: a topic of 100,000 in one step would hold the event loop for 230 ms.
STRIDE: Final = 128
# Pairs of leader and epoch that share one object. Thousands of topics have few distinct pairs.
_VIEWS: Final = 4096
# Characters of a host: a name of the DNS, with its last dot.
_LONGEST_HOST: Final = 254
# Answers in a row after which an older epoch is applied: they take some 2 s, and a broker that lags behind others has caught up by then.
# Java's producer keeps the newest epoch of a topic id for ever, and franz-go applies the fifth older answer after the known one, too.
_OLDER_ANSWERS: Final = 5


class Broker(NamedTuple):
    """Holds a broker's id and the address that clients connect to."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def name(self) -> str:
        """Return the id for texts; "bootstrap" if only the address is known yet, whose id here is negative."""
        return str(self.node_id) if self.node_id >= 0 else "bootstrap"


class PartitionView(NamedTuple):
    """Holds a partition's leader, -1 for none, and the epoch of its election."""

    leader: int
    epoch: int


class TopicView(NamedTuple):
    """Holds a topic as last reported: its partitions by index, or an error instead of them."""

    name: str
    topic_id: bytes = NO_ID
    partitions: tuple[PartitionView, ...] = ()
    error: BrokerError | None = None

    def may_settle(self) -> Generator[None, None, bool]:
        """Return, in steps, whether another request may help: a leader is missing, or the error is retriable."""
        if self.error is not None:
            return self.error.retriable
        for at in range(0, len(self.partitions), STRIDE):
            if at:
                yield
            if any(partition.leader < 0 for partition in self.partitions[at : at + STRIDE]):
                return True
        return False


class ClusterMetadata:
    """Holds the known brokers and topics.

    Attributes:
        brokers: by id; the mapping is replaced as a whole, never changed.
        topics: by name.
        cluster_id: None until a broker reports it.
    """

    def __init__(self) -> None:
        self.brokers: Mapping[int, Broker] = {}
        self.topics: dict[str, TopicView] = {}
        self.cluster_id: str | None = None
        # By topic and partition, the answers in a row that had an older epoch while the known leader did not work.
        self._older: dict[str, dict[int, int]] = {}

    def forget(self, name: str) -> None:
        """Forget a topic."""
        self.topics.pop(name, None)
        self._older.pop(name, None)

    def is_in_rack(self, rack: str, node_id: int) -> bool:
        """Return whether a broker is known to be in a rack (KIP-1123)."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.rack == rack

    def is_of(self, cluster_id: str | None) -> bool:
        """Return whether `cluster_id` may be the id of the known cluster."""
        return self.cluster_id is None or cluster_id is None or cluster_id == self.cluster_id

    def take_cluster(self, answer: Any) -> bool:
        """Apply the brokers and the cluster id of a decoded Metadata answer.

        Returns False if the answer names no broker with a usable address. Nothing changes then.
        """
        brokers = _brokers(answer.brokers, self.brokers)
        if not brokers:
            return False
        if not self.is_of(answer.cluster_id):
            # A topic of the old cluster that is being applied is dropped, too.
            self.topics = {}
            self._older = {}
        self.brokers = brokers
        self.cluster_id = answer.cluster_id or self.cluster_id
        return True

    def take_broker(self, broker: Broker) -> bool:
        """Add a broker that an answer other than Metadata named: a coordinator. Returns False if it has no usable address."""
        if self.brokers.get(broker.node_id, ())[:3] == broker[:3]:
            return True
        found = _brokers([broker], {})
        self.brokers = {**self.brokers, **found}
        return bool(found)

    def taking(
        self, told: Any, *, has_epochs: bool = True, is_urged: bool = False
    ) -> Generator[None, None, TopicView | None]:
        """Apply one topic of an answer. Returns the topic if it has changed.

        The topic changes in the last step. Until then no other caller may apply the same topic.

        Args:
            told: the topic of a decoded answer, after `take_cluster`.
            has_epochs: whether its leader epochs are reliable; before Metadata v9 they are not (KAFKA-9835).
            is_urged: whether it was requested because the known metadata does not work. Otherwise, older epochs are not counted.
        """
        if told.name is None:
            return None
        topics = self.topics
        known = topics.get(told.name)
        older: dict[int, PartitionView] = {}
        topic = yield from _topic(told, known, self.brokers, older, has_epochs=has_epochs)
        if is_urged and (older or told.name in self._older):
            topic = yield from self._judging(topic, older)
        if topic == known:
            return None
        topics[told.name] = topic
        return topic

    def _judging(
        self, topic: TopicView, older: Mapping[int, PartitionView]
    ) -> Generator[None, None, TopicView]:
        """Count the older epochs of an answer. Returns the topic with those that enough answers in a row had."""
        before = self._older.pop(topic.name, {})
        counts: dict[int, int] = {}
        partitions = list(topic.partitions)
        for number, (index, view) in enumerate(older.items(), 1):
            count = before.get(index, 0) + 1
            if count < _OLDER_ANSWERS:
                counts[index] = count
            else:
                partitions[index] = view
            if not number % STRIDE:
                yield
        if counts:
            self._older[topic.name] = counts
        if len(counts) == len(older):
            return topic
        _log.warning(
            "%d answers in a row had older leader epochs of topic %s: they are applied",
            _OLDER_ANSWERS,
            topic.name,
        )
        return topic._replace(partitions=tuple(partitions))

    def take_leader(
        self, name: str, partition: int, leader: int, epoch: int, endpoints: Iterable[Any] = ()
    ) -> TopicView | None:
        """Apply a leader from a Produce answer (KIP-951, LDR-01), if it is newly elected and reachable.

        Args:
            name: the topic.
            partition: its number.
            leader: the broker's id; -1: none, which changes nothing.
            epoch: of its election.
            endpoints: brokers as the answer describes them: `node_id`, `host`, `port`, `rack`.

        Returns:
            The topic with that leader. None: the partition is not known, the leader is not new, or its address is not known.
        """
        topic = self.topics.get(name)
        if (
            topic is None
            or not 0 <= partition < len(topic.partitions)
            or epoch <= topic.partitions[partition].epoch
        ):
            return None
        brokers = {
            **self.brokers,
            **_brokers([broker for broker in endpoints if broker.node_id == leader], self.brokers),
        }
        if leader not in brokers:
            return None
        partitions = list(topic.partitions)
        partitions[partition] = PartitionView(leader, epoch)
        topic = self.topics[name] = topic._replace(partitions=tuple(partitions))
        self.brokers = brokers
        # The older answers were those of stale brokers.
        self._older.pop(name, None)
        return topic


def _brokers(told: Iterable[Any], known: Mapping[int, Broker]) -> dict[int, Broker]:
    """Return the brokers that have a usable address, by id.

    A broker without a usable address, or with two, keeps its known entry.
    """
    brokers: dict[int, Broker] = {}
    doubtful = set()
    for each in told:
        broker = Broker(each.node_id, each.host, each.port, each.rack)
        if broker.node_id < 0:
            continue
        if not _is_usable(broker) or brokers.setdefault(broker.node_id, broker)[:3] != broker[:3]:
            doubtful.add(broker.node_id)
    for node_id in doubtful:
        brokers.pop(node_id, None)
        if node_id in known:
            brokers[node_id] = known[node_id]
    return brokers


def _is_usable(broker: Broker) -> bool:
    """Return whether a broker's address may be dialled. A host that no name can be could fill logs, or forge their lines."""
    return (
        0 < len(broker.host) <= _LONGEST_HOST
        and broker.host.isprintable()
        and 0 < broker.port < 65_536
    )


def _topic(
    told: Any,
    known: TopicView | None,
    brokers: Mapping[int, Broker],
    older: dict[int, PartitionView],
    *,
    has_epochs: bool,
) -> Generator[None, None, TopicView]:
    """Return one topic of an answer. Known values are kept where the answer is older; `older` gets what it has there."""
    if told.error_code and not told.partitions:
        error = broker_error(told.error_code)
        if known is not None and known.partitions and error.retriable:
            return known
        return TopicView(told.name, error=error)
    if known is None or known.error is not None or told.topic_id not in (known.topic_id, NO_ID):
        # A new topic, or a topic that was created again under that name.
        known = TopicView(told.name, told.topic_id)
    partitions = yield from _partitions(
        told, known.partitions, brokers, older, has_epochs=has_epochs
    )
    # No partition has a valid index: treat the topic as one that has no leader for its first partition yet.
    if not partitions:
        return TopicView(told.name, error=broker_error("LEADER_NOT_AVAILABLE"))
    return TopicView(told.name, known.topic_id, partitions)


def _partitions(
    told: Any,
    before: tuple[PartitionView, ...],
    brokers: Mapping[int, Broker],
    older: dict[int, PartitionView],
    *,
    has_epochs: bool,
) -> Generator[None, None, tuple[PartitionView, ...]]:
    """Return the partitions of a topic, numbered without gaps. A partition beyond a gap is not usable yet.

    Equal views are one object, also across topics. So a tuple of many views is compared and freed at once.
    """
    found, beyond = list(before), dict[int, PartitionView]()
    for number, partition in enumerate(told.partitions, 1):
        leader = partition.leader_id if partition.leader_id in brokers else -1
        view = _view(leader, partition.leader_epoch if has_epochs else -1)
        index = partition.partition_index
        if 0 <= index < len(found):
            known = found[index]
            if 0 <= view.epoch < known.epoch:
                older[index] = view
            elif view != known:
                found[index] = view
                older.pop(index, None)
        elif index == len(found):
            found.append(view)
        else:
            beyond[index] = view
        if not number % STRIDE:
            yield
    # Those beyond a gap, as far as no gap is left before them.
    while (next_one := beyond.pop(len(found), None)) is not None:
        found.append(next_one)
        if not len(found) % STRIDE:
            yield
    return tuple(found)


@lru_cache(_VIEWS)
def _view(leader: int, epoch: int) -> PartitionView:
    return PartitionView(leader, epoch)
