"""The pieces that frames and generated codecs share: varints, number arrays, tag sections. Knows no message."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from aioproducer.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer

__all__ = ["JOINED", "VARINT", "numbers", "read_uvarint", "skip_tags", "splice", "uvarint"]

JOINED: Final = 1024  # a buffer shorter than this is copied beside its neighbours: cheaper than one more chunk to write
_LONGEST: Final = 35  # an unsigned varint has at most five groups of seven bits


@lru_cache(maxsize=1024)  # sizes of full batches are alike
def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    encoded = []
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


VARINT: Final = tuple(map(uvarint, range(128)))  # nearly every length and count is one of these


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """The varint that begins at `at`, and where it ends.

    Raises:
        IndexError: the bytes end first.
        ProtocolError: it is longer than five bytes.
    """
    value = data[at]
    if value < 128:  # mostly
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
    """Where the tagged fields that begin at `at` end.

    Raises:
        IndexError: the data end first.
        ProtocolError: a varint is longer than five bytes.
    """
    if not data[at]:  # mostly
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
    """The layout of an array of numbers."""
    return struct.Struct(f">{count}{code}")


def splice(chunks: list[Buffer], small: list[Buffer], buffers: Sequence[Buffer]) -> None:
    """Put `buffers` behind what is written so far: large ones as chunks of their own, uncopied; small ones join their neighbours."""
    for buffer in buffers:
        if len(buffer) < JOINED:
            small.append(buffer)
            continue
        if small:
            chunks.append(b"".join(small))
            small.clear()
        chunks.append(buffer)
