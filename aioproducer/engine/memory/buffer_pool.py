"""Holds the free bytes of `buffer_memory`, and the sends that wait for them (Java's BufferPool, seeds/003).

`BufferPool` hands out byte credits, not buffers.

1. Pending sends are served in the order of their calls, however many bytes each needs (BUF-02): a small record never overtakes a
   large one.
2. The pool holds the record of a pending send, not its task. `deallocate` appends the records, so call order is log order. After that
   it notifies their tasks, each by an `asyncio.Condition` of its own.
3. A send that is cancelled while it waits leaves no trace.
4. Whatever frees bytes schedules the event-loop iteration that serves the pending sends. No caller has to remember them.
5. The bytes of a batch and the free ones change together (`hold`), so that a send that is interrupted anywhere loses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.engine.memory.partition_wait_queues import PartitionWaitQueues
from aioproducer.engine.memory.wait_queue import WaitQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.memory.wait_queue import PendingSend


class BufferPool:
    """Holds the free bytes of `buffer_memory`, and the sends that wait. All methods are synchronous: a send waits by `PendingSend.wait`.

    Args:
        size: the bytes of `buffer_memory`.
        next_turn: schedules the event-loop iteration that serves pending sends.

    Attributes:
        available: the free bytes.
        waiting: the sends that wait for memory, and those behind them.
        full_partitions: with a circuit breaker, the sends that wait for a full partition alone.
    """

    __slots__ = ("_next_turn", "available", "full_partitions", "size", "waiting")

    def __init__(self, size: int, next_turn: Callable[[], None]) -> None:
        self._next_turn = next_turn
        self.size: int = size
        self.available: int = size
        self.waiting: WaitQueue = WaitQueue()
        self.full_partitions: PartitionWaitQueues = PartitionWaitQueues()

    def hold(self, batch: ProducerBatch, credit: int) -> None:
        """Have a batch hold `credit` bytes: it takes more, or gives the others back."""
        more = credit - batch.credit
        # Without a call between them: were they interrupted by a signal handler's exception, bytes would be lost.
        batch.credit = credit
        batch.queue.bytes += more
        self.available -= more
        if more < 0:
            self._on_release()

    def take(self, size: int) -> None:
        """Take `size` bytes that are used already. `available` may fall below zero: overhead is known only once records are appended."""
        self.available -= size

    def release(self, size: int) -> None:
        """Give `size` bytes back. If a send waits, the next event-loop iteration hands them to pending sends by `deallocate`."""
        self.available += size
        self._on_release()

    def _on_release(self) -> None:
        assert self.available <= self.size, "more was given back than taken"
        # The deque may hold only cancelled sends: then that iteration finds none.
        if self.waiting.entries or self.full_partitions.wait_queues:
            self._next_turn()

    @property
    def has_waiting(self) -> bool:
        """Return whether a send waits that is served before any later one. One that waits for its full partition alone does not count."""
        # Mostly none waits, and each drain asks several times.
        if self.waiting.entries and self.waiting:
            return True
        return bool(self.full_partitions.notified and self.full_partitions.next() is not None)

    def first(self) -> tuple[WaitQueue, PendingSend] | None:
        """Return the pending send that is served next, and the wait queue that it is in."""
        if self.full_partitions.notified:
            return self.full_partitions.first(self.waiting)
        head = self.waiting.head()
        return (self.waiting, head) if head is not None else None

    def deallocate(
        self, grant: Callable[[WaitQueue, PendingSend], bool], notify: Callable[[], None]
    ) -> None:
        """Hand the free bytes to the pending sends: append their records in the order of the calls, then notify their tasks.

        Args:
            grant: appends the first record of a wait queue. Returns False if those behind it must wait on.
            notify: notifies the tasks of the next sends that were served. A bounded number of tasks runs in one event-loop iteration.
        """
        while (first := self.first()) is not None and grant(*first):
            pass
        notify()

    def __repr__(self) -> str:
        return f"<BufferPool {self.available} of {self.size} bytes free>"
