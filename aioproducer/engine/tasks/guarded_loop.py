"""Holds a guard for the producer's own loop callbacks: an exception in one fails the producer.

Otherwise the producer would hang. The loop only logs the exception of a callback, and continues. A batch with a partly processed
answer would never end.
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
    """Offers the loop methods that the parts of a producer use, and calls `on_bug(error)` with each exception of their callbacks."""

    __slots__ = ("_loop", "_on_bug", "time")

    def __init__(self, loop: AbstractEventLoop, on_bug: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_bug = on_bug
        self.time: Callable[[], float] = loop.time

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Handle:
        """Schedule `callback` soon, guarded. Returns the loop's handle."""
        return self._loop.call_soon(self.run, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """Schedule `callback` at `when`, guarded. Returns the loop's handle."""
        return self._loop.call_at(when, self.run, callback, *args)

    def run(self, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback`, guarded. A ProtocolError is raised to the connection: a broker causes it, not a bug."""
        try:
            callback(*args)
        except ProtocolError:
            raise
        except Exception as error:  # noqa: BLE001  (any bug at all)
            self._on_bug(error)

    def guarded(self, callback: Callable[..., object], *args: Any) -> Callable[[Any], None]:
        """Return `callback`, guarded and with these arguments before its own, for other code to call."""
        return partial(self.run, callback, *args)
