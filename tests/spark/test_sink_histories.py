"""Histories of exactly-once batches: a slice of them, each single death, and the model that most of them run on against the fake cluster.

`python -m tests.tools.sink_histories --seeds 1-100000` runs more.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import KafkaError, TransactionResolver
from aioproducer.spark.exactly_once import Ledger
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import run_jumping
from tests.tools.sink_histories.history import NAME, TOPIC, History, run_history
from tests.tools.sink_histories.model import Model
from tests.tools.sink_histories.on_fake import FakeClients, run_on_fake
from tests.tools.sink_histories.on_model import ModelClients, run_on_model
from tests.tools.sink_histories.plan import Fault, Layout, Life, Plan, Row
from tests.tools.sink_histories.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioproducer.model import PreparedTransaction

TWO, SWAPPED, THREE = Layout(2, 1, 0), Layout(2, 1, 1), Layout(3, 1, 0)
# A driver of two tasks makes 22 steps.
MAX_STEPS = 26


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    # The level is as before when the test ends.
    caplog.set_level(logging.ERROR, "aioproducer")


def planned(*lives: Life, version: int = 2, marker_delay: float = 0.0) -> Plan:
    return Plan(1, version, 2, 4, marker_delay, 0.0, 24, 1, lives)


def run_plan(plan: Plan) -> History:
    """Run it on the model. It must be right."""
    history = History(plan)

    async def main() -> None:
        model = Model(plan.version, random.Random(1), plan.marker_delay)
        await run_history(history, ModelClients(model))

    run_jumping(main())
    assert history.violations == [], plan
    return history


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("then", [TWO, SWAPPED, THREE], ids=["alike", "swapped", "three"])
@pytest.mark.parametrize("pause", [1.0, 100.0], ids=["soon", "late"])
def test_a_driver_dies_at_each_step(version: int, then: Layout, pause: float) -> None:
    """The next run has the same tasks, the rows of the tasks swapped, or another number of tasks; before the time-outs, or after them."""
    refusals = 0
    for step in range(1, MAX_STEPS):
        lives = Life(TWO, driver=Fault(dies_at=step), pause=pause), Life(then)
        history = run_plan(planned(*lives, version=version, marker_delay=2.0 if step % 2 else 0.0))
        refusals += history.counts["HalfCommitted"]
    # Only one that was half committed, and too late, is refused; and its words are then followed.
    assert (refusals > 0) is (pause > 60.0 and then != TWO)


@pytest.mark.parametrize("then", [TWO, THREE], ids=["alike", "three"])
def test_a_driver_stands_still_at_each_step(then: Layout) -> None:
    """The next one begins beside it, and either is first."""
    for step in range(1, MAX_STEPS):
        for stands in (3.0, 90.0):
            run_plan(
                planned(
                    Life(TWO, driver=Fault(stands_at=step, stands=stands), patience=2.0, pause=0.1),
                    Life(then, patience=400.0),
                )
            )


@pytest.mark.parametrize("kind", ["dies_at", "stands_at"])
def test_an_attempt_ends_at_each_step(kind: str) -> None:
    """The first attempt of a task, in a run that is the first, and in one that is the second after a driver that decided."""
    for step in range(1, 22):
        fault = Fault(**{kind: step}, stands=90.0 if kind == "stands_at" else 0.0)  # type: ignore[arg-type]
        run_plan(planned(Life(TWO, attempts={(0, 0): fault}, patience=2.0)))
        run_plan(
            planned(
                Life(TWO, driver=Fault(dies_at=16)),
                Life(TWO, attempts={(1, 0): fault}, patience=2.0),
            )
        )


def test_a_slice_on_the_model() -> None:
    wrong = [
        (history.plan.seed, history.violations)
        for history in map(run_on_model, range(1, 300))
        if history.violations
    ]
    assert wrong == []


def test_a_slice_on_the_fake() -> None:
    """With real producers and a real resolver."""
    wrong = [
        (history.plan.seed, history.violations)
        for history in map(run_on_fake, range(1, 14))
        if history.violations
    ]
    assert wrong == []


@pytest.mark.parametrize("run", [run_on_model, run_on_fake])
def test_a_seed_is_one_history(run: Callable[..., History]) -> None:
    """The same steps at the same times."""
    first: list[str] = []
    second: list[str] = []
    run(9, first)
    run(9, second)
    assert first == second
    assert len(first) > 20


def test_a_wrong_history_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the transaction's commit being asked for, rows are missing, and that is told."""

    async def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(Ledger, "commits", nothing)
    assert "is there 0 times" in str(run_on_model(1).violations)


# The model answers as the fake does


