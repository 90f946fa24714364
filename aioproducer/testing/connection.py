"""One client's connection to one fake broker: reads requests, answers them one at a time and in order.

1. While a request waits, the connection reads no further than the bytes that have already come.
2. A protocol violation (an invalid frame, an unknown request or version, a message that does not decode) closes the connection
   and is logged in `FakeCluster.violations`.
3. Answers are delayed by `FakeBroker.latency`, and requests are read at `FakeBroker.bandwidth`. When these change, bytes and answers
   in transit continue at the new speed.
4. The same protocol serves sockets and memory streams.
5. `Authenticator` judges each request when it is read, before it is decoded.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ProtocolError
from aioproducer.testing.call import Call
from aioproducer.testing.frames import decode_request, encode_response
from aioproducer.testing.handlers import HANDLERS, connect
from aioproducer.testing.request_log import (
    Authentication,
    Dial,
    ExpiredSession,
    Request,
    TlsFailure,
    Violation,
)
from aioproducer.testing.security.authenticator import MOST_BYTES, Admission, Authenticator, Ending
from aioproducer.testing.security.tls import common_name
from aioproducer.wire.api import NAMES, ApiKey
from aioproducer.wire.frame import FrameReader
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.testing.broker import FakeBroker

__all__ = ["Connection"]

_START: Final = struct.Struct(
    ">hhi"
)  # key, version, correlation id: the first fields of every request header
_LEAST_HEADER: Final = 10
_SIZE: Final = struct.Struct(">i")


class Connection(asyncio.Protocol):
    """One client's connection to one broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.number: int = next(broker.cluster.connection_numbers)
        self._journal = broker.cluster.journal
        self.authenticator: Authenticator = Authenticator(broker.security)
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
        self._is_last = False

    # --- as asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        """Register with the broker, and begin to read."""
        self._transport = transport
        self._is_open = True
        self.broker.remember(self)
        self._journal.dials.append(Dial(*self._now_here()))
        # accepted in the event-loop iteration in which the listener closed
        if not self.broker.is_running:
            self.reset()
        self.go_on()

    def data_received(self, data: bytes) -> None:
        """Take bytes of requests, at the broker's bandwidth."""
        bandwidth = self.broker.bandwidth
        if bandwidth is None:
            self._coming = data
            self._arrive()
        elif self._is_open:
            # not an argument of the timer: asyncio's debug log would show the bytes, which may be a password
            self._coming = data
            self._arriving = self.broker.loop.call_later(len(data) / bandwidth, self._arrive)
            self._adjust_reading()

    def on_bandwidth(self, before: float | None) -> None:
        """Reschedule the bytes in transit: they arrive at the broker's new bandwidth instead of `before`."""
        if self._arriving is None or before is None:
            return
        loop, bandwidth = self.broker.loop, self.broker.bandwidth
        left = (self._arriving.when() - loop.time()) * before
        self._arriving.cancel()
        self._arriving = loop.call_later(
            max(left, 0.0) / bandwidth if bandwidth else 0.0, self._arrive
        )

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
        self._close_after_last()
        self.go_on()

    def end_after_answer(self) -> None:
        """Serve no request after the current one, and close once its answer is sent."""
        self._is_last = True

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
        self._close_after_last()

    def _close_after_last(self) -> None:
        """Close after `end_after_answer`, unless bytes of the answer are held or delayed."""
        if (
            self._is_open
            and self._is_last
            and self._call is None
            and not self._travelling
            and not self._held
        ):
            self.close()

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
        self.log_violation(what)
        self.close()

    def log_violation(self, what: str) -> None:
        """Log a request that no broker accepts."""
        self._journal.violations.append(Violation(*self._now_here(), what))

    def _now_here(self) -> tuple[float, int, int]:
        """Return the first fields of each entry of the journal: time, broker and connection."""
        return self.broker.loop.time(), self.broker.node_id, self.number

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
            self._close_after_last()
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._frames and self._is_ready:
                self._begin(self._frames.popleft())
        finally:
            self._is_pumping = False
        self._adjust_reading()

    def _arrive(self) -> None:
        self._arriving = None
        data, self._coming = self._coming, b""
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
        return (
            self._call is None
            and self._is_open
            and self._can_write
            and not self._is_last
            and not self.broker.is_paused
        )

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
        broker, authenticator = self.broker, self.authenticator
        try:
            if not authenticator.is_open and len(frame) > MOST_BYTES:
                raise ProtocolError(
                    f"a request of {len(frame)} bytes during authentication; the limit is {MOST_BYTES}"
                )
            if authenticator.takes_raw_tokens:
                self._take_raw_token(frame)
                return
            if len(frame) < _LEAST_HEADER:
                raise ProtocolError(f"a request of {len(frame)} bytes is shorter than its header")
            key = _START.unpack_from(frame)[0]
            admission = authenticator.admit(key, broker.loop.time())
            if admission is Admission.EXPIRED:
                self._journal.expired_sessions.append(ExpiredSession(*self._now_here()))
                self.close()
                return
            if admission is Admission.CLOSE:
                raise ProtocolError(
                    f"{NAMES.get(key, f'request {key}')} before the connection is authenticated by SASL"
                )
            call = self._call_of(frame)
        except ProtocolError as error:
            self.violate(str(error))
            return
        if call is not None:
            self._call = call
            if admission is Admission.ILLEGAL:
                self.log_violation(f"{call.api} within an exchange of SASL")
                call.begin_illegally()
            else:
                call.begin()

    def _call_of(self, frame: bytes) -> Call | None:
        """Decode and log a request. Returns None for an unsupported version of ApiVersions, which is answered here.

        Raises:
            ProtocolError: no broker accepts the request.
        """
        broker = self.broker
        key, version, correlation_id = _START.unpack_from(frame)
        lowest, highest = broker.versions.get(key, (0, -1))
        if key == ApiKey.API_VERSIONS and highest >= 0 and not lowest <= version <= highest:
            self.write(
                encode_response(key, 0, correlation_id, connect.unsupported(lowest, highest))
            )
            return None
        if not lowest <= version <= highest:
            raise ProtocolError(
                f"request {key} in version {version}: this broker speaks {lowest} to {highest} (0 to -1: none)"
            )
        header = decode_request(frame)
        handler = HANDLERS[ApiKey(key)]
        mended = frame if handler.mend is None else handler.mend(frame, header)
        request = codec(f"{handler.name}.request", version).decode(mended, header.offset)
        # the log holds no secret: a test may print it
        logged = message("SaslAuthenticate.request") if key == ApiKey.SASL_AUTHENTICATE else request
        self._journal.add(
            Request(*self._now_here(), handler.name, version, header.client_id, logged)
        )
        return Call(self, header, handler, request)

    # --- authentication

    def log_authentication(self, error: int) -> None:
        """Log how an authentication of this connection ended; `error` is Kafka's code, or 0."""
        by = self.authenticator
        principal = by.claimed if error else by.principal
        self._journal.authentications.append(
            Authentication(*self._now_here(), principal, by.mechanism, by.is_renewal, error)
        )

    def tls_up(self, tls: ssl.SSLObject) -> None:
        """Take the name of the client's certificate for the principal, as with `ssl.principal.mapping.rules` for the CN."""
        name = common_name(tls)
        if name is not None and self.authenticator.identify(name):
            self.log_authentication(0)

    def tls_failed(self, reason: str) -> None:
        """Log why TLS failed; the connection is closing."""
        self._journal.tls_failures.append(TlsFailure(*self._now_here(), reason))

    def _take_raw_token(self, token: bytes) -> None:
        """Answer a token of SASL that follows SaslHandshake 0: tokens have a size and no header. A refusal closes without an answer."""
        outcome = self.authenticator.authenticate(token, self.broker.loop.time())
        if outcome.is_end:
            self.log_authentication(outcome.code)
        if outcome.ending is Ending.STAYS:
            self.write([_SIZE.pack(len(outcome.token)) + outcome.token])
        else:
            self.close()
