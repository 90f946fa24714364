"""Partitioners that ship beside Kafka's own, which is built in. Knows nothing of brokers or batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RoundRobinPartitioner"]


class RoundRobinPartitioner:
    """Each topic's partitions in turn, whatever the keys: those that have a leader, or all if none has (Java's class of that name)."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]) -> int:  # noqa: ARG002
        """The next one (an `interfaces.Partitioner`)."""
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return available[turn % len(available)] if available else turn % partitions

    def forget(self, topic: str) -> None:
        """The producer has forgotten a topic (`metadata_max_idle_ms`): if it comes back, it begins anew."""
        self._next.pop(topic, None)
