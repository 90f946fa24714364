"""Writes the topic to Parquet with Spark, and aggregates of the files to another topic. The work runs in threads that stop on request."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioproducer.testing import jars

from .source import MEASURES, STRINGS, Totals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from aioproducer.spark import IngestProgress, IngestReport

T = TypeVar("T")

_NUMBERS: Final = (
    *(
        "year",
        "month",
        "day",
        "dep_time",
        "sched_dep_time",
        "dep_delay",
        "arr_time",
        "sched_arr_time",
        "arr_delay",
    ),
    *("flight", "air_time", "distance", "hour", "minute"),
)
_SMALL_AND_SHORT_LIVED: Final = {
    "spark.driver.memory": "2g",
    # in half a minute on two cores the second compiler and a concurrent collector cost more than they save
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_RECORDS_PER_BATCH: Final = 120_000
# names the write of the aggregates: a second write with this name writes nothing
_WRITE: Final = "flights-by-day"


class GivenUpError(Exception):
    """The work stopped on request."""


class Landing:
    """Holds Spark and its folders. The bars show `written`, the rows in Parquet; the picture shows `aggregates`, those in Kafka."""

    def __init__(self, folder: Path) -> None:
        self.written = 0
        self.aggregates = 0
        self._folder = folder
        self._give_up = threading.Event()
        self._spark: SparkSession | None = None
        self._done_before = 0

    async def start(self) -> None:
        """Start Spark's JVM."""
        await self._in_thread(self._start)

    async def ingest(self, bootstrap_servers: str, topic: str) -> IngestReport:
        """Write the topic's new records to Parquet."""
        return await self._in_thread(lambda: self._ingest(bootstrap_servers, topic))

    async def totals(self, path: str) -> dict[str, Totals]:
        """Return flights and sums per carrier from the Parquet files."""
        return await self._in_thread(lambda: self._totals(path))

    async def reasons(self, path: str) -> dict[str, int]:
        """Return the number of bad records for each reason."""
        return await self._in_thread(lambda: self._reasons(path))

    async def write_back(self, bootstrap_servers: str, topic: str, path: str) -> None:
        """Aggregate the flights in the Parquet files by carrier and day, and write the aggregates to a topic, exactly once."""
        await self._in_thread(lambda: self._write_back(bootstrap_servers, topic, path))

    async def written_back(
        self, bootstrap_servers: str, topic: str
    ) -> tuple[int, dict[str, Totals]]:
        """Return the number of aggregates in the topic, as a reader of committed records sees it, and their sums per carrier."""
        return await self._in_thread(lambda: self._written_back(bootstrap_servers, topic))

    async def close(self) -> None:
        """Stop Spark, if it was started. Its JVM ends with this process."""
        if self._spark is not None:
            await asyncio.to_thread(self._spark.stop)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run the work in a thread. As threads cannot be cancelled, a cancelled call stops the work and waits for its end."""
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._give_up.set()
            await asyncio.wait([running])
            running.exception()  # retrieves the expected GivenUpError, so that asyncio does not log it
            raise

    def _start(self) -> None:
        jars.spark_connector(stop=self._give_up)
        if self._give_up.is_set():
            raise GivenUpError
        from aioproducer.spark import session

        self._spark = session(
            "flights", warehouse=self._folder / "warehouse", extra_conf=_SMALL_AND_SHORT_LIVED
        )

    def _ingest(self, bootstrap_servers: str, topic: str) -> IngestReport:
        from aioproducer.spark import ingest

        assert self._spark is not None
        report = ingest(
            self._spark,
            bootstrap_servers=bootstrap_servers,
            topic=topic,
            schema=_schema(),
            output=str(self._folder),
            checkpoint=str(self._folder / "checkpoint"),
            partition_by="departure_month",
            max_offsets_per_trigger=_RECORDS_PER_BATCH,
            on_progress=self._on_progress,
        )
        self.written = self._done_before = report.total
        return report

    def _on_progress(self, progress: IngestProgress) -> None:
        self.written = self._done_before + progress.written
        if self._give_up.is_set():
            raise GivenUpError

    def _totals(self, path: str) -> dict[str, Totals]:
        from pyspark.sql import functions as F

        assert self._spark is not None
        sums = [
            F.coalesce(F.sum(measure), F.lit(0)) for measure in MEASURES
        ]  # null if all flights of a carrier were cancelled
        rows: list[Any] = (
            self._spark.read.parquet(path)
            .groupBy("carrier")
            .agg(F.count("event_id"), *sums)
            .collect()
        )
        return {carrier: Totals(*counts) for carrier, *counts in rows}

    def _write_back(self, bootstrap_servers: str, topic: str, path: str) -> None:
        from pyspark.sql import functions as F

        from aioproducer.spark import register

        assert self._spark is not None
        register(self._spark)
        sums = [F.coalesce(F.sum(measure), F.lit(0)).alias(measure) for measure in MEASURES]
        by_day = (
            self._spark.read.parquet(path)
            .groupBy("carrier", "year", "month", "day")
            .agg(F.count("event_id").alias("flights"), *sums)
        )
        rows = by_day.select(F.col("carrier").alias("key"), F.to_json(F.struct("*")).alias("value"))
        sink = (
            rows.write.format("aioproducer")
            .mode("append")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("topic", topic)
        )
        sink.option("delivery", "exactly_once").option("transactionalId", _WRITE).save()

    def _written_back(self, bootstrap_servers: str, topic: str) -> tuple[int, dict[str, Totals]]:
        from pyspark.sql import functions as F

        assert self._spark is not None
        source = (
            self._spark.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", topic)
        )
        fields = ", ".join(f"{name} LONG" for name in Totals._fields)
        records = source.option("kafka.isolation.level", "read_committed").load()
        values = records.select(
            F.col("key").cast("string"),
            F.from_json(F.col("value").cast("string"), fields).alias("of"),
        )
        sums = [F.sum(F.col("of")[name]) for name in Totals._fields]
        rows: list[Any] = values.groupBy("key").agg(F.count("*"), *sums).collect()
        self.aggregates = sum(count for _, count, *_ in rows)
        return self.aggregates, {carrier: Totals(*counts) for carrier, _, *counts in rows}

    def _reasons(self, path: str) -> dict[str, int]:
        assert self._spark is not None
        return {
            row["reason"]: row["count"]
            for row in self._spark.read.parquet(path).groupBy("reason").count().collect()
        }


def _schema() -> StructType:
    from pyspark.sql.types import IntegerType, StringType, StructType, TimestampType

    schema = (
        StructType()
        .add("event_id", StringType())
        .add("sent_at", TimestampType())
        .add("time_hour", TimestampType())
    )
    for name in STRINGS:
        schema = schema.add(name, StringType())
    for name in _NUMBERS:
        schema = schema.add(name, IntegerType())
    return schema
