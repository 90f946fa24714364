"""Partitions with something to drain, by the broker that leads them, in the order of their turns. Knows nothing of what they have."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.core.topic_routing import PartitionQueue

__all__ = ["ReadyPartitions"]


class ReadyPartitions(dict[int, OrderedDict["PartitionQueue", None]]):
    """`ready[node_id][cell] = None`: it takes its turn. Under `NOBODY` are those without a leader."""

    __slots__ = ()

    def __missing__(self, node_id: int) -> OrderedDict[PartitionQueue, None]:
        queues = self[node_id] = OrderedDict()
        return queues

    def remove(self, queue: PartitionQueue) -> None:
        """It has no turn any more, if it had one."""
        if (queues := self.get(queue.leader)) is not None:
            queues.pop(queue, None)

    def nodes(self) -> Iterator[int]:
        """Brokers with something to drain; `NOBODY` among them shows partitions that wait for a leader."""
        return (node_id for node_id, queues in self.items() if queues)

    def queues(self, node_id: int) -> tuple[PartitionQueue, ...]:
        """Partitions with something to drain to a broker."""
        return tuple(self.get(node_id, ()))

    def topics(self, node_id: int) -> set[str]:
        """Topics with something to drain to a broker; for `NOBODY`, those with records for partitions that have no leader."""
        return {queue.topic for queue in self.get(node_id, ())}
