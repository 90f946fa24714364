"""Holds the quota of `buffer_memory` that a partition may hold with a circuit breaker: as much as is free.

A partition gets no more while it holds as much as is free. So one partition that fails holds at most a half, two hold a third each,
and the other partitions share the remainder. A partition is full from the time it is refused until it holds half of what is free. If
it could hold just one batch more, it would be full again at once.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues
    from aioproducer.engine.memory.buffer_pool import BufferPool

# Out-of-date entries of the heap that are kept, beside one for each full partition.
_SLACK: Final = 16


class PartitionQuota:
    """Holds the full partitions of one producer with a circuit breaker. Without one there is no quota, and no partition is ever full."""

    __slots__ = ("_full", "_partition_queues", "_pool", "_queues", "_ties")

    def __init__(self, pool: BufferPool, partition_queues: PartitionQueues) -> None:
        self._pool = pool
        self._partition_queues = partition_queues
        # The full partitions.
        self._queues: dict[PartitionQueue, None] = {}
        # A heap of them by the bytes that each held when it was last checked. Since then it holds no more than that.
        self._full: list[tuple[int, int, PartitionQueue]] = []
        self._ties = count()

    def is_over(self, queue: PartitionQueue) -> bool:
        """Return whether a partition gets no more bytes for now. If so, it is avoided from now on."""
        if not queue.is_full and 0 < queue.bytes >= self._pool.available:
            self._partition_queues.fill(queue)
            self._keep(queue)
        return queue.is_full

    def eased(self, queue: PartitionQueue | None = None) -> Iterator[PartitionQueue]:
        """Yield the full partitions that may hold more by now, since more is free. `queue`: the partition that holds less than before.

        The work is proportional to the number of these partitions, and of those that hold less than when they were last checked.
        """
        if queue is not None and queue.is_full:
            self._keep(queue)
        full = self._full
        while full:
            held, _, first = full[0]
            if first.is_full and first.bytes == held:
                if held and 2 * held > self._pool.available:
                    return
                self._partition_queues.availability.ease(first)
                del self._queues[first]
                heapq.heappop(full)
                yield first
            elif first.is_full:
                heapq.heapreplace(full, (first.bytes, next(self._ties), first))
            else:
                heapq.heappop(full)

    def _keep(self, queue: PartitionQueue) -> None:
        self._queues[queue] = None
        if len(self._full) > 2 * len(self._queues) + _SLACK:
            self._full = [(one.bytes, next(self._ties), one) for one in self._queues]
            heapq.heapify(self._full)
        else:
            heapq.heappush(self._full, (queue.bytes, next(self._ties), queue))
