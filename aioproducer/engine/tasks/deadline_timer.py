"""One timer for many deadlines: set for the earliest, asked again when it rings.

Whoever held the loop for 40 s (blocking code, SIGSTOP, a laptop that slept) held the answers too: they are in the sockets. So a patient
alarm judges what passed meanwhile one turn later, after every socket was read. Knows nothing of what is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Handle
    from collections.abc import Callable

    from aioproducer.engine.tasks.guarded_loop import GuardedLoop

__all__ = ["DeadlineTimer"]


class DeadlineTimer:
    """Calls `ring(now)` when `earliest()` has come. `check` after anything that may have made it earlier.

    Args:
        is_patient: read the sockets first: what is due is a failure, and what would prevent it may have come.
    """

    __slots__ = ("_earliest", "_is_patient", "_loop", "_ring", "_timer", "_when")

    def __init__(
        self,
        loop: AbstractEventLoop | GuardedLoop,
        earliest: Callable[[], float | None],
        ring: Callable[[float], None],
        *,
        is_patient: bool = False,
    ) -> None:
        self._loop = loop
        self._earliest = earliest
        self._ring = ring
        self._is_patient = is_patient
        self._timer: Handle | None = None
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

    def ensure(self) -> None:
        """Set the timer if none is set: enough where no deadline is earlier than those that came before it."""
        if self._timer is None:
            self.check()

    def stop(self) -> None:
        """Never ring again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._earliest = lambda: None

    def _on_timer(self) -> None:
        now = self._loop.time()
        if self._is_patient:  # a loop may run timers before it reads; what is called soon by what is called soon comes after it has read
            self._timer = self._loop.call_soon(self._after_a_turn, now)
        else:
            self._judge(now)

    def _after_a_turn(self, now: float) -> None:
        self._timer = self._loop.call_soon(self._judge, now)

    def _judge(self, now: float) -> None:
        """`now` is when the timer came, not later: of what passed since, the sockets may not have been read."""
        self._timer = None
        when = self._earliest()
        if when is not None and when <= now:
            self._ring(now)
        self.check()
