"""Connections, watched: their traffic is recorded, and their coming and going told. Knows nothing of what goes over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.net.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.engine.observability.events import Events
    from aioproducer.engine.observability.metrics_recorder import Meter
    from aioproducer.errors import TransportError
    from aioproducer.net.observer import Traffic

__all__ = ["ConnectionObserver"]


class ConnectionObserver(Observer):
    """Watches one producer's connections.

    Args:
        clock: the loop's time.
    """

    def __init__(self, meter: Meter, events: Events, clock: Callable[[], float]) -> None:
        self._meter = meter
        self._events = events
        self._clock = clock

    def traffic(self, node_id: int) -> Traffic:
        """Recorded under the broker's id."""
        return self._meter.traffic(node_id)

    def connected(self, broker: Broker, label: str) -> None:
        """Counted and told."""
        self._meter.connected(self._clock())
        self._tell("broker-connected", broker, lane=label)

    def lost(self, broker: Broker, label: str, cause: TransportError | None) -> None:
        """Counted and told."""
        self._meter.disconnected(self._clock())
        self._tell("broker-lost", broker, lane=label, cause=str(cause))

    def failed(self, broker: Broker, label: str, cause: TransportError, failures: int) -> None:
        """Told once: what was unreachable and is, is no change."""
        if failures == 1:
            self._tell("broker-unreachable", broker, lane=label, cause=str(cause))

    def throttled(self, broker: Broker, milliseconds: int) -> None:
        """Told."""
        self._tell("broker-throttles", broker, milliseconds=milliseconds)

    def forgotten(self) -> None:
        """Told."""
        self._events.tell("cluster-forgotten")

    def gone(self, broker: Broker) -> None:
        """Forgotten."""
        self._meter.forget_node(broker.node_id)

    def _tell(self, event: str, broker: Broker, **facts: object) -> None:
        self._events.tell(event, node_id=broker.node_id, where=f"{broker.host}:{broker.port}", **facts)
