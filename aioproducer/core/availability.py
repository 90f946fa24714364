"""Which partitions are usable: those with a leader that are not avoided, and whose broker takes what waits for it in time.

One notion for whoever chooses a partition: the sticky choice, and the user's partitioner (`Route.available`). What is sent to a named
partition, or to its key's, goes there all the same (PAR-11).

1. A partition is avoided while its circuit is not closed, and while it holds as much memory as it may.
2. A broker is late when something has waited for it for longer than a time-out, and it took nothing (PAR-07): no connection, no free
   slot, throttled, or it does not answer what a partition has in flight. It is late until it takes something, or nothing waits for it any
   more: then the next records try.
3. If nothing is usable, everything with a leader is; if nothing has one, everything: a record has to go somewhere.

Shared by the routes of a producer: whoever derives something of it compares `version`, so that no change costs more than its own step.
Knows nothing of clocks, or of why something is avoided.
"""

from __future__ import annotations

from itertools import filterfalse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from aioproducer.core.topic_routing import PartitionQueue

__all__ = ["Availability"]


class Availability:
    """What partitions are judged by.

    Args:
        timeout: seconds after which a broker that takes nothing is late; 0: never (`partitioner_availability_timeout_ms`).
        is_near: whether a broker, by id, is in the client's own rack (KIP-1123); None: racks do not matter.

    Attributes:
        version: another number after each change.
        timeout: as given.
        on_late: told of each broker, by id, that is late, and that is not any more (`is_late=False`).
    """

    on_late: Callable[..., object] | None = None

    def __init__(self, timeout: float = 0.0, is_near: Callable[[int], bool] | None = None) -> None:
        self.version = 0
        self.timeout = timeout
        self._is_near = is_near
        self._avoided: set[PartitionQueue] = set()
        # by broker: since when, the longest first; and what waits behind its own batches
        self._blocked: dict[int, tuple[float, PartitionQueue | None]] = {}
        self._late: dict[int, PartitionQueue | None] = {}

    # Avoided

    def avoid(self, queue: PartitionQueue) -> None:
        """For its circuit: no choice falls on this partition while there are others."""
        queue.is_avoided = True
        self._leave_out(queue)

    def welcome(self, queue: PartitionQueue) -> None:
        """Its circuit is no reason any more."""
        queue.is_avoided = False
        if not queue.is_full:
            self.forget(queue)

    def fill(self, queue: PartitionQueue) -> None:
        """It holds as much as it may: likewise."""
        queue.is_full = True
        self._leave_out(queue)

    def ease(self, queue: PartitionQueue) -> None:
        """It does not any more."""
        queue.is_full = False
        if not queue.is_avoided:
            self.forget(queue)

    def _leave_out(self, queue: PartitionQueue) -> None:
        if queue not in self._avoided:
            self._avoided.add(queue)
            self.version += 1
            queue.routing.leave(queue)

    def forget(self, queue: PartitionQueue) -> None:
        """There is nothing against it, or its topic is forgotten."""
        if queue in self._avoided:
            self._avoided.remove(queue)
            self.version += 1

    # Late

    def blocked(self, node_id: int, now: float, behind: PartitionQueue | None = None) -> None:
        """Something is ready for a broker, and it takes nothing now; or something of a partition has to wait for what it has in flight."""
        if self.timeout and node_id not in self._late:
            self._blocked.setdefault(node_id, (now, behind))

    def drained(self, node_id: int) -> None:
        """A broker took something, or nothing waits for it."""
        self._blocked.pop(node_id, None)
        if node_id in self._late:
            del self._late[node_id]
            self._judged(node_id, is_late=False)

    @property
    def is_watching(self) -> bool:
        """Whether there is a broker to look at."""
        return bool(self._blocked or self._late)

    @property
    def late(self) -> int:
        """How many brokers are late."""
        return len(self._late)

    def look(self, now: float, ready: Mapping[int, Collection[PartitionQueue]]) -> None:
        """Judge brokers by the time; `ready`: by broker, the partitions with something for it. Costs what late brokers are, and what changes."""
        for node_id in [node_id for node_id, behind in self._late.items() if not _waiting(node_id, ready, behind)]:
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
        if self.on_late is not None:
            self.on_late(node_id, is_late=is_late)

    # Verdicts

    def is_usable(self, queue: PartitionQueue) -> bool:
        """Whether a choice may fall on a partition while there are others."""
        return queue.leader >= 0 and queue.leader not in self._late and queue not in self._avoided

    def usable(self, queues: Sequence[PartitionQueue], led: tuple[int, ...]) -> tuple[int, ...]:
        """Of the partitions with a leader those that are usable, or all of them if none is."""
        left = {queue.partition for queue in self._avoided if queue.routing.queues is queues}
        if self._late:
            left.update(queue.partition for queue in queues if queue.leader in self._late)
        return (tuple(filterfalse(left.__contains__, led)) or led) if left else led

    def near(self, queues: Sequence[PartitionQueue], usable: tuple[int, ...]) -> tuple[int, ...]:
        """Of the usable ones those whose leader is in the client's rack, or all of them if none is (PAR-08)."""
        is_near = self._is_near
        if is_near is None:
            return usable
        return tuple(partition for partition in usable if is_near(queues[partition].leader)) or usable


def _waiting(node_id: int, ready: Mapping[int, Collection[PartitionQueue]], behind: PartitionQueue | None) -> Collection[PartitionQueue]:
    """Partitions with something that waits for a broker: those that are ready, else the one that waits for what it has in flight."""
    if queues := ready.get(node_id):
        return queues
    if behind is None or behind.leader != node_id or not behind.in_flight:
        return ()
    return (behind,) if behind.closed or behind.current is not None else ()
