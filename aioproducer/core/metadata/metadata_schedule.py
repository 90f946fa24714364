"""Which topics the next Metadata requests ask for, and when that is due (KIP-526).

1. Urgent, the KIP's T: topics that somebody waits for and nobody told of; those of which a change is known; those told of longer than
   `max_age` ago. They are asked for at once, and all of them.
2. Not urgent, its U: told of longer than half of that ago. They fill a request up to the target size, oldest first, and have one of their
   own when they are as many. So a few are asked for every few seconds, never all at once.
3. The target is what ten seconds of a steady refresh need, at least 20.
4. New topics have requests of their own, filled in the same way: a send never waits behind a refresh, however large. Those of one loop
   turn share one; those that come while it is on its way share the next.
5. A topic is in one request at a time: an answer's topics are nobody else's until they are taken.

Knows nothing of brokers, answers, or pauses between requests.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.core.metadata.topic_expiry import shrink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["MOST", "MetadataSchedule", "Question"]

MOST: Final = 1000  # topics of one request: its encoding holds the loop, too
_FEWEST: Final = 20  # topics that fill a request
_SPAN: Final = 10.0  # seconds of a steady refresh that fill one
_RIPE: Final = 0.5  # of `max_age`: from there on a topic may fill a request


class Question(NamedTuple):
    """One request.

    Attributes:
        topics: what it asks for; none: only for the brokers.
        urged: those that somebody waits for, or of which a change is known.
        is_new: the first of these.
    """

    topics: list[str]
    urged: frozenset[str] = frozenset()
    is_new: bool = False


class MetadataSchedule:
    """The rule, and what it knows of topics.

    Args:
        max_age: seconds after which what was told of a topic, or of the brokers, is old.
        is_needed: whether anybody still wants to know a topic. No others are asked for.
    """

    def __init__(self, max_age: float, is_needed: Callable[[str], bool]) -> None:
        self._max_age = max_age
        self._is_needed = is_needed
        self._new: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        self._told: OrderedDict[str, float] = OrderedDict()  # when, oldest first
        self._asked: set[str] = set()
        self._in_flight = 0  # questions for new topics
        self._answered_at = 0.0

    # What is known

    def want(self, topic: str) -> None:
        """Somebody waits for it. What is asked for and was never told of need not be asked for again."""
        if topic not in self._asked or topic in self._told:
            self._new[topic] = None

    def urge(self, topics: Iterable[str]) -> None:
        """What is known of these is no longer so."""
        self._changed.update(dict.fromkeys(topics))

    def answered(self, now: float) -> None:
        """A broker told of the brokers."""
        self._answered_at = now

    def told(self, topic: str, now: float) -> None:
        """A broker told where its partitions are."""
        self._told[topic] = now
        self._told.move_to_end(topic)

    def forget(self, topic: str) -> None:
        """Nobody needs it any more."""
        self._told.pop(topic, None)
        self._changed.pop(topic, None)

    def shrink(self) -> None:
        """Many topics were forgotten."""
        shrink(self._told)

    def is_asked(self, topic: str) -> bool:
        """Whether a request for it is on its way, or its answer is being taken."""
        return topic in self._asked or topic in self._new

    @property
    def target(self) -> int:
        """Topics of a request that is full."""
        return min(max(int(len(self._told) / self._max_age * _SPAN), _FEWEST), MOST)

    # What to ask

    def next_new(self, now: float) -> Question | None:
        """The next request for new topics, due at once; None: there are none, or one that is not full waits for the one before."""
        names = [name for name in self._new if name not in self._asked]
        if not names or (self._in_flight and len(names) < MOST):
            return None
        names = names[:MOST]
        for name in names:
            del self._new[name]
            self._changed.pop(name, None)
        self._in_flight += 1
        return self._asking(names, now, names, is_new=True)

    def next_other(self, now: float) -> Question | None:
        """The next request for the others; None: none is due. One at a time."""
        self._changed = {name: None for name in self._changed if self._is_needed(name)}
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

    def _asking(self, names: list[str], now: float, urged: Iterable[str], *, is_new: bool = False) -> Question:
        """Filled up with what is not urgent."""
        taken = set(names)
        others = (name for name in self._older(now, self._max_age * _RIPE) if name not in taken)
        names = [*names, *islice(others, max(self.target - len(names), 0))]
        self._asked.update(names)
        return Question(names, frozenset(urged), is_new)

    def _older(self, now: float, age: float) -> Iterator[str]:
        """Topics told of so long ago, oldest first."""
        for name, told_at in self._told.items():
            if told_at + age > now:
                return
            if name not in self._asked:
                yield name

    def ended(self, question: Question, *, is_answered: bool) -> None:
        """Its answer is taken; or there is none, and what was urgent is so still."""
        self._asked.difference_update(question.topics)
        self._in_flight -= question.is_new
        if not is_answered:
            self._changed.update(dict.fromkeys(name for name in question.topics if name in question.urged))

    def due_at(self) -> float:
        """When `next_other` has something: 0 for at once."""
        if self._changed:
            return 0.0
        if not self._told:
            return self._answered_at + self._max_age
        oldest = next(iter(self._told.values())) + self._max_age
        ripe = next(islice(self._told.values(), self.target - 1, None), None)
        return oldest if ripe is None else min(oldest, ripe + self._max_age * _RIPE)
