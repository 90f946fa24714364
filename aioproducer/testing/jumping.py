"""An event loop with virtual time: it skips the wait for the next timer; tests of minutes take milliseconds.

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main())          # or `run_jumping(main())`

No task in it may wait for a socket or a thread, as virtual time passes meanwhile: use `FakeCluster(memory=True)`.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

__all__ = ["JumpingLoop", "run_jumping"]

T = TypeVar("T")
_START: Final = 1000.0  # seconds; not 0, so that code that treats time 0 as "no time" fails


class _Selector(selectors.DefaultSelector):
    """Moves the clock forward instead of waiting."""

    now = _START

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("every task waits, and for no timer: a deadlock")
            self.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time: `time()` begins at 1000 seconds, and moves only when no callback is ready.

    `run_until_complete` raises RuntimeError when every task waits and no timer runs: in real time it would wait for ever.

    Attributes:
        runs_threads_inline: tells the producer to make the calls at once for which it has daemon threads.
    """

    runs_threads_inline: Final = True

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._clock.now

    def advance(self, seconds: float) -> None:
        """Let time pass without running callbacks, as when the process was stopped or its machine asleep."""
        self._clock.now += seconds


def run_jumping(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` as `asyncio.run` does, in a `JumpingLoop`. Returns its result."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)
