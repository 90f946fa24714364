"""What one turn takes in: a bounded number of records and bytes, in a bounded time; a task that sends without pause rests before it sends more.

1. A go is what one task sends before it rests: `TURN_RECORDS` records or `_SECONDS`, or less where several rest. So a tight loop of sends
   starves nobody, and one that computes between its sends lets the loop send them. The clock is asked after 16 records at most, then
   after as many more as that pace allows, until there are twice as many, and so on.
2. A turn is what is taken in before the loop makes requests of it: one go, or several (`core/drain_policy.py`).

Knows nothing of who waits, or of where records go.
"""

from __future__ import annotations

from asyncio import current_task
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.append.chosen_build import TURN, TURN_RECORDS, FastPath

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

__all__ = ["GO", "LoopBudget"]

GO: Final = TURN_RECORDS  # records of a whole one
_GOES: Final = 4
_SECONDS: Final = 0.002  # of one, with what the task does between its sends
_FIRST: Final = 16  # records on the fast way before the first look at the clock, or as many as the last go had if those were fewer
_LEAST: Final = 128  # records of a part, where several rest: to rest costs as much as some ten


class LoopBudget:
    """The turn at hand.

    Args:
        way: counts its records.

    Attributes:
        spent: bytes of room taken in it.
        goes: those of it that are over.
    """

    __slots__ = (
        "_asked_at",
        "_before",
        "_began_at",
        "_count",
        "_fast_path",
        "_first",
        "_looked_at",
        "_loop",
        "_most",
        "_pauses",
        "_seconds",
        "_spent_before",
        "_taker",
        "goes",
        "spent",
    )

    def __init__(self, loop: AbstractEventLoop, way: FastPath) -> None:
        self._loop = loop
        self._fast_path = way
        self._pauses = False  # what the task that asked last was told
        self._asked_at = -1  # and what the go had taken then
        self.spent = self.goes = self._before = 0
        self._first = _FIRST
        self.share(1)

    def new(self, now: float) -> None:
        """A turn begins."""
        self.spent = self.goes = self._before = self._spent_before = 0
        self._begin(None, now)

    def share(self, tasks: int) -> None:
        """So many tasks that rested go on at the same time: each has its part of a go."""
        self._most = max(GO // tasks, min(_LEAST, GO))
        self._seconds = _SECONDS / tasks
        self._spent_before = self.spent
        self._begin(None, self._loop.time())

    def _begin(self, task: Task[Any] | None, now: float) -> None:
        self._taker, self._pauses = task, False
        self._count = 0
        self._began_at = now
        self._look_after(min(self._first, self._most))

    def _look_after(self, records: int) -> None:
        self._looked_at = self._asked_at = self._fast_path.taken = TURN_RECORDS - records

    def end(self) -> None:
        """This turn took enough in, whatever its bytes: this task goes on in the next one."""
        self.spent = max(self.spent, self._spent_before + TURN + 1)

    @property
    def is_full(self) -> bool:
        """Whether what it took in are batches enough, where records linger."""
        return self.spent > TURN or self.goes >= _GOES

    @property
    def is_spent(self) -> bool:
        """Whether this go took enough in, by bytes, by records or by time."""
        if self.spent - self._spent_before > TURN:
            return True
        if self._fast_path.taken <= TURN_RECORDS:
            return False
        self._count += self._fast_path.taken - self._looked_at
        seconds = self._loop.time() - self._began_at
        more = min(self._most - self._count, self._count)
        if seconds > 0:
            more = min(more, int(self._count * (self._seconds / seconds - 1)))
        if more <= 0:
            self._looked_at = self._fast_path.taken
            self._first = max(min(_FIRST, int(self._count * self._seconds / seconds)), 1) if seconds > 0 else _FIRST
            return True
        self._look_after(more)
        return False

    @property
    def taker_is_cancelled(self) -> bool:
        """Whether the task that asked last, and must pause, is being cancelled."""
        return self._taker is not None and self._taker.cancelling() > 0

    def may_go_on(self) -> bool:
        """Begin another go at once, if the turn has one left: for who cannot rest, however long it takes."""
        self._before += self._count + self._fast_path.taken - self._looked_at
        if self.spent > TURN or self._before >= _GOES * GO:
            return False
        self._begin(None, self._loop.time())
        return True

    def must_pause(self) -> bool:
        """Whether the task at hand sent a go without a rest.

        A task that sends once and then waits lets the loop go on by itself: a crowd of those need not rest too.
        One send asks up to three times on its way, and hears the same: it has taken nothing in between.
        """
        task = current_task(self._loop)
        if task is not self._taker:
            self._begin(task, self._loop.time())
        elif self._fast_path.taken != self._asked_at:
            self._pauses = self.is_spent
            self._asked_at = self._fast_path.taken
        return self._pauses

    def goes_on(self) -> bool:
        """Whether the fast way takes more than `TURN_RECORDS` in this go: not from a task that goes on and on, once that is seen."""
        return not self.must_pause()
