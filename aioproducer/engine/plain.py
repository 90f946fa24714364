"""The way of a record, in plain Python: append, Delivery and send are one tight unit.

What a record costs is decided here and nowhere else: at most four Python calls, one object that lives on (the delivery), no future,
task, lock or timer. All bookkeeping is per batch, in `engine.sender`. A compiled twin may stand beside this file; one contract
suite runs both.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError, get_running_loop
from bisect import bisect_right
from contextvars import copy_context
from itertools import accumulate
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from aioproducer.engine.result import Outcome, compact, latest
from aioproducer.engine.waiter import wake
from aioproducer.records.record_batch import FIELD, MOMENT, NULL, PARTS, TABLE, VARINT, field_size, varint

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from contextvars import Context

    from aioproducer.engine.result import BatchResult
    from aioproducer.errors import DeliveryError
    from aioproducer.model import Headers, RecordMetadata

__all__ = [
    "FULL",
    "RECORD_OVERHEAD",
    "TURN",
    "TURN_RECORDS",
    "Delivery",
    "OpenBatch",
    "SendPath",
    "Way",
    "here",
    "make_delivery",
    "measured",
    "uncollected",
    "wake",
]

K = TypeVar("K")
V = TypeVar("V")

# Whose turn it is, for less than 30 ns. CPython 3.11's get_running_loop asks the kernel for the process each time (250 ns); there the
# thread stands for the loop, and the loop itself is looked at once a turn, by `tick`.
here: Final[Callable[[], object]] = get_running_loop if sys.version_info >= (3, 12) else get_ident

_PENDING: Final = Outcome.PENDING
_DONE: Final = Outcome.DONE
_CANCELLED: Final = Outcome.CANCELLED
_SPLIT: Final = Outcome.SPLIT
_SOON: Final = len(MOMENT)
TURN: Final = 98_304  # bytes of room taken in one loop turn before the next send waits for the next: a millisecond of appending, or two
RECORD_OVERHEAD: Final = 130  # bytes of a record in an open batch beside its encoded ones: eight list slots and two bytes objects
TURN_RECORDS: Final = 512  # of a go, whatever their bytes: less than a millisecond where they are compiled
CLOSED: Final = "the batch is closed"
SHRINKS: Final = "a batch does not shrink"
_FLAT: Final = frozenset({list, tuple})
_BYTES: Final = frozenset({bytes})
_INDEX_ENDS: Final = {1: 64, 2: 8192, 3: TABLE}  # below it an index takes so many bytes; a batch of more is closed


class OpenBatch:
    """Records as parts in a list, joined when it closes (an `interfaces.OpenBatch`)."""

    __slots__ = ("_base_timestamp", "_fixed", "_is_even", "_moment", "_parts", "_room", "_timestamp", "count", "granted", "result")

    def __init__(self, result: BatchResult, timestamp_ms: int, room: int) -> None:
        self.result = result
        self.count = 0
        self._parts: list[bytes] = []
        self.granted = self._room = room
        self._base_timestamp = self._timestamp = timestamp_ms
        self._moment = MOMENT[0]  # attributes and timestamp delta: the same for all records of a turn
        self._is_even = True  # all records have this one
        self._fixed = 3  # bytes of that and of an empty header list

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None) -> Delivery | None:
        """The record's delivery, or None: no room, or not a plain record. Every other way is `append_record`'s."""
        if type(value) is not bytes:
            return None
        if timestamp_ms is not self._timestamp:
            if self._room <= 0:
                return None
            self._stamp(timestamp_ms)
        try:
            index = self.count
            offset_delta = VARINT[index]
            value_size = len(value)
            if type(key) is bytes:
                key_size = len(key)
                size = self._fixed + len(offset_delta) + FIELD[key_size] + FIELD[value_size]
                key_length = VARINT[key_size]
            elif key is None:
                size = self._fixed + len(offset_delta) + 1 + FIELD[value_size]
                key = b""
                key_length = NULL
            else:  # a view would find its cell too; strided, it would spoil the whole batch when that closes
                return None
            room = self._room - FIELD[size]
            if room < 0:
                return None
            self._parts += (VARINT[size], self._moment, offset_delta, key_length, key, VARINT[value_size], value, b"\0")
        except IndexError:  # longer than the table of varints
            return None
        self._room = room
        self.count = index + 1
        delivery = Delivery()
        delivery._result = self.result  # noqa: SLF001
        delivery.index = index
        return delivery

    def append_record(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes) -> Delivery | None:
        """`append` for any record; `headers` are encoded. None: no room."""
        if timestamp_ms is not self._timestamp:
            self._stamp(timestamp_ms)
        moment = self._moment
        offset_delta = varint(self.count)
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        size = len(moment) + len(offset_delta) + field_size(key_size) + field_size(value_size) + len(headers)
        if self._room < field_size(size):
            return None
        self._parts += (varint(size), moment, offset_delta, varint(key_size), key or b"", varint(value_size), value or b"", headers)
        self._room -= field_size(size)
        self.count += 1
        return make_delivery(self.result, self.count - 1)

    def append_many(self, timestamp_ms: int, keys: Sequence[bytes] | None, values: Sequence[bytes], first: int) -> int:
        """`append` for those from `first` on, at most as many as there is room for; gives their number, 0: no room.

        Column by column, so that no Python is run for a record. All are shorter than the table of varints.
        """
        if timestamp_ms is not self._timestamp:
            if self._room <= 0:
                return 0
            self._stamp(timestamp_ms)
        index = self.count
        index_size = len(varint(index))
        likely = self._room // (len(values[first]) + 6) + 1  # what is looked at in vain is looked at again
        most = min(likely, _INDEX_ENDS.get(index_size, 0) - index)
        if most <= 0:
            return 0
        some = values[first : first + most]
        some_keys = keys[first : first + most] if keys is not None else None
        count, size, lengths, key_lengths, value_lengths = _columns(self._fixed + index_size, some_keys, some, self._room)
        if not count:
            return 0
        block = [b"\0"] * (PARTS * count)
        block[0::PARTS] = lengths
        block[1::PARTS] = [self._moment] * count
        block[2::PARTS] = VARINT[index : index + count]
        block[3::PARTS] = key_lengths
        block[4::PARTS] = some_keys[:count] if some_keys is not None else [b""] * count
        block[5::PARTS] = value_lengths
        block[6::PARTS] = some[:count]
        self._parts += block
        self._room -= size
        self.count = index + count
        return count

    def _stamp(self, timestamp_ms: int) -> None:
        delta = timestamp_ms - self._base_timestamp
        moment = MOMENT[delta] if 0 <= delta < _SOON else b"\0" + varint(delta)
        self._timestamp = timestamp_ms
        if moment is not self._moment:
            self._is_even = not self.count
            self._moment = moment
            self._fixed = len(moment) + 1

    @property
    def used(self) -> int:
        """Bytes of its room that records take; of no meaning once it has closed."""
        return self.granted - max(self._room, 0)

    def grow(self, room: int) -> None:
        """Give it room for so many more encoded bytes."""
        if room < 0 or self._room < 0:
            raise ValueError(CLOSED if self._room < 0 else SHRINKS)
        self.granted += room
        self._room += room

    def detach(self) -> None:
        """Nobody is led straight to it any more; the compiled twin remembers whom it leads there."""

    def close(self) -> tuple[bytes, int, int]:
        """Its payload, base and max timestamp. What the records' metadata needs goes to the result; the parts are let go."""
        if self._room < 0:
            raise ValueError(CLOSED)
        parts, result = self._parts, self.result
        moments = self._moment if self._is_even else compact(parts[1::PARTS])
        result.count = self.count
        result.kept = (compact(parts[3::PARTS]), compact(parts[5::PARTS]), moments)
        self._parts = []
        self._room = -1
        return b"".join(parts), self._base_timestamp, self._base_timestamp + latest(moments)


