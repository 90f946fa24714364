"""`rows_checksum`: one number for the same rows, of all types, chunks and splits."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from aioproducer import rows_checksum
from aioproducer.errors import UsageError
from aioproducer.records import arrow
from aioproducer.records import rows_checksum as module

COUNT = 20_000
VALUES = [None if number % 11 == 0 else b"%d" % number for number in range(COUNT)]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(params=["chosen", "plain"], autouse=True)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen build, and plain Python."""
    if request.param == "plain":
        for one in (arrow, module):
            monkeypatch.setattr(one, "_compiled", None)


def test_the_split_of_the_rows_does_not_matter() -> None:
    """More rows than one call hashes, in one array, in chunks, in two calls, and in another order."""
    values, keys = pa.array(VALUES), pa.array(VALUES[::-1])
    whole = rows_checksum(values=values, keys=keys)
    chunks = pa.chunked_array([values.slice(0, 9_000), values.slice(9_000)])
    assert rows_checksum(values=chunks, keys=keys) == whole
    parts = [
        rows_checksum(values=values.slice(at, size), keys=keys.slice(at, size))
        for at, size in ((0, 12_345), (12_345, COUNT))
    ]
    assert sum(parts) % 2**64 == whole
    backwards = pa.array(VALUES[::-1])
    assert rows_checksum(values=backwards, keys=values) == whole
    assert rows_checksum(values=keys, keys=keys) != whole


@pytest.mark.parametrize(
    "kind",
    [pa.large_binary(), pa.string(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())],
    ids=str,
)
def test_types_do_not_matter(kind: Any) -> None:
    some = (
        [None if value is None else value.decode() for value in VALUES[:100]]
        if kind == pa.string()
        else VALUES[:100]
    )
    assert rows_checksum(values=pa.array(some, kind)) == rows_checksum(
        values=pa.array(VALUES[:100])
    )


def test_an_array_of_another_library() -> None:
    foreign = type(
        "Foreign",
        (),
        {
            "__arrow_c_array__": lambda _self, _schema=None: pa.array(
                [b"a", b"b"]
            ).__arrow_c_array__()
        },
    )()
    assert rows_checksum(values=foreign) == rows_checksum(values=pa.array([b"b", b"a"]))


@pytest.mark.parametrize(
    "given",
    [
        {"keys": pa.array([b"", None])},
        {"timestamps_ms": 0},
        {"timestamps_ms": pa.array([None, 0])},
        {"headers": pa.array([None, [{"key": "", "value": None}]], HEADERS)},
        {"partitions": pa.array([0, None], pa.int8())},
    ],
    ids=", ".join,
)
def test_each_column_counts(given: Any) -> None:
    """Where a row has anything of it; a column of nulls, and lists without headers, count as no column."""
    values = pa.array([b"v", b"w"])
    plain = rows_checksum(values=values)
    assert rows_checksum(values=values, **given) != plain
    (name,) = given
    assert (
        rows_checksum(
            values=values,
            **{name: pa.nulls(2, pa.int64() if name == "timestamps_ms" else pa.null())},
        )
        == plain
    )
    assert rows_checksum(values=values, headers=pa.array([[], None], HEADERS)) == plain


def test_no_rows_have_the_sum_0() -> None:
    assert rows_checksum(values=pa.array([], pa.binary())) == 0


def test_a_row_that_cannot_be_sent_is_named() -> None:
    headers = pa.array([None, [{"key": None, "value": b""}]], HEADERS)
    with pytest.raises(UsageError, match=r"^row 1: a header's key is a string, not null$"):
        rows_checksum(values=pa.array([b"v", b"w"]), headers=headers)
    with pytest.raises(UsageError, match=r"^row 1: partition=-1: "):
        rows_checksum(values=pa.array([b"v", b"w"]), partitions=pa.array([0, -1]))
