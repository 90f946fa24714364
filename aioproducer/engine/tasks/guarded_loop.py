"""Holds the event loop as the parts of a producer use it: guarded callbacks, and one timer for many deadlines.

1. An exception in a callback fails the producer (`GuardedLoop`). Otherwise the producer would hang. The loop only logs the exception of
   a callback, and continues. A batch with a partly processed answer would never end.
2. A timer is set for the earliest deadline, and set anew when it fires (`DeadlineTimer`). An event loop that was blocked for 40 s
   (blocking code, SIGSTOP, a suspended laptop) did not read the answers either. They are in the sockets. So a patient timer judges the
   deadlines that passed meanwhile one event-loop iteration later, after every socket was read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aioproducer.errors import ProtocolError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Handle, TimerHandle
    from collections.abc import Callable

__all__ = ["DeadlineTimer", "GuardedLoop"]


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

    def repeat_soon(self, callback: Callable[..., object], *args: Any) -> Handle:
        """Schedule a callback that may be called twice: again after an exception that ends the loop, such as KeyboardInterrupt, broke it off."""
        return self._loop.call_soon(self._repeat, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """Schedule `callback` at `when`, guarded. It may be called twice, as with `repeat_soon`. Returns the loop's handle."""
        return self._loop.call_at(when, self._repeat, callback, *args)

    def run(self, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback`, guarded. A ProtocolError is raised to the connection: a broker causes it, not a bug."""
        try:
            callback(*args)
        except ProtocolError:
            raise
        except Exception as error:
            self._on_bug(error)

    def _repeat(self, callback: Callable[..., object], *args: Any) -> None:
        try:
            callback(*args)
        except Exception as error:
            self._on_bug(error)
        except BaseException:
            self.repeat_soon(callback, *args)
            raise

    def guarded(self, callback: Callable[..., object], *args: Any) -> Callable[[Any], None]:
        """Return `callback`, guarded and with these arguments before its own, for other code to call."""
        return partial(self.run, callback, *args)


class DeadlineTimer:
    """Calls `ring(now)` at the deadline that `earliest()` returns. Call `check` after each change that may make that one earlier.

    Args:
        is_patient: the loop reads the sockets first. A deadline that passes is a failure, and an answer in time may be in the sockets.

    Attributes:
        timer: None: no timer is set. Where no deadline is earlier than those set before it, `check` is needed only then.
    """

    __slots__ = ("_earliest", "_is_patient", "_loop", "_ring", "_when", "timer")

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
        self.timer: Handle | None = None
        # Kept here: uvloop's handle does not have it if the timer was due at once.
        self._when = 0.0

    def check(self) -> None:
        """Set the timer for the earliest deadline, if it is not set for one as early."""
        when = self._earliest()
        if when is None:
            return
        if self.timer is not None:
            if self._when <= when:
                return
            self.timer.cancel()
            self.timer = None
        self._when = when
        self.timer = self._loop.call_at(when, self._on_timer)

    def stop(self) -> None:
        """Cancel the timer for good."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._earliest = lambda: None

    def _on_timer(self) -> None:
        # uvloop rounds to milliseconds, and runs a timer up to half of one early. Set for the rest, it would run again and again till the clock moves.
        now = max(self._loop.time(), self._when)
        self.timer = None
        # A loop may run timers before it reads sockets. A callback that a `call_soon` callback schedules runs after it has read them.
        if self._is_patient:
            self.timer = self._loop.call_soon(self._after_a_turn, now)
        else:
            self._judge(now)

    def _after_a_turn(self, now: float) -> None:
        self.timer = self._loop.call_soon(self._judge, now)

    def _judge(self, now: float) -> None:
        """Call `ring` if the earliest deadline passed by `now`, and set the timer anew.

        `now` is the time at which the timer fired. For deadlines that passed since then, the sockets may not have been read.
        """
        self.timer = None
        when = self._earliest()
        try:
            if when is not None and when <= now:
                self._ring(now)
        except BaseException as error:
            # What is due rings again.
            if not isinstance(error, Exception):
                self.check()
            raise
        self.check()
