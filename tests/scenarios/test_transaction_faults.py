"""Transactions when coordinators move, responses are lost, or a name is used twice (catalogue rows 64 to 75)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from whole import assert_nothing_left, jumping, running

from aioproducer import (
    CommitFailed,
    ConsumerGroupMetadata,
    DeliveryError,
    Producer,
    ProducerFenced,
    TransactionAbortable,
    TransactionError,
    TransactionExpired,
    TransactionFatal,
    TransactionTimeout,
)
from tests.scenarios.test_transactions import VERSIONS, cluster_of, committed, transactional

if TYPE_CHECKING:
    from aioproducer.testing import FakeCluster

RPCS = (
    "FindCoordinator",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)
GROUP = ConsumerGroupMetadata("group")


def of(version: int, *apis: str) -> list[str]:
    """Return the APIs that the version uses."""
    return [api for api in apis or RPCS if version == 1 or not api.startswith("Add")]


EACH = pytest.mark.parametrize(
    ("version", "api"), [(version, api) for version in (1, 2) for api in of(version)]
)


async def transfer(producer: Producer[Any, Any], number: int) -> None:
    """Run a transaction that uses every kind of request."""
    async with producer.transaction():
        await producer.send("orders", b"%d" % number, partition=0)
        await producer.send("orders", b"%d" % number, partition=1)
        await producer.send_offsets_to_transaction({("payments", 0): number}, GROUP)


def assert_transferred(cluster: FakeCluster, count: int) -> None:
    """Check that all records and offsets are committed, each once, in order."""
    assert (
        committed(cluster, partition=0)
        == committed(cluster, partition=1)
        == [b"%d" % number for number in range(1, count + 1)]
    )
    assert cluster.committed("group") == {("payments", 0): count}


# Row 64


@EACH
@pytest.mark.parametrize("disconnect", ["before", "after"])
@jumping
async def test_a_lost_answer(version: int, api: str, disconnect: Any) -> None:
    """The response is lost before or after the coordinator acts on the request. The transaction continues, and the next one works."""
    async with cluster_of(version, 3) as cluster:
        cluster.fail(api, disconnect=disconnect)
        async with running(cluster, transactional_id="tx") as (_, producer):
            await transfer(producer, 1)
            await transfer(producer, 2)
        assert_transferred(cluster, 2)


@VERSIONS
@jumping
async def test_the_coordinator_dies(version: int) -> None:
    """The coordinator's connection closes, and another broker takes over. The transaction continues."""
    async with transactional(version, brokers=3) as (cluster, producer):
        await transfer(producer, 1)
        home, group = (cluster.requests(api)[-1].broker for api in ("EndTxn", "TxnOffsetCommit"))
        for broker in {home, group}:
            for partition in (0, 1):
                if cluster.leader("orders", partition) == broker:
                    cluster.move_leader("orders", partition, 1 + broker % 3)
        async with producer.transaction():
            await producer.send("orders", b"2", partition=0)
            await producer.send("orders", b"2", partition=1)
            for key in ("tx", "group"):
                cluster.move_coordinator(key, 1 + home % 3)
            await producer.flush()
            await cluster.brokers[home].stop()
            await producer.send_offsets_to_transaction({("payments", 0): 2}, GROUP)
    assert_transferred(cluster, 2)


@EACH
@pytest.mark.parametrize(
    "error", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"]
)
@jumping
async def test_a_coordinator_that_is_not_ready(version: int, api: str, error: str) -> None:
    """The producer asks the coordinator again, or looks for it anew. The caller sees no error."""
    async with cluster_of(version, 2) as cluster:
        cluster.fail(api, error, times=2)
        async with running(cluster, transactional_id="tx") as (_, producer):
            await transfer(producer, 1)
        assert_transferred(cluster, 1)


# Row 65


@pytest.mark.parametrize(
    ("version", "api"),
    [
        (version, api)
        for version in (1, 2)
        for api in of(version, "InitProducerId", "AddPartitionsToTxn", "TxnOffsetCommit", "EndTxn")
    ],
)
@jumping
async def test_the_last_transaction_is_still_ending(version: int, api: str) -> None:
    """CONCURRENT_TRANSACTIONS: the producer retries after 20 ms, then a little later each time. The caller sees no error (TXN-11)."""
    async with cluster_of(version) as cluster:
        cluster.fail(api, "CONCURRENT_TRANSACTIONS", times=3)
        async with running(cluster, transactional_id="tx") as (_, producer):
            await transfer(producer, 1)
        assert_transferred(cluster, 1)
        times = [request.at for request in cluster.requests(api)][:4]
        assert 0.01 < times[1] - times[0] < 0.03
        assert times[3] - times[0] < 0.2


