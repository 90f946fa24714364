"""How much room a batch has, and the part of `buffer_memory` that it takes for it.

1. Memory is taken by need: the first record's, then steps up to `batch_size`. What a batch cannot get closes it.
2. A full batch takes more, up to `batch_max_size`, while it waits for its turn to be sent and half of the memory is free (KIP-782): what
   waits behind a busy broker is one batch in the place of many. No batch of a topic does that once its broker has found one too large,
   nor one that is old: its records share the deadline that began with the first.
3. What a batch took and did not need goes back when it closes, and when it is compressed.

Knows nothing of which partition a record goes to, or of who waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from aioproducer.engine.delivery.chosen_build import RECORD_OVERHEAD, DeliveryContext, MemoryRecordsBuilder, ProduceRequestResult
from aioproducer.engine.memory.buffer_pool import BATCH_OVERHEAD
from aioproducer.model import Compression
from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from aioproducer.config import ProducerConfig
    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues, TopicRouting
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.append.loop_budget import LoopBudget
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.memory.partition_quota import PartitionQuota
    from aioproducer.records.compression_ratio_estimator import CompressionRatios

__all__ = ["MOST_OVERHEAD", "BatchSizing"]

MOST_OVERHEAD: Final = 24  # bytes of a small plain record beside its key and value
_STEP: Final = 4096  # bytes of a batch's first room: 16 KiB up front would let 2,048 quiet partitions hold 32 MiB
_LEAST: Final = 512  # likewise, while memory is short
_TIMES: Final = 3  # its room that a full batch gets more: each time what it has is copied


class BatchSizing:
    """The memory of one producer's batches.

    Args:
        loop_budget: is told of the bytes that each takes.
        pool: `buffer_memory`.
        ratios: how far topics compress: a batch takes what should become `batch_size`.
        shares: how much of the memory a partition may hold.

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
        shares: PartitionQuota,
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
        self.limit = max(min(config.batch_size, request) - OVERHEAD, 1)
        self._most = max(self.limit, request - OVERHEAD)
        self._widest = min(config.batch_max_size, request) - OVERHEAD if config.batch_size > OVERHEAD else 0
        self.first = min(_STEP, self.limit, config.buffer_memory - BATCH_OVERHEAD)
        # while so much is free; plain Python copies nothing when a batch grows, and counts then what its records cost beside their bytes
        self._plenty = config.buffer_memory + 1 if RECORD_OVERHEAD else config.buffer_memory // 2
        self._least = min(_LEAST, self.first)
        self._thrift = 0  # batches that open with the least room, since memory was short: as many as it holds

    def of(self, topic: str) -> int:
        """Bytes of records that a batch takes before compression."""
        return self.limit if self._codec is Compression.NONE else min(self._ratios.room(topic, self._codec, self.limit), self._most)

    def of_rows(self, routing: TopicRouting, size: int) -> int:
        """Likewise of a batch of rows that are there at once, `size` bytes in all: as much as a full batch that waits may take."""
        room = self.of(routing.topic)
        return max(room, self._widest) if self._may_widen(routing, size) else room

    def _may_widen(self, routing: TopicRouting, size: int) -> bool:
        """Whether batches of a topic may have more than `batch_size`, with so many bytes of the memory taken for it."""
        return not routing.is_narrow and 2 * (self._pool.available - size) >= self._pool.size

    def is_there(self, size: int, records: int, partitions: int) -> bool:
        """Whether there is memory for so many records, of so many bytes, in so many partitions, whatever batches are open."""
        batches = partitions + size // self.limit + 1
        return self._pool.available >= size + records * (MOST_OVERHEAD + RECORD_OVERHEAD) + batches * (self.first + BATCH_OVERHEAD)

    # A batch

    def open(self, queue: PartitionQueue, now_ms: int, size: int) -> ProducerBatch | None:
        """A batch for a record of so many bytes. None: no memory for it, or its partition must not have more.

        While memory is short it opens with as much as the last one of its partition took, if there is so much.
        """
        if not self._thrift:
            return self._open(queue, now_ms, max(size, self.first))
        self._thrift -= 1
        least = max(size, self._least)
        usual = min(queue.filled, self.limit)
        batch = self._open(queue, now_ms, usual) if usual > least else None
        return batch if batch is not None else self._open(queue, now_ms, least)

    def open_wide(self, queue: PartitionQueue, now_ms: int, size: int, *, behind: bool) -> ProducerBatch | None:
        """One that has all its room at once, while memory is plentiful, as by steps it would be copied, or `behind` one that was full."""
        batch, room = None, self.of(queue.topic)
        if behind:
            batch = self._open(queue, now_ms, room)
        elif not self._thrift and self._pool.available >= self._plenty:
            batch = self._open(queue, now_ms, room, ahead=room - self.first)
        return batch if batch is not None else self.open(queue, now_ms, size)

    def open_for_many(self, queue: PartitionQueue, now_ms: int, size: int) -> ProducerBatch:
        """One for records of so many bytes in all, for which there is memory (`is_there`)."""
        room = min(self.limit, max(self.first, size))
        self._pool.take(room + BATCH_OVERHEAD)
        return self._opened(queue, now_ms, room, 0)

    def _open(self, queue: PartitionQueue, now_ms: int, room: int, *, ahead: int = 0) -> ProducerBatch | None:
        """`ahead`: bytes of its room that this turn perhaps does not fill."""
        if self._shares.is_over(queue) or not self._take(room + BATCH_OVERHEAD):
            return None
        return self._opened(queue, now_ms, room, ahead)

    def _opened(self, queue: PartitionQueue, now_ms: int, room: int, ahead: int) -> ProducerBatch:
        credit = room + BATCH_OVERHEAD
        self._loop_budget.spent += credit - ahead
        result = ProduceRequestResult(self._delivery_context, queue.topic, queue.partition, now_ms)
        return self._partition_queues.open(queue, MemoryRecordsBuilder(result, now_ms, room), result, credit=credit, now=self._loop.time())

    def _take(self, credit: int) -> bool:
        """Memory, if there is so much; if not, batches take little for a while: with much room each, some of thousands would have it all."""
        if self._pool.try_take(credit):
            return True
        self._thrift = self._pool.size // (self._least + BATCH_OVERHEAD)
        return False

    def grow(self, batch: ProducerBatch, size: int) -> bool:
        """More room for an open batch, up to `batch_size`; False: it is full, or memory is short."""
        assert batch.open is not None
        left = self.of(batch.queue.topic) - batch.open.granted
        if size > left or self._shares.is_over(batch.queue):
            return False
        if self._thrift or not self._take(left):
            left = min(left, max(size, batch.open.granted))
            if not self._pool.try_take(left):
                return False
        self._loop_budget.spent += left + self._give(batch, left)
        return True

    def may_grow(self, queue: PartitionQueue, size: int) -> bool:
        """Whether an open batch that does not take a record so large waits for memory alone. It is not closed for that: see `flush_partial_batches`."""
        batch = queue.current
        return batch is not None and batch.open is not None and size <= self.of(queue.topic) - batch.open.granted

    def widen(self, batch: ProducerBatch, size: int, most: int | None = None, *, at_once: bool = False) -> bool:
        """Three times the room more, or `most` bytes, for a full batch that has not been sent yet. False: it is to be closed.

        `at_once`: this turn fills it, so that all of it counts into that.
        """
        left = self.beyond(batch, most)
        if not left or size > left:
            return False
        self._pool.take(left)
        self._give(batch, left)
        self._loop_budget.spent += left if at_once else min(left, self.limit)
        self._partition_queues.mark_sendable(batch.queue)
        return True

    def beyond(self, batch: ProducerBatch, most: int | None = None) -> int:
        """Bytes that a full batch may take more, 0: none."""
        if batch.open is None:  # it was closed as its partition must not have more (`shares`)
            return 0
        granted, queue = batch.open.granted, batch.queue
        left = min(_TIMES * granted if most is None else most, self._widest - granted)
        if left <= 0 or not self._may_widen(queue.routing, left) or self._shares.is_over(queue):
            return 0
        return left if self._partition_queues.closes_at(batch) > self._loop.time() else 0

    def _give(self, batch: ProducerBatch, left: int) -> int:
        """So much more room, which was taken already; bytes that the records there cost beside it."""
        assert batch.open is not None
        overhead = (batch.open.count - batch.settled) * RECORD_OVERHEAD
        self._pool.take(overhead)
        batch.settled = batch.open.count
        batch.hold(batch.credit + left + overhead)
        batch.open.grow(left)
        return overhead

    # What it did not need

    def settle(self, batch: ProducerBatch) -> None:
        """A batch closed: what it took beyond its bytes goes back, and the sticky partition has had so much more of its share."""
        assert batch.payload is not None
        queue = batch.queue
        queue.filled = len(batch.payload)
        if queue.routing.sticky is queue:
            queue.routing.share += len(batch.payload)
        self.shrink(batch, len(batch.payload) + BATCH_OVERHEAD)

    def shrink(self, batch: ProducerBatch, credit: int) -> None:
        """A batch needs no more than `credit` bytes from now on; more, if an older broker's format made it grow."""
        if batch.credit > credit:
            self._pool.release(-batch.hold(credit))
        elif batch.magic < 2:
            self._pool.take(batch.hold(credit))
