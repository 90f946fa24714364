"""Sizes of batches, and the part of `buffer_memory` that each batch takes.

1. A batch takes memory as needed: first for the first record, then in steps up to `batch_size`. A batch that may not
   grow any more is closed.
2. A full batch grows up to `batch_max_size` while it waits to be sent (KIP-782). One batch then replaces many behind a busy broker. While
   less than half of the memory is free, it grows by `batch_size` at once, as the next batch would take as much. No batch of a topic grows so
   once its broker has found a batch too large. An old batch closes, as any open batch does (`core.deadlines`).
3. A batch gives unused memory back when it closes, and when it is compressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, cast

from aioproducer.core.record_validation import BATCH_OVERHEAD
from aioproducer.engine.chosen_build import (
    RECORD_OVERHEAD,
    DeliveryContext,
    MemoryRecordsBuilder,
    ProduceRequestResult,
)
from aioproducer.model import Compression
from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues, TopicRouting
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.append.loop_budget import LoopBudget
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.memory.partition_quota import PartitionQuota
    from aioproducer.records.compression import CompressionRatios

    # Appends the first records of a batch.
    Put = Callable[[MemoryRecordsBuilder], "T | None"]

T = TypeVar("T")

# Bytes of a small plain record beside its key and value.
MOST_OVERHEAD: Final = 24
# Bytes that a batch opens with: with 16 KiB up front, 2,048 quiet partitions could hold 32 MiB.
_STEP: Final = 4096
# Bytes that a batch opens with while memory is short.
_LEAST: Final = 512
# A full batch grows by so many times its size, because each growth copies its records.
_TIMES: Final = 3


class BatchSizing:
    """Allocates the memory of one producer's batches.

    Args:
        loop_budget: counts the bytes that each batch takes.
        pool: `buffer_memory`.
        ratios: the compression ratios of topics: a batch takes records that should compress to `batch_size`.
        shares: the quota of the memory that a partition may hold; None: it may hold all.

    Attributes:
        limit: bytes of records in a batch of `batch_size`, or of `max_request_size` if that is less.
        first: bytes that a batch opens with, unless a record needs more.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: AbstractEventLoop,
        loop_budget: LoopBudget,
        partition_queues: PartitionQueues,
        pool: BufferPool,
        delivery_context: DeliveryContext,
        *,
        ratios: CompressionRatios,
        shares: PartitionQuota | None,
    ) -> None:
        self._loop = loop
        self._loop_budget = loop_budget
        self._partition_queues = partition_queues
        self._pool = pool
        self._delivery_context = delivery_context
        self._ratios = ratios
        self._shares = shares
        self._codec = cast("Compression", config.compression_type)
        request = int(config.max_request_size)
        self.limit: int = max(min(config.batch_size, request) - OVERHEAD, 1)
        self._most = max(self.limit, request - OVERHEAD)
        self._widest = (
            min(config.batch_max_size, request) - OVERHEAD if config.batch_size > OVERHEAD else 0
        )
        self.first: int = min(_STEP, self.limit, config.buffer_memory - BATCH_OVERHEAD)
        # While so many bytes are free, a batch opens at full size. In plain Python that is never: a batch copies nothing when it grows,
        # and it then counts the overhead of its records.
        self._plenty = config.buffer_memory + 1 if RECORD_OVERHEAD else config.buffer_memory // 2
        self._least = min(_LEAST, self.first)
        # Batches of the least bytes that `buffer_memory` holds.
        self._most_batches = config.buffer_memory // (self._least + BATCH_OVERHEAD)
        # Batches that still open with few bytes, since memory was short. With many bytes each, some of thousands would take all memory.
        self._thrift = 0

    def of(self, topic: str) -> int:
        """Return the bytes of records that a batch takes before compression."""
        return (
            self.limit
            if self._codec is Compression.NONE
            else min(self._ratios.room(topic, self._codec, self.limit), self._most)
        )

    def of_rows(self, routing: TopicRouting) -> int:
        """Return the bytes of rows in a batch where all rows are there at once: as many as a full batch that waits may take.

        Such a batch takes no memory before its rows are there, so a few large ones take less of it than many small ones.
        """
        room = self.of(routing.topic)
        return room if routing.is_narrow else max(room, self._widest)

    def is_there(self, size: int, records: int, partitions: int) -> bool:
        """Return whether there is memory for so many records, of `size` bytes in all, in so many partitions, with any batches open."""
        batches = partitions + size // self.limit + 1
        return self._pool.available >= size + records * (
            MOST_OVERHEAD + RECORD_OVERHEAD
        ) + batches * (self.first + BATCH_OVERHEAD)

    # One batch

    def open(self, queue: PartitionQueue, now_ms: int, size: int, put: Put[T]) -> T | None:
        """Open a batch for a record of `size` bytes, which `put` appends, and return what it returns.

        Returns None if memory is short, or the partition must not have more.
        While memory is short, the batch opens with as many bytes as the last one of its partition took, if there are so many.
        """
        if not self._thrift:
            return self._open(queue, now_ms, max(size, self.first), put)
        self._thrift -= 1
        least = max(size, self._least)
        usual = min(queue.filled, self.limit)
        outcome = self._open(queue, now_ms, usual, put) if usual > least else None
        return outcome if outcome is not None else self._open(queue, now_ms, least, put)

    def open_wide(
        self, queue: PartitionQueue, now_ms: int, size: int, put: Put[T], *, behind: bool
    ) -> T | None:
        """Open a batch with all its bytes at once, because growth in steps copies records. Returns None as `open` does.

        That needs plentiful memory, or a full batch before it (`behind`). Otherwise the batch opens as `open` does it.
        """
        if behind or (not self._thrift and self._pool.available >= self._plenty):
            room = self.of(queue.topic)
            outcome = self._open(queue, now_ms, room, put, ahead=0 if behind else room - self.first)
            if outcome is not None:
                return outcome
        return self.open(queue, now_ms, size, put)

    def open_for_many(self, queue: PartitionQueue, now_ms: int, size: int, put: Put[T]) -> T:
        """Open a batch for records of `size` bytes in all, for which there is memory (`is_there`). Returns what `put` returns."""
        outcome = self._open(
            queue, now_ms, min(self.limit, max(self.first, size)), put, is_there=True
        )
        assert outcome is not None
        return outcome

    def _open(
        self,
        queue: PartitionQueue,
        now_ms: int,
        room: int,
        put: Put[T],
        *,
        ahead: int = 0,
        is_there: bool = False,
    ) -> T | None:
        """Open a batch of `room` bytes with what `put` appends, and return what it returns; None as `open` does.

        A batch that an exception leaves open therefore has a record, and brokers take it.

        `ahead`: bytes of it that this event-loop iteration perhaps does not fill. `is_there`: the caller knows that there is memory for it.
        """
        credit = room + BATCH_OVERHEAD
        if not is_there:
            if self._shares is not None and self._shares.is_over(queue):
                return None
            if credit > self._pool.available:
                self._thrift = self._most_batches
                return None
        result = ProduceRequestResult(self._delivery_context, queue.topic, queue.partition, now_ms)
        records = MemoryRecordsBuilder(result, now_ms, room)
        outcome = put(records)
        self._pool.hold(
            self._partition_queues.open(queue, records, result, now=self._loop.time()), credit
        )
        self._loop_budget.spend(credit - ahead)
        return outcome

    def grow(self, batch: ProducerBatch, size: int) -> bool:
        """Grow an open batch, up to `batch_size`. Returns False if it is full, its partition is full, or memory is short."""
        records = batch.open
        # A send within this one has closed it: rule 9 of `core/partition_queues.py`.
        if records is None:
            return False
        left = self.of(batch.queue.topic) - records.granted
        if size > left or (self._shares is not None and self._shares.is_over(batch.queue)):
            return False
        if self._thrift or left > self._pool.available:
            self._thrift = self._thrift or self._most_batches
            left = min(left, max(size, records.granted))
            if left > self._pool.available:
                return False
        self._loop_budget.spend(left + self._give(batch, left))
        return True

    def may_grow(self, batch: ProducerBatch, size: int) -> bool:
        """Return whether a batch that does not take a record of `size` bytes is open and lacks memory alone.

        The batch is not closed for that: see `flush_partial_batches`.
        """
        records = batch.open
        if records is None:
            return False
        return size + records.granted <= self.of(
            batch.queue.topic
        ) or self._pool.available < size <= self._left_to_widen(batch)

    def widen(
        self, batch: ProducerBatch, size: int, most: int | None = None, *, at_once: int = 0
    ) -> bool:
        """Grow a full batch that is not sent yet by three times its size, or by `most` bytes. Returns False: the caller closes it.

        `at_once`: bytes of records that follow in this event-loop iteration. They fill the batch, so all of its growth counts in the loop
        budget; and while memory is short, it grows by no more, because `is_there` has counted them.
        """
        left = self.beyond(batch, most, at_once)
        if not left or size > left:
            return False
        self._give(batch, left)
        self._loop_budget.spend(left if at_once else min(left, self.limit))
        self._partition_queues.mark_sendable(batch.queue)
        return True

    def beyond(self, batch: ProducerBatch, most: int | None = None, at_once: int = 0) -> int:
        """Return the bytes that a full batch may take more now, or 0."""
        left = self._left_to_widen(batch)
        if left:
            left = min(left, _TIMES * (self._widest - left) if most is None else most)
            if 2 * (self._pool.available - left) < self._pool.size:
                # While memory is short, small batches alone would leave to a distant broker, and memory would stay short.
                left = min(left, at_once or self.limit, self.limit, self._pool.available)
        return left

    def _left_to_widen(self, batch: ProducerBatch) -> int:
        """Return the bytes that a full batch may take more if there is memory."""
        # Its partition must not have more (`shares`), and the batch was closed.
        if batch.open is None:
            return 0
        queue = batch.queue
        if queue.routing.is_narrow or (self._shares is not None and self._shares.is_over(queue)):
            return 0
        return max(self._widest - batch.open.granted, 0)

    def _give(self, batch: ProducerBatch, left: int) -> int:
        """Grow a batch. Returns the overhead bytes of its records, which it takes, too."""
        records = batch.open
        if records is None:
            return 0
        overhead = (records.count - batch.settled) * RECORD_OVERHEAD
        try:
            records.grow(left)
        except ValueError:
            # A send within this one has closed it: rule 9 of `core/partition_queues.py`.
            return 0
        self._pool.hold(batch, batch.credit + left + overhead)
        batch.settled = records.count
        return overhead


# Unused memory


def settle(pool: BufferPool, batch: ProducerBatch) -> None:
    """Release what a closed batch took beyond its bytes, and add its bytes to the share of the sticky partition."""
    queue, size = batch.queue, batch.raw_size
    queue.filled = size
    routing = queue.routing
    if routing.sticky is queue:
        routing.share += size
    if batch.credit > size + BATCH_OVERHEAD:
        pool.hold(batch, size + BATCH_OVERHEAD)


def shrink(pool: BufferPool, batch: ProducerBatch, credit: int) -> None:
    """Reduce a batch's memory to `credit` bytes; take more if an older broker's format made the batch larger."""
    if batch.credit > credit or batch.magic < 2:
        pool.hold(batch, credit)
