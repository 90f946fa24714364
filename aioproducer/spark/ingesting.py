"""Runs the ingest: Kafka -> parse -> bad-record route -> dedupe -> Parquet by month.

1. Good and bad records are two queries, each with its own file sink and checkpoint. After a crash, Spark repeats a batch that was half
   done, and does not repeat a batch with complete files. One query with two writes in `foreachBatch` would repeat the rows of the first.
2. A run reads the records that are committed in the topic when it starts, and ends. The next run on the same checkpoint reads the later
   records.
3. A run has three independent counts: the rows observed after the parser, the deduplication's own metrics, and the rows of the Parquet
   folders before and after. The folders are read through Spark (its `_spark_metadata` names the files that count).

It applies `transforms` and does the I/O.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from aioproducer.errors import ConfigError

from .transforms import KAFKA_COLUMNS, dedupe, parse, route_bad, route_good, with_month

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["IngestProgress", "IngestReport", "ingest"]

_POLL_SECONDS: Final = 0.2
_GOOD: Final = "aioproducer_good"


class IngestProgress(NamedTuple):
    """Holds the progress of a run, in records of the batches that are done."""

    read: int
    written: int
    bad: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """Holds the result of one run, in records.

    Attributes:
        in_topic: end offsets less start offsets of the topic, summed; with transactions, including their markers.
        read: records that this run read from the topic.
        parsed: good records among them.
        bad: rows added to the bad folder.
        duplicates: rows dropped because their event id was known.
        late: rows dropped by the watermark.
        written: rows added to the Parquet of the events.
        total: rows that the Parquet of the events holds now.
        batches: micro-batches of events.
        seconds: the duration of the run.
        events_path, bad_path: the two folders. Read them through Spark: a crash leaves files there that do not count.
    """

    in_topic: int
    read: int
    parsed: int
    bad: int
    duplicates: int
    late: int
    written: int
    total: int
    batches: int
    seconds: float
    events_path: str
    bad_path: str

    @property
    def balanced(self) -> bool:
        """Return whether every record that was read is accounted for."""
        return (
            self.read == self.parsed + self.bad
            and self.parsed == self.written + self.duplicates + self.late
        )


def ingest(
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    topic: str,
    schema: StructType,
    output: str,
    checkpoint: str,
    event_id: str = "event_id",
    sent_at: str = "sent_at",
    event_time: str = "kafka_timestamp",
    dedupe_delay: str = "7 days",
    partition_by: str = "month",
    max_offsets_per_trigger: int | None = None,
    kafka_options: Mapping[str, str] | None = None,
    on_progress: Callable[[IngestProgress], None] | None = None,
) -> IngestReport:
    """Write a topic's new records to `output`, once each. Returns a report at the end.

    The call blocks; run it in a thread beside an event loop. It reads committed records, on the first run from the topic's start. It writes
    good records to `output/events`, partitioned by the month of `event_time`, and bad ones to `output/bad`.

    Args:
        spark: a session with the Kafka connector, as `session` makes it.
        bootstrap_servers: Kafka's address.
        topic: the topic to read.
        schema: the fields of the JSON values.
        output: the folder of the two results.
        checkpoint: the folder that stores the progress; it belongs to this topic and this output.
        event_id: the field that identifies duplicates.
        sent_at: the timestamp field that the producer stamped at sending; a replay has a new one.
        event_time: the field, or `kafka_timestamp`, that has the month.
        dedupe_delay: how much later, by `sent_at`, a duplicate may come and still be recognized. Memory grows with it.
        partition_by: the name of the month's column.
        max_offsets_per_trigger: the most records of one micro-batch; by default all records.
        kafka_options: more options of Spark's Kafka source, such as `kafka.security.protocol`.
        on_progress: called from time to time. If it raises, both queries stop, and its error is raised here.

    Raises:
        ConfigError: `schema` lacks a field that an argument names, or uses the name of a column that is added.
        pyspark.errors.StreamingQueryException: one of the queries failed; the other was stopped. Committed batches stay, and the next run
            continues after them.
    """
    _check(schema, event_id, sent_at, event_time, partition_by)
    started_at = time.monotonic()
    options = _source_options(bootstrap_servers, topic, max_offsets_per_trigger, kafka_options)
    records = spark.readStream.format("kafka").options(**options).load()
    parsed = parse(records, schema, event_id=event_id, sent_at=sent_at)
    good = route_good(parsed).observe(_GOOD, F.count(F.lit(1)).alias("rows"))
    events = with_month(
        dedupe(good, event_id=event_id, sent_at=sent_at, delay=dedupe_delay),
        event_time,
        column=partition_by,
    )
    sinks = (
        _Sink("events", events, f"{output}/events", f"{checkpoint}/events", (partition_by,)),
        _Sink("bad", route_bad(parsed), f"{output}/bad", f"{checkpoint}/bad", ()),
    )
    before = [sink.count(spark) for sink in sinks]
    tallies = _run(sinks, on_progress)
    total, bad = (sink.count(spark) for sink in sinks)
    tally = tallies[0]
    return IngestReport(
        in_topic=tally.in_topic,
        read=tally.read,
        parsed=tally.parsed,
        bad=bad - before[1],
        duplicates=tally.duplicates,
        late=tally.late,
        written=total - before[0],
        total=total,
        batches=tally.batches,
        seconds=time.monotonic() - started_at,
        events_path=sinks[0].path,
        bad_path=sinks[1].path,
    )


def _check(
    schema: StructType, event_id: str, sent_at: str, event_time: str, partition_by: str
) -> None:
    names = set(schema.names)
    if missing := {event_id, sent_at, event_time} - names - {"kafka_timestamp"}:
        raise ConfigError(f"the schema has no field {', '.join(sorted(missing))}")
    if taken := names & {*KAFKA_COLUMNS, partition_by}:
        raise ConfigError(
            f"the schema's {', '.join(sorted(taken))} would collide with a column that ingest adds; choose another partition_by or name"
        )
    if not isinstance(schema[sent_at].dataType, TimestampType):
        raise ConfigError(
            f"{sent_at} must be a timestamp in the schema, not {schema[sent_at].dataType.simpleString()}"
        )


def _source_options(
    bootstrap_servers: str,
    topic: str,
    max_offsets_per_trigger: int | None,
    kafka_options: Mapping[str, str] | None,
) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topic,
        # The default of a stream is latest, which would skip the records that were sent before the first run.
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        **(kafka_options or {}),
    }
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    return options


class _Sink(NamedTuple):
    """Holds one of the two outputs: its rows, its folder, its checkpoint."""

    name: str
    rows: DataFrame
    path: str
    checkpoint: str
    partition_by: tuple[str, ...]

    def start(self) -> StreamingQuery:
        writer = self.rows.writeStream.queryName(self.name).format("parquet").outputMode("append")
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        return (
            writer.option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start(self.path)
        )

    def count(self, spark: SparkSession) -> int:
        """Return the number of rows in the folder, as the sink's own log counts them."""
        try:
            return spark.read.schema(self.rows.schema).parquet(self.path).count()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            # The first run has not written the folder yet.
            return 0


