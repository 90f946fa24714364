"""A loop whose time jumps: instead of waiting for its next timer, it is there. Nothing in it may need a socket."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["JumpingLoop", "run", "settle", "until"]

T = TypeVar("T")
_TURNS = 100


class _Selector(selectors.SelectSelector):
    """Where the loop would wait for a timer, its clock moves."""

    moved = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "every task waits and no timer runs: a deadlock"
            self.moved += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose `time()` starts at 1000 seconds and moves only when nothing is left to do."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return 1000.0 + self._clock.moved


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a jumping loop; what the loop's exception handler is told of fails the test."""
    told: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _loop, context: told.append(context))
        result = runner.run(main)
    assert not told, told
    return result


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Let loop turns pass until something holds; no time passes, and what never holds fails."""
    for _ in range(_TURNS):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")
