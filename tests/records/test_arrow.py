"""Tests of pyarrow's arrays as our columns: types, slices and chunks. Errors never show the contents."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from builds import compiled_columns, needs_compiled_columns

from aioproducer.errors import UsageError
from aioproducer.records import arrow
from aioproducer.records.arrow import Table

CANARY = "canary"
WORDS = ["a", None, "", "long" * 30, CANARY]


@pytest.fixture(params=["chosen", "plain"], autouse=True)
def is_plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether this is plain Python, which reads no buffers; the chosen build comes first."""
    if request.param == "compiled":
        monkeypatch.setattr(arrow, "_compiled", compiled_columns)
        monkeypatch.setattr(arrow, "_STEP", 16_384)
    if request.param == "plain":
        monkeypatch.setattr(arrow, "_compiled", None)
        monkeypatch.setattr(arrow, "_STEP", 512)
    return arrow._compiled is None


def rows(table: Table) -> list[Any]:
    """Return value, key and time of each row."""
    return [piece.row(at)[:3] for piece in table.pieces() for at in range(piece.rows)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.binary(7),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_binary()),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_types_that_are_bytes(kind: Any, is_chunked: bool) -> None:
    """Nulls, empty ones, slices; as values and as keys."""
    given = [None if word is None else word.encode() for word in WORDS]
    if kind == pa.binary(7):
        given = [None if word is None else word.ljust(7)[:7] for word in given]
    plain = pa.array([b"before." if kind == pa.binary(7) else b"before", *given, None], pa.binary())
    array = (
        plain.cast(kind)
        if not pa.types.is_dictionary(kind)
        else plain.cast(kind.value_type).dictionary_encode().cast(kind)
    )
    column = array[1:-1]
    if is_chunked:
        column = pa.chunked_array([array[1:3], array[3:3], array[3:-1]])
    assert [value for value, _, _ in rows(Table(column, None, None))] == given
    assert [key for _, key, _ in rows(Table(column, column, None))] == given


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.list_(pa.binary()),
        pa.struct([("a", pa.binary())]),
        pa.date32(),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["values", "keys"])
def test_types_that_are_not(name: str, kind: Any) -> None:
    given = {"values": pa.array([b"v"]), "keys": None, name: pa.array([None], kind)}
    with pytest.raises(UsageError, match=rf"^{name} are of type .*: encode them, or") as raised:
        Table(given["values"], given["keys"], None)
    assert str(kind) in str(raised.value)


@pytest.mark.parametrize(
    "given", [[b"v"], (b"v",), b"v", "v", 5, None, {"a": b"v"}, object()], ids=repr
)
@pytest.mark.parametrize("name", ["values", "keys", "timestamps_ms"])
def test_what_is_no_array(name: str, given: Any) -> None:
    columns = {"values": pa.array([b"v"]), "keys": None, "timestamps_ms": None, name: given}
    if given is None and name != "values":
        assert len(Table(*columns.values())) == 1
    elif isinstance(given, int) and name == "timestamps_ms":
        assert Table(*columns.values()).moment == given
    else:
        with pytest.raises(
            UsageError,
            match=rf"^{name} are a pyarrow array, not {type(given).__name__}: make one .* or use send_many",
        ):
            Table(*columns.values())


@pytest.mark.parametrize("given", [True, -1, 2**63])
def test_a_time_that_is_none(given: Any) -> None:
    with pytest.raises(UsageError, match="whole milliseconds since 1970"):
        Table(pa.array([b"v"]), None, given)


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.float64(), pa.string(), pa.date64(), pa.duration("ms")], ids=str
)
def test_times_of_other_types(kind: Any) -> None:
    with pytest.raises(
        UsageError, match=r"^timestamps_ms are of type .*: they are int64 milliseconds"
    ):
        Table(pa.array([b"v"]), None, pa.array([None], kind))


def test_times_in_other_units() -> None:
    """Times in smaller units are cut to milliseconds. Rows with too many seconds are refused, also where a multiple of 2**64 is lost."""
    column = pa.array([5_999, None], pa.int64()).cast(pa.timestamp("us"))
    assert [moment for _, _, moment in rows(Table(pa.array([b"v", b"w"]), None, column))] == [
        5,
        None,
    ]
    for many in (2**60, 18_446_744_073_709_553):
        table = Table(pa.array([b"v"]), None, pa.array([many], pa.int64()).cast(pa.timestamp("s")))
        with pytest.raises(UsageError, match=r"^timestamps_ms: pyarrow cannot turn timestamp\[s\]"):
            rows(table)


def test_columns_of_other_lengths() -> None:
    for name, columns in (
        ("keys", (pa.array([b"k"]), None)),
        ("timestamps_ms", (None, pa.array([1, 2, 3]))),
    ):
        with pytest.raises(
            UsageError, match=f"^{name} are [13] rows, and values are 2: each row is one record"
        ):
            Table(pa.array([b"v", b"w"]), *columns)


