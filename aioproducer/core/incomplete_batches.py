"""Batches that have not ended, oldest first: all live equally long, so the first expires first.

A batch that was split stands there as its parts, in its place, until the last of them has ended. Knows nothing of partitions.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioproducer.core.producer_batch import ProducerBatch

__all__ = ["IncompleteBatches"]


class IncompleteBatches:
    """Those of one producer. Its length counts what a batch was split into once."""

    __slots__ = ("_roots",)

    def __init__(self) -> None:
        self._roots: OrderedDict[ProducerBatch, None] = OrderedDict()

    def __iter__(self) -> Iterator[ProducerBatch]:
        for root in self._roots:
            yield from (root,) if root.parts is None else root.parts

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, batch: ProducerBatch) -> None:
        """A new one."""
        self._roots[batch] = None

    def split(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Smaller ones stand for it."""
        root = batch.root
        others = (part for part in root.parts or () if part is not batch)
        root.parts = dict.fromkeys(sorted((*others, *parts), key=lambda part: part.place))

    def end(self, batch: ProducerBatch) -> None:
        """It has ended."""
        root = batch.root
        if root.parts is not None:
            root.parts.pop(batch)
        if not root.parts:
            del self._roots[root]

    def expired(self, now: float) -> list[ProducerBatch]:
        """Those whose time is over. They are not ended yet."""
        batches: list[ProducerBatch] = []
        for batch in self:
            if batch.expires_at > now:
                break
            batches.append(batch)
        return batches

    def next_expiry(self) -> float | None:
        """When the oldest one's time is over."""
        return next((root.expires_at for root in self._roots), None)
