"""All brokers: those we were told to start from, those that metadata names, and which to ask next. Knows nothing of what is asked."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.net.addresses import canonical
from aioproducer.net.broker_node import BrokerNode, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from aioproducer.interfaces import Stream
    from aioproducer.net.broker_connection import NetSettings

__all__ = ["Cluster"]

_FIRST_BOOTSTRAP_ID: Final = -2  # -1 is nobody; ids below are bootstrap addresses and never equal a broker's (MET-12)


class Cluster:
    """The nodes.

    Args:
        addresses: bootstrap host:port.
        spawn: starts a task that the producer's supervisor owns.
        on_change: a node's lane stands, is writable again, is lost, or may be tried again.
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
        self._nodes: dict[int, BrokerNode] = {}
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
        """The addresses that we were told to start from."""
        return self._bootstrap

    @property
    def nodes(self) -> tuple[BrokerNode, ...]:
        """The brokers of the cluster, as metadata names them."""
        return tuple(self._nodes.values())

    def node(self, node_id: int) -> BrokerNode | None:
        """The broker of that id, if it is one of the cluster's now."""
        return self._nodes.get(node_id)

    def feature(self, name: str) -> int | None:
        """The level of a finalized feature, 0 for none, in the newest view that a standing connection was told (KIP-584); None: none stands."""
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

    def update(self, brokers: Mapping[int, Broker]) -> None:
        """Take over what metadata names: new brokers, new addresses; what is gone is closed."""
        if self._is_closed:
            return
        for node_id, node in tuple(self._nodes.items()):
            told = brokers.get(node_id)
            if told is None or told[:3] != node.broker[:3]:
                del self._nodes[node_id]
                self._settings.observer.gone(node.broker)
                node.close()
        for node_id, broker in brokers.items():
            if node_id not in self._nodes:
                self._nodes[node_id] = BrokerNode(broker, self._settings, self._settings.resolver.resolve, self._spawn, self._on_change)
        if self._nodes:
            self._leave_bootstrap()

    def _leave_bootstrap(self) -> None:
        """Brokers are known: what stands to the bootstrap addresses is not needed any more, but for an answer that is still to come."""
        for node in self._bootstrap:
            connection = node.control.connection
            if connection is not None and not connection.in_flight:
                connection.close()

    def candidates(self) -> list[BrokerNode]:
        """Whom to ask for metadata, the best first (NET-22); those that equal each other take turns.

        Who pauses after a failure, or throttles, is left out. Only when all known brokers pause are the bootstrap addresses asked
        again (KIP-899), if the settings say so.
        """
        self._turn += 1
        nodes = list(self._nodes.values())
        if not nodes or (self._settings.rebootstraps and all(node.standing is Standing.PAUSING for node in nodes)):
            nodes = list(self._bootstrap)
        at = self._turn % len(nodes)
        orders = {node: (*node.load, node.tried_at) for node in nodes[at:] + nodes[:at]}
        return sorted((node for node, order in orders.items() if order[0] < Standing.MUTED), key=orders.__getitem__)

    def rebootstrap(self) -> bool:
        """Forget every broker and begin again at the bootstrap addresses, looked up anew (KIP-1102); False: the settings forbid it."""
        if not self._settings.rebootstraps or self._is_closed:
            return False
        self._settings.observer.forgotten()
        self.update({})
        for node in self._bootstrap:
            node.close()
        self._begin()
        return True

    async def sent(self, timeout: float) -> None:
        """After `close`: until what was written of records has left, for at most `timeout` seconds; then the rest is dropped.

        Cancellation: it is dropped at once.
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
        finally:
            self.close(now=True)

    def close(self, *, now: bool) -> None:
        """Close every node; `now`: also what is still to be written."""
        self._is_closed = True
        for node in (*self._nodes.values(), *self._bootstrap):
            if now:
                node.abort()
            else:
                node.close()

    def leave(self) -> list[Stream]:
        """Make no connection from now on, and touch none: the loop belongs to a parent process, or is closed. Gives those that there are."""
        self._is_closed = True
        nodes = (*self._nodes.values(), *self._bootstrap)
        return [stream for node in nodes for broker_connection in (node.produce, node.control) for stream in broker_connection.leave()]
