"""A loop whose time jumps: where it would wait for its next timer, it is there at once. Tests of minutes take milliseconds.

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main())          # or `run_jumping(main())`

Nothing in it may wait for a socket or a thread, as time would not wait with it: use `FakeCluster(memory=True)`.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["JumpingLoop", "run_jumping"]

T = TypeVar("T")
_START: Final = 1000.0  # seconds; not 0, so that what takes a missing time for the first is seen


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, moves the clock."""

    now = _START

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("every task waits, and for no timer: a deadlock")
            self.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose `time()` begins at 1000 seconds, and moves only when nothing is left to do.

    RuntimeError ends `run_until_complete` when every task waits and no timer runs: in real time it would wait for ever.
    """

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Seconds."""
        return self._clock.now

    def advance(self, seconds: float) -> None:
        """Let time pass in which nothing runs, as when the process was stopped or its machine asleep."""
        self._clock.now += seconds


def run_jumping(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in a `JumpingLoop`."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)
