"""Tables of Arrow arrays: their checks, their conversion to columns of buffers, and their pieces.

1. The buffers of binary, string and time arrays are used without a copy. Other arrays (dictionaries, views, fixed sizes) are converted a
   few rows at a time, so a large array is never converted as a whole.
2. Columns may have different chunks: a piece ends where a chunk of any column ends. Tiny chunks are joined first.

pyarrow is imported at the first call that needs it: `arrow_c_data` reads what other libraries export, if it needs no conversion.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import UsageError
from aioproducer.model import exact_int, timestamp_of
from aioproducer.records.columns import BadRow, Headers, Moments, Partitions, Strings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproducer.records.arrow_c_data import ExportedColumn

__all__ = ["Piece", "Table", "check_serializers"]

# The most rows that are converted to another type at a time, and the most bytes of such rows, about.
_STEP: Final = 16_384
_BYTES: Final = 4_194_304
# A chunk of fewer rows is joined to the next ones.
_TINY: Final = 4096
_OTHERS: Final = ("keys", "timestamps_ms", "headers", "partitions")
# Types of a header's fields: of its key, of its value, and those that need no conversion.
_TEXTS: Final = frozenset({"string", "large_string", "string_view", "null"})
_CONTENTS: Final = frozenset({*_TEXTS, "binary", "large_binary", "binary_view", "fixed_size_binary"})
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

    def row(self, at: int) -> tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]] | None, int | None]:
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

    def __init__(self, values: Any, keys: Any, timestamps_ms: Any, headers: Any = None, partitions: Any = None) -> None:
        self.moment: int | None = _moment(timestamps_ms)
        first = _strings("values", values)
        self._columns: list[_Column | ExportedColumn | None] = [first, None, None, None, None]
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
                raise UsageError(f"{name} are {len(column)} rows, and values are {self._length}: each row is one record")

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
            yield Piece(at, rows, *(None if column is None else column.cut(at, rows) for column in self._columns))
            at += rows


def check_serializers(*, value: object, key: object) -> None:
    """Raise UsageError if a producer has a serializer, because columns hold bytes already."""
    for name, serializer in (("value_serializer", value), ("key_serializer", key)):
        if serializer is not None:
            raise UsageError(f"columns hold bytes already, and this producer has a {name}: use one without, or send_many")


class _Column:
    """Reads one column of a table from its first row to its last.

    Args:
        name: the column's name in error texts.
        chunks: the column as a `pyarrow.ChunkedArray`.
        turn: converts an array to a type with usable buffers; None: the type has them already.
        buffers: makes a `Strings`, `Moments`, `Headers` or `Partitions` of an array, a first row and a number of rows.
        target: the type that `turn` makes, for error texts.
    """

    def __init__(
        self,
        name: str,
        chunks: Any,
        turn: Callable[[Any], Any] | None,
        buffers: Callable[[Any, int, int], Any],
        target: str = "bytes",
    ) -> None:
        self._name = name
        self._chunks = chunks
        self._ends = list(accumulate(map(len, chunks.chunks)))
        self._turn = turn
        self._buffers = buffers
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
        """Return `rows` rows of the current array, from `at` on, as a column of buffers."""
        try:
            return self._buffers(self._array, at - self._first, rows)
        except ValueError as error:
            raise UsageError(f"{self._name}: the array is damaged: {error}") from error

    def _take(self, at: int) -> Any:
        number = bisect_right(self._ends, at)
        rows = self._ends[number] - at
        array = self._chunks.chunk(number)
        array = array.slice(len(array) - rows)
        if rows < _TINY and self._ends[number] < len(self):
            array = self._asked("join its chunks", partial(_joined, self._chunks.slice(at, _TINY), array))
        if self._turn is None:
            return array
        few = array.slice(0, max(min(_STEP, _BYTES // _bytes_of_one(array)), 1))
        return self._asked(f"turn {array.type} into {self._target}", partial(self._turn, few))

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


def _exported(name: str, given: Any, kind: str) -> ExportedColumn | None:
    """Return the column of another library's array, or None if pyarrow is needed.

    pyarrow's own arrays have the sizes of their buffers, which are checked; the C interface has none. A stream may have many arrays.
    """
    is_foreign = hasattr(given, "__arrow_c_array__") and not hasattr(given, "__arrow_c_stream__")
    if not is_foreign or isinstance(given, getattr(sys.modules.get("pyarrow"), "Array", ())):
        return None
    from aioproducer.records.arrow_c_data import exported_column

    return exported_column(name, given, kind)


def _pyarrow(name: str, given: Any) -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        kind = type(given).__name__
        raise UsageError(f"{name}: a {kind} needs pyarrow: pip install 'aioproducer[arrow]', or use send_many") from error
    return pa


def _chunked(pa: Any, name: str, given: Any) -> Any:
    """Return the caller's array as a `pyarrow.ChunkedArray`."""
    try:
        if isinstance(given, pa.ChunkedArray):
            return given
        if isinstance(given, pa.Array):
            return pa.chunked_array([given])
        if hasattr(given, "__arrow_c_stream__"):
            return pa.chunked_array(given)
        if any(hasattr(given, door) for door in _DOORS):
            return pa.chunked_array([pa.array(given)])
    except Exception as error:
        raise UsageError(f"{name}: pyarrow cannot take a {type(given).__name__} ({type(error).__name__})") from None
    raise UsageError(f"{name} are a pyarrow array, not {type(given).__name__}: make one (`pyarrow.array(...)`), or use send_many")


