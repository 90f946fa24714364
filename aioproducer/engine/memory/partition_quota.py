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

    __slots__ = ("_accumulator", "_cells", "_full", "_is_bounded", "_pool", "_ties")

    def __init__(self, pool: BufferPool, accumulator: PartitionQueues, *, is_bounded: bool) -> None:
        self._pool = pool
        self._accumulator = accumulator
        self._is_bounded = is_bounded
        self._cells: dict[PartitionQueue, None] = {}  # the full ones
        self._full: list[tuple[int, int, PartitionQueue]] = []  # by what they held when they were looked at last: since then it is no more
        self._ties = count()

    def is_over(self, cell: PartitionQueue) -> bool:
        """Whether a partition gets no more for now; if so, it is avoided from now on."""
        if self._is_bounded and not cell.is_full and 0 < cell.bytes >= self._pool.available:
            self._accumulator.fill(cell)
            self._keep(cell)
        return cell.is_full

    def eased(self, cell: PartitionQueue) -> Iterator[PartitionQueue]:
        """A partition holds less than before, and more is free: the full ones that may have more by now. As much work as there are of them."""
        if cell.is_full:
            self._keep(cell)
        full = self._full
        while full:
            held, _, first = full[0]
            if first.is_full and first.bytes == held:
                if held and 2 * held > self._pool.available:
                    return
                self._accumulator.availability.ease(first)
                del self._cells[first]
                heapq.heappop(full)
                yield first
            else:
                heapq.heappop(full)

    def _keep(self, cell: PartitionQueue) -> None:
        self._cells[cell] = None
        if len(self._full) > 2 * len(self._cells) + _SLACK:
            self._full = [(one.bytes, next(self._ties), one) for one in self._cells]
            heapq.heapify(self._full)
        else:
            heapq.heappush(self._full, (cell.bytes, next(self._ties), cell))
