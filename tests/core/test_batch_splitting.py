"""Tests of `aioproducer.core.batch_splitting`: pieces are read back with the reader of another module."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.batch_splitting import Piece, in_halves, without
from aioproducer.engine.chosen_build import (
    DeliveryContext,
    MemoryRecordsBuilder,
    ProduceRequestResult,
)
from aioproducer.records.reader import Record
from aioproducer.records.record_batch import encode_headers, header
from aioproducer.testing.record_batches import read_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

BASE = 1_700_000_000_000
HOME = DeliveryContext(
    cast("Any", SimpleNamespace(time=time.monotonic)), lambda _error, _count: None
)
RECORDS = st.lists(
    st.tuples(
        st.integers(-(10**6), 10**12),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=300),
        st.sampled_from([(), (("h", b"1"),), (("h", None), ("h", b"x" * 99))]),
    ),
    min_size=1,
    max_size=40,
)


def payload_of(records: Sequence[Any]) -> tuple[bytes, int]:
    """As the producer encodes it, and its base timestamp."""
    base = BASE + records[0][0]
    batch = MemoryRecordsBuilder(ProduceRequestResult(HOME, "t", 0, base), base, 1 << 20)
    for delta, key, value, headers in records:
        assert batch.append_record(BASE + delta, key, value, encode_headers(headers)) is not None
    payload, base_timestamp, _ = batch.close()
    return payload, base_timestamp


def read(piece: Piece) -> list[Record]:
    """Its records, checked as a broker does."""
    head = header(piece.payload, len(piece.indexes), 0, piece.base_timestamp, piece.max_timestamp)
    (batch,) = read_batches(head + piece.payload)
    batch.check()
    records = batch.records()
    assert batch.max_timestamp == max(record.timestamp_ms for record in records)
    assert batch.base_timestamp == records[0].timestamp_ms
    return records


def assert_same(pieces: Sequence[Piece], records: Sequence[Any]) -> None:
    for piece in pieces:
        for offset, (index, found) in enumerate(zip(piece.indexes, read(piece), strict=True)):
            delta, key, value, headers = records[index]
            assert found == Record(offset, BASE + delta, key, value, headers)


@given(records=RECORDS, most=st.integers(1, 2000))
def test_halves_have_all_records_in_order_as_they_were(records: Sequence[Any], most: int) -> None:
    """Keys, values, headers and times; no piece of several records is larger than it may be, and neighbours could not be one."""
    payload, base_timestamp = payload_of(records)
    pieces = in_halves(payload, base_timestamp, most)
    assert [index for piece in pieces for index in piece.indexes] == list(range(len(records)))
    assert_same(pieces, records)
    limit = min(most, len(payload) // 2)
    slack = 10 * len(records)  # deltas of times and places become shorter
    assert all(len(piece.payload) <= limit + slack or len(piece.indexes) == 1 for piece in pieces)
    assert len(records) == 1 or len(pieces) > 1
    assert all(
        len(one.payload) + len(two.payload) > limit - slack
        for one, two in itertools.pairwise(pieces)
    )


def test_halves_end_at_single_records() -> None:
    """However often a broker refuses them (KAFKA-8350)."""
    payload, base = payload_of([(number, None, b"." * 10 * number, ()) for number in range(16)])
    rounds = 0
    pieces = [Piece(range(16), payload, base, base)]
    while any(len(piece.indexes) > 1 for piece in pieces):
        pieces = [
            half
            for piece in pieces
            for half in (
                in_halves(piece.payload, piece.base_timestamp, 1 << 20)
                if len(piece.indexes) > 1
                else [piece]
            )
        ]
        rounds += 1
    assert len(pieces) == 16
    assert rounds <= 5
    assert [read(piece)[0].value for piece in pieces] == [
        b"." * 10 * number for number in range(16)
    ]


@given(records=RECORDS, data=st.data())
def test_bad_records_stand_alone_and_the_others_together(
    records: Sequence[Any], data: st.DataObject
) -> None:
    """The split makes a batch of each bad record first, in order. All other records, if there are any, follow as one batch."""
    bad = data.draw(st.sets(st.integers(0, len(records) - 1)))
    pieces = without(*payload_of(records), bad)
    rest = [index for index in range(len(records)) if index not in bad]
    assert [list(piece.indexes) for piece in pieces] == [[index] for index in sorted(bad)] + (
        [rest] if rest else []
    )
    assert_same(pieces, records)


@pytest.mark.parametrize("most", [1, 100, 1 << 20])
def test_two_large_records_become_two_batches(most: int) -> None:
    """A record always fits alone."""
    pieces = in_halves(*payload_of([(0, b"k", b"." * 5000, ()), (-5, b"k", b"." * 5000, ())]), most)
    assert [(list(piece.indexes), piece.base_timestamp) for piece in pieces] == [
        ([0], BASE),
        ([1], BASE - 5),
    ]
