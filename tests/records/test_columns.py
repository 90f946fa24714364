"""Rows of Arrow columns as records: the compiled encoder, held against the records' own encoder."""

from __future__ import annotations

import contextlib
import gc
import struct
from array import array
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from builds import compiled_columns, needs_compiled_columns, on_columns
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.records.encoded_rows import BadRow, Encoded
from aioproducer.records.record_batch import OVERHEAD, encode_record, size_limit
from aioproducer.records.varints import unvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOM = 100_000

Rows = list[bytes | None]


def bits(rows: Sequence[object], before: int) -> bytes:
    """Arrow's bitmap, behind so many rows that are there."""
    whole = [True] * before + [row is not None for row in rows]
    return bytes(
        sum(bit << at for at, bit in enumerate(whole[begin : begin + 8]))
        for begin in range(0, len(whole), 8)
    )


def strings(
    build: Any, rows: Rows, *, before: int = 0, is_large: bool = False, gap: bytes = b""
) -> Any:
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
    except Exception as error:
        return type(error), str(error)


def numbers(column: Any, count: int) -> list[int]:
    return [unvarint(column)] * count if isinstance(column, bytes) else list(column)


texts = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.integers(60, 70).map(bytes),
    st.integers(8188, 8196).map(bytes),
)
times = st.one_of(
    st.none(),
    st.integers(0, 3),
    st.integers(1_700_000_000_000, 1_700_000_005_000),
    st.just(2**63 - 1),
)


@st.composite
def tables(draw: Any) -> dict[str, Any]:
    """Columns of one length, and which of their rows."""
    count = draw(st.integers(0, 12))
    exactly = {"min_size": count, "max_size": count}
    at = draw(st.integers(0, count))
    end = draw(st.integers(at, count))
    groups = st.lists(st.integers(0, 2), min_size=end - at, max_size=end - at)
    return {
        "values": draw(st.lists(texts, **exactly)),
        "keys": draw(st.one_of(st.none(), st.lists(texts, **exactly))),
        "times": draw(st.one_of(st.none(), st.lists(times, **exactly))),
        "picks": draw(st.one_of(st.none(), groups)),
        "at": at,
        "end": end,
        "before": draw(st.integers(0, 9)),
        "is_large": draw(st.booleans()),
        "gap": draw(st.sampled_from([b"", b"gap"])),
    }


def encoded(
    build: Any, table: dict[str, Any], room: int, most: int = 2**31 - 1, groups: int = 3
) -> Any:
    picks = None if table["picks"] is None else array("H", table["picks"])
    layout = {name: table[name] for name in ("before", "is_large", "gap")}
    keys = None if table["keys"] is None else strings(build, table["keys"], **layout)
    clock = moments(build, table["times"], table["before"])
    at, rows = table["at"], table["end"] - table["at"]
    return build.encode(
        strings(build, table["values"], **layout),
        keys,
        clock,
        99,
        at,
        rows,
        picks,
        groups,
        room,
        most,
    )


def expected(
    table: dict[str, Any], room: int
) -> list[list[tuple[bytes, list[tuple[Any, Any, int]]]]]:
    """Return the payloads and the rows that the encoder of single records makes, by group."""
    made: list[list[tuple[bytes, list[tuple[Any, Any, int]]]]] = [[], [], []]
    for index, row in enumerate(range(table["at"], table["end"])):
        key = None if table["keys"] is None else table["keys"][row]
        value = table["values"][row]
        time = None if table["times"] is None else table["times"][row]
        time = 99 if time is None else time
        batches = made[table["picks"][index] if table["picks"] is not None else 0]
        payload, taken = batches[-1] if batches else (b"", [])
        record = encode_record(len(taken), time - taken[0][2] if taken else 0, key, value, b"\0")
        if batches and len(payload) + len(record) <= room:
            batches[-1] = payload + record, [*taken, (key, value, time)]
        else:
            batches.append((encode_record(0, 0, key, value, b"\0"), [(key, value, time)]))
    return made


