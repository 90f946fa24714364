"""Holds the producer's status for its circuit breaker (`interfaces.ProducerStatusContext`), read at each access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from aioproducer.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues
    from aioproducer.net.cluster import Cluster

__all__ = ["Status", "Views", "name_of"]

K = TypeVar("K")
V = TypeVar("V")


class _View(Mapping[K, V], Generic[K, V]):
    """A read-only mapping that computes each value at its access."""

    __slots__ = ("_find", "_keys")

    def __init__(self, find: Callable[[K], V], keys: Callable[[], Iterable[K]]) -> None:
        self._find = find
        self._keys = keys

    def __getitem__(self, key: K) -> V:
        return self._find(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys())

    def __len__(self) -> int:
        return sum(1 for _ in self._keys())


class Views:
    """Holds the status mappings by broker and by partition. An unknown broker or partition has the value 0 or False."""

    def __init__(self, partition_queues: PartitionQueues, cluster: Cluster) -> None:
        self._partition_queues = partition_queues
        self._cluster = cluster
        self.in_flight_requests: Mapping[int, int] = _View(self._requests, self._node_ids)
        self.throttled: Mapping[int, bool] = _View(self._is_throttled, self._node_ids)
        self.in_flight_batches: Mapping[TopicPartition, int] = _View(lambda one: self._of(one, "in_flight"), self._partitions)
        self.queued_bytes: Mapping[TopicPartition, int] = _View(lambda one: self._of(one, "bytes"), self._partitions)

    def find(self, partition: TopicPartition) -> PartitionQueue | None:
        """Return the partition queue of a partition; None: the partition is not known."""
        topic, number = partition
        routing = self._partition_queues.routings.get(topic)
        return routing.queues[number] if routing is not None and 0 <= number < len(routing.queues) else None

    def has(self, queue: PartitionQueue) -> bool:
        """Return False for a partition that its topic no longer has. A breaker could not mute it, and is not told of its last batches."""
        return self.find(name_of(queue)) is queue

    def _node_ids(self) -> Iterable[int]:
        return (node.broker.node_id for node in self._cluster.nodes)

    def _partitions(self) -> Iterable[TopicPartition]:
        return (name_of(queue) for routing in self._partition_queues.routings.values() for queue in routing.queues)

    def _requests(self, node_id: int) -> int:
        node = self._cluster.node(node_id)
        return node.produce.in_flight if node is not None else 0

    def _is_throttled(self, node_id: int) -> bool:
        node = self._cluster.node(node_id)
        return node is not None and node.is_muted

    def _of(self, partition: TopicPartition, attribute: str) -> int:
        queue = self.find(partition)
        return getattr(queue, attribute) if queue is not None else 0


@dataclass(frozen=True, slots=True)
class Status:
    """Holds the status for one call of the circuit breaker; the fields are those of `interfaces.ProducerStatusContext`."""

    now: float
    partition: TopicPartition
    node_id: int
    records: int
    views: Views

    @property
    def in_flight_requests(self) -> Mapping[int, int]:
        """Return the number of requests in flight, by broker."""
        return self.views.in_flight_requests

    @property
    def in_flight_batches(self) -> Mapping[TopicPartition, int]:
        """Return the number of batches in flight, by partition."""
        return self.views.in_flight_batches

    @property
    def queued_bytes(self) -> Mapping[TopicPartition, int]:
        """Return the bytes of `buffer_memory` in use, by partition."""
        return self.views.queued_bytes

    @property
    def throttled(self) -> Mapping[int, bool]:
        """Return whether the broker throttles this client, by broker."""
        return self.views.throttled


def name_of(queue: PartitionQueue) -> TopicPartition:
    """Return the topic and partition of a partition queue."""
    return TopicPartition(queue.topic, queue.partition)
