"""Which of the producer's own systems were at work in a run, by the events that it tells of itself and by what became of records.

A run in which a topic could be forgotten, or a partition muted, shows nothing of that unless it happened. Knows no fault and no log.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioproducer.model import TopicPartition
    from aioproducer.testing.simulation.history import Sent

__all__ = ["POLICIES", "SYSTEMS", "Systems"]

POLICIES: Final = ("strict", "available", "fail_fast")
_OPENED: Final = "breaker-opened"
_CIRCUITS: Final = {_OPENED: "opened", "breaker-probing": "probed", "breaker-closed": "closed"}
_UNAVAILABLE: Final = "PartitionUnavailable"
SYSTEMS: Final = (
    "forgotten",
    "forgotten_and_back",
    "late",
    *(f"{what}_{policy}" for what in _CIRCUITS.values() for policy in POLICIES),
    *(f"refused_{policy}" for policy in POLICIES),
    "elsewhere",
)
"""What is counted: topics that were forgotten, and those that were produced to again; brokers that were late while others led partitions
of the same topic; circuits by policy; records that were refused for one, and that went to another partition than the named one."""


class Systems:
    """Of one run.

    Args:
        policy: of records for a muted partition.
        time: the loop's.
        has_others: whether a topic of which a broker leads partitions has some that others lead.
        on_event: told of each event that matters here, in words.
    """

    def __init__(
        self, policy: str, time: Callable[[], float], has_others: Callable[[int], bool], on_event: Callable[[str], object]
    ) -> None:
        self.seen: Counter[str] = Counter()
        self._policy = policy
        self._time = time
        self._has_others = has_others
        self._on_event = on_event
        self._forgotten: dict[str, float] = {}  # topics: since when
        self._open: set[str] = set()  # partitions

    @contextmanager
    def watching(self) -> Iterator[None]:
        """What producers tell within the block is counted."""
        logger = logging.getLogger("aioproducer.events")
        handler = logging.Handler()
        handler.emit = self._take  # type: ignore[method-assign]
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)

    def _take(self, record: logging.LogRecord) -> None:
        told: dict[str, Any] = vars(record)
        event, facts = told["event"], told["facts"]
        if event == "topic-forgotten":
            self.seen["forgotten"] += 1
            self._forgotten.setdefault(facts["topic"], self._time())
            self._open = {where for where in self._open if where.rpartition("-")[0] != facts["topic"]}
            self._on_event(f"forgets {facts['topic']}")
        elif event == "broker-late":
            self.seen["late"] += self._has_others(facts["node_id"])
            self._on_event(f"finds broker {facts['node_id']} late")
        elif event in _CIRCUITS:
            self.seen[f"{_CIRCUITS[event]}_{self._policy}"] += 1
            (self._open.add if event == _OPENED else self._open.discard)(facts["what"])
            self._on_event(f"{event.replace('-', ' ')}: {facts['what']}")

    def is_open(self, partition: TopicPartition) -> bool:
        """Whether its circuit is open now."""
        return f"{partition[0]}-{partition[1]}" in self._open

    def begin(self) -> None:
        """Another producer: all its circuits are closed."""
        self._open.clear()

    def settle(self, sent: Iterable[Sent]) -> None:
        """What became of the records."""
        for each in sent:
            since = self._forgotten.get(each.topic)
            self.seen["forgotten_and_back"] += since is not None and each.called_at >= since and each.is_acknowledged
            self.seen["elsewhere"] += each.is_acknowledged and each.partition not in {None, each.ends[0].partition}
            if each.refused == _UNAVAILABLE:
                self.seen[f"refused_{self._policy}"] += 1
