"""Kafka -> parse -> bad-record route -> dedupe -> Parquet by month.

1. Good and bad records are two queries, each with a file sink and a checkpoint of its own: a batch that a crash left half done is done
   again, one whose files stand is not. One query with two writes in `foreachBatch` would repeat the rows of the first.
2. A run takes what is committed in the topic when it starts, and ends. The next run on the same checkpoint takes what came since.
3. A run is counted three ways that do not know of each other: rows observed behind the parser, the deduplication's own metrics, and the rows
   of the Parquet folders before and after, read through Spark (its `_spark_metadata` says which files count).

The shell around `transforms`; knows nothing of what the fields mean.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
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
    """How far a run is, in records of the batches that are done."""

    read: int
    written: int
    bad: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """What one run did, in records.

    Attributes:
        in_topic: end offsets less start offsets of the topic, summed; with transactions, their markers too.
        read: taken from the topic by this run.
        parsed: good ones among them.
        bad: rows added to the bad folder.
        duplicates: dropped, as their event id was known.
        late: dropped by the watermark.
        written: rows added to the Parquet of the events.
        total: rows that it now holds.
        batches: micro-batches of events.
        seconds: how long the run took.
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
        """Whether every record that was read is accounted for."""
        return self.read == self.parsed + self.bad and self.parsed == self.written + self.duplicates + self.late


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
    """Bring a topic's new records into `output`, once each, and come back.

    Blocks; run it in a thread beside an event loop. Records are read committed, from the topic's start on the first run. Good ones go to
    `output/events`, partitioned by the month of `event_time`, bad ones to `output/bad`.

    Args:
        spark: a session with the Kafka connector, as `session` makes it.
        bootstrap_servers: Kafka's address.
        topic: what is read.
        schema: the fields of the JSON values.
        output: folder of the two results.
        checkpoint: folder that remembers what was done; it belongs to this topic and this output.
        event_id: field by which duplicates are known.
        sent_at: timestamp field that the producer stamped at sending; a replay has a new one.
        event_time: field, or `kafka_timestamp`, that has the month.
        dedupe_delay: how much later, by `sent_at`, a duplicate may come and still be known. Memory grows with it.
        partition_by: name of the month's column.
        max_offsets_per_trigger: most records of one micro-batch; by default all that there is.
        kafka_options: more options of Spark's Kafka source, such as `kafka.security.protocol`.
        on_progress: called from time to time. What it raises stops both queries, and is raised here.

    Raises:
        ConfigError: `schema` lacks a field that is named here, or uses the name of a column that is added.
        pyspark.errors.StreamingQueryException: one of the queries failed; the other was stopped. What was committed stays, and the next run
            goes on from there.
    """
    _check(schema, event_id, sent_at, event_time, partition_by)
    started_at = time.monotonic()
    options = _source_options(bootstrap_servers, topic, max_offsets_per_trigger, kafka_options)
    records = spark.readStream.format("kafka").options(**options).load()
    parsed = parse(records, schema, event_id=event_id, sent_at=sent_at)
    good = route_good(parsed).observe(_GOOD, F.count(F.lit(1)).alias("rows"))
    events = with_month(dedupe(good, event_id=event_id, sent_at=sent_at, delay=dedupe_delay), event_time, column=partition_by)
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


def _check(schema: StructType, event_id: str, sent_at: str, event_time: str, partition_by: str) -> None:
    names = set(schema.names)
    if missing := {event_id, sent_at, event_time} - names - {"kafka_timestamp"}:
        raise ConfigError(f"the schema has no field {', '.join(sorted(missing))}")
    if taken := names & {*KAFKA_COLUMNS, partition_by}:
        raise ConfigError(
            f"the schema's {', '.join(sorted(taken))} would collide with a column that ingest adds; choose another partition_by or name"
        )
    if not isinstance(schema[sent_at].dataType, TimestampType):
        raise ConfigError(f"{sent_at} must be a timestamp in the schema, not {schema[sent_at].dataType.simpleString()}")


def _source_options(
    bootstrap_servers: str, topic: str, max_offsets_per_trigger: int | None, kafka_options: Mapping[str, str] | None
) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",  # a stream's own default is latest: what was sent before the first run would be passed over
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        **(kafka_options or {}),
    }
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    return options


class _Sink(NamedTuple):
    """One of the two ways: its rows, its folder, its checkpoint."""

    name: str
    rows: DataFrame
    path: str
    checkpoint: str
    partition_by: tuple[str, ...]

    def start(self) -> StreamingQuery:
        writer = self.rows.writeStream.queryName(self.name).format("parquet").outputMode("append")
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        return writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start(self.path)

    def count(self, spark: SparkSession) -> int:
        """Rows that stand in the folder, as the sink's own log counts them."""
        try:
            return spark.read.schema(self.rows.schema).parquet(self.path).count()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return 0  # before the first run


class _Tally:
    """A query's progress, summed. Spark keeps the last 100 batches only, so it is asked often and each batch is remembered by its id."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._batches: dict[int, StreamingQueryProgress] = {}

    def look(self) -> None:
        for progress in self._query.recentProgress:
            if progress.numInputRows:  # an idle trigger repeats the metrics of the batch before
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
        return self._sum(lambda progress: sum(state.customMetrics["numDroppedDuplicateRows"] for state in progress.stateOperators))

    @property
    def late(self) -> int:
        return self._sum(lambda progress: sum(state.numRowsDroppedByWatermark for state in progress.stateOperators))

    @property
    def in_topic(self) -> int:
        if not self._batches:
            return 0
        ends = json.loads(self._batches[max(self._batches)].sources[0].endOffset)
        return sum(end for partitions in ends.values() for end in partitions.values())


def _run(sinks: Iterable[_Sink], on_progress: Callable[[IngestProgress], None] | None) -> tuple[_Tally, ...]:
    """Run all queries to their end; when one fails, or the caller gives up, stop the others."""
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
    return IngestProgress(read=events.read, written=events.parsed - events.duplicates - events.late, bad=events.read - events.parsed)
