"""Helpers to run tests in an event loop with jumping time, or in its replacement (loops.py), without sockets."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, TypeVar

import loops

from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["JumpingLoop", "jumping", "now", "run", "settle", "until"]

T = TypeVar("T")
_TURNS = 100


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a jumping loop; what the loop's exception handler is told of fails the test."""
    told: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=loops.jumping) as runner:
        runner.get_loop().set_exception_handler(lambda _loop, context: told.append(context))
        result = runner.run(main)
    assert not told, told
    return result


def jumping(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine function, which `run` runs."""

    @functools.wraps(test)
    def in_jumping_loop(*args: Any, **kwargs: Any) -> None:
        run(test(*args, **kwargs))

    return in_jumping_loop


def now() -> float:
    """Return the time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Let event-loop iterations pass until something holds. No time passes. Fails if it never holds."""
    for _ in range(_TURNS):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")
