"""One broker: two lanes to it, and the slots of its produce lane.

1. A broker answers one request of a connection at a time, so what must not wait behind records (metadata) has a lane of its own.
2. Slots bound the unanswered produce requests (`max_in_flight_requests_per_connection`); a drain takes one first, the answer gives it back.
3. A broker that throttles is left alone until it wants to be asked again (KIP-219); the time counts for no request on its way.

Draining is a function of the engine, not a task's loop. Knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Any

from aioproducer.errors import RequestTimedOut, TransportError
from aioproducer.net.addresses import Addresses
from aioproducer.net.broker_connection import BrokerConnection
from aioproducer.wire.api import NAMES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.net.broker_connection import NetSettings
    from aioproducer.net.connection import Answer
    from aioproducer.wire.api import ApiKey

__all__ = ["BrokerNode", "InFlightRequests", "Standing"]


class InFlightRequests:
    """A semaphore for synchronous code: who drains takes a slot or lets it be; nobody waits for one."""

    __slots__ = ("_all", "_free")

    def __init__(self, slots: int) -> None:
        self._all = self._free = slots

    def try_acquire(self) -> bool:
        """Take a slot if one is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        """Give one back."""
        self._free += 1

    @property
    def taken(self) -> int:
        """How many are not free."""
        return self._all - self._free


class Standing(enum.IntEnum):
    """How good a node is to ask (NET-22); lower is better."""

    CONNECTED = 0
    ALIVE = 1  # its other lane stands
    UNTRIED = 2
    DIALLING = 3  # and not there within somebody's patience
    MUTED = 4  # the broker throttles
    PAUSING = 5  # after a failure


class BrokerNode:
    """One broker and the connections to it.

    Args:
        look_up: asks for the addresses of its host.
        spawn: starts a task that the producer's supervisor owns.
        on_change: called when a lane stands, is writable again, is lost, or may be tried again, so that somebody drains.
    """

    def __init__(
        self,
        broker: Broker,
        settings: NetSettings,
        look_up: Callable[[str], Awaitable[Sequence[str]]],
        spawn: Callable[[Coroutine[None, None, None], str], object],
        on_change: Callable[[BrokerNode], None],
    ) -> None:
        self.broker = broker
        self.slots = InFlightRequests(settings.max_in_flight)
        self.addresses = Addresses(broker.host, look_up)
        self._on_change = on_change
        self._observer = settings.observer
        self._loop = asyncio.get_running_loop()
        self._muted_until = 0.0
        self._unmute: asyncio.TimerHandle | None = None
        self._calm = asyncio.Event()
        self._calm.set()
        self.produce, self.control = (
            BrokerConnection(
                label,
                broker,
                self.addresses,
                settings,
                spawn=spawn,
                on_change=lambda: self._on_change(self),
                on_throttle=self.throttle,
            )
            for label in ("produce", "control")
        )

    @property
    def where(self) -> str:
        """host:port."""
        return f"{self.broker.host}:{self.broker.port}"

    @property
    def is_ready(self) -> bool:
        """Whether a produce request may be written now."""
        connection = self.produce.connection
        return connection is not None and not connection.is_paused and self._unmute is None and connection.is_usable

    @property
    def is_muted(self) -> bool:
        """Whether the broker wants to be left alone."""
        return self._unmute is not None

    @property
    def failures(self) -> int:
        """Attempts in a row to reach it that failed."""
        return max(self.produce.failures, self.control.failures)

    @property
    def last_error(self) -> TransportError | None:
        """Why the latest failed."""
        return self.produce.last_error or self.control.last_error

    @property
    def standing(self) -> Standing:
        """How good it is to ask over the control lane."""
        control = self.control
        if self._unmute is not None:
            return Standing.MUTED
        if control.is_usable:
            return Standing.CONNECTED
        if control.is_pausing:
            return Standing.PAUSING
        if self.produce.is_usable:
            return Standing.ALIVE
        return Standing.DIALLING if control.is_dialling else Standing.UNTRIED

    @property
    def load(self) -> tuple[Standing, int]:
        """For choosing the least loaded: its standing, and requests in flight."""
        return self.standing, self.produce.in_flight + self.control.in_flight

    @property
    def tried_at(self) -> float:
        """When a control connection that does not stand was tried last, in the loop's time; else 0."""
        return 0.0 if self.control.is_usable else self.control.tried_at

    def want_produce(self) -> None:
        """See to it that the produce lane stands, sooner or later."""
        self.produce.want()

    async def call(
        self, key: ApiKey, message: Callable[[int], Any], *, timeout: float, patience: float | None = None, newest: int | None = None
    ) -> Answer:
        """Ask over the control lane.

        Args:
            key: the request.
            message: makes it, given its version.
            timeout: seconds for the whole.
            patience: seconds to wait for a connection, if less.
            newest: the newest version of it that may be used, if not any.

        Raises:
            TransportError: no connection, or it ended first.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._calm.wait()
                connection = await self.control.connected(timeout if patience is None else patience)
                version = connection.version_of(key)
                version = version if newest is None else min(version, newest)
                return await connection.ask(key, version, message(version), timeout)
        except TimeoutError as error:
            if isinstance(error, TransportError):
                raise
            raise RequestTimedOut(f"{self.where} did not answer {NAMES[key]} within {timeout:g} s") from error

    def throttle(self, milliseconds: int) -> None:
        """The broker wants to be left alone for so long, from now on; a shorter time shortens no longer one."""
        now = self._loop.time()
        until = now + milliseconds / 1000
        longer = until - max(self._muted_until, now)
        if longer <= 0:
            return
        self._muted_until = until
        if self._unmute is not None:
            self._unmute.cancel()
        else:
            self._observer.throttled(self.broker, milliseconds)
        self._unmute = self._loop.call_at(until, self._on_unmuted)
        self._calm.clear()
        for broker_connection in (self.produce, self.control):
            if broker_connection.connection is not None:
                broker_connection.connection.extend(longer)

    def _on_unmuted(self) -> None:
        self._unmute = None
        self._calm.set()
        self._on_change(self)

    def close(self) -> None:
        """Close both lanes; what is in flight fails."""
        self._shut()
        self.produce.close()
        self.control.close()

    def abort(self) -> None:
        """Close both lanes at once, whatever is still to be written."""
        self._shut()
        self.produce.abort()
        self.control.abort()

    def _shut(self) -> None:
        if self._unmute is not None:
            self._unmute.cancel()
            self._unmute = None
        self._calm.set()

    def __repr__(self) -> str:
        broker_connections = ", ".join(name for name in ("produce", "control") if getattr(self, name).connection is not None)
        return f"<Node {self.broker.node_id} {self.where}: {broker_connections or 'no connection'}, {self.failures} failures>"
