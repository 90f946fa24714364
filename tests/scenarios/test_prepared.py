"""Transactions that a producer prepares and leaves open, and that it or a resolver ends."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from transacting import VERSIONS, asked, cluster_of, committed, transactional
from whole import jumping, turns

from aioproducer import (
    BrokerError,
    Position,
    PreparedTransaction,
    Producer,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
    TransactionError,
    TransactionMisuse,
    TransactionResolver,
    TransactionTimeout,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.testing import FakeCluster


@asynccontextmanager
async def resolving(cluster: FakeCluster, **options: Any) -> AsyncIterator[TransactionResolver]:
    """Give a started resolver, and assert afterwards that it left no task."""
    async with TransactionResolver(**{**cluster.client_options, **options}) as resolver:
        yield resolver
    assert resolver._engine is not None
    assert resolver._engine._parts.supervisor.has_ended
    assert not resolver._engine._parts.supervisor._children


@asynccontextmanager
async def with_topic(version: int, brokers: int = 1) -> AsyncIterator[FakeCluster]:
    """Give a cluster with the topic orders, and assert afterwards that clients kept to the protocol."""
    async with cluster_of(version, brokers) as cluster:
        yield cluster
        assert cluster.violations == []
        cluster.assert_all_fired()


async def prepared_by(
    cluster: FakeCluster, name: str = "tx", value: bytes = b"v", **options: Any
) -> PreparedTransaction:
    """Return a transaction with one record and one position; its producer is gone."""
    async with Producer(
        **{**cluster.client_options, "transactional_id": name, **options}
    ) as producer:
        await producer.begin_transaction()
        await producer.send("orders", value, partition=0)
        await producer.send_position_to_transaction(name, 7, "c", topic="orders")
        return await producer.prepare_transaction()


async def refusal(call: Any) -> str:
    """Return the name of the error that a call is refused with."""
    with pytest.raises(BrokerError) as raised:
        await call
    assert not raised.value.retriable
    return raised.value.name


# The producer


@VERSIONS
@jumping
async def test_a_prepared_transaction_is_the_producers_to_end(version: int) -> None:
    """It commits or aborts it as any other; each next one works."""
    async with transactional(version) as (cluster, producer):
        for value in (b"1", b"2"):
            await producer.begin_transaction()
            await producer.send("orders", value, partition=0)
            prepared = await producer.prepare_transaction()
            assert prepared == await producer.prepare_transaction()
            assert (prepared.transactional_id, prepared.version) == ("tx", version)
            assert committed(cluster) == ([] if value == b"1" else [b"1"])
            await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send("orders", b"aborted", partition=0)
        await producer.prepare_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("orders", b"3", partition=0)
            await producer.prepare_transaction()
        with pytest.raises(LookupError):
            async with producer.transaction():
                await producer.send("orders", b"aborted", partition=0)
                await producer.prepare_transaction()
                raise LookupError
        assert committed(cluster) == [b"1", b"2", b"3"]


@VERSIONS
@jumping
async def test_one_producer_prepares_for_several_ids(version: int) -> None:
    """It keeps its connections and metadata; what it has prepared stays open, also when it stops."""
    async with with_topic(version) as cluster, resolving(cluster) as resolver:
        async with Producer(**{**cluster.client_options, "transactional_id": "1"}) as producer:
            everything = []
            for name in ("1", "2", "3"):
                if everything:
                    await producer.init_transactions(name)
                await producer.begin_transaction()
                await producer.send("orders", name.encode(), partition=0)
                await producer.send_position_to_transaction(name, 7, topic="orders")
                everything.append(await producer.prepare_transaction())
                if name == "1":
                    before = (
                        {request.connection for request in cluster.requests()},
                        len(asked(cluster, "Metadata")),
                    )
        assert (
            {request.connection for request in cluster.requests()},
            len(asked(cluster, "Metadata")),
        ) == before
        assert [prepared.transactional_id for prepared in everything] == ["1", "2", "3"]
        assert len({prepared.producer_id for prepared in everything}) == 3
        assert len(asked(cluster, "AddPartitionsToTxn")) == (3 if version == 1 else 0)
        await resolver.commit(everything[0])
        await resolver.abort(everything[1])
        await resolver.commit(everything[2])
        assert committed(cluster) == [b"1", b"3"]
        positions = [await resolver.committed_offset(name, "orders") for name in ("1", "2", "3")]
        assert positions == [Position(7, ""), None, Position(7, "")]


@VERSIONS
@jumping
async def test_the_same_id_again(version: int) -> None:
    """As a new producer with it: what was prepared is aborted, and an older producer is fenced."""
    async with transactional(version) as (cluster, producer), resolving(cluster) as resolver:
        await producer.begin_transaction()
        await producer.send("orders", b"1", partition=0)
        prepared = await producer.prepare_transaction()
        await producer.init_transactions("tx")
        assert await refusal(resolver.commit(prepared)) in {
            "PRODUCER_FENCED",
            "INVALID_PRODUCER_EPOCH",
        }
        async with Producer(**{**cluster.client_options, "transactional_id": "tx"}) as newer:
            async with newer.transaction():
                await newer.send("orders", b"2", partition=0)
            # The newer one is fenced in its turn.
            await producer.init_transactions("tx")
            async with producer.transaction():
                await producer.send("orders", b"3", partition=0)
            await newer.begin_transaction()
            with pytest.raises((ProducerFenced, TransactionAbortable)):
                await newer.send("orders", b"4", partition=0)
                await newer.commit_transaction()
        assert committed(cluster) == [b"2", b"3"]


@VERSIONS
@jumping
async def test_when_no_id_can_be_taken(version: int) -> None:
    async with transactional(version) as (cluster, producer):
        for name in ("", None, "x" * 40_000):
            with pytest.raises(UsageError, match="transactional_id"):
                await producer.init_transactions(name)  # type: ignore[arg-type]
        await producer.begin_transaction()
        await producer.send("orders", b"1", partition=0)
        with pytest.raises(
            TransactionMisuse,
            match=r"init_transactions\(\) has no place here: the producer has a transaction open",
        ):
            await producer.init_transactions("other")
        await producer.commit_transaction()
        cluster.fail("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", times=1)
        with pytest.raises(TransactionError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await producer.init_transactions("other")
        assert committed(cluster) == [b"1"]
        # The id is the other one all the same.
        async with producer.transaction():
            await producer.send("orders", b"2", partition=0)
        assert committed(cluster) == [b"1", b"2"]
        assert "'other'" in producer.explain()


@VERSIONS
@jumping
async def test_a_failed_record_is_not_prepared(version: int) -> None:
    """The call raises as a commit would, and the abort succeeds."""
    async with transactional(version) as (cluster, producer):
        cluster.fail("Produce", "MESSAGE_TOO_LARGE", topic="orders")
        await producer.begin_transaction()
        await producer.send("orders", b"lost", partition=0)
        with pytest.raises(TransactionAbortable, match="MESSAGE_TOO_LARGE"):
            await producer.prepare_transaction()
        await producer.abort_transaction()
        assert committed(cluster) == []


@pytest.mark.parametrize("does_end", [True, False], ids=["records end", "records do not end"])
@VERSIONS
@jumping
async def test_a_cancelled_call_hands_nothing_over(version: int, does_end: bool) -> None:
    """No caller has its name, so `stop` aborts it: at once, not at its time-out."""
    async with transactional(version, close_timeout_ms=2_000) as (cluster, producer):
        await producer.begin_transaction()
        hang = cluster.hang("Produce", times=1)
        await producer.send("orders", b"v", partition=0)
        preparing = asyncio.create_task(producer.prepare_transaction())
        await cluster.seen("Produce", 1)
        preparing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await preparing
        with pytest.raises(TransactionMisuse, match=r"call prepare_transaction\(\) again"):
            await producer.send("orders", b"v", partition=0)
        if does_end:
            hang.release()
            await turns(50)
        await producer.stop()
        hang.release()
    assert committed(cluster) == []
    assert asked(cluster, "EndTxn") == (["EndTxn"] if does_end else [])


@VERSIONS
@jumping
async def test_it_is_called_again_after_a_time_out(version: int) -> None:
    """The records go on meanwhile."""
    async with transactional(version, max_block_ms=1_000) as (cluster, producer):
        await producer.begin_transaction()
        hang = cluster.hang("Produce", times=1)
        await producer.send("orders", b"v", partition=0)
        with pytest.raises(
            TransactionTimeout,
            match=r"prepare_transaction\(\) did not end within max_block_ms=1000: records of it",
        ):
            await producer.prepare_transaction()
        hang.release()
        await producer.prepare_transaction()
        await producer.commit_transaction()
        assert committed(cluster) == [b"v"]


@jumping
async def test_an_abort_meanwhile() -> None:
    """Another task aborts the transaction while it is prepared: the call says so."""
    async with transactional(2) as (cluster, producer):
        await producer.begin_transaction()
        hang = cluster.hang("Produce", times=1)
        await producer.send("orders", b"v", partition=0)
        preparing = asyncio.create_task(producer.prepare_transaction())
        await cluster.seen("Produce", 1)
        aborting = asyncio.create_task(producer.abort_transaction())
        with pytest.raises(
            TransactionAborted, match=r"aborted while prepare_transaction\(\) waited for records"
        ):
            await preparing
        hang.release()
        await aborting
        assert committed(cluster) == []


# The resolver


@VERSIONS
@jumping
async def test_while_the_producer_lives(version: int) -> None:
    """The resolver's commit is the producer's: it may say the same again, and is not fenced."""
    async with transactional(version) as (cluster, producer), resolving(cluster) as resolver:
        await producer.begin_transaction()
        await producer.send("orders", b"v", partition=0)
        await resolver.commit(await producer.prepare_transaction())
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("orders", b"next", partition=0)
        assert committed(cluster) == [b"v", b"next"]


@VERSIONS
@jumping
async def test_the_first_producer_is_fenced(version: int) -> None:
    """What it prepared is gone with the second one's start."""
    async with transactional(version) as (cluster, producer):
        await producer.begin_transaction()
        await producer.send("orders", b"lost", partition=0)
        await producer.prepare_transaction()
        await prepared_by(cluster)
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        assert committed(cluster) == []
