"""Rows of Arrow columns as records: the compiled encoder and its twin, held against the records' own encoder and against each other."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from builds import COLUMNS, both_builds, compiled_columns, needs_compiled_columns
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.records import plain_columns
from aioproducer.records.plain_columns import BadRow
from aioproducer.records.reader import read_batches
from aioproducer.records.record_batch import OVERHEAD, encode_record, header, size_limit
from aioproducer.records.varints import unvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = both_builds

BUILDS = (plain_columns, compiled_columns)
ROOM = 100_000
each_build = pytest.mark.parametrize("build", COLUMNS)

Rows = list[bytes | None]


def bits(rows: Sequence[object], before: int) -> bytes:
    """Arrow's bitmap, behind so many rows that are there."""
    whole = [True] * before + [row is not None for row in rows]
    return bytes(sum(bit << at for at, bit in enumerate(whole[begin : begin + 8])) for begin in range(0, len(whole), 8))


def strings(build: Any, rows: Rows, *, before: int = 0, is_large: bool = False, gap: bytes = b"") -> Any:
    """A column of these rows, behind some of other rows, with `gap` between and around the rows' bytes where they are null."""
    data, offsets = b"", []
    for row in [b"before"] * before + rows:
        offsets.append(len(data))
        data += gap if row is None else row
    packed = array("q" if is_large else "i", [*offsets, len(data)]).tobytes()
    validity = bits(rows, before) if None in rows else None
    return build.Strings(validity, packed, data or None, before, len(rows), is_large=is_large)


def moments(build: Any, times: list[int | None] | None, before: int = 0) -> Any:
    if times is None:
        return None
    packed = array("q", [7] * before + [-5 if time is None else time for time in times]).tobytes()
    return build.Moments(bits(times, before) if None in times else None, packed, before, len(times))


