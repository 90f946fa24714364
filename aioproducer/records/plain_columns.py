"""The encoder of Arrow columns to records of magic 2 in plain Python, for installations without `_columns`.

Its output equals that of `_columns` byte for byte. A column has Arrow's layout: a bitmap of the rows that are not null, the offset of each
row in the data, and the data. The buffers are untrusted: an offset is checked before it is used.
"""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from aioproducer.records.encoded_rows import BAD_OFFSETS, BAD_TIME, CHANGED, NO_HEADER, NO_NAME, NO_TEXT, BadRow, Encoded, bad_partition
from aioproducer.records.record_batch import MAX_RECORD_OVERHEAD
from aioproducer.records.varint_tables import field_size, varint
from aioproducer.records.varints import NO_DELTA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.records.encoded_rows import Sizes

__all__ = ["BadRow", "Encoded", "Headers", "Moments", "Partitions", "Strings", "check_rows", "encode", "known", "measure"]

# Bytes of records in one batch.
_MOST: Final = 2**31 - 1
_GROUPS: Final = 65_535


def _layout(what: str, buffer: Any, bits: int, first: int, rows: int) -> memoryview:
    """Return a buffer as bytes, after a check that it has `bits` bits for each row."""
    view = memoryview(buffer).cast("B")
    if first < 0 or rows < 0 or first + rows > view.nbytes * 8 // bits:
        raise ValueError(f"{what} of {view.nbytes} bytes do not hold rows {first} to {first + rows}")
    return view


class _Rows:
    """Holds the bitmap of the rows that are not null. The first `first` rows of the buffers are not the column's."""

    __slots__ = ("_first", "_length", "_validity")

    def __init__(self, validity: Any, first: int, length: int) -> None:
        self._validity = None if validity is None else _layout("validity bits", validity, 1, first, length)
        self._first = first
        self._length = length

    def __len__(self) -> int:
        return self._length

    def is_there(self, row: int) -> bool:
        """Return True if the row is not null."""
        at = self._first + row
        return self._validity is None or bool(self._validity[at >> 3] >> (at & 7) & 1)


class Strings(_Rows):
    """Holds a column of bytes.

    Args:
        validity: a bit for each row; None: no row is null.
        offsets: the begin of each row in `data`, and the end of the last row: 32 bits each, 64 if `is_large`.
        data: the bytes of all rows; None: there are no bytes.
        first: number of rows in these buffers before the column's own.
        length: number of rows of the column.

    Raises:
        ValueError: a buffer is too short. The offsets are checked when their row is read.
    """

    __slots__ = ("_data", "_offsets")

    def __init__(self, validity: Any, offsets: Any, data: Any, first: int, length: int, *, is_large: bool) -> None:
        if length < 0:
            raise ValueError(f"a column of {length} rows")
        width = 8 if is_large else 4
        view = _layout("offsets", offsets, 8 * width, first, length + 1)
        self._offsets = view[: (first + length + 1) * width].cast("q" if is_large else "i")
        self._data = memoryview(b"" if data is None else data).cast("B")
        super().__init__(validity, first, length)

    def span(self, row: int) -> tuple[int, int]:
        """Return the begin of a row's bytes in the data, and their number, which is -1 for null.

        Raises:
            BadRow: the bytes are not within the data.
        """
        if self._validity is not None and not self.is_there(row):
            return 0, -1
        at = self._first + row
        begin, end = self._offsets[at], self._offsets[at + 1]
        if not 0 <= begin <= end <= self._data.nbytes:
            raise BadRow(row, BAD_OFFSETS)
        return begin, end - begin

    def get(self, row: int) -> bytes | None:
        """Return the bytes of a row, or None for null.

        Raises:
            BadRow: the bytes are not within the data.
            IndexError: there is no such row.
        """
        if not 0 <= row < self._length:
            raise IndexError(row)
        begin, size = self.span(row)
        return None if size < 0 else bytes(self._data[begin : begin + size])


