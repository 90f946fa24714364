"""Sends that wait for their next slice of the loop budget, in order; each is woken after the one before it.

Several tight loops of sends thereby share the event loop, and leave time for other tasks.

1. A send that waits for its next slice has not placed its record yet: if the send is cancelled, the record is not queued. The record
   delays no other send. The next call of any task places that record first (`unplaced`: there is one at most), so that call order is
   log order.
2. From then on the send has succeeded. Only its wake-up is left, which reports a cancellation in between (`waiter`). The same holds for
   sends that waited for memory: all records are placed, then all tasks are woken. If a task were woken before the next record is placed,
   its next send would wait behind that record.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from aioproducer.engine.append.loop_budget import LoopBudget
    from aioproducer.engine.memory.buffer_pool import PendingSend
    from aioproducer.engine.tasks.waiter import Waiter

__all__ = ["LoopBudgetWaiters"]

# Tasks woken in one event-loop iteration: each runs user code.
_MOST_AT_ONCE: Final = 16


class LoopBudgetWaiters:
    """Holds the waiters of sends, in order. Each send schedules the event-loop iteration that wakes it.

    Args:
        place: places the unplaced record, or moves it to another wait queue.

    Attributes:
        waiters: the waiters of sends that wait for a slice, and of sends with a record that was placed just now.
        unplaced: the record of the last such send, until another send is called.
    """

    __slots__ = ("_loop", "_loop_budget", "_place", "unplaced", "waiters")

    def __init__(self, loop: AbstractEventLoop, loop_budget: LoopBudget, place: Callable[[], None]) -> None:
        self._loop = loop
        self._loop_budget = loop_budget
        self._place = place
        self.waiters: deque[Waiter] = deque()
        self.unplaced: PendingSend | None = None

    @property
    def holds(self) -> bool:
        """Return whether a record must be placed before any new one."""
        return self.unplaced is not None and self.unplaced.is_waiting

    def rest(self, record: PendingSend) -> None:
        """Add a send that waits for its next slice, with its record, or with a mark that has no record."""
        assert record.waiter is not None
        if record.topic is not None:
            assert not self.holds
            self.unplaced = record
        self.add(record.waiter)

    def add(self, waiter: Waiter) -> None:
        """Add the waiter of a send after its record was placed."""
        self.waiters.append(waiter)

    def take(self) -> PendingSend | None:
        """Remove the unplaced record and return it, to be placed now. Its send still waits. Returns None if there is none."""
        record, self.unplaced = self.unplaced, None
        return record if record is not None and record.is_waiting else None

    def give_up(self, waiter: Waiter) -> None:
        """Remove the waiter of a send that waits for something else now."""
        self.waiters.remove(waiter)

    def end(self) -> None:
        """Wake all sends, regardless of the loop budget."""
        while self.waiters:
            self.waiters.popleft().wake()

    def go(self) -> None:
        """Wake the next sends. Each gets its part of a slice, which begins when its task runs."""
        if not self.waiters:
            return
        self._loop_budget.end_slice()
        count = min(len(self.waiters), _MOST_AT_ONCE)
        self._loop_budget.share(count)
        for _ in range(count):
            if self.unplaced is not None and self.unplaced.waiter is self.waiters[0]:
                self._place()
            # The record that was placed found no memory, and its waiter was removed.
            if not self.waiters:
                return
            self.waiters.popleft().wake()
