"""Holds what a circuit breaker may do with partitions, and what it may ask of them (`interfaces.CircuitBreakManager`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from aioproducer.core.incremental import STRIDE
from aioproducer.engine.circuit_breaker.context import name_of
from aioproducer.errors import UsageError
from aioproducer.model import exact_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aioproducer.core.circuit_breaker import PartitionCircuit
    from aioproducer.core.incremental import Steps
    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues
    from aioproducer.engine.circuit_breaker.context import Views
    from aioproducer.engine.tasks.guarded_loop import GuardedLoop
    from aioproducer.model import TopicPartition

__all__ = ["CircuitControl"]


class Circuits(Protocol):
    """Opens and closes circuits: the manager. `is_closed`: the producer stops."""

    is_closed: bool

    def open(self, queue: PartitionQueue) -> None:
        """Open the circuit of a partition."""

    def restore(self, queue: PartitionQueue) -> None:
        """Close the circuit of a partition. Nothing happens if its circuit is closed."""


class CircuitControl:
    """Gives the user's circuit breaker access to the circuits of one producer.

    Args:
        opened: the partitions whose circuits are not closed.
    """

    def __init__(
        self,
        loop: GuardedLoop,
        partition_queues: PartitionQueues,
        views: Views,
        opened: Mapping[PartitionQueue, PartitionCircuit],
        circuits: Circuits,
    ) -> None:
        self._loop = loop
        self._partition_queues = partition_queues
        self._views = views
        self._opened = opened
        self._circuits = circuits

    def mute(self, place: int | TopicPartition) -> None:
        """Mute a partition, or all partitions that a broker leads now."""
        self._apply(place, self._circuits.open)

    def unmute(self, place: int | TopicPartition) -> None:
        """Restore a partition, or all partitions that a broker leads now."""
        self._apply(place, self._circuits.restore)

    def _apply(self, place: int | TopicPartition, change: Callable[[PartitionQueue], object]) -> None:
        node_id = exact_int(place)
        if node_id is not None:
            self._go_on(self._sweep(node_id, change))
        else:
            change(self._queue(cast("TopicPartition", place)))

    def _sweep(self, node_id: int, change: Callable[[PartitionQueue], object]) -> Steps[None]:
        """Apply `change` to all partitions of a broker, in steps."""
        routings = tuple(self._partition_queues.routings.values())
        for number, queue in enumerate((queue for routing in routings for queue in tuple(routing.queues)), 1):
            if queue.leader == node_id:
                change(queue)
            if not number % STRIDE:
                yield

    def _go_on(self, steps: Steps[None]) -> None:
        """Run a few steps in this event-loop iteration, and schedule the other steps for later ones."""
        try:
            for _ in range(STRIDE // 16):
                next(steps)
        except StopIteration:
            return
        if not self._circuits.is_closed:
            self._loop.call_soon(self._go_on, steps)

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._views.find(partition)
        if queue is None:
            raise UsageError(f"there is no partition {partition[0]}-{partition[1]}")
        return queue

    def is_muted(self, partition: TopicPartition) -> bool:
        """Return whether a partition is muted or being probed."""
        return self._queue(partition).circuit is not None

    def available_partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that have a leader and are neither muted nor being probed."""
        return [name_of(queue) for queue in self._queues(topic) if queue.leader >= 0 and queue.circuit is None]

    def muted_partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that are muted or being probed."""
        return [name_of(queue) for queue in self._queues(topic) if queue.circuit is not None]

    def available_partitions_for_node(self, node_id: int) -> dict[str, list[TopicPartition]]:
        """Return the partitions that a broker leads and that are neither muted nor being probed, by topic."""
        return _by_topic(queue for queue in self._of(node_id) if queue.circuit is None)

    def muted_partitions_for_node(self, node_id: int) -> dict[str, list[TopicPartition]]:
        """Return the partitions that a broker leads and that are muted or being probed, by topic."""
        return _by_topic(queue for queue in self._opened if queue.leader == node_id)

    def _queues(self, topic: str) -> Sequence[PartitionQueue]:
        routing = self._partition_queues.routings.get(topic)
        return routing.queues if routing is not None else ()

    def _of(self, node_id: int) -> Iterator[PartitionQueue]:
        return (queue for routing in self._partition_queues.routings.values() for queue in routing.queues if queue.leader == node_id)

    def __repr__(self) -> str:
        return repr(self._circuits)


def _by_topic(queues: Iterable[PartitionQueue]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for queue in queues:
        found.setdefault(queue.topic, []).append(name_of(queue))
    return found