class Moments(_Rows):
    """Holds a column of whole milliseconds since 1970, 64 bits each. The other arguments and errors are those of `Strings`."""

    __slots__ = ("_data",)

    def __init__(self, validity: Any, data: Any, first: int, length: int) -> None:
        view = _layout("timestamps", data, 64, first, length)
        self._data = view[: (first + length) * 8].cast("q")
        super().__init__(validity, first, length)

    def get(self, row: int) -> int | None:
        """Return the time of a row, or None for null.

        Raises:
            BadRow: the time is negative.
            IndexError: there is no such row.
        """
        if not 0 <= row < self._length:
            raise IndexError(row)
        if not self.is_there(row):
            return None
        moment = self._data[self._first + row]
        if moment < 0:
            raise BadRow(row, BAD_TIME)
        return moment


class Partitions(_Rows):
    """Holds a column of numbers of partitions, 32 bits each, 64 if `is_large`. The other arguments and errors are those of `Strings`."""

    __slots__ = ("_data",)

    def __init__(self, validity: Any, data: Any, first: int, length: int, *, is_large: bool) -> None:
        width = 8 if is_large else 4
        view = _layout("partitions", data, 8 * width, first, length)
        self._data = view[: (first + length) * width].cast("q" if is_large else "i")
        super().__init__(validity, first, length)

    def get(self, row: int) -> int | None:
        """Return the partition of a row, or None for null.

        Raises:
            BadRow: the number is negative.
            IndexError: there is no such row.
        """
        if not 0 <= row < self._length:
            raise IndexError(row)
        if not self.is_there(row):
            return None
        number = self._data[self._first + row]
        if number < 0:
            raise BadRow(row, bad_partition(number))
        return number


class Headers(_Rows):
    """Holds a column of lists of headers.

    Args:
        validity, offsets, first, length, is_large: as in `Strings`; the offsets count headers.
        pairs: a bit for each header, and the number of bits before the first one's; None: no header is null.
        names, values: of all headers.

    Raises:
        ValueError: a buffer is too short. The offsets and the headers are checked when their row is read.
    """

    __slots__ = ("_names", "_offsets", "_pairs", "_values")

    def __init__(
        self,
        validity: Any,
        offsets: Any,
        first: int,
        length: int,
        pairs: tuple[Any, int] | None,
        names: Strings,
        values: Strings,
        *,
        is_large: bool,
    ) -> None:
        if length < 0 or len(names) != len(values):
            raise ValueError(f"a column of {length} rows, and headers of {len(names)} names and {len(values)} values")
        width = 8 if is_large else 4
        view = _layout("offsets", offsets, 8 * width, first, length + 1)
        self._offsets = view[: (first + length + 1) * width].cast("q" if is_large else "i")
        super().__init__(validity, first, length)
        bits, before = pairs or (None, 0)
        self._pairs = _Rows(bits, before, len(names))
        self._names = names
        self._values = values

    def get(self, row: int) -> list[tuple[str, bytes | None]] | None:
        """Return the headers of a row as pairs, or None for null.

        Raises:
            BadRow: the row has no such headers.
            IndexError: there is no such row.
        """
        if not 0 <= row < self._length:
            raise IndexError(row)
        if not self.is_there(row):
            return None
        return [(name.decode(), value) for name, value in self.encoded(row)]

    def encoded(self, row: int) -> list[tuple[bytes, bytes | None]]:
        """Return the headers of a row, their keys encoded; none for null.

        Raises:
            BadRow: the row has no such headers.
        """
        if not self.is_there(row):
            return []
        begin, end = self._offsets[self._first + row], self._offsets[self._first + row + 1]
        if not 0 <= begin <= end <= len(self._names):
            raise BadRow(row, BAD_OFFSETS)
        pairs = [self._pair(row, at) for at in range(begin, end)]
        for name, _ in pairs:
            try:
                name.decode()
            except UnicodeDecodeError:
                raise BadRow(row, NO_TEXT) from None
        return pairs

    def _pair(self, row: int, at: int) -> tuple[bytes, bytes | None]:
        if not self._pairs.is_there(at):
            raise BadRow(row, NO_HEADER)
        try:
            if (name := self._names.get(at)) is None:
                raise BadRow(row, NO_NAME)
            return name, self._values.get(at)
        except BadRow as error:
            # the caller's row, not the header's
            raise BadRow(row, error.what) from None


