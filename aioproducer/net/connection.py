"""One connection to a broker: sends requests, and matches the answers to them in order.

1. A broker answers one request at a time, in order (NET-12). An answer that does not match the oldest request ends the connection.
2. One failure ends all requests: each request of a lost connection fails with the same cause, the oldest first. Requests behind one that
   timed out fail with it.
3. An exception from an answer's callback affects neither the connection nor the next answer, except a `ProtocolError`, which ends the
   connection.
4. An idle connection is closed before the broker closes it (NET-35). A connection with a request in flight is never idle.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import (
    ConnectionLost,
    ProtocolError,
    RequestTimedOut,
    TransportError,
    broker_error,
)
from aioproducer.interfaces import USER_FAILURES
from aioproducer.net.dialer import writer_of
from aioproducer.net.in_flight_requests import InFlightRequest, InFlightRequests
from aioproducer.wire.api import NAMES, ApiKey, negotiate
from aioproducer.wire.decoder import UNLIMITED
from aioproducer.wire.frame import FrameReader, decode_response, encode_request
from aioproducer.wire.schema import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioproducer.interfaces import Buffer, Stream
    from aioproducer.net.observer import Traffic
    from aioproducer.sasl.handshake import Session


# The requests that are sent meanwhile.
_AUTHENTICATION: Final = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))


# Kafka reserves the last eight correlation ids for SASL (NET-12).
_CORRELATION_LIMIT = 2**31 - 8
# The named tuples' own __new__ is a Python function, and three times slower.
_new_tuple = tuple.__new__
# Seconds after which a held connection is looked at again, whether it is idle.
_HELD = 1.0


def call(callback: Callable[..., object], *args: Any) -> object:
    """Call `callback`: the step of a connection without a producer."""
    return callback(*args)


class Answer(NamedTuple):
    """Holds an undecoded answer, which was read at the loop's time `at`. Its message begins at `offset` of the frame."""

    key: ApiKey
    version: int
    frame: bytes
    offset: int
    at: float

    def decode(self, version: int | None = None, most: int = UNLIMITED) -> Any:
        """Return the answer's message, decoded as `version`; None: the request's version.

        Raises:
            ProtocolError: the bytes are not such a message, or it has more than `most` elements.
        """
        return codec(
            f"{NAMES[self.key]}.response", self.version if version is None else version
        ).decode(self.frame, self.offset, most)

    def decode_in_steps(self) -> Any:
        """Return a generator that decodes in small steps and returns the message."""
        return codec(f"{NAMES[self.key]}.response", self.version).decode_in_steps(
            self.frame, self.offset
        )


