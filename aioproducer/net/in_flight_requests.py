"""The requests of one connection that are sent and not answered, and the slots that bound its produce requests.

1. A broker answers the requests of a connection in order (NET-12), so the oldest one is completed next.
2. Slots bound the produce requests (`max_in_flight_requests_per_connection`). A drain takes a slot before its batches are encoded, which
   may last longer than one event-loop iteration. So a slot is taken before its request is in the queue, and counts from then on.
3. The slots end with their connection. One that is released after the connection was lost is no slot of the next connection.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.wire.api import ApiKey


class InFlightRequest(NamedTuple):
    """Holds what is needed to take the answer to a request.

    Attributes:
        deadline: the loop's time by which the answer must come.
        on_answer: called once, with the `Answer` or with the error that ended the connection.
    """

    correlation_id: int
    key: ApiKey
    version: int
    deadline: float
    on_answer: Callable[[Any], None]


class InFlightRequests:
    """Holds the unanswered requests of a connection, the oldest first, and the slots for its produce requests.

    It must be made in a task: elsewhere, anyio with sniffio finds no event loop and makes a semaphore that no callback can use.

    Args:
        limit: number of slots.

    Attributes:
        requests: the unanswered requests. The connection appends those that it wrote, and takes the oldest when it is answered or fails.
    """

    __slots__ = ("_slots", "requests")

    def __init__(self, limit: int) -> None:
        self.requests: deque[InFlightRequest] = deque()
        # `Producer` imports anyio when the first one is made, so that the import of `Producer` stays light.
        from anyio import Semaphore

        self._slots: Semaphore = Semaphore(limit, max_value=limit)

    # Slots

    def can_send_more(self, *, is_written: bool) -> bool:
        """Return True if another produce request may be sent: the requests so far are written, and a slot is free.

        Java's `canSendMore` returns True at once if no request is in flight. Here requests with acks=0, which are not in the queue, fill
        the write buffer too, and batches that are being encoded have slots.

        Args:
            is_written: False if the transport is paused, because the bytes of earlier requests fill its write buffer.
        """
        return is_written and self._slots.value > 0

    def try_acquire(self) -> bool:
        """Take a slot. Returns False if none is free. No task waits for a slot, because a drain is synchronous."""
        if not self._slots.value:
            return False
        self._slots.acquire_nowait()
        return True

    def release(self) -> None:
        """Release a slot, also if the connection was lost meanwhile.

        Raises:
            ValueError: every slot is free.
        """
        self._slots.release()

    # The queue

    def __len__(self) -> int:
        """Return the number of unanswered requests."""
        return len(self.requests)

    @property
    def first_to_expire(self) -> InFlightRequest:
        """Return the request with the earliest deadline; there must be one."""
        return min(self.requests, key=attrgetter("deadline"))

    def extend(self, seconds: float) -> None:
        """Extend the deadlines of all requests by `seconds`, for which the broker does not read (NET-14)."""
        self.requests = deque(
            request._replace(deadline=request.deadline + seconds) for request in self.requests
        )