# Row 66


@VERSIONS
@jumping
async def test_a_zombie(version: int) -> None:
    """A second producer with the same name starts. The first one's next call fails, and none of its open transaction becomes visible."""
    async with transactional(version) as (cluster, zombie):
        await zombie.begin_transaction()
        await zombie.send_and_wait("orders", b"zombie", partition=0)
        async with running(cluster, transactional_id="tx") as (_, heir), heir.transaction():
            await heir.send("orders", b"heir", partition=0)
        delivery = await zombie.send("orders", b"zombie", partition=0)
        with pytest.raises(ProducerFenced, match="transactional_id") as raised:
            await zombie.commit_transaction()
        assert "who else uses its transactional_id" in raised.value.hint
        with pytest.raises(DeliveryError):
            await delivery
        for call in (zombie.begin_transaction, zombie.commit_transaction, zombie.abort_transaction):
            with pytest.raises(ProducerFenced):
                await call()
        with pytest.raises(ProducerFenced):
            await zombie.send("orders", b"zombie")
    assert committed(cluster) == [b"heir"]


# Row 67


@VERSIONS
@jumping
async def test_a_transaction_that_takes_too_long(version: int) -> None:
    """The error names the time-out, not a newer producer. None of the records becomes visible."""
    async with transactional(version, transaction_timeout_ms=2_000) as (cluster, producer):
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"late", partition=0)
        await asyncio.sleep(5)
        with pytest.raises(DeliveryError):
            await producer.send_and_wait("orders", b"later", partition=0)
        with pytest.raises(
            TransactionExpired, match=r"timed out by the coordinator.*transaction_timeout_ms=2000"
        ):
            await producer.commit_transaction()
        assert committed(cluster) == []


# Row 70


@VERSIONS
@jumping
async def test_a_send_that_fails_within_the_context(version: int) -> None:
    """The commit at the end of the block raises, and the producer aborts the transaction."""
    async with transactional(version) as (cluster, producer):
        cluster.fail("Produce", "POLICY_VIOLATION", partition=1)
        with pytest.raises(TransactionAbortable):
            async with producer.transaction():
                await producer.send("orders", b"refused", partition=1)
        await transfer(producer, 1)
        assert_transferred(cluster, 1)


@VERSIONS
@jumping
async def test_a_record_that_expires(version: int) -> None:
    """An expired record may have been written. The producer aborts its transaction, and the next one begins with another epoch (DLV-08)."""
    options = {"request_timeout_ms": 500, "delivery_timeout_ms": 1_000}
    async with transactional(version, **options) as (cluster, producer):
        await producer.begin_transaction()
        cluster.drop_reply("Produce", times=2)
        delivery = await producer.send("orders", b"lost", partition=0)
        with pytest.raises(TransactionAbortable):
            await producer.commit_transaction()
        with pytest.raises(DeliveryError) as raised:
            await delivery
        assert raised.value.persisted == "maybe"
        await producer.abort_transaction()
        await transfer(producer, 1)
        assert_transferred(cluster, 1)


# Rows 71, 72, 75


