"""Holds the deadlines of batches and partitions: of those that linger, age or back off, and the expiry of all that have not ended."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from itertools import count, takewhile
from typing import TYPE_CHECKING

from aioproducer.core.producer_batch import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioproducer.core.producer_batch import PartitionQueue, ProducerBatch


class Deadlines:
    """Holds the deadlines of one producer. Entries that no longer apply are skipped.

    Args:
        accepting: seconds for which a batch accepts records.
        lifetime: seconds from the creation of a batch to its expiry.

    Attributes:
        filling: the partition queues that have an open batch, oldest batch first. All batches age for the same time, so the first one is
            due first.
        lingering: the batches that linger, each with the time until which. The first one is due first, too.
        backing_off: a heap of the partitions that back off.
    """

    __slots__ = ("_before_expiry", "backing_off", "filling", "lingering", "ties")

    def __init__(self, accepting: float, lifetime: float) -> None:
        self._before_expiry = lifetime - accepting
        # In a dict, the first entry is behind the places of those that were deleted before it.
        self.filling: OrderedDict[PartitionQueue, None] = OrderedDict()
        self.lingering: deque[tuple[float, ProducerBatch]] = deque()
        self.backing_off: list[tuple[float, int, PartitionQueue]] = []
        self.ties: count[int] = count()

    def linger(self, batch: ProducerBatch, until: float) -> None:
        """Let an open batch linger until `until`."""
        self.lingering.append((until, batch))

    def back_off(self, queue: PartitionQueue, until: float) -> None:
        """Drain no batch of a partition until `until`, or later if it already backs off for longer."""
        queue.retry_at = max(queue.retry_at, until)
        heapq.heappush(self.backing_off, (queue.retry_at, next(self.ties), queue))

    def lingered(self, now: float) -> Iterator[ProducerBatch]:
        """Yield the open batches that have lingered long enough. They and the closed ones before them are removed."""
        batches = self.lingering
        while batches and (batches[0][0] <= now or batches[0][1].state is not State.OPEN):
            _, batch = batches.popleft()
            if batch.state is State.OPEN:
                yield batch

    def aged(self, now: float) -> list[PartitionQueue]:
        """Return the partition queues whose open batch accepts no more records."""
        return list(takewhile(lambda queue: self._ages_at(queue) <= now, self.filling))

    def _ages_at(self, queue: PartitionQueue) -> float:
        """Return the time at which the open batch of a partition stops accepting records.

        All its records share the deadline that began with its first one. A later record would have less time.
        """
        assert queue.current is not None
        return queue.current.expires_at - self._before_expiry

    def backed_off(self, now: float) -> Iterator[PartitionQueue]:
        """Yield the partition queues that have backed off long enough."""
        waiting = self.backing_off
        while waiting and waiting[0][0] <= now:
            queue = heapq.heappop(waiting)[2]
            if queue.retry_at and queue.retry_at <= now:
                queue.retry_at = 0.0
                yield queue

    def next(self) -> float | None:
        """Return the earliest deadline, at which to call `PartitionQueues.wake`; None: there is none."""
        batches = self.lingering
        while batches and batches[0][1].state is not State.OPEN:
            batches.popleft()
        moments = []
        if self.filling:
            moments.append(self._ages_at(next(iter(self.filling))))
        if batches:
            moments.append(batches[0][0])
        if self.backing_off:
            moments.append(self.backing_off[0][0])
        return min(moments, default=None)


class IncompleteBatches:
    """Holds the batches of one producer that have not ended, oldest first.

    All batches have the same lifetime, so the first one expires first. A split batch is represented by its parts, in its place, until
    the last part has ended. The length counts the parts of a split batch once.

    Attributes:
        roots: the batches that were not split, and those that were split and have parts. A new batch is added by an assignment.
    """

    __slots__ = ("roots",)

    def __init__(self) -> None:
        self.roots: OrderedDict[ProducerBatch, None] = OrderedDict()

    def __iter__(self) -> Iterator[ProducerBatch]:
        for root in self.roots:
            yield from (root,) if root.parts is None else root.parts

    def __len__(self) -> int:
        return len(self.roots)

    def split(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Replace a batch by its parts."""
        root = batch.root or batch
        others = (part for part in root.parts or () if part is not batch)
        root.parts = dict.fromkeys(sorted((*others, *parts), key=lambda part: part.place))

    def end(self, batch: ProducerBatch) -> None:
        """Remove a batch that has ended."""
        root = batch.root or batch
        if root.parts is not None:
            root.parts.pop(batch, None)
        if not root.parts:
            del self.roots[root]

    def expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches that have expired at `now`. They have not ended yet."""
        batches: list[ProducerBatch] = []
        for batch in self:
            if batch.expires_at > now:
                break
            batches.append(batch)
        return batches

    def next_expiry(self) -> float | None:
        """Return the expiry of the oldest batch; None: there is no batch."""
        return next((root.expires_at for root in self.roots), None)
