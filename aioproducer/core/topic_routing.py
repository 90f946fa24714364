"""Holds the partition queues of a topic, and chooses the one that a record is appended to.

Records without a key go to one sticky partition until it has had its share of bytes, then to another (KIP-794). Bytes are counted
when a batch closes. So the end of a share never closes a batch early, and no append has to count.

The number of keys that a topic routing remembers is bounded. They are forgotten with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, Final

from aioproducer.core.availability import Availability
from aioproducer.core.producer_batch import TopicState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.core.producer_batch import PartitionQueue


# Keys are hashed as in Java (`Utils.murmur2`) and aiokafka, so a key has the same partition there. librdkafka's default hashes by CRC-32.


_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def _splitter(size: int) -> Callable[[bytes], tuple[bytes, int, bytes]]:
    """Return a function that splits a key of `size` bytes, 4 or more.

    The parts are all whole words but the last, that word, and the bytes after it.
    """
    rest = size & 3
    return Struct(f"<{size - rest - 4}sI{rest}s").unpack


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of `key`, unsigned. TypeError: not bytes."""
    size = len(key)
    if size < 4:
        hashed, tail = _SEED ^ size, key
    else:
        head, word, tail = (_SPLITTERS[size] if size <= _LONGEST else _splitter(size))(key)
        heads = _heads[size & 3]
        known = heads.get(head)
        if known is None:
            known = (_SEED ^ size) * _M
            for (each,) in _words(head):
                product = each * _M & _MASK
                known = ((known ^ (product ^ product >> 24) * _M) & _MASK) * _M
            if size <= _LONGEST:
                if len(heads) >= _MOST_HEADS:
                    heads.clear()
                heads[head] = known
        product = word * _M & _MASK
        hashed = (known ^ (product ^ product >> 24) * _M) & _MASK
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


# Numbered keys share their heads: 10,000 consecutive keys share all but the last word. There is one cache for each size modulo 4,
# because the size enters the hash first.
_heads: Final[tuple[dict[bytes, int], ...]] = ({}, {}, {}, {})
_MOST_HEADS: Final = 4096
# Largest size of a key, in bytes, that has its head cached.
_LONGEST: Final = 64
_SPLITTERS: Final = [_splitter(max(size, 4)) for size in range(_LONGEST + 1)]
_words = Struct("<I").iter_unpack


def weighed(depths: Sequence[int]) -> list[int] | None:
    """Return the queue depths as running sums of weights, for `pick`. None: all queues have the same depth, so no choice is better.

    The weight of a queue is the largest depth plus one batch, minus its own depth (Java's BuiltInPartitioner, PAR-06). The longest
    queue has weight 1, so it is never excluded for good.
    """
    above = max(depths) + 1
    if min(depths) + 1 == above:
        return None
    return list(accumulate([above - depth for depth in depths]))


def pick(table: Sequence[int], chance: float) -> int:
    """Return the index of a weighed queue. `chance`: a random number in [0, 1)."""
    return bisect_right(table, int(chance * table[-1]))


# Keys that a topic remembers the partition of.
_KEYS: Final = 32_768
# Sends of unknown keys after which a topic forgets its keys and learns new ones.
_STRANGERS: Final = 16 * _KEYS
# Queues that are read for each change of partition, on average.
_GLANCE: Final = 16
# Batches of one queue that are read one by one.
_MANY: Final = 32
# Partitions. With more of them, few queues have two batches, and reading all of them would block the event loop.
_MOST_WEIGHED: Final = 4096
# A unit so large that every batch counts as one.
_NO_UNIT: Final = 2**31
# The leader of a partition that has none.
NO_LEADER: Final = -1


class KeyPlacement(dict[bytes, "PartitionQueue"]):
    """Maps a key to its partition queue: `by_key[key]`. It remembers recent keys, so that they are not hashed again.

    TypeError: a key is not bytes.
    """

    __slots__ = ("_queues", "_strangers")

    def __init__(self, queues: Sequence[PartitionQueue]) -> None:
        self._queues = queues
        # Keys that are still looked up without being remembered.
        self._strangers = 0

    def place(self, key: bytes) -> PartitionQueue:
        """Return the partition queue of a key that is not remembered."""
        queues = self._queues
        queue = queues[(murmur2(key) & 0x7FFFFFFF) % len(queues)]
        if self._strangers:
            self._strangers -= 1
        else:
            self._remember(key, queue)
        return queue

    __missing__ = place

    def _remember(self, key: bytes, queue: PartitionQueue) -> None:
        # A view of the same bytes would equal them as a key, and would keep alive the object that it views.
        if type(key) is not bytes:
            raise TypeError("a key is bytes")
        if len(self) >= _KEYS:
            # Other keys are in use now, or keys hardly repeat.
            self.clear()
        self[key] = queue
        if len(self) >= _KEYS:
            self._strangers = _STRANGERS

    def forget(self) -> None:
        """Forget all keys: their partitions have changed."""
        self.clear()
        self._strangers = 0


