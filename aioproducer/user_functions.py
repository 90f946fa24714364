"""Tells what the producer must know of each function that the user gives: whether a call of it is awaited, and what its failure is."""

from __future__ import annotations

import functools
import inspect
from asyncio import CancelledError
from typing import Final

__all__ = ["USER_FAILURES", "is_coroutine_function"]

# What a function of the user's raises as its own failure. A plain function is never cancelled: its CancelledError is a cancelled future's.
USER_FAILURES: Final = (Exception, CancelledError)


def is_coroutine_function(function: object) -> bool:
    """Return whether a call must be awaited: of a coroutine function, of an object whose `__call__` is one, or of a `partial` of these."""
    while isinstance(function, functools.partial):
        function = function.func
    # An object that can be called has the function in its class.
    called = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
