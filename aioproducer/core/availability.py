"""Decides which partitions are usable: they have a leader, are not avoided, and their broker is not late.

The rule is the same for the sticky choice and for the user's partitioner (`TopicRouting.available`). Records for a named partition,
or for the partition of their key, go there all the same (PAR-11).

1. A partition is avoided while its circuit is not closed, and while it holds as much memory as it may.
2. A broker is late when a batch has waited for it longer than a timeout and the broker took no batch (PAR-07). It takes none
   without a connection or a free slot, while it throttles, or while it does not answer the in-flight batches of a partition. It
   stays late until it takes a batch, or no batch waits for it any more. Then the next records try it again.
3. If no partition is usable, every partition with a leader is. If none has a leader, every partition is, because a record needs a
   partition.

The topic routings of a producer share one `Availability`. Derived state is compared by `version`, so that a change costs no work
beyond its own step.
"""

from __future__ import annotations

from itertools import filterfalse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from aioproducer.core.producer_batch import PartitionQueue


class Availability:
    """Holds the avoided partitions and the late brokers.

    Args:
        timeout: seconds after which a broker that takes no batch is late; 0: never (`partitioner_availability_timeout_ms`).
        is_near: whether a broker, by id, is in the client's own rack (KIP-1123); None: racks do not matter.
        on_late: called with the id of each broker that becomes late, and of each that is no longer late (`is_late=False`).

    Attributes:
        version: another number after each change.
        timeout: as given.
    """

    def __init__(
        self,
        timeout: float = 0.0,
        is_near: Callable[[int], bool] | None = None,
        on_late: Callable[..., object] | None = None,
    ) -> None:
        self._on_late = on_late
        self.version: int = 0
        self.timeout = timeout
        self._is_near = is_near
        self._avoided: set[PartitionQueue] = set()
        # By broker: the time since when it takes no batch, the longest first, and the partition that waits for its in-flight
        # batches.
        self._blocked: dict[int, tuple[float, PartitionQueue | None]] = {}
        self._late: dict[int, PartitionQueue | None] = {}

    # Avoided

    def avoid(self, queue: PartitionQueue) -> None:
        """Avoid a partition because of its circuit: no choice selects it while there are others."""
        queue.is_avoided = True
        self._leave_out(queue)

    def welcome(self, queue: PartitionQueue) -> None:
        """Stop avoiding a partition because of its circuit."""
        queue.is_avoided = False
        if not queue.is_full:
            self.forget(queue)

    def fill(self, queue: PartitionQueue) -> None:
        """Avoid a partition that holds as much memory as it may."""
        queue.is_full = True
        self._leave_out(queue)

    def ease(self, queue: PartitionQueue) -> None:
        """Stop avoiding a partition because of its memory."""
        queue.is_full = False
        if not queue.is_avoided:
            self.forget(queue)

    def _leave_out(self, queue: PartitionQueue) -> None:
        if queue not in self._avoided:
            self._avoided.add(queue)
            self.version += 1
            queue.routing.leave(queue)

    def forget(self, queue: PartitionQueue) -> None:
        """Remove a partition from the avoided ones: no reason is left, or its topic is forgotten."""
        if queue in self._avoided:
            self._avoided.remove(queue)
            self.version += 1

    # Late

    def blocked(self, node_id: int, now: float, behind: PartitionQueue | None = None) -> None:
        """Note that a batch is ready for a broker that takes none now.

        With `behind`, a batch of that partition waits for its in-flight batches.
        """
        if self.timeout and node_id not in self._late:
            self._blocked.setdefault(node_id, (now, behind))

    def drained(self, node_id: int) -> None:
        """Note that a broker took a batch, or that no batch waits for it."""
        self._blocked.pop(node_id, None)
        if node_id in self._late:
            del self._late[node_id]
            self._judged(node_id, is_late=False)

    @property
    def is_watching(self) -> bool:
        """Return whether there is a broker to check."""
        return bool(self._blocked or self._late)

    @property
    def late(self) -> int:
        """Return the number of late brokers."""
        return len(self._late)

    def look(self, now: float, ready: Mapping[int, Collection[PartitionQueue]]) -> None:
        """Check which brokers are late at `now`. `ready`: by broker, the partitions with a batch for it.

        The cost is proportional to the late brokers and to the changes.
        """
        for node_id in [
            node_id
            for node_id, behind in self._late.items()
            if not _waiting(node_id, ready, behind)
        ]:
            self.drained(node_id)
        while self._blocked:
            node_id, (since, behind) = next(iter(self._blocked.items()))
            if now - since <= self.timeout:
                return
            del self._blocked[node_id]
            if queues := _waiting(node_id, ready, behind):
                self._late[node_id] = behind
                self._judged(node_id, is_late=True)
                for queue in queues:
                    queue.routing.leave(queue)

    def _judged(self, node_id: int, *, is_late: bool) -> None:
        self.version += 1
        if self._on_late is not None:
            self._on_late(node_id, is_late=is_late)

    # Verdicts

    def is_usable(self, queue: PartitionQueue) -> bool:
        """Return whether a choice may select a partition while there are others."""
        return queue.leader >= 0 and queue.leader not in self._late and queue not in self._avoided

    def usable(self, queues: Sequence[PartitionQueue], led: tuple[int, ...]) -> tuple[int, ...]:
        """Return the usable partitions among those with a leader, or all of those if none is usable."""
        left = {queue.partition for queue in self._avoided if queue.routing.queues is queues}
        if self._late:
            left.update(queue.partition for queue in queues if queue.leader in self._late)
        return (tuple(filterfalse(left.__contains__, led)) or led) if left else led

    def near(self, queues: Sequence[PartitionQueue], usable: tuple[int, ...]) -> tuple[int, ...]:
        """Return the usable partitions that have a leader in the client's rack, or all usable ones if there are none (PAR-08)."""
        is_near = self._is_near
        if is_near is None:
            return usable
        return (
            tuple(partition for partition in usable if is_near(queues[partition].leader)) or usable
        )


def _waiting(
    node_id: int, ready: Mapping[int, Collection[PartitionQueue]], behind: PartitionQueue | None
) -> Collection[PartitionQueue]:
    """Return the partitions with a batch that waits for a broker.

    They are the ready partitions, or else `behind`, if a batch of it waits for its in-flight batches.
    """
    if queues := ready.get(node_id):
        return queues
    if behind is None or behind.leader != node_id or not behind.in_flight:
        return ()
    return (behind,) if behind.closed or behind.current is not None else ()
