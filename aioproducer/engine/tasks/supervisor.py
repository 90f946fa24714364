"""Holds the supervisor task, which owns all other tasks of a producer, and the event loop as the parts of a producer use it.

1. Only the supervisor makes tasks.
2. An exception in a callback fails the producer (`GuardedLoop`). Otherwise the producer would hang. The loop only logs the exception of
   a callback, and continues. A batch with a partly processed answer would never end. So does a KeyboardInterrupt or the like, which a
   signal handler raises between any two lines of a callback, of a task or of a send (`step`): no part goes on after that.
3. A timer is set for the earliest deadline, and set anew when it fires (`DeadlineTimer`). An event loop that was blocked for 40 s
   (blocking code, SIGSTOP, a suspended laptop) did not read the answers either. They are in the sockets. So a patient timer judges the
   deadlines that passed meanwhile one event-loop iteration later, after every socket was read.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aioproducer.errors import ProtocolError
from aioproducer.interfaces import USER_FAILURES

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Handle, TimerHandle
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from contextvars import Context

# anyio would import it at its first use, in the event loop, where that takes tens of milliseconds. It is private: another anyio may lack it.
with suppress(ModuleNotFoundError):
    import_module("anyio._backends._asyncio")


def reason_of_end(error: BaseException) -> str:
    """Return why the tasks of a producer ended, for errors: `error`, or what cancelled them."""
    if isinstance(error, asyncio.CancelledError):
        return "its tasks were cancelled, as asyncio.run cancels all tasks at its end: start and stop it within one asyncio.run"
    return repr(error)


class Supervisor:
    """Owns a task group in a task of its own, so that the tasks that start and stop the producer are not bound to it.

    Args:
        on_crash: called once if a task ends by an exception of its own, or is cancelled from outside. The other tasks have ended by then.
    """

    def __init__(self, on_crash: Callable[[BaseException], None]) -> None:
        self._on_crash = on_crash
        self._loop = asyncio.get_running_loop()
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        # In the order of their start, which a set would not keep.
        self._children: dict[asyncio.Task[None], None] = {}
        self._is_stopping = False
        self._cancelled_from_outside = False
        self._has_failed = False

    async def start(self) -> None:
        """Start the supervisor task in an empty context: its tasks do not inherit the caller's context variables."""
        started = asyncio.Event()
        self._task = self._loop.create_task(
            self._run(started), name="aioproducer supervisor", context=Context()
        )
        _keep_quiet(self._task)
        await started.wait()

    def spawn(self, coroutine: Coroutine[None, None, None], name: str) -> asyncio.Task[None] | None:
        """Start a task of the group. Returns None if the group has ended.

        The task gets an empty context, because `start` and its metadata request run in the context of the caller.
        """
        if self._group is None or self._is_stopping:
            coroutine.close()
            return None
        try:
            task = self._group.create_task(coroutine, name=f"aioproducer {name}", context=Context())
        except RuntimeError:
            # The group is ending, for example because all tasks were cancelled from outside.
            coroutine.close()
            return None
        _keep_quiet(task)
        # Eager tasks may begin and end within the call that makes them.
        if task.done():
            self._on_child_done(task)
            return task
        self._children[task] = None
        task.add_done_callback(self._on_child_done)
        # The group cancels all its tasks when one fails. It does not have those yet that are making the failed one in their first step.
        if self._has_failed:
            task.cancel()
        return task

    def _on_child_done(self, task: asyncio.Task[None]) -> None:
        self._children.pop(task, None)
        if task.cancelled() and not self._is_stopping:
            self._cancelled_from_outside = True
            self._stopping.set()
        elif not task.cancelled() and task.exception() is not None:
            self._has_failed = True

    async def _run(self, started: asyncio.Event) -> None:
        crash: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as self._group:
                started.set()
                await self._stopping.wait()
                for task in self._children:
                    task.cancel()
            if self._cancelled_from_outside:
                crash = asyncio.CancelledError(
                    "one of the producer's own tasks was cancelled from outside"
                )
        except BaseExceptionGroup as group:
            crash = group.exceptions[0]
        # A group raises KeyboardInterrupt and SystemExit bare. The task that had it has raised it to the loop already.
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
            crash = error
        except RuntimeError:
            # The group cannot cancel tasks of a closed loop. The producer's ResourceWarning reports that.
            if not self._loop.is_closed():
                raise
        finally:
            self._group = None
        if crash is not None and not self._is_stopping:
            self._on_crash(crash)

    def stop(self) -> None:
        """End every task. `ended` waits until they have ended."""
        self._is_stopping = True
        self._stopping.set()

    @property
    def has_ended(self) -> bool:
        """Return whether the supervisor was started and its last task has ended."""
        return self._task is not None and self._task.done()

    def when_ended(self, callback: Callable[[], object]) -> None:
        """Call `callback` once the last task has ended: now, if there is none."""
        if self._task is None or self._task.done() or self._loop.is_closed():
            callback()
        else:
            self._task.add_done_callback(lambda _task: callback())

    async def ended(self) -> None:
        """Wait until the last task has ended.

        Cancellation: the tasks end all the same.
        """
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])


def _keep_quiet(task: asyncio.Task[None]) -> None:
    """Suppress asyncio's message about a pending task, for a loop that is closed without `stop()`.

    The producer's own ResourceWarning reports such a loop. A message for each task would only hide it.
    """
    if hasattr(task, "_log_destroy_pending"):
        task._log_destroy_pending = False


