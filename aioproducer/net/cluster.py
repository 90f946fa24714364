"""The nodes of a cluster: bootstrap addresses, the brokers that metadata names, and the order to ask them in."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.errors import ConnectionLost, TransportError
from aioproducer.net.broker_node import BrokerNode, Standing
from aioproducer.net.dialer import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from aioproducer.interfaces import Stream
    from aioproducer.net.settings import NetSettings

__all__ = ["Cluster"]

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
        look_up = canonical(self._settings.resolver) if self._settings.canonical_bootstrap else self._settings.resolver.resolve
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

    def feature(self, name: str) -> int | None:
        """Return the level of a finalized feature (KIP-584); 0 if the cluster has not finalized it.

        The level comes from the newest features epoch among the usable connections. Returns None if no connection is usable.
        """
        broker_connections = [
            broker_connection for node in (*self._nodes.values(), *self._bootstrap) for broker_connection in (node.control, node.produce)
        ]
        told = [
            broker_connection.connection
            for broker_connection in broker_connections
            if broker_connection.connection is not None and broker_connection.is_usable
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
                self._nodes[node_id] = BrokerNode(broker, self._settings, self._settings.resolver.resolve, self._spawn, self._on_change)
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
        added = self._bootstrap if not nodes or (self._settings.rebootstraps and _seem_gone(nodes)) else ()
        nodes += added
        at = self._turn % len(nodes)
        orders = {node: (*node.load, node not in added, node.tried_at) for node in nodes[at:] + nodes[:at]}
        return sorted((node for node, order in orders.items() if order[0] < Standing.MUTED), key=orders.__getitem__)

    async def reach(self, patience: float) -> BrokerNode:
        """Return the best node to ask (`candidates`), after its control connection is made.

        A node that cannot be reached within `patience` seconds is followed by the next one. When all known brokers have failed, these are
        the bootstrap nodes.

        Raises:
            TransportError: the last of them cannot be reached, or there is none.
        """
        trouble: TransportError = ConnectionLost("no broker can be asked")
        tried: set[BrokerNode] = set()
        while (node := next((node for node in self.candidates() if node not in tried), None)) is not None:
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
                node.abort() if now else node.close()
                if not number % _MAX_CLOSED_PER_ITERATION:
                    await asyncio.sleep(0)
        except BaseException:
            self.close(now=now)
            raise

    def close(self, *, now: bool) -> None:
        """Close every node in this event-loop iteration. With `now`, unsent bytes are dropped."""
        self._is_closed = True
        for node in (*self._nodes.values(), *self._bootstrap):
            if now:
                node.abort()
            else:
                node.close()

    def leave(self) -> list[Stream]:
        """Make and touch no connection from now on. Returns the streams that exist.

        The runtime calls this when the loop belongs to a parent process, or is closed.
        """
        self._is_closed = True
        nodes = (*self._nodes.values(), *self._bootstrap)
        return [stream for node in nodes for broker_connection in (node.produce, node.control) for stream in broker_connection.leave()]


def _seem_gone(nodes: Sequence[BrokerNode]) -> bool:
    """Return True if no broker is connected or throttles, and all brokers, or `_ENOUGH` of them, are out of reach."""
    if any(node.standing <= Standing.ALIVE or node.is_muted for node in nodes):
        return False
    return sum(node.is_out_of_reach for node in nodes) >= min(len(nodes), _ENOUGH)