def outcome(call: Callable[[], Any]) -> Any:
    """Return the call's result, or the type and the text of its exception."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)


def numbers(column: Any, count: int) -> list[int]:
    return [unvarint(column)] * count if isinstance(column, bytes) else list(column)


texts = st.one_of(st.none(), st.binary(max_size=8), st.integers(60, 70).map(bytes), st.integers(8188, 8196).map(bytes))
times = st.one_of(st.none(), st.integers(0, 3), st.integers(1_700_000_000_000, 1_700_000_005_000), st.just(2**63 - 1))


@st.composite
def tables(draw: Any) -> dict[str, Any]:
    """Columns of one length, and which of their rows."""
    count = draw(st.integers(0, 12))
    exactly = {"min_size": count, "max_size": count}
    at = draw(st.integers(0, count))
    order = draw(st.one_of(st.none(), st.permutations(range(count))))
    return {
        "values": draw(st.lists(texts, **exactly)),
        "keys": draw(st.one_of(st.none(), st.lists(texts, **exactly))),
        "times": draw(st.one_of(st.none(), st.lists(times, **exactly))),
        "order": order,
        "at": at,
        "end": draw(st.integers(at, count)),
        "before": draw(st.integers(0, 9)),
        "is_large": draw(st.booleans()),
        "gap": draw(st.sampled_from([b"", b"gap"])),
    }


def encoded(build: Any, table: dict[str, Any], room: int) -> Any:
    order = None if table["order"] is None else array("i", table["order"])
    layout = {name: table[name] for name in ("before", "is_large", "gap")}
    keys = None if table["keys"] is None else strings(build, table["keys"], **layout)
    clock = moments(build, table["times"], table["before"])
    return build.encode(strings(build, table["values"], **layout), keys, clock, 99, order, table["at"], table["end"], room)


def expected(table: dict[str, Any], room: int) -> tuple[bytes, list[tuple[Any, Any, int]]]:
    """Return the payload and the rows that the encoder of single records makes."""
    rows = list(table["order"] or range(len(table["values"])))[table["at"] : table["end"]]
    payload, taken = b"", []
    for row in rows:
        key = None if table["keys"] is None else table["keys"][row]
        time = None if table["times"] is None else table["times"][row]
        time = 99 if time is None else time
        base = taken[0][2] if taken else time
        record = encode_record(len(taken), time - base, key, table["values"][row], b"\0")
        if len(payload) + len(record) > room:
            break
        payload += record
        taken.append((key, table["values"][row], time))
    return payload, taken


@each_build
@given(table=tables(), room=st.one_of(st.integers(0, 100), st.integers(0, 40_000)))
@settings(max_examples=100, deadline=None)
def test_rows_become_the_records_that_they_are_one_by_one(build: Any, table: dict[str, Any], room: int) -> None:
    """The builder encodes as many rows as fit, with the bytes of single records and the facts for their metadata."""
    found = encoded(build, table, room)
    payload, taken = expected(table, room)
    assert found.payload == payload
    assert found.rows == len(taken)
    if taken:
        assert (found.base, found.latest) == (taken[0][2], max(time for _, _, time in taken))
        assert numbers(found.key_sizes, found.rows) == [-1 if key is None else len(key) for key, _, _ in taken]
        assert numbers(found.value_sizes, found.rows) == [-1 if value is None else len(value) for _, value, _ in taken]
        deltas = [time - found.base for _, _, time in taken]
        assert (found.moments == b"\0\0") if not any(deltas) else (found.moments == array("q", deltas))


@needs_compiled_columns
@given(table=tables(), room=st.integers(-2, 3000), most=st.integers(0, 20_000), longest=st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
def test_both_builds_say_the_same(table: dict[str, Any], room: int, most: int, longest: int) -> None:
    """Also of what makes no sense."""
    said = [outcome(lambda build=build: encoded(build, table, room)) for build in BUILDS]
    assert [one == said[0] for one in said] == [True, True]
    assert {tuple(map(type, one)) for one in said} == {tuple(map(type, said[0]))}
    said = []
    for build in BUILDS:
        layout = {name: table[name] for name in ("before", "is_large", "gap")}
        keys = None if table["keys"] is None else strings(build, table["keys"], **layout)
        values, clock = strings(build, table["values"], **layout), moments(build, table["times"])
        said.append(outcome(lambda: build.measure(values, keys, clock, table["at"], table["end"] - table["at"], most, longest)))  # noqa: B023
    assert [one == said[0] for one in said] == [True, True]


@needs_compiled_columns
@given(
    offsets=st.lists(st.one_of(st.integers(-3, 30), st.sampled_from([2**31 - 1, -(2**31)])), min_size=1, max_size=10),
    data=st.binary(max_size=20),
    validity=st.one_of(st.none(), st.binary(max_size=2)),
    first=st.integers(-1, 4),
    length=st.integers(-1, 10),
    is_large=st.booleans(),
    order=st.one_of(st.none(), st.lists(st.integers(-2, 10), max_size=8)),
)
@settings(max_examples=250, deadline=None)
def test_whatever_lies_in_the_buffers_both_builds_say_the_same_of_it(
    offsets: list[int], data: bytes, validity: bytes | None, first: int, length: int, is_large: bool, order: list[int] | None
) -> None:
    """Offsets that go back, before the data or beyond it, buffers that are too short, rows that are not there."""
    packed = array("q" if is_large else "i", offsets).tobytes()

    def try_all(build: Any) -> list[Any]:
        column = build.Strings(validity, packed, data, first, length, is_large=is_large)
        rows = None if order is None else array("i", order)
        calls: list[Callable[[], Any]] = [
            lambda: build.encode(column, column, None, 0, rows, 0, length if rows is None else len(rows), ROOM),
            lambda: build.measure(column, column, None, 0, length, ROOM, ROOM),
            *[lambda row=row: column.get(row) for row in range(-1, length + 1)],
        ]
        return [len(column), *map(outcome, calls)]

    said = [outcome(lambda build=build: try_all(build)) for build in BUILDS]
    assert [one == said[0] for one in said] == [True, True]


@each_build
@pytest.mark.parametrize(
    ("offsets", "data", "validity", "first", "length", "said"),
    [
        ([0, 3], b"abc", None, 0, 2, "offsets of 8 bytes do not hold rows 0 to 3"),
        ([0, 3], b"abc", None, 1, 1, "offsets of 8 bytes do not hold rows 1 to 3"),
        ([0, 3], b"abc", b"", 0, 1, "validity bits of 0 bytes do not hold rows 0 to 1"),
        ([0] * 10, b"abc", b"\xff", 0, 9, "validity bits of 1 bytes do not hold rows 0 to 9"),
        ([0, 3], b"abc", None, -1, 1, "offsets of 8 bytes do not hold rows -1 to 1"),
        ([0, 3], b"abc", None, 2**62, 1, "offsets of 8 bytes do not hold rows 4611686018427387904 to 4611686018427387906"),
    ],
)
def test_buffers_that_are_too_short(
    build: Any, offsets: list[int], data: bytes, validity: bytes | None, first: int, length: int, said: str
) -> None:
    with pytest.raises(ValueError) as raised:
        build.Strings(validity, array("i", offsets).tobytes(), data, first, length, is_large=False)
    assert str(raised.value) == said


@each_build
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("offsets", [[0, 2, 1], [0, 2, 4], [-1, 2, 3], [0, 2, -1], [0, 2, 2**31 - 1]])
def test_a_row_whose_offsets_lie_is_named(build: Any, offsets: list[int], is_large: bool) -> None:
    """Wherever it is looked at; a null row's are not looked at."""
    bad = 0 if offsets[0] < 0 else 1
    packed = array("q" if is_large else "i", offsets).tobytes()
    column = build.Strings(None, packed, b"abc", 0, 2, is_large=is_large)
    for call in (
        lambda: build.encode(column, None, None, 0, None, 0, 2, ROOM),
        lambda: build.encode(column, None, None, 0, array("i", [bad]), 0, 1, ROOM),
        lambda: build.measure(column, None, None, bad, 2 - bad, ROOM, ROOM),
        lambda: column.get(bad),
    ):
        with pytest.raises(BadRow) as raised:
            call()
        assert raised.value.row == bad
        assert "offsets" in raised.value.what
    null = build.Strings(bytes([3 - (1 << bad)]), packed, b"abc", 0, 2, is_large=is_large)
    assert null.get(bad) is None
    assert build.encode(null, None, None, 0, None, 0, 2, ROOM).rows == 2


