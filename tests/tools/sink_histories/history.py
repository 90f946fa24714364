"""Runs one history: a small Spark that runs tasks, retries them, commits batches and is started again, on a cluster or on its model.

The rules that are checked at the end: each row of each batch is there exactly once for a reader of committed records; a batch is refused
only in words that, followed, end it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioproducer.errors import KafkaError
from aioproducer.spark import ledger as ledger_module
from aioproducer.spark.exactly_once import (
    AnotherDriver,
    CheckpointTooOld,
    HalfCommitted,
    Ledger,
    Step,
    TaskReport,
    TaskTransaction,
    abort_batch,
    commit_batch,
)
from aioproducer.spark.ledger import QueryName
from aioproducer.spark.ledger_client import IdleProducers
from tests.tools.sink_histories.plan import Life, Plan, Row, rows_of
from tests.tools.sink_histories.process import Death, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from tests.tools.sink_histories.plan import Fault, Layout

__all__ = ["BYTES", "MAX_IDLE", "AdoptedProducers", "Clients", "History", "run_history"]

NAME: Final = QueryName("spark-q")
TOPIC: Final = "orders"
BYTES: Final = 100
MAX_IDLE: Final = 4
_ATTEMPTS: Final = 3
_QUIET_LIVES: Final = 14
_LAST_SECONDS: Final = 120.0
"""Until every transaction that is left open has timed out: readers of committed records wait for it."""


class Clients(Protocol):
    """What a history runs on."""

    def make_ledger(self, process: Process, max_ends: int) -> Ledger:
        """The ledger as one process has it."""

    async def write(self, producer: Any, rows: Iterable[Row]) -> None:
        """Send rows, and wait until they are acknowledged."""

    async def committed(self) -> list[Row]:
        """The rows that a reader of committed records has."""


class AdoptedProducers(IdleProducers):
    """The idle producers of some Python processes, as one part of a history has them: a producer that it takes dies with it.

    A part that is dead gives none back.
    """

    def __init__(self, whole: IdleProducers, process: Process) -> None:
        super().__init__()
        self._whole = whole
        self._process = process

    def take(self, timeout_ms: float) -> Any:
        producer: Any = self._whole.take(timeout_ms)
        if producer is not None:
            producer.process = self._process
        return producer

    async def keep(self, producer: Any) -> None:
        self._process.here()
        await self._whole.keep(producer)


class _Failed(Exception):
    """A life of the query ended, as Spark ends it."""


@dataclass
class History:
    """What happened."""

    plan: Plan
    log: list[str] | None = None
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class _Query:
    """The checkpoint, the layouts that were tried, and the processes that may still run."""

    def __init__(self, history: History, clients: Clients, rng: random.Random) -> None:
        self.history = history
        self.plan = history.plan
        self.clients = clients
        self.rng = rng
        self.next = 0
        self.layouts: list[Layout] = []
        self.background: set[asyncio.Task[Any]] = set()
        self.refused: str = ""
        self.lives = 0

    def process(self, name: str, fault: Fault | None = None) -> Process:
        words = {} if fault is None else fault._asdict()
        return Process(self.rng, name=name, log=self.history.log, **words)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Look at its error, as no code awaits the task of such a process."""
        self.background.discard(task)
        if not task.cancelled():
            task.exception()

    async def life(self, life: Life, number: int) -> None:
        """Batches, until one fails or all are done. _Failed and Death: why it ended."""
        while self.next < self.plan.batches:
            batch = self.next
            if life.layout not in self.layouts:
                self.layouts.append(life.layout)
            await self._batch(life, batch, f"life {number} batch {batch}")
            if self.next != batch:
                raise _Failed("another query has written this batch to the checkpoint")
            self.next = batch + 1
            self.refused = ""

    async def _batch(self, life: Life, batch: int, name: str) -> None:
        tasks = [
            self.spawn(self._task(life, batch, task, name)) for task in range(life.layout.tasks)
        ]
        running = asyncio.gather(*tasks, return_exceptions=True)
        if life.dies_after:
            done, _ = await asyncio.wait([running], timeout=life.dies_after)
            if not done:
                raise Death(name)
        reports = [None if isinstance(one, BaseException) else one for one in await running]
        try:
            if None in reports:
                raise _Failed("a task failed three times")
            await self._call(
                commit_batch, self.process(f"{name} commit", life.driver), batch, reports
            )
        except Death:
            raise
        except Exception as error:
            self._told(error, name)
            await self._call(
                abort_batch, self.process(f"{name} abort", life.aborts), batch, reports
            )
            raise _Failed(str(error)) from error

    def _told(self, error: Exception, name: str) -> None:
        self.history.counts[type(error).__name__] += 1
        if self.history.log is not None:
            self.history.log.append(
                f"{asyncio.get_running_loop().time():10.3f} {name}: {type(error).__name__}: {error}"
            )
        if isinstance(error, HalfCommitted):
            self.refused = str(error)
        if not isinstance(error, (KafkaError, _Failed)):
            self.history.violations.append(f"{name}: not an error in words: {error!r}")

    async def _call(
        self,
        call: Callable[..., Any],
        process: Process,
        batch: int,
        reports: list[TaskReport | None],
    ) -> None:
        ledger = self.clients.make_ledger(process, self.plan.max_ends)
        extra = [self._reached(process)] if call is commit_batch else []
        await call(ledger, batch, reports, *extra)

    def _reached(self, process: Process) -> Callable[..., None]:
        def reached(step: Step, /, **where: int) -> None:
            process.note(f"{step} {where}")
            process.here()

        return reached

    async def _task(self, life: Life, batch: int, task: int, name: str) -> TaskReport:
        """Up to three attempts, and perhaps one beside the first. Those that come too late go on to their end."""
        rows = life.layout.rows(task, rows_of(batch, self.plan.rows))
        error: BaseException = _Failed("no attempt")
        for attempt in range(_ATTEMPTS):
            fault = (life.attempts or {}).get((task, attempt))
            process = self.process(f"{name} task {task} attempt {attempt}", fault)
            racing = {self.spawn(self._attempt(process, batch, task, rows))}
            if not attempt and task in life.twins:
                twin = self.process(f"{name} task {task} twin")
                racing.add(self.spawn(self._attempt(twin, batch, task, rows)))
            while racing:
                # Spark loses an executor that does not answer, and starts the task elsewhere.
                done, racing = await asyncio.wait(
                    racing, timeout=life.patience, return_when=asyncio.FIRST_COMPLETED
                )
                for one in sorted(done, key=id):
                    failed = one.exception()
                    if failed is None:
                        return one.result()
                    error = failed
                if not done:
                    break
        raise error

    async def _attempt(
        self, process: Process, batch: int, task: int, rows: list[Row]
    ) -> TaskReport:
        """What the writer does with a task, without Spark."""
        reached = self._reached(process)
        counts = (len(rows), len(rows) * BYTES, sum(row.checksum() for row in rows) % 2**64)
        reached(Step.START, batch=batch, task=task)
        transaction = TaskTransaction(self.clients.make_ledger(process, 1), batch, task)
        try:
            if await transaction.settled():
                return transaction.skipped(*counts)
            if not rows:
                return transaction.empty()
            producer = await transaction.begin()
            if producer is None:
                return transaction.skipped(*counts)
            for row in rows[:-1]:
                await self.clients.write(producer, [row])
                reached(Step.ROWS, batch=batch, task=task)
            marking = asyncio.ensure_future(transaction.mark(*counts))
            try:
                await self.clients.write(producer, rows[-1:])
                reached(Step.ROWS, batch=batch, task=task)
                await marking
            finally:
                marking.cancel()
                await asyncio.gather(marking, return_exceptions=True)
            reached(Step.WRITTEN, batch=batch, task=task)
            report = await transaction.prepare()
            reached(Step.PREPARED, batch=batch, task=task)
        except BaseException as error:
            process.note(f"{type(error).__name__}: {error}")
            await transaction.abandon()
            raise
        return report


