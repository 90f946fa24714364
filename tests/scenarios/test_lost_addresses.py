"""Which address of a name is dialled after a connection to one of them was lost (NET-32, KAFKA-12193)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping

from aioproducer import Producer
from aioproducer.testing import FakeCluster
from aioproducer.testing.frames import decode_request
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

# Bytes of a frame's size.
_SIZE = 4


class Balanced:
    """A resolver, and a dialer: a balancer's name stands for several addresses, and behind each of them is the same broker.

    Args:
        broken: the address of the instance that closes a connection when a Produce request comes. It serves all other requests.
    """

    def __init__(self, network: Any, addresses: Sequence[str], broken: str = "") -> None:
        self._network = network
        self._addresses = addresses
        self._broken = broken
        self.dialled: list[str] = []

    async def resolve(self, host: str) -> Sequence[str]:
        return self._addresses if host == "balancer" else [host]

    async def canonical_name(self, address: str) -> str:
        return address

    async def dial(self, host: str, port: int, receiver: Callable[[], Any]) -> Any:
        self.dialled.append(host)
        return await self._network.dial(
            "broker-1.memory",
            port,
            receiver if host != self._broken else lambda: Broken(receiver()),
        )


class Broken:
    """What receives from a connection through the broken instance; and the stream of that connection."""

    def __init__(self, receiver: Any) -> None:
        self._receiver = receiver
        self._stream: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(
            self._receiver if name in {"data_received", "eof_received"} else self._stream, name
        )

    def connection_made(self, stream: Any) -> None:
        self._stream = stream
        self._receiver.connection_made(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._receiver.connection_lost(error)

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()

    def writelines(self, buffers: Sequence[bytes]) -> None:
        frame = b"".join(buffers)
        if decode_request(frame[_SIZE:]).key == ApiKey.PRODUCE:
            self._stream.abort()
        else:
            self._stream.write(frame)


@asynccontextmanager
async def balanced(
    addresses: Sequence[str], broken: str = "", **options: Any
) -> AsyncIterator[tuple[Balanced, FakeCluster, Producer[Any, Any]]]:
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.brokers[1].advertise("balancer", 9092)
        balancer = Balanced(cluster.network, addresses, broken)
        async with Producer(
            bootstrap_servers="balancer:9092", dialer=balancer, resolver=balancer, **options
        ) as producer:
            yield balancer, cluster, producer


@pytest.mark.parametrize(
    "addresses", [["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "fd00::1", "10.0.0.2"]], ids=" ".join
)
@jumping
async def test_an_instance_of_a_balancer_that_loses_connections_is_not_dialled_for_ever(
    addresses: list[str],
) -> None:
    """It accepts each connection and serves ApiVersions, so that only the loss tells of it. The next address takes the records."""
    async with balanced(
        addresses, broken="10.0.0.1", delivery_timeout_ms=20_000, request_timeout_ms=5000
    ) as (balancer, cluster, producer):
        await producer.send_and_wait("orders", b"v")
        assert cluster.values("orders") == [b"v"]
        assert balancer.dialled[-1] == "10.0.0.2"


@pytest.mark.parametrize(
    ("addresses", "then"),
    [(["10.0.0.1", "fd00::1"], "10.0.0.1"), (["fd00::1", "10.0.0.1", "fd00::2"], "fd00::2")],
)
@jumping
async def test_the_other_ip_version_comes_last(addresses: list[str], then: str) -> None:
    """A machine without a route of that version would wait 10 s for each of its addresses, whenever a broker restarts."""
    async with balanced(addresses) as (balancer, cluster, producer):
        await producer.send_and_wait("orders", b"1")
        assert set(balancer.dialled) == {addresses[0]}
        balancer.dialled.clear()
        cluster.disconnect_all()
        await producer.send_and_wait("orders", b"2")
        assert set(balancer.dialled) == {then}


@jumping
async def test_a_connection_that_is_closed_here_says_nothing_of_its_address() -> None:
    """An idle connection is made again at the address that served it."""
    async with balanced(
        ["10.0.0.1", "10.0.0.2"], connections_max_idle_ms=60_000, metadata_max_age_ms=100_000_000
    ) as (
        balancer,
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", b"1")
        await asyncio.sleep(200)
        assert not cluster.brokers[1].connections
        await producer.send_and_wait("orders", b"2")
        assert set(balancer.dialled) == {"10.0.0.1"}
