"""acks=0 and a broker that stops reading: the records that `stop` must still send, and for how long (row 84)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from whole import assert_nothing_left, jumping, running

from aioproducer import Producer
from aioproducer.testing import FakeCluster


async def producing(cluster: FakeCluster) -> tuple[Producer[Any, Any], set[asyncio.Task[Any]], int]:
    """Start a producer with acks=0 and complete many records. Some bytes still wait, because the broker reads nothing."""
    before = asyncio.all_tasks()
    producer: Producer[Any, Any] = Producer(**cluster.client_options, acks=0, close_timeout_ms=9000)
    await producer.start()
    await producer.send_and_wait("orders", b"first", partition=0)
    cluster.brokers[1].pause()
    sent = 1
    while not connection_of(producer).has_unsent:
        await producer.send_and_wait("orders", b"." * 10_000, partition=0)
        sent += 1
    assert producer.buffer_available == producer.config.buffer_memory
    return producer, before, sent


def connection_of(producer: Producer[Any, Any]) -> Any:
    (node,) = producer._engine.parts.cluster._nodes.values()
    return node.produce.connection


@jumping
async def test_stop_waits_until_what_was_acknowledged_has_left() -> None:
    """acks=0 acknowledges records when the transport has them. `stop` waits, because `asyncio.run` would drop the bytes
    that are left at its end.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        producer, before, sent = await producing(cluster)
        connection = connection_of(producer)
        asyncio.get_running_loop().call_later(5, cluster.brokers[1].resume)
        began = asyncio.get_running_loop().time()
        await producer.stop()
        assert 5 <= asyncio.get_running_loop().time() - began < 6
        assert connection.is_lost
        await asyncio.sleep(1)
        assert len(cluster.values("orders")) == sent
        assert_nothing_left(producer, before)


@jumping
async def test_stop_does_not_wait_for_ever() -> None:
    """The broker never reads again. At `close_timeout_ms` the producer drops the connection and leaves nothing."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        producer, before, _ = await producing(cluster)
        connection = connection_of(producer)
        began = asyncio.get_running_loop().time()
        await producer.stop()
        assert asyncio.get_running_loop().time() - began == pytest.approx(9, abs=0.01)
        await asyncio.sleep(0)
        assert connection.is_lost
        assert_nothing_left(producer, before)


@jumping
async def test_a_cancelled_stop_drops_what_was_not_sent() -> None:
    """The cancelled `stop` drops the unsent bytes at once and leaves nothing."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        producer, before, _ = await producing(cluster)
        connection = connection_of(producer)
        stopping = asyncio.create_task(producer.stop())
        await asyncio.sleep(1)
        assert not stopping.done()
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await asyncio.sleep(0.01)
        assert connection.is_lost
        assert_nothing_left(producer, before)


@jumping
async def test_stop_is_quick_when_all_has_left() -> None:
    """The transport has sent all bytes, so `stop` takes no time. That is the usual case."""
    async with running(acks=0) as (_, producer):
        await producer.send_and_wait("orders", b"v")
        began = asyncio.get_running_loop().time()
        await producer.stop()
        assert asyncio.get_running_loop().time() == began
