"""Sensors: what is added up of one kind of event, over a life and over the last moments; and histograms.

Windows are Kafka's (MTR-01): a few samples of some seconds each, the oldest of which is dropped when a new one begins. An idle sensor
has no average and no maximum (NaN), and a rate of 0. Recording costs a few additions, and no more however long the windows are.

Sources: Kafka's `SampledStat`, `Rate`. Knows nothing of what is counted; `now` is an argument.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Distribution", "Histogram", "Sensor", "Sensors", "Windows"]

_NAN: Final = float("nan")


class Windows(NamedTuple):
    """How far back rates, averages and maxima look: so many samples of so many seconds each."""

    samples: int = 2
    seconds: float = 30.0


class _Sample(NamedTuple):
    """What a sample came to, and when it began."""

    began: float
    sum: float
    events: int
    max: float


class Sensor:
    """Adds up the values of one kind of event."""

    __slots__ = ("_before", "_began", "_count", "_counted", "_ends", "_max", "_past", "_sum", "_windows")

    def __init__(self, windows: Windows, now: float) -> None:
        self._windows = windows
        self._past: tuple[_Sample, ...] = ()  # no deque: there may be sensors of thousands of topics, and an empty one takes 600 bytes
        self._before = 0.0  # of the samples before this one, ever
        self._counted = 0
        self._open(now)

    def _open(self, now: float) -> None:
        self._began = now
        self._ends = now + self._windows.seconds
        self._sum = 0.0
        self._count = 0
        self._max = -1.0

    def record(self, now: float, value: float = 1.0) -> None:
        """One event of that value, from 0 on."""
        if now >= self._ends:
            self._turn(now)
        self._sum += value
        self._count += 1
        if value > self._max:  # noqa: PLR1730  (a call would be half of the cost)
            self._max = value

    def record_all(self, now: float, values: Sequence[float]) -> None:
        """An event of each value; there is one at least."""
        if now >= self._ends:
            self._turn(now)
        self._sum += sum(values)
        self._count += len(values)
        self._max = max(self._max, max(values))  # noqa: PLW3301  (to unpack them would cost as much as the rest)

    @property
    def total(self) -> float:
        """Of all values, ever."""
        return self._before + self._sum

    @property
    def count(self) -> int:
        """Of all events, ever."""
        return self._counted + self._count

    def _turn(self, now: float) -> None:
        """Another sample begins."""
        self._before += self._sum
        self._counted += self._count
        past = (*self._past, _Sample(self._began, self._sum, self._count, self._max))
        self._past = past[len(past) + 1 - self._windows.samples :] if len(past) >= self._windows.samples else past
        self._open(now)

    def _samples(self, now: float) -> list[_Sample]:
        """Those that are not too old, the oldest first."""
        oldest = now - self._windows.samples * self._windows.seconds
        all_ = (*self._past, _Sample(self._began, self._sum, self._count, self._max))
        return [sample for sample in all_ if sample.began > oldest]

    def _rate(self, now: float, samples: Sequence[_Sample], amount: float) -> float:
        """Per second; of time that was not lived yet all but the last sample counts as whole, or the first events would be a flood."""
        if not samples:
            return 0.0
        lived = now - samples[0].began
        missing = self._windows.samples - 1 - int(lived / self._windows.seconds)
        return amount / max(lived + max(missing, 0) * self._windows.seconds, self._windows.seconds)

    def rate(self, now: float) -> float:
        """Of the values, per second."""
        samples = self._samples(now)
        return self._rate(now, samples, sum(sample.sum for sample in samples))

    def count_rate(self, now: float) -> float:
        """Of the events, per second."""
        samples = self._samples(now)
        return self._rate(now, samples, sum(sample.events for sample in samples))

    def average(self, now: float) -> float:
        """Of the values; NaN: there was none lately."""
        samples = self._samples(now)
        count = sum(sample.events for sample in samples)
        return sum(sample.sum for sample in samples) / count if count else _NAN

    def maximum(self, now: float) -> float:
        """The largest value; NaN: there was none lately."""
        largest = max((sample.max for sample in self._samples(now)), default=-1.0)
        return largest if largest >= 0 else _NAN


class Sensors(dict[str, Sensor]):
    """Sensors by name, each made when it is first asked for: `sensors["record-send"].record(now, 3)`.

    Args:
        began: since when there was nothing to record; without it each begins with its first event.
    """

    __slots__ = ("_began", "_windows")

    def __init__(self, windows: Windows, began: float = 0.0) -> None:
        super().__init__()
        self._windows = windows
        self._began = began

    def __missing__(self, name: str) -> Sensor:
        sensor = self[name] = Sensor(self._windows, self._began)  # if that is long ago, its first event opens another sample
        return sensor


@dataclass(frozen=True, slots=True, repr=False)
class Distribution:
    """A histogram as it stood: how many values were at most each bound, and more than the last.

    Attributes:
        bounds: upper ones, inclusive, ascending.
        counts: of the values up to each bound and above the one before; one more for those above the last.
        sum: of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """Of all values."""
        return sum(self.counts)

    def quantile(self, part: float) -> float:
        """The value below which that part of all lie, reckoned within its bucket; NaN: there are none.

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
        return f"<Distribution: {self.count} values, p50 {self.quantile(0.5):g}, p99 {self.quantile(0.99):g}>"


class Histogram:
    """Counts values by size, over a whole life: who reads it twice knows what came in between."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """A value, so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def observe_all(self, values: Iterable[float]) -> None:
        """Each value once; a search for each bound, not for each value."""
        ordered = sorted(values)
        self._count_up_to([bisect_right(ordered, bound) for bound in self._bounds], len(ordered))
        self._sum += sum(ordered)

    def observe_weighed(self, values: Iterable[tuple[float, int]]) -> None:
        """Each value so many times; likewise."""
        ordered, times = zip(*sorted(values), strict=True)
        below = [0, *accumulate(times)]
        self._count_up_to([below[bisect_right(ordered, bound)] for bound in self._bounds], below[-1])
        self._sum += sum(map(mul, ordered, times))

    def _count_up_to(self, ends: Sequence[int], all_: int) -> None:
        """So many up to each bound, and so many in all."""
        for at, (end, before) in enumerate(zip((*ends, all_), (0, *ends), strict=True)):
            self._counts[at] += end - before

    def read(self) -> Distribution:
        """As it stands."""
        return Distribution(self._bounds, tuple(self._counts), self._sum)
