"""The bytes that a transport holds for a stalled peer are not overwritten, also after their records have ended.

As uvloop and asyncio (from 3.12 on) do, the transport here keeps the buffers that it gets, and reads them when the peer reads.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from builds import on_both, producer_on
from whole import assert_nothing_left, jumping

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from aioproducer import Delivery, Producer
    from aioproducer.interfaces import Buffer, Dialer, Receiver, Stream
    from aioproducer.testing.memory import MemoryStream

COUNT = 40
REUSE = 400
PART = 3000
"""Bytes of a value: a batch of them is written from where its records were put together, without another copy."""


class Held:
    """Holds buffers as the transport got them, and a copy of their bytes at that time."""

    def __init__(self) -> None:
        self.is_stalled = False
        self.buffers: list[tuple[Buffer, bytes]] = []
        self.streams: list[HoldingStream] = []

    def changed(self) -> list[int]:
        return [place for place, (buffer, was) in enumerate(self.buffers) if bytes(buffer) != was]

    def release(self) -> None:
        """Let the peer read again."""
        self.is_stalled = False
        self.read_once()

    def read_once(self) -> None:
        """Read all bytes that are there now, stalled or not."""
        for stream in self.streams:
            stream.release()


class HoldingStream:
    """A stream that keeps the buffers that it gets while its peer is stalled."""

    def __init__(self, stream: MemoryStream, held: Held) -> None:
        self._stream = stream
        self._held = held
        self._waiting: list[Buffer] = []

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if not self._held.is_stalled:
            self._stream.writelines(buffers)
            return
        some = list(buffers)
        self._held.buffers += [(buffer, bytes(buffer)) for buffer in some]
        self._waiting += some

    def release(self) -> None:
        self._stream.writelines(self._waiting)
        self._waiting.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Between:
    """A connection that has a `HoldingStream`."""

    def __init__(self, real: Receiver, streams: list[HoldingStream], held: Held) -> None:
        self._real = real
        self._streams = streams
        self._held = held

    def connection_made(self, stream: Any) -> None:
        self._streams.append(HoldingStream(stream, self._held))
        self._real.connection_made(self._streams[0])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class HoldingDialer:
    def __init__(self, dialer: Dialer, held: Held) -> None:
        self._dialer = dialer
        self._held = held

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Dial like the cluster's own dialer, with a `HoldingStream` in between."""
        streams: list[HoldingStream] = []

        await self._dialer.dial(host, port, lambda: Between(receiver(), streams, self._held))
        self._held.streams += streams
        return streams[0]


@asynccontextmanager
async def stalled(
    build: Any, **options: Any
) -> AsyncIterator[tuple[FakeCluster, Producer[Any, Any], Held]]:
    """Start a producer and send first records; then the broker stops reading."""
    held = Held()
    async with FakeCluster(memory=True, verify_records=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        before = asyncio.all_tasks()
        assert cluster.network is not None
        reach = {**cluster.client_options, "dialer": HoldingDialer(cluster.network, held)}
        async with producer_on(build)(
            **reach, buffer_memory=400_000, batch_size=16_384, **options
        ) as producer:
            await producer.send_and_wait("orders", b"first", partition=0)
            await producer.send_and_wait("orders", b"first", partition=1)
            held.is_stalled = True
            yield cluster, producer, held
        assert_nothing_left(producer, before)
        assert cluster.violations == []


def value(number: int) -> bytes:
    return b"%06d" % number * (PART // 6)


async def send(producer: Producer[Any, Any], count: int, first: int = 0) -> list[Delivery]:
    """Send `count` different values to partition 0. Their batches take memory that was free."""
    return [
        await producer.send("orders", value(number), partition=0)
        for number in range(first, first + count)
    ]


async def reuse(producer: Producer[Any, Any]) -> None:
    """Send more records, so that all memory that is free by now is written to."""
    for number in range(10_000, 10_000 + REUSE):
        await producer.send("orders", value(number), partition=1)


async def reuse_beside(producer: Producer[Any, Any], held: Held) -> None:
    """Reuse free memory while the transport holds its buffers, then release them and send everything."""
    sending = asyncio.create_task(reuse(producer))
    await asyncio.sleep(0.01)
    assert held.changed() == []
    held.release()
    await sending
    await producer.flush()
    assert held.changed() == []


@on_both
@jumping
async def test_what_was_cancelled_arrives_as_it_was_sent(build: Any) -> None:
    """The caller cancels all deliveries. The batch keeps its bytes and its memory, and the records arrive as they were sent."""
    async with stalled(build) as (cluster, producer, held):
        deliveries = await send(producer, COUNT)
        await asyncio.sleep(0.01)
        assert held.buffers
        for delivery in deliveries:
            delivery.cancel()
        taken = producer.config.buffer_memory - producer.buffer_available
        assert taken >= COUNT * PART
        del deliveries, delivery
        await reuse_beside(producer, held)
        assert cluster.values("orders", 0)[1:] == [value(number) for number in range(COUNT)]


@on_both
@jumping
async def test_what_expired_on_its_way_is_not_written_over(build: Any) -> None:
    """Records expire while the transport holds their bytes. The memory counts as taken until the connection releases it, so no
    other batch gets it before.
    """
    options = {
        "delivery_timeout_ms": 2_000,
        "request_timeout_ms": 1_500,
        "max_in_flight_requests_per_connection": 1,
        "batch_max_size": 1,
    }
    async with stalled(build, **options) as (cluster, producer, held):
        await send(producer, 1)  # only this batch is in flight: the later ones wait
        deliveries = await send(producer, COUNT, first=1)
        await asyncio.sleep(1)
        held.read_once()  # a second late, the waiting batches are written
        await asyncio.sleep(1.2)
        expired = [
            delivery
            for delivery in deliveries
            if delivery.done() and delivery.exception() is not None
        ]
        assert expired
        await reuse_beside(producer, held)
        arrived = cluster.values("orders", 0)[1:]
        assert arrived == [value(number) for number in range(len(arrived))]


@on_both
@pytest.mark.parametrize("acks", ["all", 0])
@jumping
async def test_what_a_lost_connection_held_is_not_written_over(build: Any, acks: Any) -> None:
    """The request times out, or the broker closes the connection. The old transport still holds the same bytes that
    the Sender sends again.
    """
    async with stalled(
        build,
        request_timeout_ms=1_000,
        retry_backoff_ms=10,
        acks=acks,
        enable_idempotence=acks == "all",
    ) as (
        cluster,
        producer,
        held,
    ):
        await send(producer, COUNT)
        await asyncio.sleep(0.5)
        assert held.buffers
        if acks == 0:  # acks=0 has no response that could be late
            cluster.disconnect_all()
        await asyncio.sleep(0.6)
        held.is_stalled = False
        await reuse(producer)
        await producer.flush()
        assert held.changed() == []
        if acks == "all":
            assert cluster.values("orders", 0)[1:] == [value(number) for number in range(COUNT)]
