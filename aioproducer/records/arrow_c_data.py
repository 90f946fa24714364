"""Columns of arrays that an object exports by the Arrow C data interface (`__arrow_c_array__`), read without pyarrow.

1. The layouts that `Strings`, `Moments` and `Partitions` have are read in place. pyarrow converts the others.
2. The interface gives no sizes of buffers. The lengths are checked before a buffer is read; that the buffers have these lengths is the
   exporter's promise, to this module as to pyarrow.
3. A buffer references the exporter's capsule, which releases the array when the last buffer is dropped.

https://arrow.apache.org/docs/format/CDataInterface.html
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import UsageError
from aioproducer.records.columns import Moments, Partitions, Strings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ExportedColumn", "exported_column"]

# The layouts of bytes: True if the offsets have 64 bits.
_STRINGS: Final = {b"z": False, b"u": False, b"Z": True, b"U": True}
# int64, and timestamps in milliseconds, of which the time zone follows.
_INT64: Final = b"l"
_INT32: Final = b"i"
_TIMESTAMP: Final = b"tsm:"
# Rows whose 64-bit offsets are still within the address space.
_MOST_ROWS: Final = sys.maxsize // 8 - 1
# For each kind of column, whether a format is read in place.
_READ: Final[Mapping[str, Callable[[bytes], bool]]] = {
    "strings": _STRINGS.__contains__,
    "times": lambda form: form == _INT64 or form.startswith(_TIMESTAMP),
    "partitions": (_INT32, _INT64).__contains__,
}


class _Schema(ctypes.Structure):
    """`struct ArrowSchema`."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_void_p),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class _Array(ctypes.Structure):
    """`struct ArrowArray`."""

    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


_pointer_of: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


class ExportedColumn:
    """Reads one array as a column of a table.

    Args:
        name: the column's name in error texts.
        capsule: the capsule `arrow_array` of the exporter.
        form: the format of its schema, one of those that `exported_column` reads.
        kind: the kind of column: "strings", "times" or "partitions".

    Raises:
        UsageError: the array's lengths are impossible.
    """

    def __init__(self, name: str, capsule: object, form: bytes, kind: str) -> None:
        self._name = name
        self._is_short = form == _INT32
        self._has_partitions = kind == "partitions"
        array = _struct(_Array, capsule, b"arrow_array")
        self._length, self._first = array.length, array.offset
        self._is_large = _STRINGS.get(form)
        wanted = 2 if self._is_large is None else 3
        if array.n_buffers != wanted or min(self._length, self._first) < 0 or self._length + self._first > _MOST_ROWS:
            raise self._damaged(f"{self._length} rows from {self._first} on in {array.n_buffers} buffers")
        # an array without rows may be without buffers
        self._buffers = self._read(array, capsule) if self._length else []

    def __len__(self) -> int:
        return int(self._length)

    def rows_from(self, at: int) -> int:
        """Return how many rows there are from `at` on."""
        return int(self._length) - at

    def cut(self, at: int, rows: int) -> Any:
        """Return `rows` rows, from `at` on, as a column of buffers."""
        if self._has_partitions:
            return Partitions(*self._buffers, self._first + at, rows, is_large=not self._is_short)
        if self._is_large is None:
            return Moments(*self._buffers, self._first + at, rows)
        return Strings(*self._buffers, self._first + at, rows, is_large=self._is_large)

    def _read(self, array: _Array, capsule: object) -> list[Any]:
        """Return the buffers, each with the size that the array's lengths demand."""
        end = self._first + self._length
        validity, numbers, *data = array.buffers[: array.n_buffers]
        if numbers is None or (validity is None and array.null_count > 0):
            raise self._damaged("it has no buffer for its rows, or for its nulls")
        # a null count of -1 is not known yet
        held = [_buffer(validity, (end + 7) // 8, capsule) if validity and array.null_count else None]
        if self._is_large is None:
            return [*held, _buffer(numbers, end * (4 if self._is_short else 8), capsule)]
        return [*held, *self._strings(numbers, data[0], end, capsule)]

    def _strings(self, offsets: int, data: int | None, end: int, capsule: object) -> tuple[Any, Any]:
        """Return the buffers of the offsets and of the data of strings."""
        width = ctypes.c_int64 if self._is_large else ctypes.c_int32
        last = width.from_address(offsets + end * ctypes.sizeof(width)).value
        if last < 0 or (last and data is None):
            raise self._damaged(f"its data ends at {last}")
        return _buffer(offsets, (end + 1) * ctypes.sizeof(width), capsule), _buffer(data, last, capsule) if data and last else None

    def _damaged(self, why: str) -> UsageError:
        return UsageError(f"{self._name}: the array is damaged: {why}")


def exported_column(name: str, given: Any, kind: str) -> ExportedColumn | None:
    """Return the column of an object that has `__arrow_c_array__`, or None if its layout is one that pyarrow has to convert.

    `kind` is "strings", "times" or "partitions".

    Raises:
        UsageError: the object exports no array, or its lengths are impossible. The text of an exporter's own exception is left out, because
            it may have values of the array.
    """
    try:
        schema_capsule, capsule = given.__arrow_c_array__()
        schema = _struct(_Schema, schema_capsule, b"arrow_schema")
        form = schema.format or b""
        return ExportedColumn(name, capsule, form, kind) if _READ[kind](form) and not schema.dictionary else None
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{name}: no array can be read from a {type(given).__name__} ({type(error).__name__})") from None


def _struct(kind: Any, capsule: object, name: bytes) -> Any:
    """Return the structure in a capsule.

    Raises:
        ValueError: it is no such capsule, or its content was released.
    """
    found = kind.from_address(_pointer_of(capsule, name))
    if not found.release:
        raise ValueError(f"{name!r} was released")
    return found


def _buffer(address: int, size: int, owner: object) -> Any:
    buffer = (ctypes.c_char * size).from_address(address)
    buffer.owner = owner  # type: ignore[attr-defined]
    return buffer
