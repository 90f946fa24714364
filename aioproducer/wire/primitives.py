"""The functions that frames and generated codecs share: varints, number arrays, tag sections."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from aioproducer.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer

# A buffer shorter than this is joined to its neighbours: the copy costs less than one more chunk to write.
JOINED: Final = 1024
# An unsigned varint has at most five groups of seven bits.
_LONGEST: Final = 35


# cached, because full batches have similar sizes
@lru_cache(maxsize=1024)
def uvarint(value: int) -> bytes:
    """Return `value` as an unsigned varint."""
    encoded = []
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# Nearly every length and count is one of these.
VARINT: Final = tuple(map(uvarint, range(128)))


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """Return the value of the unsigned varint that begins at `at`, and the offset of its end.

    Raises:
        IndexError: the bytes end within the varint.
        ProtocolError: the varint is longer than five bytes.
    """
    value = data[at]
    # most varints have one byte
    if value < 128:
        return value, at + 1
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift == _LONGEST:
            raise ProtocolError("a varint is longer than five bytes")


def skip_tags(data: Buffer, at: int) -> int:
    """Return the offset of the end of the tagged fields that begin at `at`.

    Raises:
        IndexError: the bytes end within the tagged fields.
        ProtocolError: a varint is longer than five bytes.
    """
    # most messages have no tagged fields
    if not data[at]:
        return at + 1
    count, at = read_uvarint(data, at)
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
        if at > len(data):
            raise IndexError(at)
    return at


@lru_cache(maxsize=64)
def numbers(code: str, count: int) -> struct.Struct:
    """Return the layout of an array of `count` numbers."""
    return struct.Struct(f">{count}{code}")


def splice(chunks: list[Buffer], small: list[Buffer], buffers: Sequence[Buffer]) -> None:
    """Append `buffers` to the chunks: large ones as chunks of their own without a copy, small ones joined to their neighbours."""
    for buffer in buffers:
        if len(buffer) < JOINED:
            small.append(buffer)
            continue
        if small:
            chunks.append(b"".join(small))
            small.clear()
        chunks.append(buffer)
