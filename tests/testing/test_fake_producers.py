"""Tests of `aioproducer.testing.producers`, through a cluster's log: epochs, sequences, windows of five, open and aborted transactions."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from transactional import Hand

from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio
LAST = 2**31 - 1
OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
STALE = "INVALID_PRODUCER_EPOCH"


@asynccontextmanager
async def writing(
    name: str | None = None, version: int = 2
) -> AsyncIterator[tuple[FakeCluster, Hand]]:
    """Yield a cluster and a producer that knows its producer id. The partition does not know the producer yet."""
    async with FakeCluster(memory=True, verify_records=True) as cluster:
        cluster.create_topic("orders", 2)
        async with WireClient(cluster.bootstrap_servers, dialer=cluster.network) as client:
            hand = Hand(client, "orders", name, version)
            assert not await hand.init()
            yield cluster, hand
        assert cluster.violations == []


# each: (epoch, sequence, records) and the error or the offset
FIVE = [((0, n, 1), n) for n in range(5)]
STORIES: dict[str, list[tuple[tuple[int, int, int], str | int]]] = {
    "one after another": [((0, 0, 3), 0), ((0, 3, 1), 3), ((0, 4, 2), 4)],
    "who is not known begins anywhere": [((0, 7, 2), 0), ((0, 9, 1), 2)],
    "the same again": [((0, 0, 2), 0), ((0, 0, 2), 0), ((0, 2, 1), 2), ((0, 0, 2), 0)],
    "a gap": [((0, 0, 1), 0), ((0, 2, 1), OUT_OF_ORDER), ((0, 1, 1), 1)],
    "another cut of the same records": [
        ((0, 0, 2), 0),
        ((0, 0, 1), OUT_OF_ORDER),
        ((0, 1, 1), OUT_OF_ORDER),
        ((0, 0, 3), OUT_OF_ORDER),
    ],
    "the last five are remembered": [*FIVE, *FIVE],
    "a sixth is not": [*FIVE, ((0, 5, 1), 5), ((0, 0, 1), OUT_OF_ORDER), ((0, 1, 1), 1)],
    "a new epoch begins at 0": [
        ((0, 0, 1), 0),
        ((1, 1, 1), OUT_OF_ORDER),
        ((1, 0, 1), 1),
        ((1, 1, 1), 2),
    ],
    "a new epoch of who is not known": [((3, 5, 1), 0)],
    "an old epoch": [((0, 0, 1), 0), ((1, 0, 1), 1), ((0, 1, 1), STALE), ((0, 0, 1), STALE)],
    "the last epoch": [((32767, 0, 1), 0), ((32767, 1, 1), 1)],
    "after the last sequence": [
        ((0, LAST, 1), 0),
        ((0, LAST, 1), 0),
        ((0, 1, 1), OUT_OF_ORDER),
        ((0, 0, 1), 1),
    ],
    "a batch across the last sequence": [
        ((0, LAST, 3), 0),
        ((0, 1, 1), OUT_OF_ORDER),
        ((0, LAST, 3), 0),
        ((0, 2, 1), 3),
    ],
    "up to the last sequence": [
        ((0, LAST - 1, 2), 0),
        ((0, LAST, 1), OUT_OF_ORDER),
        ((0, 0, 1), 2),
    ],
}


@pytest.mark.parametrize("story", STORIES)
async def test_what_may_follow_what(story: str) -> None:
    """A duplicate has its first offset; what is refused leaves no trace."""
    async with writing() as (cluster, hand):
        for number, ((epoch, sequence, count), expected) in enumerate(STORIES[story]):
            error, offset, _ = await hand.write(*[b"v"] * count, epoch=epoch, sequence=sequence)
            assert (number, error or offset) == (number, expected)
        assert len(cluster.values("orders", 0)) == cluster.end_offsets("orders")[0]


async def test_a_leader_move_keeps_what_is_known() -> None:
    """It is replicated with the log."""
    async with writing() as (cluster, hand):
        await hand.write(b"a", sequence=4)
        await cluster.add_broker()
        cluster.move_leader("orders", 0, to=2)
        await hand.client.metadata()
        cluster.move_leader("orders", 0, to=1)
        assert (await hand.write(b"a", sequence=4))[1] == 0
        assert (await hand.write(b"a", sequence=6))[0] == OUT_OF_ORDER


async def test_producers_can_be_forgotten() -> None:
    """The partition forgets producers as by retention, except those with an open transaction."""
    async with writing() as (cluster, hand):
        await hand.write(b"a", sequence=0)
        await hand.write(b"a", sequence=0, partition=1)
        cluster.forget_producers("orders", 0)
        assert [
            (await hand.write(b"b", sequence=9, partition=partition))[0] for partition in range(2)
        ] == ["", OUT_OF_ORDER]
        writer = Hand(hand.client, "orders", "tx")
        await writer.init()
        await writer.write(b"c")
        cluster.forget_producers("orders")
        assert (await writer.write(b"c", sequence=5))[0] == OUT_OF_ORDER
        assert cluster.log("orders", 0).last_stable_offset == 2


async def test_producers_can_be_set() -> None:
    """To sequences and epochs that take long to reach."""
    async with writing() as (cluster, hand):
        producers = cluster.log("orders", 0).producers
        assert (
            producers.epoch_of(hand.producer_id),
            producers.last_sequence_of(hand.producer_id),
        ) == (-1, -1)
        producers.set(hand.producer_id, 32_766, LAST)
        assert (
            producers.epoch_of(hand.producer_id),
            producers.last_sequence_of(hand.producer_id),
        ) == (32_766, LAST)
        assert (await hand.write(b"a", epoch=32_766, sequence=1))[0] == OUT_OF_ORDER
        assert (await hand.write(b"a", epoch=32_766, sequence=0))[:2] == ("", 0)
        cluster.transactions.ids.next = 2**62
        await hand.init()
        assert hand.producer_id == 2**62


async def test_a_truncated_log_knows_what_is_left() -> None:
    """A producer may write truncated records again. A transaction that lost its beginning is not open any more."""
    async with writing() as (cluster, hand):
        writer = Hand(hand.client, "orders", "tx")
        await writer.init()
        await writer.write(b"1")
        await writer.end(commit=False)
        for sequence in range(3):
            await hand.write(b"a", sequence=sequence)
        await writer.write(b"2")
        log = cluster.log("orders", 0)
        assert (log.last_stable_offset, log.truncate(4)) == (5, 2)
        assert (log.last_stable_offset, log.end_offset) == (4, 4)
        assert cluster.values("orders", 0, isolation="read_committed") == [b"a", b"a"]
        assert (await hand.write(b"a", sequence=1))[:2] == ("", 3)
        assert (await hand.write(b"a", sequence=2))[:2] == ("", 4)


async def test_what_was_lost_before_it_was_answered_is_not_acknowledged() -> None:
    """A request that waits for replicas is answered NOT_LEADER_OR_FOLLOWER, with the offset of the append, as by Kafka's DelayedProduce."""
    async with writing() as (cluster, hand):
        held = cluster.hang("Produce", when="after")
        writing_it = asyncio.ensure_future(hand.write(b"a", sequence=0))
        log = cluster.log("orders", 0)
        while not log.end_offset:
            await asyncio.sleep(0)
        log.truncate(0)
        held.release()
        assert (await writing_it)[:2] == ("NOT_LEADER_OR_FOLLOWER", 0)
        assert log.replicated == 0
        assert (await hand.write(b"a", sequence=0))[:2] == ("", 0)
        assert log.replicated == 1


# Transactions in a log


async def test_what_comes_first_of_a_transaction_does_not_overtake_what_was_asked_about() -> None:
    """Version 1: a batch that was refused comes again before a later one is taken."""
    async with writing("tx", version=1) as (_, hand):
        assert (await hand.write(b"a", sequence=5))[0] == "TRANSACTION_ABORTABLE"
        await hand.add(0)
        assert (await hand.write(b"b", sequence=6))[0] == OUT_OF_ORDER
        assert (await hand.write(b"a", sequence=5))[:2] == ("", 0)
        assert (await hand.write(b"b", sequence=6))[:2] == ("", 1)
