"""The end of a producer whose object was collected without `stop`.

1. `Producer.__del__` runs in any thread and inside any call, so it only asks the loop to begin.
2. On the loop a task sends what is queued, at most `close_timeout_ms`; then the engine ends.
3. A loop that ends first, by cancelling all tasks or by being closed, ends the engine at once.

In each case one warning of the logger `aioproducer` says how many records could not be sent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Coroutine

__all__ = ["DroppedProducer"]

_log = logging.getLogger("aioproducer")


class DroppedProducer:
    """Ends one engine.

    Args:
        name: the producer's client id and brokers.
        spawn: starts a task of the engine's supervisor; None: the supervisor starts none any more.
        flush: sends what is queued, for a bounded time.
        end: ends the engine at once, and gives the number of records that were lost.
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
        """Begin on the loop, or end at once if it is closed. From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:  # the loop is closed
            self._finish()

    def _begin(self) -> None:
        self._flushing = self._run()
        task = self._spawn(self._flushing, "flush of a dropped producer")
        if task is None:
            self._finish()
        else:
            task.add_done_callback(lambda _task: self._finish())  # a task that is cancelled before its first step runs no `finally`

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
        told = f"{lost} records could not be sent, or were not acknowledged" if lost else "all its records were sent"
        _log.warning("%s: the producer was dropped without stop(): %s. Use `async with Producer(...)`, or stop it", self._name, told)

    def __del__(self) -> None:
        """Its loop was closed, or dropped, with the flush still to be done."""
        if not self._has_ended:
            if self._flushing is not None:
                self._flushing.close()
            self._finish()
