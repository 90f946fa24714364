"""Connections, watched: their traffic is recorded, and their coming and going told. Knows nothing of what goes over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.net.observer import Observer, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.metadata import Broker
    from aioproducer.engine.events import Events
    from aioproducer.errors import TransportError
    from aioproducer.metrics.registry import Metrics
    from aioproducer.metrics.sensors import Sensors

__all__ = ["NetWatch"]


class _Recorded(Traffic):
    """A broker's requests, recorded twice: for it, and for all."""

    __slots__ = ("_node", "_producer")

    def __init__(self, node: Sensors, producer: Sensors) -> None:
        self._node = node
        self._producer = producer

    def sent(self, now: float, size: int) -> None:
        """A request."""
        self._node["request"].record(now, size)
        self._producer["request"].record(now, size)

    def answered(self, now: float, size: int) -> None:
        """An answer."""
        self._node["response"].record(now, size)
        self._producer["response"].record(now, size)


class NetWatch(Observer):
    """Watches one producer's connections.

    Args:
        clock: the loop's time.
        records: whether traffic is recorded, or only told.
    """

    def __init__(self, metrics: Metrics, events: Events, clock: Callable[[], float], *, records: bool) -> None:
        self._metrics = metrics
        self._events = events
        self._clock = clock
        self._records = records

    def traffic(self, node_id: int) -> Traffic:
        """Recorded under the broker's id."""
        return _Recorded(self._metrics.node(node_id), self._metrics.producer) if self._records else super().traffic(node_id)

    def connected(self, broker: Broker, label: str) -> None:
        """Counted and told."""
        if self._records:
            self._metrics.producer["connection-creation"].record(self._clock())
        self._tell("broker-connected", broker, lane=label)

    def lost(self, broker: Broker, label: str, cause: TransportError | None) -> None:
        """Counted and told."""
        if self._records:
            self._metrics.producer["connection-close"].record(self._clock())
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
        self._metrics.forget_node(broker.node_id)

    def _tell(self, event: str, broker: Broker, **facts: object) -> None:
        self._events.tell(event, node_id=broker.node_id, where=f"{broker.host}:{broker.port}", **facts)
