"""The timer of a connection's requests: it reports the first request that is not answered by its deadline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioproducer.net.in_flight_requests import InFlightRequest, InFlightRequests

__all__ = ["RequestTimer"]


class RequestTimer:
    """Watches the deadlines of the requests in flight with one timer, which stays armed when the request it was armed for is answered.

    Args:
        on_timeout: called with a request that passed its deadline. The timer is not armed again by then.

    Attributes:
        armed_for: the deadline that the timer is armed for. `arm` is called for a request with an earlier one.
    """

    __slots__ = ("_loop", "_on_timeout", "_requests", "_timer", "armed_for")

    def __init__(self, loop: asyncio.AbstractEventLoop, requests: InFlightRequests, on_timeout: Callable[[InFlightRequest], None]) -> None:
        self._loop = loop
        self._requests = requests
        self._on_timeout = on_timeout
        self._timer: asyncio.Handle | None = None
        self.armed_for: float = math.inf

    def cancel(self) -> None:
        """Cancel the timer, because the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def arm(self, deadline: float) -> None:
        """Arm the timer for `deadline`, which is earlier than the one that it is armed for."""
        self.cancel()
        self.armed_for = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        # No other timer is armed until `_judge` has run.
        self.armed_for = -math.inf
        self._timer = self._loop.call_soon(self._on_next_iteration, self._loop.time())

    def _on_next_iteration(self, now: float) -> None:
        self._timer = self._loop.call_soon(self._judge, now)

    def _judge(self, now: float) -> None:
        """Report a request that passed its deadline by `now`, the time at which the timer fired.

        `_judge` runs two event-loop iterations after the timer. A callback that blocks the loop past a deadline delays the answer too, and
        in these iterations the loop reads the socket.
        """
        self._timer = None
        self.armed_for = math.inf
        if not self._requests:
            return
        first = self._requests.first_to_expire
        if first.deadline > now:
            self.arm(first.deadline)
        else:
            self._on_timeout(first)
