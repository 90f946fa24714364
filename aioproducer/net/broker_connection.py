"""One lane of a node: a connection that is wanted, being made, or standing.

1. A lane has a task of its own only while its connection is being made: one that hangs holds up no other.
2. Each failure is followed by a pause that grows (KIP-144), and gives the next attempt more time (KIP-601); both begin anew only
   when a connection is ready to use. One that stands for less than the first pause is not made again before that is over.
3. Who waits for the connection learns of each failure at once, and may ask another node.
4. A broker that closes instead of answering our ApiVersions twice is asked in the oldest form the third time: some old ones do so.

Knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import ConnectionLost, KafkaError, TransportError
from aioproducer.net.connection import Connection
from aioproducer.net.handshake import negotiate_versions
from aioproducer.net.name_resolution import describe_lookups
from aioproducer.net.observer import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioproducer.core.backoff import Backoff
    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.interfaces import Dialer, Resolver, Stream
    from aioproducer.net.addresses import Addresses
    from aioproducer.net.observer import Observer

__all__ = ["BrokerConnection", "NetSettings"]

_TRIES: Final = 3  # of a handshake, of which the last is made in the oldest form


class NetSettings(NamedTuple):
    """What connections need to know; seconds.

    Attributes:
        setup: how long a connection may take to stand, growing with its failures.
        reconnect: pauses between attempts.
        max_idle: how long a connection may be unused; 0: for ever.
        canonical_bootstrap: whether a bootstrap address stands for the canonical names behind it.
        rebootstraps: whether to begin again at the bootstrap addresses when no known broker can be reached.
        observer: watches them.
    """

    client_id: str
    software_version: str
    dialer: Dialer
    resolver: Resolver
    chance: Callable[[], float]
    max_in_flight: int
    request_timeout: float
    setup: Backoff
    reconnect: Backoff
    max_idle: float
    canonical_bootstrap: bool
    rebootstraps: bool
    observer: Observer = UNSEEN


class BrokerConnection:
    """A connection to one broker, made when it is wanted.

    Args:
        label: what it is for.
        addresses: of the broker's host; shared with its other lanes.
        spawn: starts a task that the producer's supervisor owns.
        on_change: it stands, is writable again, was lost, or may be tried again after a failure.
        on_throttle: the broker wants to be left alone for so many milliseconds.

    Attributes:
        connection: that which stands, or still closes; else None.
        failures: attempts in a row that failed.
        last_error: of the latest of them.
        tried_at: when the latest attempt began, in the loop's time; 0: never.
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
        self._on_throttle = on_throttle
        self._loop = asyncio.get_running_loop()
        self._where = f"{broker.host}:{broker.port}"
        self._waiting: list[asyncio.Future[Connection]] = []
        self._alive: dict[Connection, None] = {}
        self._is_dialling = False
        self._is_left = False
        self._closing = asyncio.Event()
        self._timer: asyncio.Timeout | None = None  # of the step at hand
        self._stood_at = 0.0
        self._not_before = 0.0
        self._closings = 0  # of handshakes in a row

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent."""
        return self.connection is not None and self.connection.is_usable

    @property
    def is_pausing(self) -> bool:
        """Whether it failed, and will not be tried for a while."""
        return self.connection is None and self._loop.time() < self._not_before

    @property
    def _is_closed(self) -> bool:
        return self._is_left or self._closing.is_set()

    @property
    def is_dialling(self) -> bool:
        """Whether the connection is being made."""
        return self._is_dialling

    @property
    def unsent(self) -> list[Connection]:
        """Connections that still write."""
        return [connection for connection in self._alive if connection.has_unsent]

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return 0 if self.connection is None else self.connection.in_flight

    def want(self) -> None:
        """See to it that the connection stands, sooner or later."""
        if not (self._is_dialling or self._is_closed or self.connection is not None):
            self._is_dialling = True
            self._spawn(self._stand(), f"node {self._broker.node_id} {self._where}, {self._label}")

    async def connected(self, patience: float) -> Connection:
        """The connection, once it stands.

        Raises:
            TransportError: it could not be made, or not within `patience` seconds; it goes on being made.
        """
        if self.connection is not None and self.connection.is_usable:
            return self.connection
        if self._is_closed:
            raise ConnectionLost(f"{self._where} is no longer a broker of this cluster")
        future: asyncio.Future[Connection] = self._loop.create_future()
        self._waiting.append(future)
        self.want()
        try:
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError as error:
            if isinstance(error, TransportError):
                raise
            raise ConnectionLost(f"{self._where}: no connection within {patience:g} s yet") from error

    # The task

    async def _stand(self) -> None:
        """Make the connection; after a failure, pause, and try again if somebody asked meanwhile."""
        try:
            await self._pause()
            while not self._is_closed and (failure := await self._try()) is not None:
                if self._loop.is_closed():  # the collector ends this coroutine, and the dialer took that for a failure
                    return
                self._fail(failure)
                await self._pause()
                if not self._waiting:
                    break
        finally:
            self._is_dialling = False
        if not self._is_closed:
            self._on_change()

    async def _pause(self) -> None:
        if (left := self._not_before - self._loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._closing.wait()

    async def _try(self) -> TransportError | None:
        """One attempt; why it failed, or None."""
        self.tried_at = self._loop.time()
        try:
            connection = await self._dial_any()
        except Exception as error:  # noqa: BLE001  (a resolver or dialer of the user's may raise anything: no broker is worth the producer)
            return self._explained(error)
        finally:
            self._timer = None
        if self._is_closed:  # while it dialled; its id may be another node's now
            self._drop(connection)
            return ConnectionLost(f"{self._where}: the node was closed")
        if not connection.is_usable:
            return ConnectionLost(f"{self._where}: the connection ended at once")
        self.failures = 0
        self.last_error = None
        self._stood_at = self._loop.time()
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

    # Dialling

    async def _dial_any(self) -> Connection:
        """Each address in turn while they refuse; one that hangs, or speaks strangely, ends the attempt, and another is next."""
        patience = self._settings.setup.after(self.failures + 1, self._settings.chance())
        reasons: list[str] = []
        for address in await self._resolve(patience):
            where = self._where if address == self._broker.host else f"{self._where} ({address})"
            try:
                return await self._dial(address, where, patience)
            except KafkaError as error:
                self._addresses.failed(address)
                reasons.append(str(error) if str(error).startswith(where) else f"{where}: {error}")
                raise ConnectionLost("; ".join(reasons)) from error
            except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
                self._addresses.failed(address)
                reasons.append(f"{where}: {error or type(error).__name__}")
                cause = error
        raise ConnectionLost("; ".join(reasons)) from cause

    async def _resolve(self, patience: float) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(patience) as timer:
                self._timer = timer
                return tuple(await self._addresses.to_try())
        except TimeoutError as error:
            if not timer.expired():
                raise
            why = describe_lookups(self._broker.host)
            raise ConnectionLost(f"{self._where}: the name was not resolved within {patience:g} s{why and ': '}{why}") from error

    async def _dial(self, address: str, where: str, patience: float) -> Connection:
        settings = self._settings
        traffic = settings.observer.traffic(self._broker.node_id)
        connection = Connection(where, settings.client_id, self._on_lost, self._on_change, max_idle=settings.max_idle, traffic=traffic)
        try:
            async with asyncio.timeout(patience) as timer:
                self._timer = timer
                await settings.dialer.dial(address, self._broker.port, lambda: connection)
                self._alive[connection] = None
                await self._shake_hands(connection)
        except TimeoutError as error:
            self._drop(connection)
            if not timer.expired():
                raise
            raise ConnectionLost(f"{where}: no usable connection within {patience:g} s") from error
        except BaseException:
            self._drop(connection)
            raise
        return connection

    async def _shake_hands(self, connection: Connection) -> None:
        settings = self._settings
        is_last = self._closings % _TRIES == _TRIES - 1
        try:
            throttle = await negotiate_versions(connection, settings.request_timeout, settings.software_version, in_oldest_form=is_last)
        except ConnectionLost:
            self._closings += 1
            raise
        if not is_last:
            self._closings = 0
        self._on_throttle(throttle)

    # The end

    def _drop(self, connection: Connection) -> None:
        if connection in self._alive:
            connection.abort(ConnectionLost(f"{self._where}: the connection was given up"))

    def _on_lost(self, connection: Connection) -> None:
        self._alive.pop(connection, None)
        if self.connection is not connection:
            return
        self.connection = None
        self._settings.observer.lost(self._broker, self._label, connection.cause)
        self._addresses.forget()
        self._not_before = self._stood_at + self._settings.reconnect.after(1, self._settings.chance())
        if self._waiting:  # since it began to close
            self.want()
        self._on_change()

    def distrust(self, cause: TransportError) -> None:
        """What came over the connection is not Kafka's: it ends now, and the next who asks has a new one."""
        if self.connection is not None:
            self.connection.abort(cause)

    def close(self) -> None:
        """Close it once what is written has left; what is in flight fails, and who waits is told."""
        self._closing.set()
        if self._timer is not None and not self._timer.expired():
            self._timer.reschedule(self._loop.time())
        for future in self._take_waiting():
            future.set_exception(ConnectionLost(f"{self._where}: the node was closed"))
        for connection in tuple(self._alive):
            connection.close()

    def leave(self) -> list[Stream]:
        """Make no connection from now on, and touch none: the loop belongs to a parent process, or is closed. Gives those that there are."""
        self._is_left = True
        return [connection.stream for connection in self._alive]

    def abort(self) -> None:
        """Close it at once, whatever is still to be written."""
        self.close()
        for connection in tuple(self._alive):
            connection.abort(ConnectionLost(f"{self._where}: the producer was stopped"))