def known(column: Partitions, at: int, rows: int, partitions: int) -> tuple[int, int]:
    """Return how many of `rows` rows from `at` on have a partition below `partitions` or null, and their highest partition, or -1.

    If the first row's partition is not below `partitions`, the result is 1 and that partition. The rows end before a bad row.

    Raises:
        BadRow: the first row is bad.
        ValueError: there are no such rows.
    """
    if not (rows >= 0 and 0 <= at <= len(column) - rows):
        raise ValueError(f"there are no rows {at} to {at + rows}")
    highest = -1
    for index in range(rows):
        try:
            number = column.get(at + index)
        except BadRow:
            if index:
                return index, highest
            raise
        if number is not None:
            if number >= partitions:
                return max(index, 1), highest if index else number
            highest = max(highest, number)
    return rows, highest


def measure(
    values: Strings,
    keys: Strings | None,
    moments: Moments | None,
    at: int,
    rows: int,
    most: int,
    longest: int,
    headers: Headers | None = None,
) -> tuple[int, int]:
    """Return the number of rows from `at` on, of `rows`, that fit into `most` bytes as records, and an upper bound of their bytes.

    The number is at least 1 if `rows` is. A row that may have more than `longest` bytes is measured alone. The rows end before a bad row,
    and before a row that may have more than `longest` bytes.

    Raises:
        BadRow: the first row is bad.
        ValueError: there are no such rows.
    """
    check_rows((values, keys, moments, headers), at, at + rows)
    count = total = 0
    for row in range(at, at + rows):
        try:
            size = _measured(values, keys, moments, headers, row)
        except BadRow:
            if count:
                break
            raise
        if count and (total + size > most or size > longest):
            break
        count += 1
        total += size
        if size > longest:
            break
    return count, total


def _measured(values: Strings, keys: Strings | None, moments: Moments | None, headers: Headers | None, row: int) -> int:
    """Return the most bytes that a row takes as a record."""
    key_size = -1 if keys is None else keys.span(row)[1]
    size = MAX_RECORD_OVERHEAD + field_size(key_size) + field_size(values.span(row)[1])
    if moments is not None:
        moments.get(row)
    return size + len(_packed(headers, row))


class _Batch:
    """Holds the records of one batch while they are encoded. The first one is of the time `base`."""

    __slots__ = ("_base", "_parts", "_rows", "_size")

    def __init__(self, base: int) -> None:
        self._base = base
        self._parts: list[bytes] = []
        # The sizes of key and value, and the time from the first record on.
        self._rows: list[tuple[int, int, int]] = []
        self._size = 0

    def add(self, moment: int, key: bytes | None, value: bytes | None, packed: bytes, room: int) -> int:
        """Append a record if the batch is empty or has at most `room` bytes with it. Returns its bytes; 0: it was not appended."""
        rows = self._rows
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        delta = moment - self._base
        record = b"\0", varint(delta), varint(len(rows)), varint(key_size), key or b"", varint(value_size), value or b"", packed
        size = sum(map(len, record))
        whole = field_size(size)
        if rows and self._size + whole > room:
            return 0
        self._size += whole
        self._parts += (varint(size), *record)
        rows.append((key_size, value_size, delta))
        return whole

    def encoded(self) -> Encoded:
        key_sizes, value_sizes, deltas = zip(*self._rows, strict=True)
        sizes = _compact(key_sizes), _compact(value_sizes)
        return Encoded(len(deltas), b"".join(self._parts), self._base, self._base + max(deltas), *sizes, _compact_deltas(deltas))


