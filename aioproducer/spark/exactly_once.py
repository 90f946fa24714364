"""Runs the protocol of exactly-once batches: the I/O of tasks and drivers, which `decisions` decides.

A task writes its rows and its mark in a transaction of its own, and leaves it open. The driver writes the decision, which is the point of
commit, and then ends all transactions. `ledger` says where mark and decision are; `ledger_client` reads and writes them.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from typing import TYPE_CHECKING, Protocol

from aioproducer.errors import KafkaError

from .decisions import (
    AnotherDriver,
    CheckpointTooOld,
    HalfCommitted,
    Lost,
    TaskReport,
    TaskState,
    decided_entry,
    has_rows,
    is_committed,
    judge,
    lost,
    not_decided,
    unsettled,
)
from .ledger import Mark, encode_mark
from .ledger_client import ABORT_SECONDS, Ledger, stop_producer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioproducer.model import PreparedTransaction
    from aioproducer.producer import Producer

    from .ledger import Decision

__all__ = [
    "AnotherDriver",
    "CheckpointTooOld",
    "HalfCommitted",
    "Ledger",
    "Lost",
    "Reached",
    "Step",
    "TaskReport",
    "TaskState",
    "TaskTransaction",
    "abort_batch",
    "commit_batch",
]

_logger = logging.getLogger(__name__)


class Step(enum.StrEnum):
    """Holds the steps of a task and of a driver, in order, at which tests inject faults."""

    START = "start"
    ROWS = "rows"
    WRITTEN = "written"
    PREPARED = "prepared"
    COMMIT = "commit"
    UNDECIDED = "undecided"
    DECIDED = "decided"
    ENDED = "ended"
    COMMITTED = "committed"


class Reached(Protocol):
    """Is called at each step. In the product it does nothing."""

    def __call__(self, step: Step, /, **where: int) -> None:
        """Handle a step; `where` has the batch, the task and the like."""


class TaskTransaction:
    """Runs the steps of one attempt of a task: `settled`, `begin`, `mark`, `prepare`.

    Args:
        ledger: of the query.
        batch: the number of the batch.
        task: the number of the task.
    """

    def __init__(self, ledger: Ledger, batch: int, task: int) -> None:
        self._ledger = ledger
        self._batch = batch
        self._task = task
        self._saw_decision = False
        self._producer: Producer | None = None
        self._mark: Mark | None = None

    async def settled(self) -> bool:
        """Commit what an earlier run decided. Returns whether the rows are committed: then they are only to be counted.

        Raises:
            CheckpointTooOld: a later batch is committed.
            KafkaError: a coordinator refuses or does not answer.
        """
        ledger = self._ledger
        decision = await ledger.decision(stable=False, since=self._batch)
        entry = decided_entry(ledger.name.text, decision, self._batch, self._task)
        self._saw_decision = decision is not None and decision.batch == self._batch
        return entry is not None and await ledger.commits(self._batch, self._task, entry) is None

    async def begin(self) -> Producer | None:
        """Abort and fence earlier attempts, and begin a transaction. Returns its producer; None: the mark says that the rows are committed.

        A task without rows does not call this: a transaction without records cannot be ended.

        Raises:
            CheckpointTooOld: a later batch is committed.
            KafkaError: the producer could not start.
        Cancellation: the producer is stopped.
        """
        ledger = self._ledger
        self._producer = producer = await ledger.producer(ledger.name.transactional_id(self._task))
        try:
            await producer.begin_transaction()
            # Only now no transaction of this task is open, so that the mark is final.
            mark = await ledger.mark(self._task, stable=True)
            if not is_committed(ledger.name.text, mark, self._batch):
                return producer
        # Cancelled at any await, the task leaves no producer and no open transaction.
        except BaseException:
            await self.abandon()
            raise
        await self.abandon()
        return None

    async def mark(self, rows: int, size: int, checksum: int) -> None:
        """Add the mark to the transaction. All records were queued, and the brokers may have acknowledged them or not.

        Args:
            rows: the number of rows that were sent.
            size: their bytes.
            checksum: the sum of their checksums.

        Raises:
            TransactionAbortable: a record or the mark was not written.
            KafkaError: the transaction failed.
        Cancellation: call `abandon`.
        """
        mark, ledger = Mark(self._batch, rows, size, checksum), self._ledger
        position = encode_mark(mark)
        await self._begun.send_position_to_transaction(
            ledger.name.mark_group(self._task), position.number, position.cursor, topic=ledger.topic
        )
        self._mark = mark

    async def prepare(self) -> TaskReport:
        """Wait for all records, and leave the transaction open for the driver. The producer is given back. `mark` comes before it.

        Raises:
            TransactionAbortable: a record was not written. The transaction is aborted.
            KafkaError: the transaction failed, and is aborted.
        Cancellation: the transaction is aborted.
        """
        producer, mark = self._begun, self._mark
        if mark is None:
            raise AssertionError("mark() comes first")
        try:
            prepared = await producer.prepare_transaction()
        # As in `begin`.
        except BaseException:
            await self.abandon()
            raise
        self._producer = None
        try:
            await self._ledger.keep(producer)
        # No report names what was prepared: nobody else would abort it before its time-out.
        except BaseException:
            await self._ledger.abandon(prepared)
            raise
        return self._report(TaskState.PREPARED, mark.rows, mark.bytes, mark.checksum, prepared)

    @property
    def _begun(self) -> Producer:
        if self._producer is None:
            raise AssertionError("begin() comes first")
        return self._producer

    def skipped(self, rows: int, size: int, checksum: int) -> TaskReport:
        """Return the report of a task that had committed its rows before."""
        return self._report(TaskState.SKIPPED, rows, size, checksum)

    def empty(self) -> TaskReport:
        """Return the report of a task without rows."""
        return self._report(TaskState.EMPTY)

    def _report(
        self,
        state: TaskState,
        rows: int = 0,
        size: int = 0,
        checksum: int = 0,
        prepared: PreparedTransaction | None = None,
    ) -> TaskReport:
        return TaskReport(
            state,
            self._task,
            rows,
            size,
            checksum,
            self._ledger.name.text,
            prepared,
            self._saw_decision,
        )

    async def abandon(self) -> None:
        """Abort the transaction if one is open, and stop the producer. Never raises an error of Kafka.

        Cancellation: the next attempt of the task aborts the transaction.
        """
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_producer(producer)


def _ignore(_step: Step, /, **_where: int) -> None:
    """Do nothing with a step."""


async def commit_batch(
    ledger: Ledger, batch: int, reports: Sequence[TaskReport], reached: Reached = _ignore
) -> None:
    """Decide a batch and commit the transactions of all its tasks.

    Args:
        ledger: of the query.
        batch: the number of the batch.
        reports: of all tasks, in order.
        reached: is called at each step.

    Raises:
        HalfCommitted: an earlier run committed some tasks, and this one is not the same.
        Lost: transactions were ended before they could be committed.
        AnotherDriver: another driver with the same name is ahead.
        KafkaError: a coordinator refuses or does not answer. The next run goes on where this one stopped.
    Cancellation: as after a death of the driver, the next run goes on.
    """
    reached(Step.COMMIT, batch=batch)
    if not has_rows(reports):
        return
    async with ledger.lock() as driver:
        decision = await ledger.decision(stable=True)
        committed = await _committed(ledger, decision, batch, reports)
        verdict = judge(ledger.name.text, decision, batch, reports, committed)
        await ledger.abort(verdict.aborts)
        if verdict.decision is None:
            return
        reached(Step.UNDECIDED, batch=batch)
        await ledger.decide(driver, verdict.decision)
    reached(Step.DECIDED, batch=batch)
    await _end(ledger, verdict.decision, verdict.commits, reached)
    reached(Step.COMMITTED, batch=batch)


async def _committed(
    ledger: Ledger, decision: Decision | None, batch: int, reports: Sequence[TaskReport]
) -> set[int]:
    """Return the tasks that have committed the batch, after an attempt to commit all that an earlier run decided."""
    committed = {report.task for report in reports if report.state is TaskState.SKIPPED}
    if decision is None:
        return committed

    async def one(task: int) -> None:
        entry = decision.entry(task)
        if entry is not None and await ledger.commits(batch, task, entry) is None:
            committed.add(task)

    await ledger.each(one, unsettled(decision, batch, reports))
    return committed


async def _end(ledger: Ledger, decision: Decision, tasks: Iterable[int], reached: Reached) -> None:
    """Commit decided transactions. One that fails does not keep the others from their end.

    Raises:
        Lost: some were ended before.
        KafkaError: the first error of a coordinator that says nothing of its transaction.
    """
    refusals: dict[int, str] = {}
    errors: list[KafkaError] = []
    number = 0

    async def one(task: int) -> None:
        nonlocal number
        entry = decision.entry(task)
        if entry is None:
            raise AssertionError(f"task {task} has no transaction")
        try:
            refusal = await ledger.commits(decision.batch, task, entry)
        except KafkaError as error:
            errors.append(error)
            return
        if refusal is not None:
            refusals[task] = refusal
        number += 1
        reached(Step.ENDED, batch=decision.batch, task=task, number=number)

    await ledger.each(one, tasks)
    if refusals:
        raise lost(ledger.name.text, decision.batch, refusals, ledger.config.transaction_timeout_ms)
    if errors:
        raise errors[0]


async def abort_batch(ledger: Ledger, batch: int, reports: Sequence[TaskReport | None]) -> None:
    """Abort the transactions that the tasks of a failed batch prepared, except those that were decided. Errors are logged.

    Spark calls this also after a commit that raised. The next run commits what was decided.

    Args:
        ledger: of the query.
        batch: the number of the batch.
        reports: of the tasks; None for a task that gave none.
    Cancellation: the rest is aborted by the next attempts or by the time-out.
    """
    if all(report is None or report.prepared is None for report in reports):
        return
    try:
        async with asyncio.timeout(ABORT_SECONDS):
            decision = await ledger.decision(stable=True)
            await ledger.abort(not_decided(decision, batch, reports))
    except (KafkaError, TimeoutError) as error:
        _logger.warning(
            "transactions of batch %d of %r stay open until the next run or their time-out: %s",
            batch,
            ledger.name.text,
            error,
        )
