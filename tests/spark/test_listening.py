"""Tests of `aioproducer.spark.listening`: what recorded events of real queries show in a scrape, and in a consumer group."""

from __future__ import annotations

import asyncio
import math
import re
import statistics
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from query_events import (
    FIRST,
    FLIGHTS,
    IDLE,
    RATE,
    RATE_EVENTS,
    SECOND,
    STARTED,
    STARTED_AGAIN,
    STOPPED,
    STOPPED_AGAIN,
    THIRD,
    play,
    recorded,
    send,
    source,
)

from aioproducer.errors import ConfigError
from aioproducer.spark import QueryMetrics
from aioproducer.testing import FakeCluster
from tests.support.kafka_security import run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent

    from aioproducer.testing.kafka_server import ServerThread


def scrape(metrics: QueryMetrics) -> list[str]:
    """The lines of a scrape with values, without the common part of names, and without the labels of the query of the flights."""
    registry = CollectorRegistry()
    registry.register(metrics)
    lines = [
        line.removeprefix("spark_query_")
        for line in generate_latest(registry).decode().splitlines()
        if not line.startswith("#")
    ]
    return [
        re.sub(rf',?query="flights",query_id="{FLIGHTS}"', "", line)
        .replace("{,", "{")
        .replace("{}", "")
        for line in lines
    ]


def test_a_scrape_of_a_running_query() -> None:
    """Every metric, as Prometheus reads it."""
    metrics = QueryMetrics()
    play(metrics, STARTED, FIRST, SECOND, IDLE)
    assert scrape(metrics) == [
        "running 1.0",
        "failures_total 0.0",
        "batches_total 2.0",
        "input_rows_total 200.0",
        "late_rows_total 0.0",
        "batch_id 1.0",
        "input_rows_per_second 23.2",
        "processed_rows_per_second 188.7",
        "batch_seconds 0.424",
        'batch_part_seconds{part="addBatch"} 0.275',
        'batch_part_seconds{part="commitOffsets"} 0.036',
        'batch_part_seconds{part="getBatch"} 0.003',
        'batch_part_seconds{part="latestOffset"} 0.015',
        'batch_part_seconds{part="queryPlanning"} 0.038',
        'batch_part_seconds{part="walCommit"} 0.055',
        "watermark_timestamp_seconds 1.795697398625e+09",
        'state_rows{number="0",operator="dedupeWithinWatermark"} 0.0',
        'source_offset{partition="0",topic="flights"} 100.0',
        'source_offset{partition="1",topic="flights"} 100.0',
        'latest_offset{partition="0",topic="flights"} 100.0',
        'latest_offset{partition="1",topic="flights"} 100.0',
        'lag{partition="0",topic="flights"} 0.0',
        'lag{partition="1",topic="flights"} 0.0',
        "offset_commits_total 0.0",
        "offset_commit_failures_total 0.0",
    ]


def test_the_lag_of_a_query_that_is_behind() -> None:
    """Its first batch has no watermark yet: a gauge of 1970 would say that it is 56 years late."""
    metrics = QueryMetrics()
    play(metrics, STARTED, FIRST)
    lines = scrape(metrics)
    assert [line for line in lines if line.startswith("lag")] == [
        f'lag{{partition="{number}",topic="flights"}} 40.0' for number in (0, 1)
    ]
    assert not any(line.startswith("watermark") for line in lines)


def test_a_query_that_ended() -> None:
    """Its counts stay, and grow with its next run. Its gauges would show a rate that is no more."""
    metrics = QueryMetrics()
    play(metrics, STARTED, FIRST, SECOND, STOPPED)
    counts = [
        "failures_total 0.0",
        "batches_total 2.0",
        "input_rows_total 200.0",
        "late_rows_total 0.0",
    ]
    commits = ["offset_commits_total 0.0", "offset_commit_failures_total 0.0"]
    assert scrape(metrics) == ["running 0.0", *counts, *commits]
    play(metrics, STARTED_AGAIN)
    assert scrape(metrics) == ["running 1.0", *counts, *commits]
    play(metrics, THIRD)
    lines = scrape(metrics)
    assert lines[:5] == [
        "running 1.0",
        "failures_total 0.0",
        "batches_total 3.0",
        "input_rows_total 240.0",
        "late_rows_total 0.0",
    ]
    assert 'source_offset{partition="0",topic="flights"} 120.0' in lines


