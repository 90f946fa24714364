"""Joins the sink's writers and the protocol of `exactly_once`: the thread of a task, and the driver's process that ends a batch.

Spark uses the driver's process again for the next batch, so it keeps its connections, as the process of a task does.
"""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioproducer.errors import KafkaError
from aioproducer.spark.exactly_once import Ledger, Step, TaskTransaction, abort_batch, commit_batch
from aioproducer.spark.ledger import QueryName
from aioproducer.spark.pumping import pump, read_ahead
from aioproducer.spark.rows import RowCount, RowSender
from aioproducer.spark.worker import worker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from aioproducer.spark.decisions import TaskReport
    from aioproducer.spark.exactly_once import Reached
    from aioproducer.spark.ledger_client import LedgerClients
    from aioproducer.spark.sink_options import SinkOptions
    from aioproducer.spark.worker import Worker

__all__ = ["abort_messages", "commit_messages", "write_task"]

T = TypeVar("T")
R = TypeVar("R")

# The brokers' `transaction.max.timeout.ms`, by default. A micro-batch that takes longer loses its transactions.
_TIMEOUT_MS: Final = 900_000
# What helps where brokers refuse. Spark shows notes as it shows the traceback.
_REMEDIES: Final = {
    "GROUP_AUTHORIZATION_FAILED": "The sink needs Read on groups that begin with {prefix}",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "The sink needs Write and Describe on transactional ids that begin with {prefix}",
    "TOPIC_AUTHORIZATION_FAILED": "The sink needs Write on the topics, and Read on the ledger topic {topic}",
    "INVALID_TRANSACTION_TIMEOUT": "Lower kafka.transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms",
    "OFFSET_METADATA_TOO_LARGE": "The sink needs the brokers' offset.metadata.max.bytes to be 4096 or more",
    "UNKNOWN_MEMBER_ID": "Give a transactionalIdPrefix with which no group of consumers begins",
}


def write_task(
    place: Worker,
    options: SinkOptions,
    name: str,
    batch: int,
    task: int,
    batches: Iterable[pa.RecordBatch],
    reached: Reached,
) -> TaskReport:
    """Write the rows of one attempt of a task in a transaction, and leave it open. Called in the task's thread.

    Args:
        name: of the query or of the batch write.

    Raises:
        RowFailed: a row was not written.
        CheckpointTooOld: Kafka has a later batch of the query.
        KafkaError: a coordinator refuses or does not answer.
    """
    filled: Iterator[pa.RecordBatch] = (one for one in batches if one.num_rows)
    with _clients(place, options) as clients:
        transaction = TaskTransaction(_ledger(options, name, clients), batch, task)
        # Spark computes rows only for a task that reads them, and the coordinators take some ms to answer.
        is_settled, first = _meanwhile(
            place, transaction.settled(), lambda _settling: next(filled, None)
        )
        rows = filled if first is None else itertools.chain([first], filled)
        if is_settled:
            return transaction.skipped(*_count(options, rows))
        if first is None:
            return transaction.empty()
        producer, rows = _meanwhile(place, transaction.begin(), partial(read_ahead, rows))
        if producer is None:
            return transaction.skipped(*_count(options, rows))
        try:
            sender = RowSender(producer, options.topic, task, is_summed=True)
            for count in pump(place, sender, rows):
                reached(Step.ROWS, rows=count)
            _end(place, transaction, sender)
            reached(Step.WRITTEN)
            report = place.call(transaction.prepare())
        # Spark ends a task by an exception of its own kind, or by a signal: its transaction is aborted at once.
        except BaseException:
            place.call(transaction.abandon())
            raise
    reached(Step.PREPARED)
    return report


@contextlib.contextmanager
def _clients(place: Worker, options: SinkOptions) -> Iterator[LedgerClients]:
    """Lend the clients of the ledger. An error of the body is told what the sink needs, beside what the client knows of it."""
    try:
        with place.lent_ledger_clients(_kafka(options)) as clients:
            yield clients
    except KafkaError as error:
        for code, remedy in _REMEDIES.items():
            if code in str(error):
                error.add_note(remedy.format(prefix=options.prefix, topic=options.ledger_topic))
        raise


def _meanwhile(
    place: Worker, coroutine: Coroutine[Any, Any, T], read: Callable[[Future[T]], R]
) -> tuple[T, R]:
    """Run a coroutine on the loop while this thread reads rows. Returns what each returned."""
    running = place.submit(coroutine)
    try:
        found = read(running)
    # Rows that cannot be read, or Spark's end of the task: nobody waits for what runs beside it.
    except BaseException:
        running.cancel()
        raise
    return place.wait(running), found


def _end(place: Worker, transaction: TaskTransaction, sender: RowSender) -> None:
    """Wait for the last rows, and send the mark: the transaction has all of them, or none.

    The mark goes beside the last rows only if the transaction has begun. A coordinator that adds a partition refuses to add the mark's group
    meanwhile, and the other way round. The mark is then sent again after a pause, and the brokers add the partition after 20 ms.
    """
    count = sender.count
    if not sender.has_acknowledged:
        place.call(sender.end())
        place.call(transaction.mark(count.rows, count.bytes, count.checksum))
        return
    marking = place.submit(transaction.mark(count.rows, count.bytes, count.checksum))
    try:
        # The error of a row says more than that of the transaction, which has failed with it.
        place.call(sender.end())
        place.wait(marking)
    finally:
        marking.cancel()


def _count(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> tuple[int, int, int]:
    """Return the number of rows, their bytes and their checksum, without sending them."""
    count = RowCount(options.topic, is_summed=True)
    for one in batches:
        count.add(one)
    return count.rows, count.bytes, count.checksum


def _kafka(options: SinkOptions) -> Mapping[str, str]:
    """Return Kafka's options, with a time-out of transactions."""
    if {"transaction.timeout.ms", "transaction_timeout_ms"} & options.kafka.keys():
        return options.kafka
    return {**options.kafka, "transaction.timeout.ms": str(_TIMEOUT_MS)}


def _ledger(options: SinkOptions, name: str, clients: LedgerClients, max_ends: int = 1) -> Ledger:
    topic = options.ledger_topic
    if topic is None:
        raise AssertionError("the options were checked")
    return Ledger(
        QueryName(name),
        topic,
        clients.config,
        clients.resolver,
        max_ends=max_ends,
        idle=clients.idle,
    )


def commit_messages(
    options: SinkOptions, batch: int, reports: Sequence[TaskReport], reached: Reached, max_ends: int
) -> None:
    """Decide and commit a batch, in a process of the driver.

    Args:
        reports: of all tasks; one of them has rows.

    Raises:
        KafkaError: as `commit_batch`.
    """
    place = worker()
    with _clients(place, options) as clients:
        place.call(
            commit_batch(
                _ledger(options, reports[0].name, clients, max_ends), batch, reports, reached
            )
        )


def abort_messages(
    options: SinkOptions, batch: int, reports: Sequence[TaskReport], max_ends: int
) -> None:
    """Abort what the tasks of a failed batch prepared, in a process of the driver. Errors of coordinators are logged.

    Args:
        reports: of the tasks that gave one.

    Raises:
        BootstrapFailed: no broker answered.
    """
    place = worker()
    with _clients(place, options) as clients:
        place.call(
            abort_batch(_ledger(options, reports[0].name, clients, max_ends), batch, reports)
        )