@pytest.mark.parametrize("door", ["__arrow_c_array__", "__arrow_c_stream__", "__arrow_array__"])
def test_arrays_of_other_libraries(door: str) -> None:
    """The table takes arrays of other libraries through either interface of Arrow."""
    array = pa.array(WORDS)
    source = pa.chunked_array([array]) if door == "__arrow_c_stream__" else array
    open_door = getattr(source, door, lambda *_args, **_named: array)
    foreign = type("Foreign", (), {door: lambda _self, *args, **named: open_door(*args, **named)})()
    assert [value for value, _, _ in rows(Table(foreign, None, None))] == [
        None if word is None else word.encode() for word in WORDS
    ]


def test_one_that_cannot_be_taken() -> None:
    """The error names the kind of the exception that the array raises, and not its text."""

    class Broken:
        def __arrow_c_array__(self, _schema: object = None) -> object:
            raise ValueError(CANARY)

    with pytest.raises(
        UsageError, match=r"values: pyarrow cannot take a Broken \(ValueError\)"
    ) as raised:
        Table(Broken(), None, None)
    assert CANARY not in str(raised.value)


@needs_compiled_columns
@pytest.mark.parametrize("is_plain", ["compiled"], indirect=True)
def test_chunks_are_joined_if_they_are_tiny_and_large_ones_are_not_copied() -> None:
    """The table joins tiny chunks and does not copy large ones. It turns columns of another type a few rows at a time."""
    tiny = pa.chunked_array([pa.array([b"%d" % at]) for at in range(10_000)])
    pieces = list(Table(tiny, None, None).pieces())
    assert [piece.rows for piece in pieces] == [4096, 4096, 1808]
    assert [piece.first for piece in pieces] == [0, 4096, 8192]
    assert pieces[1].row(7)[:3] == (b"4103", None, None)
    large = pa.chunked_array([pa.array([bytes(2_000_000)])] * 5)
    assert [piece.rows for piece in Table(large, None, None).pieces()] == [1, 1, 1, 2]
    views = pa.array([b"v"] * 40_000, pa.binary_view())
    assert [piece.rows for piece in Table(views, None, None).pieces()] == [16_384, 16_384, 7232]
    wide = pa.array([bytes(1_000_000)] * 9, pa.binary(1_000_000))
    assert max(piece.rows for piece in Table(wide, None, None).pieces()) == 4


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(arrow.__builtins__, "__import__", _no_pyarrow)  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"pip install 'aioproducer\[arrow\]', or use send_many"):
        Table(pa.array([b"v"]), None, None)


_import = __import__


def _no_pyarrow(name: str, *args: Any, **named: Any) -> Any:
    if name == "pyarrow":
        raise ImportError(name)
    return _import(name, *args, **named)


def test_what_lies_about_its_buffers_is_refused() -> None:
    """A view of bytes that do not exist and a chunk with a wrong last offset are refused. pyarrow makes columns of both and fails later."""
    beyond = struct.pack("<i4sii", 1_000_000, b"abcd", 0, 900_000_000)
    view = pa.Array.from_buffers(
        pa.binary_view(), 1, [None, pa.py_buffer(beyond), pa.py_buffer(b"a" * 26)]
    )
    with pytest.raises(UsageError, match=r"^values: pyarrow cannot turn binary_view into bytes"):
        rows(Table(view, None, None))
    offsets = bytearray(12)
    chunk = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcdef")]
    )
    offsets[:] = struct.pack("<3i", 0, 3, 4000)
    with pytest.raises(UsageError, match=r"^values: pyarrow cannot join its chunks"):
        rows(Table(pa.chunked_array([chunk, pa.array([b"xx", b"y"])]), None, None))


