"""Which topics nobody has produced to for so long that they are to be forgotten (KIP-526, MET-05).

A topic is looked at when it could be idle by what was known at its last look: as often as `max_idle` goes by, however many records flow.
Knows nothing of what is forgotten with it, or how.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    from aioproducer.core.topic_routing import TopicRouting

__all__ = ["TopicExpiry", "shrink"]

_FEW: Final = 64  # topics, of which it does not matter how large their tables are
_AGAIN: Final = 0.1  # of `max_idle`, until a topic is looked at again that is idle and still in use


class TopicExpiry:
    """The topics that are looked at.

    Args:
        routings: of all topics, by name.
        max_idle: seconds without a new batch after which a topic is idle.
    """

    def __init__(self, routings: Mapping[str, TopicRouting], max_idle: float) -> None:
        self.max_idle = max_idle
        self._routings = routings
        self._looks: list[tuple[float, str]] = []  # each topic once
        self._forgotten = 0

    def watch(self, topic: str, since: float) -> None:
        """Look at a topic, in use since then, when it could be idle."""
        heapq.heappush(self._looks, (since + self.max_idle, topic))

    def put_off(self, topic: str, now: float) -> None:
        """It is idle, and cannot be forgotten yet."""
        heapq.heappush(self._looks, (now + self.max_idle * _AGAIN, topic))

    def idle(self, now: float) -> Iterator[TopicRouting]:
        """Those that are idle. Each is looked at no more, unless it is watched again."""
        looks = self._looks
        while looks and looks[0][0] <= now:
            topic = heapq.heappop(looks)[1]
            routing = self._routings.get(topic)
            if routing is not None and routing.used_at + self.max_idle > now:
                self.watch(topic, routing.used_at)
            elif routing is not None:
                yield routing

    def forgot(self) -> bool:
        """One was forgotten; whether so many were, since this was last true, that the tables of topics are mostly empty by now."""
        self._forgotten += 1
        if self._forgotten < max(len(self._routings), _FEW):
            return False
        self._forgotten = 0
        return True

    def next_look(self, now: float) -> float:
        """When to ask again; what is watched from now on is not due before."""
        return self._looks[0][0] if self._looks else now + self.max_idle


def shrink(table: MutableMapping[str, Any]) -> None:
    """Let go of the room of what was deleted: a dict keeps it until as much was put in again."""
    kept = list(table.items())
    table.clear()
    table.update(kept)
