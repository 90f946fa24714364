# cython: language_level=3, annotation_typing=False, nonecheck=True, auto_pickle=False
"""Holds `ProduceRequestResult`, which the deliveries of one batch share.

It has the outcome of the batch, the callbacks and tasks that wait for it, and the data of each record's metadata. It never has the
payload: deliveries that the application keeps hold only this.
"""

from __future__ import annotations

import time
from array import array
from asyncio import CancelledError, InvalidStateError
from functools import lru_cache
from itertools import repeat
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aioproducer.engine.delivery.outcome import Outcome
from aioproducer.engine.observability.diagnostics import SlowCallbacks
from aioproducer.engine.tasks.supervisor import run_callbacks
from aioproducer.model import RecordMetadata, TimestampType
from aioproducer.records.varints import NO_DELTA, unvarint, varint

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextvars import Context
    from typing import Protocol

    from aioproducer.errors import DeliveryError

    class Delivery(Protocol):
        """Describes the delivery of a record of the batch (`delivery.Delivery`, or the compiled one)."""

        index: int

        def _follow(self) -> ProduceRequestResult: ...


_new_tuple: Final = tuple.__new__
_index: Final = attrgetter("index")
# Records that share one tuple of equal sizes.
_EQUAL: Final = 1024
# A value for each record, encoded or as a number; or the one value that all records share, encoded.
Column: TypeAlias = "list[bytes] | array[int] | bytes"
Call: TypeAlias = "tuple[Context, Callable[[Any], object], Delivery]"
# Many calls, by columns.
Calls: TypeAlias = "tuple[list[Context], list[Callable[[Any], object]], list[Delivery]]"
# Three columns: lengths of keys, lengths of values, moments (the attributes and the timestamp delta of a record).
Kept: TypeAlias = "Iterable[Column]"
_CREATE_TIME: Final = TimestampType.CREATE_TIME


PENDING: Final = Outcome.PENDING
ACKNOWLEDGED: Final = Outcome.ACKNOWLEDGED
DONE: Final = Outcome.DONE
SPLIT: Final = Outcome.SPLIT


