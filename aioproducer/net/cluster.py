"""The nodes of a cluster: bootstrap addresses, the brokers that metadata names, and the order to ask them in."""

from __future__ import annotations

import asyncio
import enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.errors import ConnectionLost, ProtocolError, RequestTimedOut, TransportError
from aioproducer.model import counted
from aioproducer.net.broker_connection import BrokerConnection
from aioproducer.net.dialer import Addresses, canonical
from aioproducer.wire.api import NAMES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from aioproducer.interfaces import Stream
    from aioproducer.net.connection import Answer
    from aioproducer.net.settings import NetSettings
    from aioproducer.wire.api import ApiKey


# One broker as a node: its produce connection, its control connection, and its throttle time.
#
# 1. A broker answers the requests of one connection one at a time. Metadata requests must not wait behind records, so they use the control
#    connection.
# 2. A broker that throttles gets no request until its throttle time is over (KIP-219). The deadlines of requests in flight are extended by
#    that time. A throttle time of more than five minutes counts as five: quotas ask for seconds, and a wrong one may say 24 days.
# 3. A NAT or a load balancer may drop a connection that is idle, without a word. So a request over a control connection that was idle for
#    `_LONG_IDLE` seconds gets no more than `_DOUBTED` seconds; and when a request of one connection times out, the other one is closed if it
#    is not in use.
#
# A function of the engine drains the partition queues; no task here does.


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
        is_late = (
            standing is Standing.DIALLING
            and self._loop.time() - self.control.tried_at >= _LONG_DIAL
        )
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
        self,
        key: ApiKey,
        message: Callable[[int], Any],
        *,
        timeout: float,
        patience: float | None = None,
        newest: int | None = None,
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
            BrokerError: the broker offers no such request.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._unmuted.wait()
                connection = await self.control.connected(timeout if patience is None else patience)
                version = connection.version_of(key)
                version = version if newest is None else min(version, newest)
                is_doubted = self._loop.time() - connection.used_at >= _LONG_IDLE
                return await connection.ask(
                    key,
                    version,
                    message(version),
                    min(timeout, _DOUBTED) if is_doubted else timeout,
                )
        except TimeoutError as error:
            if isinstance(error, TransportError):
                raise
            raise RequestTimedOut(
                f"{self.where} did not answer {NAMES[key]} within {round(timeout, 3):g} s"
            ) from error

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
        self._unmute = self._loop.call_at(until, self.settings.step, self._on_unmuted)
        self._unmuted.clear()
        for broker_connection in (self.produce, self.control):
            if broker_connection.connection is not None:
                broker_connection.connection.extend(longer)

    def on_silence(self) -> None:
        """End the connections that are not in use. They may be dead, too, and each would cost a time-out."""
        for broker_connection in (self.produce, self.control):
            connection = broker_connection.connection
            if connection is not None and not (connection.in_flight or connection.has_unsent):
                connection.abort(
                    ConnectionLost(
                        f"{self.where}: the connection was given up, as another one to this broker is silent"
                    )
                )

    def _on_unmuted(self) -> None:
        self._unmute = None
        self._unmuted.set()
        self.changed()

    def changed(self) -> None:
        """Let the Sender drain: a connection is ready, writable again or lost, or may be tried again."""
        self._on_change(self)

    def close(self, *, now: bool = False) -> None:
        """Close both connections after their write buffers are sent. Requests in flight fail. With `now`, unsent bytes are dropped."""
        if self._unmute is not None:
            self._unmute.cancel()
            self._unmute = None
        self._unmuted.set()
        for one in (self.produce, self.control):
            one.abort() if now else one.close()

    def __repr__(self) -> str:
        broker_connections = ", ".join(
            name for name in ("produce", "control") if getattr(self, name).connection is not None
        )
        return f"<BrokerNode {self.broker.name} {self.where}: {broker_connections or 'no connection'}, {counted(self.failures, 'failure')}>"


# Kafka uses -1 for "no broker". Bootstrap addresses have the ids below it, which never equal a broker's id (MET-12).
_FIRST_BOOTSTRAP_ID: Final = -2
# Nodes that `close_gradually` closes in one event-loop iteration. Each ends two connections and their tasks.
_MAX_CLOSED_PER_ITERATION: Final = 8
# Brokers out of reach, while no broker is connected, after which all seem to be gone: to try each of many brokers may take a second.
_ENOUGH: Final = 3


