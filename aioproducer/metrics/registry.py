"""What is recorded of one producer, and snapshots of it.

Every call is for a batch, a request or a change of state, never for a record. Topics and brokers that are forgotten take what was
recorded of them along. Knows nothing of who records, or of what a snapshot is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioproducer.metrics.sensors import Distribution, Histogram, Sensor, Sensors, Windows
from aioproducer.metrics.table import BOUNDS, COUNTED, GAUGES, SENSED, TAGS, Group

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MetricName", "Metrics", "Snapshot"]


class MetricName(NamedTuple):
    """Which metric, of what: Java's `MetricName`.

    Attributes:
        name: as Java has it.
        group: "producer-metrics", "producer-node-metrics", "producer-topic-metrics" and so on.
        tags: names and values, `client-id` first.
    """

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()


class Snapshot(dict[MetricName, "float | Distribution"]):
    """All metrics of a producer at one moment, by `MetricName`; histograms are `Distribution`s, all others are numbers."""

    def number(self, name: str, **tags: str) -> float:
        """One number: `snapshot.number("record-send-total", topic="orders")`; 0 where nothing was counted under these tags.

        Args:
            name: of the metric.
            tags: all that it has beside `client-id`, with `_` for `-`.

        Raises:
            KeyError: there is no such metric, or it is no number.
        """
        found = self._find(name, tags)
        if isinstance(found, Distribution):
            raise KeyError(f"{name} is a histogram: use `distribution`")
        return found

    def distribution(self, name: str) -> Distribution:
        """One histogram: `snapshot.distribution("delivery-latency-seconds").quantile(0.99)`.

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
    """What one producer records.

    Args:
        client_id: the tag of every metric.
        windows: how far back rates, averages and maxima look.
        now: when the producer was made, in the time of what is recorded.
        began_ms: the same, in ms since 1970.

    Attributes:
        producer: sensors of the producer as a whole.
        histograms: by name.
        windows: as given.
    """

    def __init__(self, client_id: str, windows: Windows, *, version: str, began_ms: int, now: float = 0.0) -> None:
        self._client = ("client-id", client_id)
        self.windows = windows
        self._app = (("version", version), float(began_ms))
        self.producer = Sensors(windows, now)
        self.histograms = {name: Histogram(bounds) for name, bounds in BOUNDS.items()}
        self._nodes: dict[int, Sensors] = {}
        self._topics: dict[str, Sensors] = {}
        self._counts: dict[tuple[str, str], float] = {}

    def node(self, node_id: int) -> Sensors:
        """Sensors of one broker; those of bootstrap addresses have negative ids."""
        sensors = self._nodes.get(node_id)
        if sensors is None:
            sensors = self._nodes[node_id] = Sensors(self.windows)
        return sensors

    def topic(self, topic: str) -> Sensors:
        """Sensors of one topic."""
        sensors = self._topics.get(topic)
        if sensors is None:
            sensors = self._topics[topic] = Sensors(self.windows)
        return sensors

    def has_topic(self, topic: str) -> bool:
        """Whether there are any of it yet."""
        return topic in self._topics

    def count(self, name: str, tag: str, times: float = 1) -> None:
        """Count under a tag: `count("events-total", "breaker-opened")`."""
        assert name in COUNTED, name
        self._counts[name, tag] = self._counts.get((name, tag), 0) + times

    def forget_topic(self, topic: str) -> None:
        """Nothing is produced to it any more (KIP-526)."""
        self._topics.pop(topic, None)

    def shrink(self) -> None:
        """Many topics were forgotten: a dict keeps the room of what was deleted. Another one, as other threads may read this one."""
        self._topics = dict(self._topics)

    def forget_node(self, node_id: int) -> None:
        """It is a broker of the cluster no more."""
        self._nodes.pop(node_id, None)

    def snapshot(self, now: float, gauges: Mapping[str, float], depths: Mapping[tuple[str, int], int] | None = None) -> Snapshot:
        """Everything as it stands. From any thread: what is recorded meanwhile is there or not, and nothing breaks.

        Args:
            now: in the time of what is recorded.
            gauges: what is said when it is asked, by name (`table.GAUGES`); what is left out is 0.
            depths: of some partitions' queues.
        """
        taken = Snapshot(self._read(Group.PRODUCER, (), self.producer, now))
        # copied in one step: a tuple of items lets the collector in, and with it other threads
        for node_id, sensors in self._nodes.copy().items():
            taken.update(self._read(Group.NODE, (("node-id", f"node-{node_id}"),), sensors, now))
        for topic, sensors in self._topics.copy().items():
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
