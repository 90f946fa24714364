"""What one turn takes in: a bounded number of records and bytes, and who sends without pause rests before it sends more.

1. A go is what one task sends before it rests: `TURN_RECORDS` records, or less where several rest. So a tight loop of sends starves nobody.
2. A turn is some goes, or `TURN` bytes of room. When it is over, what was queued is drained: once a go, requests would be small.

Knows nothing of who waits, or of where records go.
"""

from __future__ import annotations

from asyncio import current_task
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.hot import TURN, TURN_RECORDS, FastPath

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

__all__ = ["GO", "Turn"]

GO: Final = TURN_RECORDS  # records of a whole one
_GOES: Final = 4
_MORE: Final = 64  # records on the fast way between two looks at whether it was enough


class Turn:
    """The turn at hand.

    Args:
        way: counts its records.

    Attributes:
        spent: bytes of room taken in it.
        goes: those of it that are over.
    """

    __slots__ = ("_asked_at", "_is_enough", "_loop", "_pauses", "_taker", "_way", "goes", "spent")

    def __init__(self, loop: AbstractEventLoop, way: FastPath) -> None:
        self._loop = loop
        self._way = way
        self.spent = 0
        self.goes = 0
        self._is_enough = False
        self._taker: Task[Any] | None = None
        self._asked_at = 0  # what the go had taken when that task asked
        self._pauses = False  # and what it was told

    def new(self) -> None:
        """A turn begins."""
        self.spent = self.goes = 0
        self.new_go(GO)

    def new_go(self, records: int) -> None:
        """A go of about so many records begins."""
        self._way.taken = TURN_RECORDS - records
        self._taker, self._pauses, self._is_enough = None, False, False

    def end(self) -> None:
        """This turn took enough in, whatever its bytes: this task goes on in the next one."""
        self.spent = max(self.spent, TURN + 1)

    @property
    def is_over(self) -> bool:
        """Whether what it took in is to be drained before it takes more."""
        return self.spent > TURN or self.goes >= _GOES

    @property
    def is_spent(self) -> bool:
        """Whether this go took enough in, by bytes or by records."""
        return self.spent > TURN or self._is_enough or self._way.taken > TURN_RECORDS

    @property
    def taker_is_cancelled(self) -> bool:
        """Whether the task that asked last, and must pause, is being cancelled."""
        return self._taker is not None and self._taker.cancelling() > 0

    def may_go_on(self) -> bool:
        """Begin another go at once, if the turn has one left."""
        self.goes += 1
        if self.is_over:
            return False
        self.new_go(GO)
        return True

    def must_pause(self) -> bool:
        """Whether this go took enough in, and the task at hand took its part of it without a rest.

        A task that sends once and then waits lets the loop go on by itself: a crowd of those need not rest too.
        One send asks up to three times on its way, and hears the same: it has taken nothing in between.
        """
        task, taken = current_task(self._loop), self._way.taken
        if task is not self._taker or taken != self._asked_at:
            self._pauses = self.is_spent and task is self._taker
            self._taker, self._asked_at = task, taken
        return self._pauses

    def goes_on(self) -> bool:
        """Whether the fast way takes more than `TURN_RECORDS` in this go: not from a task that goes on and on, once that is seen."""
        if self.must_pause():
            return False
        self._is_enough = True
        self._way.taken -= _MORE
        self._asked_at = self._way.taken
        return True