class DeliveryContext:
    """Holds what the results of one producer share: its loop, its wall clock, and the result of cancelled deliveries.

    Args:
        on_unseen: called with the error and the number of records of each failed batch that no code looked at.
        wall_clock: returns seconds since the epoch.

    Attributes:
        context: the context of the last callback that was added, until callbacks are called. Later callbacks with an equal one share it.
        watch: measures the duration of the user's functions.
    """

    __slots__ = (
        "_cancelled",
        "_is_calling_back",
        "_wall_clock",
        "context",
        "loop",
        "on_unseen",
        "watch",
    )

    def __init__(
        self,
        loop: AbstractEventLoop,
        on_unseen: Callable[[DeliveryError, int], None],
        wall_clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self.loop: AbstractEventLoop = loop
        self.on_unseen: Callable[[DeliveryError, int], None] = on_unseen
        self.context: Context | None = None
        self._wall_clock = wall_clock
        self.watch: SlowCallbacks = SlowCallbacks(loop.time)
        self._is_calling_back = False
        self._cancelled: ProduceRequestResult = self._new_cancelled(None)

    def cancelled(self, message: object) -> ProduceRequestResult:
        """Return the result of deliveries that are cancelled with this message, as `asyncio.Future.cancel` takes one."""
        if self._cancelled.cancel_message is not message:
            self._cancelled = self._new_cancelled(message)
        return self._cancelled

    def _new_cancelled(self, message: object) -> ProduceRequestResult:
        result = ProduceRequestResult(self, "", -1, 0)
        result.outcome = Outcome.CANCELLED
        result.cancel_message = message
        return result

    def shared(self, context: Context) -> Context:
        """Return `context`, or an equal one that is kept already: the cyclic collector walks each context that is kept."""
        try:
            is_equal = self.context == context
        except Exception:
            is_equal = False
        if is_equal and self.context is not None:
            return self.context
        self.context = context
        return context

    def call_back(
        self,
        contexts: Sequence[Context],
        callbacks: Sequence[Callable[..., Any]],
        rest: Iterator[Call],
    ) -> None:
        """Call the callbacks that `rest` still yields, and measure their duration. `contexts` are the contexts of all `callbacks`.

        After a BaseException, the callbacks that were not called stay in `rest`.
        """
        began = self.watch.clock()
        before, self._is_calling_back = self._is_calling_back, True
        if before:
            # A callback runs the loop itself (`nest_asyncio`), in a context that cannot be entered twice.
            contexts, rest = (
                (),
                ((context.copy(), callback, delivery) for context, callback, delivery in rest),
            )
        try:
            run_callbacks(self.loop, contexts, rest)
        finally:
            self._is_calling_back = before
            seconds = self.watch.clock() - began
            if seconds > self.watch.slow_after:
                self.watch.note("a delivery's done callback", seconds, callbacks)

    def now_ms(self) -> int:
        """Return the current time for a record's timestamp."""
        return int(self._wall_clock() * 1000)


class Unseen:
    """Holds the failure of a batch, and is released with the batch's result.

    If no code has looked at the failure by then, no code can any more. Only failed batches have such an object.
    """

    __slots__ = ("_count", "_delivery_context", "_error", "seen")

    def __init__(
        self, delivery_context: DeliveryContext, error: DeliveryError, count: int, *, seen: bool
    ) -> None:
        self._delivery_context = delivery_context
        self._error = error
        self._count = count
        self.seen: bool = seen

    def __del__(self) -> None:
        if not self.seen:
            self._delivery_context.on_unseen(self._error, self._count)


class ProduceRequestResult:
    """Holds the shared outcome of a batch's records."""

    __slots__ = (
        "_deltas",
        "_gone",
        "_key_sizes",
        "_late",
        "_moved",
        "_placed",
        "_places",
        "_unseen",
        "_value_sizes",
        "base_offset",
        "base_timestamp",
        "callbacks",
        "cancel_message",
        "count",
        "delivery_context",
        "error",
        "futures",
        "looked_at",
        "outcome",
        "partition",
        "record_sizes",
        "timestamp_type",
        "topic",
    )

    def __init__(
        self, delivery_context: DeliveryContext, topic: str, partition: int, base_timestamp: int
    ) -> None:
        self.delivery_context: DeliveryContext = delivery_context
        self.topic: str = topic
        self.partition: int = partition
        self.base_timestamp: int = base_timestamp
        self.timestamp_type: TimestampType = _CREATE_TIME
        self.outcome: Outcome = PENDING
        self.base_offset: int = -1
        self.count: int = 0
        self.error: DeliveryError | None = None
        self.looked_at: bool = False
        # The futures of tasks that await a record. The loop's own kind of future costs least.
        self.futures: list[Future[None]] | None = None
        # Delivery, callback, context, delivery, and so on, without an object for each callback.
        self.callbacks: list[Any] | None = None
        self.record_sizes: Kept | None = None
        self._key_sizes: Sequence[int] = ()
        self._value_sizes: Sequence[int] = ()
        # The deltas of the records' timestamps to the base; None: all timestamps equal the base.
        self._deltas: Sequence[int] | None = None
        self._unseen: Unseen | None = None
        self._late: list[Any] | None = None
        # After a split, the result that has each record now, and the record's index there.
        self._moved: Sequence[tuple[ProduceRequestResult, int]] = ()
        # The positions in `callbacks` by delivery. Made when the first callback is removed.
        self._places: dict[Delivery, list[int]] | None = None
        self._placed = self._gone = 0
        self.cancel_message: object = None

    # Results for deliveries

    def get(self, index: int) -> RecordMetadata:
        """Return the metadata of the record at `index`. Raises as `Delivery.result` does."""
        if self.outcome is ACKNOWLEDGED:
            self._read()
        if self.outcome is DONE:
            return self.metadata(index)
        if self.outcome is ACKNOWLEDGED:
            return self.metadata(index)._replace(offset=-1)
        if self.outcome is SPLIT:
            result, index = self.place_of(index)
            return result.get(index)
        error = self.failure()
        assert error is not None
        raise error

    def get_many(self, first: int, count: int) -> Iterator[RecordMetadata]:
        """Return an iterator of `get` for `count` records from `first` on. It raises an error in the place of its record."""
        if self.outcome is ACKNOWLEDGED:
            self._read()
        if self.outcome is not DONE:
            return map(self.get, range(first, first + count))
        end = first + count
        base = repeat(self.base_timestamp, count)
        timestamps = base if self._deltas is None else map(add, base, self._deltas[first:end])
        columns = zip(
            repeat(self.topic, count),
            repeat(self.partition),
            range(self.base_offset + first, self.base_offset + end),
            timestamps,
            repeat(self.timestamp_type),
            self._key_sizes[first:end],
            self._value_sizes[first:end],
        )
        return map(_new_tuple, repeat(RecordMetadata), columns)

    async def wait(self) -> None:
        """Wait until the batch has ended or was split."""
        while self.outcome is PENDING:
            future = self.delivery_context.loop.create_future()
            self.futures = [*(self.futures or ()), future]
            await future

    def failure(self) -> DeliveryError | None:
        """Return a new copy of the batch's error for this caller, or None once the batch is acknowledged.

        Raises:
            asyncio.InvalidStateError: the batch is pending.
            asyncio.CancelledError: this is the result of cancelled deliveries.
        """
        if self.outcome is PENDING:
            raise InvalidStateError("The record is still on its way.")
        if self.outcome is Outcome.CANCELLED:
            raise self.cancelled_error()
        if self.outcome is ACKNOWLEDGED:
            self._read()
        self.look()
        return None if self.error is None else self.error.again()

    def cancelled_error(self) -> CancelledError:
        """Return the error of a cancelled delivery. It has the message: anyio knows the cancellations of its scopes by that alone."""
        return (
            CancelledError() if self.cancel_message is None else CancelledError(self.cancel_message)
        )

    def metadata(self, index: int) -> RecordMetadata:
        """Return the metadata of the record at `index`. The outcome must be DONE."""
        deltas = self._deltas
        # The class's own __new__ is a Python function, and three times slower.
        return _new_tuple(
            RecordMetadata,
            (
                self.topic,
                self.partition,
                self.base_offset + index,
                self.base_timestamp if deltas is None else self.base_timestamp + deltas[index],
                self.timestamp_type,
                self._key_sizes[index],
                self._value_sizes[index],
            ),
        )

    def _read(self) -> None:
        """Decode the sizes and timestamps of all records, when the first of them is needed.

        The outcome becomes DONE, unless offsets are not known (acks=0).
        """
        if self.record_sizes is None:
            return
        keys, values, moments = self.record_sizes
        self._key_sizes = _numbers(keys, self.count)
        self._value_sizes = _numbers(values, self.count)
        if self.timestamp_type is _CREATE_TIME and moments != NO_DELTA:
            self._deltas = _deltas(moments, self.count)
        self.record_sizes = None
        if self.base_offset >= 0:
            self.outcome = DONE

    # End of the batch

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """Acknowledge the records. `CompletionQueue` notifies their waiters, once the caller's own state is consistent."""
        self.outcome = ACKNOWLEDGED
        self.base_offset = base_offset
        if log_append_time_ms >= 0:
            self.base_timestamp = log_append_time_ms
            self.timestamp_type = TimestampType.LOG_APPEND_TIME

    def fail(self, error: DeliveryError) -> None:
        """Fail the records. Each look at the failure raises its own copy of `error`."""
        self.outcome = Outcome.FAILED
        self.error = error
        self._unseen = Unseen(self.delivery_context, error, self.count, seen=self.looked_at)

    def split(self, groups: Sequence[Sequence[int]]) -> list[ProduceRequestResult]:
        """Split the batch into groups of its records. Returns a result for each group.

        Callbacks move at once. Tasks that await a record are woken as if the batch had ended. They then wait for the result that has
        the record now.
        """
        assert self.record_sizes is not None
        keys, values, moments = self.record_sizes
        deltas = _deltas(moments, self.count)
        parts = [self._part(group, keys, values, deltas) for group in groups]
        moved = {
            index: (part, at)
            for part, group in zip(parts, groups, strict=True)
            for at, index in enumerate(group)
        }
        self._moved = [moved[index] for index in range(self.count)]
        callbacks: dict[ProduceRequestResult, list[Any]] = {part: [] for part in parts}
        for triple in _triples(self.callbacks or ()):
            callbacks[self._moved[triple[0].index][0]] += triple
        # By assignments alone: each callback is here or there, wherever KeyboardInterrupt comes.
        for part in parts:
            part.callbacks = callbacks[part] or None
        self.outcome, self.record_sizes = SPLIT, None
        self.callbacks = self._places = None
        self._gone = 0
        for part in parts:
            for delivery, _, _ in _triples(callbacks[part]):
                delivery._follow()
        return parts

    @property
    def parts(self) -> list[ProduceRequestResult]:
        """Return the results that the batch was split into."""
        return list(dict.fromkeys(part for part, _ in self._moved))

    def _part(
        self, group: Sequence[int], keys: Column, values: Column, deltas: Sequence[int]
    ) -> ProduceRequestResult:
        base = deltas[group[0]]
        part = ProduceRequestResult(
            self.delivery_context, self.topic, self.partition, self.base_timestamp + base
        )
        part.count = len(group)
        part.looked_at = self.looked_at
        moments = compact([b"\0" + varint(deltas[index] - base) for index in group])
        part.record_sizes = (_some(keys, group), _some(values, group), moments)
        return part

    def place_of(self, index: int) -> tuple[ProduceRequestResult, int]:
        """Return the result that a record of this batch has now, and the record's index there."""
        result = self
        while result.outcome is SPLIT:
            result, index = result._moved[index]
        return result, index

    def largest(self) -> int:
        """Return the bytes of the largest record's key and value. The batch must have closed and not ended."""
        assert self.record_sizes is not None
        keys, values, _ = self.record_sizes
        sizes = zip(
            _numbers(keys, self.count)[: self.count],
            _numbers(values, self.count)[: self.count],
            strict=True,
        )
        return max(max(key, 0) + max(value, 0) for key, value in sizes)

    def look(self) -> None:
        """Note that some code sees, or will see, how the batch ends."""
        self.looked_at = True
        if self._unseen is not None:
            self._unseen.seen = True

    # Waiters

    def add_callback(
        self, delivery: Delivery, callback: Callable[[Any], object], context: Context
    ) -> None:
        """Schedule `callback(delivery)`: the batch has ended already."""
        if self._unseen is not None:
            self._unseen.seen = True
        if self._late is None:
            self._late = []
            # One Handle for all of them: a Handle for each would be the main cost of gather.
            self.delivery_context.loop.call_soon(self._run_late)
        self._late += (delivery, callback, context)

    def take_callbacks(
        self, delivery: Delivery, callback: Callable[[Any], object] | None
    ) -> list[tuple[Any, Any]]:
        """Remove the delivery's callbacks that equal `callback`, or all of them if it is None. Returns each with its context."""
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
            self.callbacks, self._places = (
                [part for triple in _triples(flat) for part in triple],
                None,
            )
        return taken

    def waiters(
        self, are_in_order: Callable[[list[Delivery]], bool]
    ) -> tuple[Calls | None, list[Future[None]]]:
        """Return the waiters of the records: callbacks in the order of the records, and futures of tasks. The caller clears both lists.

        The first item is None if there are no callbacks. `are_in_order`: the function of the same build as the deliveries.
        """
        futures, flat = self.futures, self.callbacks
        self._places = self.delivery_context.context = None
        if flat is None:
            return None, futures or []
        if self._gone:
            flat = [part for triple in _triples(flat) for part in triple]
        deliveries, callbacks, contexts = flat[0::3], flat[1::3], flat[2::3]
        if not are_in_order(deliveries):
            order = list(map(_index, deliveries))
            places = sorted(range(len(order)), key=order.__getitem__)
            deliveries, callbacks, contexts = (
                [kind[at] for at in places] for kind in (deliveries, callbacks, contexts)
            )
        return (contexts, callbacks, deliveries), futures or []

    def _run_late(self) -> None:
        late, self._late, self.delivery_context.context = self._late or [], None, None
        contexts, callbacks = late[2::3], late[1::3]
        self._call_late(contexts, callbacks, zip(contexts, callbacks, late[0::3], strict=True))

    def _call_late(
        self,
        contexts: Sequence[Context],
        callbacks: Sequence[Callable[..., Any]],
        rest: Iterator[Call],
    ) -> None:
        # If a callback runs the loop itself, or ends it by a BaseException, the other callbacks are called in the next iteration.
        again = self.delivery_context.loop.call_soon(self._call_late, contexts, callbacks, rest)
        self.delivery_context.call_back(contexts, callbacks, rest)
        again.cancel()


def compact(lengths: list[bytes]) -> list[bytes] | bytes:
    """Return the one value that all records share, or else `lengths`: deliveries may be kept by the million."""
    different = set(lengths)
    return different.pop() if len(different) == 1 else lengths


def _some(lengths: Column, group: Sequence[int]) -> Column:
    if isinstance(lengths, bytes):
        return lengths
    if isinstance(lengths, array):
        return array(lengths.typecode, [lengths[index] for index in group])
    return compact([lengths[index] for index in group])


def latest(moments: list[bytes] | bytes) -> int:
    """Return the largest timestamp delta of the records, in milliseconds."""
    return (
        _delta(moments) if isinstance(moments, bytes) else max(map(_delta, set(moments)), default=0)
    )


def _delta(moment: bytes) -> int:
    return unvarint(moment[1:])


def _deltas(moments: Column, count: int) -> Sequence[int]:
    """Return the timestamp delta of each record."""
    if isinstance(moments, bytes):
        return [_delta(moments)] * count
    if isinstance(moments, array):
        return moments
    deltas = {moment: _delta(moment) for moment in set(moments)}
    return [deltas[moment] for moment in moments]


def _numbers(lengths: Column, count: int) -> Sequence[int]:
    if isinstance(lengths, bytes):
        return _equal(lengths, max(count, _EQUAL))
    if isinstance(lengths, array):
        return lengths
    return tuple(map(_decoded, lengths))


@lru_cache(4096)
def _decoded(length: bytes) -> int:
    return unvarint(length)


@lru_cache(64)
def _equal(length: bytes, count: int) -> Sequence[int]:
    return (unvarint(length),) * count


def _triples(flat: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Return the delivery, callback and context of each callback that was not removed."""
    return (triple for triple in _zipped(flat) if triple[0] is not None)


def _zipped(flat: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    parts = iter(flat)
    return zip(parts, parts, parts, strict=True)
