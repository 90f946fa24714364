"""Tests of good records, bad records with their reasons, and duplicates. On DataFrames and file streams, without Kafka."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.spark import dedupe, parse, route_bad, route_good, with_month

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "event_id string, sent_at timestamp, seats int, delay double, city string"
KAFKA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD = '"event_id":"a","sent_at":"2026-03-01T12:00:00Z"'

VERDICTS: dict[str, tuple[bytes | None, str | None]] = {
    "whole": (f'{{{GOOD},"seats":3,"delay":1.5,"city":"Köln"}}'.encode(), None),
    "null and absent fields": (f'{{{GOOD},"seats":null}}'.encode(), None),
    "a field nobody knows": (f'{{{GOOD},"more":{{"deep":[1]}}}}'.encode(), None),
    "white space around": (f" \n{{{GOOD}}}\t ".encode(), None),
    "a whole number as double": (f'{{{GOOD},"delay":2}}'.encode(), None),
    "tombstone": (None, "no value"),
    "empty": (b"", "not one JSON object"),
    "text": (b"<html>", "not one JSON object"),
    "cut off": (f'{{{GOOD},"seats":'.encode(), "not one JSON object"),
    "null": (b"null", "not one JSON object"),
    "number": (b"12", "not one JSON object"),
    "list": (f"[{{{GOOD}}}]".encode(), "not one JSON object"),
    "single quotes": (b"{'event_id':'a','sent_at':'2026-03-01T12:00:00Z'}", "not one JSON object"),
    "two objects": (f"{{{GOOD}}}{{{GOOD}}}".encode(), "not one JSON object"),
    "two objects in lines": (f"{{{GOOD}}}\n{{{GOOD}}}".encode(), "not one JSON object"),
    "something after it": (f"{{{GOOD}}} tail".encode(), "not one JSON object"),
    "not UTF-8": (f'{{{GOOD},"city":"Köln"}}'.encode("latin-1"), "not UTF-8"),
    "text for an int": (f'{{{GOOD},"seats":"many"}}'.encode(), "a field does not fit its type"),
    "fraction for an int": (f'{{{GOOD},"seats":1.5}}'.encode(), "a field does not fit its type"),
    "int too large": (f'{{{GOOD},"seats":99999999999}}'.encode(), "a field does not fit its type"),
    "not a number for a double": (
        f'{{{GOOD},"delay":"NaN"}}'.encode(),
        "a field does not fit its type",
    ),
    "no date": (b'{"event_id":"a","sent_at":"soon"}', "a field does not fit its type"),
    "no id": (b'{"sent_at":"2026-03-01T12:00:00Z"}', "no event_id"),
    "null id": (b'{"event_id":null,"sent_at":"2026-03-01T12:00:00Z"}', "no event_id"),
    "empty id": (b'{"event_id":"","sent_at":"2026-03-01T12:00:00Z"}', "no event_id"),
    "no time": (b'{"event_id":"a"}', "no sent_at"),
    "empty object": (b"{}", "no event_id"),
}


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    """Rows as the Kafka source gives them; the offset is the place in `values`."""
    return spark.createDataFrame(
        [(b"k", value, "t", 1, offset, NOON) for offset, value in enumerate(values)], KAFKA
    )


def parsed(spark: SparkSession, *values: bytes | None) -> DataFrame:
    """The same, parsed."""
    return parse(records(spark, *values), schema(spark))


def schema(spark: SparkSession) -> Any:
    """`SCHEMA` as a value."""
    return spark.createDataFrame([], SCHEMA).schema


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession) -> dict[str, str | None]:
    """The reason for each of `VERDICTS`, from one job."""
    rows = (
        parsed(spark, *(value for value, _ in VERDICTS.values()))
        .select("offset", "reason")
        .collect()
    )
    names = list(VERDICTS)
    return {names[row.offset]: row.reason for row in rows}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdict(verdicts: dict[str, str | None], name: str) -> None:
    """Each kind of value is good, or bad for its own reason."""
    assert verdicts[name] == VERDICTS[name][1]


def test_every_record_goes_one_way(spark: SparkSession) -> None:
    """Good and bad together are all, and none is both."""
    both = parsed(spark, *(value for value, _ in VERDICTS.values()))
    good = [row.kafka_offset for row in route_good(both).collect()]
    bad = [row.offset for row in route_bad(both).collect()]
    assert sorted(good + bad) == list(range(len(VERDICTS)))


def test_good_rows_are_typed(spark: SparkSession) -> None:
    """The fields have the types of the schema, and the row says where in Kafka it was."""
    (row,) = route_good(parsed(spark, VERDICTS["whole"][0])).collect()
    assert row.asDict() == {
        "event_id": "a",
        "sent_at": NOON.replace(tzinfo=None),
        "seats": 3,
        "delay": 1.5,
        "city": "Köln",
        "kafka_partition": 1,
        "kafka_offset": 0,
        "kafka_timestamp": NOON.replace(tzinfo=None),
    }


def test_bad_rows_keep_the_bytes(spark: SparkSession) -> None:
    """Nothing of a bad record is lost: it could be sent again."""
    value = VERDICTS["not UTF-8"][0]
    (row,) = route_bad(parsed(spark, VERDICTS["whole"][0], value)).collect()
    assert row.asDict() == {
        "reason": "not UTF-8",
        "key": b"k",
        "value": value,
        "topic": "t",
        "partition": 1,
        "offset": 1,
        "timestamp": NOON.replace(tzinfo=None),
    }


def test_a_misfit_in_a_field_nobody_reads_is_bad(spark: SparkSession) -> None:
    """Spark's optimizer drops fields that are not read, and would not see what is wrong in them."""
    assert (
        route_good(parsed(spark, VERDICTS["text for an int"][0])).select("event_id").collect() == []
    )


