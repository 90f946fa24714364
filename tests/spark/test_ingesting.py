"""Tests of the pipe from a real topic to Parquet: every record once, every count exact, after any stop."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer as TransactionalProducer
from pyspark.errors import StreamingQueryException

from aioproducer import Producer
from aioproducer.errors import ConfigError
from aioproducer.spark import IngestProgress, IngestReport, ingest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from aioproducer.testing.kafka_server import ServerThread

pytestmark = [pytest.mark.spark, pytest.mark.integration]

SCHEMA = "event_id string, sent_at timestamp, departed timestamp, seats int"
PARTITIONS = 3


def event(number: int) -> bytes:
    """An event of March (even) or April (odd), sent now."""
    month = 3 + number % 2
    sent_at = datetime.now(UTC).isoformat()
    return json.dumps(
        {
            "event_id": f"e{number}",
            "sent_at": sent_at,
            "departed": f"2026-{month:02}-01T00:00:00Z",
            "seats": number,
        },
    ).encode()


class Pipe:
    """A topic and the folders that it is taken to."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, folder: Path) -> None:
        self.topic = f"ingest-{uuid.uuid4()}"
        self.bootstrap_servers = bootstrap_servers
        self.folder = folder
        self.spark = spark

    def send(self, values: Iterable[bytes | None]) -> None:
        """Send them all, over all partitions, and see each acknowledged."""

        async def sending() -> None:
            async with Producer(
                bootstrap_servers=self.bootstrap_servers, compression_type="zstd"
            ) as producer:
                deliveries = [
                    await producer.send(self.topic, value, str(number).encode())
                    for number, value in enumerate(values)
                ]
                await asyncio.gather(*deliveries)

        asyncio.run(sending())

    def ingest(self, **options: Any) -> IngestReport:
        """One run, by the month of departure."""
        return ingest(
            self.spark,
            bootstrap_servers=self.bootstrap_servers,
            topic=self.topic,
            schema=self.spark.createDataFrame([], SCHEMA).schema,
            output=str(self.folder / "out"),
            checkpoint=str(self.folder / "checkpoint"),
            event_time="departed",
            **options,
        )

    def seats(self) -> list[int]:
        """Return each event's number in Parquet, in order."""
        return sorted(
            row.seats
            for row in self.spark.read.parquet(str(self.folder / "out" / "events"))
            .select("seats")
            .collect()
        )


@pytest.fixture
def pipe(spark: SparkSession, kafka_server: ServerThread, tmp_path: Path) -> Pipe:
    """A pipe with a topic of its own."""
    made = Pipe(spark, kafka_server.bootstrap_servers, tmp_path)
    kafka_server.create_topic(made.topic, partitions=PARTITIONS)
    return made


def counts(report: IngestReport) -> dict[str, int]:
    """The figures that do not depend on time or place."""
    names = ("in_topic", "read", "parsed", "bad", "duplicates", "late", "written", "total")
    return {name: getattr(report, name) for name in names}


def test_two_runs(pipe: Pipe) -> None:
    """Duplicates and bad records are dropped and counted; a second run adds exactly what is new, and a third nothing."""
    pipe.send(
        [
            *map(event, range(3_000)),
            *map(event, range(0, 3_000, 100)),
            b"{cut off",
            None,
            b'{"event_id":"timeless"}',
        ]
    )
    first = pipe.ingest(max_offsets_per_trigger=1_000)
    assert counts(first) == {
        "in_topic": 3_033,
        "read": 3_033,
        "parsed": 3_030,
        "bad": 3,
        "duplicates": 30,
        "late": 0,
        "written": 3_000,
        "total": 3_000,
    }
    assert first.balanced
    assert first.batches >= 3

    pipe.send([*map(event, range(1_000)), *map(event, range(3_000, 3_100)), b"[]"])
    second = pipe.ingest()
    assert counts(second) == {
        "in_topic": 4_134,
        "read": 1_101,
        "parsed": 1_100,
        "bad": 1,
        "duplicates": 1_000,
        "late": 0,
        "written": 100,
        "total": 3_100,
    }
    assert second.balanced
    assert pipe.seats() == list(range(3_100))

    third = pipe.ingest()
    assert (third.read, third.written, third.bad, third.total, third.batches) == (0, 0, 0, 3_100, 0)
    assert third.balanced


def test_files_are_laid_out_by_month(pipe: Pipe) -> None:
    """A reader of one month opens that folder only; the month is text, not a number made of it."""
    pipe.send(map(event, range(10)))
    report = pipe.ingest(partition_by="departure_month")
    folders = {folder.name for folder in (pipe.folder / "out" / "events").glob("departure_month=*")}
    rows = pipe.spark.read.parquet(report.events_path).groupBy("departure_month").count().collect()
    assert folders == {"departure_month=2026-03", "departure_month=2026-04"}
    assert {row.departure_month: row["count"] for row in rows} == {"2026-03": 5, "2026-04": 5}


