"""Holds `MemoryRecordsBuilder`, which writes every record of the producer into its batch, in plain Python.

A record costs one call and the delivery that `append` returns. The data of its batch is computed when the batch closes. The compiled
twin is `_records_builder.pyx`; one contract suite runs both.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.engine.delivery.delivery import Delivery, make_delivery
from aioproducer.engine.delivery.produce_request_result import compact, latest
from aioproducer.records.record_batch import PARTS
from aioproducer.records.varints import NO_DELTA, NULL, TABLE
from aioproducer.records.varints import varint as computed_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.engine.delivery.produce_request_result import ProduceRequestResult

# Prepared varints and field sizes: plain Python looks one up more quickly than it computes one. They take 3 MiB, so only this build has them.

# The byte of each seven bits that more follow, and of each that none follow.
_MORE: Final = [bytes((bits | 0x80,)) for bits in range(128)]
_LAST: Final = [bytes((bits,)) for bits in range(128)]
# Zigzag doubles a number, so the lowest seven bits are even. The numbers count the lowest bits first, as `product` the last factor.
VARINT: Final[list[bytes]] = [
    *_LAST[::2],
    *(low + high for high, low in product(_LAST[1:], _MORE[::2])),
    *(
        low + middle + high
        for high, middle, low in product(_LAST[1 : TABLE >> 13], _MORE, _MORE[::2])
    ),
]
# A record's first bytes after its length: no attributes, and the milliseconds since the first record of its batch.
MOMENT: Final = [b"\0" + delta for delta in VARINT[:4096]]
# Bytes of a field and of the length before it.
FIELD: Final = [
    size + length
    for length, sizes in ((1, range(64)), (2, range(64, 8192)), (3, range(8192, TABLE)))
    for size in sizes
]

# Bytes of a record in an open batch beside its encoded ones: eight list slots and two bytes objects.
RECORD_OVERHEAD: Final = 130
CLOSED: Final = "the batch is closed"
SHRINKS: Final = "a batch does not shrink"
_SOON: Final = len(MOMENT)
_FLAT: Final = frozenset({list, tuple})
_BYTES: Final = frozenset({bytes})
# An index below the value takes as many bytes as the key. A batch with more records than the last value is closed.
_INDEX_ENDS: Final = {1: 64, 2: 8192, 3: TABLE}


def varint(value: int) -> bytes:
    """Return a value of up to 64 bits as a zigzag varint."""
    return VARINT[value] if 0 <= value < TABLE else computed_varint(value)


def field_size(size: int) -> int:
    """Return the bytes of a field of `size` bytes (-1: null) with the length before it."""
    if size < 0:
        return len(NULL)
    return FIELD[size] if size < TABLE else len(computed_varint(size)) + size


class MemoryRecordsBuilder:
    """Holds a batch's records as parts in a list, and joins them when the batch closes.

    It is Java's MemoryRecordsBuilder, and an `interfaces.OpenBatch`.

    Attributes:
        result: the result that the records' deliveries share.
        count: the number of records in the batch.
        granted: bytes of encoded records that the batch may take, including those that it has.
    """

    __slots__ = (
        "_base_timestamp",
        "_closed",
        "_fixed",
        "_is_even",
        "_moment",
        "_parts",
        "_room",
        "_timestamp",
        "count",
        "granted",
        "result",
    )

    def __init__(self, result: ProduceRequestResult, timestamp_ms: int, room: int) -> None:
        self.result: ProduceRequestResult = result
        self.count: int = 0
        self._parts: list[bytes] = []
        self._closed: tuple[bytes, int, int] | None = None
        self.granted: int = room
        self._room = room
        self._base_timestamp = self._timestamp = timestamp_ms
        # The attributes and the timestamp delta: the same for all records of an event-loop iteration.
        self._moment = MOMENT[0]
        # All records have this moment.
        self._is_even = True
        # Bytes of the moment and of an empty header list.
        self._fixed = 3

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None) -> Delivery | None:
        """Append a plain record. Returns its delivery, or None: too few bytes are left, or it is no plain record.

        `append_record` accepts every record.
        """
        if type(value) is not bytes:
            return None
        if timestamp_ms is not self._timestamp:
            if self._room <= 0:
                return None
            self._stamp(timestamp_ms)
        try:
            value_size = len(value)
            # Without a call behind `index`: a finalizer may send within this call (rule 9 of `core/partition_queues.py`).
            if type(key) is bytes:
                key_size = len(key)
                index = self.count
                # An offset delta takes FIELD[index] - index bytes.
                size = self._fixed + FIELD[index] - index + FIELD[key_size] + FIELD[value_size]
                key_length = VARINT[key_size]
            elif key is None:
                index = self.count
                size = self._fixed + FIELD[index] - index + 1 + FIELD[value_size]
                key = b""
                key_length = NULL
            else:
                # A memoryview would find its partition queue, too. A strided one would fail the whole batch when the batch closes.
                return None
            room = self._room - FIELD[size]
            if room < 0:
                return None
            self._parts += (
                VARINT[size],
                self._moment,
                VARINT[index],
                key_length,
                key,
                VARINT[value_size],
                value,
                b"\0",
            )
        except IndexError:
            # A number is beyond the table of varints.
            return None
        self._room = room
        self.count = index + 1
        delivery = Delivery()
        delivery._result = self.result
        delivery.index = index
        return delivery

    def append_record(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes
    ) -> Delivery | None:
        """Append any record; `headers` are encoded. Returns its delivery, or None: too few bytes are left."""
        if timestamp_ms is not self._timestamp:
            self._stamp(timestamp_ms)
        moment, index = self._moment, self.count
        offset_delta = varint(index)
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        size = (
            len(moment)
            + len(offset_delta)
            + field_size(key_size)
            + field_size(value_size)
            + len(headers)
        )
        room = self._room - field_size(size)
        if room < 0:
            return None
        parts = (
            varint(size),
            moment,
            offset_delta,
            varint(key_size),
            key or b"",
            varint(value_size),
            value or b"",
            headers,
        )
        if self.count != index or self._room < 0:
            # A send within this one has appended a record, or closed the batch.
            return self.append_record(timestamp_ms, key, value, headers)
        # By assignments alone: this is in no guarded step, and KeyboardInterrupt in between would have a damaged batch sent.
        self._parts += parts
        self._room = room
        self.count = index + 1
        return make_delivery(self.result, index)

    def append_many(
        self, timestamp_ms: int, keys: Sequence[bytes] | None, values: Sequence[bytes], first: int
    ) -> int:
        """Append the records from `first` on, as many as fit. Returns their number; 0: too few bytes are left.

        It works column by column, so that no Python code runs for a single record. All keys and values must be shorter than the table
        of varints.
        """
        if timestamp_ms is not self._timestamp:
            if self._room <= 0:
                return 0
            self._stamp(timestamp_ms)
        index = self.count
        index_size = len(varint(index))
        # An estimate of how many fit: records that do not fit are examined again by the next call.
        likely = self._room // (len(values[first]) + 6) + 1
        most = min(likely, _INDEX_ENDS.get(index_size, 0) - index)
        if most <= 0:
            return 0
        some = values[first : first + most]
        some_keys = keys[first : first + most] if keys is not None else None
        count, size, lengths, key_lengths, value_lengths = _columns(
            self._fixed + index_size, some_keys, some, self._room
        )
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
        if self.count != index or self._room < 0:
            # As in `append_record`.
            return self.append_many(timestamp_ms, keys, values, first)
        self._parts += block
        self._room -= size
        self.count = index + count
        return count

    def _stamp(self, timestamp_ms: int) -> None:
        delta = timestamp_ms - self._base_timestamp
        moment = MOMENT[delta] if 0 <= delta < _SOON else b"\0" + varint(delta)
        fixed = len(moment) + 1
        self._timestamp = timestamp_ms
        if moment is not self._moment:
            self._is_even = not self.count
            self._moment = moment
            self._fixed = fixed

    @property
    def used(self) -> int:
        """Return the bytes of `granted` that records take. The number has no meaning once the batch has closed."""
        return self.granted - max(self._room, 0)

    def grow(self, room: int) -> None:
        """Grant the batch `room` more bytes of encoded records."""
        if room < 0 or self._room < 0:
            raise ValueError(CLOSED if self._room < 0 else SHRINKS)
        self.granted += room
        self._room += room

    def close(self) -> tuple[bytes, int, int]:
        """Close the batch. Returns its payload, base timestamp and max timestamp; the same again if it is closed.

        The data of the records' metadata goes to the result, and the parts are released.
        """
        if self._closed is not None:
            return self._closed
        if self._room < 0:
            raise ValueError(CLOSED)
        parts, result, base, count = self._parts, self.result, self._base_timestamp, self.count
        moments = self._moment if self._is_even else compact(parts[1::PARTS])
        closed = b"".join(parts), base, base if moments == NO_DELTA else base + latest(moments)
        sizes = (compact(parts[3::PARTS]), compact(parts[5::PARTS]), moments)
        if self.count != count or self._closed is not None:
            # As in `append_record`.
            return self.close()
        result.count, result.record_sizes = count, sizes
        # By assignments alone, as in `append_record`.
        self._closed = closed
        self._parts = []
        self._room = -1
        return closed


def _columns(
    fixed: int, keys: Sequence[bytes] | None, values: Sequence[bytes], room: int
) -> tuple[int, int, Any, Any, Any]:
    """Return the number and the bytes of the records that fit into `room`, and three columns of encoded lengths.

    The columns have the length of each record, of its key and of its value.
    """
    value_sizes = list(map(len, values))
    key_sizes = list(map(len, keys)) if keys is not None else None
    if value_sizes.count(value_sizes[0]) == len(value_sizes) and (
        key_sizes is None or key_sizes.count(key_sizes[0]) == len(key_sizes)
    ):
        key_size = key_sizes[0] if key_sizes is not None else -1
        return _even_columns(
            fixed + field_size(key_size) + FIELD[value_sizes[0]],
            key_size,
            value_sizes[0],
            len(values),
            room,
        )
    return _uneven_columns(fixed, key_sizes, value_sizes, room)


def _even_columns(
    body: int, key_size: int, value_size: int, most: int, room: int
) -> tuple[int, int, Any, Any, Any]:
    """Return the result of `_columns` for records that all have one size."""
    count = min(room // FIELD[body], most)
    return (
        count,
        count * FIELD[body],
        [VARINT[body]] * count,
        [varint(key_size)] * count,
        [VARINT[value_size]] * count,
    )


def _uneven_columns(
    fixed: int, key_sizes: Sequence[int] | None, value_sizes: Sequence[int], room: int
) -> tuple[int, int, Any, Any, Any]:
    if key_sizes is None:
        bodies = [fixed + 1 + FIELD[size] for size in value_sizes]
    else:
        bodies = [
            fixed + FIELD[key_size] + FIELD[size]
            for key_size, size in zip(key_sizes, value_sizes, strict=True)
        ]
    ends = list(accumulate(map(FIELD.__getitem__, bodies)))
    count = bisect_right(ends, room)
    key_lengths = (
        [NULL] * count if key_sizes is None else map(VARINT.__getitem__, key_sizes[:count])
    )
    value_lengths = map(VARINT.__getitem__, value_sizes[:count])
    return (
        count,
        ends[count - 1] if count else 0,
        map(VARINT.__getitem__, bodies[:count]),
        key_lengths,
        value_lengths,
    )


# Takes the place of an open batch in a partition without one. Its `append` refuses each record, so the fast path need not check for None.
FULL: Final = MemoryRecordsBuilder(cast("Any", None), 0, -1)


def measured(column: Sequence[Any]) -> tuple[int, int] | None:
    """Return the bytes of all items and of the longest one.

    Returns None if `column` is no list or tuple, or if an item is not bytes. Subclasses of these are refused, too.
    """
    if type(column) not in _FLAT or not set(map(type, column)) <= _BYTES:
        return None
    sizes = list(map(len, column))
    return sum(sizes), max(sizes, default=0)
