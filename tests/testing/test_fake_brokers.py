"""Tests of starting, stopping and moving `aioproducer.testing.broker`'s brokers. On sockets and in memory."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest
from fake_requests import batch, client, produce
from jumping import jumping

from aioproducer.errors import ConnectionLost, RequestTimedOut
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def told(cluster: FakeCluster) -> dict[int, tuple[str, int]]:
    async with client(cluster) as kafka:
        return {one.node_id: (one.host, one.port) for one in (await kafka.metadata()).brokers}


@pytest.mark.asyncio
async def test_a_broker_retires(cluster: FakeCluster) -> None:
    """Its partitions have other leaders and replicas, Metadata forgets it, its connections end."""
    async with client(cluster) as kafka:
        await kafka.metadata()
        await produce(kafka, batch(b"a"), partition=1, node=2)
        await cluster.brokers[2].retire()
        answer = await kafka.metadata()
        assert [broker.node_id for broker in answer.brokers] == [1]
        moved = answer.topics[0].partitions[1]
        assert (moved.leader_id, moved.leader_epoch, moved.replica_nodes) == (1, 1, (1,))
        assert (await produce(kafka, batch(b"b"), partition=1, node=1)).base_offset == 1
    with pytest.raises(ValueError, match="at least 1 broker"):
        await cluster.brokers[1].retire()
    assert list(cluster.brokers) == [1]


@pytest.mark.asyncio
async def test_a_broker_is_added(cluster: FakeCluster) -> None:
    """It leads what is moved to it, and new topics are dealt to it too."""
    added = await cluster.add_broker()
    assert added.node_id == 3
    cluster.move_leader("orders", 0, 3)
    cluster.create_topic("new", partitions=3)
    assert [cluster.leader("new", index) for index in range(3)] == [1, 2, 3]
    async with client(cluster) as kafka:
        await kafka.metadata()
        assert (await produce(kafka, batch(b"a"), node=3)).error_code == 0
    with pytest.raises(ValueError, match="there is a broker 3"):
        await cluster.add_broker(3)


@pytest.mark.asyncio
async def test_a_broker_moves_with_its_number(cluster: FakeCluster) -> None:
    """The broker listens at another port, and the old port refuses connections."""
    before = await told(cluster)
    await cluster.brokers[2].relocate()
    after = await told(cluster)
    assert after[1] == before[1]
    assert after[2] != before[2]
    host, port = before[2]
    with pytest.raises(ConnectionLost):
        await WireClient(f"{host}:{port}", dialer=cluster.network).metadata()
    async with client(cluster) as kafka:
        await kafka.metadata()
        assert (await produce(kafka, batch(b"a"), partition=1, node=2)).error_code == 0


@pytest.mark.asyncio
async def test_another_broker_comes_behind_an_address(cluster: FakeCluster) -> None:
    """With another number, and the leaderships of the one before."""
    before = await told(cluster)
    with pytest.raises(ValueError, match="there is a broker 1"):
        await cluster.brokers[2].renumber(1)
    await cluster.brokers[2].renumber(7)
    after = await told(cluster)
    assert after == {1: before[1], 7: before[2]}
    assert cluster.leader("orders", 1) == 7
    async with client(cluster) as kafka:
        await kafka.metadata()
        assert (await produce(kafka, batch(b"a"), partition=1, node=7)).error_code == 0
    assert cluster.requests("Produce")[0].broker == 7


@pytest.mark.asyncio
async def test_a_wrong_address_is_advertised(cluster: FakeCluster) -> None:
    """Bootstrap addresses stay where brokers listen. A client that follows Metadata comes to another broker."""
    cluster.brokers[2].advertise(*cluster.brokers[1].address)
    addresses = await told(cluster)
    assert addresses[2] == addresses[1]
    async with client(cluster) as kafka:
        await kafka.metadata()
        assert (await produce(kafka, batch(b"a"), partition=1, node=2)).error_code == 6


@pytest.mark.asyncio
async def test_idle_connections_are_closed_in_order(cluster: FakeCluster) -> None:
    """The client sees an end, no reset, and comes back."""
    async with client(cluster) as kafka:
        await kafka.metadata()
        cluster.brokers[1].close_all()
        await asyncio.sleep(0.01)
        await kafka.metadata()
    assert cluster.violations == []


@pytest.mark.skipif(
    sys.platform != "linux",
    reason="only Linux's kernel is known to drop what a full queue of connections cannot take",
)
@pytest.mark.asyncio
async def test_a_vanished_broker_says_nothing_at_all(cluster: FakeCluster) -> None:
    """The broker answers neither on open nor on new connections. When it is back, it resets the old ones."""
    async with (
        client(cluster, timeout=0.2) as kafka,
        client(cluster, timeout=0.2) as other,
        client(cluster, timeout=30) as patient,
    ):
        await kafka.metadata()
        await patient.metadata()
        cluster.hang("Metadata")
        waiting = asyncio.ensure_future(patient.metadata())
        await asyncio.sleep(0)
        await cluster.brokers[1].vanish()
        await cluster.brokers[1].vanish()
        cluster.faults.clear()
        with pytest.raises(RequestTimedOut):
            await kafka.metadata()
        if cluster.network is None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await asyncio.open_connection(*cluster.brokers[1].address)
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await cluster.network.dial(*cluster.brokers[1].address, asyncio.Protocol)
        await cluster.brokers[1].start()
        with pytest.raises(ConnectionLost):
            await waiting
        assert (await other.metadata()).cluster_id == cluster.cluster_id


@jumping
async def test_answers_take_their_time_together() -> None:
    """Latency delays each request, and the delays overlap: ten requests at once are answered after one latency."""
    loop = asyncio.get_running_loop()
    async with FakeCluster(memory=True) as cluster, client(cluster) as kafka:
        await kafka.metadata()
        cluster.brokers[1].latency = 0.5
        began = loop.time()
        await asyncio.gather(*(kafka.metadata() for _ in range(10)))
        assert loop.time() - began == pytest.approx(0.5)


async def coming_in(meanwhile: Callable[[FakeCluster], Awaitable[object]]) -> float:
    """Seconds that a request of 100,000 bytes takes, which begins at 10,000 a second."""
    loop = asyncio.get_running_loop()
    async with FakeCluster(memory=True) as cluster, client(cluster, timeout=100) as kafka:
        cluster.create_topic("orders")
        await kafka.metadata()
        cluster.brokers[1].bandwidth = 10_000
        began = loop.time()
        producing = asyncio.create_task(produce(kafka, batch(bytes(100_000))))
        await meanwhile(cluster)
        await producing
        return loop.time() - began


@jumping
async def test_requests_come_in_no_faster_than_the_way_is_wide() -> None:
    """100,000 bytes at 10,000 a second."""

    async def nothing(_cluster: FakeCluster) -> None:
        pass

    assert await coming_in(nothing) == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize(
    ("bandwidth", "seconds"),
    [(20_000, 7.5), (None, 5.0), (1000, 55.0)],
    ids=["wider", "any", "narrower"],
)
@jumping
async def test_what_is_coming_in_goes_on_at_the_new_speed(
    bandwidth: float | None, seconds: float
) -> None:
    """Half of the bytes arrive within 5 s. The other half takes as long as the new bandwidth asks."""

    async def change(cluster: FakeCluster) -> None:
        await asyncio.sleep(5)
        cluster.brokers[1].bandwidth = bandwidth

    assert await coming_in(change) == pytest.approx(seconds, abs=0.2)


@pytest.mark.parametrize(("latency", "seconds"), [(0.0, 1.0), (0.25, 1.0), (1.5, 1.5), (4.0, 4.0)])
@jumping
async def test_answers_on_their_way_take_as_long_as_those_that_follow(
    latency: float, seconds: float
) -> None:
    """1 s of 2 is over: what would have come by now is there at once."""
    loop = asyncio.get_running_loop()
    async with FakeCluster(memory=True) as cluster, client(cluster) as kafka:
        await kafka.metadata()
        cluster.brokers[1].latency = 2.0
        began = loop.time()
        asking = [asyncio.create_task(kafka.metadata()) for _ in range(3)]
        await asyncio.sleep(1)
        cluster.brokers[1].latency = latency
        await asyncio.gather(*asking)
        assert loop.time() - began == pytest.approx(seconds)
