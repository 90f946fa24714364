"""Varints, tag sections, number layouts, chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import buffers

from aioproducer.errors import ProtocolError
from aioproducer.wire.primitives import JOINED, read_uvarint, skip_tags, splice, uvarint


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_where_it_stands(value: int, before: bytes, behind: bytes) -> None:
    """A varint is read at its offset, with any bytes around it."""
    data = before + uvarint(value) + behind
    assert read_uvarint(data, len(before)) == (value, len(data) - len(behind))


def test_a_varint_has_five_bytes_at_most() -> None:
    """A sixth is refused, however much more there is; one that ends early is an index error, as everything that ends early."""
    with pytest.raises(ProtocolError, match="five bytes"):
        read_uvarint(b"\x80" * 1000, 0)
    with pytest.raises(IndexError):
        read_uvarint(b"\x80\x80", 0)


def test_tags_are_skipped_by_their_sizes() -> None:
    """None, one, and two with sizes of one and two bytes."""
    assert skip_tags(b"..\0", 2) == 3
    assert skip_tags(b"\x01\x05\x02ab..", 0) == 5
    assert skip_tags(b"\x02\x05\0\x06\x80\x01" + bytes(128) + b".", 0) == 134


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x01\x05", b"\x01\x05\x02a", b"\x01\x05\xff\xff\xff\xff\x0f"]
)
def test_tags_do_not_lead_past_the_end(data: bytes) -> None:
    """An index error, as everything that ends early."""
    with pytest.raises(IndexError):
        skip_tags(data, 0)


@given(st.lists(buffers(), max_size=8))
def test_large_buffers_become_chunks_and_small_ones_wait_to_be_joined(pieces: list[bytes]) -> None:
    """No byte is lost or moved, no large buffer copied, no two neighbouring chunks both made of small pieces."""
    chunks: list[bytes] = []
    small = [b"before"]
    splice(chunks, small, pieces)
    assert b"".join(chunks) + b"".join(small) == b"before" + b"".join(pieces)
    large = [buffer for buffer in pieces if len(buffer) >= JOINED]
    assert [chunk for chunk in chunks if any(chunk is buffer for buffer in large)] == large
    assert len(chunks) <= 2 * len(large)
