"""One of a node's connections to its broker: attempts to make it, pauses between them, closing.

1. A `BrokerConnection` has one task, `run`, from the first request for its connection until it is closed. So an attempt that hangs delays
   no other connection, and a broker that nobody needs has no task.
2. A growing pause follows each failure (KIP-144), and the next attempt gets more time (KIP-601). Both start over only when a connection
   is ready to use. A connection that is lost sooner than the first pause is not made again before that pause is over.
3. A call that waits for the connection fails at each failed attempt, so its caller can ask another node.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer.errors import AuthenticationFailed, ConnectionLost, TransportError
from aioproducer.net.connection_setup import ConnectionSetup
from aioproducer.net.tls import TlsStream

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.interfaces import Stream
    from aioproducer.net.addresses import Addresses
    from aioproducer.net.connection import Connection
    from aioproducer.net.settings import NetSettings
    from aioproducer.net.tls import TlsFacts

__all__ = ["BrokerConnection"]


class BrokerConnection:
    """Makes a connection to one broker on demand, and holds it.

    Args:
        label: names the use of the connection in task names and observer events.
        addresses: addresses of the broker's host; both connections of the node share them.
        spawn: starts a task that the producer's supervisor owns.
        on_change: called when the connection is ready, writable again or lost, or when a new attempt may begin after a failure.
        on_throttle: called with the milliseconds for which the broker throttles this client.

    Attributes:
        connection: the established connection, which may be closing; None if there is none.
        failures: consecutive attempts that failed.
        last_error: error of the latest failed attempt; None after a success.
        tried_at: start of the latest attempt, in the loop's time; 0 before the first.
    """

    def __init__(
        self,
        label: str,
        broker: Broker,
        addresses: Addresses,
        settings: NetSettings,
        *,
        spawn: Callable[[Coroutine[None, None, None], str], object],
        on_change: Callable[[], None],
        on_throttle: Callable[[int], None],
    ) -> None:
        self.connection: Connection | None = None
        self.failures = 0
        self.last_error: TransportError | None = None
        self.tried_at = 0.0
        self._label = label
        self._broker = broker
        self._addresses = addresses
        self._settings = settings
        self._spawn = spawn
        self._on_change = on_change
        self._setup = ConnectionSetup(broker, addresses, settings, on_lost=self._on_lost, on_change=on_change, on_throttle=on_throttle)
        self._loop = asyncio.get_running_loop()
        self._where = f"{broker.host}:{broker.port}"
        self._waiting: list[asyncio.Future[Connection]] = []
        # Set from the request for a connection until it is ready, or until an attempt failed and its pause is over.
        self._requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._connected_at = 0.0
        # The next attempt begins no sooner.
        self._not_before = 0.0

    @property
    def is_usable(self) -> bool:
        """Return True if a request may be sent."""
        return self.connection is not None and self.connection.is_usable

    @property
    def is_pausing(self) -> bool:
        """Return True if the pause after a failure or a loss is not over."""
        return self.connection is None and self._loop.time() < self._not_before

    @property
    def is_dialling(self) -> bool:
        """Return True while the task makes the connection."""
        return self._requested.is_set()

    @property
    def unsent(self) -> list[Connection]:
        """Return the connections with unsent bytes in their write buffers."""
        return [connection for connection in self._setup.alive if connection.has_unsent]

    @property
    def tls(self) -> TlsFacts | None:
        """Return what was agreed on with the broker by TLS; None: there is no connection, or it is not encrypted."""
        stream = None if self.connection is None else self.connection.stream
        return stream.facts if isinstance(stream, TlsStream) else None

    @property
    def in_flight(self) -> int:
        """Return the number of unanswered requests."""
        return 0 if self.connection is None else self.connection.in_flight

    def request_connection(self) -> None:
        """Let the task make the connection, unless there is one, or it is being made, or this object is closed."""
        if self.connection is not None or self._is_closed or self._requested.is_set():
            return
        self._requested.set()
        if self._task is None:
            self._spawn(self.run(), f"node {self._broker.node_id} {self._where}, {self._label}")

    async def connected(self, patience: float) -> Connection:
        """Return the connection when it is usable; make it if necessary.

        Raises:
            TransportError: the attempt failed, or did not end within `patience` seconds; the task continues.
        """
        if self.connection is not None and self.connection.is_usable:
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
            raise ConnectionLost(f"{self._where}: no connection within {patience:g} s yet") from error

    # The task

    async def run(self) -> None:
        """Make the connection each time that it is requested, until this object is closed. The body of the task."""
        self._task = asyncio.current_task()
        try:
            while not self._is_closed:
                await self._requested.wait()
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
                self._on_change()
        except asyncio.CancelledError:
            # `close` cancels the task, too.
            if not self._is_closed:
                raise

    async def _pause(self) -> None:
        if (left := self._not_before - self._loop.time()) > 0 and not self._is_closed:
            await asyncio.sleep(left)

    async def _try(self) -> TransportError | None:
        """Make one attempt. Returns the error, or None after a success."""
        self.tried_at = self._loop.time()
        try:
            connection = await self._setup.attempt(self.failures)
        except Exception as error:  # noqa: BLE001  (a resolver or dialer of the user's may raise anything: no broker is worth the producer)
            return self._explained(error)
        # A dialer of the user's may suppress the cancellation by `close`. The node's id may belong to another node now.
        if self._is_closed:
            self._setup.drop(connection)
            return ConnectionLost(f"{self._where}: the node was closed")
        if not connection.is_usable:
            return ConnectionLost(f"{self._where}: the connection ended at once")
        self.failures = 0
        self.last_error = None
        self._connected_at = self._loop.time()
        self.connection = connection
        self._settings.observer.connected(self._broker, self._label)
        for future in self._take_waiting():
            future.set_result(connection)
        return None

    def _explained(self, error: Exception) -> TransportError:
        text = str(error) or type(error).__name__
        if not text.startswith(self._where):
            text = f"{self._where}: {text}"
        if self._broker.node_id >= 0:
            text += f" (the address that the cluster advertises for broker {self._broker.node_id})"
        if isinstance(error, AuthenticationFailed):
            explained: TransportError = type(error)(text, error.stage, error.mechanism, error.code)
        else:
            explained = ConnectionLost(text)
        explained.__cause__ = error.__cause__ if type(error) is ConnectionLost and error.__cause__ is not None else error
        return explained

    def _fail(self, cause: TransportError) -> None:
        self.failures += 1
        self.last_error = cause
        self._settings.observer.failed(self._broker, self._label, cause, self.failures)
        self._not_before = self._loop.time() + self._settings.reconnect.after(self.failures, self._settings.chance())
        for future in self._take_waiting():
            future.set_exception(cause)

    def _take_waiting(self) -> list[asyncio.Future[Connection]]:
        waiting, self._waiting = self._waiting, []
        return [future for future in waiting if not future.done()]

    # The end

    def _on_lost(self, connection: Connection) -> None:
        if self.connection is not connection:
            return
        self.connection = None
        self._settings.observer.lost(self._broker, self._label, connection.cause)
        self._addresses.forget()
        self._not_before = self._connected_at + self._settings.reconnect.after(1, self._settings.chance())
        # Calls of `connected` came while the connection was closing.
        if self._waiting:
            self.request_connection()
        self._on_change()

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
