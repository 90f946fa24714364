"""Times the user's functions that are called in the event loop, and logs a warning about a slow one.

While a serializer, a partitioner or a callback blocks, no request is sent, no answer is read, and no other task runs. The warning never
contains the arguments of the function.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.guarded_log import GuardedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["LONG", "SlowCallbacks"]

_log = GuardedLog(__name__)
# Seconds after which a call is slow.
LONG: Final = 0.5
# Seconds between two warnings about one kind of function.
_WARN_EVERY: Final = 10.0
# Names of functions in a warning.
_MOST_NAMES: Final = 3
# Where `time` of the loops in real time is defined. A loop with a virtual clock has a method of its own.
_REAL_TIME: Final = frozenset({"asyncio.base_events", "uvloop.loop"})


class SlowCallbacks:
    """Times functions, and logs a warning about a slow call.

    Args:
        clock: returns the time in seconds.
        slow_after: seconds after which a call is slow.

    Attributes:
        is_real: the clock is asyncio's or uvloop's, which show real time; False: it is another one, such as a simulation's.
        clock: the same time, as cheaply as there is a clock for it.
        slow_after: as given.
    """

    __slots__ = ("_told", "clock", "is_real", "slow_after")

    def __init__(self, clock: Callable[[], float], slow_after: float = LONG) -> None:
        self.is_real: bool = getattr(getattr(clock, "__func__", None), "__module__", None) in _REAL_TIME
        self.clock: Callable[[], float] = time.monotonic if self.is_real else clock
        self.slow_after: float = slow_after
        self._told: dict[str, float] = {}

    def over(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with a timer around it; a warning calls it `kind`."""
        clock = self.clock

        def watched(*args: Any) -> Any:
            began = clock()
            try:
                return function(*args)
            finally:
                seconds = clock() - began
                if seconds > self.slow_after:
                    self.note(kind, seconds)

        return watched

    def call(self, kind: str, function: Callable[..., Any], *args: Any) -> Any:
        """Return what the function returns, and log a warning about a slow call."""
        began = self.clock()
        try:
            return function(*args)
        finally:
            self.note(kind, self.clock() - began)

    def note(self, kind: str, seconds: float, functions: Sequence[Callable[..., Any]] = ()) -> None:
        """Log a warning about a call that took so long, if it was slow, and if the last one of its kind is some time ago.

        `functions`: those that were called and that the warning names, some of them if there are many.
        """
        if seconds <= self.slow_after:
            return
        now = self.clock()
        if now - self._told.get(kind, -_WARN_EVERY) < _WARN_EVERY:
            return
        self._told[kind] = now
        _log.warning(
            "%s held the event loop for %.1f s: nothing was sent or answered meanwhile, and no other task ran. "
            "Do what takes long before `send`, or in a thread (asyncio.to_thread).",
            f"{kind} ({_names(functions)})" if functions else kind,
            seconds,
        )


def _names(functions: Sequence[Callable[..., Any]]) -> str:
    named = dict.fromkeys(map(_name, functions))
    return ", ".join(list(named)[:_MOST_NAMES]) + (", ..." if len(named) > _MOST_NAMES else "")


def _name(function: Callable[..., Any]) -> str:
    """Return a name without the function's arguments or values: a `repr` may have those."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))
