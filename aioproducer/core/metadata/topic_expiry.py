"""Decides which topics have had no new batch for so long that they are forgotten (KIP-526, MET-05).

A topic is checked when it could be idle by its last known use. So it is checked at most once per `max_idle`, however many records
flow.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    from aioproducer.core.topic_routing import TopicRouting

__all__ = ["TopicExpiry", "shrink"]

# Topics. With fewer of them, the size of the tables does not matter.
_FEW: Final = 64
# The part of `max_idle` until the next check of a topic that is idle and still in use.
_AGAIN: Final = 0.1


class TopicExpiry:
    """Holds the topics that are checked, and the time of each check.

    Args:
        routings: the topic routings by topic.
        max_idle: seconds without a new batch after which a topic is idle.
    """

    def __init__(self, routings: Mapping[str, TopicRouting], max_idle: float) -> None:
        self.max_idle = max_idle
        self._routings = routings
        # Each topic has one entry.
        self._looks: list[tuple[float, str]] = []
        self._forgotten = 0

    def watch(self, topic: str, since: float) -> None:
        """Schedule a check of a topic that has been in use since `since`, for when it could be idle."""
        heapq.heappush(self._looks, (since + self.max_idle, topic))

    def put_off(self, topic: str, now: float) -> None:
        """Schedule another check of an idle topic that cannot be forgotten yet."""
        heapq.heappush(self._looks, (now + self.max_idle * _AGAIN, topic))

    def idle(self, now: float) -> Iterator[TopicRouting]:
        """Yield the topics that are idle. Each of them is not checked again until `watch` is called."""
        looks = self._looks
        while looks and looks[0][0] <= now:
            topic = heapq.heappop(looks)[1]
            routing = self._routings.get(topic)
            if routing is not None and routing.used_at + self.max_idle > now:
                self.watch(topic, routing.used_at)
            elif routing is not None:
                yield routing

    def forgot(self) -> bool:
        """Count a forgotten topic. Returns True if the tables of topics are mostly empty now.

        That is the case after enough forgotten topics since the last True.
        """
        self._forgotten += 1
        if self._forgotten < max(len(self._routings), _FEW):
            return False
        self._forgotten = 0
        return True

    def next_look(self, now: float) -> float:
        """Return the time of the next check. A topic that is watched from now on is not due before."""
        return self._looks[0][0] if self._looks else now + self.max_idle


def shrink(table: MutableMapping[str, Any]) -> None:
    """Free the memory of deleted entries: a dict keeps it until as many entries were added again."""
    kept = list(table.items())
    table.clear()
    table.update(kept)
