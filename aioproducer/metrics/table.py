"""Holds the table of all metrics. Exporters, the documentation and the dashboard are made from it.

Each row has a metric's name, its meaning and its sensors. Metrics that Java has too have Java's names (`SenderMetricsRegistry`, `BufferPool`,
`Selector` and others). Metrics that Java lacks are below them. docs/topics/metrics.md lists the metrics of Java that are missing here, with
reasons.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.metrics.registry import Sensor

    Read: TypeAlias = Callable[[Sensor, float], float]

_NAN: Final = float("nan")


class Group(enum.StrEnum):
    """Holds the groups of metrics, with Java's names; Java does not have the last four."""

    PRODUCER = "producer-metrics"
    NODE = "producer-node-metrics"
    TOPIC = "producer-topic-metrics"
    APP = "app-info"
    PARTITION = "producer-partition-metrics"
    ERROR = "producer-error-metrics"
    EVENT = "producer-event-metrics"
    INTERCEPTOR = "producer-interceptor-metrics"


# All tags except client-id.
TAGS: Final[dict[Group, tuple[str, ...]]] = {
    Group.PRODUCER: (),
    Group.NODE: ("node-id",),
    Group.TOPIC: ("topic",),
    Group.APP: ("version",),
    Group.PARTITION: ("topic", "partition"),
    Group.ERROR: ("error",),
    Group.EVENT: ("event",),
    Group.INTERCEPTOR: ("interceptor",),
}


class Kind(enum.Enum):
    """Holds the kinds of metrics."""

    # Only grows, from 0.
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Row(NamedTuple):
    """Holds one metric.

    Attributes:
        unit: the unit of its values, in words; a histogram's are seconds, parts of one, or batches.
        sensors: the sensors that it is read from, summed; none: the engine supplies the value when a snapshot is taken.
        read: reads the value of one sensor.
        idle: the value if nothing was recorded.
    """

    group: Group
    name: str
    kind: Kind
    unit: str
    doc: str
    sensors: tuple[str, ...] = ()
    read: Read | None = None
    idle: float = 0.0


# How a row's sensor is read: for each metric that it gives what ends its name, unit and meaning, its kind, reader and idle value.
_RATE: Final = (("", "", "", Kind.GAUGE, lambda sensor, now: sensor.rate(now), 0.0),)
# 1.0: nothing is compressed, or nothing was sent.
_RATIO: Final = (("", "", "", Kind.GAUGE, lambda sensor, now: sensor.average(now), 1.0),)
_NANOSECONDS: Final = (
    ("-time-ns-total", "", "", Kind.COUNTER, lambda sensor, _now: sensor.total * 1e9, 0.0),
)
# Java's `Meter` of values, and of events.
_VALUES: Final = (
    ("-rate", "/s", "", Kind.GAUGE, lambda sensor, now: sensor.rate(now), 0.0),
    ("-total", "", "", Kind.COUNTER, lambda sensor, _now: sensor.total, 0.0),
)
_EVENTS: Final = (
    ("-rate", "/s", "", Kind.GAUGE, lambda sensor, now: sensor.count_rate(now), 0.0),
    ("-total", "", "", Kind.COUNTER, lambda sensor, _now: sensor.count, 0.0),
)
_SIZES: Final = (
    ("-avg", "", ", on average", Kind.GAUGE, lambda sensor, now: sensor.average(now), _NAN),
    ("-max", "", ", at most", Kind.GAUGE, lambda sensor, now: sensor.maximum(now), _NAN),
)
_ALL: Final = (Group.PRODUCER, Group.NODE)
_OF_RECORDS: Final = (Group.PRODUCER, Group.TOPIC)
_HERE: Final = (Group.PRODUCER,)

