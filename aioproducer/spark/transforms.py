"""Converts Kafka rows to typed rows, with pure DataFrame functions for batch or stream, each testable alone.

    parse       makes one row of each row: its content, or the reason why it is bad
    route_good  selects the good rows, with their fields as columns
    route_bad   selects the bad rows, as they were sent
    dedupe      keeps one row per event id, within a delay
    with_month  adds the column by which the files are partitioned

Each function takes a DataFrame and returns another one.
"""

from __future__ import annotations

from typing import Final, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

__all__ = ["KAFKA_COLUMNS", "dedupe", "parse", "route_bad", "route_good", "with_month"]

# Columns with the origin of a good row in Kafka. The schema of the values must not use these names.
KAFKA_COLUMNS: Final = ("kafka_partition", "kafka_offset", "kafka_timestamp")

_WRAPPED: Final = "_wrapped"
_MISFIT: Final = "_misfit"


def parse(
    records: DataFrame, schema: StructType, *, event_id: str = "event_id", sent_at: str = "sent_at"
) -> DataFrame:
    """Add `event`, the JSON value with the fields of `schema`, and `reason`, null for a good record.

    A record is bad when its value is not UTF-8, or is not one JSON object. It is also bad when a field does not fit its type, or when
    `event_id` or `sent_at` is missing. A field that is absent or null is null. A field that the schema does not name is left out.

    Args:
        records: rows of Spark's Kafka source.
        schema: the fields of the value.
        event_id: the field that identifies an event, regardless of when it is sent.
        sent_at: the timestamp that the producer put on this sending.
    """
    # Wrapped in an object, because Spark ignores text after a complete value: it would read two objects in one record as the first.
    # Spark fills _MISFIT when a value does not fit. With options given, the optimizer does not prune fields that no query reads. Spark
    # would not notice the misfits of pruned fields.
    text = F.col("value").cast("string")
    wrapper = StructType([StructField("event", schema), StructField(_MISFIT, StringType())])
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _MISFIT,
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    wrapped = F.from_json(F.concat(F.lit('{"event":'), text, F.lit("}")), wrapper, options)
    # Exploding one element is an optimization fence. Without it, Spark would push filters below the parser, and parse each value three
    # times.
    parsed = records.withColumn(_WRAPPED, F.explode(F.array(wrapped))).withColumn(
        "event", F.col(_WRAPPED)["event"]
    )
    event, misfit = F.col("event"), F.col(_WRAPPED)[_MISFIT]
    reason = (
        F.when(F.col("value").isNull(), "no value")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(event.isNull(), "not one JSON object")
        .when(misfit.isNotNull(), "a field does not fit its type")
        .when(event[event_id].isNull() | (event[event_id].cast("string") == ""), f"no {event_id}")
        .when(event[sent_at].isNull(), f"no {sent_at}")
    )
    return parsed.withColumn("reason", reason).drop(_WRAPPED)


def route_good(parsed: DataFrame) -> DataFrame:
    """Return the good records: their fields, and the origin of each in Kafka."""
    event = cast("StructType", parsed.schema["event"].dataType)
    fields = [F.col("event")[name].alias(name) for name in event.names]
    origin = [F.col(name.removeprefix("kafka_")).alias(name) for name in KAFKA_COLUMNS]
    return parsed.filter(F.col("reason").isNull()).select(*fields, *origin)


def route_bad(parsed: DataFrame) -> DataFrame:
    """Return the bad records as they were sent, with the reason."""
    return parsed.filter(F.col("reason").isNotNull()).select(
        "reason", "key", "value", "topic", "partition", "offset", "timestamp"
    )


def dedupe(
    events: DataFrame,
    *,
    event_id: str = "event_id",
    sent_at: str = "sent_at",
    delay: str = "7 days",
) -> DataFrame:
    """Return the first row of each event id; streams only.

    Spark remembers an id until the newest `sent_at` seen is `delay` past that of the id's row. It drops a row if an id with the row's
    `sent_at` would be forgotten already, because the row could be a duplicate. So after a row of a clock far ahead, other rows are late.
    `ingest` counts the late rows.
    """
    return events.withWatermark(sent_at, delay).dropDuplicatesWithinWatermark([event_id])


def with_month(events: DataFrame, event_time: str, *, column: str = "month") -> DataFrame:
    """Add the month of `event_time` as `2013-01`, in the session's time zone."""
    return events.withColumn(column, F.date_format(F.col(event_time), "yyyy-MM"))