class Teller:
    """A ledger, and what makes its producers write."""

    def __init__(self, clients: Any) -> None:
        self.clients = clients
        self.ledger: Ledger = clients.make_ledger(Process(random.Random(1)), 1)

    async def begun(self, rows: int = 1) -> Any:
        """A producer with rows and a mark in an open transaction."""
        producer: Any = await self.ledger.producer(NAME.transactional_id(0))
        await producer.begin_transaction()
        await self.clients.write(producer, [Row(0, number) for number in range(rows)])
        await producer.send_position_to_transaction(NAME.mark_group(0), 1, "m1 1 1 1", topic=TOPIC)
        return producer

    async def prepared(self) -> PreparedTransaction:
        producer = await self.begun()
        found: PreparedTransaction = await producer.prepare_transaction()
        await producer.stop()
        return found

    async def answer(self, call: Awaitable[Any]) -> object:
        """What is returned, or the name of the error."""
        try:
            return await call
        except KafkaError as error:
            return getattr(error, "name", type(error).__name__)

    async def end(self, prepared: PreparedTransaction, *, is_commit: bool = True) -> object:
        resolver = self.ledger.resolver
        return await self.answer(
            resolver.commit(prepared) if is_commit else resolver.abort(prepared)
        )

    async def mark(self, *, stable: bool) -> object:
        return await self.answer(
            self.ledger.resolver.committed_offset(NAME.mark_group(0), TOPIC, stable=stable)
        )


async def committed_twice(teller: Teller) -> AsyncIterator[object]:
    one = await teller.prepared()
    yield one.version, await teller.mark(stable=False)
    yield await teller.end(one), await teller.end(one), await teller.mark(stable=True)
    yield await teller.end(one, is_commit=False)


async def aborted(teller: Teller) -> AsyncIterator[object]:
    one = await teller.prepared()
    yield (
        await teller.end(one, is_commit=False),
        await teller.end(one, is_commit=False),
        await teller.end(one),
    )
    yield await teller.mark(stable=True)


async def newer_attempt(teller: Teller) -> AsyncIterator[object]:
    """It aborts what is open; what was committed is fenced all the same."""
    one = await teller.prepared()
    two = await teller.prepared()
    yield two.producer_id == one.producer_id, two.epoch > one.epoch
    yield await teller.end(one), await teller.end(two), await teller.mark(stable=True)
    three = await teller.prepared()
    yield await teller.end(two), await teller.end(two, is_commit=False), await teller.end(three)


async def timed_out(teller: Teller) -> AsyncIterator[object]:
    one = await teller.prepared()
    await asyncio.sleep(61.0)
    yield (
        await teller.end(one),
        await teller.end(one, is_commit=False),
        await teller.mark(stable=True),
    )


async def fenced(teller: Teller) -> AsyncIterator[object]:
    """A producer that a newer one has fenced writes nothing, and a stop of it aborts nothing."""
    old = await teller.begun()
    new = await teller.begun()
    yield isinstance(await teller.answer(teller.clients.write(old, [Row(0, 5)])), str)
    await teller.answer(old.stop())
    yield await teller.end(await new.prepare_transaction())


async def expired_while_writing(teller: Teller) -> AsyncIterator[object]:
    producer = await teller.begun()
    await asyncio.sleep(61.0)
    yield (
        isinstance(await teller.answer(producer.prepare_transaction()), str)
        or await teller.end(await producer.prepare_transaction()) is not None
    )


async def stable_reads(teller: Teller) -> AsyncIterator[object]:
    """One waits for an open transaction, at most max_block_ms."""
    await teller.end(await teller.prepared())
    two = await teller.prepared()
    yield await teller.mark(stable=False)
    reading = asyncio.ensure_future(teller.mark(stable=True))
    await asyncio.sleep(1.0)
    yield reading.done()
    yield await teller.end(two, is_commit=False)
    yield await reading


async def stopped(teller: Teller) -> AsyncIterator[object]:
    """`stop` aborts what is not prepared."""
    producer = await teller.begun()
    await producer.stop()
    yield await teller.mark(stable=True)
    producer = await teller.begun()
    one = await producer.prepare_transaction()
    await producer.stop()
    yield await teller.end(one)


async def empty(teller: Teller) -> AsyncIterator[object]:
    producer: Any = await teller.ledger.producer(NAME.transactional_id(0))
    await producer.begin_transaction()
    yield await teller.answer(producer.prepare_transaction())


TALES = [
    committed_twice,
    aborted,
    newer_attempt,
    timed_out,
    fenced,
    expired_while_writing,
    stable_reads,
    stopped,
    empty,
]


async def told(tale: Callable[[Teller], Any], clients: Any) -> list[object]:
    answers = [answer async for answer in tale(Teller(clients))]
    await asyncio.sleep(100.0)
    return [*answers, sorted(await clients.committed())]


@pytest.mark.parametrize("marker_delay", [0.0, 2.0])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tale", TALES, ids=lambda tale: tale.__name__)
def test_the_model_answers_as_the_fake(
    tale: Callable[[Teller], Any], version: int, marker_delay: float
) -> None:
    async def on_model() -> list[object]:
        return await told(tale, ModelClients(Model(version, random.Random(1), marker_delay)))

    async def on_fake() -> list[object]:
        async with FakeCluster(memory=True, transaction_version=version) as cluster:
            cluster.create_topic(TOPIC)
            cluster.transactions.marker_delay = marker_delay
            async with TransactionResolver(
                bootstrap_servers=cluster.bootstrap_servers, dialer=cluster.network
            ) as resolver:
                clients = FakeClients(cluster, resolver, random.Random(1).random)
                try:
                    return await told(tale, clients)
                finally:
                    await clients.close()

    assert run_jumping(on_model()) == run_jumping(on_fake())
