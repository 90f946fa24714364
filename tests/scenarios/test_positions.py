"""The position of a job in its source, committed with its records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from transacting import VERSIONS, asked, committed, transactional
from whole import jumping, running, turns

from aioproducer import (
    BrokerError,
    MetadataTimeout,
    OffsetAndMetadata,
    Position,
    Producer,
    TopicPartition,
    TransactionAbortable,
    TransactionMisuse,
    TransactionTimeout,
    UsageError,
)
from tests.scenarios.test_prepared import prepared_by, refusal, resolving, with_topic

if TYPE_CHECKING:
    from aioproducer.testing import FakeCluster


def again(cluster: FakeCluster, **options: Any) -> Producer[bytes, bytes]:
    """Return a producer with the transactional id of the first one, as a job that is started again."""
    return Producer(**{**cluster.client_options, "transactional_id": "tx", **options})


@VERSIONS
@jumping
async def test_a_job_continues_behind_its_position(version: int) -> None:
    """Records and position are one: an abort, and a death within a transaction, change neither of them."""
    async with transactional(version) as (cluster, producer):
        assert await producer.committed_position("import", topic="orders") is None
        async with producer.transaction():
            await producer.send("orders", b"1", partition=0)
            await producer.send_position_to_transaction("import", 1, "file-a", topic="orders")
            await producer.send_position_to_transaction("import", 2, "file-b", topic="orders")
        assert await producer.committed_position("import", topic="orders") == Position(2, "file-b")
        await producer.begin_transaction()
        await producer.send_position_to_transaction("import", 3, topic="orders")
        await producer.abort_transaction()
        assert await producer.committed_position("import", topic="orders") == (2, "file-b")
        assert await producer.committed_position("another job", topic="orders") is None
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"lost", partition=0)
        await producer.send_position_to_transaction("import", 4, topic="orders")
        # the first producer is still there: the second one fences it
        async with again(cluster) as second:
            assert await second.committed_position("import", topic="orders") == (2, "file-b")
            async with second.transaction():
                await second.send("orders", b"4", partition=0)
                await second.send_position_to_transaction("import", 4, topic="orders")
            assert await second.committed_position("import", topic="orders") == Position(4)
        assert committed(cluster) == [b"1", b"4"]


@jumping
async def test_where_it_has_no_place() -> None:
    """The position is read between transactions, by a producer that has them."""
    async with transactional(2) as (cluster, producer):
        with pytest.raises(
            TransactionMisuse, match=r"send_position_to_transaction\(\) has no place here"
        ):
            await producer.send_position_to_transaction("import", 1, topic="orders")
        await producer.begin_transaction()
        with pytest.raises(
            TransactionMisuse,
            match=r"committed_position\(\) has no place here: the producer has a transaction open",
        ):
            await producer.committed_position("import", topic="orders")
        await producer.abort_transaction()
        with pytest.raises(MetadataTimeout, match="nowhere"):
            await producer.committed_position("import", topic="nowhere")
        async with running(cluster) as (_, plain):
            with pytest.raises(UsageError, match="transactional_id"):
                await plain.committed_position("import", topic="orders")
    assert asked(cluster, "OffsetFetch") == []


@pytest.mark.parametrize(
    ("position", "text"),
    [
        ({"job": ""}, "job=''"),
        ({"job": 5}, "job=5"),
        ({"topic": ""}, "topic=''"),
        ({"number": -1}, "number=-1"),
        ({"number": 2**63}, "number="),
        ({"number": True}, "number=True"),
        ({"number": 1.0}, "number=1.0"),
        ({"cursor": b"bytes"}, "cursor must be a string, not bytes"),
        ({"cursor": "\ud800"}, "UTF-8"),
    ],
)
@jumping
async def test_what_is_no_position(position: dict[str, Any], text: str) -> None:
    """It is refused before anything is sent, and the transaction goes on."""
    async with transactional(2) as (cluster, producer), producer.transaction():
        given: dict[str, Any] = {"job": "import", "number": 1, "topic": "orders", **position}
        with pytest.raises(UsageError, match=text):
            await producer.send_position_to_transaction(**given)
    assert asked(cluster, "TxnOffsetCommit") == []


@pytest.mark.parametrize(
    "fault",
    [
        ("OffsetFetch", "NOT_COORDINATOR"),
        ("OffsetFetch", "COORDINATOR_NOT_AVAILABLE"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetFetch", "UNSTABLE_OFFSET_COMMIT"),
        ("OffsetFetch", None),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("FindCoordinator", None),
    ],
    ids=str,
)
@jumping
async def test_what_passes(fault: tuple[str, str | None]) -> None:
    """Errors that pass, and lost connections, are tried again."""
    api, error = fault
    async with transactional(2) as (cluster, producer):
        async with producer.transaction():
            await producer.send_position_to_transaction("import", 1, topic="orders")
        if error is None:
            cluster.fail(api, disconnect="before", times=2)
        else:
            cluster.fail(api, error, times=2)
        async with again(cluster) as second:
            assert await second.committed_position("import", topic="orders") == Position(1)


@jumping
async def test_what_does_not_pass() -> None:
    """A refusal is raised at once. What lasts longer than max_block_ms ends in an error that names it."""
    async with transactional(2, max_block_ms=5_000) as (cluster, producer):
        cluster.fail("OffsetFetch", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
            await producer.committed_position("import", topic="orders")
        cluster.fail("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", times=None)
        began_at = asyncio.get_running_loop().time()
        with pytest.raises(
            TransactionTimeout,
            match=r"'import' did not end within max_block_ms=5000: .*UNSTABLE_OFFSET_COMMIT",
        ) as raised:
            await producer.committed_position("import", topic="orders")
        assert asyncio.get_running_loop().time() - began_at == pytest.approx(5, abs=0.1)
        assert isinstance(raised.value.__cause__, BrokerError)


@VERSIONS
@jumping
async def test_a_position_that_is_refused(version: int) -> None:
    """A cursor that is too long, and a topic that may not be read, cost the transaction, and no more."""
    async with transactional(version) as (cluster, producer):
        with pytest.raises(
            TransactionAbortable, match=r"OFFSET_METADATA_TOO_LARGE.*give a shorter one"
        ):
            async with producer.transaction():
                await producer.send("orders", b"lost", partition=0)
                await producer.send_position_to_transaction(
                    "import", 1, "x" * 4_097, topic="orders"
                )
        cluster.fail("TxnOffsetCommit", "TOPIC_AUTHORIZATION_FAILED", topic="orders")
        with pytest.raises(
            TransactionAbortable,
            match=r"TOPIC_AUTHORIZATION_FAILED.*for offsets and positions, Read",
        ):
            async with producer.transaction():
                await producer.send_position_to_transaction("import", 1, topic="orders")
        async with producer.transaction():
            await producer.send("orders", b"kept", partition=0)
            await producer.send_position_to_transaction("import", 1, "x" * 4_096, topic="orders")
        assert await producer.committed_position("import", topic="orders") == Position(
            1, "x" * 4_096
        )
        assert committed(cluster) == [b"kept"]


@jumping
async def test_another_producers_transaction_holds_it() -> None:
    """A second job of the same name, under another transactional id, is no earlier instance: its position is waited for."""
    async with (
        transactional(2) as (cluster, producer),
        again(cluster, transactional_id="other") as other,
    ):
        await other.begin_transaction()
        await other.send_position_to_transaction("import", 7, topic="orders")
        reading = asyncio.create_task(producer.committed_position("import", topic="orders"))
        async with asyncio.timeout(10):
            await cluster.seen("OffsetFetch", 3)
        assert not reading.done()
        await other.commit_transaction()
        assert await reading == Position(7)


@jumping
async def test_a_cancelled_call_leaves_nothing() -> None:
    """No further request is sent, and the next call works."""
    async with transactional(2) as (cluster, producer):
        hang = cluster.hang("OffsetFetch", times=1)
        reading = asyncio.create_task(producer.committed_position("import", topic="orders"))
        await cluster.seen("OffsetFetch", 1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        hang.release()
        await turns(20)
        assert len(asked(cluster, "OffsetFetch")) == 1
        assert await producer.committed_position("import", topic="orders") is None


@VERSIONS
@jumping
async def test_the_topic_of_the_position_is_deleted(version: int) -> None:
    """The error names it: the topic may be one that is used for nothing else."""
    async with transactional(version) as (cluster, producer):
        cluster.create_topic("ledger")
        await producer.begin_transaction()
        await producer.send_position_to_transaction("import", 1, topic="ledger")
        cluster.delete_topic("ledger")
        with pytest.raises(
            TransactionTimeout,
            match=r"TxnOffsetCommit is not answered \(UNKNOWN_TOPIC_OR_PARTITION \(3\): ledger-0\)",
        ):
            await producer.send_position_to_transaction("import", 2, topic="ledger")


@pytest.mark.parametrize("newest", [6, 7, 8, 9, 10])
@jumping
async def test_versions_of_offset_fetch(newest: int) -> None:
    """Before Kafka 2.5 a broker does not tell which offsets are stable: the call refuses to guess."""
    async with transactional(2) as (cluster, producer):
        async with producer.transaction():
            await producer.send_position_to_transaction("import", 3, "c", topic="orders")
        cluster.speak(versions={"OffsetFetch": (1, newest)})
        if newest < 7:
            with pytest.raises(BrokerError, match=r"older than Kafka 2\.5"):
                await producer.committed_position("import", topic="orders")
        else:
            assert await producer.committed_position("import", topic="orders") == Position(3, "c")


@jumping
async def test_the_coordinator_moves() -> None:
    """The position is found at the broker that is the coordinator now; the broker that was asked before is gone."""
    async with transactional(2, brokers=3) as (cluster, producer):
        async with producer.transaction():
            await producer.send_position_to_transaction("import", 3, topic="orders")
        assert await producer.committed_position("import", topic="orders") == Position(3)
        asked_first = next(
            request.broker for request in cluster.requests() if request.api == "OffsetFetch"
        )
        await cluster.brokers[asked_first].stop()
        assert await producer.committed_position("import", topic="orders") == Position(3)
        assert {
            request.broker for request in cluster.requests() if request.api == "OffsetFetch"
        } > {asked_first}


@pytest.mark.parametrize("newest", [1, 2, 6, 7, 8, 9, 10])
@jumping
async def test_all_offsets_of_a_group(newest: int) -> None:
    """Those that are committed, of each topic that may be described; those in an open transaction are waited for."""
    async with with_topic(2) as cluster, resolving(cluster, max_block_ms=3_000) as resolver:
        for topic in ("ledger", "secret"):
            cluster.create_topic(topic)
        at = {
            TopicPartition("ledger", 0): 4,
            TopicPartition("orders", 1): OffsetAndMetadata(7, "note"),
        }
        await resolver.commit_offsets("g", {**at, TopicPartition("secret", 0): 9})
        cluster.security.deny("*", "Describe", topic="secret")
        await prepared_by(cluster, "g")
        cluster.speak(versions={"OffsetFetch": (1, newest)})
        if newest < 7:
            assert await refusal(resolver.committed_offsets("g")) == "UNSUPPORTED_VERSION"
        else:
            with pytest.raises(
                TransactionTimeout,
                match=r"committed_offsets\(\) of 'g' did not end within max_block_ms=3000: UNSTABLE",
            ):
                await resolver.committed_offsets("g")
        if newest < 2:
            assert (
                await refusal(resolver.committed_offsets("g", stable=False))
                == "UNSUPPORTED_VERSION"
            )
        else:
            expected = {
                TopicPartition("ledger", 0): (4, "", -1),
                TopicPartition("orders", 1): (7, "note", -1),
            }
            assert await resolver.committed_offsets("g", stable=False) == expected
            assert await resolver.committed_offsets("nobody", stable=False) == {}
        with pytest.raises(UsageError):
            await resolver.committed_offsets("")
