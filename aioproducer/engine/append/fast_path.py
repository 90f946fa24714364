"""The fast path of `send` in plain Python: one dict lookup leads to the batch that a record is appended to.

The compiled twin is `_fast_path.pyx`; one contract suite runs both.
"""

from __future__ import annotations

import sys
from asyncio import get_running_loop
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer.engine.delivery.delivery import Delivery

__all__ = ["SLICE_BYTES", "SLICE_RECORDS", "FastPath", "here"]

# Identifies the running loop in less than 30 ns. CPython 3.11's get_running_loop asks the kernel for the process each time (250 ns).
# There the thread identifies the loop instead, and `tick` looks at the loop itself, once an event-loop iteration.
here: Final[Callable[[], object]] = get_running_loop if sys.version_info >= (3, 12) else get_ident
# Bytes that sends append in one event-loop iteration before the next send waits: a millisecond of appending, or two.
SLICE_BYTES: Final = 98_304
# Records that one task sends before it waits for the event loop, regardless of their bytes.
SLICE_RECORDS: Final = 512


class FastPath:
    """Holds the state by which `send` appends a record at once, if the fast path is open.

    Attributes:
        fast: topic routings by topic while no send waits before a new one, else empty. One assignment closes every topic.
        here: the value of `here()` where the producer lives.
        turn_ms: the time of this event-loop iteration, 0 before its first send.
        taken: records that this iteration appended one by one; beyond `SLICE_RECORDS`, `goes_on` decides.
        goes_on: returns whether this iteration may append another record; asked again some records later. False: the slow path waits.
        tick: called by the first send of an iteration: returns its time, and schedules a drain at its end.
        takes_headers: records may have headers; the compiled twin takes these on the fast path.
        make_room: returns the partition with bytes left for a plain record that did not fit; None: the record takes the slow path.
        slowly: called for every send that is not fast, with the arguments of `send`.
        now: called like `slowly`, for sends that must not wait.
    """

    __slots__ = ("fast", "goes_on", "here", "make_room", "now", "slowly", "taken", "takes_headers", "tick", "turn_ms")

    def __init__(self, tick: Callable[[], int], slowly: Callable[..., Awaitable[Delivery]]) -> None:
        self.fast: dict[str, Any] = {}
        self.here: object = None
        self.turn_ms: int = 0
        self.taken: int = 0
        self.takes_headers: bool = True
        self.tick: Callable[[], int] = tick
        self.goes_on: Callable[[], bool] = lambda: True
        self.make_room: Callable[[Any, Any, bytes | None, bytes | None], Any] = lambda _routing, _queue, _key, _value: None
        self.slowly: Callable[..., Awaitable[Delivery]] = slowly
        self.now: Callable[..., Delivery]

    def append(self, topic: str, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery | None:
        """Append a record to its partition's open batch. Returns its delivery, or None: the record takes the slow path.

        The slow path raises the error of a record that is not valid.
        """
        try:
            routing = self.fast[topic]
            if partition is not None or timestamp_ms is not None or headers or here() != self.here:
                return None
            queue = routing.sticky if key is None else routing.by_key[key]
            now_ms = self.turn_ms or self.tick()
            self.taken = taken = self.taken + 1
            delivery: Delivery | None = queue.open.append(now_ms, key, value) if taken <= SLICE_RECORDS or self.goes_on() else None
            if delivery is None:
                queue = self.make_room(routing, queue, key, value)
                if queue is not None:
                    delivery = queue.open.append(now_ms, key, value)
        # RuntimeError: no loop runs in this thread (Python 3.12).
        except (KeyError, TypeError, AttributeError, RuntimeError):
            return None
        return delivery
