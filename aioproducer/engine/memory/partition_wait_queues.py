"""Holds a wait queue for each full partition: its pending sends wait for that partition alone.

A partition is full while it holds as much of `buffer_memory` as it may.

1. While its partition is full, a wait queue is not served. Once the partition may take more, the wait queue is notified (`rouse`). Its
   head is then served among all other pending sends, by the number of its call.
2. A pending send stays with the partition that it waits for, as queued records do, also when its key is mapped to another partition.
3. A record never overtakes an earlier one of its partition. A new record joins the wait queue of its full partition. After that wait
   queue was notified, a new record is served after the records in it.
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
    """Holds the wait queues of one producer's full partitions."""

    __slots__ = ("_roused", "_ties", "_turns", "_wait_queues")

    def __init__(self) -> None:
        self._wait_queues: dict[PartitionQueue, WaitQueue] = {}
        self._roused: dict[PartitionQueue, None] = {}
        # A heap of the notified partitions, by the number of the head at the last check.
        self._turns: list[tuple[int, int, PartitionQueue]] = []
        self._ties = count()

    @property
    def is_roused(self) -> bool:
        """Return whether there is a notified wait queue with a pending send."""
        return bool(self._turns) and self.next() is not None

    def line(self, queue: PartitionQueue) -> WaitQueue:
        """Return the wait queue of a partition; it is made if there is none."""
        return self._wait_queues.setdefault(queue, WaitQueue())

    def lines(self) -> list[WaitQueue]:
        """Return all wait queues."""
        return list(self._wait_queues.values())

    def rouse(self, queue: PartitionQueue) -> bool:
        """Notify the wait queue of a partition: it may take more, or its records may be appended to other partitions.

        Returns False if no send waits for the partition.
        """
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
        """Withdraw the notification of a partition that takes no more after all; `next` skips its entry in the heap."""
        self._roused.pop(queue, None)

    def step_aside(self, line: WaitQueue, record: PendingSend) -> None:
        """Move `record`, the head of `line`, to the wait queue of its partition.

        If it is in that wait queue already, it stays there, and the notification is withdrawn.
        """
        assert record.behind is not None
        lot = self.line(record.behind)
        if lot is line:
            self.calm(record.behind)
        else:
            line.pop()
            lot.merge([record])

    def first(self, line: WaitQueue) -> tuple[WaitQueue, PendingSend] | None:
        """Return the pending send with the earliest call, from `line` and the notified wait queues, and the wait queue that it is in."""
        head, lot = line.head(), self.next()
        aside = lot.head() if lot is not None else None
        if lot is None or aside is None or (head is not None and head.number < aside.number):
            return (line, head) if head is not None else None
        return lot, aside

    def next(self) -> WaitQueue | None:
        """Return the notified wait queue that has the head with the earliest call, or None."""
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
