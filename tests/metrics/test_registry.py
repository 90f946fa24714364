"""Tests of `aioproducer.metrics.registry` and of its table."""

from __future__ import annotations

import gc
import math
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from aioproducer.metrics.registry import MetricName, Metrics, Snapshot, Windows
from aioproducer.metrics.table import BOUNDS, COUNTED, GAUGES, TABLE, TAGS, Group, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

# Metrics that Java has and that are here, by group.
JAVAS = {
    Group.PRODUCER: """
        batch-size-avg batch-size-max compression-rate-avg record-queue-time-avg record-queue-time-max request-latency-avg
        request-latency-max record-send-rate record-send-total records-per-request-avg record-retry-rate record-retry-total
        record-error-rate record-error-total record-size-avg record-size-max requests-in-flight metadata-age batch-split-rate
        batch-split-total produce-throttle-time-avg produce-throttle-time-max waiting-threads buffer-total-bytes buffer-available-bytes
        buffer-exhausted-rate buffer-exhausted-total bufferpool-wait-ratio bufferpool-wait-time-ns-total flush-time-ns-total
        metadata-wait-time-ns-total txn-init-time-ns-total txn-begin-time-ns-total txn-send-offsets-time-ns-total
        txn-commit-time-ns-total txn-abort-time-ns-total connection-close-rate connection-close-total connection-creation-rate
        connection-creation-total connection-count network-io-rate network-io-total outgoing-byte-rate outgoing-byte-total
        incoming-byte-rate incoming-byte-total request-rate request-total request-size-avg request-size-max response-rate response-total
    """,
    Group.NODE: """
        request-rate request-total request-size-avg request-size-max response-rate response-total outgoing-byte-rate outgoing-byte-total
        incoming-byte-rate incoming-byte-total request-latency-avg request-latency-max
    """,
    Group.TOPIC: """
        record-send-rate record-send-total byte-rate byte-total compression-rate record-retry-rate record-retry-total record-error-rate
        record-error-total
    """,
    Group.APP: "start-time-ms",
}


def made() -> Metrics:
    return Metrics("me", Windows(), version="1.2", began_ms=5)


@pytest.mark.parametrize("group", JAVAS)
def test_javas_names_are_here(group: Group) -> None:
    """All of them, in Java's groups."""
    assert [name for name in JAVAS[group].split() if (group, name) not in TABLE] == []


def test_every_row_is_read_from_something() -> None:
    """Each row is read from sensors, the engine, a histogram or a count. A name that ends with -total is a counter."""
    for (group, name), row in TABLE.items():
        is_gauge = group is Group.PRODUCER and name in GAUGES
        sources = (
            bool(row.sensors),
            is_gauge,
            name in BOUNDS,
            COUNTED.get(name) is group,
            group in (Group.APP, Group.PARTITION),
        )
        assert sum(sources) == 1, name
        assert name.endswith("-total") == (row.kind is Kind.COUNTER), name
        assert row.doc
        assert row.unit
    assert all(list(bounds) == sorted(set(bounds)) for bounds in BOUNDS.values())


