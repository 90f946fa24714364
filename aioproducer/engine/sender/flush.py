"""Holds a flush: the batches that it covers, and the outcomes of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.batch_state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioproducer.core.producer_batch import ProducerBatch

__all__ = ["Flush"]


class Flush:
    """Holds the batches of one flush and counts their records. Calls `wake` when the last batch has ended."""

    __slots__ = ("_batches", "_wake", "acknowledged", "failed", "pending")

    def __init__(self, batches: Iterable[ProducerBatch], wake: Callable[[], None]) -> None:
        self._batches = set(batches)
        self._wake = wake
        self.acknowledged: int = 0
        self.failed: int = 0
        self.pending: int = sum(batch.count for batch in self._batches)

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Replace a covered batch by the batches that it was split into (FLU-01)."""
        if batch in self._batches:
            self._batches.remove(batch)
            self._batches.update(parts)

    def ended(self, batch: ProducerBatch) -> bool:
        """Count the records of a batch that ended. Returns True if it was the last batch of this flush."""
        if batch not in self._batches:
            return False
        self._batches.remove(batch)
        self.pending -= batch.count
        if batch.state is State.DONE:
            self.acknowledged += batch.count
        else:
            self.failed += batch.count
        if not self._batches:
            self._wake()
        return not self._batches
