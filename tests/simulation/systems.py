"""Counts the work of the producer's own systems in a run, by its events and by the outcomes of records.

A run that allows topics to expire or partitions to be muted tests that only if it happens.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioproducer.model import TopicPartition
    from tests.simulation.history import Sent

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
"""The names of the counters, for:

- topics that the producer forgot, and records acknowledged to them later;
- brokers that were late while other brokers led partitions of the same topic;
- circuits that opened, were probed and closed, by policy;
- records that an open circuit refused, by policy, and records that went to another partition than the requested one.
"""


class Systems:
    """Counts for one run.

    Args:
        policy: the circuit breaker's policy for keyed records.
        time: the loop's clock.
        has_others: returns whether other brokers lead partitions of a topic of which this broker leads some.
        on_event: called with a description of each counted event.
    """

    def __init__(
        self,
        policy: str,
        time: Callable[[], float],
        has_others: Callable[[int], bool],
        on_event: Callable[[str], object],
    ) -> None:
        self.seen: Counter[str] = Counter()
        self._policy = policy
        self._time = time
        self._has_others = has_others
        self._on_event = on_event
        self._forgotten: dict[
            str, float
        ] = {}  # topics, with the time since which they are forgotten
        self._open: set[str] = set()  # partitions

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the producers' events within the block."""
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
            self._open = {
                where for where in self._open if where.rpartition("-")[0] != facts["topic"]
            }
            self._on_event(f"forgets {facts['topic']}")
        elif event == "broker-late":
            self.seen["late"] += self._has_others(facts["node_id"])
            self._on_event(f"finds broker {facts['node_id']} late")
        elif event in _CIRCUITS:
            self.seen[f"{_CIRCUITS[event]}_{self._policy}"] += 1
            (self._open.add if event == _OPENED else self._open.discard)(facts["what"])
            self._on_event(f"{event.replace('-', ' ')}: {facts['what']}")

    def is_open(self, partition: TopicPartition) -> bool:
        """Return whether a partition's circuit is open now."""
        return f"{partition[0]}-{partition[1]}" in self._open

    def begin(self) -> None:
        """Start with another producer: all its circuits are closed."""
        self._open.clear()

    def settle(self, sent: Iterable[Sent]) -> None:
        """Count the outcomes of the records."""
        for each in sent:
            since = self._forgotten.get(each.topic)
            self.seen["forgotten_and_back"] += (
                since is not None and each.called_at >= since and each.is_acknowledged
            )
            self.seen["elsewhere"] += each.is_acknowledged and each.partition not in {
                None,
                each.ends[0].partition,
            }
            if each.refused == _UNAVAILABLE:
                self.seen[f"refused_{self._policy}"] += 1