def test_late_rows_are_counted(pipe: Pipe) -> None:
    """The report counts the rows that the watermark drops. A batch uses the watermark with which the batch before it ran."""
    for number in range(2):
        pipe.send([event(number)])
        pipe.ingest(dedupe_delay="1 hour")
    pipe.send([event(2), b'{"event_id":"old","sent_at":"2020-01-01T00:00:00Z"}'])
    report = pipe.ingest(dedupe_delay="1 hour")
    assert (report.parsed, report.late, report.written, report.total) == (2, 1, 1, 3)
    assert report.balanced


def test_aborted_records_never_land(pipe: Pipe) -> None:
    """The pipe reads only the records that a transactional producer committed."""
    other = TransactionalProducer(
        {"bootstrap.servers": pipe.bootstrap_servers, "transactional.id": pipe.topic}
    )
    other.init_transactions()
    for number, end in ((0, other.abort_transaction), (1, other.commit_transaction)):
        other.begin_transaction()
        other.produce(pipe.topic, event(number), b"k")
        end()
    assert pipe.ingest().written == 1
    assert pipe.seats() == [1]


class EnoughError(Exception):
    """The caller gives up."""


def stop_once(written: int) -> Callable[[IngestProgress], None]:
    """Return a progress callback that raises once so many rows are written."""

    def on_progress(progress: IngestProgress) -> None:
        if progress.written >= written:
            raise EnoughError

    return on_progress


def test_a_run_that_was_given_up_is_made_up_for(pipe: Pipe) -> None:
    """An exception of the callback ends both queries. The next run goes on, and no row is lost or written twice."""
    pipe.send([*map(event, range(2_000)), *[b"bad"] * 10])
    with pytest.raises(EnoughError):
        pipe.ingest(max_offsets_per_trigger=300, on_progress=stop_once(300))
    assert pipe.spark.streams.active == []
    report = pipe.ingest()
    assert (report.total, pipe.seats()) == (2_000, list(range(2_000)))
    assert pipe.spark.read.parquet(report.bad_path).count() == 10


def test_one_query_fails_and_the_other_is_stopped(pipe: Pipe) -> None:
    """The run ends with Spark's own error, long before the good query is through; once repaired, nothing is missing or twice."""
    pipe.send([event(0)])
    pipe.ingest()
    pipe.send([*map(event, range(1, 2_000)), b"bad"])
    broken = pipe.folder / "checkpoint" / "bad" / "offsets" / "1"
    broken.write_text("no offsets")
    with pytest.raises(StreamingQueryException):
        pipe.ingest(max_offsets_per_trigger=20)
    assert pipe.spark.streams.active == []
    broken.unlink()
    report = pipe.ingest()
    assert report.written > 0
    assert (report.total, pipe.seats()) == (2_000, list(range(2_000)))
    assert pipe.spark.read.parquet(report.bad_path).count() == 1


def test_a_batch_that_is_repeated_adds_nothing(pipe: Pipe) -> None:
    """A crash after the files, before the checkpoint knows of them: its rows are not there twice, and its ids are still known."""
    pipe.send([*map(event, range(100)), b"bad"])
    pipe.ingest()
    for query in ("events", "bad"):
        commits = pipe.folder / "checkpoint" / query / "commits"
        (commits / "0").unlink()
        (commits / ".0.crc").unlink()
    again = pipe.ingest()
    assert (again.written, again.total, again.balanced) == (0, 100, True)
    pipe.send(map(event, range(50, 101)))
    report = pipe.ingest()
    assert (report.duplicates, report.written, pipe.seats()) == (50, 1, list(range(101)))
    assert pipe.spark.read.parquet(report.bad_path).count() == 1


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("sent_at timestamp", {}, "no field event_id"),
        ("event_id string", {}, "no field sent_at"),
        ("event_id string, sent_at timestamp", {"event_time": "departed"}, "no field departed"),
        ("event_id string, sent_at timestamp, month int", {}, "month would collide"),
        ("event_id string, sent_at timestamp, kafka_offset long", {}, "kafka_offset would collide"),
        (
            "event_id string, sent_at string",
            {},
            "sent_at must be a timestamp in the schema, not string",
        ),
    ],
)
def test_a_schema_that_cannot_be(
    spark: SparkSession, schema: str, options: dict[str, str], said: str
) -> None:
    """It is said before a query starts, in words."""
    fields = spark.createDataFrame([], schema).schema
    with pytest.raises(ConfigError, match=said):
        ingest(
            spark,
            bootstrap_servers="x:1",
            topic="t",
            schema=fields,
            output="",
            checkpoint="",
            **options,
        )
