"""Computes how long each fault interrupted the acknowledgements, from wall clock milliseconds. Pure functions."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Mark", "gaps"]


@dataclass
class Mark:
    """Holds the time of a fault, from its first action until the cluster was restored.

    Attributes:
        failed: records that failed during the fault.
        longest: by topic: seconds without an acknowledgement, of the partition that waited longest.
        silent: by topic: the same, of all partitions together.
    """

    fault: str
    start: int
    end: int
    failed: int = 0
    longest: dict[str, float] = field(default_factory=dict)
    silent: dict[str, float] = field(default_factory=dict)


def gaps(marks: Sequence[Mark], topic: str, acks: Iterable[tuple[int, int]]) -> None:
    """Set the longest gap of each mark that began or ended during the mark; `acks` are (partition, time), in any order."""
    times: dict[int, list[int]] = {}
    for partition, at in acks:
        times.setdefault(partition, []).append(at)
    for one in times.values():
        one.sort()
    everything = sorted(at for one in times.values() for at in one)
    for mark in marks:
        mark.longest[topic] = max((_longest(one, mark) for one in times.values()), default=0.0)
        mark.silent[topic] = _longest(everything, mark)


def _longest(times: Sequence[int], mark: Mark) -> float:
    """Return the longest gap in seconds, from the last time before the mark to the first one after it; 0 with fewer than two times."""
    first = max(bisect_right(times, mark.start) - 1, 0)
    within = times[first : bisect_right(times, mark.end) + 1]
    return max((later - earlier for earlier, later in pairwise(within)), default=0) / 1000
