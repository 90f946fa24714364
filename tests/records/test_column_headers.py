"""Headers and partitions of rows: the compiled columns, held against the records' own encoder."""

from __future__ import annotations

import contextlib
from array import array
from typing import Any

import pytest
from builds import compiled_columns, needs_compiled_columns, on_columns
from column_rows import Pairs, headers, partitions, strings
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.records.encoded_rows import BadRow
from aioproducer.records.record_batch import encode_headers, encode_record

ROOM = 100_000


names = st.one_of(st.text(max_size=4), st.just("name" * 20))
lists = st.one_of(
    st.none(),
    st.lists(
        st.tuples(names, st.one_of(st.none(), st.binary(max_size=4), st.just(bytes(70)))),
        max_size=3,
    ),
)


@on_columns
@given(
    rows=st.lists(lists, max_size=8),
    before=st.integers(0, 9),
    is_large=st.booleans(),
    room=st.one_of(st.integers(0, 300), st.just(ROOM)),
)
@settings(max_examples=100, deadline=None)
def test_headers_become_those_of_single_records(
    build: Any, rows: list[Pairs], before: int, is_large: bool, room: int
) -> None:
    """With their bytes, as many rows as fit; no row takes more bytes than was measured; and each row's are read as they were given."""
    column, values = (
        headers(build, rows, before, is_large=is_large),
        strings(build, [b"v"] * len(rows)),
    )
    batches = build.encode(values, None, None, 5, 0, len(rows), None, 1, room, ROOM, column)[0]
    wanted = [
        encode_record(index, 0, None, b"v", encode_headers(row or ()))
        for index, row in enumerate(rows)
    ]
    count = max(
        count
        for count in range(len(rows) + 1)
        if len(b"".join(wanted[:count])) <= max(room, len(b"".join(wanted[:1])))
    )
    assert [(batch.rows, batch.payload) for batch in batches[:1]] == [
        (count, b"".join(wanted[:count]))
    ] * bool(rows)
    assert sum(batch.rows for batch in batches) == len(rows)
    assert [column.get(row) for row in range(len(rows))] == rows
    measured = build.measure(values, None, None, 0, len(rows), ROOM, ROOM, column)
    assert measured == (len(rows), sum(24 + len(encode_headers(row or ())) for row in rows))
    assert measured[1] >= len(b"".join(wanted))


@needs_compiled_columns
@given(
    ends=st.lists(st.one_of(st.integers(-3, 6), st.just(2**31 - 1)), min_size=1, max_size=6),
    name_ends=st.lists(st.integers(-2, 9), min_size=4, max_size=4),
    value_ends=st.lists(st.integers(-2, 9), min_size=4, max_size=4),
    data=st.binary(max_size=8),
    there=st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 7), st.integers(0, 63)),
    length=st.integers(-1, 6),
    picks=st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=6)),
)
@settings(max_examples=300, deadline=None)
def test_whatever_lies_in_the_buffers_a_row_is_read_or_refused(
    ends: list[int],
    name_ends: list[int],
    value_ends: list[int],
    data: bytes,
    there: tuple[int, ...],
    length: int,
    picks: Any,
) -> None:
    """Lists that go back or beyond the headers, null structs and keys, keys that are no text, wrong offsets in either child."""

    build = compiled_columns
    try:
        children = [
            build.Strings(bytes([mask]), array("i", offsets).tobytes(), data, 0, 3, is_large=False)
            for mask, offsets in zip(there, (name_ends, value_ends), strict=False)
        ]
        column = build.Headers(
            bytes([there[3]]),
            array("i", ends).tobytes(),
            0,
            length,
            (bytes([there[2]]), 0),
            *children,
            is_large=False,
        )
    except ValueError:
        return
    values = strings(build, [b"v"] * length)
    groups = None if picks is None else array("H", picks)
    calls: list[Any] = [
        lambda: build.encode(
            values,
            None,
            None,
            0,
            0,
            length if groups is None else len(groups),
            groups,
            3,
            60,
            ROOM,
            column,
        ),
        lambda: build.measure(values, None, None, 0, length, 60, 40, column),
        *[lambda row=row: column.get(row) for row in range(-1, length + 1)],
    ]
    for call in calls:
        with contextlib.suppress(BadRow, IndexError, ValueError):
            call()


@on_columns
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([(None, b"")], "a header's key is a string, not null"),
        ([("a", b"1"), None], "a header is a pair of a string and bytes or null, not null"),
    ],
)
def test_a_row_whose_headers_are_none_is_named(build: Any, bad: Any, said: str) -> None:
    """Wherever it is looked at; the rows before it can be sent."""
    column, values = headers(build, [[("a", b"1")], None, bad]), strings(build, [b"v"] * 3)
    assert build.measure(values, None, None, 0, 3, ROOM, ROOM, column)[0] == 2
    for call in (
        lambda: build.encode(values, None, None, 0, 0, 3, None, 1, ROOM, ROOM, column),
        lambda: build.encode(values, None, None, 0, 2, 1, array("H", [0]), 1, ROOM, ROOM, column),
        lambda: build.measure(values, None, None, 2, 1, ROOM, ROOM, column),
        lambda: column.get(2),
    ):
        with pytest.raises(BadRow) as raised:
            call()
        assert (raised.value.row, raised.value.what) == (2, said)


@on_columns
@pytest.mark.parametrize("name", [b"\xff", "\udce9".encode(errors="surrogatepass")])
def test_a_key_that_is_no_text_is_refused(build: Any, name: bytes) -> None:
    children = strings(build, [name]), strings(build, [b"v"])
    column = build.Headers(
        None, array("i", [0, 1]).tobytes(), 0, 1, None, *children, is_large=False
    )
    for call in (
        lambda: column.get(0),
        lambda: build.measure(strings(build, [b"v"]), None, None, 0, 1, ROOM, ROOM, column),
    ):
        with pytest.raises(BadRow, match="not UTF-8"):
            call()


