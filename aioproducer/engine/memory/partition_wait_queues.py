"""Holds a wait queue for each full partition: its pending sends wait for that partition alone.

A partition is full while it holds as much of `buffer_memory` as it may.

1. While its partition is full, a wait queue is not served. Once the partition may take more, the wait queue is notified. Its head is then
   served among all other pending sends, by the number of its call.
2. A pending send stays with the partition that it waits for, as queued records do, also when its key is mapped to another partition.
3. A record never overtakes an earlier one of its partition. A new record joins the wait queue of its full partition. After that wait
   queue was notified, a new record is served after the records in it.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

from aioproducer.engine.memory.wait_queue import WaitQueue

if TYPE_CHECKING:
    from aioproducer.core.partition_queues import PartitionQueue
    from aioproducer.engine.memory.wait_queue import PendingSend


class PartitionWaitQueues:
    """Holds the wait queues of one producer's full partitions.

    Attributes:
        wait_queues: by their partitions. Some may hold only sends that were cancelled.
        notified: a heap of the notified partitions, by the number of the head at the last check. Some may be out of date: see `next`.
    """

    __slots__ = ("_is_notified", "_ties", "notified", "wait_queues")

    def __init__(self) -> None:
        self.wait_queues: dict[PartitionQueue, WaitQueue] = {}
        self._is_notified: dict[PartitionQueue, None] = {}
        self.notified: list[tuple[int, int, PartitionQueue]] = []
        self._ties = count()

    def of(self, partition: PartitionQueue) -> WaitQueue:
        """Return the wait queue of a partition; it is made if there is none."""
        return self.wait_queues.setdefault(partition, WaitQueue())

    def all(self) -> list[WaitQueue]:
        """Return all wait queues."""
        return list(self.wait_queues.values())

    def notify(self, partition: PartitionQueue) -> bool:
        """Notify the wait queue of a partition: it may take more, or its records may be appended to other partitions.

        Returns False if no send waits for the partition.
        """
        queue = self.wait_queues.get(partition)
        head = queue.head() if queue is not None else None
        if head is None:
            self.wait_queues.pop(partition, None)
            self._is_notified.pop(partition, None)
            return False
        if partition not in self._is_notified:
            self._is_notified[partition] = None
            heapq.heappush(self.notified, (head.number, next(self._ties), partition))
        return True

    def withdraw(self, partition: PartitionQueue) -> None:
        """Withdraw the notification of a partition that takes no more after all; `next` skips its entry in the heap."""
        self._is_notified.pop(partition, None)

    def move(self, queue: WaitQueue, pending: PendingSend) -> None:
        """Move `pending`, the head of `queue`, to the wait queue of its full partition; if it is in that already, it stays there.

        A notification of the partition is withdrawn: it takes no more, and `notified` does not have the number of a new head.
        """
        assert pending.behind is not None
        target = self.of(pending.behind)
        self.withdraw(pending.behind)
        if target is not queue:
            queue.pop()
            target.merge([pending])

    def first(self, queue: WaitQueue) -> tuple[WaitQueue, PendingSend] | None:
        """Return the pending send with the earliest call, from `queue` and the notified wait queues, and the wait queue that it is in."""
        head, notified = queue.head(), self.next()
        other = notified.head() if notified is not None else None
        if notified is None or other is None or (head is not None and head.number < other.number):
            return (queue, head) if head is not None else None
        return notified, other

    def next(self) -> WaitQueue | None:
        """Return the notified wait queue that has the head with the earliest call, or None."""
        heap = self.notified
        while heap:
            number, _, partition = heap[0]
            head = self.wait_queues[partition].head() if partition in self._is_notified else None
            if head is None:
                heapq.heappop(heap)
                if self._is_notified.pop(partition, self) is None:
                    del self.wait_queues[partition]
            elif head.number != number:
                heapq.heapreplace(heap, (head.number, next(self._ties), partition))
            else:
                return self.wait_queues[partition]
        return None
