"""Tests of `aioproducer.engine.observability.metrics_recorder`: notes come out as if each had been recorded when it happened."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.config import ProducerConfig
from aioproducer.engine.observability.metrics_recorder import Recorder
from aioproducer.metrics.registry import Metrics, Windows
from aioproducer.records.record_batch import OVERHEAD

LIMIT = 1000
ROWS = st.tuples(
    st.sampled_from(["a", "b", "c"]),
    st.integers(1, 9),
    st.integers(62, 900),
    st.integers(1, LIMIT),
    st.integers(1, 40),
)


def made(*, compresses: bool = False, seconds: float = 30.0) -> tuple[Metrics, Recorder]:
    metrics = Metrics("me", Windows(2, seconds), version="1", began_ms=0)
    config = ProducerConfig(
        batch_size=LIMIT + OVERHEAD, compression_type="gzip" if compresses else "none"
    )
    return metrics, Recorder(config, metrics, SimpleNamespace(time=lambda: 0.0))  # type: ignore[arg-type]


@given(st.lists(ROWS, min_size=1, max_size=30), st.booleans())
def test_batches_are_of_the_producer_and_of_their_topics(
    rows: list[tuple[str, int, int, int, int]], compresses: bool
) -> None:
    """However many topics they have."""
    metrics, recorder = made(compresses=compresses)
    for row in rows:
        recorder.batches.append(row)
        recorder.requests.append(row[1])
        recorder.ages.append(row[4])
    recorder.settle(0.5)
    taken = metrics.snapshot(0.5, {})
    assert taken.number("batch-size-avg") == pytest.approx(sum(row[2] for row in rows) / len(rows))
    assert taken.number("batch-size-max") == max(row[2] for row in rows)
    assert taken.number("record-send-total") == sum(row[1] for row in rows)
    assert taken.number("records-per-request-avg") == pytest.approx(
        sum(row[1] for row in rows) / len(rows)
    )
    assert taken.number("record-queue-time-max") == max(row[4] for row in rows)
    ratios = [(row[2] - 61) / row[3] for row in rows] if compresses else [1.0]
    assert taken.number("compression-rate-avg") == pytest.approx(sum(ratios) / len(ratios))
    assert taken.distribution("batch-fill-ratio").sum == pytest.approx(
        sum(row[3] for row in rows) / LIMIT
    )
    assert taken.distribution("partition-queue-depth").count == len(rows)
    for topic in {row[0] for row in rows}:
        of_topic = [row for row in rows if row[0] == topic]
        assert taken.number("record-send-total", topic=topic) == sum(row[1] for row in of_topic)
        assert taken.number("byte-total", topic=topic) == sum(row[2] for row in of_topic)
        ratio = (
            sum((row[2] - 61) / row[3] for row in of_topic) / len(of_topic) if compresses else 1.0
        )
        assert taken.number("compression-rate", topic=topic) == pytest.approx(ratio)
    recorder.settle(0.6)
    assert metrics.snapshot(0.6, {}).number("record-send-total") == taken.number(
        "record-send-total"
    )


def test_what_was_noted_long_ago_does_not_count_as_now() -> None:
    """A producer that was idle since has no rate, when its next request comes; nor has what is read then."""
    metrics, recorder = made()
    recorder.settle(100.0)
    recorder.node(1).requests.append(50.0)
    recorder.settle(900.0)
    taken = metrics.snapshot(900.0, {})
    assert (
        taken.number("outgoing-byte-rate")
        == taken.number("outgoing-byte-rate", node_id="node-1")
        == 0.0
    )
    assert (
        taken.number("outgoing-byte-total")
        == taken.number("outgoing-byte-total", node_id="node-1")
        == 50.0
    )
    assert math.isnan(taken.number("request-size-max"))


@pytest.mark.parametrize(("seconds", "longest"), [(30.0, 1.0), (2.0, 0.2)])
def test_nothing_is_noted_for_long(seconds: float, longest: float) -> None:
    """A second, or a tenth of a sample."""
    _, recorder = made(seconds=seconds)
    recorder.settle(7.0)
    assert recorder.due == pytest.approx(7.0 + longest)


def test_what_is_forgotten_is_not_there_again_for_its_last_notes() -> None:
    """They count for the producer, and leave no topic or broker behind."""
    metrics, recorder = made()
    recorder.settle(0.0)
    recorder.batches.append(("orders", 3, 100, 90, 1))
    recorder.requests.append(3)
    recorder.node(1).requests.append(100.0)
    recorder.forget_topic("orders")
    recorder.forget_node(1)
    recorder.forget_node(1)
    recorder.settle(2.0)
    taken = metrics.snapshot(2.0, {})
    assert {metric.group for metric in taken} == {"producer-metrics", "app-info"}
    assert (taken.number("record-send-total"), taken.number("outgoing-byte-total")) == (3, 100)
