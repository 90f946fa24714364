"""Ends the engine of a producer that was garbage-collected without `stop`.

1. `Producer.__del__` runs in any thread and inside any call. So it only schedules the end on the event loop.
2. There a task sends the queued records, for at most `close_timeout_ms`. Then the engine ends.
3. If the event loop ends first, because all tasks are cancelled or it is closed, the engine ends at once. The same happens at the end of
   a program that left the event loop open, which `loop.run_until_complete` does: `Shutdown.end_with_program`. A producer that the program
   still references is only reported then, because a function that was registered with `atexit` earlier is called later, and may stop it.

In each case one warning of the logger `aioproducer` says how many records could not be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.counting import counted
from aioproducer.guarded_log import GuardedLog

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Coroutine

__all__ = ["DroppedProducer", "warn"]

_log = GuardedLog("aioproducer")


class DroppedProducer:
    """Ends the engine of one dropped producer.

    Args:
        name: the producer's client id and brokers.
        spawn: starts a task of the engine's supervisor; returns None if the supervisor has ended.
        flush: sends the queued records, for a bounded time.
        end: ends the engine at once, and returns the number of records that were lost.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        name: str,
        *,
        spawn: Callable[[Coroutine[None, None, None], str], Task[None] | None],
        flush: Callable[[], Coroutine[None, None, None]],
        end: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._name = name
        self._spawn = spawn
        self._flush = flush
        self._end = end
        self._flushing: Coroutine[None, None, None] | None = None
        self._has_ended = False

    def schedule(self) -> None:
        """Schedule the end on the event loop, or end at once if it is closed. Any thread may call it."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
        # The event loop is closed.
        except RuntimeError:
            self._finish()

    def _begin(self) -> None:
        self._flushing = self._run()
        task = self._spawn(self._flushing, "flush of a dropped producer")
        if task is None:
            self._finish()
        else:
            # A task that is cancelled before its first step does not run its `finally` block.
            task.add_done_callback(lambda _task: self._finish())

    async def _run(self) -> None:
        try:
            await self._flush()
        finally:
            self._finish()

    def _finish(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        lost = self._end()
        told = f"{counted(lost, 'record')} not sent, or not acknowledged" if lost else "all its records were sent"
        warn(self._name, "the producer was dropped", told)

    def finish(self) -> None:
        """End the engine now, unless it has ended. The event loop does not run any more."""
        if self._has_ended:
            return
        if self._flushing is not None:
            self._flushing.close()
        self._finish()

    def __del__(self) -> None:
        """End the engine if the event loop was closed or dropped before the flush ended."""
        self.finish()


def warn(name: str, event: str, told: str) -> None:
    """Log the warning that a producer was not stopped: what happened instead, and what became of its records."""
    _log.warning("%s: %s without stop(): %s. Use `async with Producer(...)`, or stop it", name, event, told)
