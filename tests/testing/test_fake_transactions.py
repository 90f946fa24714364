"""Tests of `aioproducer.testing.transactions` and the requests about it, in time that jumps; test_fake_alike compares them with Kafka's."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from group_members import named
from jumping import jumping
from transactional import Hand

from aioproducer.errors import ConnectionLost
from aioproducer.testing import FakeCluster, run_jumping
from aioproducer.testing.client import WireClient
from aioproducer.testing.record_batches import ControlType, control_type
from aioproducer.testing.transactions import State
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STALE = "INVALID_PRODUCER_EPOCH"
FENCED = "PRODUCER_FENCED"
BUSY = "CONCURRENT_TRANSACTIONS"


@asynccontextmanager
async def staged(
    version: int = 2, release: str = "4.3", brokers: int = 1
) -> AsyncIterator[tuple[FakeCluster, Hand]]:
    """Give a producer with the transactional id tx and the topic orders with two partitions. It has not asked for its producer id yet."""
    async with FakeCluster(
        brokers, memory=True, verify_records=True, version=release, transaction_version=version
    ) as cluster:
        cluster.create_topic("orders", 2)
        async with WireClient(
            cluster.bootstrap_servers, dialer=cluster.network, timeout=1000
        ) as client:
            yield cluster, Hand(client, "orders", "tx", version)
        assert cluster.violations == []


# Producers that may write


@jumping
async def test_epochs_end() -> None:
    """After epoch 32766 the coordinator gives another producer id. It gives the same answer to a producer that asks again."""
    async with staged() as (cluster, hand):
        await hand.init()
        cluster.transactions["tx"].epoch = 32_765
        await hand.init()
        old = hand.producer_id, hand.epoch
        assert old == (0, 32_766)
        for _ in range(2):
            assert not await hand.init(named=old)
            assert (hand.producer_id, hand.epoch) == (1, 0)
        assert await hand.init(named=(old[0], 32_765)) == FENCED
        cluster.transactions["tx"].epoch = 32_766
        assert await hand.init(named=(1, 5)) == "UNKNOWN_SERVER_ERROR"
        assert not await hand.init()
        assert (hand.producer_id, hand.epoch) == (2, 0)


@pytest.mark.parametrize("delay", [0, 1])
@jumping
async def test_epochs_end_with_a_transaction(delay: float) -> None:
    """In version 2, EndTxn answers with the next producer id, and with the same one when asked again. The marker has epoch 32767, which no
    producer gets.
    """
    async with staged() as (cluster, hand):
        await hand.init()
        cluster.transactions["tx"].epoch = hand.epoch = 32_766
        await hand.write(b"a")
        cluster.marker_delay = delay
        who = {"producer_id": hand.producer_id, "producer_epoch": hand.epoch}
        assert await hand.end(commit=True) == ("", False, -32_766)
        assert (hand.producer_id, hand.epoch) == (1, 0)
        assert await hand.end(commit=True, **who) == ("", False, -32_766)
        assert (await hand.end(commit=False, **who))[0] == "INVALID_TXN_STATE"
        assert [batch.producer_epoch for batch in cluster.log("orders", 0).batches()] == [
            32_766,
            32_767,
        ]
        assert (await hand.write(b"b"))[0] == (await hand.end(commit=True))[0] == ""
        await asyncio.sleep(delay)
        assert cluster.values("orders", isolation="read_committed") == [b"a", b"b"]


@jumping
async def test_the_last_epoch_is_fenced_too() -> None:
    """In version 1, the transaction's owner cannot have the epoch after it, so the next producer gets another id."""
    async with staged(version=1) as (cluster, hand):
        await hand.init()
        cluster.transactions["tx"].epoch = hand.epoch = 32_766
        await hand.add(0)
        await hand.write(b"a")
        second = Hand(hand.client, "orders", "tx", 1)
        assert await second.init(retries=False) == BUSY
        assert cluster.transactions["tx"].epoch == 32_767
        assert not await second.init()
        assert (second.producer_id, second.epoch) == (1, 0)
        assert (await hand.write(b"b"))[0] == STALE


# The end of a transaction


