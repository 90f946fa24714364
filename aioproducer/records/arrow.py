"""Tables of Arrow arrays: their checks, their conversion to columns of buffers, and their pieces.

1. The buffers of binary, string and time arrays are used without a copy. Other arrays (dictionaries, views, fixed sizes) are converted a
   few rows at a time, so a large array is never converted as a whole.
2. Columns may have different chunks: a piece ends where a chunk of any column ends. Tiny chunks are joined first.
3. Only the compiled build reads buffers. Plain Python makes objects of a few rows at a time (`_Rows`), and
   finds the same rows bad.

pyarrow is imported at the first call.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.build import COLUMNS, extension
from aioproducer.errors import UsageError
from aioproducer.model import exact_int, timestamp_of
from aioproducer.records.encoded_rows import (
    BAD_OFFSETS,
    BAD_TIME,
    NO_HEADER,
    NO_NAME,
    NO_TEXT,
    BadRow,
    bad_partition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_compiled: Any = extension(COLUMNS).module
# The most rows that are converted to another type at a time, and the most bytes of such rows, about. Objects take longer to make.
_STEP: Final = 512 if _compiled is None else 16_384
_BYTES: Final = 4_194_304
# A chunk of fewer rows is joined to the next ones.
_TINY: Final = 4096
_OTHERS: Final = ("keys", "timestamps_ms", "headers", "partitions")
# Types of a header's fields: of its key, of its value, and those that need no conversion.
_TEXTS: Final = frozenset({"string", "large_string", "string_view", "null"})
_CONTENTS: Final = frozenset(
    {*_TEXTS, "binary", "large_binary", "binary_view", "fixed_size_binary"}
)
_READY: Final = frozenset({"string", "large_string", "binary", "large_binary"})
_DOORS: Final = ("__arrow_c_array__", "__arrow_array__")


class Piece(NamedTuple):
    """Holds adjacent rows of all columns, each column's in one array; `first` is the table's row at which they begin."""

    first: int
    rows: int
    values: Any
    keys: Any
    moments: Any
    headers: Any = None
    partitions: Any = None

    def row(
        self, at: int
    ) -> tuple[
        bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]] | None, int | None
    ]:
        """Return value, key, time, headers and partition of one row.

        Raises:
            UsageError: the row cannot be a record.
        """
        try:
            return tuple(None if column is None else column.get(at) for column in self[2:])  # type: ignore[return-value]
        except BadRow as error:
            raise self.bad(error) from None

    def bad(self, error: BadRow) -> UsageError:
        """Return the error for a row that cannot be a record."""
        return UsageError(f"row {self.first + error.row}: {error.what}")


class Table:
    """Holds the columns of one call, which have the same length.

    Args:
        values, keys: arrays of bytes; keys of None: the records have no keys.
        timestamps_ms: an array, a number or a datetime for all rows, or None.
        headers: an array of lists of structs of key and value, or None.
        partitions: an array of integers, or None.

    Attributes:
        has_keys: True if there is a column of keys.
        moment: the time of all rows if they have a common one, else None.

    Raises:
        UsageError: pyarrow is needed and not installed, an argument is no Arrow array, its type cannot be records, or the lengths differ.
    """

    def __init__(
        self,
        values: Any,
        keys: Any,
        timestamps_ms: Any,
        headers: Any = None,
        partitions: Any = None,
    ) -> None:
        self.moment: int | None = _moment(timestamps_ms)
        first = _strings("values", values)
        self._columns: list[_Column | None] = [first, None, None, None, None]
        if keys is not None:
            self._columns[1] = _strings("keys", keys)
        if timestamps_ms is not None and self.moment is None:
            self._columns[2] = _times(timestamps_ms)
        if headers is not None:
            self._columns[3] = _headers(headers)
        if partitions is not None:
            self._columns[4] = _partitions(partitions)
        self.has_keys: bool = keys is not None
        self._length = len(first)
        for name, column in zip(_OTHERS, self._columns[1:], strict=True):
            if column is not None and len(column) != self._length:
                raise UsageError(
                    f"{name} are {len(column)} rows, and values are {self._length}: each row is one record"
                )

    def __len__(self) -> int:
        return self._length

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in order, in pieces.

        Raises:
            UsageError: pyarrow cannot convert a column to bytes.
        """
        at = 0
        while at < self._length:
            rows = min(column.rows_from(at) for column in self._columns if column is not None)
            yield Piece(
                at,
                rows,
                *(None if column is None else column.cut(at, rows) for column in self._columns),
            )
            at += rows