def _columns(fixed: int, keys: Sequence[bytes] | None, values: Sequence[bytes], room: int) -> tuple[int, int, Any, Any, Any]:
    """Of the records that fit into `room`: number, bytes; of each its length, its key's and its value's, encoded."""
    value_sizes = list(map(len, values))
    key_sizes = list(map(len, keys)) if keys is not None else None
    if value_sizes.count(value_sizes[0]) == len(value_sizes) and (key_sizes is None or key_sizes.count(key_sizes[0]) == len(key_sizes)):
        key_size = key_sizes[0] if key_sizes is not None else -1
        return _even_columns(fixed + field_size(key_size) + FIELD[value_sizes[0]], key_size, value_sizes[0], len(values), room)
    return _uneven_columns(fixed, key_sizes, value_sizes, room)


def _even_columns(body: int, key_size: int, value_size: int, most: int, room: int) -> tuple[int, int, Any, Any, Any]:
    """Of records that are all of one size."""
    count = min(room // FIELD[body], most)
    return count, count * FIELD[body], [VARINT[body]] * count, [varint(key_size)] * count, [VARINT[value_size]] * count


def _uneven_columns(fixed: int, key_sizes: Sequence[int] | None, value_sizes: Sequence[int], room: int) -> tuple[int, int, Any, Any, Any]:
    if key_sizes is None:
        bodies = [fixed + 1 + FIELD[size] for size in value_sizes]
    else:
        bodies = [fixed + FIELD[key_size] + FIELD[size] for key_size, size in zip(key_sizes, value_sizes, strict=True)]
    ends = list(accumulate(map(FIELD.__getitem__, bodies)))
    count = bisect_right(ends, room)
    key_lengths = [NULL] * count if key_sizes is None else map(VARINT.__getitem__, key_sizes[:count])
    value_lengths = map(VARINT.__getitem__, value_sizes[:count])
    return count, ends[count - 1] if count else 0, map(VARINT.__getitem__, bodies[:count]), key_lengths, value_lengths


FULL: Final = OpenBatch(cast("Any", None), 0, -1)  # what a partition without an open batch holds: append says no, so nobody asks for None


if TYPE_CHECKING:
    # asyncio.wait takes what is declared a Future; at run time a Delivery is one by its methods alone
    FutureMetadata = Future[RecordMetadata]
else:
    FutureMetadata = object


class Delivery(FutureMetadata):
    """What became of one record: awaitable, and a future for asyncio's helpers (the seeds' `FutureRecordMetadata`).

    `await delivery` gives its `RecordMetadata` or raises its `DeliveryError`. It satisfies asyncio's future protocol by duck typing:
    `gather`, `wait`, `wait_for`, `shield` and `as_completed` take it without a task.

    Cancellation: cancelling a task that awaits it touches neither the record nor any other waiter. `cancel()`, which `gather` and
    Python 3.11's `wait_for` call, ends this handle; the record is sent all the same.
    """

    __slots__ = ("_result", "index")  # few and small: each is what the collector walks
    _asyncio_future_blocking = False  # asyncio.isfuture looks for it; a task blocks on a private future
    _cancel_message = None  # asyncio.gather(return_exceptions=True) asks it of a cancelled child; without it gather hangs
    _result: BatchResult
    index: int

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        result = self._result
        if result.outcome is _DONE:
            return result.metadata(self.index)
        index = self.index
        if result.outcome is _SPLIT:
            result, index = result.place_of(index)
        while result.outcome is _PENDING:
            future = result.home.loop.create_future()  # each task its own: cancelling it touches no other
            if result.futures is None:
                result.futures = [future]
            else:
                result.futures.append(future)
            yield from future
            result, index = result.place_of(index)
        return result.get(index)

    def result(self) -> RecordMetadata:
        """Its metadata.

        Raises:
            DeliveryError: the record was not acknowledged; each call raises its own.
            asyncio.InvalidStateError: it is still on its way.
            asyncio.CancelledError: this handle was cancelled.
        """
        result = self._result
        return result.metadata(self.index) if result.outcome is _DONE else result.get(self.index)

    def exception(self) -> DeliveryError | None:
        """Its `DeliveryError`, or None once acknowledged; raises as `result` does while neither is known."""
        return None if self._result.outcome is _DONE else self._follow().failure()

    def done(self) -> bool:
        """Whether it ended."""
        outcome = self._result.outcome
        return outcome is not _PENDING and (outcome is not _SPLIT or self._follow().outcome is not _PENDING)

    def cancelled(self) -> bool:
        """Whether this handle was cancelled."""
        return self._result.outcome is _CANCELLED

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002  (asyncio's signature)
        """End this handle, never the record. False if it had ended."""
        result = self._follow()
        if result.outcome is not _PENDING:
            return False
        self._result = result.home.cancelled
        result.look()
        for callback, context in result.take_callbacks(self, None):
            result.home.loop.call_soon(callback, self, context=context)
        return True

    def get_loop(self) -> AbstractEventLoop:
        """The producer's loop."""
        return self._result.home.loop

    def add_done_callback(self, callback: Callable[[Delivery], object], *, context: Context | None = None) -> None:
        """Call `callback(delivery)` once it ended, in the order of the records; one that raises harms no other."""
        result = self._result
        if result.outcome is _SPLIT:
            result = self._follow()
        result.looked_at = True
        if context is None:
            context = result.home.shared(copy_context())
        if result.outcome is not _PENDING:
            result.add_callback(self, callback, context)
        elif result.callbacks is None:
            result.callbacks = [self, callback, context]
        else:
            result.callbacks += (self, callback, context)

    def remove_done_callback(self, callback: Callable[[Delivery], object]) -> int:
        """Forget a callback; how many there were."""
        return len(self._result.take_callbacks(self, callback))

    def _follow(self) -> BatchResult:
        """What it shares with its batch, since a split perhaps another one than at first."""
        self._result, self.index = self._result.place_of(self.index)
        return self._result

    def _make_cancelled_error(self) -> CancelledError:
        """What `asyncio.gather` asks of a cancelled child; without it gather hangs."""
        return CancelledError()

    def __repr__(self) -> str:
        result = self._follow()
        where = f"{result.topic}-{result.partition}" if result.topic else "handle"
        return f"<Delivery {where} {result.outcome.value}>"


def uncollected(result: BatchResult) -> None:
    """Its batch ended well: the collector need not know the result, which is in no cycle once who waits was woken. Here it does."""


def measured(column: Sequence[Any]) -> tuple[int, int] | None:
    """Bytes of all items and of the longest; None: it is no list or tuple, or not all of them are bytes, of no class of one's own."""
    if type(column) not in _FLAT or not set(map(type, column)) <= _BYTES:
        return None
    sizes = list(map(len, column))
    return sum(sizes), max(sizes, default=0)


def make_delivery(result: BatchResult, index: int) -> Delivery:
    """The delivery of the record at `index` of a batch."""
    delivery = Delivery()
    delivery._result = result  # noqa: SLF001
    delivery.index = index
    return delivery


class Way:
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
        self.make_room: Callable[[Any, Any, bytes | None, bytes | None], Any] = lambda _route, _cell, _key, _value: None
        self.slowly = slowly
        self.now: Callable[..., Delivery]

    def forget(self, topic: str) -> None:
        """A topic is gone, and nothing else leads there: here nothing did but `fast`."""


def _go(way: Way, topic: str, value: Any, key: Any) -> Delivery | None:
    """The fast way of a plain record, as `send` has it without a call; None: take the slow one."""
    route = way.fast[topic]
    if here() != way.here:
        return None
    cell = route.sticky if key is None else route.by_key[key]
    now_ms = way.turn_ms or way.tick()
    way.taken = taken = way.taken + 1
    delivery: Delivery | None = cell.open.append(now_ms, key, value) if taken <= TURN_RECORDS or way.goes_on() else None
    if delivery is None:
        cell = way.make_room(route, cell, key, value)
        delivery = cell.open.append(now_ms, key, value) if cell is not None else None
    return delivery


class SendPath(Generic[K, V]):
    """`send`, and what it touches when nothing is in its way."""

    _way: Way

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Queue one record; the delivery it gives back resolves to its `RecordMetadata`.

        Returns once the record is queued, at once in the common case. Waits, in call order, while the topic is unknown, while
        `buffer_memory` is used up, or for one loop turn after many sends in one; at most `max_block_ms`. Two sends to one
        partition are logged in the order in which their calls first ran.

        Args:
            topic: where to.
            value: bytes, or what `value_serializer` takes; None is a tombstone.
            key: bytes, or what `key_serializer` takes; records of one key go to one partition (murmur2, as every Kafka client).
            partition: an explicit partition, whatever the key.
            timestamp_ms: the record's time, in ms since the epoch; None: now.
            headers: pairs of a string and bytes or None; keys may repeat, order is kept.

        Raises:
            UsageError: not bytes and no serializer, a bad partition, timestamp or header, or a closed producer.
            RecordTooLarge: key, value and headers exceed `max_request_size` bytes.
            MetadataTimeout: the topic or its partition is not known after `max_block_ms`.
            BufferExhausted: no memory after `max_block_ms`.
            PartitionUnavailable: its partition is muted, with a circuit breaker: after `max_block_ms`, or at once, as its policy has it.
            BrokerError: the cluster refuses the topic (its name, or who may write to it).
            None of these records was queued.

        Cancellation: while it waits, the record is not queued. Once it has returned, the record is sent whatever happens to the
        delivery. Like `KafkaProducer.send`, except that only the awaiting task waits (KIP-286).
        """
        way = self._way
        try:
            route = way.fast[topic]
            if partition is None and timestamp_ms is None and not headers and here() == way.here:
                cell = route.sticky if key is None else route.by_key[key]
                now_ms = way.turn_ms or way.tick()
                way.taken = taken = way.taken + 1
                delivery: Delivery | None = cell.open.append(now_ms, key, value) if taken <= TURN_RECORDS or way.goes_on() else None
                if delivery is not None:
                    return delivery
                cell = way.make_room(route, cell, key, value)  # type: ignore[arg-type]  # it says no to what is not bytes
                if cell is not None:
                    delivery = cell.open.append(now_ms, key, value)
                    if delivery is not None:
                        return delivery
        except (KeyError, TypeError, AttributeError):  # no open way to that topic, or no plain record; the slow way says which
            pass
        return await way.slowly(topic, value, key, partition, timestamp_ms, headers)

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """`send`, then wait for the acknowledgement.

        Raises:
            DeliveryError: the record was queued and not acknowledged; `persisted` says whether it may be in the log.
            What `send` raises: it was not queued.
        Cancellation: while `send` waits, the record is not queued; after that it is sent all the same.
        """
        return await (await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers))

    def send_nowait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """`send` without waiting: for plain functions that run in the producer's loop.

        Raises:
            WouldBlock: the record would have to wait; why is in the text. A topic that is not known is asked for: try later, or
                `await producer.partitions_for(topic)` once before.
            What `send` raises else. The record was not queued.
        """
        way = self._way
        try:
            delivery = _go(way, topic, value, key) if partition is None and timestamp_ms is None and not headers else None
        except (KeyError, TypeError, AttributeError):  # as in `send`
            delivery = None
        return delivery if delivery is not None else way.now(topic, value, key, partition, timestamp_ms, headers)
