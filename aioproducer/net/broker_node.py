"""One broker as a node: its produce connection, its control connection, and its throttle time.

1. A broker answers the requests of one connection one at a time. Metadata requests must not wait behind records, so they use the control
   connection.
2. A broker that throttles gets no request until its throttle time is over (KIP-219). The deadlines of requests in flight are extended by
   that time. A throttle time of more than five minutes counts as five: quotas ask for seconds, and a wrong one may say 24 days.
3. A NAT or a load balancer may drop a connection that is idle, without a word. So a request over a control connection that was idle for
   `_LONG_IDLE` seconds gets no more than `_DOUBTED` seconds; and when a request of one connection times out, the other one is closed if it
   is not in use.

A function of the engine drains the partition queues; no task here does.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConnectionLost, ProtocolError, RequestTimedOut, TransportError
from aioproducer.model import counted
from aioproducer.net.broker_connection import BrokerConnection
from aioproducer.net.dialer import Addresses
from aioproducer.wire.api import NAMES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.net.connection import Answer
    from aioproducer.net.settings import NetSettings
    from aioproducer.wire.api import ApiKey

__all__ = ["BrokerNode", "Standing"]

_LONGEST_THROTTLE: Final = 300_000  # milliseconds
# Seconds. Firewalls drop idle connections after some minutes, the strictest of them after one.
_LONG_IDLE: Final = 60.0
_DOUBTED: Final = 10.0
# Seconds of an attempt after which other brokers are asked, a little less than the `patience` of those that ask.
_LONG_DIAL: Final = 0.9


class Standing(enum.IntEnum):
    """Ranks a node for a control request (NET-22); a lower value is better."""

    CONNECTED = 0
    # the produce connection is usable
    ALIVE = 1
    UNTRIED = 2
    # the control connection is being made, and may have outlasted a caller's `patience`
    DIALLING = 3
    # the broker throttles
    MUTED = 4
    # the control connection failed a short time ago
    PAUSING = 5


class BrokerNode:
    """Holds the two connections to one broker, and the broker's throttle time.

    Args:
        look_up: returns the addresses of the broker's host.
        spawn: starts a task that the producer's supervisor owns.
        on_change: called when a connection is ready, writable again or lost, or may be tried again, so that the Sender can drain.
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
        self.addresses: Addresses = Addresses(broker.host, look_up)
        self.settings = settings
        self.spawn = spawn
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._muted_until = 0.0
        self._unmute: asyncio.TimerHandle | None = None
        self._unmuted = asyncio.Event()
        self._unmuted.set()
        self.produce: BrokerConnection = BrokerConnection("produce", self)
        self.control: BrokerConnection = BrokerConnection("control", self)

    @property
    def where(self) -> str:
        """Return the broker's address as host:port."""
        return f"{self.broker.host}:{self.broker.port}"

    @property
    def is_ready(self) -> bool:
        """Return True if a produce request may be sent now.

        The connection is usable and not held, and the write buffer and the slots have space.
        """
        connection = self.produce.connection
        return (
            connection is not None
            and self._unmute is None
            and connection.held is None
            and connection.is_usable
            and connection.in_flight_requests.can_send_more(is_written=not connection.is_paused)
        )

    @property
    def is_muted(self) -> bool:
        """Return True while the broker throttles this client."""
        return self._unmute is not None

    @property
    def failures(self) -> int:
        """Return the number of consecutive failed attempts of the connection that failed more often."""
        return max(self.produce.failures, self.control.failures)

    @property
    def last_error(self) -> TransportError | None:
        """Return the error of the latest failed attempt, the produce connection's first; None if neither has one."""
        return self.produce.last_error or self.control.last_error

    @property
    def standing(self) -> Standing:
        """Return the node's rank for a request over the control connection."""
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
    def is_out_of_reach(self) -> bool:
        """Return True if the control connection failed a short time ago, or is being made for long, and the produce connection is not usable.

        An attempt takes its whole time limit if the broker's address leads nowhere, as that of a pod that was replaced.
        """
        standing = self.standing
        is_late = standing is Standing.DIALLING and self._loop.time() - self.control.tried_at >= _LONG_DIAL
        return is_late or standing is Standing.PAUSING

    @property
    def load(self) -> tuple[Standing, int]:
        """Return the key by which the least loaded node is chosen: the rank, then the requests in flight."""
        return self.standing, self.produce.in_flight + self.control.in_flight

    @property
    def tried_at(self) -> float:
        """Return the loop's time of the latest attempt to make the control connection; 0 if that connection is usable."""
        return 0.0 if self.control.is_usable else self.control.tried_at

    async def call(
        self, key: ApiKey, message: Callable[[int], Any], *, timeout: float, patience: float | None = None, newest: int | None = None
    ) -> Answer:
        """Send a request over the control connection. Returns the answer.

        Args:
            key: the request's API key.
            message: makes the request's message for a version.
            timeout: seconds for the whole call.
            patience: seconds to wait for a connection; None: as long as `timeout`.
            newest: the newest version that may be used; None: any.

        Raises:
            TransportError: there is no connection, the connection ended before the answer, or the time is over.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._unmuted.wait()
                connection = await self.control.connected(timeout if patience is None else patience)
                version = connection.version_of(key)
                version = version if newest is None else min(version, newest)
                is_doubted = self._loop.time() - connection.used_at >= _LONG_IDLE
                return await connection.ask(key, version, message(version), min(timeout, _DOUBTED) if is_doubted else timeout)
        except TimeoutError as error:
            if isinstance(error, TransportError):
                raise
            raise RequestTimedOut(f"{self.where} did not answer {NAMES[key]} within {round(timeout, 3):g} s") from error

    def decode(self, answer: Answer) -> Any:
        """Return the message of an answer to `call`. The control connection ends if the bytes are not such a message.

        Raises:
            ProtocolError: they are not.
        """
        try:
            return answer.decode()
        except ProtocolError as error:
            self.control.distrust(error)
            raise

    def throttle(self, milliseconds: int) -> None:
        """Mute the node for `milliseconds` from now, at most five minutes. A time that ends earlier than the current one is ignored."""
        milliseconds = min(milliseconds, _LONGEST_THROTTLE)
        now = self._loop.time()
        until = now + milliseconds / 1000
        longer = until - max(self._muted_until, now)
        if longer <= 0:
            return
        self._muted_until = until
        if self._unmute is not None:
            self._unmute.cancel()
        else:
            self.settings.observer.throttled(self.broker, milliseconds)
        self._unmute = self._loop.call_at(until, self._on_unmuted)
        self._unmuted.clear()
        for broker_connection in (self.produce, self.control):
            if broker_connection.connection is not None:
                broker_connection.connection.extend(longer)

    def on_silence(self) -> None:
        """End the connections that are not in use. They may be dead, too, and each would cost a time-out."""
        for broker_connection in (self.produce, self.control):
            connection = broker_connection.connection
            if connection is not None and not (connection.in_flight or connection.has_unsent):
                connection.abort(ConnectionLost(f"{self.where}: the connection was given up, as another one to this broker is silent"))

    def _on_unmuted(self) -> None:
        self._unmute = None
        self._unmuted.set()
        self.changed()

    def changed(self) -> None:
        """Let the Sender drain: a connection is ready, writable again or lost, or may be tried again."""
        self._on_change(self)

    def close(self) -> None:
        """Close both connections after their write buffers are sent. Requests in flight fail."""
        self._shut()
        self.produce.close()
        self.control.close()

    def abort(self) -> None:
        """Close both connections at once, and drop their unsent bytes."""
        self._shut()
        self.produce.abort()
        self.control.abort()

    def _shut(self) -> None:
        if self._unmute is not None:
            self._unmute.cancel()
            self._unmute = None
        self._unmuted.set()

    def __repr__(self) -> str:
        broker_connections = ", ".join(name for name in ("produce", "control") if getattr(self, name).connection is not None)
        return f"<BrokerNode {self.broker.name} {self.where}: {broker_connections or 'no connection'}, {counted(self.failures, 'failure')}>"
