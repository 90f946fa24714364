"""Tests of a resolver's queries: the offsets that it commits and reads, and the transactions that brokers list and describe."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from transacting import VERSIONS, committed
from whole import jumping

from aioproducer import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Position,
    PreparedTransaction,
    Producer,
    TopicPartition,
    TransactionListing,
    TransactionTimeout,
    UsageError,
)
from aioproducer.testing import FakeCluster
from tests.scenarios.test_prepared import prepared_by, refusal, resolving, with_topic


@pytest.mark.parametrize(
    ("api", "version", "waits"),
    [("OffsetCommit", 3, 0), ("OffsetCommit", 4, 2), ("OffsetFetch", 3, 0), ("OffsetFetch", 4, 2)],
)
@jumping
async def test_a_broker_before_2_0_has_waited_before_it_answers(
    api: str, version: int, waits: int
) -> None:
    """Below version 4 of these requests the throttle time is over with the answer, and nothing waits for it again (KIP-219)."""
    loop = asyncio.get_running_loop()
    async with FakeCluster(memory=True, versions={api: (2, version)}) as cluster:
        cluster.create_topic("orders")
        async with resolving(cluster) as resolver:
            cluster.throttle(api, 2.0, times=1)
            if api == "OffsetCommit":
                await resolver.commit_offsets("g", {("orders", 0): 5})
            else:
                await resolver.committed_offset("g", "orders", stable=False)
            began = loop.time()
            await resolver.committed_offset("g", "orders", stable=False)
            assert loop.time() - began == pytest.approx(waits)


@jumping
async def test_offsets_are_committed_and_read() -> None:
    """As a group without members has them; a lower offset replaces a higher one."""
    async with with_topic(2) as cluster, resolving(cluster, max_block_ms=3_000) as resolver:
        await resolver.commit_offsets(
            "g", {("orders", 0): 5, ("orders", 1): OffsetAndMetadata(7, "note")}
        )
        assert await resolver.committed_offset("g", "orders") == Position(5)
        await resolver.commit_offsets(
            ConsumerGroupMetadata("g"), {TopicPartition("orders", 0): (3, "rewound")}
        )
        assert await resolver.committed_offset("g", "orders", stable=False) == Position(
            3, "rewound"
        )
        assert cluster.committed("g") == {("orders", 0): 3, ("orders", 1): 7}
        await resolver.commit_offsets("g", {})
        assert (
            await refusal(
                resolver.commit_offsets("g", {("orders", 0): (1, "x" * 4_097), ("nowhere", 0): 1})
            )
            == "OFFSET_METADATA_TOO_LARGE"
        )
        with pytest.raises(
            TransactionTimeout,
            match=r"commit_offsets\(\) of 'g' .*UNKNOWN_TOPIC_OR_PARTITION \(3\): OffsetCommit for group 'g' was refused: nowhere-0",
        ):
            await resolver.commit_offsets("g", {("nowhere", 0): 1})
        member = ConsumerGroupMetadata("g", 4, "member")
        assert await refusal(resolver.commit_offsets(member, {("orders", 0): 1})) in (
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
        )
        with pytest.raises(UsageError):
            await resolver.commit_offsets("", {("orders", 0): 1})
        with pytest.raises(UsageError):
            await resolver.commit_offsets("g", {("orders", 0): -1})


@pytest.mark.parametrize("newest", [0, 1, 2])
@jumping
async def test_transactions_are_listed(newest: int) -> None:
    """Every broker is asked for those that it coordinates; a prefix is no pattern, also where brokers know none."""
    async with with_topic(2, brokers=3) as cluster:
        cluster.speak(versions={"ListTransactions": (0, newest)})
        for broker, name in enumerate(("a.b-1", "a.b-2", "aXb-3"), 1):
            cluster.move_coordinator(name, broker)
            await prepared_by(cluster, name)
        async with resolving(cluster) as resolver:
            await resolver.abort(PreparedTransaction("a.b-2", 1, 0, 2))
            listed = [
                TransactionListing("a.b-1", 0, "Ongoing"),
                TransactionListing("a.b-2", 1, "CompleteAbort"),
            ]
            assert await resolver.list_transactions("a.b") == listed
            assert [one.transactional_id for one in await resolver.list_transactions()] == [
                "a.b-1",
                "a.b-2",
                "aXb-3",
            ]
            for unlisted in ("z", "a.b" * 10_920):
                assert await resolver.list_transactions(unlisted) == []
            asked = [
                request.message.transactional_id_pattern
                for request in cluster.requests("ListTransactions")
            ]
            # Brokers read texts of 32,767 bytes. The prefix is not longer, but its pattern is, so all ids are asked for.
            assert asked[-1] is None
            for unreadable in ("x" * 32_768, "\ud800"):
                with pytest.raises(UsageError, match=r"^prefix "):
                    await resolver.list_transactions(unreadable)
                with pytest.raises(UsageError, match=r"^a transactional id "):
                    await resolver.describe_transactions(["tx", unreadable])
            cluster.fail("ListTransactions", "COORDINATOR_LOAD_IN_PROGRESS")
            assert await resolver.list_transactions("a.b") == listed
            await cluster.brokers[3].stop()
            assert len(await resolver.list_transactions()) == 3
            with pytest.raises(UsageError, match="prefix=5"):
                await resolver.list_transactions(5)  # type: ignore[arg-type]


@VERSIONS
@jumping
async def test_transactions_are_described(version: int) -> None:
    """State, epoch, age, time-out and partitions of each; unknown ones are left out."""
    async with with_topic(version, brokers=3) as cluster, resolving(cluster) as resolver:
        for broker, name in enumerate(("one", "two", "three"), 1):
            cluster.move_coordinator(name, broker)
        one = await prepared_by(cluster, "one", transaction_timeout_ms=30_000)
        await resolver.commit(await prepared_by(cluster, "two"))
        async with Producer(**cluster.client_options, transactional_id="three"):
            pass
        names = ["two", "nobody", "one", "three", "one"]
        two_told, one_told, three_told = await resolver.describe_transactions(names)
        assert (one_told.transactional_id, one_told.producer_id, one_told.epoch) == one[:3]
        assert (one_told.state, one_told.timeout_ms) == ("Ongoing", 30_000)
        assert one_told.started_at is not None
        assert abs((datetime.now(UTC) - one_told.started_at).total_seconds()) < 60
        assert TopicPartition("orders", 0) in one_told.partitions
        assert {partition.topic for partition in one_told.partitions} == {
            "orders",
            "__consumer_offsets",
        }
        assert (two_told.state, two_told.partitions) == ("CompleteCommit", ())
        assert (three_told.state, three_told.started_at) == ("Empty", None)
        cluster.move_coordinator("one", 2)
        assert len(await resolver.describe_transactions(names)) == 3
        assert await resolver.describe_transactions([]) == []


@pytest.mark.parametrize("at_ms", [2**63 - 1, 253_402_300_800_000])
@jumping
async def test_a_transaction_that_began_when_no_calendar_has_a_year_is_asked_for_again(
    at_ms: int,
) -> None:
    """The answer is none of the protocol, as one that does not decode."""

    def spoil(answer: Any) -> None:
        answer.transaction_states[0].transaction_start_time_ms = at_ms

    async with with_topic(2) as cluster, resolving(cluster) as resolver:
        await prepared_by(cluster, "one")
        cluster.rewrite("DescribeTransactions", spoil)
        (told,) = await resolver.describe_transactions(["one"])
        assert told.state == "Ongoing"
        assert len(cluster.requests("DescribeTransactions")) == 2
        cluster.fail("DescribeTransactions", "COORDINATOR_LOAD_IN_PROGRESS")
        assert len(await resolver.describe_transactions(["one"])) == 1
        for wrong in ("one", [""], [5], None, 5):
            with pytest.raises(UsageError, match="are no transactional ids"):
                await resolver.describe_transactions(wrong)  # type: ignore[arg-type]


@jumping
async def test_brokers_that_are_too_old() -> None:
    """Before Kafka 3.0 brokers list no transactions, and the error says so; they are ended all the same."""
    async with with_topic(1) as cluster:
        prepared = await prepared_by(cluster)
        cluster.speak("2.8")
        async with resolving(cluster) as resolver:
            for call in (resolver.list_transactions(), resolver.describe_transactions(["tx"])):
                assert await refusal(call) == "UNSUPPORTED_VERSION"
            await resolver.commit(prepared)
        assert committed(cluster) == [b"v"]
