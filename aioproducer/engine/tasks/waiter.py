"""Holds `Waiter`, the wait of one task in asyncio's future protocol: once settled, no cancellation ends it.

An `asyncio.Future` wakes its task one event-loop iteration after its result is set. In that gap the task can be cancelled, although the
event that it waited for has happened. A record would be queued and its `send` cancelled. A `Waiter` is settled in the same step as that
event. A later cancellation is delivered once the task runs again. Only the loop runs the task (`call_soon`), never inside another task.
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
# The event has happened, and the task has not run since.
_SETTLED: Final = 1
_WOKEN: Final = 2
_CANCELLED: Final = 3


def run_callbacks(
    loop: AbstractEventLoop, contexts: Sequence[Context], calls: Iterator[tuple[Context, Callable[[Any], object], Any]]
) -> None:
    """Call the callbacks as the loop would. Must be called from a callback of the loop.

    The loop's exception handler gets each exception of a callback. A BaseException that ends loops is raised.

    Args:
        loop: the event loop; its exception handler is called.
        contexts: the contexts of `calls`. If all are one context, as those of one `gather`, it is entered once.
        calls: the context, function and argument of each call.
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
    """Holds the wait of one task that awaits it. It has asyncio's future protocol by duck typing.

    Cancelling the task cancels this waiter alone. Once the waiter is settled, a cancellation is too late, and the task continues. The
    task is cancelled in the next event-loop iteration, at the await that it has reached by then. It is not cancelled if the code that
    requested that has withdrawn it (`uncancel`), as a timeout does.
    """

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_late", "_loop", "_state")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._state = _WAITING
        # The message of a cancellation that came after the waiter was settled.
        self._late: tuple[object] | None = None
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
        """Settle the waiter, and schedule its task in the loop."""
        self.settle()
        callback, self._callback = self._callback, None
        if self._state == _SETTLED and callback is not None:
            self._loop.call_soon(callback, self, context=self._context)

    def settle(self) -> None:
        """Note that the event has happened. The caller must call `wake` later."""
        if self._state == _WAITING:
            self._state = _SETTLED

    @property
    def is_settled(self) -> bool:
        """Return whether the event has happened and the task has not run since."""
        return self._state == _SETTLED

    def result(self) -> None:
        """Return None once settled. Raises if the waiter was cancelled or still waits."""
        if self._state == _WAITING:
            raise InvalidStateError("Result is not set.")
        if self._state == _CANCELLED:
            raise CancelledError

    def done(self) -> bool:
        """Return whether the wait has ended."""
        return self._state != _WAITING

    def cancelled(self) -> bool:
        """Return whether the wait was cancelled."""
        return self._state == _CANCELLED

    def cancel(self, msg: object = None) -> bool:
        """Cancel the wait: the task runs in the next event-loop iteration, with CancelledError. `Task.cancel` calls this.

        Once the waiter is settled, the cancellation is kept until the task runs. Returns False if the task has run, or was cancelled.
        """
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
        """Return the event loop of the waiter."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Set the callback that wakes the task. A task sets exactly one."""
        if self._state != _WAITING:
            self._loop.call_soon(callback, self, context=context)
            return
        self._callback = callback
        self._context = context

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Remove the callback. Returns 1 if it was that one, else 0."""
        if self._callback != callback:
            return 0
        self._callback = None
        return 1


def _cancel_again(task: Task[Any], before: int, message: object) -> None:
    """Deliver a late cancellation to `task`.

    Nothing happens if the task is done, or has no more cancellation requests than `before` its wait.
    """
    if task.done() or task.cancelling() <= before:
        return
    waited_for = getattr(task, "_fut_waiter", None)
    # It is too late for that waiter, too.
    if isinstance(waited_for, Waiter) and waited_for.is_settled:
        waited_for.get_loop().call_soon(_cancel_again, task, before, message)
        return
    task.cancel(message)
    # The cancellation was requested once, and `cancel` has counted it again.
    task.uncancel()
