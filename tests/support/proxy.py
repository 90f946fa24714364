"""A TCP proxy on loopback that adds faults to a broker's connections: delay, low bandwidth, silence, reset.

    proxy = FaultProxy()
    await proxy.start()
    proxy.upstream_port = port_of_the_broker
    proxy.delay(0.2)                     # in both directions; clients connect to proxy.port
    proxy.black_hole("answers")          # requests arrive, answers do not
    proxy.heal()                         # held bytes are sent on

Bytes are held, never lost or reordered, as in TCP; only `cut`, `reset` and the end of a connection lose them. The proxy stops reading
from a side that sends more than the proxy passes on, so that this side's write buffer fills as with a slow peer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

__all__ = ["FaultProxy"]


Way: TypeAlias = Literal["requests", "answers"]

_HOST: Final = "127.0.0.1"
_HELD_AT_MOST: Final = (
    256 * 1024
)  # bytes held in one direction before the proxy stops reading from its sender
_RESET: Final = struct.pack("ii", 1, 0)  # linger for 0 s: closing sends RST
_SLICES: Final = 20  # pieces per second in a slow direction


@dataclass
class _Trouble:
    """Holds the faults of one direction."""

    seconds: float = 0.0
    rate: float | None = None  # bytes a second
    is_held: bool = False

    def end(self) -> None:
        """End the faults in place, as connections refer to this object."""
        self.seconds, self.rate, self.is_held = 0.0, None, False


class FaultProxy:
    """Listens on a port of its own, and forwards every connection to one upstream port of loopback.

    Attributes:
        port: the port for clients; kept from `start` to `stop`.
        upstream_port: the port to forward to; set before clients connect.
    """

    def __init__(self) -> None:
        self.upstream_port: int = 0
        self.port: int = 0
        self._troubles = {"requests": _Trouble(), "answers": _Trouble()}
        self._is_cut = False
        self._server: asyncio.Server | None = None
        self._ends: set[_End] = set()

    async def start(self) -> None:
        """Listen. Cancellation: no socket remains open."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Door(self, self._troubles), _HOST, 0, start_serving=False
        )
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            # A separate call: a create_server that is cancelled while it serves would leak the server.
            await self._server.start_serving()
        # a cancellation, too, leaves no socket
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Reset every connection and stop listening; safe twice."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self.reset()
            await server.wait_closed()

    # --- faults

    def delay(self, seconds: float) -> None:
        """Delay every byte by `seconds`, in both directions; bytes in transit are not affected."""
        for trouble in self._troubles.values():
            trouble.seconds = seconds

    def slow(self, bytes_per_second: float) -> None:
        """Limit each connection to `bytes_per_second`, in both directions."""
        for trouble in self._troubles.values():
            trouble.rate = bytes_per_second

    def black_hole(self, way: Way) -> None:
        """Hold all bytes: open connections remain, new ones are accepted, and no byte passes."""
        self._troubles[way].is_held = True

    def cut(self) -> None:
        """Reset every connection, and each new one until `heal`."""
        self._is_cut = True
        self.reset()

    def reset(self) -> None:
        """Reset every open connection; new ones are forwarded."""
        for end in tuple(self._ends):
            end.abort()

    def heal(self) -> None:
        """End all faults; held bytes are sent on, in order."""
        self._is_cut = False
        for trouble in self._troubles.values():
            trouble.end()
        for end in tuple(self._ends):
            end.pump()

    # --- called by connections

    def welcome(self, end: _End) -> bool:
        """Note an open connection. Returns False if it must be reset."""
        self._ends.add(end)
        return not self._is_cut

    def forget(self, end: _End) -> None:
        """Note that a connection has ended."""
        self._ends.discard(end)


class _End(asyncio.Protocol):
    """One end of a proxied connection; its `other` end writes the bytes that this end reads."""

    def __init__(self, proxy: FaultProxy, trouble: _Trouble) -> None:
        self._proxy = proxy
        self._trouble = trouble
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, bytes | None]] = deque()
        self._size = 0
        self._free_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_full: bool = False
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if not self._proxy.welcome(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._proxy.forget(self)
        if exc is not None and self.other is not None:
            self.other.abort()
        self._take(None)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self.other is not None:
            self.other.pump()

    def abort(self) -> None:
        """Reset this end and the other one."""
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _RESET
        )
        self.transport.abort()
        if self.other is not None:
            self.other.abort()

    def pump(self) -> None:
        """Write all bytes that are due now; a timer continues later. The end of the stream, None, has the delay of the bytes before it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        other = self.other
        while (
            self._held
            and other is not None
            and other.transport is not None
            and not (self._trouble.is_held or other.is_full)
        ):
            due, data = self._held[0]
            if (at := max(due, self._free_at)) > self._loop.time():
                self._timer = self._loop.call_at(at, self.pump)
                break
            self._held.popleft()
            if data is None:
                other.transport.close()
            elif not other.transport.is_closing():
                self._write(other.transport, due, data)
        self._read_on()

    def _write(self, other: asyncio.Transport, due: float, data: bytes) -> None:
        rate = self._trouble.rate
        if rate is not None and len(data) > (piece := max(1, int(rate / _SLICES))):
            self._held.appendleft((due, data[piece:]))
            data = data[:piece]
        if rate is not None:
            self._free_at = self._loop.time() + len(data) / rate
        self._size -= len(data)
        other.write(data)

    def _take(self, data: bytes | None) -> None:
        self._held.append((self._loop.time() + self._trouble.seconds, data))
        self._size += len(data or b"")
        self.pump()

    def _read_on(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self._size > _HELD_AT_MOST:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()


class _Door(_End):
    """The client's end; dials the upstream as soon as a client has connected."""

    def __init__(self, proxy: FaultProxy, troubles: dict[str, _Trouble]) -> None:
        super().__init__(proxy, troubles["requests"])
        self._answers = troubles["answers"]
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not transport.is_closing():
            self._dialling = self._loop.create_task(self._dial())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._dialling is not None:
            self._dialling.cancel()
            self._dialling = None

    async def _dial(self) -> None:
        try:
            _, end = await self._loop.create_connection(
                lambda: _End(self._proxy, self._answers), _HOST, self._proxy.upstream_port
            )
        # no upstream listener: reset the client's connection
        except OSError:
            self.abort()
            return
        end.other, self.other = self, end
        if self.transport is None or self.transport.is_closing():
            end.abort()
        self.pump()
        end.pump()