@jumping
async def test_a_transaction_that_has_ended_is_not_aborted() -> None:
    """Though its markers take longer than its time-out."""
    async with staged() as (cluster, hand):
        await hand.init(transaction_timeout_ms=1000)
        await hand.write(b"a")
        cluster.marker_delay = 5
        await hand.end(commit=True)
        await asyncio.sleep(10)
        assert (cluster.transactions["tx"].state, cluster.transactions["tx"].epoch) == (
            State.COMPLETE_COMMIT,
            hand.epoch,
        )
        assert cluster.values("orders", isolation="read_committed") == [b"a"]


@pytest.mark.parametrize("version", [1, 2])
@jumping
async def test_all_wait_for_markers(version: int) -> None:
    """Until the markers are written, the coordinator answers requests with CONCURRENT_TRANSACTIONS, except an EndTxn with the other
    verdict.
    """
    async with staged(version) as (cluster, hand):
        await hand.init()
        await hand.add(0)
        await hand.write(b"a")
        cluster.marker_delay = 5
        before = {"producer_epoch": hand.epoch}
        await hand.end(commit=True)
        now = {"retries": False}
        assert await hand.add(1, **now) == {1: BUSY}
        assert await hand.add_offsets("g", **now) == await hand.init(**now) == BUSY
        assert await hand.commit_offsets("g", {0: 1}, **now) == {0: BUSY}
        assert (await hand.write(b"b", partition=1, **now))[0] == (
            BUSY if version > 1 else "NOT_ENOUGH_REPLICAS"
        )
        assert [
            (await hand.end(commit=commit, **before, **now))[0] for commit in (True, False)
        ] == [BUSY, "INVALID_TXN_STATE"]
        if version > 1:
            assert (await hand.end(commit=True, **now))[0] == FENCED
        assert cluster.values("orders", isolation="read_committed") == []
        await asyncio.sleep(5)
        assert cluster.values("orders", isolation="read_committed") == [b"a"]
        assert (await hand.end(commit=True, **before))[0] == ""
        assert await hand.add(1) == {1: ""}


@jumping
async def test_a_marker_says_how_it_ended() -> None:
    """In a control batch that takes an offset, in each partition, and in no view of records."""
    async with staged() as (cluster, hand):
        await hand.init()
        for commit in (True, False):
            await hand.write(b"a")
            await hand.end(commit=commit)
        batches = cluster.log("orders", 0).batches()
        kinds = [control_type(batch.records()[0]) for batch in batches if batch.is_control]
        assert kinds == [ControlType.COMMIT, ControlType.ABORT]
        assert [batch.base_offset for batch in batches] == [0, 1, 2, 3]
        assert [record.offset for record in cluster.records("orders", 0)] == [0, 2]
        assert [
            record.offset for record in cluster.records("orders", 0, isolation="read_committed")
        ] == [0]
        await hand.write(b"b", partition=1)
        await hand.end(commit=True)
        assert cluster.end_offsets("orders") == {0: 4, 1: 2}
        assert cluster.log("orders", 1).replicated == 2


@jumping
async def test_a_topic_may_be_gone_by_the_end() -> None:
    """It gets no marker; the others do."""
    async with staged() as (cluster, hand):
        cluster.create_topic("gone")
        await hand.init()
        await hand.write(b"a", name="gone")
        await hand.write(b"b", sequence=0)
        cluster.delete_topic("gone")
        assert (await hand.end(commit=True))[0] == ""
        assert cluster.values("orders", isolation="read_committed") == [b"b"]


def test_no_timer_outlives_the_cluster() -> None:
    """The cluster's end cancels the timer of an open transaction and the timer of markers to come."""

    async def main() -> FakeCluster:
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders", 2)
            cluster.marker_delay = 100
            async with WireClient(cluster.bootstrap_servers, dialer=cluster.network) as client:
                for name in ("open", "ending"):
                    hand = Hand(client, "orders", name)
                    await hand.init()
                    await hand.write(b"a")
                await hand.end(commit=True)
            assert all(cluster.transactions[name].timer for name in ("open", "ending"))
        return cluster

    cluster = run_jumping(main())
    assert not any(cluster.transactions[name].timer for name in ("open", "ending"))


# Where it is coordinated


