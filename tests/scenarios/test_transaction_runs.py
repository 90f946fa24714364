"""`run_in_transaction`: what makes a function run again, when, and what ends it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from transacting import VERSIONS, asked, committed, transactional
from whole import jumping

from aioproducer.errors import DeliveryError, ProducerFenced, TransactionAbortable, UsageError


@VERSIONS
@pytest.mark.parametrize("looks", [True, False])
@jumping
async def test_a_record_that_failed_for_once(version: int, *, looks: bool) -> None:
    """The function runs again, whether it looked at the record or the commit did. Pauses double, as those of retries do."""
    async with transactional(
        version, retries=1, retry_backoff_ms=100, retry_backoff_max_ms=150
    ) as (cluster, producer):
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=6)
        loop = asyncio.get_running_loop()
        runs: list[float] = []

        async def write() -> str:
            runs.append(loop.time())
            delivery = await producer.send("orders", b"%d" % len(runs), partition=0)
            return str((await delivery).topic) if looks else "orders"

        assert await producer.run_in_transaction(write) == "orders"
        assert committed(cluster) == [b"4"]
        assert asked(cluster, "EndTxn") == ["EndTxn"] * 4
        ends = [0.1 + 0.1, 0.1 + 0.15, 0.1 + 0.15]
        pauses = [after - before for before, after in pairwise(runs)]
        assert pauses == [pytest.approx(end, abs=0.06) for end in ends]


@VERSIONS
@jumping
async def test_a_record_that_fails_for_good(version: int) -> None:
    """No other attempt could do better: the function runs once."""
    async with transactional(version) as (cluster, producer):
        cluster.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
        runs = 0

        async def write() -> None:
            nonlocal runs
            runs += 1
            await producer.send_and_wait("orders", b"v", partition=0)

        with pytest.raises(DeliveryError) as raised:
            await producer.run_in_transaction(write)
        assert raised.value.code == "TOPIC_AUTHORIZATION_FAILED"
        assert (runs, committed(cluster)) == (1, [])


@jumping
async def test_a_coordinator_that_wants_another_transaction() -> None:
    """TRANSACTION_ABORTABLE means: abort, and begin a new one."""
    async with transactional(2) as (cluster, producer):
        cluster.fail("EndTxn", "TRANSACTION_ABORTABLE", times=1)
        await producer.run_in_transaction(lambda: producer.send("orders", b"v", partition=0))
        assert committed(cluster) == [b"v"]
        assert cluster.values("orders", 0) == [b"v", b"v"]


@VERSIONS
@jumping
async def test_fenced_is_never_tried_again(version: int) -> None:
    """Another producer has the transactional id: this one gives up after one run."""
    async with transactional(version) as (cluster, producer):
        runs = 0

        async def write() -> None:
            nonlocal runs
            runs += 1
            cluster.fail("EndTxn", "PRODUCER_FENCED")
            await producer.send("orders", b"v", partition=0)

        with pytest.raises(ProducerFenced):
            await producer.run_in_transaction(write)
        assert runs == 1


@VERSIONS
@jumping
async def test_cancellation_aborts_and_ends_it(version: int) -> None:
    """In the function and in the pause before the next attempt. The producer goes on."""
    async with transactional(version, retry_backoff_ms=1000) as (cluster, producer):
        runs = 0

        async def write() -> None:
            nonlocal runs
            runs += 1
            await producer.send_and_wait("orders", b"v", partition=0)
            if runs == 1:
                raise TransactionAbortable("again")
            await asyncio.sleep(60)

        for seconds, ran in ((0.5, 1), (1.5, 2)):
            runs = 0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(seconds):
                    await producer.run_in_transaction(write)
            assert runs == ran
        assert committed(cluster) == []
        await producer.run_in_transaction(lambda: producer.send("orders", b"kept", partition=0))
        assert committed(cluster) == [b"kept"]


@jumping
async def test_an_abort_that_does_not_end() -> None:
    """No attempt can begin: the error of the last one is raised, and not that its transaction is open."""
    async with transactional(2, max_block_ms=1000, request_timeout_ms=30_000) as (
        cluster,
        producer,
    ):
        hang = cluster.hang("EndTxn")

        async def write() -> None:
            await producer.send_and_wait("orders", b"v", partition=0)
            raise TransactionAbortable("again")

        with pytest.raises(TransactionAbortable, match="again"):
            await producer.run_in_transaction(write)
        hang.release()
        await producer.abort_transaction()


@jumping
async def test_a_function_that_returns_no_awaitable_is_named() -> None:
    """Its transaction is aborted, and the next one works."""
    async with transactional(2) as (cluster, producer):
        with pytest.raises(UsageError, match=r"func returned int, no awaitable: write `async def`"):
            await producer.run_in_transaction(lambda: 5)  # type: ignore[arg-type, return-value]
        async with producer.transaction():
            await producer.send("orders", b"v", partition=0)
        assert committed(cluster) == [b"v"]
