"""The protocol of tasks and drivers on a fake cluster, without Spark: each step in its place, and what each refusal means."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping

from aioproducer import (
    BrokerError,
    KafkaError,
    TransactionResolver,
    TransactionTimeout,
)
from aioproducer.spark import ledger as ledger_module
from aioproducer.spark.decisions import (
    CheckpointTooOld,
    HalfCommitted,
    Lost,
    TaskReport,
    TaskState,
)
from aioproducer.spark.exactly_once import Ledger, Step, TaskTransaction, abort_batch, commit_batch
from aioproducer.spark.ledger import LedgerError
from aioproducer.testing import FakeCluster
from tests.tools.sink_histories.history import NAME, TOPIC
from tests.tools.sink_histories.on_fake import FakeClients
from tests.tools.sink_histories.plan import Row
from tests.tools.sink_histories.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

VERSIONS = pytest.mark.parametrize("version", [1, 2])


class Place:
    """A fake cluster, and tasks and drivers of one query on it."""

    def __init__(self, cluster: FakeCluster, clients: FakeClients) -> None:
        self.cluster = cluster
        self.clients = clients
        self.steps: list[tuple[str, int]] = []

    def ledger(self, process: Process | None = None, max_ends: int = 1) -> Ledger:
        return self.clients.make_ledger(process or Process(random.Random(1)), max_ends)

    async def task(
        self, batch: int, task: int, rows: int = 2, process: Process | None = None
    ) -> TaskReport:
        """What the writer does."""
        transaction = TaskTransaction(self.ledger(process), batch, task)
        counts = (rows, rows * 100, 7 + task)
        if await transaction.settled():
            return transaction.skipped(*counts)
        if not rows:
            return transaction.empty()
        try:
            producer = await transaction.begin()
            if producer is None:
                return transaction.skipped(*counts)
            await self.clients.write(
                producer, [Row(batch, 10 * task + number) for number in range(rows)]
            )
            await transaction.mark(*counts)
            return await transaction.prepare()
        except BaseException:
            await transaction.abandon()
            raise

    async def tasks(self, batch: int, *rows: int) -> list[TaskReport]:
        return [await self.task(batch, task, count) for task, count in enumerate(rows)]

    async def commit(
        self,
        batch: int,
        reports: list[TaskReport],
        process: Process | None = None,
        max_ends: int = 1,
    ) -> None:
        await commit_batch(self.ledger(process, max_ends), batch, reports, self.reached)

    async def abort(self, batch: int, reports: list[TaskReport | None]) -> None:
        await abort_batch(self.ledger(), batch, reports)

    def reached(self, step: Step, /, **where: int) -> None:
        self.steps.append((step, where.get("number", where["batch"])))

    def rows(self) -> list[tuple[int, int]]:
        """What a reader of committed records has."""
        return sorted(map(tuple, self.clients.rows("read_committed")))  # type: ignore[arg-type]

    def state(self, task: int) -> str:
        return self.cluster.transactions[NAME.transactional_id(task)].state.value

    def asked(self, api: str) -> int:
        return len(self.cluster.requests(api))


@asynccontextmanager
async def placed(version: int = 2) -> AsyncIterator[Place]:
    async with FakeCluster(memory=True, transaction_version=version) as cluster:
        cluster.create_topic(TOPIC, partitions=2)
        chance = random.Random(1).random
        async with TransactionResolver(
            bootstrap_servers=cluster.bootstrap_servers, dialer=cluster.network, chance=chance
        ) as resolver:
            clients = FakeClients(cluster, resolver, chance)
            try:
                yield Place(cluster, clients)
            finally:
                await clients.close()
        assert cluster.violations == []


def rows_of(batch: int, *tasks: int) -> list[tuple[int, int]]:
    """Two rows of each task."""
    return sorted((batch, 10 * task + number) for task in tasks for number in (0, 1))


@jumping
async def test_no_rows_of_a_batch_that_is_half_committed() -> None:
    """Tasks that saw a decision and have no rows now: the batch is not over."""
    async with placed() as place:
        await place.commit(0, await place.tasks(0, 2, 2))
        place.cluster.fail("EndTxn", "INVALID_TXN_STATE")  # the first to be ended is lost
        place.cluster.groups[NAME.mark_group(0)].offsets.clear()
        reports = [await place.task(0, task, 0) for task in (2, 3)]
        assert [report.saw_decision for report in reports] == [True, True]
        with pytest.raises(HalfCommitted, match="task 0 of 2"):
            await place.commit(0, reports)


@VERSIONS
@jumping
async def test_the_mark_is_read_when_nothing_is_open(version: int) -> None:
    """A commit that has not written its markers yet: the next attempt waits for them, and sees the mark."""
    async with placed(version) as place:
        reports = await place.tasks(0, 2)
        place.cluster.transactions.marker_delay = 2.0
        await place.clients.resolver.commit(reports[0].prepared)  # type: ignore[arg-type]
        assert await place.ledger().mark(0, stable=False) is None
        assert await TaskTransaction(place.ledger(), 0, 0).begin() is None


@jumping
async def test_an_open_transaction_of_an_older_attempt_blocks_nothing() -> None:
    """A stable read before the new producer id would wait until that transaction times out."""
    async with placed() as place:
        await place.tasks(0, 2)
        before = asyncio.get_running_loop().time()
        assert (await place.task(0, 0)).state is TaskState.PREPARED
        assert asyncio.get_running_loop().time() - before < 1.0


@jumping
async def test_a_mark_of_a_later_batch_refuses_a_task() -> None:
    """The decision was forgotten, the mark was not."""
    async with placed() as place:
        await place.commit(4, await place.tasks(4, 2))
        place.cluster.groups[NAME.decision_group()].offsets.clear()
        with pytest.raises(CheckpointTooOld, match="is at batch 4, and Spark runs batch 3"):
            await place.task(3, 0)
        assert place.state(0) != "Ongoing"


@VERSIONS
@jumping
async def test_a_transaction_that_timed_out_is_lost_and_written_again(version: int) -> None:
    """Each is asked for once: a definite refusal is not tried again. The others are committed all the same."""
    async with placed(version) as place:
        reports = await place.tasks(0, 2)
        await asyncio.sleep(61.0)
        reports += [await place.task(0, 1)]
        before = place.asked("EndTxn")
        with pytest.raises(
            Lost, match=r"task 0 were ended .*transaction.timeout.ms=60000.*spark.speculation"
        ):
            await place.commit(0, reports)
        assert place.asked("EndTxn") - before == 3  # the decision's, and one each
        assert place.rows() == rows_of(0, 1)
        await place.abort(0, list(reports))
        again = await place.tasks(0, 2, 2)
        assert [report.state for report in again] == ["prepared", "skipped"]
        await place.commit(0, again)
        assert place.rows() == rows_of(0, 0, 1)


@VERSIONS
@jumping
async def test_a_fenced_transaction_may_be_committed(version: int) -> None:
    """A newer attempt has asked for a producer id since: the mark says which."""
    async with placed(version) as place:
        for batch, is_commit in ((0, True), (1, False)):
            (report,) = await place.tasks(batch, 2)
            assert report.prepared is not None
            await (place.clients.resolver.commit if is_commit else place.clients.resolver.abort)(
                report.prepared
            )
            assert (await TaskTransaction(place.ledger(), batch, 0).begin() is None) is is_commit
            entry = ledger_module.Entry(report.prepared, report.rows, report.bytes, report.checksum)
            assert await place.ledger().commits(batch, 0, entry) == (
                None if is_commit else "PRODUCER_FENCED"
            )


@VERSIONS
@jumping
async def test_a_mark_of_a_later_decision_is_not_that_of_this_one(version: int) -> None:
    """A driver stands still after its decision until it timed out; the next one decides for other tasks, and dies half way.

    The first wakes up: task 0 is committed, but not with its rows, so its batch is not over.
    """
    async with placed(version) as place:
        reports = await place.tasks(0, 4)

        async def next_driver() -> None:
            await asyncio.sleep(61.0)
            later = await place.tasks(0, 2, 2)
            ledger = place.ledger()
            async with ledger.lock() as driver:
                entries = [
                    ledger_module.Entry(one.prepared, one.rows, one.bytes, one.checksum)
                    for one in later
                    if one.prepared
                ]
                await ledger.decide(driver, ledger_module.Decision(0, tuple(entries)))
            await place.clients.resolver.commit(entries[0].prepared)
            await asyncio.sleep(61.0)

        ledger = place.ledger()
        stands_still = ledger.decide

        class Slow(type(ledger)):  # type: ignore[misc]
            async def decide(self, driver: Any, decision: ledger_module.Decision) -> None:
                await stands_still(driver, decision)
                await next_driver()

        slow = Slow(
            ledger.name, ledger.topic, ledger.config, ledger.resolver, ledger.make_producer, 1
        )
        with pytest.raises(Lost, match="task 0 were ended"):
            await commit_batch(slow, 0, reports)
        with pytest.raises(HalfCommitted, match="run it with 2 once"):
            await place.commit(0, await place.tasks(0, 4))
        await place.commit(0, await place.tasks(0, 2, 2))
        assert place.rows() == rows_of(0, 0, 1)


@jumping
async def test_a_refusal_that_says_nothing_of_the_transaction_is_an_error() -> None:
    """A permission that is missing: the transaction may still be committed, and the next run does so."""
    async with placed() as place:
        reports = await place.tasks(0, 2, 2)
        place.reached = lambda step, /, **_where: (  # type: ignore[method-assign]
            place.cluster.fail("EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
            if step == "decided"
            else None
        )
        with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await place.commit(0, reports)
        assert (place.state(0), place.state(1)) == ("Ongoing", "CompleteCommit")
        assert (await place.task(0, 0)).state is TaskState.SKIPPED
        assert place.rows() == rows_of(0, 0, 1)


@jumping
async def test_offsets_of_others_are_refused() -> None:
    """A consumer that happens to have the name of the query's group."""
    async with placed() as place:
        producer = await place.ledger().producer("other")
        async with producer.whole.transaction():  # type: ignore[attr-defined]
            await producer.send_position_to_transaction(
                NAME.decision_group(), 7, "page 3", topic=TOPIC
            )
            await producer.send_position_to_transaction(
                NAME.mark_group(0), 7, "page 3", topic=TOPIC
            )
        with pytest.raises(
            LedgerError, match="'spark-q-driver' has offset 7 with metadata 'page 3'"
        ):
            await place.task(0, 0)
        with pytest.raises(LedgerError, match="'spark-q-0' has offset 7 with metadata 'page 3'"):
            await TaskTransaction(place.ledger(), 0, 0).begin()


