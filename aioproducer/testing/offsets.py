"""What a group has committed, and what transactions will: an offset of a transaction counts once the transaction has committed.

As in Kafka's OffsetMetadataManager. Knows no group, member or request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Committed", "Pending"]


class Committed(NamedTuple):
    """What a group committed of a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Pending:
    """A group's offsets of transactions that have not ended, by topic id and partition."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[tuple[bytes, int], Committed]] = {}

    def __contains__(self, place: tuple[bytes, int]) -> bool:
        return any(place in offsets for offsets in self._by_producer.values())

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        for offsets in self._by_producer.values():
            yield from offsets

    def add(self, producer_id: int, place: tuple[bytes, int], offset: Committed) -> None:
        """A transaction of this producer will commit it."""
        self._by_producer.setdefault(producer_id, {})[place] = offset

    def take(self, producer_id: int) -> dict[tuple[bytes, int], Committed]:
        """What a producer's transaction has; it has ended."""
        return self._by_producer.pop(producer_id, {})