class _Tally:
    """Sums a query's progress.

    Spark keeps only the last 100 batches, so `look` is called often, and each batch is stored by its id.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._batches: dict[int, StreamingQueryProgress] = {}

    def look(self) -> None:
        for progress in self._query.recentProgress:
            # An idle trigger has no input rows, and repeats the metrics of the batch before.
            if progress.numInputRows:
                self._batches[progress.batchId] = progress

    def _sum(self, count: Callable[[StreamingQueryProgress], int | None]) -> int:
        return sum(count(progress) or 0 for progress in self._batches.values())

    @property
    def batches(self) -> int:
        return len(self._batches)

    @property
    def read(self) -> int:
        return self._sum(lambda progress: progress.numInputRows)

    @property
    def parsed(self) -> int:
        return self._sum(lambda progress: progress.observedMetrics[_GOOD]["rows"])

    @property
    def duplicates(self) -> int:
        return self._sum(
            lambda progress: sum(
                state.customMetrics["numDroppedDuplicateRows"] for state in progress.stateOperators
            )
        )

    @property
    def late(self) -> int:
        return self._sum(
            lambda progress: sum(
                state.numRowsDroppedByWatermark for state in progress.stateOperators
            )
        )

    @property
    def in_topic(self) -> int:
        if not self._batches:
            return 0
        ends = json.loads(self._batches[max(self._batches)].sources[0].endOffset)
        return sum(end for partitions in ends.values() for end in partitions.values())


def _run(
    sinks: Iterable[_Sink], on_progress: Callable[[IngestProgress], None] | None
) -> tuple[_Tally, ...]:
    """Run all queries to their end. If one fails, or `on_progress` raises, stop the others. Returns the tallies."""
    queries: list[StreamingQuery] = []
    try:
        queries.extend(sink.start() for sink in sinks)
        tallies = tuple(_Tally(query) for query in queries)
        while running := [query for query in queries if query.isActive]:
            _raise_failure(queries)
            running[0].awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]  # a fraction works: PySpark turns it into milliseconds
            for tally in tallies:
                tally.look()
            if on_progress is not None:
                on_progress(_progress(tallies[0]))
        _raise_failure(queries)
        for tally in tallies:
            tally.look()
    finally:
        for query in queries:
            query.stop()
    return tallies


def _raise_failure(queries: Iterable[StreamingQuery]) -> None:
    for query in queries:
        if (failure := query.exception()) is not None:
            raise failure


def _progress(events: _Tally) -> IngestProgress:
    return IngestProgress(
        read=events.read,
        written=events.parsed - events.duplicates - events.late,
        bad=events.read - events.parsed,
    )
