"""Those who wait for one partition alone, which holds as much of `buffer_memory` as it may: a line for each.

1. A lot is either still, and then its partition is full; or it is roused: its partition may take more, and its head stands in line with
   everybody else, by the number of its call.
2. Who waits for a partition stays with it, as what is queued there does, also when its key comes to belong elsewhere.
3. A record never goes ahead of an earlier one of its partition: who comes while a lot is still goes into it, and who comes while one is
   roused stands behind it.

Knows nothing of memory, or of who appends.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

from aioproducer.engine.memory.buffer_pool import WaitQueue

if TYPE_CHECKING:
    from aioproducer.core.partition_queues import PartitionQueue
    from aioproducer.engine.memory.buffer_pool import PendingSend

__all__ = ["PartitionWaitQueues"]


class PartitionWaitQueues:
    """The lots of one producer."""

    __slots__ = ("_roused", "_ties", "_turns", "_wait_queues")

    def __init__(self) -> None:
        self._wait_queues: dict[PartitionQueue, WaitQueue] = {}
        self._roused: dict[PartitionQueue, None] = {}
        # of the roused ones, by the number of their heads when they were looked at last
        self._turns: list[tuple[int, int, PartitionQueue]] = []
        self._ties = count()

    @property
    def is_roused(self) -> bool:
        """Whether there is a lot whose head stands in line."""
        return bool(self._turns) and self.next() is not None

    def line(self, queue: PartitionQueue) -> WaitQueue:
        """Where to wait for a partition."""
        return self._wait_queues.setdefault(queue, WaitQueue())

    def lines(self) -> list[WaitQueue]:
        """All of them."""
        return list(self._wait_queues.values())

    def rouse(self, queue: PartitionQueue) -> bool:
        """A partition may take more, or its records may go elsewhere. False: nobody waits for it."""
        lot = self._wait_queues.get(queue)
        head = lot.head() if lot is not None else None
        if head is None:
            self._wait_queues.pop(queue, None)
            self._roused.pop(queue, None)
            return False
        if queue not in self._roused:
            self._roused[queue] = None
            heapq.heappush(self._turns, (head.number, next(self._ties), queue))
        return True

    def calm(self, queue: PartitionQueue) -> None:
        """It takes no more after all; the turn that it has is passed over."""
        self._roused.pop(queue, None)

    def step_aside(self, line: WaitQueue, record: PendingSend) -> None:
        """The first of that line has to wait for its partition alone; it may have stood in that one's lot already."""
        assert record.behind is not None
        lot = self.line(record.behind)
        if lot is line:
            self.calm(record.behind)
        else:
            line.pop()
            lot.merge([record])

    def first(self, line: WaitQueue) -> tuple[WaitQueue, PendingSend] | None:
        """Who called first, of those in that line and in the roused lots, and where it stands."""
        head, lot = line.head(), self.next()
        aside = lot.head() if lot is not None else None
        if lot is None or aside is None or (head is not None and head.number < aside.number):
            return (line, head) if head is not None else None
        return lot, aside

    def next(self) -> WaitQueue | None:
        """The roused lot whose head called first."""
        turns = self._turns
        while turns:
            number, _, queue = turns[0]
            head = self._wait_queues[queue].head() if queue in self._roused else None
            if head is None:
                heapq.heappop(turns)
                if self._roused.pop(queue, self) is None:
                    del self._wait_queues[queue]
            elif head.number != number:
                heapq.heapreplace(turns, (head.number, next(self._ties), queue))
            else:
                return self._wait_queues[queue]
        return None