@on_columns
@given(table=tables(), room=st.one_of(st.integers(0, 100), st.integers(0, 40_000)))
@settings(max_examples=100, deadline=None)
def test_rows_become_the_records_that_they_are_one_by_one(
    build: Any, table: dict[str, Any], room: int
) -> None:
    """In the batches of their groups: as many as fit, or one, with the bytes of single records and the facts for their metadata."""
    found, wanted = encoded(build, table, room), expected(table, room)
    assert [[batch.payload for batch in batches] for batches in found] == [
        [payload for payload, _ in batches] for batches in wanted
    ]
    for batch, (_, taken) in zip(chain(*found), chain(*wanted), strict=True):
        assert batch.rows == len(taken)
        assert (batch.base, batch.latest) == (taken[0][2], max(time for _, _, time in taken))
        assert numbers(batch.key_sizes, batch.rows) == [
            -1 if key is None else len(key) for key, _, _ in taken
        ]
        assert numbers(batch.value_sizes, batch.rows) == [
            -1 if value is None else len(value) for _, value, _ in taken
        ]
        deltas = [time - batch.base for _, _, time in taken]
        assert (
            (batch.moments == b"\0\0") if not any(deltas) else (batch.moments == array("q", deltas))
        )


@on_columns
@given(table=tables(), room=st.integers(0, 300))
@settings(max_examples=50, deadline=None)
def test_rows_that_take_more_than_was_measured_are_refused(
    build: Any, table: dict[str, Any], room: int
) -> None:
    """The first row beyond the bytes for which there is memory is named: it has changed since."""
    sizes = [len(payload) for payload, _ in chain(*expected(table, room))]
    assert encoded(build, table, room, sum(sizes)) == encoded(build, table, room)
    if sizes:
        with pytest.raises(BadRow, match="the columns were changed") as raised:
            encoded(build, table, room, sum(sizes) - 1)
        assert raised.value.row == table["end"] - 1


@needs_compiled_columns
@given(
    offsets=st.lists(
        st.one_of(st.integers(-3, 30), st.sampled_from([2**31 - 1, -(2**31)])),
        min_size=1,
        max_size=10,
    ),
    data=st.binary(max_size=20),
    validity=st.one_of(st.none(), st.binary(max_size=2)),
    first=st.integers(-1, 4),
    length=st.integers(-1, 10),
    is_large=st.booleans(),
    picks=st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=8)),
)
@settings(max_examples=250, deadline=None)
def test_whatever_lies_in_the_buffers_a_row_is_read_or_refused(
    offsets: list[int],
    data: bytes,
    validity: bytes | None,
    first: int,
    length: int,
    is_large: bool,
    picks: list[int] | None,
) -> None:
    """Offsets that go back, before the data or beyond it, buffers that are too short, rows and groups that are not there."""
    packed = array("q" if is_large else "i", offsets).tobytes()
    try:
        column = compiled_columns.Strings(validity, packed, data, first, length, is_large=is_large)
    except ValueError:
        return
    groups = None if picks is None else array("H", picks)
    calls: list[Callable[[], Any]] = [
        lambda: compiled_columns.encode(
            column,
            column,
            None,
            0,
            0,
            length if groups is None else len(groups),
            groups,
            3,
            ROOM,
            ROOM,
        ),
        lambda: compiled_columns.measure(column, column, None, 0, length, ROOM, ROOM),
        *[lambda row=row: column.get(row) for row in range(-1, length + 1)],
    ]
    for call in calls:
        with contextlib.suppress(BadRow, IndexError, ValueError):
            call()


