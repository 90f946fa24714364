"""Tests of `aioproducer.net.dialer`, on sockets of this machine."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import uvloop

from aioproducer.net.dialer import TcpDialer, writer_of
from aioproducer.testing.memory import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Ear(asyncio.Protocol):
    """Hears what it is told."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.came = asyncio.Event()
        self.resumed = asyncio.Event()
        self.pauses: list[bool] = []
        self.made = asyncio.Event()
        self.lost = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.came.set()

    def pause_writing(self) -> None:
        self.pauses.append(True)

    def resume_writing(self) -> None:
        self.pauses.append(False)
        self.resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


@asynccontextmanager
async def listening(host: str = "127.0.0.1") -> AsyncIterator[tuple[int, Ear]]:
    """Listen at a port. Yields the port and the protocol of its connection."""
    ear = Ear()
    server = await asyncio.get_running_loop().create_server(lambda: ear, host, 0)
    try:
        yield server.sockets[0].getsockname()[1], ear
    finally:
        server.close()
        if ear.transport is not None:
            ear.transport.abort()
            await ear.lost.wait()


@pytest.mark.asyncio
async def test_a_connection() -> None:
    """It stays alive when nothing is said, and small requests are not held back."""
    async with listening() as (port, ear), asyncio.timeout(5):
        receiver = Ear()
        stream: Any = await TcpDialer().dial("127.0.0.1", port, lambda: receiver)
        assert receiver.transport is stream
        connected = stream.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_KEEPIDLE"):
            probes = [
                connected.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_KEEP{name}"))
                for name in ("IDLE", "INTVL", "CNT")
            ]
            assert probes == [60, 15, 4]
        writer_of(stream)([b"one ", memoryview(b"two "), bytearray(b"three")])
        await ear.made.wait()
        while ear.heard != b"one two three":
            await ear.came.wait()
            ear.came.clear()
        stream.close()
        await receiver.lost.wait()
        await ear.lost.wait()


@pytest.mark.parametrize(("size", "is_set"), [(65_536, True), (-1, False)])
@pytest.mark.asyncio
async def test_the_sizes_of_the_sockets_buffers(
    monkeypatch: pytest.MonkeyPatch, size: int, *, is_set: bool
) -> None:
    """`send_buffer_bytes` and `receive_buffer_bytes`; the system may make more of them, and below 0 has its own."""
    real, asked = socket.socket.setsockopt, []

    def setsockopt(self: Any, level: int, option: int, *value: Any) -> None:
        asked.append((level, option, *value))
        real(self._sock, level, option, *value)

    async with listening() as (port, _), asyncio.timeout(5):
        receiver = Ear()
        with monkeypatch.context() as patch:
            patch.setattr("asyncio.trsock.TransportSocket.setsockopt", setsockopt)
            stream: Any = await TcpDialer(size, size).dial("127.0.0.1", port, lambda: receiver)
        sizes = {
            (socket.SOL_SOCKET, option, size) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
        }
        assert sizes.issubset(asked) is is_set
        if is_set:
            assert (
                stream.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                >= size
            )
        stream.abort()
        await receiver.lost.wait()


@pytest.mark.asyncio
async def test_nobody_listens() -> None:
    """An OSError, and no receiver is made."""
    async with listening() as (port, _):
        pass
    made: list[Ear] = []

    def make() -> Ear:
        made.append(Ear())
        return made[-1]

    with pytest.raises(OSError, match=str(port)):
        await TcpDialer().dial("127.0.0.1", port, make)
    assert made == []


@pytest.mark.asyncio
async def test_a_full_buffer_pauses_who_writes() -> None:
    """On every version of Python: what has no room with the kernel is seen (asyncio's own `writelines` forgets it in 3.12 and 3.13)."""
    async with listening() as (port, ear), asyncio.timeout(10):
        receiver = Ear()
        stream: Any = await TcpDialer().dial("127.0.0.1", port, lambda: receiver)
        await ear.made.wait()
        ear.transport.pause_reading()
        write = writer_of(stream)
        for _ in range(64):
            write([b"x" * 262_144, b"y" * 262_144])
        assert receiver.pauses == [True]
        ear.transport.resume_reading()
        await receiver.resumed.wait()
        assert receiver.pauses == [True, False]
        stream.abort()
        await receiver.lost.wait()


