"""Tests of `aioproducer.testing.memory`: what it shares with asyncio's sockets is tested on both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.testing.memory import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio


class Recorder(asyncio.Protocol):
    """Writes down what happens to it."""

    def __init__(self, *, stays_half_open: bool = False) -> None:
        self.events: list[Any] = []
        self.received = bytearray()
        self.transport: Any = None
        self.lost = asyncio.Event()
        self._stays_half_open = stays_half_open

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return self._stays_half_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(type(exc))
        self.lost.set()

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


async def connect(
    near: Recorder | None = None, far: Recorder | None = None
) -> tuple[Recorder, Recorder]:
    near, far = near or Recorder(), far or Recorder()
    network = MemoryNetwork()
    network.listen("here", 1, lambda: far)
    assert await network.dial("here", 1, lambda: near) is near.transport
    return near, far


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def test_a_close_arrives_behind_the_bytes() -> None:
    """The peer reads all, then the end, then closes as well."""
    near, far = await connect()
    near.transport.write(b"x" * 1_000_000)
    near.transport.close()
    near.transport.close()
    near.transport.write(b"late")
    assert near.transport.is_closing()
    await near.lost.wait()
    await far.lost.wait()
    assert len(far.received) == 1_000_000
    assert far.events == ["eof", type(None)]
    assert near.events == ["pause", type(None)]


async def test_a_close_waits_for_a_peer_that_does_not_read() -> None:
    """The close waits as long as more bytes are queued than a socket would hold."""
    near, far = await connect()
    far.transport.pause_reading()
    near.transport.write(b"x" * 1_000_000)
    near.transport.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not near.lost.is_set()
    far.transport.resume_reading()
    await near.lost.wait()
    assert len(far.received) == 1_000_000


async def test_two_closes_meet() -> None:
    """Both sides close at once. Each close ends without waiting for the other side to read."""
    near, far = await connect()
    near.transport.write(b"x" * 1_000_000)
    far.transport.write(b"x" * 1_000_000)
    near.transport.close()
    far.transport.close()
    await near.lost.wait()
    await far.lost.wait()
    assert near.transport.is_closing()
    assert far.transport.is_closing()


async def test_an_abort_resets_the_peer() -> None:
    """The peer loses the bytes that it had not read. The side that aborted sees no error."""
    near, far = await connect()
    near.transport.write(b"lost")
    near.transport.abort()
    near.transport.abort()
    await far.lost.wait()
    await near.lost.wait()
    assert far.received == b""
    assert far.events == [ConnectionResetError]
    assert near.events == [type(None)]


async def test_a_half_open_peer_stays_until_it_closes() -> None:
    """`eof_received` may return True to keep writing, as asyncio has it. The closed side does not read those bytes."""
    near, far = await connect(far=Recorder(stays_half_open=True))
    near.transport.close()
    await near.lost.wait()
    far.transport.write(b"into the void")
    await asyncio.sleep(0)
    assert far.events == ["eof"]
    assert near.received == b""
    far.transport.close()
    await far.lost.wait()


async def test_a_peer_that_does_not_read_pauses_the_writer() -> None:
    """Above the high-water mark, once; until it reads again."""
    near, far = await connect()
    far.transport.pause_reading()
    for _ in range(400):
        near.transport.write(b"x" * 1000)
    assert near.events == ["pause"]
    assert 64 * 1024 < near.transport.get_write_buffer_size() < 400_000
    assert far.received == b""
    far.transport.resume_reading()
    await until(lambda: len(far.received) == 400_000)
    assert near.events == ["pause", "resume"]
    assert near.transport.get_write_buffer_size() == 0


async def test_a_silent_address_neither_accepts_nor_refuses() -> None:
    """A dial to a silent address waits until a listener is there again, until `unlisten` refuses it, or until it is cancelled."""
    network = MemoryNetwork()
    network.listen("here", 1, Recorder)
    network.silence("here", 1)
    network.silence("here", 1)
    first, given_up = (asyncio.ensure_future(network.dial("here", 1, Recorder)) for _ in range(2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not first.done()
    given_up.cancel()
    network.listen("here", 1, Recorder)
    assert (await first).get_extra_info("peername") == ("here", 1)
    with pytest.raises(asyncio.CancelledError):
        await given_up
    network.silence("here", 1)
    refused = asyncio.ensure_future(network.dial("here", 1, Recorder))
    for _ in range(5):
        await asyncio.sleep(0)
    network.unlisten("here", 1)
    with pytest.raises(ConnectionRefusedError):
        await refused


async def test_an_alias_leads_to_its_listener_now_or_later() -> None:
    network, far = MemoryNetwork(), Recorder()
    network.alias("kafka.example.com", 9093, ("here", 1))
    with pytest.raises(ConnectionRefusedError, match=r"kafka.example.com:9093"):
        await network.dial("kafka.example.com", 9093, Recorder)
    network.listen("here", 1, lambda: far)
    stream = await network.dial("kafka.example.com", 9093, Recorder)
    assert stream.get_extra_info("peername") == ("kafka.example.com", 9093)
    assert far.transport is not None
