"""Transactions without faults in both versions: visibility, offsets, empty ones, all ways to send, misuse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiokafka
import pytest
from transacting import VERSIONS, asked, cluster_of, committed, transactional
from whole import jumping, running, turns

from aioproducer import (
    ConfigError,
    DeliveryError,
    Producer,
    RecordTooLarge,
    SerializationError,
    TransactionAbortable,
    TransactionAborted,
    TransactionMisuse,
    UsageError,
    WouldBlock,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@VERSIONS
@jumping
async def test_a_commit(version: int) -> None:
    """No reader sees a record before the commit; all are visible after it. One transaction covers several partitions and topics."""
    async with transactional(version) as (cluster, producer):
        await producer.begin_transaction()
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=number % 2)
            for number in range(4)
        ]
        deliveries.append(await producer.send("payments", b"5"))
        await asyncio.gather(*deliveries)
        assert committed(cluster) == []
        await producer.commit_transaction()
        assert committed(cluster, partition=0) == [b"0", b"2"]
        assert committed(cluster, partition=1) == [b"1", b"3"]
        assert committed(cluster, "payments") == [b"5"]
        assert asked(cluster)[-1] == "EndTxn"
        assert set(asked(cluster)[:-1]) == (set() if version == 2 else {"AddPartitionsToTxn"})


@VERSIONS
@jumping
async def test_an_abort_drops_what_was_not_sent(version: int) -> None:
    """TXN-06: the delivery of an unsent record raises and says that it is certainly not in the log. The abort waits
    for batches in flight.
    """
    async with transactional(version, max_in_flight_requests_per_connection=1) as (
        cluster,
        producer,
    ):
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"0", partition=0)
        hang = cluster.hang("Produce", times=1)
        flying = await producer.send("orders", b"1", partition=0)
        await cluster.seen("Produce", 2)
        queued = await producer.send("orders", b"2", partition=0)
        aborting = asyncio.create_task(producer.abort_transaction())
        with pytest.raises(DeliveryError) as raised:
            await queued
        assert isinstance(raised.value.__cause__, TransactionAborted)
        assert raised.value.persisted == "no"
        await turns(20)
        assert not aborting.done()
        assert asked(cluster, "EndTxn") == []
        hang.release()
        assert (await flying).offset == 1
        await aborting
        assert cluster.values("orders", 0) == [b"0", b"1"]
        assert committed(cluster) == []


@VERSIONS
@jumping
async def test_an_abort_lets_go_of_sends_that_wait(version: int) -> None:
    """A send that waits for metadata or memory raises at the abort, and its record is not sent."""
    async with transactional(version, max_block_ms=50_000) as (cluster, producer):
        await producer.begin_transaction()
        sending = asyncio.create_task(producer.send("unknown", b"v"))
        await turns(20)
        await producer.abort_transaction()
        with pytest.raises(TransactionAborted, match="Send it again"):
            await sending
        async with producer.transaction():
            await producer.send("orders", b"v", partition=0)
        assert committed(cluster) == [b"v"]


@VERSIONS
@jumping
async def test_offsets_alone_are_a_transaction(version: int) -> None:
    """A transaction may have offsets and no records. The call also takes aiokafka's types for offsets."""
    async with transactional(version) as (cluster, producer):
        async with producer.transaction():
            await producer.send_offsets_to_transaction(
                {aiokafka.TopicPartition("orders", 1): aiokafka.structs.OffsetAndMetadata(3, "")},
                "group",
            )
        assert cluster.committed("group") == {("orders", 1): 3}


@VERSIONS
@jumping
async def test_an_empty_transaction(version: int) -> None:
    """TXN-07: the producer sends no request for an empty transaction."""
    async with transactional(version) as (cluster, producer):
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({}, "group")
        assert asked(cluster) == []


@VERSIONS
@jumping
async def test_a_body_that_ends_its_transaction_itself(version: int) -> None:
    """The body's own abort or commit holds, and the end of the block sends none."""
    async with transactional(version) as (cluster, producer):
        async with producer.transaction():
            await producer.send("orders", b"lost", partition=0)
            await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("orders", b"kept", partition=0)
            await producer.commit_transaction()
        assert committed(cluster) == [b"kept"]


@VERSIONS
@jumping
async def test_every_door_belongs_to_the_transaction(version: int) -> None:
    """The records of `send_many` and `send_nowait` belong to the open transaction."""
    async with transactional(version) as (cluster, producer):
        async with producer.transaction():
            await producer.send_many("orders", [b"many"] * 500)
            await turns(3)
            producer.send_nowait("orders", b"nowait", partition=0)
            assert committed(cluster) == []
        assert sorted(map(str, committed(cluster))) == sorted(
            map(str, [b"many"] * 500 + [b"nowait"])
        )


@VERSIONS
@jumping
async def test_no_door_is_open_outside_a_transaction(version: int) -> None:
    """Before, between and after transactions each way to send raises an error that names the missing call.

    The fast path is closed there, so that no record needs a check of its own.
    """
    async with transactional(version) as (cluster, producer):
        way = producer._fast_path
        for _ in range(2):
            for call in (
                lambda: producer.send("orders", b"out", partition=0),
                lambda: producer.send("orders", b"out"),
                lambda: producer.send_and_wait("orders", b"out"),
                lambda: producer.send_many("orders", [b"out"] * 50),
            ):
                with pytest.raises(TransactionMisuse, match=r"call begin_transaction\(\)"):
                    await call()
            with pytest.raises(TransactionMisuse, match=r"call begin_transaction\(\)"):
                producer.send_nowait("orders", b"out", partition=0)
            assert not way.fast
            async with producer.transaction():
                await producer.send("orders", b"in", partition=0)
                assert way.fast
        assert not way.fast
        assert committed(cluster) == [b"in"] * 2


