"""Holds the metrics that one producer records, and their snapshots.

Every call is for a batch, a request or a change of state, never for a record. When a topic or a broker is forgotten, its recorded values
are removed too.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from aioproducer.metrics.sensors import Distribution, Histogram, Sensor, Windows
from aioproducer.metrics.table import BOUNDS, COUNTED, GAUGES, SENSED, TAGS, Group
from aioproducer.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MetricName", "Metrics", "Sensors", "Snapshot"]

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
        raise KeyError(f"no metric {name!r}" + (f" of {', '.join(f'{key}={value}' for key, value in wanted)}" if wanted else ""))


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

    def __init__(self, client_id: str, windows: Windows, *, version: str, began_ms: int, now: float = 0.0) -> None:
        self._client = ("client-id", client_id)
        self.windows = windows
        self._app = (("version", version), float(began_ms))
        self.producer: Sensors = defaultdict(partial(Sensor, windows, now))
        # Of a broker or a topic, the first event of a sensor opens a sample of its own.
        make: partial[Sensors] = partial(defaultdict, partial(Sensor, windows, 0.0))
        self.nodes: defaultdict[int, Sensors] = defaultdict(make)
        self.topics: defaultdict[str, Sensors] = defaultdict(make)
        self.histograms: dict[str, Histogram] = {name: Histogram(bounds) for name, bounds in BOUNDS.items()}
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

    def snapshot(self, now: float, gauges: Mapping[str, float], depths: Mapping[tuple[str, int], int] | None = None) -> Snapshot:
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
            taken[self._name("incomplete-batches", Group.PARTITION, ("topic", topic), ("partition", str(partition)))] = float(depth)
        version, began = self._app
        taken[self._name("start-time-ms", Group.APP, version)] = began
        return taken

    def _name(self, name: str, group: Group, *tags: tuple[str, str]) -> MetricName:
        return MetricName(name, group.value, (self._client, *tags))

    def _read(
        self, group: Group, tags: tuple[tuple[str, str], ...], sensors: Mapping[str, Sensor], now: float
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
