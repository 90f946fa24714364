"""Waking those who wait for records, a bounded time in each loop turn. Knows nothing of why a batch ended."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Handle
    from collections.abc import Iterator

    from aioproducer.engine.guard import GuardedLoop
    from aioproducer.engine.result import BatchResult

__all__ = ["Completions"]

_TURN: Final = 0.002  # seconds of waking in one loop turn; who is woken runs user code
_MOST: Final = 2048  # callbacks in one loop turn, or what they stand for
_STRIDE: Final = 128  # of the same between two looks at the clock


class Completions:
    """Results whose waiters are still to be woken, in the order of their ends."""

    __slots__ = ("_due", "_loop", "_queue")

    def __init__(self, loop: AbstractEventLoop | GuardedLoop) -> None:
        self._loop = loop
        self._queue: deque[Iterator[int]] = deque()
        self._due: Handle | None = None  # a turn of its own

    def add(self, result: BatchResult) -> None:
        """A batch ended; its waiters' turn comes with `run`, or by itself in the next loop turn."""
        if result.futures is not None or result.callbacks is not None:
            self._queue.append(result.waking())
            self._schedule()

    def _schedule(self) -> None:
        if self._due is None:
            self._due = self._loop.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._due = None
        self.run()

    def run(self) -> None:
        """Wake in order until done, or until this turn's part is. Only from a callback of the loop."""
        queue = self._queue
        until = self._loop.time() + _TURN
        spent = looked = 0
        try:
            while queue:
                for cost in queue[0]:
                    spent += cost
                    if spent >= _MOST:
                        return
                    if spent - looked >= _STRIDE:
                        looked = spent
                        if self._loop.time() > until:
                            return
                queue.popleft()
        finally:
            if queue:
                self._schedule()
            elif self._due is not None:  # one callback less for each answer
                self._due.cancel()
                self._due = None
