"""Holds a flush: the batches that it covers, and the outcomes of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.producer_batch import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioproducer.core.producer_batch import ProducerBatch


class Flush:
    """Holds the batches of one flush and counts their records. Calls `wake` when the last batch has ended.

    Args:
        waits: sends wait whose records the flush covers, too; `cover_last` ends that.

    Attributes:
        waits: as given, until `cover_last`.
        takes_all: each batch that ends is counted, also if it was opened after the flush began, until `cover_last`: it may have records that
            waited when the flush began.
        acknowledged, failed: the records whose batches have ended.
        wake: as given.
    """

    __slots__ = ("_batches", "acknowledged", "failed", "takes_all", "waits", "wake")

    def __init__(
        self,
        batches: Iterable[ProducerBatch],
        wake: Callable[[], None],
        *,
        waits: bool = False,
        takes_all: bool = False,
    ) -> None:
        self._batches = set(batches)
        self.wake: Callable[[], None] = wake
        self.waits: bool = waits
        self.takes_all: bool = takes_all
        self.acknowledged: int = 0
        self.failed: int = 0

    @property
    def pending(self) -> int:
        """Return the number of records in closed batches that have not ended."""
        return sum(batch.count for batch in self._batches)

    def cover_last(self, batches: Iterable[ProducerBatch]) -> None:
        """Add the batches that have not ended, after which no more come. From now on no other batch is counted."""
        self._batches.update(batches)
        self.waits = self.takes_all = False

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Replace a covered batch by the batches that it was split into (FLU-01)."""
        if batch in self._batches:
            self._batches.remove(batch)
            self._batches.update(parts)

    def ended(self, batch: ProducerBatch) -> bool:
        """Count the records of a batch that ended. Returns True if it was the last batch of this flush."""
        is_covered = batch in self._batches
        if not is_covered and not self.takes_all:
            return False
        is_last = not self.waits and len(self._batches) == is_covered
        if is_last:
            self.wake()
        if batch.state is State.DONE:
            self.acknowledged += batch.count
        else:
            self.failed += batch.count
        self._batches.discard(batch)
        return is_last
