"""The observer of connections: records their traffic, and reports connects and disconnects as events."""

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
    """Observes the connections of one producer.

    Args:
        clock: returns the loop's time.
    """

    def __init__(self, meter: Meter, events: Events, clock: Callable[[], float]) -> None:
        self._meter = meter
        self._events = events
        self._clock = clock

    def traffic(self, node_id: int) -> Traffic:
        """Return the traffic recorder of a broker."""
        return self._meter.traffic(node_id)

    def connected(self, broker: Broker, label: str) -> None:
        """Count a new connection and report it as an event."""
        self._meter.connected(self._clock())
        self._tell("broker-connected", broker, lane=label)

    def lost(self, broker: Broker, label: str, cause: TransportError | None) -> None:
        """Count a lost connection and report it as an event."""
        self._meter.disconnected(self._clock())
        self._tell("broker-lost", broker, lane=label, cause=str(cause))

    def failed(self, broker: Broker, label: str, cause: TransportError, failures: int) -> None:
        """Report the first of several consecutive failures to connect as an event: the others change nothing."""
        if failures == 1:
            self._tell("broker-unreachable", broker, lane=label, cause=str(cause))

    def throttled(self, broker: Broker, milliseconds: int) -> None:
        """Report a broker that throttles as an event."""
        self._tell("broker-throttles", broker, milliseconds=milliseconds)

    def forgotten(self) -> None:
        """Report as an event that the cluster dropped all its brokers."""
        self._events.tell("cluster-forgotten")

    def gone(self, broker: Broker) -> None:
        """Forget the metrics of a broker that left the cluster."""
        self._meter.forget_node(broker.node_id)

    def _tell(self, event: str, broker: Broker, **facts: object) -> None:
        self._events.tell(event, node_id=broker.node_id, where=f"{broker.host}:{broker.port}", **facts)