@jumping
async def test_a_chain_of_groups_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision of many groups. One that lacks a group, and stays so, is an error in words."""
    monkeypatch.setattr(ledger_module, "_CHUNK_BYTES", 8)
    async with placed() as place:
        await place.commit(0, await place.tasks(0, 2, 2, 2))
        decision = await place.ledger().decision(stable=False)
        assert decision is not None
        assert [entry and entry.rows for entry in decision.entries] == [2, 2, 2]
        place.cluster.groups[NAME.decision_group(3)].offsets.clear()
        with pytest.raises(LedgerError, match="the decision of 'spark-q' is not whole"):
            await place.task(0, 0)


@jumping
async def test_ends_run_at_the_same_time() -> None:
    """As many as are allowed, and one error ends the others."""
    async with placed() as place:
        running: list[int] = []
        most = 0

        async def call(number: int) -> None:
            nonlocal most
            running.append(number)
            most = max(most, len(running))
            try:
                await asyncio.sleep(1.0)
                if number == 7:
                    raise KafkaError("the seventh")
            finally:
                running.remove(number)

        await place.ledger(max_ends=5).each(call, range(7))
        assert (most, running) == (5, [])
        with pytest.raises(KafkaError, match="the seventh"):
            await place.ledger(max_ends=5).each(call, range(5, 30))
        assert running == []


class Cancelled(Process):
    """Cancels the task that runs it, at a step."""

    def __init__(self, at: int) -> None:
        super().__init__(random.Random(1))
        self.at = at

    async def step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
        await asyncio.sleep(0)


@VERSIONS
@jumping
async def test_a_task_that_is_cancelled_leaves_nothing_open(version: int) -> None:
    """At each await: the transaction is aborted, and the next attempt writes."""
    async with placed(version) as place:
        for at in range(1, 100):
            task = asyncio.ensure_future(place.task(at, 0, process=Cancelled(at)))
            await asyncio.wait([task])
            if not task.cancelled():
                break
            assert (
                NAME.transactional_id(0) not in place.cluster.transactions
                or place.state(0) != "Ongoing"
            )
            await place.commit(at, await place.tasks(at, 2))
        assert at > 15
        assert place.rows() == sorted(row for batch in range(1, at) for row in rows_of(batch, 0))


@VERSIONS
@jumping
async def test_a_driver_that_is_cancelled_is_followed_by_the_next(version: int) -> None:
    """At each await: the next run of the batch commits it."""
    async with placed(version) as place:
        for at in range(1, 100):
            task = asyncio.ensure_future(
                place.commit(at, await place.tasks(at, 2, 2), Cancelled(at), 64)
            )
            await asyncio.wait([task])
            if not task.cancelled():
                break
            await place.commit(at, await place.tasks(at, 2, 2))
        assert at > 12
        assert place.rows() == sorted(
            row for batch in range(1, at + 1) for row in rows_of(batch, 0, 1)
        )


@jumping
async def test_an_abort_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It is only a courtesy to readers: the next run or the time-out ends the transactions. It takes ten seconds at most."""
    async with placed() as place:
        reports = await place.tasks(0, 2)
        for broker in place.cluster.brokers.values():
            await broker.stop()
        began = asyncio.get_running_loop().time()
        await place.abort(0, [*reports])
        assert asyncio.get_running_loop().time() - began < 11.0
        assert (
            "transactions of batch 0 of 'spark-q' stay open until the next run or their time-out"
            in caplog.text
        )


@jumping
async def test_a_coordinator_that_does_not_answer_ends_the_commit_in_time() -> None:
    """After max_block_ms, with the other transactions committed; the next run goes on."""
    async with placed() as place:
        reports = await place.tasks(0, 2, 2)
        place.reached = lambda step, /, **_where: (  # type: ignore[method-assign]
            place.cluster.fail("EndTxn", "CONCURRENT_TRANSACTIONS", times=None)
            if step == "decided"
            else None
        )
        with pytest.raises(TransactionTimeout):
            await place.commit(0, reports, max_ends=2)
