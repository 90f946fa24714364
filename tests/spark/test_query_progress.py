"""Tests of `aioproducer.spark.query_progress`: the numbers of recorded events, and offsets in every form."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress
from query_events import FIRST, SECOND, recorded, source

from aioproducer.spark.query_progress import QueryProgress, SourceOffsets, StateRows


def numbers(**changes: Any) -> QueryProgress:
    """The numbers of the first recorded batch, with some fields changed."""
    return QueryProgress.of(StreamingQueryProgress.fromJson(recorded(FIRST, **changes)))


def test_the_numbers_of_a_batch() -> None:
    """Durations are in seconds, the whole apart from its parts."""
    progress = numbers()
    assert (
        progress.batch_id,
        progress.input_rows,
        progress.input_rows_per_second,
        progress.processed_rows_per_second,
    ) == (0, 120, 0, 35.1)
    assert progress.seconds == 3.413
    assert progress.part_seconds == {
        "addBatch": 2.26,
        "commitOffsets": 0.111,
        "getBatch": 0.03,
        "latestOffset": 0.525,
        "queryPlanning": 0.439,
        "walCommit": 0.035,
    }
    assert progress.state == (StateRows(0, "dedupeWithinWatermark", 50, 0),)


def test_the_offsets_of_a_batch() -> None:
    offsets = numbers().offsets()
    assert offsets.read == {("flights", 0): 60, ("flights", 1): 60}
    assert offsets.latest == {("flights", 0): 100, ("flights", 1): 100}
    assert offsets.lag == {("flights", 0): 40, ("flights", 1): 40}


def test_a_watermark() -> None:
    """The first batch of a query has none: Spark then says 1970."""
    second = QueryProgress.of(StreamingQueryProgress.fromJson(recorded(SECOND)))
    assert (
        second.watermark_seconds()
        == datetime(2026, 11, 26, 12, 49, 58, 625_000, tzinfo=UTC).timestamp()
    )
    for without in ({"watermark": "1970-01-01T00:00:00.000Z"}, {}, {"watermark": "soon"}):
        assert math.isnan(numbers(eventTime=without).watermark_seconds())


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        pytest.param([], SourceOffsets({}, {}), id="none"),
        pytest.param(
            [source('{"t":{"0":5}}', "None")], SourceOffsets({("t", 0): 5}, {}), id="text"
        ),
        pytest.param(
            [source({"t": {"0": 5}})], SourceOffsets({("t", 0): 5}, {}), id="no latest offset"
        ),
        pytest.param([source(None, None)], SourceOffsets({}, {}), id="no offset"),
        pytest.param([source("None", "")], SourceOffsets({}, {}), id="not JSON"),
        pytest.param([source(7, 9)], SourceOffsets({}, {}), id="a number"),
        pytest.param([source({"logOffset": 3})], SourceOffsets({}, {}), id="a number by name"),
        pytest.param(
            [source({"t": {"0": -1, "1": 4, "shard": 4, "2": "5", "3": 1.5, "4": True}})],
            SourceOffsets({("t", 1): 4}, {}),
            id="odd",
        ),
        pytest.param(
            [source({"t": {"0": 5}}, description="EventHubsSource[t]")],
            SourceOffsets({}, {}),
            id="same form, other source",
        ),
        pytest.param(
            [source({"a": {"0": 5}}), source({"b": {"0": 6}})],
            SourceOffsets({("a", 0): 5, ("b", 0): 6}, {}),
            id="two topics",
        ),
        pytest.param(
            [source({"t": {"0": 5}}, {"t": {"0": 8}}), source({"t": {"0": 3}}, {"t": {"0": 9}})],
            SourceOffsets({("t", 0): 3}, {("t", 0): 8}),
            id="two readers",
        ),
    ],
)
def test_offsets_of_sources(sources: list[dict[str, Any]], expected: SourceOffsets) -> None:
    """Only Kafka's sources count; of two readers of a partition, the slower one."""
    assert numbers(sources=sources).offsets() == expected


def test_a_reader_ahead_of_what_was_last_seen_has_no_lag() -> None:
    assert SourceOffsets({("t", 0): 5}, {("t", 0): 3}).lag == {("t", 0): 0}


def test_a_batch_without_durations() -> None:
    progress = numbers(durationMs={})
    assert (progress.seconds, progress.part_seconds) == (None, {})
