"""Holds the sink's writers: what a task does with its rows, and what the driver does when the tasks of a batch are over.

A task's own thread reads the next Arrow batch from Spark while the worker's loop sends the last one. Spark pickles a writer by the name of
its class, and unpickles it in a process of the driver for each batch, so this module imports nothing that is slow.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from aioproducer.errors import KafkaError
from aioproducer.spark.pumping import pump
from aioproducer.spark.sink_options import EXACTLY_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from aioproducer.spark.decisions import TaskReport
    from aioproducer.spark.rows import RowSender
    from aioproducer.spark.sink_options import SinkOptions
    from aioproducer.spark.worker import Worker

__all__ = ["BatchWriter", "NoBatchNumber", "StreamWriter", "TaskMessage", "Writer"]


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """Holds what a task tells the driver.

    Attributes:
        task: the number of the task.
        rows: the rows that it wrote.
        bytes: the bytes of their keys and values.
        report: with exactly_once, what became of them.
    """

    task: int
    rows: int
    bytes: int
    report: TaskReport | None = None


class NoBatchNumber(KafkaError):
    """Reports a Spark that does not tell a task its query and its micro-batch."""


# Local properties that Spark sets for the tasks of a micro-batch. They are not documented.
_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"


class Writer:
    """Writes the rows of each task, and ends the batch in the driver.

    Args:
        options: the checked options.

    Attributes:
        max_ends: with exactly_once, the largest number of transactions that the driver ends at the same time.
    """

    max_ends = 64

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def reached(self, step: str, **where: Any) -> None:
        """Do nothing. A test of faults overrides it, and is called in the task's thread, or in the driver's process, at each step."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one attempt of a task. Returns when every row is acknowledged.

        Raises:
            RowFailed: a row was not written.
            KafkaError: no broker answered, or another error of the producer.
        """
        # Not at the top: the processes of the driver do not need it, and it takes a third of a second.
        from aioproducer.spark.rows import timed
        from aioproducer.spark.worker import worker

        number, where = _this_task()
        # A map holds no batch, so each is freed when its rows are queued.
        batches = map(partial(timed, column=self._options.times), iterator)
        if self._options.delivery == EXACTLY_ONCE:
            return self._write_exactly_once(worker(), batches, where)
        self.reached("start", **where)
        sender = self._send_at_least_once(worker(), batches, number, where)
        self.reached("written", **where)
        return TaskMessage(number, sender.count.rows, sender.count.bytes)

    def _send_at_least_once(
        self, place: Worker, batches: Iterable[pa.RecordBatch], task: int, where: dict[str, int]
    ) -> RowSender:
        from aioproducer.spark.rows import RowSender

        with place.lent(self._options.kafka) as producer:
            sender = RowSender(producer, self._options.topic, task)
            for rows in pump(place, sender, batches):
                self.reached("rows", **where, rows=rows)
            place.call(sender.end())
        return sender

    def _write_exactly_once(
        self, place: Worker, batches: Iterable[pa.RecordBatch], where: dict[str, int]
    ) -> TaskMessage:
        from aioproducer.spark.exactly_once_writing import write_task

        name, batch = self._name_and_batch(TaskContext.get())
        where = {**where, "batch": batch}
        self.reached("start", **where)
        report = write_task(
            place,
            self._options,
            name,
            batch,
            where["partition"],
            batches,
            lambda step, /, **more: self.reached(step, **where, **more),
        )
        return TaskMessage(report.task, report.rows, report.bytes, report)

    @abstractmethod
    def _name_and_batch(self, task: TaskContext | None) -> tuple[str, int]:
        """Return the name of the query or of the write, and the number of the micro-batch."""

    def _commit(self, messages: Iterable[WriterCommitMessage | None], batch: int) -> None:
        reports = _reports(messages)
        if not _have_rows(reports):
            self.reached("commit", batch=batch)
            self.reached("committed", batch=batch)
            return
        from aioproducer.spark.exactly_once_writing import commit_messages

        commit_messages(
            self._options,
            batch,
            reports,
            lambda step, /, **where: self.reached(step, **where),
            self.max_ends,
        )

    def _abort(self, messages: Iterable[WriterCommitMessage | None], batch: int) -> None:
        reports = _reports(messages)
        if _have_rows(reports):
            from aioproducer.spark.exactly_once_writing import abort_messages

            abort_messages(self._options, batch, reports, self.max_ends)


def _reports(messages: Iterable[WriterCommitMessage | None]) -> list[TaskReport]:
    return [
        message.report
        for message in messages
        if isinstance(message, TaskMessage) and message.report is not None
    ]


def _have_rows(reports: list[TaskReport]) -> bool:
    """Return whether an exactly-once batch has something to commit. With at_least_once there are no reports, and nothing is imported."""
    if not reports:
        return False
    from aioproducer.spark.decisions import has_rows

    return has_rows(reports)


def _this_task() -> tuple[int, dict[str, int]]:
    """Return the number of this task, and what `reached` is told. Spark keeps it for the task's own thread alone."""
    task = TaskContext.get()
    if task is None:
        return 0, {"batch": 0, "partition": 0, "attempt": 0}
    batch = int(task.getLocalProperty(_BATCH) or 0)
    return task.partitionId(), {
        "batch": batch,
        "partition": task.partitionId(),
        "attempt": task.attemptNumber(),
    }


class BatchWriter(Writer, DataSourceArrowWriter):
    """Writes a batch DataFrame."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        # Spark pickles the writer for its tasks, so all of them have one name.
        self._name = options.prefix + (options.transactional_id or uuid.uuid4().hex)

    def _name_and_batch(self, task: TaskContext | None) -> tuple[str, int]:
        del task
        return self._name, 0

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the write, in a process of the driver, after all tasks have succeeded.

        Raises:
            KafkaError: with exactly_once, as `commit_batch`.
        """
        self._commit(messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """With exactly_once, abort what the tasks wrote. With at_least_once, rows that were written stay written."""
        self._abort(messages, 0)


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def _name_and_batch(self, task: TaskContext | None) -> tuple[str, int]:
        query, batch = (
            (None, None)
            if task is None
            else (task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH))
        )
        if query is None or batch is None:
            raise NoBatchNumber(
                f"this Spark does not tell a task its micro-batch (the local properties {_QUERY} and {_BATCH}), which delivery=exactly_once "
                "needs. Write each batch in foreachBatch, with transactionalId=f'{name}-{batch_id}'"
            )
        return self._options.prefix + query, int(batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """End a micro-batch, in a process of the driver, after all its tasks have succeeded.

        Raises:
            KafkaError: with exactly_once, as `commit_batch`. Spark then ends the query.
        """
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """With exactly_once, abort what was not decided. With at_least_once, rows stay written, and the batch is run again."""
        self._abort(messages, batchId)