def encode(
    values: Strings,
    keys: Strings | None,
    moments: Moments | None,
    now_ms: int,
    at: int,
    rows: int,
    picks: array[int] | None,
    groups: int,
    room: int,
    most: int,
    headers: Headers | None = None,
) -> list[list[Encoded]]:
    """Encode `rows` rows from `at` on as batches of records. Returns the batches of each group, in their order.

    A batch has at most `room` bytes, or one record. `picks`, of the type code "H", has the group of each row, below `groups`; None: all are
    in the first. A row without a time gets `now_ms`; without `moments` all rows get it.

    Raises:
        BadRow: a row cannot be a record, or the records have more than `most` bytes: they had not when they were measured.
        IndexError: a row's group is not below `groups`.
        ValueError: there are no such rows, `groups`, `room` or `most` is out of range, or `now_ms` is negative.
    """
    check_rows((values, keys, moments, headers), at, at + rows)
    _check_bounds(rows, picks, groups, room, most, now_ms)
    made: list[list[_Batch]] = [[] for _ in range(groups)]
    for row, group in zip(range(at, at + rows), picks or repeat(0, rows), strict=True):
        if group >= groups:
            raise IndexError(row)
        given = None if moments is None else moments.get(row)
        key = None if keys is None else keys.get(row)
        most -= _add(made[group], given, now_ms, key, values.get(row), _packed(headers, row), room)
        if most < 0:
            raise BadRow(row, CHANGED)
    return [[batch.encoded() for batch in batches] for batches in made]


def _add(batches: list[_Batch], given: int | None, now_ms: int, key: bytes | None, value: bytes | None, packed: bytes, room: int) -> int:
    """Append a record to the last batch, or to a new one if that has no room. Returns the record's bytes."""
    moment = now_ms if given is None else given
    size = batches[-1].add(moment, key, value, packed, room) if batches else 0
    if not size:
        batches.append(_Batch(moment))
        size = batches[-1].add(moment, key, value, packed, room)
    return size


def _check_bounds(rows: int, picks: array[int] | None, groups: int, room: int, most: int, now_ms: int) -> None:
    if not 1 <= groups <= _GROUPS or (picks is not None and len(picks) != rows):
        raise ValueError(f"{rows} rows are not in {groups} groups")
    if not (0 <= room <= _MOST and 0 <= most <= _MOST) or now_ms < 0:
        raise ValueError(f"a batch has no room of {room} bytes, or there is no time {now_ms}")


def _packed(headers: Headers | None, row: int) -> bytes:
    """Return the last part of a record: the number of a row's headers, and the headers."""
    pairs = headers.encoded(row) if headers is not None else ()
    parts = [varint(len(pairs))]
    for name, value in pairs:
        value_size, value = _sized(value)
        parts += (varint(len(name)), name, varint(value_size), value)
    return b"".join(parts)


def _sized(field: bytes | None) -> tuple[int, bytes]:
    """Return the size of a field, -1 for null, and its bytes."""
    return (-1, b"") if field is None else (len(field), field)


def check_rows(columns: Sequence[Any], at: int, end: int) -> None:
    """Raise ValueError unless all columns have the first one's rows, and the rows from `at` to `end`."""
    length = len(columns[0])
    least = min(len(column) for column in columns if column is not None)
    if not 0 <= at <= end <= length or least < length:
        raise ValueError(f"there are no rows {at} to {end}")


def _compact(sizes: Sequence[int]) -> Sizes:
    return varint(sizes[0]) if min(sizes) == max(sizes) else array("i", sizes)


def _compact_deltas(deltas: Sequence[int]) -> Sizes:
    return array("q", deltas) if any(deltas) else NO_DELTA
