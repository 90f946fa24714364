"""What the deliveries of one batch share: its outcome, who waits for it, and what each record's metadata is made of.

Never the payload: kept deliveries keep only this. Knows nothing of batches' states, memory or the network.
"""

from __future__ import annotations

import enum
from asyncio import CancelledError, InvalidStateError
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.waiter import Waiter, run_callback
from aioproducer.model import RecordMetadata, TimestampType
from aioproducer.records.record_batch import VARINT, unvarint

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator

    from aioproducer.engine.hot import Delivery
    from aioproducer.errors import DeliveryError

__all__ = ["BatchResult", "Home", "Outcome"]

_UNVARINT: Final = {encoded: value for value, encoded in enumerate(VARINT[:-1])} | {b"\x01": -1}
_new_tuple: Final = tuple.__new__
_CREATE_TIME: Final = TimestampType.CREATE_TIME


class Outcome(enum.Enum):
    """How a batch ended, for those who wait for its records."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


PENDING: Final = Outcome.PENDING
DONE: Final = Outcome.DONE


class Home:
    """What the results of one producer share: its loop, the result of cancelled deliveries, and who hears of unseen failures."""

    __slots__ = ("cancelled", "loop", "on_unseen")

    def __init__(self, loop: AbstractEventLoop, on_unseen: Callable[[DeliveryError, int], None]) -> None:
        self.loop = loop
        self.on_unseen = on_unseen
        self.cancelled = BatchResult(self, "", -1, 0)
        self.cancelled.outcome = Outcome.CANCELLED


class Unseen:
    """Released with the result of a failed batch: if nobody looked at it by then, nobody will. Only failures pay for it."""

    __slots__ = ("_count", "_error", "_home", "seen")

    def __init__(self, home: Home, error: DeliveryError, count: int, *, seen: bool) -> None:
        self._home = home
        self._error = error
        self._count = count
        self.seen = seen

    def __del__(self) -> None:
        if not self.seen:
            self._home.on_unseen(self._error, self._count)


class BatchResult:
    """The shared outcome of a batch's records (the seeds' `ProduceRequestResult`)."""

    __slots__ = (
        "_context",
        "_is_sorted",
        "_last_index",
        "_late",
        "_unseen",
        "base_offset",
        "base_timestamp",
        "count",
        "error",
        "home",
        "key_sizes",
        "looked_at",
        "outcome",
        "partition",
        "timestamp_type",
        "timestamps",
        "topic",
        "value_sizes",
        "waiters",
    )

    def __init__(self, home: Home, topic: str, partition: int, base_timestamp: int) -> None:
        self.home = home
        self.topic = topic
        self.partition = partition
        self.base_timestamp = base_timestamp
        self.timestamp_type = _CREATE_TIME
        self.outcome = PENDING
        self.base_offset = -1
        self.count = 0
        self.error: DeliveryError | None = None
        self.looked_at = False
        self.waiters: dict[Any, tuple[Any, ...] | None] | None = None
        self.key_sizes: list[bytes] = []
        self.value_sizes: list[bytes] = []
        self.timestamps: list[bytes] | None = None  # None: one timestamp for all
        self._unseen: Unseen | None = None
        self._late: list[tuple[Any, ...]] | None = None
        self._context: Context | None = None
        self._last_index = -1
        self._is_sorted = True

    # What a delivery tells

    def get(self, index: int) -> RecordMetadata:
        """The metadata of the record at `index`, or what `Delivery.result` raises."""
        if self.outcome is DONE:
            return self.metadata(index)
        error = self.failure()
        assert error is not None
        raise error

    def failure(self) -> DeliveryError | None:
        """An error of the looker's own, None once acknowledged; raises while neither is known."""
        if self.outcome is PENDING:
            raise InvalidStateError("The record is still on its way.")
        if self.outcome is Outcome.CANCELLED:
            raise CancelledError
        self.look()
        return None if self.error is None else self.error.again()

    def metadata(self, index: int) -> RecordMetadata:
        """The metadata of the record at `index`, made when it is asked for."""
        offset = self.base_offset
        timestamp = self.base_timestamp
        if self.timestamps is not None:
            timestamp += unvarint(self.timestamps[index][1:])
        key_size = self.key_sizes[index]
        value_size = self.value_sizes[index]
        return _new_tuple(  # the class's own __new__ is a Python function, and three times slower
            RecordMetadata,
            (
                self.topic,
                self.partition,
                offset + index if offset >= 0 else -1,
                timestamp,
                self.timestamp_type,
                _UNVARINT.get(key_size) or unvarint(key_size),
                _UNVARINT.get(value_size) or unvarint(value_size),
            ),
        )

    # Its one end

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """Acknowledged: who waits is woken by `wake`, once the caller's own state is consistent."""
        self.outcome = DONE
        self.base_offset = base_offset
        if log_append_time_ms >= 0:
            self.base_timestamp = log_append_time_ms
            self.timestamps = None
            self.timestamp_type = TimestampType.LOG_APPEND_TIME

    def fail(self, error: DeliveryError) -> None:
        """Failed: each look raises its own copy of `error`."""
        self.outcome = Outcome.FAILED
        self.error = error
        self._unseen = Unseen(self.home, error, self.count, seen=self.looked_at)

    def look(self) -> None:
        """Somebody sees, or will see, how it ends."""
        self.looked_at = True
        if self._unseen is not None:
            self._unseen.seen = True

    # Who waits

    def add_waiter(self, index: int) -> Waiter:
        """A waiter for the task that awaits the record at `index`."""
        waiter = Waiter(self.home.loop, index)
        self._enter(waiter, index, None)
        return waiter

    def remove_waiter(self, waiter: Waiter) -> None:
        """Forget a waiter; nothing if it was woken."""
        if self.waiters is not None:
            self.waiters.pop(waiter, None)

    def add_callback(self, delivery: Delivery, callback: Callable[[Any], object], context: Context | None) -> None:
        """Call `callback(delivery)` once the batch ended; soon if it has."""
        if context is None:
            context = copy_context()
            if self._context is not None and self._context == context:
                context = self._context  # an equal snapshot: keep one, not one for each record that the collector walks
            else:
                self._context = context
        if self.outcome is not PENDING:
            if self._late is None:
                self._late = []
                self.home.loop.call_soon(self._run_late)  # one for all of them: a Handle each would be the main cost of gather
            self._late.append((callback, context, delivery))
            return
        calls = self.waiters.get(delivery) if self.waiters is not None else None
        self._enter(delivery, delivery.index, (*(calls or ()), callback, context))

    def remove_callback(self, delivery: Delivery, callback: Callable[[Any], object]) -> int:
        """Forget a callback; how many there were."""
        calls = self.waiters.get(delivery) if self.waiters is not None else None
        if not calls or self.waiters is None:
            return 0
        kept = [(calls[at], calls[at + 1]) for at in range(0, len(calls), 2) if calls[at] != callback]
        if kept:
            self.waiters[delivery] = tuple(part for pair in kept for part in pair)
        else:
            del self.waiters[delivery]
        return len(calls) // 2 - len(kept)

    def cancel_callbacks(self, delivery: Delivery) -> None:
        """The delivery was cancelled: its own callbacks run soon, the record goes its way."""
        calls = self.waiters.pop(delivery, None) if self.waiters is not None else None
        for at in range(0, len(calls or ()), 2):
            assert calls is not None
            self.home.loop.call_soon(calls[at], delivery, context=calls[at + 1])

    def take_waiters(self) -> Iterator[tuple[Any, tuple[Any, ...] | None]] | None:
        """Those who wait, in the order of their records; None if nobody does. Each is given to `wake_one` once."""
        waiters, self.waiters = self.waiters, None
        self._context = None
        if not waiters:
            return None
        if self._is_sorted:
            return iter(waiters.items())
        return iter(sorted(waiters.items(), key=lambda entry: entry[0].index))

    def wake_one(self, who: Any, calls: tuple[Any, ...] | None) -> None:
        """Wake one waiter, or run one delivery's callbacks. Only from a callback of the loop."""
        if calls is None:
            who.wake()
            return
        for at in range(0, len(calls), 2):
            run_callback(self.home.loop, calls[at + 1], calls[at], who)

    def _enter(self, who: Any, index: int, calls: tuple[Any, ...] | None) -> None:
        if self.waiters is None:
            self.waiters = {}
        self.waiters[who] = calls
        if index < self._last_index:
            self._is_sorted = False
        self._last_index = index

    def _run_late(self) -> None:
        late, self._late = self._late, None
        for callback, context, delivery in late or ():
            run_callback(self.home.loop, context, callback, delivery)
