"""Committed offsets of a group, and the offsets of open transactions, which count once those commit.

As in Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Committed", "Pending"]


class Committed(NamedTuple):
    """Holds a group's committed offset of one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Pending:
    """Holds a group's offsets of open transactions, by topic id and partition."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[tuple[bytes, int], Committed]] = {}

    def __contains__(self, place: tuple[bytes, int]) -> bool:
        return any(place in offsets for offsets in self._by_producer.values())

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        for offsets in self._by_producer.values():
            yield from offsets

    def add(self, producer_id: int, place: tuple[bytes, int], offset: Committed) -> None:
        """Add an offset that a producer's transaction will commit."""
        self._by_producer.setdefault(producer_id, {})[place] = offset

    def take(self, producer_id: int) -> dict[tuple[bytes, int], Committed]:
        """Remove and return the offsets of a producer's transaction, which has ended."""
        return self._by_producer.pop(producer_id, {})
