"""The one place that makes tasks: a supervisor task that owns all others. Knows nothing of what they do."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["Supervisor"]


class Supervisor:
    """Owns a task group in a task of its own, so that neither who starts nor who stops the producer is bound to it.

    Args:
        on_crash: called once if a task ends by an exception of its own, or is cancelled from outside; the others are then gone.
    """

    def __init__(self, on_crash: Callable[[BaseException], None]) -> None:
        self._on_crash = on_crash
        self._loop = asyncio.get_running_loop()
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._children: dict[asyncio.Task[None], None] = {}  # in the order of their start, which a set would not keep
        self._is_stopping = False
        self._cancelled_from_outside = False

    async def start(self) -> None:
        """Start the supervisor, in an empty context: what the caller carries is not its tasks' business."""
        started = asyncio.Event()
        self._task = self._loop.create_task(self._run(started), name="aioproducer supervisor", context=Context())
        _keep_quiet(self._task)
        await started.wait()

    def spawn(self, coroutine: Coroutine[None, None, None], name: str) -> asyncio.Task[None] | None:
        """Start a task of the group, in an empty context: `start` and its metadata run in the caller's. None: the group has ended."""
        if self._group is None or self._is_stopping:
            coroutine.close()
            return None
        try:
            task = self._group.create_task(coroutine, name=f"aioproducer {name}", context=Context())
        except RuntimeError:  # the group ends, as when all tasks are cancelled from outside
            coroutine.close()
            return None
        _keep_quiet(task)
        self._children[task] = None
        task.add_done_callback(self._on_child_done)
        return task

    def _on_child_done(self, task: asyncio.Task[None]) -> None:
        self._children.pop(task, None)
        if task.cancelled() and not self._is_stopping:
            self._cancelled_from_outside = True
            self._stopping.set()

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
        except RuntimeError:  # the group cannot cancel tasks of a closed loop; the producer's ResourceWarning says what happened
            if not self._loop.is_closed():
                raise
        finally:
            self._group = None
        if crash is not None and not self._is_stopping:
            self._on_crash(crash)

    def stop(self) -> None:
        """End every task; `ended` waits for it."""
        self._is_stopping = True
        self._stopping.set()

    @property
    def has_ended(self) -> bool:
        """Whether the last task is gone, of those that there were."""
        return self._task is not None and self._task.done()

    def when_ended(self, callback: Callable[[], object]) -> None:
        """Call back once the last task is gone: now, if there is none."""
        if self._task is None or self._task.done() or self._loop.is_closed():
            callback()
        else:
            self._task.add_done_callback(lambda _task: callback())

    async def ended(self) -> None:
        """Until the last task is gone. Cancellation: they end all the same."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])


def _keep_quiet(task: asyncio.Task[None]) -> None:
    """A loop that is closed without `stop()` gives the producer's own ResourceWarning; a line for each task would only bury it."""
    if hasattr(task, "_log_destroy_pending"):
        task._log_destroy_pending = False  # noqa: SLF001
