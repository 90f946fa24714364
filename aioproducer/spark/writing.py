"""Holds the sink's writers: what a task does with its rows, and what the driver does when the tasks of a batch are over.

A task's own thread reads the next Arrow batch from Spark while the worker's loop sends the last one. Spark pickles a writer by the name of
its class, and unpickles it in a process of the driver for each batch, so this module imports nothing that is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from aioproducer.spark.rows import RowSender
    from aioproducer.spark.sink_options import SinkOptions
    from aioproducer.spark.worker import Worker

__all__ = ["BatchWriter", "StreamWriter", "TaskMessage", "Writer", "pump"]


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """Holds what a task tells the driver.

    Attributes:
        task: the number of the task.
        rows: the rows that it wrote.
        bytes: the bytes of their keys and values.
    """

    task: int
    rows: int
    bytes: int


class Writer:
    """Writes the rows of each task, and ends the batch in the driver.

    Args:
        options: the checked options.
    """

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
        from aioproducer.spark.worker import worker  # noqa: PLC0415

        # Spark keeps it for the task's own thread alone.
        task = TaskContext.get()
        number, attempt = (0, 0) if task is None else (task.partitionId(), task.attemptNumber())
        where = {"partition": number, "attempt": attempt}
        self.reached("start", **where)
        sender = self._send_at_least_once(worker(), iterator, number, where)
        self.reached("written", **where)
        return TaskMessage(number, sender.count.rows, sender.count.bytes)

    def _send_at_least_once(self, place: Worker, batches: Iterable[pa.RecordBatch], task: int, where: dict[str, int]) -> RowSender:
        from aioproducer.spark.rows import RowSender  # noqa: PLC0415  as above

        with place.lent(self._options.kafka) as producer:
            sender = RowSender(producer, self._options.topic, task)
            for _ in pump(place, sender, batches):
                self.reached("rows", **where, rows=sender.count.rows)
            place.call(sender.end())
        return sender


def pump(place: Worker, sender: RowSender, batches: Iterable[pa.RecordBatch]) -> Iterator[None]:
    """Send batches; yield after each one that is queued, while the next one is read. At the end all are queued.

    An interruption of this thread, or an error of the iterator, cancels the send that runs.
    """
    sending = None
    try:
        for batch in batches:
            if sending is not None:
                place.wait(sending)
                yield
            sending = place.submit(sender.send(batch))
        if sending is not None:
            place.wait(sending)
            yield
    finally:
        if sending is not None:
            sending.cancel()


class BatchWriter(Writer, DataSourceArrowWriter):
    """Writes a batch DataFrame."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the write, in a process of the driver, after all tasks have succeeded."""
        self.reached("commit", batch=0)
        del messages
        self.reached("committed", batch=0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: with at_least_once, rows that were written stay written."""
        del messages


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """End a micro-batch, in a process of the driver, after all its tasks have succeeded."""
        self.reached("commit", batch=batchId)
        del messages
        self.reached("committed", batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Do nothing: with at_least_once, rows that were written stay written, and the batch is run again."""
        del messages, batchId
