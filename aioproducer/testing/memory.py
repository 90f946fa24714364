"""A network without sockets, for one loop: listeners by host and port, and pairs of connected streams.

1. Bytes arrive in order, in a later event-loop iteration than the write. A `close` arrives after them, an `abort` before.
2. A stream holds up to a socket buffer's size for a peer that does not read. Further bytes count as the write buffer.
   Above the high-water mark the stream pauses the writing receiver, as asyncio's transports do.
3. A refused connection raises `ConnectionRefusedError`, as the kernel does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.interfaces import Buffer, Receiver

__all__ = ["MemoryNetwork", "MemoryStream"]

_SOCKET_BUFFER: Final = 256 * 1024
_HIGH_WATER: Final = 64 * 1024
_LOW_WATER: Final = 16 * 1024
_READ_AT_MOST: Final = 256 * 1024  # the most that asyncio reads from a socket at once


class MemoryNetwork:
    """Holds the listeners, and dials them (a `Dialer`)."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int], Callable[[], Receiver]] = {}
        self._silent: dict[tuple[str, int], asyncio.Event] = {}
        self._aliases: dict[tuple[str, int], tuple[str, int]] = {}

    def listen(self, host: str, port: int, receiver: Callable[[], Receiver]) -> None:
        """Accept connections from now on."""
        if (host, port) in self._listeners:
            raise OSError(f"{host}:{port} is taken")
        self._listeners[host, port] = receiver
        self._speak(host, port)

    def unlisten(self, host: str, port: int) -> None:
        """Refuse connections from now on; open connections remain."""
        self._listeners.pop((host, port), None)
        self._speak(host, port)

    def silence(self, host: str, port: int) -> None:
        """Neither accept nor refuse connections: a dial waits until the next `listen` or `unlisten` of the address."""
        self._listeners.pop((host, port), None)
        self._silent.setdefault((host, port), asyncio.Event())

    def alias(self, host: str, port: int, target: tuple[str, int]) -> None:
        """Let a further address lead to the listener at `target`, as a name of a service or its load balancer does."""
        self._aliases[host, port] = target

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> MemoryStream:
        """Connect, one event-loop iteration later. Returns the client's stream.

        Raises:
            ConnectionRefusedError: there is no listener.

        Cancellation: no connection was opened.
        """
        await asyncio.sleep(0)
        place = self._aliases.get((host, port), (host, port))
        while (silent := self._silent.get(place)) is not None:
            await silent.wait()
        listener = self._listeners.get(place)
        if listener is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port} of this memory network")
        loop = asyncio.get_running_loop()
        near, far = (
            MemoryStream(loop, receiver(), (host, port)),
            MemoryStream(loop, listener(), ("memory", 0)),
        )
        near.join(far)
        far.join(near)
        far.receiver.connection_made(far)
        near.receiver.connection_made(near)
        return near

    def _speak(self, host: str, port: int) -> None:
        silent = self._silent.pop((host, port), None)
        if silent is not None:
            silent.set()


class MemoryStream:
    """One end of a connection; has the used methods of `asyncio.Transport`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, receiver: Receiver, peername: tuple[str, int]
    ) -> None:
        self.receiver = receiver
        self.unread: int = 0
        """Number of bytes that the peer wrote and this stream has not delivered to its receiver."""
        self._loop = loop
        self._extra = {"peername": peername}
        self._peer: MemoryStream | None = None
        self._inbox: deque[bytes] = deque()
        self._delivery: asyncio.Handle | None = None
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._peer_closed = False
        self._writer_paused = False

    def join(self, peer: MemoryStream) -> None:
        """Connect this end to `peer`; the network calls it on both ends."""
        self._peer = peer

    # --- the transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return `peername`; there is no socket."""
        return self._extra.get(name, default)

    def write(self, data: Buffer, /) -> None:
        """Queue bytes for the peer. Dropped when either end is closing, as asyncio's transports do."""
        peer = self._peer
        if self._is_closing or peer is None or peer.is_closing() or not len(data):
            return
        peer.arrive(bytes(data))
        if not self._writer_paused and self.get_write_buffer_size() > _HIGH_WATER:
            self._writer_paused = True
            self.receiver.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        """Queue several buffers."""
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """Return the number of unread bytes beyond those that a socket would hold."""
        return max(0, self._peer.unread - _SOCKET_BUFFER) if self._peer else 0

    def is_closing(self) -> bool:
        """Return whether the stream is closed or closing."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Deliver no more bytes to the receiver until `resume_reading`."""
        self._is_reading = False
        self._cancel_delivery()

    def resume_reading(self) -> None:
        """Deliver waiting and further bytes to the receiver."""
        self._is_reading = True
        self._schedule()

    def close(self) -> None:
        """Close once the peer's socket would have the queued bytes. The peer sees the end after the last byte."""
        if self._is_closing:
            return
        self._is_closing = True
        self._drop_unread()
        if not self.get_write_buffer_size():
            self._loop.call_soon(self._lose, None)
        if self._peer is not None:
            self._peer.arrive_end()

    def abort(self) -> None:
        """Close at once. The peer's connection is reset, and its unread bytes are dropped."""
        if self._is_lost:
            return
        peer = self._peer
        self._end(None)
        if peer is not None:
            peer.reset()

    # --- called by the other end

    def arrive(self, data: bytes) -> None:
        """Queue bytes that the peer wrote."""
        self._inbox.append(data)
        self.unread += len(data)
        self._schedule()

    def arrive_end(self) -> None:
        """Note that the peer closed after the queued bytes."""
        self._peer_closed = True
        self._schedule()

    def reset(self) -> None:
        """End the stream, as the peer aborted."""
        if not self._is_lost:
            self._end(
                None
                if self._is_closing
                else ConnectionResetError("the peer aborted the connection")
            )

    def peer_has_read(self) -> None:
        """Resume writing, or finish closing, if the write buffer is small enough now."""
        size = self.get_write_buffer_size()
        if self._is_closing:
            if not size:
                self._loop.call_soon(self._lose, None)
        elif self._writer_paused and size <= _LOW_WATER:
            self._writer_paused = False
            self.receiver.resume_writing()

    # --- implementation

    def _end(self, error: Exception | None) -> None:
        self._is_closing = True
        self._drop_unread()
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._peer = None
            self.receiver.connection_lost(error)

    def _drop_unread(self) -> None:
        self._inbox.clear()
        self.unread = 0
        self._cancel_delivery()
        # a closing peer waits until its bytes are read or dropped
        if self._peer is not None and self._peer.is_closing():
            self._peer.peer_has_read()

    def _cancel_delivery(self) -> None:
        if self._delivery is not None:
            self._delivery.cancel()
            self._delivery = None

    def _schedule(self) -> None:
        if (
            self._delivery is None
            and self._is_reading
            and not self._is_closing
            and (self._inbox or self._peer_closed)
        ):
            self._delivery = self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivery = None
        if self._inbox:
            data = self._take()
            if self._peer is not None:
                self._peer.peer_has_read()
            try:
                self.receiver.data_received(data)
            # As a socket that stays readable, also after an exception of a signal handler.
            finally:
                self._schedule()
        elif self._peer_closed:
            self._peer_closed = False
            if not self.receiver.eof_received():
                self.close()

    def _take(self) -> bytes:
        """Return queued chunks, joined as one read of a socket would return them."""
        chunks = [self._inbox.popleft()]
        size = len(chunks[0])
        while self._inbox and size + len(self._inbox[0]) <= _READ_AT_MOST:
            chunks.append(self._inbox.popleft())
            size += len(chunks[-1])
        self.unread -= size
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