async def _run_life(query: _Query, life: Life, patience: float) -> None:
    """One life, until it ends or its patience is over: then it goes on beside the next one."""
    query.lives += 1
    task = query.spawn(query.life(life, query.lives))
    done, _ = await asyncio.wait([task], timeout=patience)
    for one in done:
        error = one.exception()
        if error is not None and not isinstance(error, (_Failed, Death)):
            raise error


async def run_history(history: History, clients: Clients) -> None:
    """Run it, and write what is wrong into its `violations`."""
    plan = history.plan
    query = _Query(history, clients, random.Random(-plan.seed))
    before, ledger_module._CHUNK_BYTES = ledger_module._CHUNK_BYTES, plan.chunk
    try:
        for life in plan.lives:
            await _run_life(query, life, life.patience)
            await asyncio.sleep(life.pause)
        await _recover(query, plan)
        while query.background:
            await asyncio.wait(set(query.background))
        await asyncio.sleep(_LAST_SECONDS)
        _check(history, query, await clients.committed())
    finally:
        ledger_module._CHUNK_BYTES = before
        for task in query.background:
            task.cancel()
        await asyncio.gather(*query.background, return_exceptions=True)


async def _recover(query: _Query, plan: Plan) -> None:
    """Start the query until all batches are done: as it was last, or as the words of a refusal say, in each way that it ran before."""
    usual = plan.lives[-1].layout
    for number in range(_QUIET_LIVES):
        if query.next >= plan.batches:
            return
        layout = (
            query.layouts[number % len(query.layouts)] if query.refused and query.layouts else usual
        )
        await _run_life(query, Life(layout), 100_000.0)
        await asyncio.sleep(1.0)


def _check(history: History, query: _Query, committed: list[Row]) -> None:
    plan = history.plan
    if query.next < plan.batches:
        history.violations.append(
            f"batch {query.next} did not end: {query.refused or 'no refusal'}"
        )
    counts = Counter(committed)
    for batch in range(query.next):
        for row in rows_of(batch, plan.rows):
            if counts[row] != 1:
                history.violations.append(f"{row} is there {counts[row]} times")
    history.counts["lives"] += query.lives
    for error in (AnotherDriver, CheckpointTooOld):
        history.counts[error.__name__] += 0