@needs_compiled_columns
def test_a_damaged_array_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array with buffers that do not hold its rows is refused. pyarrow makes none such, other libraries may."""

    def too_short(_validity: Any, _offsets: Any, *rest: Any, **named: Any) -> Any:
        return Strings(None, bytes(8), *rest, **named)

    Strings = compiled_columns.Strings
    monkeypatch.setattr(arrow, "_compiled", compiled_columns)
    monkeypatch.setattr(compiled_columns, "Strings", too_short)
    with pytest.raises(
        UsageError, match="values: the array is damaged: offsets of 8 bytes do not hold rows 0 to 3"
    ):
        rows(Table(pa.array([b"v", b"w"]), None, None))


KEY, VALUE = ("key", pa.string()), ("value", pa.binary())


@pytest.mark.parametrize(
    "fields",
    [
        [KEY, VALUE],
        [VALUE, KEY],
        [("key", pa.large_string()), ("value", pa.large_string())],
        [("key", pa.string_view()), ("value", pa.binary_view())],
        [KEY, ("value", pa.binary(2))],
        [
            ("key", pa.dictionary(pa.int8(), pa.string())),
            ("value", pa.dictionary(pa.int32(), pa.binary())),
        ],
    ],
    ids=str,
)
@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list])
def test_headers_of_each_type(fields: Any, list_of: Any) -> None:
    """In slices and chunks, with null lists, empty ones, and null values."""
    pair = pa.struct(
        [(name, kind.value_type if pa.types.is_dictionary(kind) else kind) for name, kind in fields]
    )
    given = [[("a", b"11"), ("b", None)], None, [], [("", b"22")], [("\u00e9", b"33")] * 3]
    rows_ = [row and [{"key": key, "value": value} for key, value in row] for row in given]
    array = pa.array([[{"key": "z", "value": b"00"}], *rows_], list_of(pair))
    if any(pa.types.is_dictionary(kind) for _, kind in fields):
        children = [array.values.field(name).dictionary_encode() for name, _ in fields]
        pairs = pa.StructArray.from_arrays(children, [name for name, _ in fields])
        maker = pa.LargeListArray if list_of is pa.large_list else pa.ListArray
        array = maker.from_arrays(array.offsets, pairs, mask=array.is_null())
    column = pa.chunked_array([array.slice(1, 3), array.slice(4)])
    table = Table(pa.array([b"v"] * 5), None, None, column)
    found = [piece.row(at)[3] for piece in table.pieces() for at in range(piece.rows)]
    assert found == given


def test_headers_that_are_all_null() -> None:
    (piece,) = Table(pa.array([b"v"] * 2), None, None, pa.nulls(2)).pieces()
    assert [piece.row(at)[3] for at in range(2)] == [None, None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(),
        pa.list_(pa.string()),
        pa.list_(pa.struct([KEY])),
        pa.list_(pa.struct([KEY, VALUE, ("more", pa.int8())])),
        pa.list_(pa.struct([("key", pa.binary()), VALUE])),
        pa.list_(pa.struct([("Key", pa.string()), VALUE])),
        pa.list_(pa.struct([KEY, ("value", pa.int32())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=str,
)
def test_headers_of_other_types_are_refused(kind: Any) -> None:
    with pytest.raises(
        UsageError,
        match=r"^headers are of type .*: they are lists of structs of key \(string\) and value \(binary\)$",
    ):
        Table(pa.array([b"v"]), None, None, pa.array([None], kind))


def test_damaged_headers_are_refused() -> None:
    """A list ends behind the last header, since the array was made. pyarrow ends the process where it slices children that are too short."""
    pairs = pa.array([{"key": "a", "value": b"1"}], pa.struct([KEY, VALUE]))
    offsets = bytearray(struct.pack("<3i", 0, 1, 1))
    column = pa.Array.from_buffers(
        pa.list_(pairs.type), 2, [None, pa.py_buffer(offsets)], children=[pairs]
    )
    offsets[8:] = struct.pack("<i", 9)
    with pytest.raises(
        UsageError, match=r"^headers: the array is damaged: its children do not fit$"
    ):
        list(Table(pa.array([b"v"] * 2), None, None, column).pieces())


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint64(),
        pa.dictionary(pa.int8(), pa.int32()),
    ],
    ids=str,
)
def test_partitions_of_each_type(kind: Any) -> None:
    column = pa.chunked_array([pa.array([9, 1, None, 0], kind).slice(1), pa.array([5], kind)])
    table = Table(pa.array([b"v"] * 4), None, None, None, column)
    assert [piece.row(at)[4] for piece in table.pieces() for at in range(piece.rows)] == [
        1,
        None,
        0,
        5,
    ]


def test_partitions_that_are_all_null() -> None:
    (piece,) = Table(pa.array([b"v"]), None, None, None, pa.nulls(1)).pieces()
    assert piece.row(0)[4] is None


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.bool_()], ids=str)
def test_partitions_of_other_types_are_refused(kind: Any) -> None:
    with pytest.raises(
        UsageError, match=r"^partitions are of type .*: they are integers, or null$"
    ):
        Table(pa.array([b"v"]), None, None, None, pa.array([None], kind))


def test_a_partition_beyond_64_bits_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"^partitions: pyarrow cannot turn uint64 into int64 \(ArrowInvalid\)"
    ):
        list(Table(pa.array([b"v"]), None, None, None, pa.array([2**63], pa.uint64())).pieces())


@pytest.mark.parametrize("name", ["headers", "partitions"])
def test_headers_and_partitions_of_other_lengths_are_refused(name: str) -> None:
    with pytest.raises(
        UsageError, match=f"^{name} are 2 rows, and values are 1: each row is one record$"
    ):
        Table(pa.array([b"v"]), None, None, **{name: pa.nulls(2)})
