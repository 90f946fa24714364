"""One connection: requests out, answers in, matched in order.

1. A broker answers one request at a time, in order (NET-12). An answer that does not match the oldest request ends the connection.
2. One failure ends all: each request of a lost connection fails with the same cause, oldest first, also what timed out behind it.
3. What an answer's callback raises harms neither the connection nor the next answer.

Knows nothing of what is asked, or why.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from aioproducer.errors import ConnectionLost, ProtocolError, RequestTimedOut, TransportError
from aioproducer.net.transport import writer_of
from aioproducer.wire.api import NAMES, ApiKey, negotiate
from aioproducer.wire.frame import FrameReader, correlation_of, decode_response, encode_request
from aioproducer.wire.schema import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioproducer.interfaces import Buffer, Stream

__all__ = ["Answer", "Connection"]

_CORRELATION_LIMIT = 2**31 - 8  # Kafka keeps the last eight for SASL (NET-12)


class Answer(NamedTuple):
    """An undecoded answer: decode from `offset` on."""

    key: ApiKey
    version: int
    frame: Buffer
    offset: int

    def decode(self, version: int | None = None) -> Any:
        """The message, or ProtocolError."""
        return codec(f"{NAMES[self.key]}.response", self.version if version is None else version).decode(self.frame, self.offset)

    def decode_in_steps(self) -> Any:
        """A generator that decodes in small steps and returns the message."""
        return codec(f"{NAMES[self.key]}.response", self.version).decode_in_steps(self.frame, self.offset)


class _Pending(NamedTuple):
    correlation_id: int
    key: ApiKey
    version: int
    deadline: float
    on_answer: Callable[[Answer | TransportError], None]


class Connection:
    """A connection to one broker (an `interfaces.Receiver`).

    Args:
        where: host:port, for messages.
        on_lost: called once, after every pending request has failed.
        on_writable: called when a full write buffer has room again.
    """

    def __init__(self, where: str, client_id: str, on_lost: Callable[[Connection], None], on_writable: Callable[[], None]) -> None:
        self.where = where
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.is_paused = False
        self.is_lost = False
        self._client_id = client_id
        self._on_lost = on_lost
        self._on_writable = on_writable
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._pending: deque[_Pending] = deque()
        self._unanswered: deque[Callable[[Answer | TransportError | None], None]] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._cause: TransportError | None = None

    # asyncio.Protocol

    def connection_made(self, transport: Stream) -> None:
        """Remember the stream."""
        self._stream = transport
        self._write = writer_of(transport)

    def data_received(self, data: bytes) -> None:
        """Give each whole frame to the oldest request."""
        try:
            for frame in self._reader.feed(data):
                self._on_frame(frame)
        except ProtocolError as error:
            self.abort(error)

    def eof_received(self) -> None:
        """The broker closes; so do we."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is pending, oldest first."""
        cause = self._cause
        if cause is None:
            cause = ConnectionLost(f"{self.where} closed the connection" + (f": {exc}" if exc is not None else ""))
            cause.__cause__ = exc
        self.is_lost = True
        self._cause = cause
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            self._call(self._pending.popleft().on_answer, cause)
        while self._unanswered:
            self._call(self._unanswered.popleft(), cause)
        self._on_lost(self)

    def pause_writing(self) -> None:
        """The write buffer is full."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """The write buffer has room again; requests that get no answer are done."""
        self.is_paused = False
        while self._unanswered and not self.is_paused:
            self._call(self._unanswered.popleft(), None)
        self._on_writable()

    # Requests

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._pending)

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent."""
        return not self.is_lost and self._cause is None and not self._stream.is_closing()

    def version_of(self, key: ApiKey) -> int:
        """The highest version that both sides know.

        Raises:
            ProtocolError: there is none.
        """
        version = negotiate(key, self.versions)
        if version is None:
            raise ProtocolError(
                f"{self.where} speaks no version of {NAMES[key]} that this client does: it offers {self.versions.get(key, 'none')}"
            )
        return version

    def send(
        self,
        key: ApiKey,
        version: int,
        body: Sequence[Buffer],
        on_answer: Callable[[Answer | TransportError], None],
        timeout: float,
    ) -> None:
        """Send a request; `on_answer` is called once, later, with its answer or with what ended the connection."""
        if self._cause is not None:
            self._loop.call_soon(self._call, on_answer, self._cause)
            return
        self._put(key, version, body)
        deadline = self._loop.time() + timeout
        self._pending.append(_Pending(self._correlation_id, key, version, deadline, on_answer))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._on_timer)

    def send_unanswered(
        self, key: ApiKey, version: int, body: Sequence[Buffer], on_written: Callable[[Answer | TransportError | None], None]
    ) -> None:
        """Send a request that gets no answer (acks=0); `on_written(None)` once the write buffer is not full."""
        if self._cause is not None:
            self._loop.call_soon(self._call, on_written, self._cause)
            return
        self._put(key, version, body)
        if self.is_paused:
            self._unanswered.append(on_written)
        else:
            self._loop.call_soon(self._call, on_written, None)

    async def ask(self, key: ApiKey, version: int, message: Any, timeout: float) -> Answer:
        """Send a request and wait for its answer.

        Raises:
            TransportError: the connection ended first.
        Cancellation: the answer is dropped when it comes.
        """
        future: asyncio.Future[Answer] = self._loop.create_future()

        def on_answer(answer: Answer | TransportError) -> None:
            if future.done():
                return
            if isinstance(answer, TransportError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.send(key, version, codec(f"{NAMES[key]}.request", version).encode(message), on_answer, timeout)
        return await future

    def abort(self, cause: TransportError) -> None:
        """End the connection now; what is pending fails with `cause`."""
        if self._cause is None:
            self._cause = cause
        self._stream.abort()

    def close(self) -> None:
        """End the connection once what is written has left."""
        if self._cause is None:
            self._cause = ConnectionLost(f"the connection to {self.where} was closed here")
            self._stream.close()

    def _put(self, key: ApiKey, version: int, body: Sequence[Buffer]) -> None:
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_LIMIT
        self._write(encode_request(key, version, self._correlation_id, self._client_id, body))

    def _on_frame(self, frame: Buffer) -> None:
        if self._cause is not None:
            return
        if not self._pending:
            raise ProtocolError(f"{self.where} sent an answer that nobody asked for")
        pending = self._pending[0]
        if (correlation_id := correlation_of(frame)) != pending.correlation_id:
            raise ProtocolError(f"{self.where} answered request {correlation_id}, but {pending.correlation_id} is the oldest")
        _, offset = decode_response(pending.key, pending.version, frame)
        self._pending.popleft()
        self._call(pending.on_answer, Answer(pending.key, pending.version, frame, offset))

    def _call(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            callback(argument)
        except ProtocolError as error:  # the body does not decode: whatever else it was to say is lost with the connection
            self.abort(error)
        except Exception as error:  # noqa: BLE001
            self._loop.call_exception_handler({"message": f"A bug: an answer of {self.where} could not be taken in", "exception": error})

    def _on_timer(self) -> None:
        self._timer = None
        if not self._pending:
            return
        oldest = self._pending[0]
        if oldest.deadline > self._loop.time():
            self._timer = self._loop.call_at(oldest.deadline, self._on_timer)
            return
        self.abort(RequestTimedOut(f"{self.where} did not answer {NAMES[oldest.key]} in time; the connection was closed"))
