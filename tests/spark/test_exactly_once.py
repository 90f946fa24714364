"""Exactly once with a real Spark and a real Kafka: streams, a driver that dies between decision and commit, and batches with a name."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from aioproducer.spark import register
from aioproducer.spark.sink import AioproducerSink
from aioproducer.spark.writing import StreamWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from aioproducer.testing.kafka_server import ServerThread

pytestmark = [pytest.mark.spark, pytest.mark.integration]

FILE_ROWS = 100


class _Dies(StreamWriter):
    """A writer; its driver stops for ever after the decision of batch 1, before a transaction is committed."""

    def reached(self, step: str, **where: Any) -> None:
        if step == "decided" and where["batch"] == 1:
            raise SystemExit("killed")


class _DyingSink(AioproducerSink):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return _Dies(self._checked(schema, overwrite=overwrite, is_stream=True))


class Place:
    """A session, a topic and a stream of files that is written to it."""

    def __init__(self, spark: SparkSession, server: ServerThread, folder: Path) -> None:
        self.spark = spark
        self.server = server
        self.folder = folder
        self.topic = f"once-{uuid.uuid4().hex[:12]}"
        server.create_topic(self.topic, 3)
        for number in range(3):
            self.rows(number).write.mode("append").text(str(folder / "in"))

    def rows(self, number: int) -> DataFrame:
        """The rows of one file, in a file of its own."""
        return self.spark.range(number * FILE_ROWS, (number + 1) * FILE_ROWS, 1, 1).select(
            F.col("id").cast("string").alias("value")
        )

    def run(self, kind: str, checkpoint: str = "checkpoint") -> None:
        """One run of the query, a file a batch, two tasks each."""
        rows = (
            self.spark.readStream.schema("value string")
            .option("maxFilesPerTrigger", 1)
            .text(str(self.folder / "in"))
            .repartition(2)
        )
        query = (
            rows.writeStream.format(kind)
            .option("kafka.bootstrap.servers", self.server.bootstrap_servers)
            .option("topic", self.topic)
            .option("delivery", "exactly_once")
            .option("checkpointLocation", str(self.folder / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def write(self, rows: DataFrame, **options: str) -> None:
        """One batch, exactly once."""
        servers = self.server.bootstrap_servers
        writer = (
            rows.write.format("aioproducer")
            .mode("append")
            .option("kafka.bootstrap.servers", servers)
        )
        writer.options(topic=self.topic, delivery="exactly_once", **options).save()

    def read(self) -> Counter[str]:
        """The values that a reader of committed records has, and how often."""
        source = self.spark.read.format("kafka").option(
            "kafka.bootstrap.servers", self.server.bootstrap_servers
        )
        source = source.option("subscribe", self.topic).option(
            "kafka.isolation.level", "read_committed"
        )
        return Counter(
            row.value for row in source.load().selectExpr("string(value) as value").collect()
        )


@pytest.fixture
def place(spark: SparkSession, kafka_server: ServerThread, tmp_path: Path) -> Place:
    register(spark)
    spark.dataSource.register(_DyingSink)
    return Place(spark, kafka_server, tmp_path)


def once(first: int, last: int) -> Counter[str]:
    return Counter(map(str, range(first, last)))


def test_a_driver_that_dies_after_its_decision(place: Place) -> None:
    """Nothing of batch 1 is visible then; the next run commits what was decided, and goes on."""
    with pytest.raises(StreamingQueryException):
        place.run("dying")
    assert place.read() == once(0, FILE_ROWS)
    place.run("aioproducer")
    assert place.read() == once(0, 3 * FILE_ROWS)


def test_a_named_write(place: Place) -> None:
    """The second run of a write with a name writes nothing; one without a name writes each time."""
    rows = place.spark.range(0, 60, 1, 3).select(F.col("id").cast("string").alias("value"))
    place.write(rows, transactionalId=f"load-{place.topic}")
    place.write(rows.repartition(2), transactionalId=f"load-{place.topic}")
    assert place.read() == once(0, 60)
    place.write(rows.where("value = '7'"))
    assert place.read() == once(0, 60) + Counter({"7": 1})


def test_foreach_batch(place: Place) -> None:
    """A batch that is run again is not written again: its name has the number of the batch."""
    seen: list[int] = []

    def write(rows: DataFrame, number: int) -> None:
        seen.append(number)
        place.write(rows.coalesce(1), transactionalId=f"{place.topic}-{number}")
        if len(seen) == 2:
            raise RuntimeError("after the write")

    source = (
        place.spark.readStream.schema("value string")
        .option("maxFilesPerTrigger", 1)
        .text(str(place.folder / "in"))
    )
    for run in range(2):
        query = (
            source.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(place.folder / "each"))
            .trigger(availableNow=True)
        )
        started = query.start()
        if run:
            started.awaitTermination()
        else:
            with pytest.raises(StreamingQueryException):
                started.awaitTermination()
    assert seen == [0, 1, 1, 2]
    assert place.read() == once(0, 3 * FILE_ROWS)
