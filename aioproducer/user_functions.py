"""Tells of a function that the user gives whether a call of it is awaited, and which exceptions are its failure."""

from __future__ import annotations

import asyncio
import functools
import inspect
from asyncio import CancelledError
from typing import Final

__all__ = ["USER_FAILURES", "is_cancelled", "is_coroutine_function"]

# Exceptions that are a failure of the user's function. A plain function is never cancelled: its CancelledError is that of a cancelled future.
USER_FAILURES: Final = (Exception, CancelledError)


def is_coroutine_function(function: object) -> bool:
    """Return whether a call must be awaited: of a coroutine function, of an object with such a `__call__`, or of a `partial` of these."""
    while isinstance(function, functools.partial):
        function = function.func
    # An object that can be called has the function in its class.
    called = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def is_cancelled() -> bool:
    """Return whether the current task was cancelled. If it was not, a CancelledError in it is that of something that it awaits.

    The user's coroutines raise such an error when they await a task or a future that other code cancelled: it is their failure.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