@jumping
async def test_a_coordinator_moves_with_its_state() -> None:
    """The old one says that it is none; brokers that do not reach it cannot verify."""
    async with staged(brokers=2) as (cluster, hand):
        cluster.move_leader("orders", 1, to=1)
        await hand.client.metadata()
        await hand.init()
        assert "tx" in cluster.transactions
        await hand.write(b"a")
        cluster.move_coordinator("tx", to=2)
        found = await hand.client.ask(ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=["tx"])
        assert found.coordinators[0].node_id == 2
        fields: dict[str, Any] = {
            "transactional_id": "tx",
            "producer_id": hand.producer_id,
            "producer_epoch": hand.epoch,
        }
        for key, more in (
            (ApiKey.END_TXN, {"committed": True}),
            (ApiKey.ADD_OFFSETS_TO_TXN, {"group_id": "g"}),
            (ApiKey.INIT_PRODUCER_ID, {"transaction_timeout_ms": 9000}),
        ):
            assert (
                named((await hand.client.ask(key, node=1, **fields, **more)).error_code)
                == "NOT_COORDINATOR"
            )
        assert (await hand.write(b"b"))[0] == ""
        await cluster.brokers[2].stop(silently=True)
        assert (await hand.write(b"c", partition=1))[0] == "NOT_ENOUGH_REPLICAS"
        await cluster.brokers[2].start()
        assert (await hand.write(b"c", partition=1))[0] == ""
        assert not (
            await hand.client.ask(ApiKey.END_TXN, node=2, committed=True, **fields)
        ).error_code


# Offsets that a group commits with the transaction


# Means for tests


@jumping
async def test_each_request_can_be_made_to_fail() -> None:
    """The broker answers each request with the scripted error, and does not carry it out."""
    async with staged() as (cluster, hand):
        cluster.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS")
        cluster.fail("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        assert await hand.init() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        assert "tx" not in cluster.transactions
        await hand.init()
        cluster.fail("AddPartitionsToTxn", "TOPIC_AUTHORIZATION_FAILED", partition=1)
        assert await hand.add(0, 1) == {
            0: "OPERATION_NOT_ATTEMPTED",
            1: "TOPIC_AUTHORIZATION_FAILED",
        }
        cluster.fail("AddOffsetsToTxn", "GROUP_AUTHORIZATION_FAILED")
        assert await hand.add_offsets("g") == "GROUP_AUTHORIZATION_FAILED"
        cluster.fail("TxnOffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION", partition=0)
        assert cluster.transactions["tx"].state is State.EMPTY
        assert await hand.commit_offsets("g", {0: 1, 1: 2}) == {
            0: "UNKNOWN_TOPIC_OR_PARTITION",
            1: "",
        }
        cluster.fail("EndTxn", "TRANSACTION_ABORTABLE")
        assert (await hand.end(commit=True))[0] == "TRANSACTION_ABORTABLE"
        assert cluster.transactions["tx"].state is State.ONGOING
        cluster.fail("EndTxn", disconnect="after")
        with pytest.raises(ConnectionLost):
            await hand.end(commit=True)
        assert cluster.committed("g") == {("orders", 1): 2}
        assert (await hand.end(commit=True))[0] == ""
        cluster.assert_all_fired()


@pytest.mark.parametrize(
    ("release", "level", "tells"),
    [("4.3", 2, 2), ("4.3", 1, 1), ("4.3", 0, None), ("4.0", 2, 2), ("3.9", 2, None)],
)
@jumping
async def test_the_feature_is_named(release: str, level: int, tells: int | None) -> None:
    """Where there is one; a level that changes makes the view newer."""
    async with staged(level, release) as (cluster, hand):

        async def features(version: int) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
            answer = await hand.client.ask(
                ApiKey.API_VERSIONS,
                version=version,
                client_software_name="test",
                client_software_version="1",
            )
            supported = {
                one.name: (one.min_version, one.max_version) for one in answer.supported_features
            }
            finalized = {one.name: one.max_version_level for one in answer.finalized_features}
            return supported, finalized, answer.finalized_features_epoch

        supported, finalized, epoch = await features(4)
        assert supported == ({} if release == "3.9" else {"transaction.version": (0, 2)})
        assert finalized == ({} if tells is None else {"transaction.version": tells})
        assert (await features(3))[:2] == ({}, finalized)
        cluster.transaction_version = 1
        assert (await features(4))[2] == (epoch if release == "3.9" else epoch + 1)


@pytest.mark.parametrize("level", [-1, 3])
def test_no_other_level_is_taken(level: int) -> None:
    """In the beginning or later."""
    with pytest.raises(ValueError, match="0, 1 or 2"):
        FakeCluster(transaction_version=level)
