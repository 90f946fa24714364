"""Take a record along the fast path of `send`, in plain Python: one dict lookup leads to the batch that the record is appended to.

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

__all__ = ["TURN", "TURN_RECORDS", "FastPath", "here"]

# What tells in less than 30 ns whether the running loop is the producer's. CPython 3.11's get_running_loop asks the kernel for the process
# each time (250 ns); there the thread stands for the loop, and `tick` looks at the loop itself, once an iteration.
here: Final[Callable[[], object]] = get_running_loop if sys.version_info >= (3, 12) else get_ident
# Bytes that sends take in one loop iteration before the next send waits for the next one: a millisecond of appending, or two.
TURN: Final = 98_304
# Records that one task sends before the loop gets its turn, whatever their bytes.
TURN_RECORDS: Final = 512


class FastPath:
    """What `send` looks at: whether the way is open, and what it needs to go along it.

    Attributes:
        fast: routes by topic while nobody waits before us, else empty: one assignment closes every topic.
        here: what `here()` gives where the producer lives.
        turn_ms: the time of this loop turn, 0 before its first send.
        taken: records that this loop turn took in one by one; beyond `TURN_RECORDS` it is asked about.
        goes_on: whether another may be taken in this turn, asked again some records later; False: it takes the slow way, which waits.
        tick: the first send of a turn: gives its time, and sees to a drain at its end.
        takes_headers: records may have some; the compiled twin takes them the fast way.
        make_room: the partition whose batch has room for a plain record that did not fit; None: it takes the slow way.
        slowly: every send that is not fast; the arguments of `send`.
        now: likewise, of those that would not wait.
    """

    __slots__ = ("fast", "goes_on", "here", "make_room", "now", "slowly", "taken", "takes_headers", "tick", "turn_ms")

    def __init__(self, tick: Callable[[], int], slowly: Callable[..., Awaitable[Delivery]]) -> None:
        self.fast: dict[str, Any] = {}
        self.here: object = None
        self.turn_ms = 0
        self.taken = 0
        self.takes_headers = True
        self.tick = tick
        self.goes_on: Callable[[], bool] = lambda: True
        self.make_room: Callable[[Any, Any, bytes | None, bytes | None], Any] = lambda _routing, _queue, _key, _value: None
        self.slowly = slowly
        self.now: Callable[..., Delivery]

    def append(self, topic: str, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery | None:
        """Append a record to its partition's open batch. Returns its delivery, or None: the record takes the slow path.

        The slow path says what is wrong with a record, if that is why.
        """
        try:
            routing = self.fast[topic]
            if partition is not None or timestamp_ms is not None or headers or here() != self.here:
                return None
            queue = routing.sticky if key is None else routing.by_key[key]
            now_ms = self.turn_ms or self.tick()
            self.taken = taken = self.taken + 1
            delivery: Delivery | None = queue.open.append(now_ms, key, value) if taken <= TURN_RECORDS or self.goes_on() else None
            if delivery is None:
                queue = self.make_room(routing, queue, key, value)
                if queue is not None:
                    delivery = queue.open.append(now_ms, key, value)
        except (KeyError, TypeError, AttributeError, RuntimeError):  # the last: no loop runs in this thread (Python 3.12)
            return None
        return delivery
