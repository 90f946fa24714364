"""All brokers: those we were told to start from, those that metadata names, and which to ask next. Knows nothing of what is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.core.metadata import Broker
from aioproducer.net.node import NetSettings, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

__all__ = ["Cluster"]

_FIRST_BOOTSTRAP_ID: Final = -2  # -1 is nobody; ids below are bootstrap addresses and never equal a broker's (MET-12)


class Cluster:
    """The nodes, each with its task.

    Args:
        addresses: bootstrap host:port.
        spawn: starts a task that the producer's supervisor owns.
        on_change: a node's lane stands, is writable again, or is lost.
    """

    def __init__(
        self,
        addresses: tuple[str, ...],
        settings: NetSettings,
        spawn: Callable[[Coroutine[None, None, None], str], object],
        on_change: Callable[[Node], None],
    ) -> None:
        self._settings = settings
        self._spawn = spawn
        self._on_change = on_change
        self._nodes: dict[int, Node] = {}
        self._bootstrap: dict[int, Node] = {}
        self._turn = 0
        for at, address in enumerate(addresses):
            host, _, port = address.rpartition(":")
            broker = Broker(_FIRST_BOOTSTRAP_ID - at, host.strip("[]"), int(port))
            self._bootstrap[broker.node_id] = Node(broker, settings, on_change)

    def start(self) -> None:
        """Start the tasks of the bootstrap addresses."""
        for node in self._bootstrap.values():
            self._run(node)

    def _add(self, broker: Broker) -> Node:
        node = Node(broker, self._settings, self._on_change)
        self._run(node)
        return node

    def _run(self, node: Node) -> None:
        self._spawn(node.run(), f"node {node.broker.node_id} {node.where}")

    def node(self, node_id: int) -> Node | None:
        """The broker of that id, if it is one of the cluster's now."""
        return self._nodes.get(node_id)

    def update(self, brokers: Mapping[int, Broker]) -> None:
        """Take over what metadata names: new brokers, new addresses; what is gone is closed."""
        for node_id, node in tuple(self._nodes.items()):
            told = brokers.get(node_id)
            if told is None or told[:3] != node.broker[:3]:
                del self._nodes[node_id]
                node.close()
        for node_id, broker in brokers.items():
            if node_id not in self._nodes:
                self._nodes[node_id] = self._add(broker)
        if self._nodes:
            for node in self._bootstrap.values():
                if node.control.connection is not None and not node.control.connection.in_flight:
                    node.control.connection.close()

    def candidates(self) -> list[Node]:
        """Whom to ask, least loaded first; those that equal each other take turns. The bootstrap addresses are the last resort."""
        self._turn += 1
        nodes = list(self._nodes.values())
        at = self._turn % len(nodes) if nodes else 0
        nodes = nodes[at:] + nodes[:at]
        bootstrap = list(self._bootstrap.values())
        at = self._turn % len(bootstrap)
        return sorted(nodes, key=lambda node: node.load) + bootstrap[at:] + bootstrap[:at]

    def close(self, *, now: bool) -> None:
        """Close every node; `now`: also what is still to be written."""
        for node in (*self._nodes.values(), *self._bootstrap.values()):
            if now:
                node.abort()
            else:
                node.close()
