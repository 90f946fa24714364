"""Row 74: cancellation at every await of a transaction's calls, once and twice; and bodies that end badly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from loops import KIND
from whole import jumping, turns

from aioproducer import (
    Producer,
    ProducerClosed,
    TransactionAbortable,
    TransactionError,
    TransactionMisuse,
    TransactionTimeout,
)
from tests.scenarios.test_transactions import VERSIONS, cluster_of, committed, transactional

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer.testing import FakeCluster

_MOST_TURNS = 400


async def send_both(producer: Producer[Any, Any]) -> None:
    await producer.send("orders", b"v", partition=0)
    await producer.send("orders", b"v", partition=1)


async def add_offsets(producer: Producer[Any, Any]) -> None:
    await producer.send_offsets_to_transaction({("payments", 0): 7}, "group")


async def prepare(producer: Producer[Any, Any]) -> None:
    await producer.prepare_transaction()


async def whole(producer: Producer[Any, Any]) -> None:
    async with producer.transaction():
        await send_both(producer)
        await add_offsets(producer)


async def before_nothing(_producer: Producer[Any, Any]) -> None:
    """Leave no transaction open."""


async def before_end(producer: Producer[Any, Any]) -> None:
    await producer.begin_transaction()
    await send_both(producer)
    await add_offsets(producer)


CALLS: dict[
    str,
    tuple[
        Callable[[Producer[Any, Any]], Awaitable[None]],
        Callable[[Producer[Any, Any]], Awaitable[None]],
    ],
] = {
    "begin": (before_nothing, lambda producer: producer.begin_transaction()),
    "prepare": (before_end, prepare),
    "commit": (before_end, lambda producer: producer.commit_transaction()),
    "abort": (before_end, lambda producer: producer.abort_transaction()),
    "offsets": (lambda producer: producer.begin_transaction(), add_offsets),
    "transaction": (before_nothing, whole),
}


def seen(cluster: FakeCluster) -> tuple[int, bool]:
    """Return the number of visible records, and whether the offsets are committed."""
    return len(committed(cluster)), cluster.committed("group") == {("payments", 0): 7}


async def settle(producer: Producer[Any, Any]) -> None:
    """Abort after a cancellation, as a careful program does. If it is too late for that, wait for the commit's result."""
    try:
        await producer.abort_transaction()
    except TransactionMisuse as misuse:
        if "cannot be taken back" in str(misuse):
            await producer.commit_transaction()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("call", CALLS)
@VERSIONS
@jumping
async def test_cancelled_at_every_turn(version: int, call: str, times: int) -> None:
    """The cancelled task ends at once. The transaction is visible as a whole or not at all, and the producer continues."""
    before_call, run = CALLS[call]
    outcomes = set()
    for after in range(0, _MOST_TURNS, times):
        async with transactional(version) as (cluster, producer):
            await before_call(producer)
            task = asyncio.ensure_future(run(producer))
            await turns(after)
            for _ in range(times):
                task.cancel()
                await turns(1)
            [done] = await asyncio.gather(task, return_exceptions=True)
            await settle(producer)
            outcomes.add((isinstance(done, asyncio.CancelledError), *seen(cluster)))
            assert seen(cluster) in {(0, False), (2, True)}
            if done is None and call in ("commit", "transaction"):
                assert seen(cluster) == (2, True)
            before = seen(cluster)[0]
            await whole(producer)
            assert seen(cluster) == (before + 2, True)
        if done is None:
            break
    assert done is None
    # `begin` waits for nothing, and an eager commit sends its request at once
    if call != "begin" and not (call == "commit" and KIND == "eager"):
        assert (True, 0, False) in outcomes
    if call == "transaction" and version == 1:
        assert (True, 2, True) in outcomes  # the request of the commit was in flight


@VERSIONS
@jumping
async def test_a_cancelled_body(version: int) -> None:
    """The first cancellation waits for the abort of the transaction, and a second one does not."""
    async with transactional(version) as (cluster, producer):
        entered = asyncio.Event()

        async def body() -> None:
            async with producer.transaction():
                await producer.send_and_wait("orders", b"lost", partition=0)
                entered.set()
                await asyncio.sleep(1_000)

        hang = cluster.hang("EndTxn", times=1)
        task = asyncio.create_task(body())
        await entered.wait()
        for _ in range(2):
            assert not task.done()
            task.cancel()
            await turns(5)
        with pytest.raises(asyncio.CancelledError):
            await task
        hang.release()
        await producer.abort_transaction()
        assert committed(cluster) == []


@VERSIONS
@jumping
async def test_an_abort_that_nobody_answers_is_bounded(version: int) -> None:
    """The block waits at most max_block_ms for the abort and raises the body's own exception. The abort continues."""
    async with transactional(version, max_block_ms=2_000) as (cluster, producer):
        hang = cluster.hang("EndTxn", times=1)
        began = asyncio.get_running_loop().time()
        with pytest.raises(LookupError):
            async with producer.transaction():
                await producer.send_and_wait("orders", b"lost", partition=0)
                raise LookupError
        assert 1.9 < asyncio.get_running_loop().time() - began < 2.2
        with pytest.raises(TransactionMisuse, match=r"call abort_transaction\(\) again"):
            await producer.begin_transaction()
        hang.release()
        await producer.abort_transaction()
        assert committed(cluster) == []