@on_columns
@pytest.mark.parametrize(
    ("offsets", "data", "validity", "first", "length", "said"),
    [
        ([0, 3], b"abc", None, 0, 2, "offsets of 8 bytes do not hold rows 0 to 3"),
        ([0, 3], b"abc", None, 1, 1, "offsets of 8 bytes do not hold rows 1 to 3"),
        ([0, 3], b"abc", b"", 0, 1, "validity bits of 0 bytes do not hold rows 0 to 1"),
        ([0] * 10, b"abc", b"\xff", 0, 9, "validity bits of 1 bytes do not hold rows 0 to 9"),
        ([0, 3], b"abc", None, -1, 1, "offsets of 8 bytes do not hold rows -1 to 1"),
        (
            [0, 3],
            b"abc",
            None,
            2**62,
            1,
            "offsets of 8 bytes do not hold rows 4611686018427387904 to 4611686018427387906",
        ),
    ],
)
def test_buffers_that_are_too_short(
    build: Any,
    offsets: list[int],
    data: bytes,
    validity: bytes | None,
    first: int,
    length: int,
    said: str,
) -> None:
    with pytest.raises(ValueError) as raised:
        build.Strings(validity, array("i", offsets).tobytes(), data, first, length, is_large=False)
    assert str(raised.value) == said


@on_columns
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(
    "offsets", [[0, 2, 1], [0, 2, 4], [-1, 2, 3], [0, 2, -1], [0, 2, 2**31 - 1]]
)
def test_a_row_whose_offsets_lie_is_named(build: Any, offsets: list[int], is_large: bool) -> None:
    """Wherever it is looked at; a null row's are not looked at."""
    bad = 0 if offsets[0] < 0 else 1
    packed = array("q" if is_large else "i", offsets).tobytes()
    column = build.Strings(None, packed, b"abc", 0, 2, is_large=is_large)
    for call in (
        lambda: build.encode(column, None, None, 0, 0, 2, None, 1, ROOM, ROOM),
        lambda: build.encode(column, None, None, 0, bad, 1, array("H", [0]), 1, ROOM, ROOM),
        lambda: build.measure(column, None, None, bad, 2 - bad, ROOM, ROOM),
        lambda: column.get(bad),
    ):
        with pytest.raises(BadRow) as raised:
            call()
        assert raised.value.row == bad
        assert "offsets" in raised.value.what
    null = build.Strings(bytes([3 - (1 << bad)]), packed, b"abc", 0, 2, is_large=is_large)
    assert null.get(bad) is None
    assert build.encode(null, None, None, 0, 0, 2, None, 1, ROOM, ROOM)[0][0].rows == 2


@on_columns
def test_what_comes_before_a_bad_row_is_measured(build: Any) -> None:
    """So that it can be sent: bad offsets of a key, and a time before 1970."""
    values = strings(build, [b"a"] * 4)
    keys = build.Strings(None, array("i", [0, 1, 2, 1, 1]).tobytes(), b"abc", 0, 4, is_large=False)
    assert build.measure(values, keys, None, 0, 4, ROOM, ROOM)[0] == 2
    clock = build.Moments(None, array("q", [5, -1, 5, 5]).tobytes(), 0, 4)
    assert build.measure(values, None, clock, 0, 4, ROOM, ROOM)[0] == 1
    for call in (
        lambda: build.measure(values, None, clock, 1, 3, ROOM, ROOM),
        lambda: clock.get(1),
    ):
        with pytest.raises(BadRow, match="negative"):
            call()
    with pytest.raises(BadRow, match="negative"):
        build.encode(values, None, clock, 5, 0, 4, None, 1, ROOM, ROOM)


@on_columns
@pytest.mark.parametrize(
    ("at", "rows", "picks", "groups", "room", "most", "now", "error"),
    [
        (0, 3, None, 1, ROOM, ROOM, 0, ValueError),
        (-1, 3, None, 1, ROOM, ROOM, 0, ValueError),
        (2, -1, None, 1, ROOM, ROOM, 0, ValueError),
        (0, 2, [0], 1, ROOM, ROOM, 0, ValueError),
        (0, 1, [0, 0], 1, ROOM, ROOM, 0, ValueError),
        (0, 2, [0, 1], 1, ROOM, ROOM, 0, IndexError),
        (0, 2, [0, 1], 0, ROOM, ROOM, 0, ValueError),
        (0, 2, [0, 1], 65_536, ROOM, ROOM, 0, ValueError),
        (0, 2, None, 1, -1, ROOM, 0, ValueError),
        (0, 2, None, 1, 2**31, ROOM, 0, ValueError),
        (0, 2, None, 1, ROOM, -1, 0, ValueError),
        (0, 2, None, 1, ROOM, 2**31, 0, ValueError),
        (0, 2, None, 1, ROOM, ROOM, -1, ValueError),
    ],
)
def test_rows_and_groups_that_are_not_there(
    build: Any,
    at: int,
    rows: int,
    picks: Any,
    groups: int,
    room: int,
    most: int,
    now: int,
    error: type[Exception],
) -> None:
    column = strings(build, [b"a", b"b"])
    with pytest.raises(error):
        build.encode(
            column,
            None,
            None,
            now,
            at,
            rows,
            None if picks is None else array("H", picks),
            groups,
            room,
            most,
        )