@pytest.mark.asyncio
async def test_a_stream_that_is_not_asyncios_gathers_itself() -> None:
    """As uvloop's do, and the fake cluster's."""
    network, far, near = MemoryNetwork(), Ear(), Ear()
    network.listen("here", 1, lambda: far)
    stream = await network.dial("here", 1, lambda: near)
    assert writer_of(stream) == stream.writelines
    stream.abort()
    await near.lost.wait()
    await far.lost.wait()


class AsyncioStream:
    """Looks like a transport of asyncio's."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def write(self, data: Any) -> None:
        self.calls.append(("write", data))

    def writelines(self, data: Any) -> None:
        self.calls.append(("writelines", data))


AsyncioStream.__module__ = "asyncio.selector_events"


@pytest.mark.parametrize(
    ("version", "call"),
    [
        ((3, 11, 9), ("writelines", [b"a", b"b"])),
        ((3, 12, 0), ("write", b"ab")),
        ((3, 13, 1), ("write", b"ab")),
    ],
    ids=str,
)
def test_how_buffers_are_written(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], call: Any
) -> None:
    """Joined here where asyncio's `writelines` does not pause."""
    monkeypatch.setattr("sys.version_info", version)
    stream = AsyncioStream()
    writer_of(stream)([b"a", b"b"])  # type: ignore[arg-type]
    assert stream.calls == [call]


@pytest.mark.asyncio
async def test_a_connection_that_was_reset_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dial succeeds though some systems refuse options of a reset connection.

    The receiver then gets the loss, and no socket stays open unnoticed.
    """
    refused: list[int] = []

    def refuse(_self: socket.socket, _level: int, option: int, *_value: Any) -> None:
        refused.append(option)
        raise OSError(22, "Invalid argument")

    async with listening() as (port, _), asyncio.timeout(5):
        receiver = Ear()
        with monkeypatch.context() as patch:
            patch.setattr("asyncio.trsock.TransportSocket.setsockopt", refuse)
            stream = await TcpDialer().dial("127.0.0.1", port, lambda: receiver)
        assert refused[0] == socket.SO_KEEPALIVE
        stream.abort()
        await receiver.lost.wait()


SCOPED = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


def threads_of_system() -> int:
    """Threads of the process, also those of libuv, which Python does not know."""
    return psutil.Process().num_threads()


@SCOPED
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_numeric_host_needs_no_thread(
    new_loop: Callable[[], asyncio.AbstractEventLoop], host: str
) -> None:
    """Neither of the loop's executor nor of libuv's pool, which a look-up of the application's may hold."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(Untouched())
        ear = Ear()
        server = await loop.create_server(
            lambda: ear, host, 0, family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        port = server.sockets[0].getsockname()[1]
        before, receiver = threads_of_system(), Ear()
        stream: Any = await TcpDialer().dial(host, port, lambda: receiver)
        assert threads_of_system() <= before
        assert stream.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer_of(stream)([b"one ", b"two"])
        stream.close()
        await receiver.lost.wait()
        await ear.lost.wait()
        assert ear.heard == b"one two"
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await TcpDialer().dial(host, port, Ear)
        assert threads_of_system() <= before

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


class Untouched(ThreadPoolExecutor):
    """An executor that takes nothing."""

    def submit(self, *_given: Any, **_named: Any) -> Any:
        raise AssertionError("the default executor is the application's")


@pytest.mark.asyncio
async def test_an_address_with_a_scope_id() -> None:
    async with listening("::1") as (port, _):
        receiver = Ear()
        stream = await TcpDialer().dial("::1%1", port, lambda: receiver)
        stream.abort()
        await receiver.lost.wait()


@pytest.mark.asyncio
async def test_a_name_that_a_resolver_gave_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its addresses is dialled until one answers; where none does, each is named."""
    async with listening() as (port, _):
        told = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.2", "127.0.0.1")
        ]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_named: told)
        receiver = Ear()
        stream: Any = await TcpDialer().dial("kafka.example", port, lambda: receiver)
        assert stream.get_extra_info("peername") == ("127.0.0.1", port)
        stream.abort()
        await receiver.lost.wait()
    with pytest.raises(OSError, match=r"127\.0\.0\.2.*127\.0\.0\.1"):
        await TcpDialer().dial("kafka.example", port, Ear)
    told.pop()
    with pytest.raises(ConnectionRefusedError):
        await TcpDialer().dial("kafka.example", port, Ear)
