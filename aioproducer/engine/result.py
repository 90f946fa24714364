"""What the deliveries of one batch share: its outcome, who waits for it, and what each record's metadata is made of.

Never the payload: kept deliveries keep only this. Knows nothing of batches' states, memory or the network.
"""

from __future__ import annotations

import enum
from asyncio import CancelledError, InvalidStateError
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.waiter import run_callback
from aioproducer.model import RecordMetadata, TimestampType
from aioproducer.records.record_batch import NULL, VARINT, unvarint

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Iterable, Iterator

    from aioproducer.engine.hot import Delivery
    from aioproducer.errors import DeliveryError

__all__ = ["BatchResult", "Home", "Outcome"]

_UNVARINT: Final = {encoded: value for value, encoded in enumerate(VARINT)} | {NULL: -1}
_new_tuple: Final = tuple.__new__
_STRIDE: Final = 16  # callbacks at a time
_TASK: Final = 8  # what waking a task costs, in callbacks: it runs user code
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
        "_gone",
        "_late",
        "_placed",
        "_places",
        "_unseen",
        "base_offset",
        "base_timestamp",
        "callbacks",
        "count",
        "error",
        "futures",
        "home",
        "key_sizes",
        "looked_at",
        "outcome",
        "partition",
        "timestamp_type",
        "timestamps",
        "topic",
        "value_sizes",
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
        self.futures: list[Future[None]] | None = None  # of tasks that await a record: a loop's own future is the cheapest
        self.callbacks: list[Any] | None = None  # delivery, callback, context, and so on: no object each
        self.key_sizes: list[bytes] = []
        self.value_sizes: list[bytes] = []
        self.timestamps: list[bytes] | None = None  # None: one timestamp for all
        self._unseen: Unseen | None = None
        self._late: list[Any] | None = None
        self._places: dict[Delivery, list[int]] | None = None  # of callbacks; made when the first is taken back
        self._placed = self._gone = 0
        self._context: Context | None = None

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
        """Acknowledged: who waits is woken by `waking`, once the caller's own state is consistent."""
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

    def context(self) -> Context:
        """The caller's context. Equal ones are kept once, not once for each record: the collector walks them."""
        context = copy_context()
        try:
            is_equal = self._context == context
        except Exception:  # noqa: BLE001  (values of the user's, say arrays, whose == is no truth value)
            is_equal = False
        if is_equal and self._context is not None:
            return self._context
        self._context = context
        return context

    def add_callback(self, delivery: Delivery, callback: Callable[[Any], object], context: Context) -> None:
        """Call `callback(delivery)` soon: the batch ended before."""
        self.look()
        if self._late is None:
            self._late = []
            self.home.loop.call_soon(self._run_late)  # one for all of them: a Handle each would be the main cost of gather
        self._late += (delivery, callback, context)

    def take_callbacks(self, delivery: Delivery, callback: Callable[[Any], object] | None) -> list[tuple[Any, Any]]:
        """Take back the delivery's callbacks that equal `callback`, all of them for None, each with its context."""
        flat = self.callbacks
        if flat is None:
            return []
        if self._places is None:
            self._places, self._placed, self._gone = {}, 0, 0
        for at in range(self._placed, len(flat), 3):
            self._places.setdefault(flat[at], []).append(at)
        self._placed = len(flat)
        taken = []
        for at in self._places.pop(delivery, ()):
            if callback in (None, flat[at + 1]):
                taken.append((flat[at + 1], flat[at + 2]))
                flat[at : at + 3] = (None, None, None)
            else:
                self._places.setdefault(delivery, []).append(at)
        self._gone += len(taken)
        if self._gone * 6 > len(flat):
            self.callbacks, self._places = [part for triple in _triples(flat) for part in triple], None
        return taken

    def waking(self) -> Iterator[int]:
        """Wake who awaits a record, and call back in the order of the records; after each it gives what that may cost, in callbacks.

        Only from a callback of the loop.
        """
        futures, self.futures = self.futures, None
        callbacks, self.callbacks = self.callbacks, None
        self._context = self._places = None
        for future in futures or ():
            if not future.done():
                future.set_result(None)
                yield _TASK
        if callbacks is not None:
            yield from self._calling_back(callbacks)

    def _calling_back(self, callbacks: list[Any]) -> Iterator[int]:
        triples = list(_triples(callbacks) if self._gone else _zipped(callbacks))
        order = [triple[0].index for triple in triples]
        if order != sorted(order):
            triples.sort(key=lambda triple: triple[0].index)
        loop = self.home.loop
        for at, (delivery, callback, context) in enumerate(triples, 1):
            run_callback(loop, context, callback, delivery)
            if not at % _STRIDE:
                yield _STRIDE

    @property
    def is_awaited(self) -> bool:
        """Whether `waking` has anything to do."""
        return self.futures is not None or self.callbacks is not None

    def _run_late(self) -> None:
        late, self._late = self._late, None
        for delivery, callback, context in _zipped(late or ()):
            run_callback(self.home.loop, context, callback, delivery)


def _triples(flat: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Delivery, callback and context of those that were not taken back."""
    return (triple for triple in _zipped(flat) if triple[0] is not None)


def _zipped(flat: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    parts = iter(flat)
    return zip(parts, parts, parts, strict=True)