@on_columns
@pytest.mark.parametrize("size", [*range(1, 20), 33])
def test_a_byte_that_is_no_text_is_found_anywhere(build: Any, size: int) -> None:
    """In the name of the second header of a row; the row before it can be sent. A name that is no ASCII is taken if it is text."""
    values = strings(build, [b"v"] * 2)
    ends = array("i", [0, 1, 3]).tobytes()
    for at in range(size):
        name = bytearray(b"n" * size)
        name[at] = 0x80
        column = build.Headers(
            None,
            ends,
            0,
            2,
            None,
            strings(build, [b"a", b"b", bytes(name)]),
            strings(build, [b""] * 3),
            is_large=False,
        )
        assert build.measure(values, None, None, 0, 2, ROOM, ROOM, column)[0] == 1
        with pytest.raises(BadRow, match="not UTF-8"):
            build.measure(values, None, None, 1, 1, ROOM, ROOM, column)
    column = headers(build, [[("a", b"")], [("b", b""), ("n" * (size - 1) + "\u00e9", b"")]])
    assert build.measure(values, None, None, 0, 2, ROOM, ROOM, column)[0] == 2


@on_columns
@pytest.mark.parametrize("size", [0, 1, 7, 15, 16, 17, 30])
def test_fields_at_the_ends_of_their_buffers(build: Any, size: int) -> None:
    """Each field is the last one in its column's buffer, and the record fills the room: no byte behind a field is of another one."""
    value, key, pairs = b"v" * size, b"k" * size, [("n" * size, b"w" * size)]
    column = headers(build, [[("m" * size, b"x" * size)], pairs])
    first = encode_record(0, 0, key, value, encode_headers([("m" * size, b"x" * size)]))
    second = encode_record(1, 0, key[::-1], value, encode_headers(pairs))
    columns = strings(build, [value] * 2), strings(build, [key] * 2), None, 0, 0, 2, None, 1
    assert [
        batch.payload for batch in build.encode(*columns, len(first + second), ROOM, column)[0]
    ] == [first + second]
    alone = encode_record(0, 0, key[::-1], value, encode_headers(pairs))
    assert [
        batch.payload for batch in build.encode(*columns, len(first + second) - 1, ROOM, column)[0]
    ] == [first, alone]


@on_columns
def test_headers_of_other_lengths_are_refused(build: Any) -> None:
    """Fewer lists than rows, fewer values than keys, and bits that do not reach."""
    one, two = strings(build, [b"a"]), strings(build, [b"a", b"b"])
    short = build.Headers(None, bytes(8), 0, 1, None, one, one, is_large=False)
    for call in (
        lambda: build.encode(two, None, None, 0, 0, 2, None, 1, ROOM, ROOM, short),
        lambda: build.measure(two, None, None, 0, 2, ROOM, ROOM, short),
        lambda: build.Headers(None, bytes(8), 0, 1, None, one, two, is_large=False),
        lambda: build.Headers(None, bytes(8), 0, 2, None, one, one, is_large=False),
        lambda: build.Headers(b"", bytes(8), 0, 1, None, one, one, is_large=False),
        lambda: build.Headers(None, bytes(8), 0, 1, (b"", 0), one, one, is_large=False),
    ):
        with pytest.raises(ValueError, match=r"there are no rows|a column of|do not hold rows"):
            call()


@on_columns
@given(
    rows=st.lists(st.one_of(st.none(), st.integers(-2, 5), st.just(2**31 - 1)), max_size=8),
    before=st.integers(0, 9),
    is_large=st.booleans(),
    at=st.integers(0, 8),
    count=st.integers(0, 6),
)
@settings(max_examples=100, deadline=None)
def test_rows_of_partitions_that_exist(
    build: Any, rows: list[int | None], before: int, is_large: bool, at: int, count: int
) -> None:
    """They end before a partition that does not exist or is negative; such a first row stands alone, or is refused."""
    at = min(at, len(rows))
    column = partitions(build, rows, before, is_large=is_large)
    for row, number in enumerate(rows):
        if number is None or number >= 0:
            assert column.get(row) == number
        else:
            with pytest.raises(BadRow, match=f"partition={number}: "):
                column.get(row)
    some = [-1 if number is None else number if number >= 0 else None for number in rows[at:]]
    wrong = next(
        (index for index, number in enumerate(some) if number is None or number >= count), len(some)
    )
    if some and some[0] is None:
        with pytest.raises(BadRow) as raised:
            build.known(column, at, len(some), count)
        assert raised.value.row == at
    elif some and wrong == 0:
        assert build.known(column, at, len(some), count) == (1, some[0])
    else:
        assert build.known(column, at, len(some), count) == (
            wrong,
            max(filter(lambda one: one is not None, some[:wrong]), default=-1),
        )


@on_columns
def test_partitions_that_are_not_there(build: Any) -> None:
    column = partitions(build, [1, 2])
    for at, rows in ((0, 3), (-1, 1), (2, 1), (0, -1)):
        with pytest.raises(ValueError, match="there are no rows"):
            build.known(column, at, rows, 9)
    for row in (-1, 2):
        with pytest.raises(IndexError):
            column.get(row)
    with pytest.raises(ValueError, match="partitions of 8 bytes do not hold rows 0 to 3"):
        build.Partitions(None, bytes(8), 0, 3, is_large=False)
