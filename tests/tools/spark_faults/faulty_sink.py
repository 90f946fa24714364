"""The product's sink: its writers run a query's faults at each step, and note what each batch came to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext

from aioproducer.spark.sink import AioproducerSink
from aioproducer.spark.writing import StreamWriter
from tests.tools.spark_faults.faults import strike
from tests.tools.spark_faults.job import Driver, Job

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from aioproducer.spark.writing import TaskMessage

__all__ = ["FOLDER", "FaultySink", "FaultyWriter", "states_of"]

FOLDER: Final = "faults.folder"
_BATCH: Final = "streaming.sql.batchId"
_STATES: Final = "batches.log"


class FaultySink(AioproducerSink):
    """The data source `faulty`: the option `faults.folder` names the query's folder, all others are the sink's."""

    def __init__(self, options: Mapping[str, str]) -> None:
        own = dict(options)
        self._folder = own.pop(FOLDER)
        super().__init__(own)

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:
        # the product's own writer, as it was made
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = FaultyWriter
        assert isinstance(writer, FaultyWriter)
        writer.folder = self._folder
        if any(fault.at == "ended" for fault in Job.read(Path(self._folder)).faults):
            # one after the other, so that the number says how many are left
            writer.max_ends = 1
        return writer


class FaultyWriter(StreamWriter):
    """The product's writer, with faults at its steps."""

    folder: str
    _batch: int | None = None
    _told: tuple[Job, Driver] | None = None

    def reached(self, step: str, **where: Any) -> None:
        folder = Path(self.folder)
        if self._told is None:
            driver = Driver.read(folder)
            assert driver is not None, "a query runs whose driver is not up"
            self._told = Job.read(folder), driver
        job, driver = self._told
        strike(job.faults, folder, driver.jvm, step, where | self._place())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        self._told = None
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._batch = batchId
        _note_states(Path(self.folder), batchId, messages)
        super().commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._batch = batchId
        super().abort(messages, batchId)

    def _place(self) -> dict[str, int]:
        task = TaskContext.get()
        if task is None or self._batch is not None:
            return {} if self._batch is None else {"batch": self._batch}
        return {
            "batch": int(task.getLocalProperty(_BATCH)),
            "partition": task.partitionId(),
            "attempt": task.attemptNumber(),
        }


def states_of(folder: Path, batch: int) -> list[list[str]]:
    """Return the states of a batch's tasks, at each commit of it."""
    path = folder / _STATES
    lines = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.exists()
        else []
    )
    return [line["states"] for line in lines if line["batch"] == batch]


def _note_states(folder: Path, batch: int, messages: list[WriterCommitMessage | None]) -> None:
    states = [
        str(getattr(getattr(message, "report", message), "state", "")) for message in messages
    ]
    with (folder / _STATES).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"batch": batch, "states": states}) + "\n")
