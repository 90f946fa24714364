"""The fault proxy: what each trouble does to a connection, and what it leaves alone."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import psutil
import pytest
import pytest_asyncio
from loops import KIND

from aioproducer.errors import ConnectionLost, RequestTimedOut
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient
from aioproducer.testing.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

pytestmark = pytest.mark.asyncio

_TICK = 0.001 if KIND == "uvloop" else 0.0  # seconds: it tells the time no finer


class Upstream:
    """Sends back what it gets, in capitals; remembers all of it."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.taken += data
                writer.write(data.upper())
        writer.close()


@pytest_asyncio.fixture
async def upstream() -> AsyncIterator[tuple[Upstream, FaultProxy]]:
    echo = Upstream()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with server, FaultProxy(server.sockets[0].getsockname()[1]) as proxy:
        yield echo, proxy
    for writer in echo.writers:
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def client_of(proxy: FaultProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_without_trouble_it_is_not_there(upstream: tuple[Upstream, FaultProxy]) -> None:
    """The proxy passes bytes in both directions in order. When a side closes, the other side hears of it after the last byte."""
    echo, proxy = upstream
    sent = bytes(range(97, 123)) * 40_000
    async with client_of(proxy) as (reader, writer):
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent.upper()
        assert proxy.connections == 1
        echo.writers[0].write(b"last")
        echo.writers[0].close()
        assert await reader.read() == b"last"
    assert echo.taken == sent


@pytest.mark.parametrize(("way", "least"), [("requests", 0.1), ("answers", 0.1), ("both", 0.2)])
async def test_delay(upstream: tuple[Upstream, FaultProxy], way: str, least: float) -> None:
    """The proxy delays each direction by the given time. It delays a burst as a whole, not byte by byte."""
    _, proxy = upstream
    proxy.delay(0.1, way)  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    async with client_of(proxy) as (reader, writer):
        start = loop.time()
        for _ in range(20):
            writer.write(b"x")
            await asyncio.sleep(0)
        await reader.readexactly(20)
        assert least - _TICK <= loop.time() - start < 1.0


async def test_slow(upstream: tuple[Upstream, FaultProxy]) -> None:
    """No more than the rate, and not in one lump at the end."""
    _, proxy = upstream
    proxy.slow(10_000, "requests")
    loop = asyncio.get_running_loop()
    async with client_of(proxy) as (reader, writer):
        start = loop.time()
        writer.write(bytes(3_000))
        await reader.readexactly(500)
        first = loop.time() - start
        await reader.readexactly(2_500)
        assert loop.time() - start > 0.2
        assert first < (loop.time() - start) / 2


async def test_black_hole_holds_and_healing_releases(upstream: tuple[Upstream, FaultProxy]) -> None:
    """The proxy holds answers while requests arrive: the broker logs a record and its acknowledgement does not come."""
    echo, proxy = upstream
    async with client_of(proxy) as (reader, writer):
        proxy.black_hole("answers")
        writer.write(b"abc")
        while echo.taken != b"abc":
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        proxy.heal()
        assert await reader.readexactly(3) == b"ABC"


async def test_black_hole_takes_new_connections_and_stops_reading(upstream: tuple[Upstream, FaultProxy]) -> None:
    """A new connection through the proxy stays open. A client that writes on is blocked, as by a peer that does not read."""
    echo, proxy = upstream
    proxy.black_hole()
    async with client_of(proxy) as (reader, writer):
        writer.write(bytes(16_000_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.2)
        assert not echo.taken
        proxy.heal()
        assert len(await reader.readexactly(16_000_000)) == 16_000_000


async def test_cut_resets_until_healed(upstream: tuple[Upstream, FaultProxy]) -> None:
    """The proxy resets open and new connections on both sides. After healing, it passes connections on again."""
    echo, proxy = upstream
    async with client_of(proxy) as (reader, writer):
        writer.write(b"a")
        await reader.readexactly(1)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            await reader.read()
    with contextlib.suppress(ConnectionError):
        async with client_of(proxy) as (reader, _):
            assert await reader.read() == b""
    proxy.heal()
    async with client_of(proxy) as (reader, writer):
        writer.write(b"b")
        assert await reader.readexactly(1) == b"B"
    assert echo.taken == b"ab"


async def test_nobody_behind_it_is_a_reset(upstream: tuple[Upstream, FaultProxy]) -> None:
    """A broker that is down behind its proxy: the connection ends at once, and nothing of it stays."""
    _, proxy = upstream
    proxy.upstream_port = 1
    async with client_of(proxy) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await reader.read()
    assert proxy.connections == 0


async def test_stopped_it_leaves_nothing(upstream: tuple[Upstream, FaultProxy]) -> None:
    """Connections end, the port refuses new ones, and a second stop does nothing."""
    _, proxy = upstream
    async with client_of(proxy) as (reader, writer):
        writer.write(b"a")
        await reader.readexactly(1)
        await proxy.stop()
        with pytest.raises(ConnectionResetError):
            await reader.read()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", proxy.port)
    await proxy.stop()


async def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'both', 'requests' or 'answers', not 'up'"):
        FaultProxy().delay(1, "up")  # type: ignore[arg-type]


async def test_in_front_of_a_broker() -> None:
    """Kafka's requests pass, wait, and fail as the trouble has it."""
    async with (
        FakeCluster() as cluster,
        FaultProxy(cluster.brokers[1].port) as proxy,
        WireClient(f"127.0.0.1:{proxy.port}", timeout=0.3) as client,
    ):
        assert (await client.metadata()).cluster_id == cluster.cluster_id
        proxy.black_hole("answers")
        with pytest.raises(RequestTimedOut):
            await client.metadata()
        proxy.cut()
        with pytest.raises(ConnectionLost):
            await client.metadata()
        proxy.heal()
        assert (await client.metadata()).cluster_id == cluster.cluster_id


# --- cancelled while it starts


def listening() -> set[int]:
    """The ports at which this process takes connections."""
    return {one.laddr.port for one in psutil.Process().net_connections("tcp") if one.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize("make", [FaultProxy, lambda: FakeCluster(brokers=2)], ids=["proxy", "cluster"])
async def test_cancelled_in_any_turn_nothing_listens(make: Callable[[], AbstractAsyncContextManager[object]]) -> None:
    """The start is cancelled in each event-loop iteration, from the first to the one in which all of it listens. Then nothing listens."""
    before, turns = listening(), 0
    while True:
        made = make()
        entering = asyncio.ensure_future(made.__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        if entering.done():
            break
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert listening() == before
        turns += 1
    assert turns > 0
    await made.__aexit__(None, None, None)
    assert listening() == before