# Name, unit, meaning, names of the sensors, how they are read, groups.
_SENSED: Final = (
    ("batch-size", "bytes", "of a batch as it is sent", "batch-size", _SIZES, _HERE),
    (
        "compression-rate-avg",
        "ratio",
        "bytes after compression for each before",
        "compression-rate",
        _RATIO,
        _HERE,
    ),
    (
        "compression-rate",
        "ratio",
        "bytes after compression for each before",
        "compression-rate",
        _RATIO,
        (Group.TOPIC,),
    ),
    (
        "record-queue-time",
        "ms",
        "from a batch's beginning to its first request",
        "record-queue-time",
        _SIZES,
        _HERE,
    ),
    (
        "request-latency",
        "ms",
        "from a Produce request to its answer",
        "request-latency",
        _SIZES,
        _ALL,
    ),
    (
        "record-send",
        "records",
        "that were sent, acknowledged or not; a retry counts again",
        "record-send",
        _VALUES,
        _OF_RECORDS,
    ),
    ("records-per-request", "records", "in a Produce request", "record-send", _SIZES[:1], _HERE),
    ("byte", "bytes", "of batches sent", "byte", _VALUES, (Group.TOPIC,)),
    ("record-retry", "records", "to be sent again", "record-retry", _VALUES, _OF_RECORDS),
    (
        "record-error",
        "records",
        "failed, and sends that were refused after they waited",
        "record-error",
        _VALUES,
        _OF_RECORDS,
    ),
    (
        "record-size",
        "bytes",
        "of the largest record of a batch; of some batches",
        "record-size",
        _SIZES,
        _HERE,
    ),
    (
        "batch-split",
        "batches",
        "cut in smaller ones, as their broker found them too large",
        "batch-split",
        _EVENTS,
        _HERE,
    ),
    (
        "produce-throttle-time",
        "ms",
        "that brokers asked for; Java counts each answer without such a time as 0",
        "produce-throttle-time",
        _SIZES,
        _HERE,
    ),
    (
        "buffer-exhausted",
        "records",
        "that found no memory within max_block_ms",
        "buffer-exhausted",
        _EVENTS,
        _HERE,
    ),
    (
        "bufferpool-wait-ratio",
        "ratio",
        "of the time in which some send waited for memory",
        "bufferpool-wait",
        _RATE,
        _HERE,
    ),
    (
        "bufferpool-wait",
        "ns",
        "in which some send waited for memory",
        "bufferpool-wait",
        _NANOSECONDS,
        _HERE,
    ),
    ("flush", "ns", "spent in flush()", "flush-time", _NANOSECONDS, _HERE),
    (
        "metadata-wait",
        "ns",
        "in which some send waited for a topic, of all topics",
        "metadata-wait",
        _NANOSECONDS,
        _HERE,
    ),
    (
        "txn-init",
        "ns",
        "spent on the transactional producer's id in start()",
        "txn-init-time",
        _NANOSECONDS,
        _HERE,
    ),
    ("txn-begin", "ns", "spent in begin_transaction()", "txn-begin-time", _NANOSECONDS, _HERE),
    (
        "txn-send-offsets",
        "ns",
        "in send_offsets_to_transaction()",
        "txn-send-offsets-time",
        _NANOSECONDS,
        _HERE,
    ),
    ("txn-commit", "ns", "spent in commit_transaction()", "txn-commit-time", _NANOSECONDS, _HERE),
    ("txn-abort", "ns", "spent in abort_transaction()", "txn-abort-time", _NANOSECONDS, _HERE),
    ("connection-creation", "connections", "made", "connection-creation", _EVENTS, _HERE),
    ("connection-close", "connections", "lost or closed", "connection-close", _EVENTS, _HERE),
    (
        "successful-authentication",
        "connections",
        "authenticated, by TLS or SASL",
        "authentication",
        _EVENTS,
        _HERE,
    ),
    (
        "failed-authentication",
        "connections",
        "not made: client or broker refused",
        "failed-authentication",
        _EVENTS,
        _HERE,
    ),
    ("successful-reauthentication", "sessions", "renewed", "reauthentication", _EVENTS, _HERE),
    (
        "failed-reauthentication",
        "sessions",
        "not renewed",
        "failed-reauthentication",
        _EVENTS,
        _HERE,
    ),
    (
        "reauthentication-latency",
        "ms",
        "that a renewal of a session took",
        "reauthentication",
        _SIZES,
        _HERE,
    ),
    ("network-io", "requests", "requests and answers", "request response", _EVENTS, _HERE),
    ("outgoing-byte", "bytes", "of requests", "request", _VALUES, _ALL),
    ("incoming-byte", "bytes", "of answers", "response", _VALUES, _ALL),
    ("request", "requests", "of any kind", "request", _EVENTS, _ALL),
    ("request-size", "bytes", "of a request", "request", _SIZES, _ALL),
    ("response", "answers", "of any kind", "response", _EVENTS, _ALL),
)

