"""One of a node's connections to its broker: attempts to make it, pauses between them, closing.

1. A `BrokerConnection` has one task, `run`, from the first request for its connection until it is closed. So an attempt that hangs delays
   no other connection, and a broker that is not needed has no task.
2. A growing pause follows each failure (KIP-144), and the next attempt gets more time (KIP-601). Both start over only when a connection
   is ready to use. A connection that is lost sooner than the first pause is not made again before that pause is over.
3. A call that waits for the connection fails at each failed attempt, so its caller can ask another node.
4. The task also renews the connection's session before it ends (KIP-368). Requests in flight are answered first, as a broker answers in
   order; new ones are held until the session is renewed. A broker that refuses a renewal gets a new connection at once.
5. While brokers refuse the credentials, all connections of the producer share one backoff, so that no account is locked (`LoginBackoff`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, cast

from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionLost,
    CredentialsRefused,
    RequestTimedOut,
    TokenUnavailable,
    TransportError,
)
from aioproducer.interfaces import is_cancelled
from aioproducer.net.connection_setup import ConnectionSetup

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.interfaces import Stream
    from aioproducer.net.cluster import BrokerNode
    from aioproducer.net.connection import Connection
    from aioproducer.net.tls import TlsFacts, TlsStream
    from aioproducer.net.tls_contexts import TlsContexts

# Seconds until a renewal is tried again after its credentials could not be read.
_RENEWAL_PAUSE: Final = 1.0
# Seconds: while the pause of refused logins is longer, requests for any broker go to others.
_SHORT: Final = 1.0
# Seconds of the pause after a first refusal, which grows with each one, and of the longest pause: six dials in 12 s, and three addresses within
# 1.5 s, where a broker answers a refusal after 0.3 s.
_FIRST_PAUSE: Final = 0.14
_GROWTH: Final = 3.0
_LONGEST_PAUSE: Final = 30.0
_MOST_STEPS: Final = 6


class LoginBackoff:
    """Is the backoff of all connections of one producer while brokers refuse its credentials. A broker is named by its host:port.

    1. After a refusal, attempts are spaced by a pause that grows to 30 s, whichever broker they are for. The first broker that lets this
       client in ends that.
    2. Brokers that let this client in are dialled without a pause, while another one refuses: it may not know the user yet.
    3. A broker that let this client in and refuses it now puts the credentials in doubt for all, and so does a refused renewal: the principal
       of the credentials may have changed, which only a renewal refuses. The first attempt after that is made at once.
    """

    def __init__(self) -> None:
        self._is_doubted = False
        self._refusals = 0
        self._refused_at = 0.0
        self._not_before = 0.0
        # Brokers that let this client in since the credentials were last in doubt.
        self._let_in: set[str] = set()
        # Set, and replaced, at each verdict.
        self._verdict = asyncio.Event()

    def delay(self, where: str, now: float) -> float:
        """Return the seconds until a broker may be dialled; 0: now."""
        return (
            max(self._not_before - now, 0.0)
            if self._is_doubted and where not in self._let_in
            else 0.0
        )

    async def wait(self, where: str, chance: Callable[[], float]) -> None:
        """Wait until a broker may be dialled. `chance` returns a random number in [0, 1)."""
        loop = asyncio.get_running_loop()
        while (delay := self.delay(where, loop.time())) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._verdict.wait()
        # the others wait for the verdict, but not for a broker that does not answer
        if self._is_doubted and where not in self._let_in:
            self._not_before = loop.time() + max(_SHORT, self._pause(chance()))

    def let_in(self, where: str) -> None:
        """Note that a broker let this client in, by a new connection or a renewal."""
        if where not in self._let_in:
            self._let_in.add(where)
            self._is_doubted = False
            self._refusals = 0
            self._tell()

    def refused(self, where: str, began_at: float, now: float, chance: float) -> None:
        """Note that a broker refused the credentials of a new connection, whose attempt began at `began_at`."""
        if where in self._let_in:
            self._let_in.clear()
        self._is_doubted = True
        # Of attempts that were under way together, one counts: ten brokers would make the pause 30 s at once.
        if began_at >= self._refused_at:
            self._refusals += 1
            self._refused_at = now
            self._not_before = now + self._pause(chance)
        self._tell()

    def _tell(self) -> None:
        self._verdict.set()
        self._verdict = asyncio.Event()

    def _pause(self, chance: float) -> float:
        pause = _FIRST_PAUSE * _GROWTH ** min(max(self._refusals - 1, 0), _MOST_STEPS)
        return min(_LONGEST_PAUSE, pause) * (0.8 + 0.4 * chance)

    def renewal_refused(self, now: float) -> None:
        """Note that a broker, which had let this client in, refused to renew a session."""
        self._let_in.clear()
        if not self._is_doubted:
            self._is_doubted = True
            self._not_before = now


class BrokerConnection:
    """Makes a connection to one broker on demand, and holds it.

    Args:
        label: "produce" or "control", for task names and observer events.

    Attributes:
        connection: the established connection, which may be closing; None if there is none.
        failures: consecutive attempts that failed.
        refusals: those of them in which this client and the broker did not accept each other.
        last_error: error of the latest failed attempt, or of a refused renewal, or why an attempt has no token; None after a success.
        tried_at: start of the latest attempt, in the loop's time; 0 before the first.
    """

    def __init__(self, label: str, node: BrokerNode) -> None:
        self.connection: Connection | None = None
        self.failures: int = 0
        self.refusals: int = 0
        self.last_error: TransportError | None = None
        self.tried_at: float = 0.0
        self.label = label
        self.node = node
        self._broker = node.broker
        self._settings = node.settings
        self._setup = ConnectionSetup(self)
        self._loop = asyncio.get_running_loop()
        self._where = node.where
        self._waiting: list[asyncio.Future[Connection]] = []
        # Set from the request for a connection until it is ready, or until an attempt failed and its pause is over.
        self._requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        # The connection was lost, and not closed here, since the latest request for it.
        self._was_lost = False
        self._connected_at = 0.0
        # The next attempt begins no sooner.
        self._not_before = 0.0
        self._backoff = None if node.settings.security is None else node.settings.security.backoff
        # True during an attempt, which waits for no backoff.
        self._is_attempting = False
        # The time at which the session of the connection is renewed; None: never.
        self._renew_at: float | None = None

    def delay(self) -> str:
        """Return why the attempt that runs has no address yet, for an error's text; empty if it has addresses, or if none runs."""
        return self._setup.delay()

    @property
    def is_usable(self) -> bool:
        """Return True if a request may be sent."""
        return self.connection is not None and self.connection.is_usable

    @property
    def is_pausing(self) -> bool:
        """Return True if the pause after a failure or a loss is not over, or that after refused logins is long."""
        if self.connection is not None or self._is_attempting:
            return False
        now = self._loop.time()
        return now < self._not_before or (
            self._backoff is not None and self._backoff.delay(self._where, now) > _SHORT
        )

    @property
    def is_dialling(self) -> bool:
        """Return True while the task makes the connection."""
        return self._requested.is_set()

    @property
    def is_renewing(self) -> bool:
        """Return True while the session is renewed, and requests are held."""
        return self.connection is not None and self.connection.held is not None

    @property
    def unsent(self) -> list[Connection]:
        """Return the connections with unsent bytes in their write buffers."""
        return [connection for connection in self._setup.alive if connection.has_unsent]

    @property
    def tls(self) -> TlsFacts | None:
        """Return what was agreed on with the broker by TLS; None: there is no connection, or it is not encrypted."""
        security = self._settings.security
        if self.connection is None or security is None or security.tls is None:
            return None
        return cast("TlsStream", self.connection.stream).facts

    @property
    def in_flight(self) -> int:
        """Return the number of unanswered requests."""
        return 0 if self.connection is None else self.connection.in_flight

    def request_connection(self) -> bool:
        """Let the task make the connection, unless there is one, or it is being made, or this object is closed.

        Returns True if the connection that this one replaces was lost: the broker may be at another address, or lead no partition.
        """
        if self.connection is not None or self._is_closed or self._requested.is_set():
            return False
        self._requested.set()
        if self._task is None:
            self.node.spawn(self.run(), f"node {self._broker.name} {self._where}, {self.label}")
        was_lost, self._was_lost = self._was_lost, False
        return was_lost

    async def connected(self, patience: float) -> Connection:
        """Return the connection when it is usable and not held; make it if necessary.

        Raises:
            TransportError: the attempt failed, or did not end within `patience` seconds; the task continues.
        """
        if (
            self.connection is not None
            and self.connection.is_usable
            and self.connection.held is None
        ):
            return self.connection
        if self._is_closed:
            raise ConnectionLost(f"{self._where} is no longer a broker of this cluster")
        future: asyncio.Future[Connection] = self._loop.create_future()
        self._waiting.append(future)
        self.request_connection()
        try:
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError as error:
            if isinstance(error, TransportError):
                raise
            refused = self.last_error if isinstance(self.last_error, AuthenticationFailed) else None
            why = _why(refused, self.delay())
            raise ConnectionLost(
                f"{self._where}: no connection within {round(patience, 3):g} s yet{why}"
            ) from (refused or error)

    # The task

    async def run(self) -> None:
        """Make the connection each time that it is requested, and renew its session, until this object is closed. The body of the task."""
        self._task = asyncio.current_task()
        try:
            while not self._is_closed:
                await self._wait_for_request()
                await self._pause()
                failure = await self._try()
                # A closed loop: the garbage collector closes this coroutine, and the dialer reported that as a failure.
                if self._is_closed or self._loop.is_closed():
                    return
                if failure is not None:
                    self._fail(failure)
                    await self._pause()
                    # The next attempt begins at once if a call of `connected` waits for it.
                    if self._waiting:
                        continue
                self._requested.clear()
                self.node.changed()
        except asyncio.CancelledError:
            # `close` cancels the task, too.
            if not self._is_closed:
                raise

    async def _wait_for_request(self) -> None:
        """Wait until a connection is requested. Meanwhile renew the session of the one that stands, each time that it is due."""
        while not self._requested.is_set():
            try:
                async with asyncio.timeout_at(self._renew_at):
                    await self._requested.wait()
            except TimeoutError:
                await self._renew()

    async def _pause(self) -> None:
        if (left := self._not_before - self._loop.time()) > 0 and not self._is_closed:
            await asyncio.sleep(left)

    async def _try(self) -> TransportError | None:
        """Make one attempt. Returns the error, or None after a success."""
        try:
            connection = await self._attempt()
        # A resolver or dialer of the user's may raise anything: no broker is worth the producer.
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled():
                raise
            explained = _explained(error, self._broker)
            if _is_refusal(explained):
                self._settings.observer.authentication_failed(
                    self._broker, self.label, explained, is_renewal=False
                )
            return explained
        # A dialer of the user's may suppress the cancellation by `close`. The node's id may belong to another node now.
        if self._is_closed:
            self._setup.drop(connection)
            return ConnectionLost(f"{self._where}: the node was closed")
        if not connection.is_usable:
            return _explained(
                connection.cause or ConnectionLost(f"{self._where}: the connection ended at once"),
                self._broker,
            )
        self.failures = self.refusals = 0
        self.last_error = None
        self._connected_at = self._loop.time()
        self.connection = connection
        self._settings.observer.connected(self._broker, self.label)
        if self._settings.security is not None:
            self._begin_session(connection, self._settings.security.tls, is_renewal=False)
        for future in self._take_waiting():
            future.set_result(connection)
        return None

    async def _attempt(self) -> Connection:
        """Wait until the credentials may be tried, and make one attempt."""
        security, backoff, loop = self._settings.security, self._backoff, self._loop
        absence = None if security is None else security.absence
        if absence is not None:
            # the attempt waits for the next fetch of a token, which may be 10 s away
            self.last_error = _explained(absence, self._broker)
        if backoff is not None:
            await backoff.wait(self._where, self._settings.chance)
        self.tried_at = loop.time()
        self._is_attempting = True
        try:
            connection = await self._setup.attempt(self.failures)
        except CredentialsRefused:
            if backoff is not None:
                backoff.refused(self._where, self.tried_at, loop.time(), self._settings.chance())
            raise
        finally:
            self._is_attempting = False
        if backoff is not None:
            backoff.let_in(self._where)
        return connection

    def _fail(self, cause: TransportError) -> None:
        self.failures += 1
        self.refusals += _is_refusal(cause)
        self.last_error = cause
        self._settings.observer.failed(self._broker, self.label, cause, self.failures)
        self._not_before = self._loop.time() + self._settings.reconnect.after(
            self.failures, self._settings.chance()
        )
        for future in self._take_waiting():
            future.set_exception(cause)

    def _take_waiting(self) -> list[asyncio.Future[Connection]]:
        waiting, self._waiting = self._waiting, []
        return [future for future in waiting if not future.done()]

    # The session

    def _begin_session(
        self, connection: Connection, tls: TlsContexts | None, *, is_renewal: bool
    ) -> None:
        """Note the session of an authenticated connection, and the encryption of a new one with `tls`."""
        if tls is not None and (facts := self.tls) is not None:
            self._settings.observer.encrypted(self._broker, facts, tls.certificate_ends_at)
        session = connection.session
        self._renew_at = session.renew_at(self._settings.chance()) if session is not None else None
        seconds, lifetime = (
            (session.authenticated_at - session.began_at, session.seconds)
            if session is not None
            else (0.0, 0.0)
        )
        self._settings.observer.authenticated(
            self._broker, self.label, seconds, lifetime, is_renewal=is_renewal
        )

    async def _renew(self) -> None:
        """Renew the session of the connection. An error ends the connection, unless nothing was sent yet."""
        self._renew_at = None
        connection, security = self.connection, self._settings.security
        if (
            connection is None
            or not connection.is_usable
            or security is None
            or security.sasl is None
        ):
            return
        try:
            await security.sasl.authenticate(connection, self._settings.request_timeout)
        except Exception as error:
            # A lost connection has an error of its own, which may have come first.
            explained = _explained(error, self._broker)
            self._settings.observer.authentication_failed(
                self._broker, self.label, explained, is_renewal=True
            )
            if isinstance(error, CredentialsRefused):
                await self._on_renewal_refused(connection, explained)
            elif connection.held is not None:
                connection.abort(explained)
            elif connection.is_usable:
                self._renew_at = self._loop.time() + _RENEWAL_PAUSE
            return
        security.backoff.let_in(self._where)
        self._begin_session(connection, None, is_renewal=True)
        for future in self._take_waiting():
            future.set_result(connection)
        self.node.changed()

    async def _on_renewal_refused(self, connection: Connection, refusal: TransportError) -> None:
        """Make the connection anew at once: only a renewal refuses a principal that has changed."""
        self.last_error = refusal
        if self._backoff is not None:
            self._backoff.renewal_refused(self._loop.time())
        # The broker answered all that was sent before, so no bytes are dropped.
        connection.abort(refusal)
        await connection.gone()
        self.request_connection()

    # The end

    def on_lost(self, connection: Connection, address: str) -> None:
        """Note the end of a connection, after its requests have failed."""
        if self.connection is not connection:
            return
        self.connection = None
        self._settings.observer.lost(self._broker, self.label, connection.cause)
        self.node.addresses.forget("" if connection.is_closed_here else address)
        self._not_before = self._connected_at + self._settings.reconnect.after(
            1, self._settings.chance()
        )
        self._was_lost = not connection.is_closed_here
        if isinstance(connection.cause, RequestTimedOut):
            self.node.on_silence()
        # Calls of `connected` came while the connection was closing.
        if self._waiting:
            self.request_connection()
        self.node.changed()

    def distrust(self, cause: TransportError) -> None:
        """Abort the connection because its bytes are not Kafka's protocol. The next request makes a new connection."""
        if self.connection is not None:
            self.connection.abort(cause)

    def close(self) -> None:
        """Close the connection after its write buffer is sent, and end the task. Requests in flight and waiting calls of `connected` fail."""
        self._is_closed = True
        # The task itself may call this, and then ends by itself. With a cancellation that nothing awaits, it would end as cancelled.
        if self._task is not None and self._task is not asyncio.current_task(self._loop):
            self._task.cancel()
        for future in self._take_waiting():
            future.set_exception(ConnectionLost(f"{self._where}: the node was closed"))
        for connection in tuple(self._setup.alive):
            connection.close()

    def leave(self) -> list[Stream]:
        """Make and touch no connection from now on. Returns the streams that exist.

        The runtime calls this when the loop belongs to a parent process, or is closed.
        """
        self._is_closed = True
        return self._setup.streams

    def abort(self) -> None:
        """Close the connection at once, and drop its unsent bytes."""
        self.close()
        for connection in tuple(self._setup.alive):
            connection.abort(ConnectionLost(f"{self._where}: the producer was stopped"))


def _is_refusal(error: TransportError) -> bool:
    """Return True if this client and the broker did not accept each other. Without a token, no broker was asked."""
    return isinstance(error, AuthenticationFailed) and not isinstance(error, TokenUnavailable)


def _explained(error: BaseException, broker: Broker) -> TransportError:
    where = f"{broker.host}:{broker.port}"
    text = str(error) or type(error).__name__
    if not text.startswith(where):
        text = f"{where}: {text}"
    if broker.node_id >= 0:
        text += f" (the address that the cluster advertises for broker {broker.node_id})"
    if isinstance(error, AuthenticationFailed):
        explained: TransportError = type(error)(text, error.stage, error.mechanism, error.code)
    else:
        explained = ConnectionLost(text)
    explained.__cause__ = (
        error.__cause__ if type(error) is ConnectionLost and error.__cause__ is not None else error
    )
    return explained


def _why(refused: AuthenticationFailed | None, delay: str) -> str:
    """Return why there is no connection yet, for the end of an error's text; empty: that is not known."""
    if refused is not None:
        return f"; the latest attempt: {refused}"
    return f": {delay}" if delay else ""