@each_build
def test_what_comes_before_a_bad_row_is_measured(build: Any) -> None:
    """So that it can be sent: bad offsets of a key, and a time before 1970."""
    values = strings(build, [b"a"] * 4)
    keys = build.Strings(None, array("i", [0, 1, 2, 1, 1]).tobytes(), b"abc", 0, 4, is_large=False)
    assert build.measure(values, keys, None, 0, 4, ROOM, ROOM)[0] == 2
    clock = build.Moments(None, array("q", [5, -1, 5, 5]).tobytes(), 0, 4)
    assert build.measure(values, None, clock, 0, 4, ROOM, ROOM)[0] == 1
    for call in (lambda: build.measure(values, None, clock, 1, 3, ROOM, ROOM), lambda: clock.get(1)):
        with pytest.raises(BadRow, match="negative"):
            call()
    with pytest.raises(BadRow, match="negative"):
        build.encode(values, None, clock, 5, None, 0, 4, ROOM)


@each_build
@pytest.mark.parametrize(
    ("at", "end", "order", "room", "now", "error"),
    [
        (0, 3, None, ROOM, 0, ValueError),
        (-1, 2, None, ROOM, 0, ValueError),
        (2, 1, None, ROOM, 0, ValueError),
        (0, 2, [0], ROOM, 0, ValueError),
        (0, 1, [2], ROOM, 0, IndexError),
        (0, 1, [-1], ROOM, 0, IndexError),
        (0, 2, None, -1, 0, ValueError),
        (0, 2, None, 2**31, 0, ValueError),
        (0, 2, None, ROOM, -1, ValueError),
    ],
)
def test_rows_that_are_not_there(build: Any, at: int, end: int, order: Any, room: int, now: int, error: type[Exception]) -> None:
    column = strings(build, [b"a", b"b"])
    with pytest.raises(error):
        build.encode(column, None, None, now, None if order is None else array("i", order), at, end, room)


@each_build
def test_columns_of_other_lengths(build: Any) -> None:
    short, whole = strings(build, [b"a"]), strings(build, [b"a", b"b"])
    clock = moments(build, [1])
    for keys, time in ((short, None), (None, clock)):
        with pytest.raises(ValueError, match="there are no rows"):
            build.encode(whole, keys, time, 0, None, 0, 1, ROOM)
        with pytest.raises(ValueError, match="there are no rows"):
            build.measure(whole, keys, time, 0, 1, ROOM, ROOM)


@each_build
def test_measuring_is_what_a_record_may_have_at_most(build: Any) -> None:
    """`measure` counts a row as `send` does. A row that is too long is measured alone."""
    rows: Rows = [b"", None, b"x" * 63, b"x" * 64, b"x" * 9000, b"y"]
    column, keys = strings(build, rows), strings(build, rows[::-1])
    bounds = [size_limit(key, value, b"\0") - OVERHEAD for value, key in zip(rows, rows[::-1], strict=True)]
    assert [build.measure(column, keys, None, at, 1, 0, ROOM) for at in range(6)] == [(1, bound) for bound in bounds]
    assert build.measure(column, keys, None, 0, 6, sum(bounds), ROOM) == (6, sum(bounds))
    assert build.measure(column, keys, None, 0, 6, sum(bounds) - 1, ROOM) == (5, sum(bounds[:5]))
    assert build.measure(column, None, None, 0, 6, ROOM, 1000)[0] == 4
    assert build.measure(column, None, None, 4, 2, ROOM, 1000)[0] == 1


@each_build
def test_a_reader_finds_the_rows_again(build: Any) -> None:
    """In a whole batch, read as a broker or a consumer does."""
    rows: Rows = [None if at % 7 == 0 else b"%d" % at * (at % 90) for at in range(2000)]
    found = build.encode(strings(build, rows), strings(build, rows[::-1]), moments(build, list(range(2000))), 0, None, 0, 2000, ROOM)
    head = header(found.payload, found.rows, 0, found.base, found.latest)
    [batch] = read_batches(head + found.payload)
    records = list(batch.records())
    assert 100 < len(records) == found.rows < 2000
    assert [record.value for record in records] == rows[: found.rows]
    assert [record.key for record in records] == rows[::-1][: found.rows]
    assert [record.timestamp_ms for record in records] == list(range(found.rows))


@each_build
def test_buffers_are_let_go(build: Any) -> None:
    """A column holds them as long as it is there."""
    data, offsets = bytearray(b"abc"), bytearray(struct.pack("=2i", 0, 3))
    column = build.Strings(None, offsets, data, 0, 1, is_large=False)
    with pytest.raises(BufferError):
        data.append(1)
    assert column.get(0) == b"abc"
    del column
    data.append(1)
    offsets.append(1)
