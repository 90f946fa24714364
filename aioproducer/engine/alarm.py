"""One timer for many deadlines: set for the earliest, asked again when it rings. Knows nothing of what is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable

__all__ = ["Alarm"]


class Alarm:
    """Calls `ring(now)` when `earliest()` has come. `check` after anything that may have made it earlier."""

    __slots__ = ("_earliest", "_loop", "_ring", "_timer", "_when")

    def __init__(self, loop: AbstractEventLoop, earliest: Callable[[], float | None], ring: Callable[[float], None]) -> None:
        self._loop = loop
        self._earliest = earliest
        self._ring = ring
        self._timer: TimerHandle | None = None
        self._when = 0.0  # uvloop's handle does not know it when it was for at once

    def check(self) -> None:
        """Set the timer for the earliest deadline, if it is not set for one as early."""
        when = self._earliest()
        if when is None:
            return
        if self._timer is not None:
            if self._when <= when:
                return
            self._timer.cancel()
        self._when = when
        self._timer = self._loop.call_at(when, self._on_timer)

    def stop(self) -> None:
        """Never ring again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._earliest = lambda: None

    def _on_timer(self) -> None:
        self._timer = None
        when = self._earliest()
        now = self._loop.time()
        if when is not None and when <= now:
            self._ring(now)
        self.check()
