"""Callbacks of our own in which a bug may hide: an exception there fails the producer, rather than leave it hanging.

The loop only logs what a callback raises, and goes on: a batch whose answer was half taken in would never end. Knows nothing of what
the callbacks do.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aioproducer.errors import ProtocolError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Handle, TimerHandle
    from collections.abc import Callable

__all__ = ["GuardedLoop"]


class GuardedLoop:
    """What our parts use of their loop, with `on_bug(error)` told of what their callbacks raise."""

    __slots__ = ("_loop", "_on_bug", "time")

    def __init__(self, loop: AbstractEventLoop, on_bug: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_bug = on_bug
        self.time = loop.time

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Handle:
        """The loop's, guarded."""
        return self._loop.call_soon(self.run, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """The loop's, guarded."""
        return self._loop.call_at(when, self.run, callback, *args)

    def run(self, callback: Callable[..., object], *args: Any) -> None:
        """Call back. A ProtocolError is a broker's doing, not a bug: it goes on to the connection."""
        try:
            callback(*args)
        except ProtocolError:
            raise
        except Exception as error:  # noqa: BLE001  (any bug at all)
            self._on_bug(error)

    def guarded(self, callback: Callable[..., object], *args: Any) -> Callable[[Any], None]:
        """That callback with these arguments before its own, for somebody else to call."""
        return partial(self.run, callback, *args)
