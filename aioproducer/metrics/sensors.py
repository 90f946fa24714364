"""Holds sensors, which sum values of one kind of event, over a lifetime and over recent windows; and histograms.

Windows are Kafka's (MTR-01): a few samples of some seconds each. A sensor drops the oldest sample when a new one begins. An idle sensor
has no average and no maximum (NaN), and a rate of 0. Recording costs a few additions, regardless of how long the windows are. `now` is
an argument.

Sources: Kafka's `SampledStat`, `Rate`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Final

from aioproducer.counting import counted
from aioproducer.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Distribution", "Histogram", "Sensor", "Windows"]

_NAN: Final = float("nan")


class Windows(NamedTuple):
    """Holds the time span of rates, averages and maxima: the number of samples, and the seconds of each."""

    samples: int = 2
    seconds: float = 30.0


class _Sample(NamedTuple):
    """Holds the totals of a sample, and the time when it began."""

    began: float
    sum: float
    events: int
    max: float


class Sensor:
    """Sums the values of one kind of event."""

    __slots__ = ("_before", "_began", "_count", "_counted", "_ends", "_max", "_past", "_sum", "_windows")

    def __init__(self, windows: Windows, now: float) -> None:
        self._windows = windows
        # A tuple, because there may be sensors of thousands of topics, and an empty deque takes 600 bytes.
        self._past: tuple[_Sample, ...] = ()
        # The sum and the count of all samples before the current one, including the dropped ones.
        self._before = 0.0
        self._counted = 0
        self._open(now)

    def _open(self, now: float) -> None:
        self._began = now
        self._ends = now + self._windows.seconds
        self._sum = 0.0
        self._count = 0
        self._max = -1.0

    def record(self, now: float, value: float = 1.0) -> None:
        """Record one event with `value`, which is at least 0."""
        if now >= self._ends:
            self._turn(now)
        self._sum += value
        self._count += 1
        if value > self._max:
            self._max = value

    def record_all(self, now: float, values: Sequence[float]) -> None:
        """Record an event for each value; there is at least one."""
        if now >= self._ends:
            self._turn(now)
        self._sum += sum(values)
        self._count += len(values)
        self._max = max(self._max, max(values))

    @property
    def total(self) -> float:
        """Return the sum of all values, ever."""
        return self._before + self._sum

    @property
    def count(self) -> int:
        """Return the number of all events, ever."""
        return self._counted + self._count

    def _turn(self, now: float) -> None:
        """Begin another sample."""
        self._before += self._sum
        self._counted += self._count
        past = (*self._past, _Sample(self._began, self._sum, self._count, self._max))
        self._past = past[len(past) + 1 - self._windows.samples :] if len(past) >= self._windows.samples else past
        self._open(now)

    def _samples(self, now: float) -> list[_Sample]:
        """Return the samples that are not too old, the oldest first."""
        oldest = now - self._windows.samples * self._windows.seconds
        all_ = (*self._past, _Sample(self._began, self._sum, self._count, self._max))
        return [sample for sample in all_ if sample.began > oldest]

    def _rate(self, now: float, samples: Sequence[_Sample], amount: float) -> float:
        """Return `amount` per second.

        A young sensor has fewer samples than its window. All missing samples but the last count with their whole time, because the first
        events would otherwise give a very high rate.
        """
        if not samples:
            return 0.0
        lived = now - samples[0].began
        missing = self._windows.samples - 1 - int(lived / self._windows.seconds)
        return amount / max(lived + max(missing, 0) * self._windows.seconds, self._windows.seconds)

    def rate(self, now: float) -> float:
        """Return the sum of the recent values, per second."""
        samples = self._samples(now)
        return self._rate(now, samples, sum(sample.sum for sample in samples))

    def count_rate(self, now: float) -> float:
        """Return the number of recent events, per second."""
        samples = self._samples(now)
        return self._rate(now, samples, sum(sample.events for sample in samples))

    def average(self, now: float) -> float:
        """Return the average of the recent values; NaN: there is none."""
        samples = self._samples(now)
        count = sum(sample.events for sample in samples)
        return sum(sample.sum for sample in samples) / count if count else _NAN

    def maximum(self, now: float) -> float:
        """Return the largest recent value; NaN: there is none."""
        largest = max((sample.max for sample in self._samples(now)), default=-1.0)
        return largest if largest >= 0 else _NAN


@dataclass(frozen=True, slots=True, repr=False)
class Distribution:
    """Holds the state of a histogram at one moment: the number of values in each bucket.

    Attributes:
        bounds: the upper bounds of the buckets, inclusive, ascending.
        counts: the number of values up to each bound and above the one before, then the number of values above the last bound.
        sum: the sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """Return the number of all values."""
        return sum(self.counts)

    def quantile(self, part: float) -> float:
        """Return the value below which `part` of all values lie, interpolated within its bucket; NaN: there are none.

        Args:
            part: from 0 to 1; 0.99 for the 99th percentile.
        """
        wanted = part * self.count
        below = 0
        for at, count in enumerate(self.counts):
            if count and below + count >= wanted:
                low = self.bounds[at - 1] if at else 0.0
                high = self.bounds[min(at, len(self.bounds) - 1)]
                return low + (high - low) * (wanted - below) / count
            below += count
        return _NAN

    def __repr__(self) -> str:
        return f"<Distribution: {counted(self.count, 'value')}, p50 {self.quantile(0.5):g}, p99 {self.quantile(0.99):g}>"


class Histogram:
    """Counts values by size, over its whole lifetime. The difference of two reads covers the time between them."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe_all(self, values: Iterable[float]) -> None:
        """Count each value once. It searches once for each bound, not for each value."""
        ordered = sorted(values)
        self._count_up_to([bisect_right(ordered, bound) for bound in self._bounds], len(ordered))
        self._sum += sum(ordered)

    def observe_weighed(self, values: Iterable[tuple[float, int]]) -> None:
        """Count each value as many times as its pair says. It searches once for each bound, not for each value."""
        ordered, times = zip(*sorted(values), strict=True)
        below = [0, *accumulate(times)]
        self._count_up_to([below[bisect_right(ordered, bound)] for bound in self._bounds], below[-1])
        self._sum += sum(map(mul, ordered, times))

    def _count_up_to(self, ends: Sequence[int], all_: int) -> None:
        """Add values to the buckets: `ends` has the number of values up to each bound, `all_` is the number of all."""
        for at, (end, before) in enumerate(zip((*ends, all_), (0, *ends), strict=True)):
            self._counts[at] += end - before

    def read(self) -> Distribution:
        """Return the current state."""
        return Distribution(self._bounds, tuple(self._counts), self._sum)