class Cluster:
    """Holds the nodes of the bootstrap addresses and of the cluster's brokers.

    Args:
        addresses: bootstrap addresses as host:port.
        spawn: starts a task that the producer's supervisor owns.
        on_change: called when a connection of a node is ready, writable again or lost, or may be tried again.

    Attributes:
        node: returns the node of a broker's id; None: metadata names no such broker.
    """

    def __init__(
        self,
        addresses: tuple[str, ...],
        settings: NetSettings,
        spawn: Callable[[Coroutine[None, None, None], str], object],
        on_change: Callable[[BrokerNode], None],
    ) -> None:
        self._settings = settings
        self._spawn = spawn
        self._on_change = on_change
        # Never replaced: `node` reads it.
        self._nodes: dict[int, BrokerNode] = {}
        self.node: Callable[[int], BrokerNode | None] = self._nodes.get
        self._addresses = addresses
        self._bootstrap: tuple[BrokerNode, ...] = ()
        self._turn = 0
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        look_up = (
            canonical(self._settings.resolver)
            if self._settings.canonical_bootstrap
            else self._settings.resolver.resolve
        )
        nodes = []
        for at, address in enumerate(self._addresses):
            host, _, port = address.rpartition(":")
            broker = Broker(_FIRST_BOOTSTRAP_ID - at, host.strip("[]"), int(port))
            nodes.append(BrokerNode(broker, self._settings, look_up, self._spawn, self._on_change))
        self._bootstrap = tuple(nodes)

    @property
    def bootstrap(self) -> tuple[BrokerNode, ...]:
        """Return the nodes of the bootstrap addresses."""
        return self._bootstrap

    @property
    def nodes(self) -> tuple[BrokerNode, ...]:
        """Return the nodes of the brokers that metadata names."""
        return tuple(self._nodes.values())

    @property
    def connections(self) -> list[BrokerConnection]:
        """Return both connections of each node, those of the bootstrap addresses last."""
        return [
            one
            for node in (*self._nodes.values(), *self._bootstrap)
            for one in (node.produce, node.control)
        ]

    def feature(self, name: str) -> int | None:
        """Return the level of a finalized feature (KIP-584); 0 if the cluster has not finalized it.

        The level comes from the newest features epoch among the usable connections. Returns None if no connection is usable.
        """
        told = [
            one.connection
            for one in self.connections
            if one.connection is not None and one.is_usable
        ]
        newest = max(told, key=attrgetter("features_epoch"), default=None)
        return None if newest is None else newest.features.get(name, 0)

    async def prepare(self) -> None:
        """Read the files of the TLS options, if there are any, before the first dial.

        Raises:
            ConfigError: a file cannot be used; the text names the option.
        """
        security = self._settings.security
        if security is not None and security.tls is not None:
            await security.tls.prepare()

    @property
    def has_no_token(self) -> bool:
        """Return True if the source of tokens has given none, and failed many times in a row."""
        security = self._settings.security
        return security is not None and security.tokens is not None and security.tokens.is_failing

    def update(self, brokers: Mapping[int, Broker]) -> None:
        """Replace the nodes by the brokers that metadata names. Closes the node of a removed broker, or of a changed address."""
        if self._is_closed:
            return
        for node_id in tuple(self._nodes):
            if self._is_outdated(node_id, brokers.get(node_id)):
                node = self._nodes.pop(node_id)
                self._settings.observer.gone(node.broker)
                node.close()
        for node_id, broker in brokers.items():
            if node_id not in self._nodes:
                self._nodes[node_id] = BrokerNode(
                    broker,
                    self._settings,
                    self._settings.resolver.resolve,
                    self._spawn,
                    self._on_change,
                )
        if self._nodes:
            self._leave_bootstrap()

    def _is_outdated(self, node_id: int, told: Broker | None) -> bool:
        """Return whether a node is there whose broker is gone, or has another address."""
        node = self._nodes.get(node_id)
        return node is not None and (told is None or told[:3] != node.broker[:3])

    def _leave_bootstrap(self) -> None:
        """Close the bootstrap connections that have no request in flight: with known brokers, nothing else needs them."""
        for node in self._bootstrap:
            connection = node.control.connection
            if connection is not None and not connection.in_flight:
                connection.close()

    def candidates(self) -> list[BrokerNode]:
        """Return the nodes to ask for metadata, the best first (NET-22). Nodes of equal rank alternate from call to call.

        The list leaves out nodes that pause after a failure, and nodes that are muted. The bootstrap nodes are added, before brokers that
        were not tried, only when the known brokers seem to be gone (KIP-899) and the settings allow it.
        """
        self._turn += 1
        nodes = list(self._nodes.values())
        added = (
            self._bootstrap
            if not nodes or (self._settings.rebootstraps and _seem_gone(nodes))
            else ()
        )
        nodes += added
        at = self._turn % len(nodes)
        orders = {
            node: (*node.load, node not in added, node.tried_at) for node in nodes[at:] + nodes[:at]
        }
        return sorted(
            (node for node, order in orders.items() if order[0] < Standing.MUTED),
            key=orders.__getitem__,
        )

    async def reach(self, patience: float) -> BrokerNode:
        """Return the best node to ask (`candidates`), after its control connection is made.

        A node that cannot be reached within `patience` seconds is followed by the next one. When all known brokers have failed, these are
        the bootstrap nodes.

        Raises:
            TransportError: the last of them cannot be reached, or there is none.
        """
        trouble: TransportError = ConnectionLost("no broker can be asked")
        tried: set[BrokerNode] = set()
        while (
            node := next((node for node in self.candidates() if node not in tried), None)
        ) is not None:
            tried.add(node)
            try:
                await node.control.connected(patience)
            except TransportError as error:
                trouble = error
            else:
                return node
        raise trouble

    def rebootstrap(self) -> bool:
        """Drop every broker, and start over from the bootstrap addresses, which are looked up again (KIP-1102).

        Returns False if the settings forbid it or the cluster is closed.
        """
        if not self._settings.rebootstraps or self._is_closed:
            return False
        self._settings.observer.forgotten()
        self.update({})
        for node in self._bootstrap:
            node.close()
        self._begin()
        return True

    async def sent(self, timeout: float) -> None:
        """Wait after a close until the produce connections have sent their write buffers, for at most `timeout` seconds.

        The bytes that are unsent after that time are dropped. Cancellation drops them at once.
        """
        unsent = [connection for node in self._nodes.values() for connection in node.produce.unsent]
        if not unsent:
            return
        try:
            async with asyncio.timeout(timeout):
                for connection in unsent:
                    await connection.gone()
        except TimeoutError:
            pass
        # a cancellation: no stream stays open
        except BaseException:
            self.close(now=True)
            raise
        await self.close_gradually(now=True)

    async def close_gradually(self, *, now: bool) -> None:
        """Close every node, a few in each event-loop iteration. With `now`, unsent bytes are dropped.

        To end thousands of connections and tasks in one iteration would hold the event loop. Cancellation closes the rest at once.
        """
        self._is_closed = True
        try:
            for number, node in enumerate((*self._nodes.values(), *self._bootstrap), 1):
                node.close(now=now)
                if not number % _MAX_CLOSED_PER_ITERATION:
                    await asyncio.sleep(0)
        # a cancellation: the rest is closed at once
        except BaseException:
            self.close(now=now)
            raise

    def close(self, *, now: bool) -> None:
        """Close every node in this event-loop iteration. With `now`, unsent bytes are dropped."""
        self._is_closed = True
        for node in (*self._nodes.values(), *self._bootstrap):
            node.close(now=now)

    def leave(self) -> list[Stream]:
        """Make and touch no connection from now on. Returns the streams that exist.

        The runtime calls this when the loop belongs to a parent process, or is closed.
        """
        self._is_closed = True
        return [stream for one in self.connections for stream in one.leave()]


def _seem_gone(nodes: Sequence[BrokerNode]) -> bool:
    """Return True if no broker is connected or throttles, and all brokers, or `_ENOUGH` of them, are out of reach."""
    if any(node.standing <= Standing.ALIVE or node.is_muted for node in nodes):
        return False
    return sum(node.is_out_of_reach for node in nodes) >= min(len(nodes), _ENOUGH)