class GuardedLoop:
    """Offers the loop methods that the parts of a producer use, and calls `on_bug(error)` with each exception of their callbacks."""

    __slots__ = ("_loop", "_on_bug", "time")

    def __init__(self, loop: AbstractEventLoop, on_bug: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_bug = on_bug
        self.time: Callable[[], float] = loop.time

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Handle:
        """Schedule `callback` soon, guarded. Returns the loop's handle."""
        return self._loop.call_soon(self.run, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """Schedule `callback` at `when`, guarded. Returns the loop's handle."""
        return self._loop.call_at(when, self.run, callback, *args)

    def run(self, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback`, guarded. A ProtocolError is raised to the connection: a broker causes it, not a bug."""
        try:
            callback(*args)
        except ProtocolError:
            raise
        except Exception as error:
            self._on_bug(error)
        except BaseException as error:
            # Fails the producer: what it has broken off cannot go on.
            self._on_bug(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Fail the producer by what has broken off a step of the user's."""
        self._on_bug(error)

    def step(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function` in a step of the user's or of a connection's, and return its result. What is no failure of user code fails the producer."""
        try:
            return function(*args)
        except USER_FAILURES:
            raise
        except BaseException as error:
            # Fails the producer, as above.
            self._on_bug(error)
            raise

    def guarded(self, callback: Callable[..., object], *args: Any) -> Callable[[Any], None]:
        """Return `callback`, guarded and with these arguments before its own, for other code to call."""
        return partial(self.run, callback, *args)


class DeadlineTimer:
    """Calls `ring(now)` at the deadline that `earliest()` returns. Call `check` after each change that may make that one earlier.

    Args:
        is_patient: the loop reads the sockets first. A deadline that passes is a failure, and an answer in time may be in the sockets.

    Attributes:
        timer: None: no timer is set. Where no deadline is earlier than those set before it, `check` is needed only then.
    """

    __slots__ = ("_earliest", "_is_patient", "_loop", "_ring", "_when", "timer")

    def __init__(
        self,
        loop: AbstractEventLoop | GuardedLoop,
        earliest: Callable[[], float | None],
        ring: Callable[[float], None],
        *,
        is_patient: bool = False,
    ) -> None:
        self._loop = loop
        self._earliest = earliest
        self._ring = ring
        self._is_patient = is_patient
        self.timer: Handle | None = None
        # Kept here: uvloop's handle does not have it if the timer was due at once.
        self._when = 0.0

    def check(self) -> None:
        """Set the timer for the earliest deadline, if it is not set for one as early."""
        when = self._earliest()
        if when is None:
            return
        if self.timer is not None:
            if self._when <= when:
                return
            self.timer.cancel()
            self.timer = None
        self._when = when
        self.timer = self._loop.call_at(when, self._on_timer)

    def stop(self) -> None:
        """Cancel the timer for good."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._earliest = lambda: None

    def _on_timer(self) -> None:
        # uvloop rounds to milliseconds, and runs a timer up to half of one early. Set for the rest, it would run again and again till the clock moves.
        now = max(self._loop.time(), self._when)
        self.timer = None
        # A loop may run timers before it reads sockets. A callback that a `call_soon` callback schedules runs after it has read them.
        if self._is_patient:
            self.timer = self._loop.call_soon(self._after_a_turn, now)
        else:
            self._judge(now)

    def _after_a_turn(self, now: float) -> None:
        self.timer = self._loop.call_soon(self._judge, now)

    def _judge(self, now: float) -> None:
        """Call `ring` if the earliest deadline passed by `now`, and set the timer anew.

        `now` is the time at which the timer fired. For deadlines that passed since then, the sockets may not have been read.
        """
        self.timer = None
        when = self._earliest()
        if when is not None and when <= now:
            self._ring(now)
        self.check()


def run_callbacks(
    loop: AbstractEventLoop,
    contexts: Sequence[Context],
    calls: Iterator[tuple[Context, Callable[[Any], object], Any]],
) -> None:
    """Call the callbacks as the loop would. Must be called from a callback of the loop.

    The loop's exception handler gets each exception of a callback. A BaseException that ends loops is raised.

    Args:
        loop: the event loop; its exception handler is called.
        contexts: the contexts of `calls`. If all are one context, as those of one `gather`, it is entered once.
        calls: the context, function and argument of each call.
    """
    if contexts and _are_one(contexts):
        # RuntimeError: the loop itself runs in this context, which cannot be entered twice. Below, that is told for each callback.
        with suppress(RuntimeError):
            contexts[0].run(_run_all, loop, calls)
            return
    for context, callback, argument in calls:
        try:
            context.run(callback, argument)
        except (SystemExit, KeyboardInterrupt):
            raise
        # Hands the error to the loop, as the loop does with what its own callbacks raise.
        except BaseException as error:
            loop.call_exception_handler(
                {"message": f"Exception in callback {callback!r}", "exception": error}
            )


def _are_one(contexts: Sequence[Context]) -> bool:
    first = contexts[0]
    for context in contexts:  # noqa: SIM110  (`all` takes twice as long)
        if context is not first:
            return False
    return True


def _run_all(
    loop: AbstractEventLoop, calls: Iterator[tuple[Context, Callable[[Any], object], Any]]
) -> None:
    for _context, callback, argument in calls:
        try:
            callback(argument)
        except (SystemExit, KeyboardInterrupt):
            raise
        # As above.
        except BaseException as error:
            loop.call_exception_handler(
                {"message": f"Exception in callback {callback!r}", "exception": error}
            )