@pytest.mark.parametrize("conflict", [{"enable_idempotence": False}, {"acks": 1}, {"retries": 0}])
def test_what_transactions_cannot_go_with(conflict: dict[str, Any]) -> None:
    """CFG-09: the constructor refuses options that conflict with transactions."""
    with pytest.raises(ConfigError):
        Producer(transactional_id="tx", **conflict)


REFUSED: list[tuple[dict[str, Any], type[Exception], Callable[[Producer[Any, Any]], Any]]] = [
    (
        {"max_request_size": 1000},
        RecordTooLarge,
        lambda producer: producer.send("orders", b"x" * 2000),
    ),
    ({"max_block_ms": 100}, TimeoutError, lambda producer: producer.send("nowhere", b"v")),
    (
        {"max_block_ms": 100},
        TimeoutError,
        lambda producer: producer.send("orders", b"v", partition=9),
    ),
    (
        {"max_request_size": 1000},
        RecordTooLarge,
        lambda producer: producer.send_many("orders", [b"x" * 2000]),
    ),
]


@pytest.mark.parametrize(
    ("options", "kind", "send"), REFUSED, ids=["large", "no topic", "no partition", "many"]
)
@VERSIONS
@jumping
async def test_a_record_that_was_refused_is_missing(
    version: int,
    options: dict[str, Any],
    kind: type[Exception],
    send: Callable[[Producer[Any, Any]], Any],
) -> None:
    """TXN-08: a refused record makes the commit fail, even if the caller never looks at its error."""
    async with transactional(version, **options) as (cluster, producer):
        await producer.begin_transaction()
        await producer.send("orders", b"lost", partition=0)
        with pytest.raises(kind) as refused:
            await send(producer)
        with pytest.raises(TransactionAbortable) as raised:
            await producer.commit_transaction()
        assert type(raised.value.__cause__) is type(refused.value)
        assert "abort_transaction()" in raised.value.hint
        with pytest.raises(TransactionAbortable):
            await producer.send("orders", b"more", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("orders", b"kept", partition=0)
        assert committed(cluster) == [b"kept"]


@pytest.mark.asyncio
async def test_other_threads() -> None:
    """Records sent from other threads belong to the open transaction. Without one the call raises, and a refused record
    makes the commit fail.
    """
    async with transactional(max_block_ms=100) as (cluster, producer):
        send = producer.from_thread.send
        with pytest.raises(TransactionMisuse, match=r"call begin_transaction\(\)"):
            await asyncio.wrap_future(await asyncio.to_thread(send, "orders", b"v"))
        async with producer.transaction():
            await asyncio.wrap_future(await asyncio.to_thread(send, "orders", b"thread"))
            assert committed(cluster) == []
        assert committed(cluster) == [b"thread"]
        await producer.begin_transaction()
        with pytest.raises(TimeoutError):
            await asyncio.wrap_future(await asyncio.to_thread(send, "nowhere", b"v"))
        with pytest.raises(TransactionAbortable):
            await producer.commit_transaction()


@pytest.mark.parametrize(
    ("kind", "send"),
    [
        (SerializationError, lambda producer: producer.send("orders", 5)),
        (UsageError, lambda producer: producer.send("orders", b"v", partition=-1)),
        (WouldBlock, lambda producer: producer.send_nowait("nowhere", b"v")),
    ],
    ids=["no bytes", "no partition", "would block"],
)
@jumping
async def test_a_mistake_spoils_nothing(
    kind: type[Exception], send: Callable[[Producer[Any, Any]], Any]
) -> None:
    """As in Java, an error that the caller sees at the call, such as a wrong argument, does not make the transaction fail."""
    async with transactional() as (cluster, producer):
        async with producer.transaction():
            with pytest.raises(kind):
                await send(producer)
            await producer.send("orders", b"v", partition=0)
        assert committed(cluster) == [b"v"]


@VERSIONS
@jumping
async def test_many_transactions(version: int) -> None:
    """Each transaction is visible as a whole or not at all, in order. Sequence numbers and epochs continue."""
    async with transactional(version) as (cluster, producer):
        for number in range(30):
            await producer.begin_transaction()
            for partition in (0, 1):
                await producer.send("orders", b"%d" % number, partition=partition)
            await (
                producer.abort_transaction() if number % 3 == 0 else producer.commit_transaction()
            )
        kept = [b"%d" % number for number in range(30) if number % 3]
        assert committed(cluster, partition=0) == committed(cluster, partition=1) == kept


@VERSIONS
@jumping
async def test_stop_lets_a_commit_end(version: int) -> None:
    """`stop` waits for a commit that is in flight."""
    async with cluster_of(version) as cluster:
        cluster.delay("EndTxn", 0.5, times=1)
        async with running(cluster, transactional_id="tx") as (_, producer):
            await producer.begin_transaction()
            await producer.send("orders", b"kept", partition=0)
            committing = asyncio.create_task(producer.commit_transaction())
            await cluster.seen("EndTxn")
        await committing
        assert committed(cluster) == [b"kept"]


@jumping
async def test_it_shows_what_it_waits_for() -> None:
    """`explain` names the step that the transaction waits for."""
    async with transactional() as (cluster, producer):
        assert "transactional_id 'tx': the producer has no transaction open" in producer.explain()
        await producer.begin_transaction()
        await producer.send("orders", b"v", partition=0)
        hang = cluster.hang("EndTxn", times=1)
        committing = asyncio.create_task(producer.commit_transaction())
        await cluster.seen("EndTxn")
        assert "transactional_id 'tx': EndTxn (commit) is not answered" in producer.explain()
        hang.release()
        await committing