# Gauges that the engine supplies when a snapshot is taken: name, unit, meaning.
_ASKED: Final = (
    ("requests-in-flight", "requests", "without an answer yet"),
    ("metadata-age", "s", "since a broker last told its metadata"),
    ("connection-count", "connections", "that stand"),
    (
        "waiting-threads",
        "sends",
        "that wait, for memory or metadata or their turn; Java's name: here they are tasks",
    ),
    ("buffer-total-bytes", "bytes", "of buffer_memory"),
    ("buffer-available-bytes", "bytes", "of buffer_memory that are free"),
    ("memory-waiters", "sends", "that wait for memory or their turn"),
    ("metadata-waiters", "sends", "that wait for a topic or a partition"),
    (
        "oldest-unacknowledged-seconds",
        "s",
        "age of the oldest batch that has not ended; 0: there is none",
    ),
    ("incomplete-batches", "batches", "that have not ended"),
    ("brokers-known", "brokers", "of the cluster, as metadata has it"),
    ("brokers-up", "brokers", "of them, to which a connection stands"),
    ("brokers-down", "brokers", "of them, of which the latest attempt to connect failed"),
    ("brokers-throttling", "brokers", "of them, which want to be left alone for now"),
    (
        "brokers-late",
        "brokers",
        "of them, which records without a key avoid (partitioner_availability_timeout_ms)",
    ),
    ("topics-known", "topics", "whose metadata is kept"),
    (
        "client-certificate-expiry-ms",
        "ms",
        "since 1970, at which this client's certificate ends; 0: it has none",
    ),
    (
        "broker-certificate-expiry-ms",
        "ms",
        "since 1970, at which the first certificate of a connected broker ends; 0: there is none",
    ),
    ("token-age-seconds", "s", "since the bearer token was fetched; 0: there is none"),
    (
        "token-expiry-ms",
        "ms",
        "since 1970, at which the bearer token ends; 0: there is none, or its end is not known",
    ),
    (
        "token-failures",
        "fetches",
        "of a bearer token that failed, one after the other; 0: the latest one did not",
    ),
    ("breakers-open", "breakers", "of brokers and partitions, that hold records back (KIP-693)"),
)

_LATENCIES: Final = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    60.0,
    120.0,
)
_TURNS: Final = (
    0.0001,
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
)
_PARTS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_DEPTHS: Final = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

# Name, unit, meaning, bounds.
_HISTOGRAMS: Final = (
    (
        "delivery-latency-seconds",
        "s",
        "from a batch's first record to its acknowledgement, for each record",
        _LATENCIES,
    ),
    (
        "batch-fill-ratio",
        "ratio",
        "of batch_size that a batch had when it was sent, before compression",
        _PARTS,
    ),
    (
        "partition-queue-depth",
        "batches",
        "of its partition that had not ended when a batch was sent, with it",
        _DEPTHS,
    ),
    ("loop-turn-seconds", "s", "that the event loop took to come to us again: its stalls", _TURNS),
)

# Metrics that are counted by a tag: group, name, unit, meaning.
_TAGGED: Final = (
    (
        Group.ERROR,
        "request-errors-total",
        "batches",
        "attempts that ended in an error, by Kafka's name of it",
    ),
    (
        Group.ERROR,
        "failed-records-total",
        "records",
        "that failed for good, by what they failed of",
    ),
    (Group.EVENT, "events-total", "events", "changes of state, as they are logged"),
    (
        Group.INTERCEPTOR,
        "interceptor-errors-total",
        "calls",
        "of interceptors that raised, by class and method",
    ),
)


def _rows() -> Iterable[Row]:
    for name, unit, doc, sensors, readings, groups in _SENSED:
        for group in groups:
            for end, per, how, kind, read, idle in readings:
                yield Row(
                    group,
                    name + end,
                    kind,
                    unit + per,
                    doc + how,
                    tuple(sensors.split()),
                    read,
                    idle,
                )
    for name, unit, doc in _ASKED:
        yield Row(Group.PRODUCER, name, Kind.GAUGE, unit, doc)
    yield Row(
        Group.PARTITION,
        "incomplete-batches",
        Kind.GAUGE,
        "batches",
        "that have not ended; with metrics_recording_level=debug",
    )
    yield Row(
        Group.APP, "start-time-ms", Kind.GAUGE, "ms", "since 1970, when the producer was made"
    )
    for name, unit, doc, _bounds in _HISTOGRAMS:
        yield Row(Group.PRODUCER, name, Kind.HISTOGRAM, unit, doc)
    for group, name, unit, doc in _TAGGED:
        yield Row(group, name, Kind.COUNTER, unit, doc)


TABLE: Final[dict[tuple[Group, str], Row]] = {(row.group, row.name): row for row in _rows()}
SENSED: Final[dict[Group, list[Row]]] = {
    group: [row for row in TABLE.values() if row.group is group and row.sensors] for group in Group
}
GAUGES: Final = tuple(name for name, _, _ in _ASKED)
BOUNDS: Final[dict[str, tuple[float, ...]]] = {name: bounds for name, _, _, bounds in _HISTOGRAMS}
COUNTED: Final = {name: group for group, name, _, _ in _TAGGED}
