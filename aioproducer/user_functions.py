"""Tells two facts of a function that the user gives: whether a call of it is awaited, and which exceptions are its failure."""

from __future__ import annotations

import functools
import inspect
from asyncio import CancelledError
from typing import Final

__all__ = ["USER_FAILURES", "is_coroutine_function"]

# Exceptions that are a failure of the user's function. A plain function is never cancelled: its CancelledError is that of a cancelled future.
USER_FAILURES: Final = (Exception, CancelledError)


def is_coroutine_function(function: object) -> bool:
    """Return whether a call must be awaited: of a coroutine function, of an object with such a `__call__`, or of a `partial` of these."""
    while isinstance(function, functools.partial):
        function = function.func
    # An object that can be called has the function in its class.
    called = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
