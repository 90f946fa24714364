"""Spark's own Kafka sink beside ours on a real Kafka, column by column and type by type: docs/topics/spark.md has what differs on purpose."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from aioproducer.spark import register

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from aioproducer.testing.kafka_server import ServerThread

pytestmark = [pytest.mark.spark, pytest.mark.integration]

SINKS = ("kafka", "aioproducer")
PARTITIONS = 3
PATIENCE = 60.0
HEADERS = "array<struct<key:string,value:binary>>"


class Place:
    """A session that knows both sinks, and topics of a real Kafka."""

    def __init__(self, spark: SparkSession, server: ServerThread) -> None:
        self.spark = spark
        self.server = server

    def topic(self) -> str:
        name = f"both-{uuid.uuid4().hex[:12]}"
        self.server.create_topic(name, PARTITIONS, {"retention.ms": -1})
        return name

    def is_written(self, sink: str, sql: str, topic: str) -> bool:
        """Write rows. Returns whether that is possible."""
        writing = self.spark.sql(sql).write.format(sink).mode("append")
        try:
            writing.option("kafka.bootstrap.servers", self.server.bootstrap_servers).option(
                "topic", topic
            ).save()
        # What it raises differs: an analysis, a task, or Java.
        except Exception:
            return False
        return True

    def read(self, topic: str, count: int) -> list[Any]:
        """Return the first records of a topic, as librdkafka reads them, sorted."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": self.server.bootstrap_servers, "group.id": "both-sinks"}
        )
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        deadline = time.monotonic() + PATIENCE
        seen: list[Any] = []
        while len(seen) < count and time.monotonic() < deadline:
            seen += consumer.consume(count, 0.1)
        consumer.close()
        return seen


@pytest.fixture(scope="module")
def place(spark: SparkSession, kafka_server: ServerThread) -> Place:
    register(spark)
    return Place(spark, kafka_server)


# Key, value, partition and headers of rows that both write alike.
ROWS = (
    "('k', 'v', CAST(null AS INT), null)",
    "('k', null, null, null)",
    "('', '', null, array())",
    "('key \\u0000 of \\u20ac', 'v', null, array(struct('h', X'00ff'), struct('h', X'')))",
    "('a', 'v', 2, array(struct('h', null)))",
    "(null, 'w', 1, null)",
    "(null, null, 0, null)",
)
TIMES = (
    "TIMESTAMP'2020-01-01 00:00:00'",
    "timestamp_millis(-1)",
    "TIMESTAMP'9999-01-01 00:00:00'",
    "TIMESTAMP_NTZ'2020-01-01 00:00:00'",
    "DATE'2020-01-01'",
)


def test_both_write_the_same_records(place: Place) -> None:
    """Keys, nulls, partitions and headers; whatever a column `timestamp` has, records are of now. So with text as with bytes."""
    for number, moment in enumerate(TIMES):
        kind = "binary" if number % 2 else "string"
        rows = ROWS if number < 2 else ROWS[:1]
        sql = (
            f"SELECT CAST(k AS {kind}) AS key, CAST(v AS {kind}) AS value, p AS partition, "
            f"CAST(h AS {HEADERS}) AS headers, {moment} AS timestamp, 7L AS offset, 0 AS timestampType "
            f"FROM VALUES {', '.join(rows)} AS t(k, v, p, h)"
        )
        told = []
        for sink in SINKS:
            topic, began = place.topic(), time.time() * 1000 - 1
            assert place.is_written(sink, sql, topic), (sink, moment)
            records = place.read(topic, len(rows))
            assert all(record.timestamp()[1] >= began for record in records), (sink, moment)
            told.append(
                sorted(
                    (
                        (one.partition(), one.key(), one.value(), one.headers() or [])
                        for one in records
                    ),
                    key=repr,
                )
            )
        assert told[0] == told[1]
        assert len(told[0]) == len(rows)


