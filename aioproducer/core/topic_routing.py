"""Where the records of a topic go: a route has a cell for each partition, knows which of them a key belongs to, and whose turn it is.

Records without a key stick to one partition until it has had its share of bytes, then to another (KIP-794). Shares are counted when a
batch closes, so that one is never cut short by the end of a share, and no record pays for the counting.

What is remembered of keys is bounded, and is forgotten with its route. Knows nothing of when a batch may go.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.availability import Availability
from aioproducer.core.partitioner import murmur2, pick, weighed
from aioproducer.core.producer_batch import NO_EPOCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.core.circuit_breaker import PartitionCircuit
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.core.sequence_numbers import SequenceNumbers

__all__ = ["NOBODY", "KeyPlacement", "PartitionQueue", "TopicRouting"]

_KEYS: Final = 32_768  # keys whose partition a topic remembers
_STRANGERS: Final = 16 * _KEYS  # sends of other keys after which it learns anew
_GLANCE: Final = 16  # queues looked at for each change of partition, on average
_MANY: Final = 32  # batches of one queue that are looked at one by one
_MOST_WEIGHED: Final = 4096  # partitions: of more, few queues have two batches, and a look at all of them would hold the loop
_NO_UNIT: Final = 2**31  # whatever a batch has, it is one
NOBODY: Final = -1  # the leader of a partition that has none


class PartitionQueue:
    """One partition's batches, and what keeps them from being drained.

    Attributes:
        open: takes records; the `full` sentinel when there is no open batch, so that the fast way asks nothing.
        connection: the connection that its batches in flight are on; opaque here.
        epoch: of the leader's election, -1 where brokers do not tell.
        numbers: of an idempotent producer's batches; None until the first is drained.
        is_sendable: its open batch waits for nothing but its turn, and takes more until that comes (KIP-782).
        is_held: nothing is drained until it is released (its transaction does not have it yet).
        one_at_a_time: after a failure or a change of leader, until a batch that went alone succeeds.
        bytes: of `buffer_memory` that its batches hold.
        filled: bytes of records that its last batch closed with.
        is_full: they hold as much as is free: it gets no more for now, and is avoided.
        circuit: of a partition that fails; None: it is well.
        is_avoided: for its circuit, who has the choice leaves it out.
        is_muted: for its circuit, nothing is drained.
        remembered_until: a batch that lives no longer than that was made soon after the one that was drained before it.
    """

    __slots__ = (
        "bytes",
        "circuit",
        "closed",
        "connection",
        "current",
        "epoch",
        "filled",
        "in_flight",
        "is_avoided",
        "is_full",
        "is_held",
        "is_muted",
        "is_sendable",
        "leader",
        "numbers",
        "one_at_a_time",
        "open",
        "partition",
        "remembered_until",
        "retry_at",
        "routing",
        "topic",
    )

    def __init__(self, routing: TopicRouting, partition: int, leader: int, full: Any) -> None:
        self.routing = routing
        self.topic = routing.topic
        self.partition = partition
        self.leader = leader
        self.epoch = NO_EPOCH
        self.open = full
        self.current: ProducerBatch | None = None
        self.closed: list[ProducerBatch] = []  # short mostly, and of a tenth of a deque's bytes
        self.in_flight = 0
        self.connection: object = None
        self.numbers: SequenceNumbers | None = None
        self.is_sendable = self.is_held = False
        self.one_at_a_time = False
        self.bytes = self.filled = 0
        self.circuit: PartitionCircuit | None = None
        self.is_full = self.is_avoided = self.is_muted = False
        self.remembered_until = self.retry_at = 0.0

    def __repr__(self) -> str:
        return f"<Cell {self.topic}-{self.partition} leader {self.leader}: {len(self.closed)} closed, {self.in_flight} in flight>"


class KeyPlacement(dict[bytes, "PartitionQueue"]):
    """`placement[key]`: the cell of a key. Those of keys seen lately are remembered, which spares their hash.

    TypeError: a key is not bytes.
    """

    __slots__ = ("_queues", "_strangers")

    def __init__(self, queues: Sequence[PartitionQueue]) -> None:
        self._queues = queues
        self._strangers = 0

    def __missing__(self, key: bytes) -> PartitionQueue:
        queues = self._queues
        queue = queues[(murmur2(key) & 0x7FFFFFFF) % len(queues)]
        if len(self) < _KEYS:
            if type(key) is not bytes:  # a view of the same bytes would be found by them, and keep what it views
                raise TypeError("a key is bytes")
            self[key] = queue
        else:
            self._strangers += 1
            if self._strangers > _STRANGERS:  # other keys are in use by now, or keys hardly repeat
                self.forget()
        return queue

    def forget(self) -> None:
        """Keys belong elsewhere by now, or others are in use."""
        self.clear()
        self._strangers = 0


class TopicRouting:
    """Where the records of one topic go, while it has that id and so many partitions: other ones make another route.

    Which partitions are usable is `availability`'s to say, for all choices alike. A circuit breaker avoids a partition by
    `accumulator.availability.avoid(cell)`, and ends that by `.welcome(cell)`. Routes notice at their next choice, `available` leaves it
    out for the user's partitioner too, and it is left at once if it is the sticky one. Where records with a key go then, or those for a
    named partition, is the appender's to say.

    Args:
        topic: its name.
        topic_id: likewise.
        availability: what partitions are judged by, shared with the other routes.

    Attributes:
        queues: its partitions.
        gone: partitions that the topic had before it was made anew, with batches that still wait for them.
        by_key: the cell of a key.
        sticky: the cell that records without a key go to, until it has had its share.
        share: bytes that it has had since, in batches that have closed.
        used_at: when a batch was last opened for it, or it was asked about.
        stamps_time: its brokers stamp records with the time of the append, as the latest answer that can be no duplicate's showed.
        is_narrow: a broker took a batch of it for too large: none takes more than `batch_size` any more.
    """

    __slots__ = (
        "_availability",
        "_available",
        "_choices",
        "_led",
        "_looks_in",
        "_table",
        "_version",
        "by_key",
        "gone",
        "is_narrow",
        "queues",
        "share",
        "stamps_time",
        "sticky",
        "topic",
        "topic_id",
        "used_at",
    )

    def __init__(self, topic: str, topic_id: bytes, availability: Availability | None = None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.queues: list[PartitionQueue] = []
        self.gone: list[PartitionQueue] | tuple[()] = ()
        self.by_key = KeyPlacement(self.queues)
        self.sticky: PartitionQueue | None = None
        self.share = 0
        self.used_at = 0.0
        self.is_narrow = self.stamps_time = False
        self._availability = availability or Availability()
        self._version = self._availability.version
        self._led: tuple[int, ...] | None = None
        self._available: tuple[int, ...] | None = None
        self._choices: Sequence[int] | None = None
        self._table: list[int] | None = None
        self._looks_in = 0

    # Usable partitions

    @property
    def available(self) -> tuple[int, ...]:
        """The usable partitions; if none is, those that have a leader."""
        if self._available is None or self._version != self._availability.version:
            if self._led is None:
                self._led = tuple(queue.partition for queue in self.queues if queue.leader >= 0)
            self._version = self._availability.version
            self._available = self._availability.usable(self.queues, self._led)
            self._choices = None
        return self._available

    @property
    def choices(self) -> Sequence[int]:
        """Of those the ones in the client's rack, if any; if no partition has a leader, all: what records without a key choose from."""
        available = self.available
        if self._choices is None:
            self._choices = self._availability.near(self.queues, available) or range(len(self.queues))
            self._looks_in = 0
        return self._choices

    def elected(self, led: Sequence[int] | None = None) -> None:
        """Other partitions than before have a leader; which, if that is known."""
        self._led = None if led is None else tuple(led)
        self._available = None

    def moved(self) -> None:
        """A partition has another leader: as many have one, but another may be late, or in another rack."""
        self._available = None

    def abandon(self) -> None:
        """The topic is forgotten: nothing that was derived of its partitions is kept, so that they can go one by one."""
        self.elected()
        self.by_key.forget()
        self.sticky = self._choices = self._table = None

    # The sticky partition

    def stays(self, size: int, quantum: int) -> bool:
        """Whether the sticky partition takes so many bytes more, of `quantum` in all, before it is another's turn."""
        sticky = self.sticky
        return sticky is not None and (not self.share or self.share + size <= quantum) and self._availability.is_usable(sticky)

    def switch(self, chance: float, *, is_adaptive: bool, unit: int = _NO_UNIT) -> PartitionQueue:
        """It is another partition's turn; the new sticky one. Arguments as of `another`."""
        self.sticky = self.another(chance, is_adaptive=is_adaptive, unit=unit)
        self.share = 0
        return self.sticky

    def leave(self, queue: PartitionQueue) -> None:
        """It is another partition's turn now, if this is the sticky one, whatever room its open batch has."""
        if self.sticky is queue:
            self.sticky = None

    def another(self, chance: float, *, is_adaptive: bool = False, unit: int = _NO_UNIT) -> PartitionQueue:
        """A partition for records without a key.

        Each of the usable ones is as likely, but for the sticky one, which is left if there is any other. If `is_adaptive` and they have
        queues of different lengths, it is the likelier the shorter its queue (PAR-06); the sticky one may be chosen again then.

        Args:
            chance: a random number in [0, 1).
            is_adaptive: whether queues matter (`partitioner_adaptive_partitioning_enable`).
            unit: bytes of a batch; one that took more, as it could not be sent, counts as several.
        """
        if len(self.queues) == 1:  # there is no choice, and topics of one partition may be many
            return self.queues[0]
        choices, sticky = self.choices, self.sticky
        table = self._weights(choices, unit) if is_adaptive else None
        if table is not None:
            return self.queues[choices[pick(table, chance)]]
        at = bisect_left(choices, sticky.partition) if sticky is not None and len(choices) > 1 else len(choices)
        is_among = sticky is not None and at < len(choices) and choices[at] == sticky.partition
        nth = int(chance * (len(choices) - is_among))
        return self.queues[choices[nth + (is_among and nth >= at)]]

    def _weights(self, choices: Sequence[int], unit: int) -> list[int] | None:
        """The table of chances, by the queues of a while ago; None: all are as likely.

        All queues are looked at anew after so many changes that each costs a few glances, however many partitions there are.
        """
        queues = self.queues
        if self._looks_in > 0:
            self._looks_in -= 1
        elif len(choices) > _MOST_WEIGHED:
            self._table = None
        else:
            self._looks_in = len(choices) // _GLANCE
            self._table = weighed([_queued(queues[at], unit) for at in choices])
        return self._table


def _queued(queue: PartitionQueue, unit: int) -> int:
    """Batches that wait to be sent; of many, what they are by their bytes, as nobody looks at thousands for each new one."""
    count = len(queue.closed) + (queue.current is not None)
    if queue.bytes < 2 * unit:
        return count
    if count > _MANY:
        return max(count, queue.bytes // unit)
    batches = queue.closed if queue.current is None else [*queue.closed, queue.current]
    return sum(max(batch.credit // unit, 1) for batch in batches)
