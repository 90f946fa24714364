"""From Kafka rows to typed rows, as pure DataFrame functions: batch or stream, each testable alone.

    parse       one row in, one row out: what it holds, or why it is bad
    route_good  the good ones, their fields as columns
    route_bad   the others, as they were sent
    dedupe      one row per event id, within a delay
    with_month  the column that the files are laid out by

Do not know where rows come from or go to.
"""

from __future__ import annotations

from typing import Final, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StringType, StructField, StructType

__all__ = ["KAFKA_COLUMNS", "dedupe", "parse", "route_bad", "route_good", "with_month"]

# where a good row came from; the schema of the values may not use these names
KAFKA_COLUMNS: Final = ("kafka_partition", "kafka_offset", "kafka_timestamp")

_WRAPPED: Final = "_wrapped"
_MISFIT: Final = "_misfit"


def parse(records: DataFrame, schema: StructType, *, event_id: str = "event_id", sent_at: str = "sent_at") -> DataFrame:
    """Add `event`, the JSON value with the fields of `schema`, and `reason`, null for a good record.

    A record is bad when its value is not UTF-8, not one JSON object, has a field that does not fit its type, or lacks `event_id` or `sent_at`.
    A field that is absent or null is null, one that the schema does not name is left out.

    Args:
        records: rows as Spark's Kafka source gives them.
        schema: the fields of the value.
        event_id: the field that makes an event the same event, whenever it is sent.
        sent_at: the timestamp that the producer put on this sending.
    """
    # Wrapped in an object, since Spark overlooks what follows a complete value: two objects in one record would be taken for the first.
    # Spark fills _MISFIT when anything does not fit. That options are given keeps the optimizer from pruning fields that nobody reads, whose
    # misfits it would then overlook
    text = F.col("value").cast("string")
    wrapper = StructType([StructField("event", schema), StructField(_MISFIT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT, "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    wrapped = F.from_json(F.concat(F.lit('{"event":'), text, F.lit("}")), wrapper, options)
    # exploding one element is a fence: filters on the outcome would be pushed below the parser, and parse each value three times
    parsed = records.withColumn(_WRAPPED, F.explode(F.array(wrapped))).withColumn("event", F.col(_WRAPPED)["event"])
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
    """The good records: their fields, and where each came from in Kafka."""
    event = cast("StructType", parsed.schema["event"].dataType)
    fields = [F.col("event")[name].alias(name) for name in event.names]
    origin = [F.col(name.removeprefix("kafka_")).alias(name) for name in KAFKA_COLUMNS]
    return parsed.filter(F.col("reason").isNull()).select(*fields, *origin)


def route_bad(parsed: DataFrame) -> DataFrame:
    """The bad records as they were sent, with the reason."""
    return parsed.filter(F.col("reason").isNotNull()).select("reason", "key", "value", "topic", "partition", "offset", "timestamp")


def dedupe(events: DataFrame, *, event_id: str = "event_id", sent_at: str = "sent_at", delay: str = "7 days") -> DataFrame:
    """The first row of each event id; streams only.

    An id is remembered until the newest `sent_at` seen is `delay` past that of its row. A row that comes when an id of its `sent_at` would
    have been forgotten is dropped: it could be a duplicate. So a clock far ahead makes what comes after it late; `ingest` counts the late.
    """
    return events.withWatermark(sent_at, delay).dropDuplicatesWithinWatermark([event_id])


def with_month(events: DataFrame, event_time: str, *, column: str = "month") -> DataFrame:
    """Add the month of `event_time` as `2013-01`, in the session's time zone."""
    return events.withColumn(column, F.date_format(F.col(event_time), "yyyy-MM"))
