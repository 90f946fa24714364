"""Tells a cancellation or the end of the current task from an equal exception of a user's coroutine that the task awaits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

__all__ = ["is_cancelled", "without_generator_exit"]

T = TypeVar("T")


def is_cancelled() -> bool:
    """Return whether the current task was cancelled. If it was not, a CancelledError in it is that of something that it awaits.

    The user's coroutines raise such an error when they await a task or a future that other code cancelled: it is their failure.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def without_generator_exit(what: str, awaited: Awaitable[T]) -> T:
    """Return the result of the user's coroutine `awaited`, which `what` names in an error's text.

    Raises:
        RuntimeError: the coroutine raised GeneratorExit, which would end the task.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task(loop)
    try:
        return await awaited
    except GeneratorExit as error:
        # The garbage collector closes this coroutine after its loop was closed. The loop does not run the task then.
        if task is None or asyncio.current_task(loop) is not task:
            raise
        raise RuntimeError(f"{what} raised GeneratorExit") from error