# Whether Spark's own sink writes such a row, and whether ours does.
CASES = {
    "SELECT 1 AS value": (False, False),
    "SELECT DATE'2020-01-01' AS value": (False, False),
    "SELECT null AS value": (False, False),
    "SELECT 'k' AS key": (False, False),
    "SELECT 'v' AS value, 1L AS key": (False, False),
    "SELECT 'v' AS value, DATE'2020-01-01' AS key": (False, False),
    "SELECT 'v' AS value, null AS key": (False, False),
    "SELECT 'v' AS value, -1 AS partition": (False, False),
    "SELECT 'v' AS value, 1L AS partition": (False, False),
    "SELECT 'v' AS value, map('h', X'01') AS headers": (False, False),
    "SELECT 'v' AS value, array(struct('h' AS key, 'x' AS value)) AS headers": (False, False),
    "SELECT 'v' AS value, array(struct('h' AS name, X'01' AS content)) AS headers": (False, False),
    "SELECT 'v' AS Value": (False, False),
    "SELECT 'v' AS value, array(struct(X'01' AS value, 'h' AS key)) AS headers": (False, False),
    "SELECT 'v' AS value, array(CAST(null AS struct<key:string,value:binary>)) AS headers": (
        False,
        False,
    ),
    "SELECT 'v' AS value, array(struct(CAST(null AS STRING) AS key, X'01' AS value)) AS headers": (
        False,
        False,
    ),
    "SELECT 'v' AS value, 'other' AS topic": (True, True),
    # These differ on purpose.
    "SELECT 'v' AS value, 1 AS id": (True, False),
    "SELECT 'v' AS value, 'k' AS keys": (True, False),
    "SELECT 'v' AS value, 'k' AS Key": (True, False),
}


@pytest.mark.parametrize("sql", CASES)
def test_both_refuse_the_same_types_and_ours_a_column_that_it_would_lose(
    place: Place, sql: str
) -> None:
    assert tuple(place.is_written(sink, sql, place.topic()) for sink in SINKS) == CASES[sql]


@pytest.mark.parametrize(
    ("mode", "written"),
    [
        ("append", (True, True)),
        ("error", (True, False)),
        ("overwrite", (False, False)),
        ("ignore", (False, False)),
    ],
)
def test_modes_of_a_batch(place: Place, mode: str, written: tuple[bool, bool]) -> None:
    """Spark refuses its default for every Python sink."""
    told = []
    for sink in SINKS:
        rows = place.spark.range(1).select(F.lit("v").alias("value")).write.format(sink).mode(mode)
        options = {"kafka.bootstrap.servers": place.server.bootstrap_servers}
        try:
            rows.options(**options, topic=place.topic()).save()
        except Exception:
            told.append(False)
        else:
            told.append(True)
    assert tuple(told) == written


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_output_modes_of_a_query(place: Place, tmp_path: Path, mode: str) -> None:
    """Spark refuses update for every Python sink; ours refuses complete, whose every batch is the whole table again."""
    source = place.topic()
    place.is_written("aioproducer", "SELECT 'v' AS value", source)
    stream = place.spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": place.server.bootstrap_servers},
        subscribe=source,
        startingOffsets="earliest",
    )
    counts = stream.load().groupBy("key").count().selectExpr("CAST(count AS STRING) AS value")
    for sink in SINKS:
        topic = place.topic()
        writing = counts.writeStream.format(sink).outputMode(mode).trigger(availableNow=True)
        writing = writing.options(
            **{"kafka.bootstrap.servers": place.server.bootstrap_servers},
            topic=topic,
            checkpointLocation=str(tmp_path / sink),
        )
        if sink == "kafka":
            writing.start().awaitTermination()
            assert [one.value() for one in place.read(topic, 1)] == [b"1"]
        else:
            with pytest.raises(Exception, match="Update mode|only appends"):
                writing.start().awaitTermination(PATIENCE)


def test_continuous_writes_nothing_with_a_python_sink(place: Place, tmp_path: Path) -> None:
    """Spark never calls its writer; the query runs. Spark's own sink writes meanwhile."""
    ran: dict[str, int] = {}
    for sink in reversed(SINKS):
        topic = place.topic()
        rows = place.spark.readStream.format("rate").option("numPartitions", 1).load()
        writing = rows.selectExpr("CAST(value AS STRING) AS value").writeStream.format(sink)
        query = (
            writing.options(
                **{"kafka.bootstrap.servers": place.server.bootstrap_servers},
                topic=topic,
                checkpointLocation=str(tmp_path / sink),
            )
            .trigger(continuous="1 second")
            .start()
        )
        try:
            if sink == "kafka":
                ran[sink] = len(place.read(topic, 1))
            else:
                assert not query.awaitTermination(20)
                assert query.isActive
                ran[sink] = sum(place.server.end_offsets(topic))
        finally:
            query.stop()
    assert ran == {"aioproducer": 0, "kafka": 1}
