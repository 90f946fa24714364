"""Who rests until its task's next go: one after the other is woken, so that several tight loops of sends share the loop, and leave some of it.

1. A send that rests has not placed its record yet: cancelled, it is not queued. But it holds nobody up. Whoever calls next places that
   record first (`unplaced`: there is one at most), so that call order is log order.
2. From then on the send has succeeded, and only its wake-up is left, which tells of a cancellation in between (`waiter`). So with those
   who waited for memory: all are placed, then all are woken. Each woken before the next is placed, its next send would stand behind that one.

Knows nothing of where records go, of memory or of metadata.
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

_MOST_AT_ONCE: Final = 16  # woken in one iteration of the loop: each runs user code


class LoopBudgetWaiters:
    """Those who rest, in order. Each asks for a turn of the loop, which wakes them.

    Args:
        place: places the record that is not placed yet, or takes it out.

    Attributes:
        waiters: of those who rest, and of those whose record was placed just now.
        unplaced: the last one's record, while nobody called after it.
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
        """Whether a record is to be placed before any that comes now."""
        return self.unplaced is not None and self.unplaced.is_waiting

    def rest(self, record: PendingSend) -> None:
        """A send waits for its next go, with its record, or with a mark that has none."""
        assert record.waiter is not None
        if record.topic is not None:
            assert not self.holds
            self.unplaced = record
        self.add(record.waiter)

    def add(self, waiter: Waiter) -> None:
        """A send whose record was placed is to be woken."""
        self.waiters.append(waiter)

    def take(self) -> PendingSend | None:
        """The record that is not placed yet, to place it now; its send still rests."""
        record, self.unplaced = self.unplaced, None
        return record if record is not None and record.is_waiting else None

    def give_up(self, waiter: Waiter) -> None:
        """It waits for something else."""
        self.waiters.remove(waiter)

    def end(self) -> None:
        """All of them go on, whatever becomes of the turn."""
        while self.waiters:
            self.waiters.popleft().wake()

    def go(self) -> None:
        """Have the loop wake them; each has its part of a go, which begins when its task runs."""
        if not self.waiters:
            return
        self._loop_budget.goes += 1
        count = min(len(self.waiters), _MOST_AT_ONCE)
        self._loop_budget.share(count)
        for _ in range(count):
            if self.unplaced is not None and self.unplaced.waiter is self.waiters[0]:
                self._place()
            if not self.waiters:  # that one found no room
                return
            self.waiters.popleft().wake()