class TopicRouting(TopicState):
    """Holds the partition queues of one topic while its id and its number of partitions stay the same. A change makes a new one.

    `availability` decides which partitions are usable, for all choices. A circuit breaker avoids a partition by
    `partition_queues.availability.avoid(queue)`, and ends that by `.welcome(queue)`. A topic routing applies the change at its next
    choice. `available` excludes the partition for the user's partitioner too. The sticky partition is replaced at once if it is
    avoided. The appender decides where records with a key, or for a named partition, go then.

    Args:
        topic: its name.
        topic_id: its topic id.
        availability: decides which partitions are usable; shared with the other topic routings.

    Attributes:
        gone: partition queues that the topic had before it was created again, with batches that still wait.
        by_key: the partition queue of each key.
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
    )

    def __init__(
        self, topic: str, topic_id: bytes, availability: Availability | None = None
    ) -> None:
        super().__init__(topic, topic_id)
        self.gone: list[PartitionQueue] | tuple[()] = ()
        self.by_key: KeyPlacement = KeyPlacement(self.queues)
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
        """Return the usable partitions; if there are none, the partitions that have a leader."""
        if self._available is None or self._version != self._availability.version:
            if self._led is None:
                self._led = tuple(queue.partition for queue in self.queues if queue.leader >= 0)
            self._version = self._availability.version
            self._available = self._availability.usable(self.queues, self._led)
            self._choices = None
        return self._available

    @property
    def choices(self) -> Sequence[int]:
        """Return the partitions that records without a key choose from.

        They are the available partitions in the client's rack, or all available ones if none is. If no partition has a leader, they
        are all partitions.
        """
        available = self.available
        if self._choices is None:
            self._choices = self._availability.near(self.queues, available) or range(
                len(self.queues)
            )
            self._looks_in = 0
        return self._choices

    def elected(self, led: Sequence[int] | None = None) -> None:
        """Note that other partitions than before have a leader; `led` has them, if they are known."""
        self._led = None if led is None else tuple(led)
        self._available = None

    def moved(self) -> None:
        """Note that a partition has another leader, which may be late, or in another rack. As many partitions have a leader as before."""
        self._available = None

    def abandon(self) -> None:
        """Drop all state derived from the partitions, because the topic is forgotten. So the partitions can be freed one by one."""
        self.elected()
        self.by_key.forget()
        self.sticky = self._choices = self._table = None

    # The sticky partition

    def stays(self, size: int, quantum: int) -> bool:
        """Return whether the sticky partition takes `size` more bytes, of `quantum` in all, before another one becomes sticky."""
        sticky = self.sticky
        return (
            sticky is not None
            and (not self.share or self.share + size <= quantum)
            and self._availability.is_usable(sticky)
        )

    def switch(self, chance: float, *, is_adaptive: bool, unit: int = _NO_UNIT) -> PartitionQueue:
        """Make another partition the sticky one and return it. The arguments are those of `another`."""
        self.sticky = self.another(chance, is_adaptive=is_adaptive, unit=unit)
        self.share = 0
        return self.sticky

    def another(
        self, chance: float, *, is_adaptive: bool = False, unit: int = _NO_UNIT
    ) -> PartitionQueue:
        """Return a partition for records without a key.

        Each usable partition has the same probability. The sticky one is excluded if there is any other. If `is_adaptive` and the
        queues differ in length, a shorter queue has a higher probability (PAR-06). The sticky partition may be chosen again then.

        Args:
            chance: a random number in [0, 1).
            is_adaptive: whether the queue lengths matter (`partitioner_adaptive_partitioning_enable`).
            unit: bytes of a batch; a batch that grew larger because it could not be sent counts as several.
        """
        # There is no choice, and topics of one partition may be many.
        if len(self.queues) == 1:
            return self.queues[0]
        choices, sticky = self.choices, self.sticky
        table = self._weights(choices, unit) if is_adaptive else None
        if table is not None:
            return self.queues[choices[pick(table, chance)]]
        at = (
            bisect_left(choices, sticky.partition)
            if sticky is not None and len(choices) > 1
            else len(choices)
        )
        is_among = sticky is not None and at < len(choices) and choices[at] == sticky.partition
        nth = int(chance * (len(choices) - is_among))
        return self.queues[choices[nth + (is_among and nth >= at)]]

    def _weights(self, choices: Sequence[int], unit: int) -> list[int] | None:
        """Return the table of weights, from recent queue lengths. None: all partitions have the same probability.

        All queues are read again only after enough changes of partition. So each change costs a few reads, however many partitions
        there are.
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
    """Return the number of batches that wait to be sent. For many batches it is estimated from their bytes, to avoid reading thousands."""
    count = len(queue.closed) + (queue.current is not None)
    if queue.bytes < 2 * unit:
        return count
    if count > _MANY:
        return max(count, queue.bytes // unit)
    batches = queue.closed if queue.current is None else [*queue.closed, queue.current]
    return sum(max(batch.credit // unit, 1) for batch in batches)