def test_a_query_that_failed() -> None:
    """It has no name, so its id is shown, and no Kafka source, so it has no offsets."""
    metrics = QueryMetrics()
    play(metrics, *RATE_EVENTS)
    assert scrape(metrics)[:3] == [
        f'running{{query="{RATE}",query_id="{RATE}"}} 0.0',
        f'failures_total{{query="{RATE}",query_id="{RATE}"}} 1.0',
        f'batches_total{{query="{RATE}",query_id="{RATE}"}} 2.0',
    ]


def test_a_listener_that_was_added_while_the_query_ran() -> None:
    """The first progress says that it runs."""
    metrics = QueryMetrics()
    play(metrics, IDLE, SECOND)
    assert scrape(metrics)[0] == "running 1.0"
    play(metrics, STOPPED)
    assert scrape(metrics)[0] == "running 0.0"


def test_the_end_of_a_run_comes_after_the_start_of_the_next() -> None:
    """Spark tells of a start at once, of all else in a queue."""
    metrics = QueryMetrics()
    play(metrics, STARTED, FIRST, STARTED_AGAIN, SECOND)
    assert scrape(metrics)[2] == "batches_total 1.0"
    send(metrics, "terminated", recorded(STOPPED, exception="disk full"))
    assert scrape(metrics)[:3] == ["running 1.0", "failures_total 1.0", "batches_total 1.0"]
    play(metrics, THIRD, STOPPED_AGAIN, STOPPED_AGAIN)
    assert scrape(metrics)[:3] == ["running 0.0", "failures_total 1.0", "batches_total 2.0"]


def test_ended_queries_are_forgotten() -> None:
    """A driver that starts a query with a new checkpoint every minute does not grow."""
    metrics = QueryMetrics()
    play(metrics, STARTED, FIRST)
    for number in range(150):
        ids = {"id": str(uuid.UUID(int=number)), "runId": str(uuid.UUID(int=number))}
        send(metrics, "started", recorded(STARTED, name=f"n{number}", **ids))
        send(metrics, "terminated", recorded(STOPPED, **ids))
    running = [line for line in scrape(metrics) if line.startswith("running")]
    assert len(running) == 101
    assert running[0] == "running 1.0"
    assert 'query="n50"' in running[1]


def test_openmetrics_takes_it_and_a_registry_takes_it_once() -> None:
    """The strict parser, too; and odd values of Spark are left out."""
    metrics = QueryMetrics()
    registry = CollectorRegistry()
    registry.register(metrics)
    send(metrics, "progress", recorded(FIRST, inputRowsPerSecond=math.nan))
    families = {
        family.name: family for family in parse_openmetrics(generate_openmetrics(registry).decode())
    }  # type: ignore[no-untyped-call]
    assert families["spark_query_input_rows_per_second"].samples == []
    assert families["spark_query_processed_rows_per_second"].samples[0].value == 35.1
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(QueryMetrics())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": "flights"}, "a group needs the cluster"),
        ({"bootstrap_server": "a:1"}, "bootstrap_servers"),
        ({"bootstrap_servers": "a:1", "transactional_id": "t"}, "transactional_id"),
        ({"bootstrap_servers": "a:1", "group": ""}, "group: group_id='' names no consumer group"),
        ({"bootstrap_servers": "a:1", "group": "x" * 32_768}, "group: group_id takes 32768 bytes"),
        (
            {"bootstrap_servers": "a:1", "group": ["g"]},
            "group: it is the name of a consumer group, or the groups by the names of queries",
        ),
        (
            {"bootstrap_servers": "a:1", "group": {"flights": None}},
            "group: it is the name of a consumer group",
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    """They are refused in the constructor: a listener that fails later only warns."""
    with pytest.raises(ConfigError, match=said):
        QueryMetrics(**options)


async def close(metrics: QueryMetrics) -> None:
    """Commit what is pending, while the cluster of this loop answers."""
    await asyncio.to_thread(metrics.close)
    assert not any(thread.name == "aioproducer-query-offsets" for thread in threading.enumerate())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("group", "name"),
    [
        (None, FLIGHTS),
        ("lag-of-flights", "lag-of-flights"),
        ({"flights": "by-name", "events": "x"}, "by-name"),
        ({"events": "x"}, FLIGHTS),
    ],
)
async def test_the_offsets_of_a_query_are_a_groups(group: Any, name: str) -> None:
    """The group is the query's id, unless it is named."""
    async with FakeCluster() as cluster:
        cluster.create_topic("flights", 2)
        metrics = QueryMetrics(bootstrap_servers=cluster.bootstrap_servers, group=group)
        play(metrics, STARTED, FIRST, SECOND, IDLE, STOPPED)
        play(metrics, *RATE_EVENTS)
        await close(metrics)
        assert cluster.committed(name) == {("flights", 0): 100, ("flights", 1): 100}
        assert {request.message.group_id for request in cluster.requests("OffsetCommit")} == {name}
        assert cluster.violations == []
        assert "offset_commits_total 0.0" not in scrape(metrics)
        play(metrics, STARTED_AGAIN, THIRD)
        assert cluster.committed(name) == {("flights", 0): 100, ("flights", 1): 100}
        assert "batches_total 3.0" in scrape(metrics)


