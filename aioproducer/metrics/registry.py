"""Holds the metrics that one producer records, and their snapshots: sensors, which sum values of one kind of event, and histograms.

Windows are Kafka's (MTR-01): a few samples of some seconds each. A sensor drops the oldest sample when a new one begins. An idle sensor
has no average and no maximum (NaN), and a rate of 0. Recording costs a few additions, regardless of how long the windows are. `now` is
an argument. Every call is for a batch, a request or a change of state, never for a record. When a topic or a broker is forgotten, its
recorded values are removed too.

Sources: Kafka's `SampledStat`, `Rate`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Final, NamedTuple, TypeAlias

from aioproducer.metrics.table import BOUNDS, COUNTED, GAUGES, SENSED, TAGS, Group
from aioproducer.model import counted

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

    __slots__ = (
        "_before",
        "_began",
        "_count",
        "_counted",
        "_ends",
        "_max",
        "_past",
        "_sum",
        "_windows",
    )

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
        self._past = (
            past[len(past) + 1 - self._windows.samples :]
            if len(past) >= self._windows.samples
            else past
        )
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
        self._count_up_to(
            [below[bisect_right(ordered, bound)] for bound in self._bounds], below[-1]
        )
        self._sum += sum(map(mul, ordered, times))

    def _count_up_to(self, ends: Sequence[int], all_: int) -> None:
        """Add values to the buckets: `ends` has the number of values up to each bound, `all_` is the number of all."""
        for at, (end, before) in enumerate(zip((*ends, all_), (0, *ends), strict=True)):
            self._counts[at] += end - before

    def read(self) -> Distribution:
        """Return the current state."""
        return Distribution(self._bounds, tuple(self._counts), self._sum)


# By name. A look-up makes the sensor that is missing: `sensors["record-send"].record(now, 3)`.
Sensors: TypeAlias = "defaultdict[str, Sensor]"


class MetricName(NamedTuple):
    """Identifies a metric and its subject: Java's `MetricName`.

    Attributes:
        name: the name, as in Java.
        group: "producer-metrics", "producer-node-metrics", "producer-topic-metrics" and so on.
        tags: names and values, `client-id` first.
    """

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()


class Snapshot(dict[MetricName, "float | Distribution"]):
    """Holds all metrics of a producer at one moment, by `MetricName`; histograms are `Distribution`s, all others are numbers."""

    def number(self, name: str, **tags: str) -> float:
        """Return one number: `snapshot.number("record-send-total", topic="orders")`; 0 if nothing was counted under these tags.

        Args:
            name: the name of the metric.
            tags: all tags of the metric except `client-id`, with `_` for `-`.

        Raises:
            KeyError: there is no such metric, or it is no number.
        """
        found = self._find(name, tags)
        if isinstance(found, Distribution):
            raise KeyError(f"{name} is a histogram: use `distribution`")
        return found

    def distribution(self, name: str) -> Distribution:
        """Return one histogram: `snapshot.distribution("delivery-latency-seconds").quantile(0.99)`.

        Raises:
            KeyError: there is no histogram of that name.
        """
        found = self._find(name, {})
        if not isinstance(found, Distribution):
            raise KeyError(f"{name} is a number: use `number`")
        return found

    def _find(self, name: str, tags: Mapping[str, str]) -> float | Distribution:
        wanted = tuple(sorted((key.replace("_", "-"), str(value)) for key, value in tags.items()))
        for metric, value in self.items():
            if metric.name == name and tuple(sorted(metric.tags[1:])) == wanted:
                return value
        group = COUNTED.get(name)
        if group is not None and [key for key, _ in wanted] == sorted(TAGS[group]):
            return 0.0
        raise KeyError(
            f"no metric {name!r}"
            + (f" of {', '.join(f'{key}={value}' for key, value in wanted)}" if wanted else "")
        )


class Metrics:
    """Records the metrics of one producer.

    Args:
        client_id: the tag of every metric.
        windows: the time span of rates, averages and maxima.
        now: the time when the producer was made, by the same clock as the recorded events.
        began_ms: the same, in ms since 1970.

    Attributes:
        producer: sensors of the producer as a whole.
        nodes: sensors of each broker, by its id; bootstrap addresses have negative ids. A look-up makes them.
        topics: sensors of each topic. A look-up makes them; `pop` forgets a topic that the producer no longer produces to (KIP-526).
        histograms: all histograms, by name.
        windows: as given.
    """

    def __init__(
        self, client_id: str, windows: Windows, *, version: str, began_ms: int, now: float = 0.0
    ) -> None:
        self._client = ("client-id", client_id)
        self.windows = windows
        self._app = (("version", version), float(began_ms))
        self.producer: Sensors = defaultdict(partial(Sensor, windows, now))
        # Of a broker or a topic, the first event of a sensor opens a sample of its own.
        make: partial[Sensors] = partial(defaultdict, partial(Sensor, windows, 0.0))
        self.nodes: defaultdict[int, Sensors] = defaultdict(make)
        self.topics: defaultdict[str, Sensors] = defaultdict(make)
        self.histograms: dict[str, Histogram] = {
            name: Histogram(bounds) for name, bounds in BOUNDS.items()
        }
        self._counts: dict[tuple[str, str], float] = {}

    def count(self, name: str, tag: str, times: float = 1) -> None:
        """Count under a tag: `count("events-total", "breaker-opened")`."""
        assert name in COUNTED, name
        self._counts[name, tag] = self._counts.get((name, tag), 0) + times

    def shrink(self) -> None:
        """Free memory after many topics were forgotten, because a dict keeps the memory of deleted entries.

        It makes a new dict, because other threads may read the old one.
        """
        self.topics = self.topics.copy()

    def snapshot(
        self,
        now: float,
        gauges: Mapping[str, float],
        depths: Mapping[tuple[str, int], int] | None = None,
    ) -> Snapshot:
        """Return all metrics at this moment. Any thread may call it.

        The snapshot may or may not include a value that is recorded meanwhile. Recording and reading do not disturb each other.

        Args:
            now: the time, by the same clock as the recorded events.
            gauges: the current values of gauges, by name (`table.GAUGES`); a gauge that is left out is 0.
            depths: the numbers of incomplete batches of some partitions.
        """
        taken = Snapshot(self._read(Group.PRODUCER, (), self.producer, now))
        # `copy` is one step. Building a tuple of items may run the garbage collector, and with it other threads.
        for node_id, sensors in self.nodes.copy().items():
            taken.update(self._read(Group.NODE, (("node-id", f"node-{node_id}"),), sensors, now))
        for topic, sensors in self.topics.copy().items():
            taken.update(self._read(Group.TOPIC, (("topic", topic),), sensors, now))
        for name in GAUGES:
            taken[self._name(name, Group.PRODUCER)] = float(gauges.get(name, 0.0))
        for name, histogram in self.histograms.items():
            taken[self._name(name, Group.PRODUCER)] = histogram.read()
        for (name, tag), count in self._counts.copy().items():
            group = COUNTED[name]
            taken[self._name(name, group, (TAGS[group][0], tag))] = float(count)
        for (topic, partition), depth in (depths or {}).items():
            taken[
                self._name(
                    "incomplete-batches",
                    Group.PARTITION,
                    ("topic", topic),
                    ("partition", str(partition)),
                )
            ] = float(depth)
        version, began = self._app
        taken[self._name("start-time-ms", Group.APP, version)] = began
        return taken

    def _name(self, name: str, group: Group, *tags: tuple[str, str]) -> MetricName:
        return MetricName(name, group.value, (self._client, *tags))

    def _read(
        self,
        group: Group,
        tags: tuple[tuple[str, str], ...],
        sensors: Mapping[str, Sensor],
        now: float,
    ) -> Iterator[tuple[MetricName, float]]:
        labels, name_of = (self._client, *tags), group.value
        for row in SENSED[group]:
            assert row.read is not None
            value = row.idle
            for at, name in enumerate(row.sensors):
                sensor = sensors.get(name)
                if sensor is not None:
                    value = row.read(sensor, now) + (value if at else 0.0)
            yield MetricName(row.name, name_of, labels), float(value)
