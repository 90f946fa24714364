"""Let one task wait in asyncio's future protocol, such that what it waited for has happened before a cancellation can reach it.

An `asyncio.Future` wakes its task one loop iteration after its result is set. In that gap the task can be cancelled, although what it
waited for has happened: a record would be queued and its `send` cancelled. A `Waiter` is settled in the step in which that happens: a
cancellation that comes later is told once its task runs again. The loop alone runs the task (`call_soon`), and never one task within another.
"""

from __future__ import annotations

from asyncio import CancelledError, InvalidStateError, current_task
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextvars import Context

__all__ = ["Waiter", "run_callbacks"]

_WAITING: Final = 0
# What it waits for has happened, and its task has not run since.
_SETTLED: Final = 1
_WOKEN: Final = 2
_CANCELLED: Final = 3


def run_callbacks(
    loop: AbstractEventLoop, contexts: Sequence[Context], calls: Iterator[tuple[Context, Callable[[Any], object], Any]]
) -> None:
    """Call back as the loop would: the loop's exception handler is told of what a callback raises; a BaseException that ends loops goes on.

    Args:
        loop: whose exception handler is told.
        contexts: those of `calls`; where all are one, as of one `gather`, it is entered once.
        calls: context, function and argument of each; only from a callback of the loop.
    """
    if contexts and all(map(is_, contexts, repeat(contexts[0]))):
        contexts[0].run(_run_all, loop, calls)
        return
    for context, callback, argument in calls:
        try:
            context.run(callback, argument)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  (asyncio's own Handle does the same)
            loop.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})


def _run_all(loop: AbstractEventLoop, calls: Iterator[tuple[Context, Callable[[Any], object], Any]]) -> None:
    for _context, callback, argument in calls:
        try:
            callback(argument)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  (as above)
            loop.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})


class Waiter:
    """asyncio's future protocol, by duck typing, for one task that awaits it.

    Cancelling the task cancels this waiter alone. Once it is settled, it is too late for that: the task goes on, and is told in the next
    turn of the loop, wherever it is by then, unless whoever cancelled it has taken that back (`uncancel`), as a time-out does.
    """

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_late", "_loop", "_state")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._state = _WAITING
        self._late: tuple[object] | None = None  # the message of a cancellation that came once it was settled
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._asyncio_future_blocking = False

    def __await__(self) -> Generator[Waiter, None, None]:
        if self._state == _WAITING:
            task = current_task(self._loop)
            before = task.cancelling() if task is not None else 0
            self._asyncio_future_blocking = True
            yield self
            if self._state == _SETTLED:
                self._state = _WOKEN
            if self._late is not None and task is not None:
                self._loop.call_soon(_cancel_again, task, before, *self._late)
        self.result()

    def wake(self) -> None:
        """Settle it, and have the loop run the waiting task."""
        self.settle()
        callback, self._callback = self._callback, None
        if self._state == _SETTLED and callback is not None:
            self._loop.call_soon(callback, self, context=self._context)

    def settle(self) -> None:
        """Note that what it waits for has happened; `wake` follows."""
        if self._state == _WAITING:
            self._state = _SETTLED

    @property
    def is_settled(self) -> bool:
        """Whether its task is only to be woken."""
        return self._state == _SETTLED

    def result(self) -> None:
        """Return None once settled; raise if cancelled or still waiting."""
        if self._state == _WAITING:
            raise InvalidStateError("Result is not set.")
        if self._state == _CANCELLED:
            raise CancelledError

    def done(self) -> bool:
        """Whether it waits for nothing any more."""
        return self._state != _WAITING

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._state == _CANCELLED

    def cancel(self, msg: object = None) -> bool:
        """What `Task.cancel` calls: the task wakes in the next turn, with CancelledError."""
        if self._state == _SETTLED:
            self._late = (msg,)
            return True
        if self._state != _WAITING:
            return False
        self._state = _CANCELLED
        callback, self._callback = self._callback, None
        if callback is not None:
            self._loop.call_soon(callback, self, context=self._context)
        return True

    def get_loop(self) -> AbstractEventLoop:
        """The loop it belongs to."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """What a task calls to be woken; there is one."""
        if self._state != _WAITING:
            self._loop.call_soon(callback, self, context=context)
            return
        self._callback = callback
        self._context = context

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Forget the callback; 1 if it was that one."""
        if self._callback != callback:
            return 0
        self._callback = None
        return 1


def _cancel_again(task: Task[Any], before: int, message: object) -> None:
    """Tell a task of the cancellation that came late, unless it is over, or no more is asked of it than `before` its wait."""
    if task.done() or task.cancelling() <= before:
        return
    waited_for = getattr(task, "_fut_waiter", None)
    if isinstance(waited_for, Waiter) and waited_for.is_settled:  # too late for that one, too
        waited_for.get_loop().call_soon(_cancel_again, task, before, message)
        return
    task.cancel(message)
    task.uncancel()  # it was asked for once
