"""Holds the partitions that have a batch to drain, by the broker that leads them, in the order of their drains."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.core.producer_batch import PartitionQueue

__all__ = ["ReadyPartitions"]


class ReadyPartitions(dict[int, OrderedDict["PartitionQueue", None]]):
    """Maps a broker to its ready partition queues: `ready[node_id][queue] = None`. Those without a leader are under -1."""

    __slots__ = ()

    def __missing__(self, node_id: int) -> OrderedDict[PartitionQueue, None]:
        queues = self[node_id] = OrderedDict()
        return queues

    def remove(self, queue: PartitionQueue) -> None:
        """Remove a partition queue, if it is ready."""
        if (queues := self.get(queue.leader)) is not None:
            queues.pop(queue, None)

    def nodes(self) -> Iterator[int]:
        """Return the brokers that have partitions to drain. -1 among them shows partitions that wait for a leader."""
        return (node_id for node_id, queues in self.items() if queues)

    def queues(self, node_id: int) -> tuple[PartitionQueue, ...]:
        """Return the partitions with a batch to drain to a broker."""
        return tuple(self.get(node_id, ()))

    def topics(self, node_id: int) -> set[str]:
        """Return the topics with a batch to drain to a broker; for -1, the topics with batches for partitions that have no leader."""
        return {queue.topic for queue in self.get(node_id, ())}
