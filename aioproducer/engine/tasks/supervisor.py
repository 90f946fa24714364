"""Holds the supervisor task, which owns all other tasks of a producer. Only this module makes tasks."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["Supervisor", "reason_of_end"]


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
        self._task = self._loop.create_task(self._run(started), name="aioproducer supervisor", context=Context())
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
                crash = asyncio.CancelledError("one of the producer's own tasks was cancelled from outside")
        except BaseExceptionGroup as group:
            crash = group.exceptions[0]
        except asyncio.CancelledError as error:
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
