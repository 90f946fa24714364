"""Who held the loop: the user's functions that are called in it are timed, and one that took long is named in a warning.

While a serializer, a partitioner or a callback blocks, nothing is sent or answered, and no other task runs. Knows nothing of what the
functions do; their arguments are never told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SlowCallbacks"]

_log = logging.getLogger(__name__)
_LONG: Final = 0.5  # seconds
_WARN_EVERY: Final = 10.0  # seconds between two warnings of one kind of function


class SlowCallbacks:
    """Times functions.

    Args:
        clock: seconds.
    """

    __slots__ = ("_clock", "_told")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}

    def over(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed; `kind` is what a warning calls it."""
        clock = self._clock

        def watched(*args: Any) -> Any:
            began = clock()
            try:
                return function(*args)
            finally:
                if clock() - began > _LONG:
                    self._tell(kind, clock() - began)

        return watched

    def _tell(self, kind: str, seconds: float) -> None:
        now = self._clock()
        if now - self._told.get(kind, -_WARN_EVERY) < _WARN_EVERY:
            return
        self._told[kind] = now
        _log.warning(
            "%s held the event loop for %.1f s: nothing was sent or answered meanwhile, and no other task ran. "
            "Do what takes long before `send`, or in a thread (asyncio.to_thread).",
            kind,
            seconds,
        )
