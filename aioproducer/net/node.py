"""One broker: two lanes to it, the slots of its produce lane, and the task that dials.

1. A broker answers one request of a connection at a time, so what must not wait behind records (metadata) has a lane of its own.
2. Slots bound the unanswered produce requests (`max_in_flight_requests_per_connection`); a drain takes one first, the answer gives it back.
3. The node's task owns dialling and backoff and wakes for those only. Draining is a function of the engine, not a task's loop.

Knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from aioproducer.errors import ConnectionLost, KafkaError, RequestTimedOut, TransportError
from aioproducer.net.connection import Answer, Connection
from aioproducer.net.handshake import negotiate_versions
from aioproducer.wire.api import NAMES, ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.backoff import Backoff
    from aioproducer.core.metadata import Broker
    from aioproducer.interfaces import Dialer

__all__ = ["Lane", "NetSettings", "Node", "Slots"]


class NetSettings(NamedTuple):
    """What connections need to know; seconds."""

    client_id: str
    software_version: str
    dialer: Dialer
    chance: Callable[[], float]
    max_in_flight: int
    request_timeout: float
    setup_timeout: float
    reconnect: Backoff


class Slots:
    """A semaphore for synchronous code: who drains takes a slot or lets it be; nobody waits for one."""

    __slots__ = ("_free",)

    def __init__(self, slots: int) -> None:
        self._free = slots

    def try_acquire(self) -> bool:
        """Take a slot if one is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        """Give one back."""
        self._free += 1


class Lane:
    """One connection of a node: wanted, standing, or failing."""

    __slots__ = ("connection", "is_wanted", "waiting")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.is_wanted = False
        self.waiting: list[asyncio.Future[Connection]] = []

    def stand(self, connection: Connection) -> None:
        """It is usable: who waited for it may go."""
        self.connection = connection
        for future in self._take_waiting():
            future.set_result(connection)

    def fail(self, cause: TransportError) -> None:
        """It could not be made: who waited is told why."""
        self.is_wanted = False
        for future in self._take_waiting():
            future.set_exception(cause)

    def _take_waiting(self) -> list[asyncio.Future[Connection]]:
        waiting, self.waiting = self.waiting, []
        return [future for future in waiting if not future.done()]