def test_a_snapshot_has_what_was_recorded_under_its_tags() -> None:
    """A snapshot's values are found by name, group and tags. `number` finds them by the tags alone."""
    metrics = made()
    metrics.producer["record-send"].record(100.0, 6.0)
    metrics.topics["orders"]["record-send"].record(100.0, 4.0)
    metrics.topics["others"]["record-send"].record(100.0, 2.0)
    metrics.nodes[3]["request"].record(100.0, 50.0)
    metrics.count("events-total", "breaker-opened", 2)
    taken = metrics.snapshot(101.0, {"brokers-known": 3}, {("orders", 1): 7})
    assert taken[MetricName("record-send-total", "producer-metrics", (("client-id", "me"),))] == 6.0
    assert (
        taken[
            MetricName(
                "record-send-total",
                "producer-topic-metrics",
                (("client-id", "me"), ("topic", "orders")),
            )
        ]
        == 4.0
    )
    assert taken.number("record-send-total", topic="others") == 2.0
    assert taken.number("outgoing-byte-total", node_id="node-3") == 50.0
    assert taken.number("request-total", node_id="node-3") == 1.0
    assert taken.number("events-total", event="breaker-opened") == 2.0
    assert taken.number("events-total", event="breaker-closed") == 0.0
    assert taken.number("incomplete-batches", topic="orders", partition="1") == 7.0
    assert taken.number("brokers-known") == 3.0
    assert taken.number("start-time-ms", version="1.2") == 5.0
    assert math.isnan(taken.number("batch-size-avg"))
    assert {metric.tags[0] for metric in taken} == {("client-id", "me")}
    assert all((Group(metric.group), metric.name) in TABLE for metric in taken)
    assert all(
        tuple(key for key, _ in metric.tags[1:]) == TAGS[Group(metric.group)] for metric in taken
    )


def test_requests_and_answers_are_network_io_together() -> None:
    """Two sensors, added up."""
    metrics = made()
    for name in ("request", "request", "response"):
        metrics.producer[name].record(100.0, 10.0)
    assert metrics.snapshot(100.0, {}).number("network-io-total") == 3.0


@pytest.mark.parametrize(
    ("look", "says"),
    [
        (lambda taken: taken.number("no-such-thing"), "no metric 'no-such-thing'"),
        (
            lambda taken: taken.number("byte-total", topic="unknown"),
            "no metric 'byte-total' of topic=unknown",
        ),
        (lambda taken: taken.number("batch-fill-ratio"), "use `distribution`"),
        (lambda taken: taken.distribution("record-send-total"), "use `number`"),
        (lambda taken: taken.number("events-total"), "no metric 'events-total'"),
    ],
)
def test_what_is_not_there_is_said(look: object, says: str) -> None:
    """Also a histogram that is taken for a number."""
    assert callable(look)
    with pytest.raises(KeyError, match=says):
        look(made().snapshot(0.0, {}))


def test_what_is_forgotten_leaves_nothing() -> None:
    """A topic (KIP-526), and a broker that left."""
    metrics = made()
    metrics.topics["orders"]["byte"].record(0.0)
    metrics.nodes[1]["request"].record(0.0)
    metrics.topics.pop("orders")
    metrics.nodes.pop(1)
    metrics.shrink()
    assert {metric.group for metric in metrics.snapshot(0.0, {})} == {
        "producer-metrics",
        "app-info",
    }


def test_a_sensor_that_is_made_long_after_the_start_begins_then() -> None:
    """Its first sample is not the time since the loop began, also after `shrink`."""
    metrics = made()
    for topic in ("orders", "others"):
        metrics.topics[topic]["x"].record(10_000.0, 60.0)
        assert metrics.topics[topic]["x"].rate(10_000.0) == 2.0
        assert set(metrics.topics[topic]) == {"x"}
        metrics.shrink()


@pytest.fixture
def _interrupted() -> Iterator[None]:
    """Make threads switch as often as they can, and make the collector, which runs Python code, run often: within each apparent single
    step.
    """
    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(_work)
    gc.set_threshold(5)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*before)
    gc.callbacks.remove(_work)


def _work(*_: object) -> None:
    sum(range(30))


@pytest.mark.usefixtures("_interrupted")
def test_a_snapshot_may_be_taken_while_others_record() -> None:
    """In another thread, with topics that come and go."""
    metrics = made()
    is_over = threading.Event()
    taken: list[Snapshot] = []

    def look() -> None:
        while not is_over.is_set():
            taken.append(metrics.snapshot(50.0, {}))

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(20_000):
        metrics.topics[f"t{number % 50}"]["byte"].record(float(number), 1.0)
        metrics.count("request-errors-total", f"E{number % 7}")
        if not number % 11:
            metrics.topics.pop(f"t{number % 50}", None)
    is_over.set()
    thread.join()
    assert taken
