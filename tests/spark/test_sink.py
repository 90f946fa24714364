"""The sink against a real Kafka: what it writes is read back by another client, or by Spark's own source."""

from __future__ import annotations

import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F
from secured import Way, read_by_confluent

from aioproducer.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aioproducer.testing.kafka_server import ServerThread

pytestmark = [pytest.mark.spark, pytest.mark.integration]


class Place:
    """A session that knows the sink, and topics of a real Kafka."""

    def __init__(
        self, spark: SparkSession, server: ServerThread, folders: pytest.TempPathFactory
    ) -> None:
        self.spark = spark
        self.server = server
        self._folders = folders

    def folder(self) -> str:
        """Return a new folder."""
        return str(self._folders.mktemp("checkpoint"))

    def plans(self) -> str:
        """Return all plans that Spark keeps for its web page and its event log. There is at least one."""
        store = self.spark._jsparkSession.sharedState().statusStore()
        plans = [
            store.executionsList().apply(number).physicalPlanDescription()
            for number in range(store.executionsCount())
        ]
        assert any("Physical Plan" in plan for plan in plans)
        return "\n".join(plans)

    def topic(self, partitions: int = 1) -> str:
        """Create a topic. Returns its name."""
        name = f"sink-{uuid.uuid4().hex[:12]}"
        # Kafka's retention would delete records of 2023 at its next check, one each five minutes.
        self.server.create_topic(name, partitions, {"retention.ms": -1})
        return name

    def write(self, rows: DataFrame, **options: str) -> None:
        """Write a batch."""
        rows.write.format("aioproducer").mode("append").option(
            "kafka.bootstrap.servers", self.server.bootstrap_servers
        ).options(**options).save()

    def read(self, topic: str, *columns: str) -> list[Any]:
        """Return the records of a topic as Spark's own source reads them, in order of partition and offset."""
        source = self.spark.read.format("kafka").option(
            "kafka.bootstrap.servers", self.server.bootstrap_servers
        )
        records = (
            source.option("subscribe", topic)
            .option("includeHeaders", "true")
            .load()
            .coalesce(1)
            .orderBy("partition", "offset")
        )
        return [tuple(row) for row in records.selectExpr(*columns).collect()]


@pytest.fixture(scope="module")
def place(
    spark: SparkSession, kafka_server: ServerThread, tmp_path_factory: pytest.TempPathFactory
) -> Place:
    register(spark)
    return Place(spark, kafka_server, tmp_path_factory)


def test_rows_come_back(place: Place) -> None:
    """Every column of two tasks, as Spark's own source reads it; a column of that source which says nothing to a producer is left out."""
    first, second = place.topic(2), place.topic(2)
    rows = place.spark.range(0, 1_000, 1, 2).select(
        F.when(F.col("id") % 10 > 0, F.col("id").cast("string")).alias("key"),
        F.when(F.col("id") % 7 > 0, F.concat(F.lit("v"), "id")).cast("binary").alias("value"),
        F.when(F.col("id") % 2 == 0, first).otherwise(second).alias("topic"),
        (F.col("id") % 4 / 2).cast("int").alias("partition"),
        F.array(
            F.struct(
                F.lit("h").alias("key"), F.col("id").cast("string").cast("binary").alias("value")
            )
        ).alias("headers"),
        F.timestamp_millis(F.lit(1_700_000_000_000) + F.col("id")).alias("timestamp"),
        F.col("id").alias("offset"),
    )
    place.write(rows, timestampColumn="timestamp")
    for topic, rest in ((first, 0), (second, 1)):
        told = place.read(
            topic,
            "partition",
            "string(key)",
            "string(value)",
            "string(headers[0].value)",
            "unix_millis(timestamp)",
        )
        wanted = [
            (
                n % 4 // 2,
                f"{n}" if n % 10 else None,
                f"v{n}" if n % 7 else None,
                f"{n}",
                1_700_000_000_000 + n,
            )
            for n in range(rest, 1_000, 2)
        ]
        assert sorted(told, key=lambda row: row[4]) == wanted


def test_what_spark_read_is_written_again(place: Place) -> None:
    """A DataFrame of Spark's own source has the columns of the sink, and offset and timestampType. The option `topic` is before the column."""
    first, second = place.topic(), place.topic()
    place.write(
        place.spark.range(10).select(F.col("id").cast("string").alias("value")), topic=first
    )
    source = place.spark.read.format("kafka").option(
        "kafka.bootstrap.servers", place.server.bootstrap_servers
    )
    rows = source.option("subscribe", first).option("includeHeaders", "true").load()
    place.write(rows, topic=second, timestampColumn="timestamp")
    columns = ("string(value)", "partition", "timestamp", "size(headers)")
    assert sorted(place.read(second, *columns)) == sorted(place.read(first, *columns))
    assert len(read_by_confluent(place.server, Way("PLAINTEXT"), second, 10)) == 10


