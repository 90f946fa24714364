"""Hashes of rows: equal in both builds, and different for rows that differ."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from builds import both_builds, compiled_columns, needs_compiled_columns, on_columns
from column_rows import headers, partitions, strings
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.records.encoded_rows import BadRow
from aioproducer.records.rows_checksum import _hash

pytestmark = both_builds

MODULUS = 2**64
# None: plain Python.
each_build = pytest.mark.parametrize(
    "build",
    [
        pytest.param(None, id="plain"),
        pytest.param(compiled_columns, id="compiled", marks=needs_compiled_columns),
    ],
)
sizes = st.one_of(st.integers(0, 40), st.sampled_from([63, 64, 65, 127, 200]))
fields = st.one_of(st.none(), sizes.flatmap(lambda size: st.binary(min_size=size, max_size=size)))
rows = st.tuples(
    fields,
    fields,
    st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=9), fields), max_size=3)),
    st.one_of(st.none(), st.integers(0, 2**31 - 1)),
)


def hashed(
    build: Any, some: list[Any], moment: int = -1, at: int = 0, end: int | None = None
) -> int:
    """Return the sum for rows of value, key, time, headers and partition."""
    if build is None:
        return sum(_hash(*row, None) for row in some[at:end]) % MODULUS
    values, keys, times, lists, numbers = (
        (list(column) for column in zip(*some, strict=True)) if some else [[]] * 5
    )
    validity = sum((time is not None) << place for place, time in enumerate(times)).to_bytes(
        len(times) // 8 + 1, "little"
    )
    clock = build.Moments(
        validity,
        array("q", [-7 if time is None else time for time in times]).tobytes(),
        0,
        len(times),
    )
    columns = (
        strings(build, values),
        strings(build, keys),
        clock,
        headers(build, lists),
        partitions(build, numbers),
    )
    return int(build.hash_rows(*columns, moment, at, (len(some) if end is None else end) - at))


@needs_compiled_columns
@given(some=st.lists(rows, max_size=6))
@settings(max_examples=200, deadline=None)
def test_both_builds_give_the_same_numbers(some: list[Any]) -> None:
    assert hashed(None, some) == hashed(compiled_columns, some)


@each_build
@given(
    some=st.lists(rows, max_size=8), cut=st.integers(0, 8), seed=st.randoms(use_true_random=False)
)
@settings(max_examples=60, deadline=None)
def test_neither_the_order_nor_the_split_matters(
    build: Any, some: list[Any], cut: int, seed: Any
) -> None:
    """The sums of parts add to the sum of all rows in any order; no rows have the sum 0."""
    whole = hashed(build, some)
    assert hashed(build, seed.sample(some, len(some))) == whole
    assert (hashed(build, some[:cut]) + hashed(build, some[cut:])) % MODULUS == whole
    cut = min(cut, len(some))
    assert (hashed(build, some, end=cut) + hashed(build, some, at=cut)) % MODULUS == whole
    assert hashed(build, []) == 0


def as_record(row: Any) -> Any:
    """Return what distinguishes a row from others: no headers are an empty list."""
    return *row[:3], row[3] or None, row[4]


@each_build
@given(one=rows, other=rows)
@settings(max_examples=100, deadline=None)
def test_rows_are_equal_if_their_sums_are(build: Any, one: Any, other: Any) -> None:
    assert (hashed(build, [one]) == hashed(build, [other])) is (as_record(one) == as_record(other))


@each_build
@given(data=st.data(), value=st.binary(min_size=1, max_size=150))
@settings(max_examples=30, deadline=None)
def test_a_small_change_changes_the_sum(build: Any, data: Any, value: bytes) -> None:
    """Two bytes change places, a bit flips, the boundary between value and key moves, empty becomes null, or a field moves."""
    first, second = (data.draw(st.integers(0, len(value) - 1)) for _ in range(2))
    swapped = bytearray(value)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    flipped = bytearray(value)
    flipped[first] ^= 1 << data.draw(st.integers(0, 7))
    rows = {
        (value, None, None, None, None),
        (bytes(swapped), None, None, None, None),
        (bytes(flipped), None, None, None, None),
        *((value[:cut], value[cut:], None, None, None) for cut in range(len(value) + 1)),
        (None, value, None, None, None),
        (value + b"\0", None, None, None, None),
        (value, None, 0, None, None),
        (value, None, 5, None, None),
        (value, None, None, None, 5),
        (value, None, None, None, 0),
    }
    with_headers = [
        (value, None, None, [pair], None)
        for pair in (("", None), ("", b""), ("a", b""), ("", b"a"), ("aa", None))
    ]
    sums = [hashed(build, [row]) for row in [*rows, *with_headers]]
    assert len(set(sums)) == len(rows) + len(with_headers)


@each_build
def test_the_numbers_stay(build: Any) -> None:
    """Processes with other builds and versions compare them: of empty rows, of each size of a last word, and of all columns."""
    assert hashed(build, [(None, None, None, None, None)]) == 17863525881543342646
    sized = [
        (bytes(range(size)), bytes(range(size, 2 * size)), None, None, None) for size in range(40)
    ]
    assert hashed(build, sized) == 2074323839885529314
    full = [(b"value", b"key", 5, [("a", b"1"), ("\u00e9", None)], 3), (b"v", None, None, [], None)]
    assert hashed(build, full) == 3186197866204340167
    assert hashed(build, [(*row[:2], 5, *row[3:]) for row in full]) != 3186197866204340167


@on_columns
def test_a_time_of_all_rows_counts_as_that_of_each(build: Any) -> None:
    hash_rows = build.hash_rows
    values = strings(build, [b"v", b"w"])
    clock = build.Moments(None, array("q", [5, 5]).tobytes(), 0, 2)
    assert hash_rows(values, None, None, None, None, 5, 0, 2) == hash_rows(
        values, None, clock, None, None, -1, 0, 2
    )
    assert hash_rows(values, None, None, None, None, 5, 0, 2) != hash_rows(
        values, None, None, None, None, -1, 0, 2
    )


@on_columns
def test_a_row_that_cannot_be_one_is_named(build: Any) -> None:
    """By its offsets, its time, its headers or its partition; and rows that are not there are refused."""
    good = [b"a", b"b"]
    hash_rows = build.hash_rows
    damaged = build.Strings(None, array("i", [0, 1, 9]).tobytes(), b"abc", 0, 2, is_large=False)
    for columns in (
        (damaged, None, None, None, None),
        (strings(build, good), damaged, None, None, None),
        (
            strings(build, good),
            None,
            build.Moments(None, array("q", [0, -1]).tobytes(), 0, 2),
            None,
            None,
        ),
        (strings(build, good), None, None, headers(build, [None, [(None, b"")]]), None),
        (
            strings(build, good),
            None,
            None,
            None,
            build.Partitions(None, array("i", [0, -1]).tobytes(), 0, 2, is_large=False),
        ),
    ):
        with pytest.raises(BadRow) as raised:
            hash_rows(*columns, -1, 0, 2)
        assert raised.value.row == 1
        with pytest.raises(ValueError, match="there are no rows 1 to 3"):
            hash_rows(*columns, -1, 1, 2)
    with pytest.raises(ValueError, match="there are no rows"):
        hash_rows(strings(build, good), None, None, None, partitions(build, [1]), -1, 0, 2)
