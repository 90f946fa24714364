"""What one partition may hold of `buffer_memory`, where there is a circuit breaker: it gets no more while it holds as much as is free.

So one partition that fails holds a half at most, two hold a third each, and the rest is the others'. A partition is full from when it was
refused until it holds half of what is free: with room for one batch it would be full again at once. Knows nothing of who waits.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues
    from aioproducer.engine.memory.buffer_pool import BufferPool

__all__ = ["PartitionQuota"]

_SLACK: Final = 16  # entries that are out of date, beside one for each full partition


class PartitionQuota:
    """Of one producer's partitions.

    Args:
        is_bounded: there is a circuit breaker; without one nobody is ever full.
    """

    __slots__ = ("_full", "_is_bounded", "_partition_queues", "_pool", "_queues", "_ties")

    def __init__(self, pool: BufferPool, partition_queues: PartitionQueues, *, is_bounded: bool) -> None:
        self._pool = pool
        self._partition_queues = partition_queues
        self._is_bounded = is_bounded
        self._queues: dict[PartitionQueue, None] = {}  # the full ones
        self._full: list[tuple[int, int, PartitionQueue]] = []  # by what they held when they were looked at last: since then it is no more
        self._ties = count()

    def is_over(self, queue: PartitionQueue) -> bool:
        """Whether a partition gets no more for now; if so, it is avoided from now on."""
        if self._is_bounded and not queue.is_full and 0 < queue.bytes >= self._pool.available:
            self._partition_queues.fill(queue)
            self._keep(queue)
        return queue.is_full

    def eased(self, queue: PartitionQueue) -> Iterator[PartitionQueue]:
        """A partition holds less than before, and more is free: the full ones that may have more by now. As much work as there are of them."""
        if queue.is_full:
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
            else:
                heapq.heappop(full)

    def _keep(self, queue: PartitionQueue) -> None:
        self._queues[queue] = None
        if len(self._full) > 2 * len(self._queues) + _SLACK:
            self._full = [(one.bytes, next(self._ties), one) for one in self._queues]
            heapq.heapify(self._full)
        else:
            heapq.heappush(self._full, (queue.bytes, next(self._ties), queue))
