"""Spark's own Kafka sink and ours on one real Kafka: rates and CPU of large writes, and what a small micro-batch takes.

    python -m tests.tools.benchmarks spark [--only kv headers small] [--rounds 5] [--rows N] [--json PATH]

local[2], 6 partitions, values of 100 bytes, both sinks with their defaults. Each round runs every sink on a topic of its own, in the
reverse order of the round before; a round that warms up is not counted. A ratio is of one round. The JVM sink becomes quicker while its JVM
compiles it, so `warm` is the median of the rounds from the third on. `small`: 60,000 rows in 40 micro-batches, each
sink in a process of its own; medians of triggerExecution.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from rich.console import Console

from aioproducer.testing.client import WireClient
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message
from tests.tools.benchmarks import spark_report as report
from tests.tools.benchmarks.broker import real_broker
from tests.tools.benchmarks.spark_rows import ONCE, ROWS, Row, Way
from tests.tools.benchmarks.spark_small import small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tests.tools.benchmarks.broker import Broker
    from tests.tools.benchmarks.spark_report import Measure

ROOT: Final = Path(__file__).parents[3]
_PARTITIONS: Final = 6
_SIZE: Final = 100
_KEYS: Final = 1000
_TASKS: Final = 2
# all compilers, as a server has them: the JVM sink must not be slowed
_SETTINGS: Final = {
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.log.level": "OFF",
}


def frame(spark: SparkSession, row: Row) -> DataFrame:
    """Return the rows of a workload, which exist when this returns."""
    from pyspark.sql import functions as f

    value = (
        f.rpad(f.concat(f.lit("v"), f.col("id").cast("string")), _SIZE, "x")
        .cast("binary")
        .alias("value")
    )
    columns = [(f.col("id") % _KEYS).cast("string").cast("binary").alias("key"), value]
    if "headers" in row.columns:
        columns.append(
            f.array(f.struct(f.lit("trace").alias("key"), f.lit(b"abcdef").alias("value"))).alias(
                "headers"
            )
        )
    made = spark.range(0, row.rows, 1, _TASKS).select(*columns)
    made = made.persist()
    made.count()
    return made


def write(rows: DataFrame, way: Way, topic: str, bootstrap_servers: str) -> None:
    writer = rows.write.format(way.format).mode("append").options(**way.options)
    if way.is_to_kafka:
        writer = writer.options(**{"kafka.bootstrap.servers": bootstrap_servers, "topic": topic})
    if way.name == ONCE:
        # its name: a write without one has a new one each time, as this has
        writer = writer.option("transactionalId", f"bench-{uuid.uuid4().hex}")
    writer.save()


class Processes:
    """Reads the CPU seconds of Spark's JVM, of the Python processes below it, and of Kafka."""

    def __init__(self, spark: SparkSession, kafka_pid: int) -> None:
        self._jvm: int = spark._jvm.java.lang.ProcessHandle.current().pid()
        self._kafka = kafka_pid

    def seconds(self) -> tuple[float, float, float]:
        python = sum(
            _cpu(child.pid, ended=True)
            for child in psutil.Process(self._jvm).children(recursive=True)
        )
        return _cpu(self._jvm), python, _cpu(self._kafka)


def _cpu(pid: int, *, ended: bool = False) -> float:
    """Return the user and system seconds of a process; `ended`: and of its children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if ended else 13])) / os.sysconf("SC_CLK_TCK")


async def run(rows: DataFrame, row: Row, way: Way, broker: Broker, processes: Processes) -> Measure:
    """Write the rows once, into a topic of its own. Returns the measure."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    await broker.create_topic(topic, _PARTITIONS)
    before, began = processes.seconds(), time.perf_counter()
    await asyncio.to_thread(write, rows, way, topic, broker.bootstrap_servers)
    seconds, after = time.perf_counter() - began, processes.seconds()
    if way.is_to_kafka:
        written = sum(await broker.ends(topic))
        # a transaction has a marker in each partition as well
        assert written == row.rows or (way.name == ONCE and written > row.rows), (way.name, written)
    await delete(topic, broker.bootstrap_servers)
    jvm, python, kafka = (late - early for late, early in zip(after, before, strict=True))
    return report.Measure(
        row=row.name,
        way=way.name,
        rows=row.rows,
        seconds=seconds,
        jvm=jvm,
        python=python,
        kafka=kafka,
    )


async def delete(topic: str, bootstrap_servers: str) -> None:
    async with WireClient(bootstrap_servers, timeout=30.0) as client:
        wanted = [message("DeleteTopics.request.topics", name=topic)]
        await client.ask(
            ApiKey.DELETE_TOPICS, topics=wanted, topic_names=[topic], timeout_ms=10_000
        )


async def large(rows: Sequence[Row], rounds: int, console: Console) -> list[Measure]:
    """Run the rounds of some workloads, in one Spark."""
    from aioproducer.spark import session

    spark = await asyncio.to_thread(session, "bench", shuffle_partitions=2, extra_conf=_SETTINGS)
    try:
        register(spark)
        async with real_broker(is_server=True) as broker:
            processes = Processes(spark, broker.server.pid)
            return [
                measure
                for row in rows
                for measure in await _rounds(spark, row, rounds, broker, processes, console)
            ]
    finally:
        spark.stop()


def register(spark: SparkSession) -> None:
    from aioproducer.spark import register as of_ours
    from tests.tools.spark_faults.dropping_sink import DroppingSink

    of_ours(spark)
    spark.dataSource.register(DroppingSink)


async def _rounds(
    spark: SparkSession,
    row: Row,
    rounds: int,
    broker: Broker,
    processes: Processes,
    console: Console,
) -> list[Measure]:
    made = await asyncio.to_thread(frame, spark, row)
    measures = []
    for number in range(rounds + 1):
        for way in row.ways[:: 1 if number % 2 else -1]:
            one = await run(made, row, way, broker, processes)
            name = f"round {number}" if number else "warm-up"
            console.print(f"{name} {report.line(one)}", markup=False)
            if number:
                measures.append(one)
    made.unpersist()
    return measures


def arguments(words: Sequence[str]) -> argparse.Namespace:
    names = [*ROWS, "small"]
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.benchmarks spark",
        description="Spark's own Kafka sink and ours.",
    )
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names)
    )
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument(
        "--rows", type=int, help="of each large write, instead of the workload's own number"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything measured there")
    return parser.parse_args(words)


def main() -> int:
    chosen, console = arguments(sys.argv[1:]), Console(highlight=False)
    console.width = max(console.width, 140)  # a log has no width of its own
    # Spark's Python processes import this tree
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    rows = [
        row if chosen.rows is None else dataclasses.replace(row, rows=chosen.rows)
        for name, row in ROWS.items()
        if name in chosen.only
    ]
    measures = asyncio.run(large(rows, chosen.rounds, console)) if rows else []
    batches = asyncio.run(small(chosen.rounds, console)) if "small" in chosen.only else {}
    if measures:
        console.print(report.measures_table(measures))
        console.print(report.ratios_table(rows, measures))
    if batches:
        console.print(report.small_table(batches))
    if chosen.json:
        everything: dict[str, Any] = {
            "measures": [dataclasses.asdict(one) for one in measures],
            "small": batches,
        }
        chosen.json.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