def _strings(name: str, given: Any) -> _Column | ExportedColumn:
    if (exported := _exported(name, given, "strings")) is not None:
        return exported
    pa = _pyarrow(name, given)
    chunks = _chunked(pa, name, given)
    kind = chunks.type
    content = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_plain = pa.types.is_binary(content) or pa.types.is_string(content)
    is_large = pa.types.is_large_binary(content) or pa.types.is_large_string(content)
    if not (is_plain or is_large or _is_view(pa, content) or pa.types.is_fixed_size_binary(content) or pa.types.is_null(content)):
        raise UsageError(
            f"{name} are of type {kind}, and a record holds bytes: encode them, or `.cast(pyarrow.string())` if their text will do"
        )
    if content is kind and (is_plain or is_large):
        return _Column(name, chunks, None, _string_buffers(is_large=is_large))
    return _Column(name, chunks, lambda array: _large(pa, array), _string_buffers(is_large=True))


def _is_view(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_binary_view(kind) or pa.types.is_string_view(kind))


def _large(pa: Any, array: Any) -> Any:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if _is_view(pa, array.type):
        # `cast` does not check the views, and would read beyond the buffers of a damaged array
        array.validate(full=True)
    return array.cast(pa.binary()).cast(pa.large_binary()) if pa.types.is_fixed_size_binary(array.type) else array.cast(pa.large_binary())


def _string_buffers(*, is_large: bool) -> Callable[[Any, int, int], Any]:
    def strings(array: Any, at: int, rows: int) -> Any:
        validity, offsets, data = _on_cpu(array)
        return Strings(validity if array.null_count else None, offsets, data, array.offset + at, rows, is_large=is_large)

    return strings


def _on_cpu(array: Any) -> Any:
    buffers = array.buffers()
    if not all(buffer is None or buffer.is_cpu for buffer in buffers):
        raise UsageError("the array lies on another device: copy it to the CPU first")
    return buffers