CANARY = "canary-of-the-sink"


def test_everything_wrong_is_told_before_any_task(place: Place) -> None:
    """Columns, options and secrets in one text. The secret is in no error, and in no plan that Spark keeps for its web page and events."""
    place.spark.range(1).collect()
    rows = place.spark.range(3).select(
        F.raise_error(F.lit("a task ran")).alias("Value"), F.lit("k").alias("keys")
    )
    jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='{CANARY}';"
    with pytest.raises(AnalysisException) as caught:
        place.write(
            rows,
            acks="1",
            **{
                "kafka.lingr.ms": "5",
                "kafka.sasl.password": CANARY,
                "kafka.sasl.jaas.config": jaas,
            },
        )
    text = str(caught.value)
    for words in (
        "there is no column 'value' ('Value' is another name",
        "there is no topic: give the option 'topic'",
        "column 'keys' is not written: did you mean 'key'?",
        "unknown option 'acks'; did you mean 'kafka.acks'?",
        "unknown option 'kafka.lingr.ms'; did you mean 'kafka.linger.ms'?",
        "kafka.sasl.password, kafka.sasl.jaas.config: a secret is given as text",
        "${env:NAME}",
    ):
        assert words in text
    assert CANARY not in text + place.plans()


def test_another_thread(place: Place) -> None:
    """A thread that did not make the session writes after its own `register`: Spark knows no format there before."""

    def write() -> None:
        register(place.spark)
        place.write(place.spark.range(1))

    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(AnalysisException, match="there is no column 'value'"),
    ):
        pool.submit(write).result()


def test_a_query_says_what_is_wrong(place: Place) -> None:
    """At its first batch, and before its tasks; the secret is not in the query's error."""
    rows = place.spark.readStream.format("rate").load().select(F.col("value").cast("string"))
    query = (
        rows.writeStream.format("aioproducer")
        .option("kafka.sasl.password", CANARY)
        .option("checkpointLocation", place.folder())
    )
    running = query.start()
    with pytest.raises(StreamingQueryException) as caught:
        running.awaitTermination(60)
    text = str(caught.value)
    assert "option 'kafka.bootstrap.servers' is missing" in text
    assert "kafka.sasl.password: a secret is given as text" in text
    assert CANARY not in text


def test_overwrite_is_refused(place: Place) -> None:
    with pytest.raises(AnalysisException, match=r"the sink only appends: use .mode\('append'\)"):
        place.spark.range(1).select(F.lit("v").alias("value")).write.format("aioproducer").mode(
            "overwrite"
        ).option("topic", "t").save()


def test_checkpoints_are_those_of_sparks_own_sink(place: Place) -> None:
    """A query goes on with ours from where Spark's sink stood, and back: each row is written once."""
    source, target = place.topic(2), place.topic()
    checkpoint = place.folder()
    numbers = iter(range(1_000))
    for format_ in ("kafka", "aioproducer", "aioproducer", "kafka"):
        place.write(
            place.spark.createDataFrame([(f"{next(numbers)}",) for _ in range(20)], "value string"),
            topic=source,
        )
        stream = place.spark.readStream.format("kafka").option(
            "kafka.bootstrap.servers", place.server.bootstrap_servers
        )
        stream = (
            stream.option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
            .select("value")
        )
        writing = stream.writeStream.format(format_).option(
            "kafka.bootstrap.servers", place.server.bootstrap_servers
        )
        writing.option("topic", target).option("checkpointLocation", checkpoint).trigger(
            availableNow=True
        ).start().awaitTermination()
    assert sorted(
        int(value) for value in read_by_confluent(place.server, Way("PLAINTEXT"), target, 80)
    ) == list(range(80))


LIGHT = """
import sys
import pyspark.sql.datasource
before = set(sys.modules)
import aioproducer.spark.sink
assert aioproducer.spark.register
import aioproducer.spark.writing
print(*sorted(set(sys.modules) - before))
"""


def test_the_sink_is_imported_alone() -> None:
    """Each process that Spark starts imports it before it answers."""
    ran = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=120, check=True
    )
    modules = (
        "",
        ".errors",
        ".spark",
        ".spark.collecting",
        ".spark.contract",
        ".spark.pumping",
        ".spark.sink",
        ".spark.sink_options",
        ".spark.writing",
    )
    assert ran.stdout.split() == [f"aioproducer{name}" for name in modules]
