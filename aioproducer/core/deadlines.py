"""Holds the deadlines of lingering batches, of open batches that age, and of partitions that back off."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from aioproducer.core.batch_state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.core.producer_batch import PartitionQueue, ProducerBatch

__all__ = ["Deadlines"]


class Deadlines:
    """Holds the deadlines of one producer. Entries that no longer apply are skipped."""

    __slots__ = ("_aging", "_backing_off", "_lingering", "ties")

    def __init__(self) -> None:
        # All batches linger for the same time, so the first one is due first.
        self._lingering: deque[tuple[float, ProducerBatch]] = deque()
        # All batches age for the same time, so the first one is due first.
        self._aging: deque[tuple[float, ProducerBatch]] = deque()
        self._backing_off: list[tuple[float, int, PartitionQueue]] = []
        self.ties: count[int] = count()

    def linger(self, batch: ProducerBatch, until: float) -> None:
        """Let an open batch linger until `until`."""
        self._lingering.append((until, batch))

    def age(self, batch: ProducerBatch, until: float) -> None:
        """Let an open batch accept records until `until`."""
        self._aging.append((until, batch))

    def back_off(self, queue: PartitionQueue, until: float) -> None:
        """Drain no batch of a partition until `until`, or later if it already backs off for longer."""
        queue.retry_at = max(queue.retry_at, until)
        heapq.heappush(self._backing_off, (queue.retry_at, next(self.ties), queue))

    def lingered(self, now: float) -> Iterator[ProducerBatch]:
        """Yield the open batches that have lingered long enough."""
        return _due(self._lingering, now)

    def aged(self, now: float) -> Iterator[ProducerBatch]:
        """Yield the open batches that accept no more records."""
        return _due(self._aging, now)

    def backed_off(self, now: float) -> Iterator[PartitionQueue]:
        """Yield the partition queues that have backed off long enough."""
        waiting = self._backing_off
        while waiting and waiting[0][0] <= now:
            queue = heapq.heappop(waiting)[2]
            if queue.retry_at and queue.retry_at <= now:
                queue.retry_at = 0.0
                yield queue

    def next(self) -> float | None:
        """Return the earliest deadline, at which to call `PartitionQueues.wake`; None: there is none."""
        # The common case when an answer arrives.
        if not (self._aging or self._lingering or self._backing_off):
            return None
        moments = []
        for batches in (self._lingering, self._aging):
            while batches and batches[0][1].state is not State.OPEN:
                batches.popleft()
            if batches:
                moments.append(batches[0][0])
        if self._backing_off:
            moments.append(self._backing_off[0][0])
        return min(moments, default=None)


def _due(batches: deque[tuple[float, ProducerBatch]], now: float) -> Iterator[ProducerBatch]:
    """Yield the batches that are due and still open. Due and closed batches are removed."""
    while batches and (batches[0][0] <= now or batches[0][1].state is not State.OPEN):
        batch = batches.popleft()[1]
        if batch.state is State.OPEN:
            yield batch