class Connection:
    """Is a connection to one broker (an `interfaces.Receiver`). It must be made in a task: see `InFlightRequests`.

    Args:
        where: host:port, for error texts.
        on_lost: called once, after every pending request has failed.
        on_writable: called when a full write buffer can take bytes again.
        max_in_flight: number of slots for produce requests.
        max_idle: seconds without a request after which the connection is closed; 0: never (`connections_max_idle_ms`).
        traffic: counts the requests and answers; None: nobody does.
        step: calls the callbacks of the stream and of timers, and fails the producer by what breaks one off, such as KeyboardInterrupt.

    Attributes:
        in_flight_requests: the unanswered requests and the slots.
        versions: the broker's (lowest, highest) version by API key; `learn_versions` sets them.
        agreed: the highest version that the broker and this client know, by API key. A request without one is not there.
        features: the cluster's finalized features, each with its highest level (KIP-584).
        features_epoch: the epoch of `features`; a newer one is higher; -1: the broker gives none.
        frames: splits the received bytes into frames, up to a limit.
        session: the session that SASL began; None: the connection is not authenticated by SASL.
        host: the broker's name, by which it proves its identity in TLS and Kerberos.
        user: the principal that SASL authenticated, as far as the mechanism knows it; empty: not authenticated yet.
        slow_step: what the authentication does in a thread, or did when it was given up; empty: nothing.
        held: the requests that wait while the connection is authenticated, as a broker takes no other request then (KIP-368): what sends each
            one, and what takes the error that ends the connection before; None: requests are sent.
        cause: the error that ended the connection; None: it has not ended.
        is_closed_here: True if `close` ended the connection.
        used_at: the loop's time of the latest request or answer.
        close_hint: text that is appended to the error if the broker closes the connection instead of answering a request; an answer clears it.
        muted_until: the loop's time until which the broker does not read, as far as answers have said.
    """

    def __init__(
        self,
        where: str,
        client_id: str,
        on_lost: Callable[[Connection], None],
        on_writable: Callable[[], None],
        *,
        max_in_flight: int,
        max_idle: float = 0.0,
        traffic: Traffic | None = None,
        step: Callable[..., object] = call,
    ) -> None:
        self.where = where
        self._step = step
        self._traffic = traffic
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.agreed: Mapping[ApiKey, int] = {}
        self.features: Mapping[str, int] = {}
        self.features_epoch = -1
        self.session: Session | None = None
        self.host = ""
        self.user = ""
        self.slow_step = ""
        self.held: list[tuple[Callable[[], None], Callable[[Any], None]]] | None = None
        self._used_before = 0.0
        self.muted_until: float = 0.0
        self.is_paused: bool = False
        self.is_lost: bool = False
        self.cause: TransportError | None = None
        self.is_closed_here: bool = False
        self._client_id = client_id
        self._on_lost = on_lost
        self._on_writable = on_writable
        self._loop = asyncio.get_running_loop()
        self.frames: FrameReader = FrameReader()
        self.in_flight_requests: InFlightRequests = InFlightRequests(max_in_flight)
        # One timer for the deadlines of all requests. It stays armed when the request that it was armed for is answered.
        self._timer: asyncio.Handle | None = None
        self._armed_for = math.inf
        self._unanswered: deque[Callable[[Answer | TransportError | None], None]] = deque()
        self._correlation_id = 0
        self._max_idle = max_idle
        self.used_at: float = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self.close_hint: str = ""
        self._gone = asyncio.Event()

    # asyncio.Protocol

    def connection_made(self, transport: Stream) -> None:
        """Keep the stream, and start the idle timer."""
        self._stream = transport
        self._write = writer_of(transport)
        self.used_at = self._loop.time()
        if self._max_idle:
            self._idle_timer = self._loop.call_later(self._max_idle, self._step, self._on_idle)

    def data_received(self, data: Buffer) -> None:
        """Pass each whole frame to the oldest request. On Windows, asyncio before Python 3.12 gives bytearrays."""
        self._step(self._receive, data)

    def _receive(self, data: Buffer) -> None:
        try:
            for frame in self.frames.feed(data):
                self._on_frame(frame)
            self.frames.check()
        except ProtocolError as error:
            self.abort(error)

    def eof_received(self) -> None:
        """Return None, by which asyncio closes the connection after the broker closed its side."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending requests, the oldest first, and call `on_lost`. A second call changes nothing."""
        if not self.is_lost:
            self._step(self._end, exc)

    def _end(self, exc: Exception | None) -> None:
        cause = self.cause
        if cause is None:
            hint = self.close_hint if self.in_flight_requests.requests else ""
            cause = ConnectionLost(
                f"{self.where} closed the connection{hint}"
                + (f": {exc}" if exc is not None else "")
            )
            cause.__cause__ = exc
        self.is_lost = True
        self._gone.set()
        self.cause = cause
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        while self.in_flight_requests.requests:
            self._call(self.in_flight_requests.requests.popleft().on_answer, cause)
        while self._unanswered:
            self._call(self._unanswered.popleft(), cause)
        held, self.held = self.held, None
        for _, on_end in held or ():
            self._call(on_end, cause)
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Set `is_paused`, because the write buffer is full."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """Clear `is_paused`, because the write buffer is no longer full. Requests that get no answer complete."""
        self.is_paused = False
        self._step(self._go_on)

    def _go_on(self) -> None:
        while self._unanswered and not self.is_paused:
            self._call(self._unanswered.popleft(), None)
        self._on_writable()

    # Requests

    @property
    def in_flight(self) -> int:
        """Return the number of unanswered requests, with those that are held."""
        return len(self.in_flight_requests) + len(self.held or ())

    @property
    def is_usable(self) -> bool:
        """Return True if a request may be sent."""
        if self.is_lost or self.cause is not None:
            return False
        try:
            return not self._stream.is_closing()
        except USER_FAILURES as error:
            _end_by_stream(self, self._loop, "is_closing", error)
            return False

    def learn_versions(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """Keep the broker's (lowest, highest) version by API key, and negotiate the version of each request."""
        self.versions = versions
        self.agreed = {
            key: version for key in ApiKey if (version := negotiate(key, versions)) is not None
        }

    def version_of(self, key: ApiKey) -> int:
        """Return the highest version of a request that the broker and this client know.

        Raises:
            BrokerError: there is no such version.
        """
        if key not in self.agreed:
            offered = self.versions.get(key)
            which = f" of a version that this client speaks, but {offered}" if offered else ""
            raise broker_error("UNSUPPORTED_VERSION", f"{self.where} offers no {NAMES[key]}{which}")
        return self.agreed[key]

    def send(
        self,
        key: ApiKey,
        version: int,
        body: Sequence[Buffer],
        on_answer: Callable[[Answer | TransportError], None],
        timeout: float,
    ) -> None:
        """Send a request, or hold it while the connection is authenticated.

        `on_answer` is called once, later, with the answer or with the error that ended the connection.
        """
        if self.cause is not None:
            self._loop.call_soon(self._step, self._call, on_answer, self.cause)
            return
        if self.held is not None and key not in _AUTHENTICATION:
            self.held.append(
                (partial(self.send, key, version, body, on_answer, timeout), on_answer)
            )
            return
        self._put(key, version, body)
        deadline = self.used_at + timeout
        self.in_flight_requests.requests.append(
            _new_tuple(InFlightRequest, (self._correlation_id, key, version, deadline, on_answer))
        )
        if deadline < self._armed_for:
            self._arm(deadline)

    def send_unanswered(
        self,
        key: ApiKey,
        version: int,
        body: Sequence[Buffer],
        on_written: Callable[[Answer | TransportError | None], None],
    ) -> None:
        """Send a request that gets no answer (acks=0). `on_written(None)` is called when the write buffer is not full.

        If the connection ends first, `on_written` is called with the error that ended it.
        """
        if self.cause is not None:
            self._loop.call_soon(self._step, self._call, on_written, self.cause)
            return
        if self.held is not None:
            self.held.append(
                (partial(self.send_unanswered, key, version, body, on_written), on_written)
            )
            return
        self._put(key, version, body)
        if self.is_paused or self.cause is not None:
            self._unanswered.append(on_written)
        else:
            self._loop.call_soon(self._step, self._call, on_written, None)

    async def ask(self, key: ApiKey, version: int, message: Any, timeout: float) -> Answer:
        """Send a request and wait for its answer. Returns the answer.

        After a cancellation, the answer is dropped when it comes.

        Raises:
            TransportError: the connection ended before the answer.
        """
        future: asyncio.Future[Answer] = self._loop.create_future()

        def on_answer(answer: Answer | TransportError) -> None:
            if future.done():
                return
            if isinstance(answer, TransportError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.send(
            key,
            version,
            codec(f"{NAMES[key]}.request", version).encode(message),
            on_answer,
            timeout,
        )
        return await future

    def hold(self) -> None:
        """Hold back all requests but those of an authentication, until `release`."""
        self._used_before = self.used_at
        self.held = []

    def release(self) -> None:
        """Let requests pass, and send those that wait, in the order of their calls.

        The authentication is no use of the connection: an idle connection stays as idle as before.
        """
        held, self.held = self.held or (), None
        self.used_at = self._used_before
        for send, _ in held:
            send()

    def abort(self, cause: TransportError) -> None:
        """End the connection now. The pending requests fail with `cause`, or with an earlier cause if there is one."""
        if self.cause is None:
            self.cause = cause
        try:
            self._stream.abort()
        except USER_FAILURES as error:
            # The stream may never call `connection_lost`.
            self._loop.call_soon(
                self.connection_lost, error if isinstance(error, Exception) else None
            )

    def close(self) -> None:
        """End the connection after its write buffer is sent."""
        if self.cause is None:
            self.is_closed_here = True
            self.cause = ConnectionLost(f"the connection to {self.where} was closed here")
            try:
                self._stream.close()
            except USER_FAILURES as error:
                _end_by_stream(self, self._loop, "close", error)

    @property
    def stream(self) -> Stream:
        """Return the stream of the connection."""
        stream: Stream = self._stream
        return stream

    @property
    def has_unsent(self) -> bool:
        """Return True if the write buffer of the connection, which is not lost, has unsent bytes."""
        if self.is_lost:
            return False
        try:
            return self._stream.get_write_buffer_size() > 0
        except USER_FAILURES as error:
            _end_by_stream(self, self._loop, "get_write_buffer_size", error)
            return False

    async def gone(self) -> None:
        """Wait until the connection is lost. After `close`, its write buffer is sent by then. Cancellation changes no state."""
        await self._gone.wait()

    def extend(self, seconds: float) -> None:
        """Extend the deadlines of the unanswered requests by `seconds`, for which the broker does not read (NET-14)."""
        self.muted_until = max(self.muted_until, self._loop.time()) + seconds
        self.in_flight_requests.extend(seconds)

    def _put(self, key: ApiKey, version: int, body: Sequence[Buffer]) -> None:
        self.used_at = self._loop.time()
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_LIMIT
        request = encode_request(key, version, self._correlation_id, self._client_id, body)
        try:
            self._write(request)
        # A drain that calls this has to continue.
        except USER_FAILURES as error:
            _end_by_stream(self, self._loop, "writelines", error)
        if self._traffic is not None:
            self._traffic.sent(self.used_at, sum(map(len, request)))

    def _on_frame(self, frame: bytes) -> None:
        if self.cause is not None:
            return
        requests = self.in_flight_requests.requests
        if not requests:
            raise ProtocolError(f"{self.where} sent an answer that nobody asked for")
        request = requests[0]
        correlation_id, offset = decode_response(request.key, request.version, frame)
        if correlation_id != request.correlation_id:
            raise ProtocolError(
                f"{self.where} answered request {correlation_id}, but {request.correlation_id} is the oldest"
            )
        self.close_hint = ""
        self.used_at = self._loop.time()
        if self._traffic is not None:
            self._traffic.answered(self.used_at, len(frame))
        answer = _new_tuple(Answer, (request.key, request.version, frame, offset, self.used_at))
        requests.popleft()
        self._call(request.on_answer, answer)

    def _call(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            callback(argument)
        # the answer's body does not decode, and the rest of its content is lost with the connection
        except ProtocolError as error:
            self.abort(error)
        except Exception as error:
            self._loop.call_exception_handler(
                {
                    "message": f"A bug: an answer of {self.where} could not be taken in",
                    "exception": error,
                }
            )

    # Deadlines

    def _arm(self, deadline: float) -> None:
        """Arm the timer for `deadline`, which is earlier than the one that it is armed for."""
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = deadline
        self._timer = self._loop.call_at(deadline, self._step, self._on_timer)

    def _on_timer(self) -> None:
        """Judge the requests two event-loop iterations later.

        A callback that blocks the loop past a deadline delays the answer too, and in these iterations the loop reads the socket.
        """
        # No other timer is armed until `_judge` has run.
        self._armed_for = -math.inf
        self._timer = self._loop.call_soon(self._step, self._on_next_iteration, self._loop.time())

    def _on_next_iteration(self, now: float) -> None:
        self._timer = self._loop.call_soon(self._step, self._judge, now)

    def _judge(self, now: float) -> None:
        """End the connection if a request passed its deadline by `now`, the time at which the timer fired."""
        self._timer = None
        self._armed_for = math.inf
        if not self.in_flight_requests:
            return
        first = self.in_flight_requests.first_to_expire
        if first.deadline > now:
            self._arm(first.deadline)
        else:
            self.abort(
                RequestTimedOut(
                    f"{self.where} did not answer {NAMES[first.key]} in time; the connection was closed"
                )
            )

    def _on_idle(self) -> None:
        self._idle_timer = None
        if self.cause is not None:
            return
        now = self._loop.time()
        # an authentication is no use of the connection, and is soon over
        if self.held is not None:
            self._idle_timer = self._loop.call_at(now + _HELD, self._step, self._on_idle)
            return
        idle_at = now if self.in_flight_requests or self._unanswered else self.used_at
        if now < idle_at + self._max_idle:
            self._idle_timer = self._loop.call_at(
                idle_at + self._max_idle, self._step, self._on_idle
            )
            return
        self.close()


def _end_by_stream(
    connection: Connection, loop: asyncio.AbstractEventLoop, method: str, error: BaseException
) -> None:
    """End a connection, because a method of its stream raised: the stream of a user's dialer may raise anything."""
    if connection.cause is None:
        told = f": {error}" if str(error) else ""
        connection.cause = ConnectionLost(
            f"{connection.where}: `{method}` of the connection's stream raised {type(error).__name__}{told}"
        )
        connection.cause.__cause__ = error
    # The end of the connection fails its requests. A request that is being written is one of them by then.
    # In a loop that is closed none will be answered, nor does anything wait.
    if not loop.is_closed():
        loop.call_soon(connection.abort, connection.cause)
