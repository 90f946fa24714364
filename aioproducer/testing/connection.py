"""One client's connection to one fake broker: reads requests, answers them one at a time and in order.

1. While a request waits, the connection reads no further than the bytes that have already come.
2. A protocol violation (an invalid frame, an unknown request or version, a message that does not decode) closes the connection
   and is logged in `FakeCluster.violations`.
3. Answers are delayed by `FakeBroker.latency`, and requests are read at `FakeBroker.bandwidth`. When these change, bytes and answers
   in transit continue at the new speed.
4. The same protocol serves sockets and memory streams.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ProtocolError
from aioproducer.testing.call import Call
from aioproducer.testing.handlers import api_versions
from aioproducer.wire.api import ApiKey
from aioproducer.wire.frame import FrameReader, decode_request, encode_response
from aioproducer.wire.schema import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.testing.broker import FakeBroker

__all__ = ["Connection"]

_START: Final = struct.Struct(">hhi")  # key, version, correlation id: the first fields of every request header
_LEAST_HEADER: Final = 10


class Connection(asyncio.Protocol):
    """One client's connection to one broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.number = broker.cluster.next_connection()
        self._transport: Any = None
        self._reader = FrameReader()
        self._frames: deque[bytes] = deque()
        self._call: Call | None = None
        self._held: list[Buffer] = []
        self._gathered: list[Buffer] = []
        self._postponed: list[Buffer] = []
        self._travelling: deque[tuple[float, Sequence[Buffer]]] = deque()
        self._delivering: asyncio.TimerHandle | None = None
        self._arriving: asyncio.TimerHandle | None = None
        self._coming = b""
        self._is_open = False
        self._is_reading = True
        self._can_write = True
        self._is_pumping = False

    # --- as asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        """Register with the broker, and begin to read."""
        self._transport = transport
        self._is_open = True
        self.broker.remember(self)
        # accepted in the event-loop iteration in which the listener closed
        if not self.broker.is_running:
            self.reset()
        self.go_on()

    def data_received(self, data: bytes) -> None:
        """Take bytes of requests, at the broker's bandwidth."""
        bandwidth = self.broker.bandwidth
        if bandwidth is None:
            self._arrive(data)
        elif self._is_open:
            self._coming = data
            self._arriving = self.broker.loop.call_later(len(data) / bandwidth, self._arrive, data)
            self._adjust_reading()

    def on_bandwidth(self, before: float | None) -> None:
        """Reschedule the bytes in transit: they arrive at the broker's new bandwidth instead of `before`."""
        if self._arriving is None or before is None:
            return
        loop, bandwidth = self.broker.loop, self.broker.bandwidth
        left = (self._arriving.when() - loop.time()) * before
        self._arriving.cancel()
        self._arriving = loop.call_later(max(left, 0.0) / bandwidth if bandwidth else 0.0, self._arrive, self._coming)

    def pause_writing(self) -> None:
        """Stop answering requests until the client reads its answers."""
        self._can_write = False

    def resume_writing(self) -> None:
        """Answer requests again."""
        self._can_write = True
        self.go_on()

    def connection_lost(self, _error: Exception | None) -> None:
        """Drop the requests, and leave the broker."""
        self._end()
        self.broker.forget(self)

    # --- answers

    def finish(self, frame: Sequence[Buffer] = ()) -> None:
        """End the current request and send its answer, if there is one; go on with the next request."""
        self._call = None
        if frame:
            postponed, self._postponed = self._postponed, []
            self.write([*frame, *postponed])
        self.go_on()

    def postpone(self, frame: Buffer) -> None:
        """End the current request; send its answer after the next one."""
        self._postponed.append(frame)
        self.finish()

    def gather(self, frame: Buffer, count: int) -> None:
        """End the current request; hold its answer until there are `count`, and send them in one piece."""
        self._gathered.append(frame)
        whole = b""
        if len(self._gathered) >= count:
            whole = b"".join(self._gathered)
            self._gathered.clear()
        self.finish([whole] if whole else ())

    def trickle(self, pieces: Iterator[bytes]) -> None:
        """Send the answer piece by piece, one per event-loop iteration."""
        piece = next(pieces, None)
        if piece is None or not self._is_open:
            self.finish()
        else:
            self.write([piece])
            self.broker.loop.call_soon(self.trickle, pieces)

    def write(self, chunks: Sequence[Buffer]) -> None:
        """Send bytes, or keep them while the broker is paused."""
        if self.broker.is_paused:
            self._held += chunks
        elif self._is_open:
            if self.broker.latency or self._travelling:
                self._travelling.append((self.broker.loop.time(), chunks))
                if len(self._travelling) == 1:
                    self._deliver()
            else:
                self._send(chunks)

    def on_latency(self) -> None:
        """Reschedule the delayed answers by the broker's new latency."""
        if self._delivering is not None:
            self._delivering.cancel()
            self._deliver()

    def _deliver(self) -> None:
        """Send the answers that have been delayed by the latency."""
        loop = self.broker.loop
        self._delivering = None
        while self._is_open and self._travelling:
            due = self._travelling[0][0] + self.broker.latency
            if due > loop.time():
                self._delivering = loop.call_at(due, self._deliver)
                return
            _, chunks = self._travelling.popleft()
            self._send(chunks)

    def _send(self, chunks: Sequence[Buffer]) -> None:
        """Send bytes in one write.

        asyncio's `writelines` of 3.12 and 3.13 never calls `pause_writing`, and fails after the client has closed.
        """
        self._transport.write(b"".join(chunks))

    # --- close

    def close(self) -> None:
        """Close after the written bytes."""
        self._end()
        self._transport.close()

    def reset(self) -> None:
        """Close at once."""
        self._end()
        self._transport.abort()

    def violate(self, what: str) -> None:
        """Log the client's protocol violation and close."""
        self.broker.cluster.remember_violation(self.broker.node_id, self.number, what)
        self.close()

    def _end(self) -> None:
        """Drop all requests and bytes in transit."""
        self._is_open = False
        for kept in (self._frames, self._held, self._travelling):
            kept.clear()
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None
        if self._call is not None:
            self._call.drop()
            self._call = None

    # --- requests

    def go_on(self) -> None:
        """Answer the requests that have come, as far as possible now; safe to call at any time."""
        if self._held and not self.broker.is_paused:
            held, self._held = self._held, []
            self.write(held)
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._frames and self._is_ready:
                self._begin(self._frames.popleft())
        finally:
            self._is_pumping = False
        self._adjust_reading()

    def _arrive(self, data: bytes) -> None:
        self._arriving = None
        if not self._is_open:
            return
        try:
            self._frames.extend(self._reader.feed(data))
            self._reader.check()
        except ProtocolError as error:
            self.violate(str(error))
        else:
            self.go_on()

    @property
    def _is_ready(self) -> bool:
        return self._call is None and self._is_open and self._can_write and not self.broker.is_paused

    def _adjust_reading(self) -> None:
        """Read while no further request waits. A real broker stops reading at the first waiting request, this one at the second."""
        wants = not self.broker.is_paused and not self._frames and self._arriving is None
        if self._is_open and wants is not self._is_reading:
            self._is_reading = wants
            if wants:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _begin(self, frame: bytes) -> None:
        broker = self.broker
        try:
            if len(frame) < _LEAST_HEADER:
                raise ProtocolError(f"a request of {len(frame)} bytes is shorter than its header")
            key, version, correlation_id = _START.unpack_from(frame)
            lowest, highest = broker.versions.get(key, (0, -1))
            if key == ApiKey.API_VERSIONS and highest >= 0 and not lowest <= version <= highest:
                self.write(encode_response(key, 0, correlation_id, api_versions.unsupported(lowest, highest)))
                return
            if not lowest <= version <= highest:
                raise ProtocolError(f"request {key} in version {version}: this broker speaks {lowest} to {highest} (0 to -1: none)")
            header = decode_request(frame)
            handler = broker.cluster.handler(key)
            request = codec(f"{handler.name}.request", version).decode(handler.mend(frame, header), header.offset)
        except ProtocolError as error:
            self.violate(str(error))
            return
        broker.cluster.remember_request(broker.node_id, self.number, handler.name, header, request)
        self._call = call = Call(self, header, handler, request)
        call.begin()
