"""Decides which topics the next Metadata requests ask for, and when they are due (KIP-526).

1. A topic is urgent (the KIP's T) if a send waits for it and no broker has described it. It is also urgent if its metadata has
   changed, or is older than `max_age`. All urgent topics are requested at once.
2. A topic is not urgent (the KIP's U) if its metadata is older than half of `max_age`. Such topics fill a request up to the target
   size, oldest first. They get a request of their own when there are that many. So a few topics are requested every few seconds,
   never all at once.
3. The target is the number of topics that a steady refresh requests in ten seconds, at least 20.
4. New topics have requests of their own, which are filled up as well. So a send never waits behind a refresh, however large. The
   new topics of one event-loop iteration share one request. Topics that are added while it is in flight share the next one.
5. A topic is in one request at a time: only one answer applies a topic.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping

    from aioproducer.core.topic_routing import TopicRouting
    from aioproducer.errors import KafkaError

# Topics of one request. Its encoding blocks the event loop, too.
MOST: Final = 1000
# The smallest target: topics that fill a request.
_FEWEST: Final = 20
# Seconds of a steady refresh that fill a request.
_SPAN: Final = 10.0
# The part of `max_age` after which a topic may fill a request.
_RIPE: Final = 0.5


class Question(NamedTuple):
    """Holds the content of one request.

    Attributes:
        topics: the topics to request; empty: only the brokers are requested.
        urged: the topics that a send waits for, or that have changed.
        is_new: whether it asks for topics that a send waits for.
    """

    topics: list[str]
    urged: frozenset[str] = frozenset()
    is_new: bool = False


class MetadataSchedule:
    """Holds the age of each topic's metadata, and decides on the next request.

    Args:
        max_age: seconds after which the metadata of a topic, or of the brokers, is old.
        wake: called when a request may be due earlier than `due_at` said.

    Attributes:
        trouble: the error of the latest request; None: it was answered.
    """

    def __init__(self, max_age: float, wake: Callable[[], object] = lambda: None) -> None:
        self.trouble: KafkaError | None = None
        self._max_age = max_age
        self._wake = wake
        self._new: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        # The time of the answer for each topic, oldest first.
        self._told: OrderedDict[str, float] = OrderedDict()
        self._asked: set[str] = set()
        # Requests in flight for new topics.
        self._in_flight = 0
        self._answered_at = 0.0

    # Known topics

    def want(self, topic: str) -> None:
        """Request a topic that a send waits for. A topic that is in flight for the first time is not requested again."""
        if topic not in self._asked or topic in self._told:
            self._new[topic] = None
        self._wake()

    def request_update(self, topics: Iterable[str]) -> None:
        """Request topics again, because their known metadata is wrong."""
        self._changed.update(dict.fromkeys(topics))
        self._wake()

    def request_brokers(self) -> None:
        """Request the brokers of the cluster again, because their known addresses are wrong."""
        self._answered_at = -math.inf
        self._wake()

    def answered(self, now: float) -> None:
        """Note that a broker answered with the brokers of the cluster."""
        self.trouble = None
        self._answered_at = now

    def failed(self, error: KafkaError) -> None:
        """Note that a broker did not answer, or refused to."""
        self.trouble = error

    def told(self, topic: str, now: float) -> None:
        """Note that a broker answered with the partitions of a topic."""
        self._told[topic] = now
        self._told.move_to_end(topic)

    def forget(self, topic: str) -> None:
        """Forget a topic that is no longer needed."""
        self._told.pop(topic, None)
        self._changed.pop(topic, None)

    def shrink(self) -> None:
        """Free the memory of many forgotten topics."""
        shrink(self._told)

    def is_asked(self, topic: str) -> bool:
        """Return whether a topic is to be requested first, is in flight, or is being applied from an answer."""
        return topic in self._asked or topic in self._new

    @property
    def target(self) -> int:
        """Return the number of topics of a full request."""
        return min(max(int(len(self._told) / self._max_age * _SPAN), _FEWEST), MOST)

    # Requests

    def next_new(self, now: float) -> Question | None:
        """Return the next request for new topics, which is due at once.

        Returns None if there are no such topics, or fewer than a full request while the previous one is in flight.
        """
        names = [name for name in self._new if name not in self._asked]
        if not names or (self._in_flight and len(names) < MOST):
            return None
        names = names[:MOST]
        for name in names:
            del self._new[name]
            self._changed.pop(name, None)
        self._in_flight += 1
        return self._asking(names, now, names, is_new=True)

    def next_other(self, now: float, is_needed: Callable[[str], bool]) -> Question | None:
        """Return the next request for the other topics. None: none is due. The caller has one of them in flight at a time.

        `is_needed` returns whether a topic is still in use. Other topics are not requested.
        """
        self._changed = {name: None for name in self._changed if is_needed(name)}
        urged = [name for name in self._changed if name not in self._asked][:MOST]
        names = list(dict.fromkeys((*urged, *islice(self._older(now, self._max_age), MOST))))[:MOST]
        if not names:
            ripe = list(islice(self._older(now, self._max_age * _RIPE), self.target))
            names = ripe if len(ripe) == self.target else []
        if not names and now < self._answered_at + self._max_age:
            return None
        for name in urged:
            del self._changed[name]
        return self._asking(names, now, urged)

    def _asking(
        self, names: list[str], now: float, urged: Iterable[str], *, is_new: bool = False
    ) -> Question:
        """Return a request for `names`, filled up with topics that are not urgent."""
        taken = set(names)
        others = (name for name in self._older(now, self._max_age * _RIPE) if name not in taken)
        names = [*names, *islice(others, max(self.target - len(names), 0))]
        self._asked.update(names)
        return Question(names, frozenset(urged), is_new)

    def _older(self, now: float, age: float) -> Iterator[str]:
        """Yield the topics with metadata at least `age` seconds old, oldest first."""
        for name, told_at in self._told.items():
            if told_at + age > now:
                return
            if name not in self._asked:
                yield name

    def ended(self, question: Question, *, is_answered: bool) -> None:
        """Note that an answer was applied. Without an answer, the urgent topics of the request are urgent again."""
        self._asked.difference_update(question.topics)
        self._in_flight -= question.is_new
        if not is_answered:
            self._changed.update(
                dict.fromkeys(name for name in question.topics if name in question.urged)
            )

    def due_at(self) -> float:
        """Return the time at which `next_other` has a request: 0 for at once."""
        if self._changed or self._answered_at == -math.inf:
            return 0.0
        if not self._told:
            return self._answered_at + self._max_age
        oldest = next(iter(self._told.values())) + self._max_age
        ripe = next(islice(self._told.values(), self.target - 1, None), None)
        return oldest if ripe is None else min(oldest, ripe + self._max_age * _RIPE)


# Decides which topics have had no new batch for so long that they are forgotten (KIP-526, MET-05).
#
# A topic is checked when it could be idle by its last known use. So it is checked at most once per `max_idle`, however many records
# flow.


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

    def idle(self, now: float) -> Iterator[str]:
        """Yield the topics that are idle. Each of them is not checked again until `watch` is called."""
        looks = self._looks
        while looks and looks[0][0] <= now:
            topic = heapq.heappop(looks)[1]
            routing = self._routings.get(topic)
            if routing is not None and routing.used_at + self.max_idle > now:
                self.watch(topic, routing.used_at)
            elif routing is not None:
                yield topic

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