def test_each_value_is_parsed_once(spark: SparkSession) -> None:
    """No filter makes Spark run the parser a second time, not even one of the user's own."""
    good = route_good(parsed(spark, VERDICTS["whole"][0])).filter("seats > 1")
    plan = good._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_json(") == 1


def test_other_names_for_the_two_fields(spark: SparkSession) -> None:
    """The event id and the time of sending are whichever fields the caller names."""
    fields = spark.createDataFrame([], "id long, at timestamp").schema
    values = records(
        spark,
        b'{"id":7,"at":"2026-03-01T12:00:00Z"}',
        b'{"at":"2026-03-01T12:00:00Z"}',
        b'{"id":7}',
    )
    reasons = parse(values, fields, event_id="id", sent_at="at").select("reason").collect()
    assert [row.reason for row in reasons] == [None, "no id", "no at"]


def test_month_is_that_of_the_sessions_time_zone(spark: SparkSession) -> None:
    """UTC in our sessions: the last millisecond of January there is January, wherever the machine is."""
    times = ["2026-01-31T23:59:59.999Z", "2026-02-01T00:00:00Z", "2025-12-31T20:00:00-05:00", None]
    rows = with_month(
        spark.createDataFrame([(time,) for time in times], "t string").selectExpr(
            "cast(t as timestamp) t"
        ),
        "t",
        column="m",
    )
    assert [row.m for row in rows.collect()] == ["2026-01", "2026-02", "2026-01", None]


def deduped(spark: SparkSession, folder: Path, *batches: list[tuple[str, datetime]]) -> list[Row]:
    """Return the rows of a deduplicated stream. Each micro-batch is one of `batches`: event ids and times of sending."""
    source = folder / "in"
    source.mkdir()
    for number, batch in enumerate(batches):
        lines = [
            json.dumps({"event_id": event_id, "sent_at": sent_at.isoformat(), "batch": number})
            for event_id, sent_at in batch
        ]
        file = source / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (number, number))  # by which Spark puts them in order
    stream = (
        spark.readStream.schema("event_id string, sent_at timestamp, batch int")
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
    )
    writer = (
        dedupe(stream, delay="1 day")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
    return (
        spark.read.schema("event_id string, sent_at timestamp, batch int")
        .parquet(str(folder / "out"))
        .collect()
    )


def test_a_replay_is_dropped(spark: SparkSession, tmp_path: Path) -> None:
    """The same id, in one batch or a later one, with the time of its own sending: one row."""
    later = NOON + timedelta(hours=5)
    rows = deduped(
        spark, tmp_path, [("a", NOON), ("a", NOON), ("b", NOON)], [("a", later), ("c", later)]
    )
    assert sorted((row.event_id, row.batch) for row in rows) == [("a", 0), ("b", 0), ("c", 1)]


def test_an_id_is_forgotten_after_the_delay(spark: SparkSession, tmp_path: Path) -> None:
    """Memory is bounded by it: a replay that comes later than that is a new event."""
    days = [NOON + timedelta(days=day) for day in range(0, 8, 2)]
    rows = deduped(
        spark,
        tmp_path,
        *(
            [("a" if number in {0, 3} else "x" + str(number), day)]
            for number, day in enumerate(days)
        ),
    )
    assert sorted(row.batch for row in rows if row.event_id == "a") == [0, 3]


def test_what_comes_later_than_the_delay_is_dropped(spark: SparkSession, tmp_path: Path) -> None:
    """It could be the duplicate of an event that was forgotten. `ingest` counts it."""
    old = NOON - timedelta(days=2)
    rows = deduped(spark, tmp_path, [("a", NOON)], [("b", NOON)], [("late", old), ("c", NOON)])
    assert sorted(row.event_id for row in rows) == ["a", "b", "c"]