class Node:
    """One broker and the connections to it.

    Args:
        on_change: called when the produce lane stands, is writable again, or is lost, so that somebody drains.
    """

    def __init__(self, broker: Broker, settings: NetSettings, on_change: Callable[[Node], None]) -> None:
        self.broker = broker
        self.slots = Slots(settings.max_in_flight)
        self.produce = Lane()
        self.control = Lane()
        self.failures = 0
        self.last_error: KafkaError | None = None
        self._settings = settings
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._is_closed = False
        self._dialled: set[Connection] = set()

    @property
    def where(self) -> str:
        """host:port."""
        return f"{self.broker.host}:{self.broker.port}"

    @property
    def is_ready(self) -> bool:
        """Whether a produce request may be written now."""
        connection = self.produce.connection
        return connection is not None and not connection.is_paused and connection.is_usable

    @property
    def load(self) -> tuple[int, int]:
        """For choosing the least loaded node: failures in a row, then requests in flight."""
        return self.failures, sum(lane.connection.in_flight for lane in (self.produce, self.control) if lane.connection is not None)

    def want_produce(self) -> None:
        """See to it that the produce lane stands, sooner or later."""
        self._want(self.produce)

    async def call(self, key: ApiKey, message: Callable[[int], Any], *, timeout: float) -> Answer:
        """Ask over the control lane; `message(version)` makes the request.

        Raises:
            TransportError: no connection, or it ended first.
        """
        try:
            async with asyncio.timeout(timeout):
                connection = await self._control()
                version = connection.version_of(key)
                return await connection.ask(key, version, message(version), timeout)
        except TimeoutError as error:
            raise RequestTimedOut(f"{self.where} did not answer {NAMES[key]} within {timeout:g} s") from error

    async def _control(self) -> Connection:
        connection = self.control.connection
        if connection is not None and connection.is_usable:
            return connection
        if self._is_closed:
            raise ConnectionLost(f"{self.where} is no longer a broker of this cluster")
        future: asyncio.Future[Connection] = self._loop.create_future()
        self.control.waiting.append(future)
        self._want(self.control)
        return await future

    def _want(self, lane: Lane) -> None:
        if not lane.is_wanted:
            lane.is_wanted = True
            self._wake.set()

    async def run(self) -> None:
        """The node's task: dial what is wanted, back off from what fails, until closed."""
        try:
            while not self._is_closed:
                await self._wake.wait()
                self._wake.clear()
                for lane in (self.produce, self.control):
                    if lane.is_wanted and lane.connection is None and not self._is_closed:
                        await self._stand(lane)
        finally:
            if not self._loop.is_closed():  # else nobody stopped us: the loop's end was the connections' too
                self.close()

    async def _stand(self, lane: Lane) -> None:
        try:
            connection = await self._dial()
        except (OSError, KafkaError, ValueError) as error:  # ValueError: a host name that cannot be one
            self.failures += 1
            cause = error if isinstance(error, TransportError) else ConnectionLost(f"{self.where}: {error or type(error).__name__}")
            if cause is not error:
                cause.__cause__ = error
            self.last_error = cause
            lane.fail(cause)
            if self._is_closed:
                return
            await asyncio.sleep(self._settings.reconnect.after(self.failures, self._settings.chance()))
            self._on_change(self)
            return
        self.failures = 0
        self.last_error = None
        lane.stand(connection)
        if lane is self.produce:
            self._on_change(self)

    async def _dial(self) -> Connection:
        settings = self._settings
        connection = Connection(self.where, settings.client_id, self._on_lost, self._on_writable)
        try:
            async with asyncio.timeout(settings.setup_timeout):
                await settings.dialer.dial(self.broker.host, self.broker.port, lambda: connection)
                self._dialled.add(connection)
                await negotiate_versions(connection, settings.request_timeout, settings.software_version)
        except TimeoutError as error:
            self._drop(connection)
            raise ConnectionLost(f"{self.where}: no usable connection within {settings.setup_timeout:g} s") from error
        except BaseException:
            self._drop(connection)
            raise
        if self._is_closed:  # while it dialled; its id may be another node's now
            self._drop(connection)
            raise ConnectionLost(f"{self.where}: the node was closed")
        if not connection.is_usable:
            raise ConnectionLost(f"{self.where}: the connection ended at once")
        return connection

    def _drop(self, connection: Connection) -> None:
        if connection in self._dialled:
            connection.abort(ConnectionLost(f"{self.where}: the connection was given up"))

    def _on_lost(self, connection: Connection) -> None:
        self._dialled.discard(connection)
        for lane in (self.produce, self.control):
            if lane.connection is connection:
                lane.connection = None
                lane.is_wanted = False
                if lane.waiting:  # since it began to close
                    self._want(lane)
        self._on_change(self)

    def _on_writable(self) -> None:
        self._on_change(self)

    def close(self) -> None:
        """Close both lanes; what is in flight fails."""
        self._is_closed = True
        self._wake.set()
        for lane in (self.produce, self.control):
            lane.fail(ConnectionLost(f"{self.where}: the node was closed"))
        for connection in tuple(self._dialled):
            connection.close()

    def abort(self) -> None:
        """Close both lanes at once, whatever is still to be written."""
        self.close()
        for connection in tuple(self._dialled):
            connection.abort(ConnectionLost(f"{self.where}: the producer was stopped"))

    def __repr__(self) -> str:
        lanes = ", ".join(name for name in ("produce", "control") if getattr(self, name).connection is not None)
        return f"<Node {self.broker.node_id} {self.where}: {lanes or 'no connection'}, {self.failures} failures>"
