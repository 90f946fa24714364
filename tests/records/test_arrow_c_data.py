"""Tests of arrays that are exported by the Arrow C data interface: read without pyarrow, in place, and refused if their lengths lie."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from aioproducer.errors import UsageError
from aioproducer.records.arrow import Table
from aioproducer.records.arrow_c_data import exported_column
from tests.tools.gate.exported_array import ExportedArray, exported_bytes

THREE = struct.pack("<4i", 0, 1, 1, 4)
WIDE = struct.pack("<4q", 0, 1, 1, 4)
TIMES = struct.pack("<3q", 5, 6, 7)
DATA = b"abcd"
NO_SECOND = bytes([0b101])


class Foreign:
    """Exports a pyarrow array as another library does."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_array__(self, _requested: object = None) -> Any:
        return self._array.__arrow_c_array__()


def rows(table: Table) -> list[Any]:
    """Return value, key and time of each row."""
    return [piece.row(at)[:3] for piece in table.pieces() for at in range(piece.rows)]


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (ExportedArray(b"z", 3, [None, THREE, DATA]), [b"a", b"", b"bcd"]),
        (ExportedArray(b"u", 2, [None, THREE, DATA], offset=1), [b"", b"bcd"]),
        (ExportedArray(b"Z", 3, [NO_SECOND, WIDE, DATA], null_count=1), [b"a", None, b"bcd"]),
        (ExportedArray(b"U", 2, [NO_SECOND, WIDE, DATA], offset=1, null_count=-1), [None, b"bcd"]),
        (ExportedArray(b"z", 3, [NO_SECOND, THREE, DATA]), [b"a", b"", b"bcd"]),
        (ExportedArray(b"z", 3, [None, THREE, DATA], null_count=-1), [b"a", b"", b"bcd"]),
        (ExportedArray(b"z", 2, [None, bytes(12), None]), [b"", b""]),
        (ExportedArray(b"z", 0, [None, None, None]), []),
        (exported_bytes([b"", b"v" * 300]), [b"", b"v" * 300]),
    ],
)
def test_bytes_are_read_from_their_buffers(given: ExportedArray, values: list[bytes | None]) -> None:
    """As values and as keys: slices, nulls if the array has any, and an array without rows, which may be without buffers."""
    assert rows(Table(given, given, None)) == [(value, value, None) for value in values]


@pytest.mark.parametrize("form", [b"l", b"tsm:", b"tsm:Europe/Vienna"])
def test_times_are_read_from_their_buffers(form: bytes) -> None:
    values, times = exported_bytes([b"v", b"w"]), ExportedArray(form, 2, [bytes([0b011]), TIMES], offset=1, null_count=1)
    assert rows(Table(values, None, times)) == [(b"v", None, 6), (b"w", None, None)]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (ExportedArray(b"z", -1, [None, THREE, DATA]), "-1 rows from 0 on in 3 buffers"),
        (ExportedArray(b"z", 3, [None, THREE, DATA], offset=-1), "3 rows from -1 on"),
        (ExportedArray(b"z", 2**60, [None, THREE, DATA]), f"{2**60} rows from 0 on"),
        (ExportedArray(b"z", 2**63 - 1, [None, THREE, DATA], offset=2**63 - 1), "rows from"),
        (ExportedArray(b"z", 3, [None, THREE]), "3 rows from 0 on in 2 buffers"),
        (ExportedArray(b"z", 3, [None, None, DATA]), "it has no buffer for its rows"),
        (ExportedArray(b"z", 3, [None, THREE, DATA], null_count=1), "or for its nulls"),
        (ExportedArray(b"z", 3, [None, THREE, None]), "its data ends at 4"),
        (ExportedArray(b"z", 1, [None, struct.pack("<2i", 0, -1), DATA]), "its data ends at -1"),
    ],
)
def test_lengths_that_lie_are_refused(given: ExportedArray, why: str) -> None:
    with pytest.raises(UsageError, match=f"^keys: the array is damaged: .*{why}"):
        Table(exported_bytes([b"v"]), given, None)


