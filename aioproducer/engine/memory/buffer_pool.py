"""Holds the free bytes of `buffer_memory`, and the wait queue of the sends that lack them (Java's BufferPool, seeds/003).

`BufferPool` hands out byte credits, not buffers.

1. The wait queue is first come, first served, however many bytes each send needs (BUF-02): a small record never overtakes a large one.
2. Whatever frees bytes schedules the event-loop iteration that serves the wait queue. No caller has to remember it.
"""

from __future__ import annotations

from asyncio import Condition, Lock
from collections import deque
from typing import TYPE_CHECKING, Final, Literal

from aioproducer.engine.memory.pending_send import first

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.partition_queues import PartitionQueue
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.memory.pending_send import PendingSend


class _HeldLock(Lock):
    """Is held at any time: pending sends change in synchronous code of one event loop, so no task has to wait for the lock."""

    def locked(self) -> bool:
        """Return True."""
        return True

    async def acquire(self) -> Literal[True]:
        """Return True, without a wait."""
        return True

    def release(self) -> None:
        """Do nothing."""


_LOCK: Final = _HeldLock()


class BufferPool:
    """Holds the free bytes of `buffer_memory`, and the sends that wait.

    Args:
        size: the bytes of `buffer_memory`.
        next_turn: schedules the event-loop iteration that serves the wait queue.

    Attributes:
        available: the free bytes.
        waiters: the sends that wait for memory, and those behind them, in the order of their calls. Some may have left.
        full_partitions: with a circuit breaker, the sends that wait for a full partition alone.
    """

    __slots__ = ("_next_turn", "available", "full_partitions", "size", "waiters")

    def __init__(self, size: int, next_turn: Callable[[], None]) -> None:
        self._next_turn = next_turn
        self.size: int = size
        self.available: int = size
        self.waiters: deque[PendingSend] = deque()
        self.full_partitions: dict[PartitionQueue, deque[PendingSend]] = {}

    async def wait(self, pending: PendingSend) -> None:
        """Sleep until `pending` may go on, on a condition of its own, as in Java's deque of conditions.

        That costs 7 us and 2 KB a wait more than the future alone: no other place has a condition.
        """
        assert pending.done is not None
        pending.condition = Condition(_LOCK)
        # Without `async with`: its lock is always held.
        await pending.condition.wait_for(pending.done.done)

    def hold(self, batch: ProducerBatch, credit: int) -> None:
        """Have a batch hold `credit` bytes: it takes more, or gives the others back."""
        more = credit - batch.credit
        batch.credit = credit
        batch.queue.bytes += more
        self.available -= more
        if more < 0:
            self._on_release()

    def take(self, size: int) -> None:
        """Take `size` bytes that are used already. `available` may fall below zero: overhead is known only once records are appended."""
        self.available -= size

    def release(self, size: int) -> None:
        """Give `size` bytes back. If a send waits, the next event-loop iteration serves it."""
        self.available += size
        self._on_release()

    def _on_release(self) -> None:
        assert self.available <= self.size, "more was given back than taken"
        # There may be only sends that have left: then that iteration finds none.
        if self.waiters or self.full_partitions:
            self._next_turn()

    @property
    def has_waiting(self) -> bool:
        """Return whether a send waits that is served before any later one. One that waits for its full partition alone does not count."""
        # Mostly none waits, and each drain asks several times.
        return bool(self.waiters) and first(self.waiters) is not None

    def __repr__(self) -> str:
        return f"<BufferPool {self.available} of {self.size} bytes free>"