@pytest.mark.parametrize(
    ("api", "error", "kind"),
    [
        ("EndTxn", "TRANSACTION_ABORTABLE", TransactionAbortable),
        ("AddPartitionsToTxn", "TRANSACTION_ABORTABLE", TransactionAbortable),
        ("AddPartitionsToTxn", "TOPIC_AUTHORIZATION_FAILED", TransactionAbortable),
        ("AddOffsetsToTxn", "GROUP_AUTHORIZATION_FAILED", TransactionAbortable),
        ("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", TransactionAbortable),
        ("TxnOffsetCommit", "ILLEGAL_GENERATION", CommitFailed),
        ("TxnOffsetCommit", "UNKNOWN_MEMBER_ID", CommitFailed),
        ("TxnOffsetCommit", "FENCED_INSTANCE_ID", CommitFailed),
        ("Produce", "INVALID_TXN_STATE", TransactionAbortable),
        ("Produce", "TRANSACTION_ABORTABLE", TransactionAbortable),
        ("EndTxn", "INVALID_TXN_STATE", TransactionFatal),
        ("EndTxn", "INVALID_PRODUCER_ID_MAPPING", TransactionFatal),
        ("AddPartitionsToTxn", "INVALID_PRODUCER_ID_MAPPING", TransactionFatal),
        ("AddOffsetsToTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", TransactionFatal),
        ("TxnOffsetCommit", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", TransactionFatal),
        ("Produce", "INVALID_PRODUCER_EPOCH", ProducerFenced),
        ("Produce", "PRODUCER_FENCED", ProducerFenced),
        ("Produce", "CLUSTER_AUTHORIZATION_FAILED", TransactionFatal),
    ],
)
@VERSIONS
@jumping
async def test_an_error_and_its_kind(
    version: int, api: str, error: str, kind: type[TransactionError]
) -> None:
    """After an abortable error the producer aborts, and the next transaction works. After a fatal one, every call
    except `stop` raises it.
    """
    if not of(version, api):
        return
    async with transactional(version) as (cluster, producer):
        cluster.fail(api, error)
        with pytest.raises(kind, match=error) as raised:
            await transfer(producer, 0)
        assert type(raised.value) is kind
        assert raised.value.hint
        if issubclass(kind, TransactionFatal):
            with pytest.raises(kind):
                await producer.begin_transaction()
            assert committed(cluster) == []
        else:
            await transfer(producer, 1)
            assert_transferred(cluster, 1)


@pytest.mark.parametrize(
    "error",
    [
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "INVALID_TRANSACTION_TIMEOUT",
        "CLUSTER_AUTHORIZATION_FAILED",
    ],
)
@jumping
async def test_start_is_refused(error: str) -> None:
    """`start` raises with the reason and a hint, and leaves no task or connection."""
    before = asyncio.all_tasks()
    async with cluster_of(2) as cluster:
        cluster.fail("InitProducerId", error)
        producer: Producer[Any, Any] = Producer(**cluster.client_options, transactional_id="tx")
        with pytest.raises(TransactionError, match=error) as raised:
            await producer.start()
        assert raised.value.hint
        assert_nothing_left(
            producer,
            {
                *before,
                *(task for task in asyncio.all_tasks() if "aioproducer" not in task.get_name()),
            },
        )


@jumping
async def test_start_without_a_coordinator() -> None:
    """`start` ends after max_block_ms, and its error names the missing coordinator."""
    async with cluster_of(2) as cluster:
        cluster.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=None)
        producer: Producer[Any, Any] = Producer(
            **cluster.client_options, transactional_id="tx", max_block_ms=2_000
        )
        began = asyncio.get_running_loop().time()
        with pytest.raises(
            TransactionTimeout,
            match=r"start\(\) did not end.*FindCoordinator of 'tx'.*COORDINATOR_NOT_AVAILABLE",
        ):
            await producer.start()
        assert asyncio.get_running_loop().time() - began < 2.1


@VERSIONS
@jumping
async def test_start_without_waiting(version: int) -> None:
    """The first transaction waits for the producer id. After a refusal the producer requests it again."""
    async with cluster_of(version) as cluster:
        cluster.fail("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        cluster.delay("Metadata", 1.0, times=1)
        producer: Producer[Any, Any] = Producer(**cluster.client_options, transactional_id="tx")
        await producer.start(wait=False)
        with pytest.raises(TransactionError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await producer.begin_transaction()
        await transfer(producer, 1)
        await producer.stop()
        assert_transferred(cluster, 1)


# Data flows


@jumping
async def test_records_flow_while_a_partition_is_added() -> None:
    """Records of partitions that the transaction already has are sent meanwhile (exceeds Java's SEN-01)."""
    async with transactional(1) as (cluster, producer):
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"0", partition=0)
        hang = cluster.hang("AddPartitionsToTxn", times=1)
        held = await producer.send("orders", b"held", partition=1)
        await cluster.seen("AddPartitionsToTxn", 2)
        for _ in range(3):
            await producer.send_and_wait("orders", b"flows", partition=0)
        assert not held.done()
        hang.release()
        await held
        await producer.commit_transaction()
        assert committed(cluster, partition=0) == [b"0", b"flows", b"flows", b"flows"]


@jumping
async def test_the_last_epoch() -> None:
    """Version 2: after the last epoch, the end of a transaction returns another producer id."""
    async with transactional(2) as (cluster, producer):

        def skip_epochs(answer: Any) -> None:
            answer.producer_epoch = cluster.transactions["tx"].epoch = 32_766

        cluster.rewrite("EndTxn", skip_epochs)
        for number in (1, 2, 3, 4):
            await transfer(producer, number)
        assert_transferred(cluster, 4)