def test_offsets_that_are_not_in_order_are_refused_at_their_row() -> None:
    """The data has the size that the last offset says: no row is read beyond it."""
    values = ExportedArray(b"z", 2, [None, struct.pack("<3i", 0, 9, 4), DATA])
    piece = next(Table(values, None, None).pieces())
    with pytest.raises(UsageError, match="row 0: its offsets do not lie within the column's data"):
        piece.row(0)


@pytest.mark.parametrize(
    "exported",
    [(1, 2), None, ExportedArray(b"z", 3, [None, THREE, DATA], is_released=True), tuple(reversed(exported_bytes([]).__arrow_c_array__()))],
    ids=["no capsules", "no pair", "released", "the other way round"],
)
def test_what_is_no_array_is_refused(exported: Any) -> None:
    """An object that returns anything else is refused, and so is an array that was released."""
    given = exported if isinstance(exported, ExportedArray) else type("Broken", (), {"__arrow_c_array__": lambda _self: exported})()
    with pytest.raises(UsageError, match=r"^values: no array can be read from a"):
        Table(given, None, None)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (ExportedArray(b"z", 3, [None, THREE, DATA], is_dictionary=True), "strings"),
        (ExportedArray(b"vz", 0, [None, None, None]), "strings"),
        (ExportedArray(b"l", 3, [None, TIMES]), "strings"),
        (ExportedArray(b"tsu:", 3, [None, TIMES]), "times"),
        (ExportedArray(b"z", 3, [None, THREE, DATA]), "times"),
        (ExportedArray(b"s", 3, [None, TIMES]), "partitions"),
        (ExportedArray(b"z", 3, [None, THREE, DATA]), "partitions"),
    ],
)
def test_other_layouts_are_left_to_pyarrow(given: ExportedArray, kind: str) -> None:
    """The reader takes no dictionaries, views, other units of time, or bytes for times: pyarrow converts or refuses them."""
    assert exported_column("values", given, kind) is None
    assert rows(Table(Foreign(pa.array([b"v"], pa.binary_view())), None, None)) == [(b"v", None, None)]


def test_the_array_lives_as_long_as_its_rows() -> None:
    """The exporter may be dropped at once. Its memory is released with the last piece that was cut from the column, and not before."""
    gc.collect()  # what earlier tests left
    before = pa.total_allocated_bytes()
    pieces = list(Table(Foreign(pa.array([b"v" * 100_000])), None, None).pieces())
    gc.collect()
    assert pieces[0].row(0)[0] == b"v" * 100_000
    assert pa.total_allocated_bytes() > before
    pieces.clear()
    gc.collect()
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize(("form", "packed"), [(b"i", struct.pack("<4i", 7, 5, -(2**31), 3)), (b"l", struct.pack("<4q", 7, 5, -(2**63), 3))])
def test_partitions_are_read_from_their_buffers(form: bytes, packed: bytes) -> None:
    values, column = exported_bytes([b"u", b"v", b"w"]), ExportedArray(form, 3, [bytes([0b1010]), packed], offset=1, null_count=-1)
    (piece,) = Table(values, None, None, None, column).pieces()
    assert [piece.row(at)[4] for at in range(3)] == [5, None, 3]


def test_headers_that_are_exported_are_read_through_pyarrow() -> None:
    values = exported_bytes([b"u", b"v"])
    column = pa.array([[{"key": "a", "value": b"1"}], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    (piece,) = Table(values, None, None, Foreign(column)).pieces()
    assert [piece.row(at)[3] for at in range(2)] == [[("a", b"1")], None]


def test_pyarrow_is_not_imported() -> None:
    """Both columns of the table are read without pyarrow, which a process imports in half a second."""
    program = """
import sys
from aioproducer.records.arrow import Table
from tests.tools.gate.exported_array import exported_bytes
values, keys = exported_bytes([b"v"]), exported_bytes([b"k"])
(piece,) = Table(values, keys, None).pieces()
assert piece.row(0)[:3] == (b"v", b"k", None)
print("pyarrow" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "False\n"