def check_serializers(*, value: object, key: object) -> None:
    """Raise UsageError if a producer has a serializer, because columns hold bytes already."""
    for name, serializer in (("value_serializer", value), ("key_serializer", key)):
        if serializer is not None:
            raise UsageError(
                f"columns hold bytes already, and this producer has a {name}: use one without, or send_many"
            )


class _Column:
    """Reads one column of a table from its first row to its last.

    Args:
        name: the column's name in error texts.
        chunks: the column as a `pyarrow.ChunkedArray`.
        turn: converts an array to a type that `rows` can read; None: the type is one already.
        rows: makes a column of buffers, or `_Rows`, of an array, a first row and a number of rows.
        target: the type that `turn` makes, for error texts.
    """

    def __init__(
        self,
        name: str,
        chunks: Any,
        turn: Callable[[Any], Any] | None,
        rows: Callable[[Any, int, int], Any],
        target: str = "bytes",
    ) -> None:
        self._name = name
        self._chunks = chunks
        self._ends = list(accumulate(map(len, chunks.chunks)))
        self._turn = turn
        self._rows = rows
        self._target = target
        self._array: Any = None
        # the column's rows in `_array`
        self._first = self._end = 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def rows_from(self, at: int) -> int:
        """Return how many rows from `at` on are in one array; load the next array if `at` is past the current one."""
        if at >= self._end:
            self._array = self._take(at)
            self._first, self._end = at, at + len(self._array)
        return self._end - at

    def cut(self, at: int, rows: int) -> Any:
        """Return `rows` rows of the current array, from `at` on."""
        try:
            return self._rows(self._array, at - self._first, rows)
        except ValueError as error:
            raise UsageError(f"{self._name}: the array is damaged: {error}") from error

    def _take(self, at: int) -> Any:
        number = bisect_right(self._ends, at)
        rows = self._ends[number] - at
        array = self._chunks.chunk(number)
        array = array.slice(len(array) - rows)
        if rows < _TINY and self._ends[number] < len(self):
            array = self._asked(
                "join its chunks", partial(_joined, self._chunks.slice(at, _TINY), array)
            )
        if self._turn is None and _compiled is not None:
            return array
        few = array.slice(0, max(min(_STEP, _BYTES // _bytes_of_one(array)), 1))
        return (
            few
            if self._turn is None
            else self._asked(f"turn {array.type} into {self._target}", partial(self._turn, few))
        )

    def _asked(self, what: str, ask: Callable[[], Any]) -> Any:
        """Call pyarrow and return its result.

        Raises:
            UsageError: pyarrow raised any exception. The exception's own text is left out, because it may have values of the array.
        """
        try:
            return ask()
        except Exception as error:
            raise UsageError(
                f"{self._name}: pyarrow cannot {what} ({type(error).__name__}): the array is damaged, or turn it yourself"
            ) from None


def _joined(several: Any, first: Any) -> Any:
    """Return tiny chunks as one array, or the first chunk alone if they have too many bytes."""
    return several.combine_chunks() if several.nbytes <= _BYTES else first


def _bytes_of_one(array: Any) -> int:
    """Return the mean bytes of a row of the array, about; at least 1."""
    kept = getattr(array, "dictionary", array)
    return int(kept.nbytes) // max(len(kept), 1) + 1


def _pyarrow(name: str, given: Any) -> tuple[Any, Any]:
    """Return pyarrow, and the caller's array as a `pyarrow.ChunkedArray`."""
    kind = type(given).__name__
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UsageError(
            f"{name}: a {kind} needs pyarrow: pip install 'aioproducer[arrow]', or use send_many"
        ) from error
    try:
        if isinstance(given, pa.ChunkedArray):
            return pa, given
        if isinstance(given, pa.Array):
            return pa, pa.chunked_array([given])
        if hasattr(given, "__arrow_c_stream__"):
            return pa, pa.chunked_array(given)
        if any(hasattr(given, door) for door in _DOORS):
            return pa, pa.chunked_array([pa.array(given)])
    except Exception as error:  # as above, or another library's
        raise UsageError(f"{name}: pyarrow cannot take a {kind} ({type(error).__name__})") from None
    raise UsageError(
        f"{name} are a pyarrow array, not {kind}: make one (`pyarrow.array(...)`), or use send_many"
    )


class _Rows:
    """Holds rows as objects where no module is compiled: `get` returns and raises what its columns do."""

    __slots__ = ("_contents", "_read")

    def __init__(self, contents: list[Any], read: Callable[[int, Any], Any]) -> None:
        self._contents = contents
        self._read = read

    def get(self, row: int) -> Any:
        content = self._contents[row]
        return None if content is None else self._read(row, content)


def _strings(name: str, given: Any) -> _Column:
    pa, chunks = _pyarrow(name, given)
    kind = _content(pa, chunks.type)
    if kind not in _CONTENTS:
        raise UsageError(
            f"{name} are of type {chunks.type}, and a record holds bytes: encode them, or `.cast(pyarrow.string())` if their text will do"
        )
    return _Column(
        name, chunks, None if str(chunks.type) in _READY else partial(_large, pa), _string_rows
    )


def _content(pa: Any, kind: Any) -> str:
    """Return the name of a type, or of the values of a dictionary."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "fixed_size_binary" if pa.types.is_fixed_size_binary(kind) else str(kind)


def _large(pa: Any, array: Any) -> Any:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_binary_view(array.type) or pa.types.is_string_view(array.type):
        # `cast` does not check the views, and would read beyond the buffers of a damaged array
        array.validate(full=True)
    return (
        array.cast(pa.binary()).cast(pa.large_binary())
        if pa.types.is_fixed_size_binary(array.type)
        else array.cast(pa.large_binary())
    )


def _string_rows(array: Any, at: int, rows: int) -> Any:
    validity, offsets, data = _on_cpu(array)
    is_large = str(array.type).startswith("large_")
    if _compiled is not None:
        return _compiled.Strings(
            validity if array.null_count else None,
            offsets,
            data,
            array.offset + at,
            rows,
            is_large=is_large,
        )
    return _Rows(
        _spans(array, at, rows), partial(_content_of, memoryview(b"" if data is None else data))
    )


def _spans(array: Any, at: int, rows: int) -> list[Any]:
    """Return the begin and the end of each row's content, which are not checked; None for null."""
    is_large = str(array.type).startswith("large_")
    size, first = 8 if is_large else 4, array.offset + at
    packed = memoryview(array.buffers()[1] or b"").cast("B")[
        first * size : (first + rows + 1) * size
    ]
    ends = packed.cast("q" if is_large else "i")
    there = array.slice(at, rows).is_valid().to_pylist()
    return [
        span if is_there else None for is_there, *span in zip(there, ends, ends[1:], strict=False)
    ]


def _content_of(data: memoryview, row: int, span: Sequence[int]) -> bytes:
    begin, end = span
    if not 0 <= begin <= end <= len(data):
        raise BadRow(row, BAD_OFFSETS)
    return bytes(data[begin:end])


def _on_cpu(array: Any) -> Any:
    buffers = array.buffers()
    if not all(buffer is None or buffer.is_cpu for buffer in buffers):
        raise UsageError("the array lies on another device: copy it to the CPU first")
    return buffers


def _times(given: Any) -> _Column:
    pa, chunks = _pyarrow("timestamps_ms", given)
    kind = chunks.type
    is_ready = kind == pa.int64() or (pa.types.is_timestamp(kind) and kind.unit == "ms")
    if not is_ready and not pa.types.is_timestamp(kind):
        raise UsageError(
            f"timestamps_ms are of type {kind}: they are int64 milliseconds since 1970, or a timestamp type"
        )
    # the cast may cut parts of a millisecond; seconds lose nothing, but a safe cast finds a number that does not fit
    turn = (
        None
        if is_ready
        else lambda array: array.cast(pa.timestamp("ms", kind.tz), safe=kind.unit == "s")
    )
    return _Column("timestamps_ms", chunks, turn, _time_rows)


def _time_rows(array: Any, at: int, rows: int) -> Any:
    validity, data = _on_cpu(array)
    if _compiled is not None:
        return _compiled.Moments(
            validity if array.null_count else None, data, array.offset + at, rows
        )
    return _Rows(array.slice(at, rows).view("int64").to_pylist(), _time)


def _time(row: int, moment: int) -> int:
    if moment < 0:
        raise BadRow(row, BAD_TIME)
    return moment


def _headers(given: Any) -> _Column:
    pa, chunks = _pyarrow("headers", given)
    fields = _header_fields(pa, chunks.type)
    if fields and all(str(field.type) in _READY for field in fields):
        return _Column("headers", chunks, None, _header_rows)
    names = [field.name for field in fields] or ["key", "value"]
    target = pa.large_list(
        pa.struct([(name, pa.string() if name == "key" else pa.binary()) for name in names])
    )
    return _Column("headers", chunks, partial(_cast_checked, target), _header_rows, str(target))


def _header_fields(pa: Any, kind: Any) -> list[Any]:
    """Return the two fields of headers, none for a column of nulls.

    Raises:
        UsageError: the column has another type.
    """
    if pa.types.is_null(kind):
        return []
    pair = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    fields = list(pair) if pair is not None and pa.types.is_struct(pair) else []
    contents = {field.name: _content(pa, field.type) for field in fields}
    if (
        contents.keys() != {"key", "value"}
        or contents["key"] not in _TEXTS
        or contents["value"] not in _CONTENTS
    ):
        raise UsageError(
            f"headers are of type {kind}: they are lists of structs of key (string) and value (binary)"
        )
    return fields


def _cast_checked(target: Any, array: Any) -> Any:
    """Return an array as another type, after a check of all of it: `cast` would read beyond the buffers of a damaged one."""
    array.validate(full=True)
    return array.cast(target)


def _header_rows(array: Any, at: int, rows: int) -> Any:
    # pyarrow ends the process where children are shorter than their parents
    try:
        array.validate()
    except ValueError:
        raise ValueError("its children do not fit") from None
    validity, offsets, pairs = _on_cpu(array)[:3]
    content = array.values
    if _compiled is None:
        spans = _spans(array, at, rows)
        return _Rows(spans, _pairs(content, spans))
    names, values = (
        _string_rows(field, 0, len(field)) for field in map(content.field, ("key", "value"))
    )
    return _compiled.Headers(
        validity if array.null_count else None,
        offsets,
        array.offset + at,
        rows,
        (pairs, content.offset) if content.null_count else None,
        names,
        values,
        is_large=str(array.type).startswith("large_"),
    )


def _pairs(content: Any, spans: list[Any]) -> Callable[[int, Any], Any]:
    """Return what reads the pairs of a row, which are in `content`."""
    ends = [min(max(end, 0), len(content)) for span in spans if span is not None for end in span]
    first, last = (min(ends), max(ends)) if ends else (0, 0)
    there = content.slice(first, last - first).is_valid().to_pylist()
    names, values = (
        _string_rows(content.field(name), first, last - first) for name in ("key", "value")
    )

    def read(row: int, span: Sequence[int]) -> list[tuple[str, bytes | None]]:
        begin, end = span
        if not first <= begin <= end <= last:
            raise BadRow(row, BAD_OFFSETS)
        headers = []
        for at in range(begin - first, end - first):
            if not there[at]:
                raise BadRow(row, NO_HEADER)
            try:
                name, value = names.get(at), values.get(at)
                if name is None:
                    raise BadRow(row, NO_NAME)
                headers.append((name.decode(), value))
            except BadRow as error:
                raise BadRow(row, error.what) from None
            except UnicodeDecodeError:
                raise BadRow(row, NO_TEXT) from None
        return headers

    return read


def _partitions(given: Any) -> _Column:
    pa, chunks = _pyarrow("partitions", given)
    kind = chunks.type
    content = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not pa.types.is_integer(content) and not pa.types.is_null(content):
        raise UsageError(f"partitions are of type {kind}: they are integers, or null")
    is_ready = kind in (pa.int32(), pa.int64())
    return _Column(
        "partitions",
        chunks,
        None if is_ready else lambda array: array.cast(pa.int64()),
        _partition_rows,
        "int64",
    )


def _partition_rows(array: Any, at: int, rows: int) -> Any:
    validity, data = _on_cpu(array)
    if _compiled is not None:
        is_large = str(array.type) == "int64"
        return _compiled.Partitions(
            validity if array.null_count else None, data, array.offset + at, rows, is_large=is_large
        )
    return _Rows(array.slice(at, rows).to_pylist(), _partition)


def _partition(row: int, number: int) -> int:
    if number < 0:
        raise BadRow(row, bad_partition(number))
    return number


def _moment(given: Any) -> int | None:
    """Return the common time of all rows, or None if `given` is an array or None."""
    if not isinstance(given, (int, datetime)) and exact_int(given) is None:
        return None
    return timestamp_of("timestamps_ms", given)
