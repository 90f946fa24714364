"""Holds partitioners other than Kafka's own, which is built in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RoundRobinPartitioner"]


class RoundRobinPartitioner:
    """Chooses each topic's partitions one after the other, regardless of keys (Java's class of the same name).

    It chooses among the partitions that have a leader, or among all if none has one.
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]) -> int:  # noqa: ARG002
        """Return the next partition (an `interfaces.Partitioner`)."""
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return available[turn % len(available)] if available else turn % partitions

    def forget(self, topic: str) -> None:
        """Forget a topic that the producer has forgotten (`metadata_max_idle_ms`). The topic starts again at its first partition."""
        self._next.pop(topic, None)