@VERSIONS
@jumping
async def test_a_commit_within_the_context_that_takes_too_long(version: int) -> None:
    """A commit that times out before its request is sent is aborted, and the error says so. A sent one continues, and the
    caller can wait for it.
    """
    async with transactional(version, max_block_ms=2_000) as (cluster, producer):
        cluster.delay("Produce", 3.0, times=1)
        with pytest.raises(
            TransactionAbortable,
            match=r"commit_transaction\(\) did not end.*records of it have not ended",
        ):
            async with producer.transaction():
                await producer.send("orders", b"lost", partition=0)
        async with producer.transaction():
            await producer.send("orders", b"kept", partition=0)
        cluster.delay("EndTxn", 3.0, times=1)
        with pytest.raises(TransactionTimeout, match="is not answered"):
            async with producer.transaction():
                await producer.send("orders", b"late", partition=0)
        await producer.commit_transaction()
        assert committed(cluster) == [b"kept", b"late"]


@VERSIONS
@jumping
async def test_a_scope_of_anyio(version: int) -> None:
    """The scope cancels again at each await, but it does not cancel the abort (as under Starlette or FastAPI)."""
    async with transactional(version) as (cluster, producer):
        cluster.delay("EndTxn", 0.5, times=1)
        with anyio.move_on_after(1):
            async with producer.transaction():
                await producer.send_and_wait("orders", b"lost", partition=0)
                await anyio.sleep(100)
        async with producer.transaction():
            await producer.send("orders", b"kept", partition=0)
        assert committed(cluster) == [b"kept"]


@VERSIONS
@jumping
async def test_stop_while_a_transaction_is_open_elsewhere(version: int) -> None:
    """A task that waits for the transaction's end gets an error at `stop`, and no task hangs."""
    async with transactional(version, close_timeout_ms=1_000) as (cluster, producer):
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"v", partition=0)
        hang = cluster.hang("EndTxn")
        committing = asyncio.create_task(producer.commit_transaction())
        await cluster.seen("EndTxn")
        await producer.stop()
        [error] = await asyncio.gather(committing, return_exceptions=True)
        assert "stopped" in str(error)
        hang.release()


@VERSIONS
@jumping
async def test_stop_is_bounded_with_a_transaction_open(version: int) -> None:
    """`stop` ends after close_timeout_ms, whether the coordinator responds or not. Records without a response fail."""
    async with transactional(version, close_timeout_ms=1_000) as (cluster, producer):
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"v", partition=0)
        hang = cluster.hang("Produce")
        delivery = await producer.send("orders", b"w", partition=0)
        await cluster.seen("Produce", 2)
        began = asyncio.get_running_loop().time()
        await producer.stop()
        assert 0.9 < asyncio.get_running_loop().time() - began < 1.1
        assert (await asyncio.gather(delivery, return_exceptions=True))[0].persisted == "maybe"  # type: ignore[union-attr]
        hang.release()


@VERSIONS
@jumping
async def test_cancelled_while_there_is_no_producer_id(version: int) -> None:
    """The cancelled `begin_transaction` opens no transaction, and the next call does."""
    async with cluster_of(version) as cluster:
        hang = cluster.hang("InitProducerId", times=1)
        producer: Producer[Any, Any] = Producer(**cluster.client_options, transactional_id="tx")
        await producer.start(wait=False)
        for begin in (producer.begin_transaction, lambda: whole(producer)):
            task = asyncio.ensure_future(begin())
            await cluster.seen("InitProducerId")
            await turns(5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        hang.release()
        await whole(producer)
        await producer.stop()
        assert seen(cluster) == (2, True)


@VERSIONS
@jumping
async def test_two_tasks_and_one_transaction(version: int) -> None:
    """A second task's same call joins the first one. All tasks that wait for the commit get the same result."""
    async with transactional(version) as (cluster, producer):
        await producer.begin_transaction()
        await producer.send("orders", b"v", partition=0)
        await asyncio.gather(*(producer.commit_transaction() for _ in range(3)))
        assert committed(cluster) == [b"v"]
        await producer.begin_transaction()
        cluster.fail("Produce", "POLICY_VIOLATION")
        await producer.send("orders", b"v", partition=0)
        errors = await asyncio.gather(
            *(producer.commit_transaction() for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(error, TransactionError) for error in errors)
        assert len(set(map(id, errors))) == 3


class _Gate:
    """A dialer that waits until its event is set."""

    def __init__(self, dialer: Any) -> None:
        self._dialer = dialer
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def dial(self, host: str, port: int, receiver: Any) -> Any:
        await self.is_open.wait()
        return await self._dialer.dial(host, port, receiver)


@VERSIONS
@jumping
async def test_a_commit_that_was_taken_back_while_its_coordinator_was_dialled_is_not_sent(
    version: int,
) -> None:
    """The commit was due and not yet written when it was cancelled. The producer then sends the abort in its place."""
    async with cluster_of(version) as cluster:
        gate = _Gate(cluster.network)
        async with Producer(
            **{**cluster.client_options, "dialer": gate}, transactional_id="tx"
        ) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"v", partition=0)
            gate.is_open.clear()
            cluster.disconnect_all()
            await asyncio.sleep(0.01)
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0.5)
            commit.cancel()
            await asyncio.wait([commit])
            abort = asyncio.create_task(producer.abort_transaction())
            await asyncio.sleep(0.5)
            gate.is_open.set()
            await abort
            assert committed(cluster) == []
            async with producer.transaction():
                await producer.send("orders", b"w", partition=0)
        assert committed(cluster) == [b"w"]


@VERSIONS
@jumping
async def test_a_scope_whose_producer_was_stopped_does_not_end_in_silence(version: int) -> None:
    """`stop` aborted the transaction of the block. The block raises ProducerClosed, so the caller does not assume a commit."""
    async with transactional(version) as (cluster, producer):
        with pytest.raises(ProducerClosed):
            async with producer.transaction():
                await producer.send_and_wait("orders", b"v", partition=0)
                await producer.stop()
        assert committed(cluster) == []