@pytest.mark.asyncio
async def test_sources_without_kafkas_offsets_start_no_thread() -> None:
    """A query of other sources costs no connection."""
    metrics = QueryMetrics(bootstrap_servers="127.0.0.1:1")
    play(metrics, *RATE_EVENTS)
    send(
        metrics,
        "progress",
        recorded(FIRST, sources=[source({"hub": {"0": 5}}, description="EventHubsSource[hub]")]),
    )
    assert not any(thread.name == "aioproducer-query-offsets" for thread in threading.enumerate())
    await close(metrics)


@pytest.mark.asyncio
async def test_spark_never_waits_for_the_listener() -> None:
    """A topic of 10,000 partitions, and a broker that does not answer: no call takes 50 ms of Spark's thread."""
    async with FakeCluster() as cluster:
        cluster.create_topic("flights", 10_000)
        hang = cluster.hang("OffsetCommit", times=None)
        metrics = QueryMetrics(bootstrap_servers=cluster.bootstrap_servers)
        large = {"flights": {str(number): 1_000_000 + number for number in range(10_000)}}
        event = recorded(FIRST, sources=[source(large, large)])
        play(metrics, STARTED, FIRST)
        await cluster.seen("OffsetCommit")
        seconds = []
        for _ in range(20):
            began = time.thread_time()
            send(metrics, "progress", event)
            seconds.append(time.thread_time() - began)
        # Most of it is the conversion of the event's JSON in `send`, which is Spark's own.
        assert statistics.median(seconds) < 0.05
        began = time.thread_time()
        play(metrics, STOPPED)
        assert time.thread_time() - began < 0.05
        hang.release()
        await close(metrics)


class Told(QueryMetrics):
    """Says when it was told of a batch."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.told = threading.Event()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        super().onQueryProgress(event)
        self.told.set()


@pytest.mark.spark
@pytest.mark.integration
def test_the_lag_of_a_running_query(
    spark: SparkSession, kafka_server: ServerThread, tmp_path: Path
) -> None:
    """Kafka's own tool shows how far the query is behind, and the metrics have the same numbers."""
    topic = f"lag-{uuid.uuid4().hex[:8]}"
    kafka_server.create_topic(topic, 2)
    kafka = {"kafka.bootstrap.servers": kafka_server.bootstrap_servers}
    spark.range(300).selectExpr("cast(id as string) as value").write.format("kafka").options(
        **kafka, topic=topic
    ).save()
    ends = kafka_server.end_offsets(topic)
    metrics = Told(bootstrap_servers=kafka_server.bootstrap_servers)
    spark.streams.addListener(metrics)
    records = spark.readStream.format("kafka").options(
        **kafka, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="100"
    )
    query = (
        records.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="1 hour")
        .start()
    )
    try:
        assert metrics.told.wait(60)
        metrics.close()
        group = str(query.id)
        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        where = (
            "--bootstrap-server",
            kafka_server.bootstrap_servers,
            "--describe",
            "--group",
            group,
        )
        table = [
            line.split()
            for line in asyncio.run(run_tool(tool, *where)).splitlines()
            if line.startswith(group)
        ]
        shown = scrape(metrics)
    finally:
        query.stop()
        spark.streams.removeListener(metrics)
    read = {int(row[2]): int(row[3]) for row in table}
    assert sum(read.values()) == 100
    assert sorted(map(int, (row[5] for row in table))) == sorted(
        end - read[number] for number, end in enumerate(ends)
    )
    assert sum(ends) - sum(read.values()) == 200
    lag = [float(line.rpartition(" ")[2]) for line in shown if line.startswith("lag")]
    assert lag == [ends[number] - read[number] for number in (0, 1)]
