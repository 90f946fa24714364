"""The sink against a real Kafka: what it writes is read back by another client, or by Spark's own source."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  Spark's documents call it so
from secured import Way, read_by_confluent

from aioproducer.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aioproducer.testing.kafka_thread import ServerThread

pytestmark = [pytest.mark.spark, pytest.mark.integration]


class Place:
    """A session that knows the sink, and topics of a real Kafka."""

    def __init__(self, spark: SparkSession, server: ServerThread) -> None:
        self.spark = spark
        self.server = server

    def topic(self, partitions: int = 1) -> str:
        """Create a topic. Returns its name."""
        name = f"sink-{uuid.uuid4().hex[:12]}"
        self.server.create_topic(name, partitions)
        return name

    def write(self, rows: DataFrame, **options: str) -> None:
        """Write a batch."""
        rows.write.format("aioproducer").mode("append").option("kafka.bootstrap.servers", self.server.bootstrap_servers).options(
            **options
        ).save()

    def read(self, topic: str, *columns: str) -> list[Any]:
        """Return the records of a topic as Spark's own source reads them, in order of partition and offset."""
        source = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.server.bootstrap_servers)
        records = source.option("subscribe", topic).option("includeHeaders", "true").load().coalesce(1).orderBy("partition", "offset")
        return [tuple(row) for row in records.selectExpr(*columns).collect()]


@pytest.fixture(scope="module")
def place(spark: SparkSession, kafka_server: ServerThread) -> Place:
    register(spark)
    return Place(spark, kafka_server)


def test_rows_come_back(place: Place) -> None:
    """Keys, values and their order, from two tasks."""
    topic = place.topic()
    rows = place.spark.range(0, 1_000, 1, 2).select(F.col("id").cast("string").alias("key"), F.concat(F.lit("v"), "id").alias("value"))
    place.write(rows, topic=topic)
    assert sorted(place.read(topic, "string(key)", "string(value)")) == sorted((f"{n}", f"v{n}") for n in range(1_000))
    assert len(read_by_confluent(place.server, Way("PLAINTEXT"), topic, 1_000)) == 1_000