@on_columns
def test_columns_of_other_lengths(build: Any) -> None:
    short, whole = strings(build, [b"a"]), strings(build, [b"a", b"b"])
    clock = moments(build, [1])
    for keys, time in ((short, None), (None, clock)):
        with pytest.raises(ValueError, match="there are no rows"):
            build.encode(whole, keys, time, 0, 0, 1, None, 1, ROOM, ROOM)
        with pytest.raises(ValueError, match="there are no rows"):
            build.measure(whole, keys, time, 0, 1, ROOM, ROOM)


@on_columns
def test_measuring_is_what_a_record_may_have_at_most(build: Any) -> None:
    """`measure` counts a row as `send` does. A row that is too long is measured alone."""
    rows: Rows = [b"", None, b"x" * 63, b"x" * 64, b"x" * 9000, b"y"]
    column, keys = strings(build, rows), strings(build, rows[::-1])
    bounds = [
        size_limit(key, value, b"\0") - OVERHEAD
        for value, key in zip(rows, rows[::-1], strict=True)
    ]
    assert [build.measure(column, keys, None, at, 1, 0, ROOM) for at in range(6)] == [
        (1, bound) for bound in bounds
    ]
    assert build.measure(column, keys, None, 0, 6, sum(bounds), ROOM) == (6, sum(bounds))
    assert build.measure(column, keys, None, 0, 6, sum(bounds) - 1, ROOM) == (5, sum(bounds[:5]))
    assert build.measure(column, None, None, 0, 6, ROOM, 1000)[0] == 4
    assert build.measure(column, None, None, 4, 2, ROOM, 1000)[0] == 1


@needs_compiled_columns
@pytest.mark.parametrize(
    ("begin", "end"), [(0, 9), (4, 5), (9, 9), (6, 9), (4, 9), (-1, 9), (4, 2**31 - 1)]
)
def test_rows_that_change_while_they_are_encoded_are_refused(begin: int, end: int) -> None:
    """A finalizer or another thread may run while the batches are made. Their sizes are fixed by then: no byte is written beyond them."""
    offsets = bytearray(struct.pack("=4i", 0, 4, 9, 20))
    column = compiled_columns.Strings(None, offsets, b"x" * 20, 0, 3, is_large=False)
    gc.collect()
    plain = compiled_columns.encode(column, column, None, 0, 0, 3, None, 1, 0, ROOM)

    def change(_phase: str, _: object) -> None:
        # Once the first of the new batches is there.
        if sum(isinstance(one, Encoded) for one in gc.get_objects()) > len(plain[0]):
            struct.pack_into("=2i", offsets, 4, begin, end)

    threshold = gc.get_threshold()
    gc.callbacks.append(change)
    gc.set_threshold(1)
    try:
        said = outcome(
            lambda: compiled_columns.encode(column, column, None, 0, 0, 3, None, 1, 0, ROOM)
        )
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(change)
    if (begin, end) == (4, 9):
        assert said == plain
    else:
        assert said[0] is BadRow
        # The first row that changed: none was written before it with another size.
        assert (
            said[1]
            == f"({int(begin == 4)}, 'the columns were changed before send_columns returned')"
        )


@on_columns
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
