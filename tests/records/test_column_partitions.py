"""A column of keys, grouped by partition as each key alone."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from builds import on_columns
from column_rows import partitions as column_of
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from aioproducer.core.topic_routing import murmur2
from aioproducer.records.encoded_rows import BadRow

MOST_ROWS = 65_535


def column(build: Any, keys: list[bytes | None]) -> Any:
    ends, validity = [0], 0
    for at, key in enumerate(keys):
        ends.append(ends[-1] + len(key or b""))
        validity |= (key is not None) << at
    bitmap = validity.to_bytes((len(keys) + 7) // 8, "little")
    return build.Strings(
        bitmap,
        array("i", ends).tobytes(),
        b"".join(key or b"" for key in keys),
        0,
        len(keys),
        is_large=False,
    )


@on_columns
@drawn(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=40),
    at=st.integers(0, 40),
    partitions=st.integers(1, 9),
    nobodys=st.integers(-1, 8),
)
@settings(max_examples=100, deadline=None)
def test_each_row_is_where_its_key_belongs(
    build: Any, keys: list[bytes | None], at: int, partitions: int, nobodys: int
) -> None:
    """Groups are in the order of their first rows; those without a key together, or where they are said to belong."""
    at, nobodys = min(at, len(keys)), min(nobodys, partitions - 1)
    picks, groups = build.assign(column(build, keys), at, len(keys) - at, partitions, nobodys)
    belongs = [
        nobodys if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys[at:]
    ]
    assert [groups[pick] for pick in picks] == belongs
    assert groups == list(dict.fromkeys(belongs))
    assert picks.typecode == "H"


@on_columns
@pytest.mark.parametrize(
    "given",
    [
        (0, 3, 1),
        (-1, 1, 1),
        (0, -1, 1),
        (3, 0, 1),
        (0, 1, 0),
        (0, 1, 2**31),
        (2**62, 2**62, 1),
        (0, 1, 3, 3),
        (0, 1, 3, -2),
    ],
)
def test_rows_and_partitions_that_are_not_there(build: Any, given: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="partitions"):
        build.assign(column(build, [b"a", b"b"]), *given)


@on_columns
def test_no_more_rows_than_groups_can_be_told_apart(build: Any) -> None:
    keys = build.Strings(None, bytes(4 * (MOST_ROWS + 2)), b"", 0, MOST_ROWS + 1, is_large=False)
    assert len(build.assign(keys, 0, MOST_ROWS, 3)[0]) == MOST_ROWS
    with pytest.raises(ValueError, match="65536 rows"):
        build.assign(keys, 0, MOST_ROWS + 1, 3)


@on_columns
def test_a_key_that_cannot_be_found_is_named(build: Any) -> None:
    keys = build.Strings(None, array("i", [0, 1, 9]).tobytes(), b"abc", 0, 2, is_large=False)
    with pytest.raises(BadRow) as raised:
        build.assign(keys, 0, 2, 3)
    assert raised.value.row == 1


@on_columns
@drawn(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 8)), st.one_of(st.none(), st.binary(max_size=9))
        ),
        max_size=40,
    ),
    at=st.integers(0, 40),
    partitions=st.integers(9, 12),
    nobodys=st.integers(-1, 8),
    has_keys=st.booleans(),
    is_large=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_a_row_is_in_its_own_partition_before_that_of_its_key(
    build: Any,
    rows: list[Any],
    at: int,
    partitions: int,
    nobodys: int,
    has_keys: bool,
    is_large: bool,
) -> None:
    """Rows of one partition are one group, whether by their numbers or their keys."""
    at = min(at, len(rows))
    keys = [key if has_keys else None for _, key in rows]
    given = column_of(build, [number for number, _ in rows], is_large=is_large)
    picks, groups = build.assign(
        column(build, keys) if has_keys else None, at, len(rows) - at, partitions, nobodys, given
    )
    belongs = [
        number
        if number is not None
        else nobodys
        if key is None
        else (murmur2(key) & 0x7FFFFFFF) % partitions
        for (number, _), key in zip(rows[at:], keys[at:], strict=True)
    ]
    assert [groups[pick] for pick in picks] == belongs
    assert groups == list(dict.fromkeys(belongs))


@on_columns
@pytest.mark.parametrize("number", [-1, 3, 2**31 - 1])
def test_a_partition_that_does_not_exist_is_named(build: Any, number: int) -> None:
    """As far as the column was changed after it was looked at: a group beyond the partitions would lie beyond the memory."""
    with pytest.raises(BadRow, match=f"partition={number}: ") as raised:
        build.assign(None, 0, 2, 3, -1, column_of(build, [2, number]))
    assert raised.value.row == 1
    with pytest.raises(ValueError, match="3 rows for 3 partitions"):
        build.assign(column(build, [b"a"] * 3), 0, 3, 3, -1, column_of(build, [2, 1]))
