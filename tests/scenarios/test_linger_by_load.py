"""`linger_ms="auto"`: a partial batch waits while a batch of its partition is in flight.

Otherwise it leaves at once.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from transacting import committed, transactional
from whole import jumping, now, running, turns

from aioproducer import DeliveryError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from aioproducer import Delivery, Producer
    from aioproducer.testing import FakeCluster

ROUND_TRIP = 0.1


@asynccontextmanager
async def far(**options: Any) -> AsyncIterator[tuple[FakeCluster, Producer[Any, Any]]]:
    """Give a producer that is a round trip away from its broker, after it has sent a record to partition 0 of orders."""
    async with running(linger_ms="auto", **options) as (cluster, producer):
        await producer.send_and_wait("orders", b"before", partition=0)
        cluster.brokers[1].latency = ROUND_TRIP
        yield cluster, producer


def batches(cluster: FakeCluster) -> list[list[bytes | None]]:
    """Return the values of each batch in the log of partition 0, after the first."""
    values: Iterator[bytes | None] = iter(cluster.values("orders", 0))
    return [
        [next(values) for _ in range(batch.count)] for batch in cluster.log("orders", 0).batches()
    ][1:]


def sent_at(cluster: FakeCluster) -> list[float]:
    """Return the time at which a broker took each Produce request, after the first."""
    return [request.at for request in cluster.requests("Produce")][1:]


async def send(
    producer: Producer[Any, Any], values: Sequence[bytes], every: float = 0.0
) -> list[Delivery]:
    """Send `values` to partition 0."""
    deliveries = []
    for value in values:
        deliveries.append(await producer.send("orders", value, partition=0))
        if every:
            await asyncio.sleep(every)
    return deliveries


@jumping
async def test_a_lone_record_leaves_at_once() -> None:
    """The record takes one round trip, and so does a record of another partition meanwhile."""
    async with far() as (_, producer):
        began = now()
        first = await producer.send("orders", b"first", partition=0)
        await asyncio.sleep(ROUND_TRIP / 2)
        await producer.send_and_wait("orders", b"elsewhere", partition=1)
        assert now() - began == pytest.approx(1.5 * ROUND_TRIP, abs=0.001)
        assert first.done()


@jumping
async def test_what_comes_while_one_is_in_flight_gathers_and_leaves_with_the_answer() -> None:
    """The records leave in one batch, in order, at the moment of the answer: not before, not later, and with no other record."""
    async with far() as (cluster, producer):
        began = now()
        first = await send(producer, [b"0"])
        await turns(5)
        gathered = await send(producer, [b"1", b"2", b"3", b"4", b"5"], every=ROUND_TRIP / 10)
        await asyncio.gather(*first, *gathered)
        assert batches(cluster) == [[b"0"], [b"1", b"2", b"3", b"4", b"5"]]
        first_at, second_at = sent_at(cluster)
        assert second_at - first_at == pytest.approx(ROUND_TRIP, abs=0.001)
        assert now() - began == pytest.approx(second_at - began + ROUND_TRIP, abs=0.001)


@jumping
async def test_full_batches_do_not_wait() -> None:
    """The Sender sends as many full batches as may be in flight at once. The partial batch waits for the last of them."""
    async with far(batch_size=1000) as (cluster, producer):
        began = now()
        await asyncio.gather(
            *await send(producer, [b"%02d" % number + b"." * 100 for number in range(20)])
        )
        *full, rest = batches(cluster)
        assert {len(batch) for batch in full} == {8}
        assert len(rest) == 4
        assert sent_at(cluster)[: len(full)] == pytest.approx([began] * len(full), abs=0.001)
        assert now() - began == pytest.approx(2 * ROUND_TRIP, abs=0.001)


@jumping
async def test_two_halves_of_a_crowd_become_one() -> None:
    """A task that gets its answer and sends again shares a batch with the records that waited for that answer.

    The two halves must not each wait for the other's round trip for ever.
    """
    async with far() as (cluster, producer):
        took: list[float] = []

        async def one_by_one(begin: float) -> None:
            await asyncio.sleep(begin)
            for _ in range(5):
                before = now()
                await producer.send_and_wait("orders", b"v", partition=0)
                took.append(now() - before)

        await asyncio.gather(*[one_by_one(number % 2 * ROUND_TRIP / 2) for number in range(10)])
        assert [len(batch) for batch in batches(cluster)] == [5, *[10] * 4, 5]
        assert sorted(took)[:45] == pytest.approx([ROUND_TRIP] * 45, abs=0.001)
        assert sorted(took)[45:] == pytest.approx([1.5 * ROUND_TRIP] * 5, abs=0.001)


@pytest.mark.parametrize(
    "trouble", ["answer lost", "connection lost", "refused", "refused for good", "expired"]
)
@jumping
async def test_nothing_is_left_behind(trouble: str) -> None:
    """The waiting records leave at any end of the batch in flight, in order, once each."""
    options = {
        "request_timeout_ms": 1000,
        "delivery_timeout_ms": 1500 if trouble == "expired" else 20_000,
    }
    async with running(linger_ms="auto", **options) as (cluster, producer):
        await producer.send_and_wait("orders", b"before", partition=0)
        cluster.delay("Produce", ROUND_TRIP)
        if trouble in {"answer lost", "expired"}:
            cluster.hang("Produce", times=2 if trouble == "expired" else 1, when="after")
        elif trouble == "connection lost":
            cluster.fail("Produce", disconnect="after")
        else:
            cluster.fail(
                "Produce", "NOT_ENOUGH_REPLICAS" if trouble == "refused" else "INVALID_RECORD"
            )
        first = await send(producer, [b"0"])
        await turns(5)
        behind = await send(producer, [b"1", b"2"])
        if trouble == "expired":
            await asyncio.sleep(0.4)
            behind += await send(producer, [b"3"])
        (result,) = await asyncio.gather(*first, return_exceptions=True)
        assert isinstance(result, DeliveryError) == (trouble in {"refused for good", "expired"})
        await asyncio.wait(behind)
        lost = [delivery for delivery in behind if delivery.exception() is not None]
        assert not lost or trouble == "expired"
        await producer.send_and_wait("orders", b"after", partition=0)
        values = cluster.values("orders", 0)
        assert values == sorted(values, key=[b"before", b"0", b"1", b"2", b"3", b"after"].index)
        assert len(values) == len(set(values))
        cluster.faults.clear()


@pytest.mark.parametrize("way", ["flush", "stop", "commit"])
@jumping
async def test_who_flushes_does_not_wait_for_the_answer_first(way: str) -> None:
    """The Sender sends the waiting records at once, beside the batch in flight."""
    async with (
        transactional(linger_ms="auto") if way == "commit" else running(linger_ms="auto") as (
            cluster,
            producer,
        )
    ):
        if way == "commit":
            await producer.begin_transaction()
        await producer.send_and_wait("orders", b"before", partition=0)
        cluster.brokers[1].latency = ROUND_TRIP
        began = now()
        first = await send(producer, [b"0"])
        await asyncio.sleep(ROUND_TRIP / 2)
        rest = await send(producer, [b"1", b"2"])
        leave = {
            "flush": producer.flush,
            "stop": producer.stop,
            "commit": producer.commit_transaction,
        }[way]
        await leave()
        assert all(delivery.done() for delivery in first + rest)
        assert sent_at(cluster) == pytest.approx([began, began + ROUND_TRIP / 2], abs=0.001)
        assert (committed(cluster) if way == "commit" else cluster.values("orders", 0)) == [
            b"before",
            b"0",
            b"1",
            b"2",
        ]


@jumping
async def test_memory_that_is_short_lets_go() -> None:
    """A send waits for memory: the Sender sends the waiting records at once, so that the send need not wait for the batch in flight."""
    async with far(batch_size=1000, buffer_memory=6000) as (cluster, producer):
        began = now()
        first = await send(producer, [b"0"])
        await turns(5)
        gathered = await send(producer, [b"1"])
        waits = asyncio.create_task(producer.send("orders", bytes(4000), partition=1))
        await turns(5)
        assert not waits.done()
        assert sent_at(cluster) == pytest.approx([began] * 2, abs=0.001)
        await asyncio.gather(*first, *gathered, await waits)


@jumping
async def test_it_tells_what_a_batch_waits_for() -> None:
    """`explain` names the option, and the batch in flight."""
    async with far() as (_, producer):
        first = await send(producer, [b"0"])
        await turns(5)
        rest = await send(producer, [b"1"])
        await turns(5)
        told = producer.explain()
        assert (
            "more records, or the end of what its partition has in flight (linger_ms='auto')"
            in told
        )
        await asyncio.gather(*first, *rest)


@jumping
async def test_no_time_is_reckoned_for_it() -> None:
    """A delivery may end at its request's time-out, as with linger_ms=0."""
    async with running(linger_ms="auto", delivery_timeout_ms=1000, request_timeout_ms=1000) as (
        _,
        producer,
    ):
        assert (await producer.send_and_wait("orders", b"v", partition=0)).offset == 0