def _times(given: Any) -> _Column | ExportedColumn:
    if (exported := _exported("timestamps_ms", given, "times")) is not None:
        return exported
    pa = _pyarrow("timestamps_ms", given)
    chunks = _chunked(pa, "timestamps_ms", given)
    kind = chunks.type
    is_ready = kind == pa.int64() or (pa.types.is_timestamp(kind) and kind.unit == "ms")
    if not is_ready and not pa.types.is_timestamp(kind):
        raise UsageError(f"timestamps_ms are of type {kind}: they are int64 milliseconds since 1970, or a timestamp type")
    # the cast may cut parts of a millisecond; seconds lose nothing, but a safe cast finds a number that does not fit
    turn = None if is_ready else lambda array: array.cast(pa.timestamp("ms", kind.tz), safe=kind.unit == "s")
    return _Column("timestamps_ms", chunks, turn, _moment_buffers)


def _moment_buffers(array: Any, at: int, rows: int) -> Any:
    validity, data = _on_cpu(array)
    return Moments(validity if array.null_count else None, data, array.offset + at, rows)


def _headers(given: Any) -> _Column:
    pa = _pyarrow("headers", given)
    chunks = _chunked(pa, "headers", given)
    fields = _header_fields(pa, chunks.type)
    if fields and all(str(field.type) in _READY for field in fields):
        return _Column("headers", chunks, None, partial(_header_buffers, pa))
    names = [field.name for field in fields] or ["key", "value"]
    target = pa.large_list(pa.struct([(name, pa.string() if name == "key" else pa.binary()) for name in names]))
    return _Column("headers", chunks, partial(_cast_checked, target), partial(_header_buffers, pa), str(target))


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
    if contents.keys() != {"key", "value"} or contents["key"] not in _TEXTS or contents["value"] not in _CONTENTS:
        raise UsageError(f"headers are of type {kind}: they are lists of structs of key (string) and value (binary)")
    return fields


def _content(pa: Any, kind: Any) -> str:
    """Return the name of a header field's type, or of the values of a dictionary."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "fixed_size_binary" if pa.types.is_fixed_size_binary(kind) else str(kind)


def _cast_checked(target: Any, array: Any) -> Any:
    """Return an array as another type, after a check of all of it: `cast` would read beyond the buffers of a damaged one."""
    array.validate(full=True)
    return array.cast(target)


def _header_buffers(pa: Any, array: Any, at: int, rows: int) -> Any:
    # pyarrow ends the process where children are shorter than their parents
    try:
        array.validate()
    except pa.ArrowInvalid:
        raise ValueError("its children do not fit") from None
    validity, offsets, pairs = _on_cpu(array)[:3]
    content = array.values
    names, values = (_whole(content.field(name)) for name in ("key", "value"))
    is_large = pa.types.is_large_list(array.type)
    return Headers(
        validity if array.null_count else None,
        offsets,
        array.offset + at,
        rows,
        (pairs, content.offset) if content.null_count else None,
        names,
        values,
        is_large=is_large,
    )


def _whole(array: Any) -> Any:
    """Return all of a child array as a column of bytes."""
    return _string_buffers(is_large=str(array.type).startswith("large_"))(array, 0, len(array))


def _partitions(given: Any) -> _Column | ExportedColumn:
    if (exported := _exported("partitions", given, "partitions")) is not None:
        return exported
    pa = _pyarrow("partitions", given)
    chunks = _chunked(pa, "partitions", given)
    kind = chunks.type
    content = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not pa.types.is_integer(content) and not pa.types.is_null(content):
        raise UsageError(f"partitions are of type {kind}: they are integers, or null")
    is_ready = kind in (pa.int32(), pa.int64())
    buffers = partial(_partition_buffers, is_large=kind != pa.int32())
    return _Column("partitions", chunks, None if is_ready else lambda array: array.cast(pa.int64()), buffers, "int64")


def _partition_buffers(array: Any, at: int, rows: int, *, is_large: bool) -> Any:
    validity, data = _on_cpu(array)
    return Partitions(validity if array.null_count else None, data, array.offset + at, rows, is_large=is_large)


def _moment(given: Any) -> int | None:
    """Return the common time of all rows, or None if `given` is an array or None."""
    if not isinstance(given, (int, datetime)) and exact_int(given) is None:
        return None
    return timestamp_of("timestamps_ms", given)
