"""Holds the batches that have not ended, oldest first.

All batches have the same lifetime, so the first one expires first. A split batch is represented by its parts, in its place, until
the last part has ended.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioproducer.core.producer_batch import ProducerBatch

__all__ = ["IncompleteBatches"]


class IncompleteBatches:
    """Holds the batches of one producer that have not ended. Its length counts the parts of a split batch once."""

    __slots__ = ("_roots",)

    def __init__(self) -> None:
        self._roots: OrderedDict[ProducerBatch, None] = OrderedDict()

    def __iter__(self) -> Iterator[ProducerBatch]:
        for root in self._roots:
            yield from (root,) if root.parts is None else root.parts

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, batch: ProducerBatch) -> None:
        """Add a new batch."""
        self._roots[batch] = None

    def split(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Replace a batch by its parts."""
        root = batch.root or batch
        others = (part for part in root.parts or () if part is not batch)
        root.parts = dict.fromkeys(sorted((*others, *parts), key=lambda part: part.place))

    def end(self, batch: ProducerBatch) -> None:
        """Remove a batch that has ended."""
        root = batch.root or batch
        if root.parts is not None:
            root.parts.pop(batch)
        if not root.parts:
            del self._roots[root]

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
        return next((root.expires_at for root in self._roots), None)
