"""What waits for a time: batches that linger, open ones until they are old, and partitions that back off.

Knows nothing of why, or of clocks.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from aioproducer.core.batch_state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.core.topic_routing import PartitionQueue

__all__ = ["Deadlines"]


class Deadlines:
    """Those of one producer. What is over meanwhile, for another reason, is passed over."""

    __slots__ = ("_aging", "_backing_off", "_lingering", "ties")

    def __init__(self) -> None:
        self._lingering: deque[tuple[float, ProducerBatch]] = deque()  # all linger equally long: the first is due first
        self._aging: deque[tuple[float, ProducerBatch]] = deque()  # likewise
        self._backing_off: list[tuple[float, int, PartitionQueue]] = []
        self.ties = count()

    def linger(self, batch: ProducerBatch, until: float) -> None:
        """An open batch may be filled until then."""
        self._lingering.append((until, batch))

    def age(self, batch: ProducerBatch, until: float) -> None:
        """An open batch may take more until then."""
        self._aging.append((until, batch))

    def back_off(self, queue: PartitionQueue, until: float) -> None:
        """Nothing is drained of a partition until then, if not for longer already."""
        queue.retry_at = max(queue.retry_at, until)
        heapq.heappush(self._backing_off, (queue.retry_at, next(self.ties), queue))

    def lingered(self, now: float) -> Iterator[ProducerBatch]:
        """Open batches whose time is there."""
        return _due(self._lingering, now)

    def aged(self, now: float) -> Iterator[ProducerBatch]:
        """Open batches that take no more."""
        return _due(self._aging, now)

    def backed_off(self, now: float) -> Iterator[PartitionQueue]:
        """Partitions whose time is there."""
        waiting = self._backing_off
        while waiting and waiting[0][0] <= now:
            queue = heapq.heappop(waiting)[2]
            if queue.retry_at and queue.retry_at <= now:
                queue.retry_at = 0.0
                yield queue

    def next(self) -> float | None:
        """When the next one's time is there; None: never."""
        if not (self._aging or self._lingering or self._backing_off):  # mostly, when an answer came
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
    """Those that are open still, of which it is time; what is over meanwhile is not kept."""
    while batches and (batches[0][0] <= now or batches[0][1].state is not State.OPEN):
        batch = batches.popleft()[1]
        if batch.state is State.OPEN:
            yield batch
