"""Joins the sink's writers and the protocol of `exactly_once`: the thread of a task, and the driver's process that ends a batch."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import itertools
from typing import TYPE_CHECKING, Any, Final

from aioproducer.config import ProducerConfig
from aioproducer.errors import UsageError
from aioproducer.row_checksum import rows_checksum
from aioproducer.spark.exactly_once import Ledger, Step, TaskTransaction, abort_batch, commit_batch
from aioproducer.spark.ledger import QueryName
from aioproducer.spark.rows import RowCount, RowSender
from aioproducer.spark.writing import pump
from aioproducer.transaction_resolver import TransactionResolver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from aioproducer.spark.decisions import TaskReport
    from aioproducer.spark.exactly_once import Reached
    from aioproducer.spark.sink_options import SinkOptions
    from aioproducer.spark.worker import Worker

__all__ = ["RowTotals", "abort_messages", "commit_messages", "write_task"]

# The brokers' `transaction.max.timeout.ms`, by default. A micro-batch that takes longer loses its transactions.
_TIMEOUT_MS: Final = 900_000
_MODULUS: Final = 2**64


def write_task(
    place: Worker, options: SinkOptions, name: str, batch: int, task: int, batches: Iterable[pa.RecordBatch], reached: Reached
) -> TaskReport:
    """Write the rows of one attempt of a task in a transaction, and leave it open. Called in the task's thread.

    Args:
        place: runs the coroutines.
        options: of the sink.
        name: of the query or of the batch write.
        batch: the number of the micro-batch.
        task: the number of the task.
        batches: the rows.
        reached: is called at each step.

    Raises:
        RowFailed: a row was not written.
        CheckpointTooOld: Kafka has a later batch of the query.
        KafkaError: a coordinator refuses or does not answer.
    """
    totals = RowTotals(options.topic)
    filled = totals.counted(one for one in batches if one.num_rows)
    with place.lent_resolver(options.kafka) as resolver:
        transaction = TaskTransaction(_ledger(options, name, resolver), batch, task)
        if place.call(transaction.settled()):
            return transaction.skipped(*totals.of_rest(filled))
        first = next(filled, None)
        if first is None:
            return transaction.empty()
        producer = place.call(transaction.begin())
        if producer is None:
            return transaction.skipped(*totals.of_rest(filled))
        try:
            sender = RowSender(producer, options.topic, task)
            for _ in pump(place, sender, itertools.chain([first], filled)):
                reached(Step.ROWS, rows=sender.count.rows)
            place.call(sender.end())
            reached(Step.WRITTEN)
            report = place.call(transaction.prepare(*totals))
        except BaseException:
            place.call(transaction.abandon())
            raise
    reached(Step.PREPARED)
    return report


class RowTotals:
    """Sums the rows of a task: the three numbers by which a replay is compared.

    Args:
        topic: the option `topic`; None: the column `topic` counts, too.
    """

    def __init__(self, topic: str | None) -> None:
        self._topic = topic
        self._count = RowCount()
        self._checksum = 0
        self._error: UsageError | None = None

    def __iter__(self) -> Iterator[int]:
        if self._error is not None:
            raise self._error
        return iter((self._count.rows, self._count.bytes, self._checksum))

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch. Raises UsageError if a row cannot be sent."""
        self._count.add(batch)
        if self._topic is not None or "topic" not in batch.schema.names:
            self._checksum = (self._checksum + _checksum(batch)) % _MODULUS
            return
        topics = batch.column("topic")
        for topic in topics.unique():
            # An odd factor keeps the sum one that is the same for each split, and each topic's own.
            factor = int.from_bytes(hashlib.blake2b((topic.as_py() or "").encode(), digest_size=8).digest()) | 1
            rows = batch.filter(_equal(topics, topic))
            self._checksum = (self._checksum + factor * _checksum(rows)) % _MODULUS

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, and add each one while it is sent.

        An error of a row that cannot be sent is raised with the sums: the sender's own error comes first, and names the row.
        """
        for batch in batches:
            yield batch
            try:
                self.add(batch)
            except UsageError as error:
                self._error = error

    def of_rest(self, counted: Iterable[pa.RecordBatch]) -> RowTotals:
        """Read what is left of `counted`. Returns the sums of all."""
        for _ in counted:
            pass
        return self


def _equal(topics: Any, topic: Any) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415  most writes have one topic

    return topics.is_null() if topic.as_py() is None else pc.fill_null(pc.equal(topics, topic), False)


def _checksum(batch: pa.RecordBatch) -> int:
    columns = {name: batch.column(name) for name in batch.schema.names}
    return rows_checksum(
        values=columns["value"],
        keys=columns.get("key"),
        timestamps_ms=columns.get("timestamp"),
        headers=columns.get("headers"),
        partitions=columns.get("partition"),
    )


def _ledger(options: SinkOptions, name: str, resolver: TransactionResolver, max_ends: int = 1) -> Ledger:
    config = ProducerConfig.from_mapping(options.kafka)
    if not {"transaction.timeout.ms", "transaction_timeout_ms"} & options.kafka.keys():
        config = dataclasses.replace(config, transaction_timeout_ms=_TIMEOUT_MS)
    topic = options.ledger_topic
    if topic is None:
        raise AssertionError("the options were checked")
    return Ledger(QueryName(name), topic, config, resolver, max_ends=max_ends)


def commit_messages(options: SinkOptions, batch: int, reports: Sequence[TaskReport], reached: Reached, max_ends: int) -> None:
    """Decide and commit a batch, in a process of the driver.

    Args:
        options: of the sink.
        batch: the number of the micro-batch.
        reports: of all tasks; one of them has rows.
        reached: is called at each step.
        max_ends: the largest number of transactions that end at the same time.

    Raises:
        KafkaError: as `commit_batch`.
    """
    asyncio.run(_commit(options, batch, reports, reached, max_ends))


async def _commit(options: SinkOptions, batch: int, reports: Sequence[TaskReport], reached: Reached, max_ends: int) -> None:
    async with TransactionResolver(ProducerConfig.from_mapping(options.kafka)) as resolver:
        await commit_batch(_ledger(options, reports[0].name, resolver, max_ends), batch, reports, reached)


def abort_messages(options: SinkOptions, batch: int, reports: Sequence[TaskReport], max_ends: int) -> None:
    """Abort what the tasks of a failed batch prepared, in a process of the driver. Errors of coordinators are logged.

    Args:
        options: of the sink.
        batch: the number of the micro-batch.
        reports: of the tasks that gave one.
        max_ends: the largest number of transactions that end at the same time.

    Raises:
        BootstrapFailed: no broker answered.
    """
    asyncio.run(_abort(options, batch, reports, max_ends))


async def _abort(options: SinkOptions, batch: int, reports: Sequence[TaskReport], max_ends: int) -> None:
    async with TransactionResolver(ProducerConfig.from_mapping(options.kafka)) as resolver:
        await abort_batch(_ledger(options, reports[0].name, resolver, max_ends), batch, reports)
