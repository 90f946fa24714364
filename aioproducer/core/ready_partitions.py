"""Decides which partitions have a batch to drain, and holds them by the broker that leads them, in the order of their drains."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from aioproducer.core.sequence_numbers import NO_IDENTITY

if TYPE_CHECKING:
    from aioproducer.core.drain_policy import DrainPolicy
    from aioproducer.core.producer_batch import PartitionQueue
    from aioproducer.core.sequence_numbers import Idempotence

__all__ = ["ReadyPartitions"]


class ReadyPartitions(dict[int, OrderedDict["PartitionQueue", None]]):
    """Maps a broker to its ready partition queues. Those without a leader are under -1.

    Args:
        policy: decides whether an open batch waits for more records.
        idempotence: has the producer id, without which no batch is drained.

    Attributes:
        memory_is_short: memory is short, or the producer closes: no partial batch lingers. `PartitionQueues` sets it.
    """

    __slots__ = ("_idempotence", "_policy", "memory_is_short")

    def __init__(self, policy: DrainPolicy, idempotence: Idempotence) -> None:
        super().__init__()
        self._policy = policy
        self._idempotence = idempotence
        self.memory_is_short: bool = False

    def __missing__(self, node_id: int) -> OrderedDict[PartitionQueue, None]:
        queues = self[node_id] = OrderedDict()
        return queues

    def may_be_drained(self, queue: PartitionQueue) -> bool:
        """Return whether a partition has a batch that may be drained now, over the connection of its in-flight batches."""
        closed, granted = queue.closed, self._idempotence.granted
        if not closed and (queue.current is None or (self._policy.has_holds and self._waits(queue))):
            return False
        if queue.retry_at or queue.is_held or queue.is_muted or (queue.one_at_a_time and queue.in_flight):
            return False
        if granted is None:
            return True
        numbers = queue.numbers
        return granted != NO_IDENTITY if numbers is None else numbers.admits(granted, closed, queue.in_flight)

    def _waits(self, queue: PartitionQueue) -> bool:
        return not queue.is_sendable and self._policy.waits(queue.in_flight, memory_is_short=self.memory_is_short)

    def offer(self, queue: PartitionQueue) -> bool:
        """Add a partition if it may be drained. Returns whether it is ready.

        A partition that is ready already is not checked here: with idempotence, `PartitionQueues.drain` checks it again.
        """
        queues = self[queue.leader]
        if queue in queues:
            return True
        may_be_drained = self.may_be_drained(queue)
        if may_be_drained:
            queues[queue] = None
        return may_be_drained

    def check(self, queue: PartitionQueue) -> None:
        """Check a partition again after a batch of it ended or its sequence numbers changed.

        It may become ready, or stop being ready, or the producer may need another producer id for it.
        """
        self._idempotence.check(queue)
        if self.may_be_drained(queue):
            self[queue.leader][queue] = None
        else:
            self.remove(queue)

    def remove(self, queue: PartitionQueue) -> None:
        """Remove a partition queue, if it is ready."""
        if (queues := self.get(queue.leader)) is not None:
            queues.pop(queue, None)

    def nodes(self) -> list[int]:
        """Return the brokers that have partitions to drain. -1 among them shows partitions that wait for a leader."""
        return [node_id for node_id, queues in self.items() if queues]

    def queues(self, node_id: int) -> tuple[PartitionQueue, ...]:
        """Return the partitions with a batch to drain to a broker."""
        return tuple(self.get(node_id, ()))

    def topics(self, node_id: int) -> set[str]:
        """Return the topics with a batch to drain to a broker; for -1, the topics with batches for partitions that have no leader."""
        return {queue.topic for queue in self.get(node_id, ())}
