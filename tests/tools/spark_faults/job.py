"""A streaming query as a process: Kafka, a Python stage that is slow or fails, a sink.

    python -m tests.tools.spark_faults.job FOLDER

FOLDER has `job.json`, a `Job`. The process writes `driver.json` there when its session is up, and a line of `outcomes.log` when a query
ended. Exit status: 0 when all input is through, 3 when the last query failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.tools.spark_faults.faults import Fault
from tests.tools.spark_faults.poison import PoisonedStage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

__all__ = ["DIED", "FAILED", "Driver", "Job", "Outcome"]

FAILED: Final = 3
DIED: Final = "the driver died"
_JVM: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # starts fastest, and takes the fewest threads
)
_WORDS: Final = 6_000
_FIRST: Final = 10  # batches that warm up, when there are more than twice as many


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Holds what one run of the query is told.

    Attributes:
        bootstrap_servers: of the Kafka that has source and sink.
        source: the topic that is read.
        sink: the topic that is written.
        per_batch: the most rows of a micro-batch.
        format: the sink: "aioproducer", "kafka" (Spark's own), "noop", or "dropping" (a Python sink that drops its rows).
        options: of the sink.
        source_options: of the source.
        master: Spark's.
        conf: Spark's settings.
        faults: that strike within the sink.
        poison: the numbers of the rows at which the Python stage fails, each once.
        slow: seconds that the Python stage takes for each Arrow batch.
        limit: seconds of one query.
        again: how often the query is started again in this process when it has failed.
    """

    bootstrap_servers: str
    source: str
    sink: str
    per_batch: int
    format: str = "aioproducer"
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    master: str = "local[2,3]"
    conf: Mapping[str, str] = dataclasses.field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    poison: tuple[int, ...] = ()
    slow: float = 0.0
    limit: float = 240.0
    again: int = 0

    @classmethod
    def read(cls, folder: Path) -> Job:
        told = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        return cls(
            **told
            | {
                "faults": tuple(Fault(**fault) for fault in told["faults"]),
                "poison": tuple(told["poison"]),
            }
        )

    def write(self, folder: Path) -> None:
        (folder / "job.json").write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")


@dataclasses.dataclass(frozen=True, slots=True)
class Driver:
    """Holds the process ids of a driver that is up."""

    python: int
    jvm: int

    @classmethod
    def read(cls, folder: Path) -> Driver | None:
        path = folder / "driver.json"
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    @staticmethod
    def forget(folder: Path) -> None:
        """Remove those of an earlier process."""
        (folder / "driver.json").unlink(missing_ok=True)

    def write(self, folder: Path) -> None:
        # a reader sees all of it or nothing
        beside = folder / "driver.json.new"
        beside.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")
        beside.rename(folder / "driver.json")


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Holds the end of a query: what its progress says, or why it failed."""

    error: str = ""
    seconds: float = 0.0
    batches: int = 0
    rows: int = 0
    trigger_ms: float = 0.0
    add_batch_ms: float = 0.0

    @classmethod
    def read(cls, folder: Path) -> list[Outcome]:
        """Return the outcomes of the queries of one process, in their order: the last one is missing if its driver was killed."""
        path = folder / "outcomes.log"
        return (
            [cls(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
            if path.exists()
            else []
        )

    @staticmethod
    def forget(folder: Path) -> None:
        """Remove those of an earlier process."""
        (folder / "outcomes.log").unlink(missing_ok=True)

    def write(self, folder: Path) -> None:
        with (folder / "outcomes.log").open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(self)) + "\n")


def rows_of(spark: SparkSession, job: Job, folder: Path) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("subscribe", job.source)
    )
    reader = reader.options(
        **{
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(job.per_batch),
            **job.source_options,
        }
    )
    rows = reader.load().select("key", "value")
    if job.poison or job.slow:
        rows = rows.mapInArrow(PoisonedStage(frozenset(job.poison), folder, job.slow), rows.schema)
    return rows


def writer_of(
    spark: SparkSession, job: Job, rows: DataFrame, folder: Path
) -> DataStreamWriter[Any]:
    # each is imported only where it is used: the tool proves itself on Spark's own sink as well
    name, more = job.format, {}
    if job.format == "aioproducer":
        from tests.tools.spark_faults.faulty_sink import FOLDER, FaultySink

        spark.dataSource.register(FaultySink)
        name, more = FaultySink.name(), {FOLDER: str(folder)}
    elif job.format == "dropping":
        from tests.tools.spark_faults.dropping_sink import DroppingSink

        spark.dataSource.register(DroppingSink)
    writer = (
        rows.writeStream.format(name)
        .outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    if job.format in {"aioproducer", "kafka"}:
        more |= {"kafka.bootstrap.servers": job.bootstrap_servers, "topic": job.sink}
    return writer.options(**more, **job.options).trigger(availableNow=True)


def outcome_of(query: Any, seconds: float) -> Outcome:
    progress = [one for one in query.recentProgress if one.numInputRows]
    steady = progress[_FIRST:] if len(progress) > 2 * _FIRST else progress

    def median(name: str) -> float:
        return (
            float(statistics.median(one.durationMs.get(name, 0) for one in steady))
            if steady
            else 0.0
        )

    rows = sum(one.numInputRows for one in progress)
    return Outcome(
        "", round(seconds, 2), len(progress), rows, median("triggerExecution"), median("addBatch")
    )


def run(folder: Path) -> int:
    """Run the query to the end of its input. Returns the exit status."""
    from aioproducer.spark import session

    job = Job.read(folder)
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _JVM,
        "spark.executor.extraJavaOptions": _JVM,
        "spark.sql.streaming.stopTimeout": "20s",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.log.level": "OFF",
    }
    spark = session(
        "spark_faults",
        master=job.master,
        shuffle_partitions=2,
        extra_conf=settings | dict(job.conf),
    )
    Driver(os.getpid(), spark._jvm.java.lang.ProcessHandle.current().pid()).write(folder)
    try:
        for _ in range(1 + job.again):
            outcome = once(spark, job, folder)
            outcome.write(folder)
            if not outcome.error:
                break
    except jvm_is_gone():
        # the JVM was killed, which is no end of the query's own
        Outcome(DIED).write(folder)
        return FAILED
    # the driver may be gone
    with contextlib.suppress(Exception):
        spark.stop()
    return FAILED if outcome.error else 0


def jvm_is_gone() -> tuple[type[Exception], ...]:
    """Return the errors that say so."""
    # Imported here: the tests of what the runner does run without pyspark, which brings py4j.
    from py4j.protocol import Py4JNetworkError

    return ConnectionError, Py4JNetworkError


def once(spark: SparkSession, job: Job, folder: Path) -> Outcome:
    """Run the query from its checkpoint to its end. Raises what says that the JVM is gone."""
    began = time.monotonic()
    try:
        query = writer_of(spark, job, rows_of(spark, job, folder), folder).start()
        if not query.awaitTermination(int(job.limit)):
            raise TimeoutError(f"not through within {job.limit:g} s")
        return outcome_of(query, time.monotonic() - began)
    except jvm_is_gone():
        raise
    # any other error is an outcome
    except Exception as error:
        return Outcome(f"{type(error).__name__}: {error}"[:_WORDS] or "failed")


if __name__ == "__main__":
    # py4j's threads would wait for a JVM that was killed
    os._exit(run(Path(sys.argv[1])))
