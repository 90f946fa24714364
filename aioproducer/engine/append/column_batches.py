"""Batches of column rows: a window is queued as whole batches, all of it in one step, or not at all.

1. A window waits as one record does: for its topic, for memory, for the next event-loop iteration, in the wait queue. Its rows are
   encoded only once there is memory for them, so the queued rows are always the first ones.
2. Its batches are queued behind those of their partitions, whereby the open batches there are closed. Rows without a key go where records
   without a key go, batch by batch. In a window that also has rows with keys, they all go to one partition and keep their order there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aioproducer.engine.chosen_build import ProduceRequestResult
from aioproducer.engine.memory import wait_reasons
from aioproducer.engine.memory.buffer_pool import BATCH_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues, TopicRouting
    from aioproducer.engine.append.column_window import ColumnWindow
    from aioproducer.engine.chosen_build import Delivery, DeliveryContext
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.memory.partition_quota import PartitionQuota
    from aioproducer.engine.memory.wait_queue import PendingSend
    from aioproducer.engine.tasks.guarded_loop import GuardedLoop
    from aioproducer.records.columns import Encoded

__all__ = ["ColumnBatches"]


class _Sealed:
    """Holds a batch that is encoded before it is opened (an `interfaces.OpenBatch`)."""

    __slots__ = ("_encoded", "_result", "count")

    def __init__(self, encoded: Encoded, result: ProduceRequestResult) -> None:
        self._encoded = encoded
        self._result = result
        self.count = encoded.rows

    def close(self) -> tuple[bytes, int, int]:
        encoded, result = self._encoded, self._result
        result.count = encoded.rows
        result.record_sizes = (encoded.key_sizes, encoded.value_sizes, encoded.moments)
        return encoded.payload, encoded.base, encoded.latest


class ColumnBatches:
    """Queues the windows of one producer in its partition queues.

    Args:
        shares: the quota of the memory that a partition may hold; None: it may hold all.
        sticky: returns the partition for so many bytes without a key, of a topic routing.
        room: returns the bytes of records in a batch of a topic.
        is_told: a window for an avoided partition fails at once.
    """

    def __init__(
        self,
        loop: GuardedLoop,
        partition_queues: PartitionQueues,
        pool: BufferPool,
        shares: PartitionQuota | None,
        delivery_context: DeliveryContext,
        *,
        sticky: Callable[[TopicRouting, int], PartitionQueue],
        room: Callable[[TopicRouting], int],
        is_told: bool,
    ) -> None:
        self._loop = loop
        self._partition_queues = partition_queues
        self._pool = pool
        self._shares = shares
        self._delivery_context = delivery_context
        self._sticky = sticky
        self._room = room
        self._is_told = is_told

    def place(self, record: PendingSend, window: ColumnWindow, routing: TopicRouting, now_ms: int) -> Delivery | None:
        """Queue `window`. Returns the delivery of its first row, or None.

        None: memory is short, or one of its partitions must not have more (`record.behind`).

        Raises:
            UsageError: a row cannot be a record. No row is queued.
            PartitionUnavailable: a partition of the rows is muted, and the user's policy is to fail at once. No row is queued.
        """
        groups = window.queues(routing, self._sticky)
        queues = [queue for queue in groups if queue is not None]
        for queue in queues:
            if queue.is_avoided and self._is_told:
                raise wait_reasons.unavailable(queue, "Its rows were not queued.")
        room = self._room(routing)
        record.behind = spare = None
        if self._shares is not None:
            if None in groups:
                spare = self._sticky(routing, min(window.size, room))
                queues.append(spare)
            record.behind = next(filter(self._shares.is_over, queues), None)
        if record.behind is not None or min(window.need(room), self._pool.size) > self._pool.available:
            return None
        return window.queue(window.encode(now_ms, room), partial(self._add, routing, spare))

    def _add(
        self, routing: TopicRouting, spare: PartitionQueue | None, queue: PartitionQueue | None, encoded: Encoded
    ) -> ProduceRequestResult:
        size = len(encoded.payload)
        if queue is None:
            queue = self._sticky(routing, size)
            # Records may wait for a full partition. The spare one had room, so that none waits for it.
            queue = spare if spare is not None and queue.is_full else queue
        result = ProduceRequestResult(self._delivery_context, queue.topic, queue.partition, encoded.base)
        batch = self._partition_queues.open(queue, _Sealed(encoded, result), result, now=self._loop.time())
        self._pool.hold(batch, size + BATCH_OVERHEAD)
        self._partition_queues.close(queue)
        return result
