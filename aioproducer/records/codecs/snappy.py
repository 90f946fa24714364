"""Compresses and decompresses snappy by cramjam, which has its raw blocks; xerial's framing is written here."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import cramjam

from aioproducer.model import Compression
from aioproducer.records.codecs.errors import garbage, overrun

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer

__all__ = ["compress", "decompress"]

# Raw snappy never begins with these bytes, because they would copy bytes that do not exist yet. So the two formats cannot be confused.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
# After the magic bytes: version, lowest compatible version.
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
# SnappyOutputStream's default; Kafka's reader takes any size.
_XERIAL_BLOCK: Final = 32 * 1024
_LENGTH: Final = struct.Struct(">i")


def compress(data: Buffer, _level: int) -> bytes:
    """Compress `data` in xerial's framing."""
    compress_block = cramjam.snappy.compress_raw
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = compress_block(view[start : start + _XERIAL_BLOCK])
        out += _LENGTH.pack(len(block))
        out += block
    return bytes(out)


def decompress(data: Buffer, limit: int) -> bytes:
    """Decompress `data` to at most `limit` bytes."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(view, 0, limit)
    out = bytearray()
    at = len(_XERIAL_HEADER)
    if len(view) < at:
        raise garbage(Compression.SNAPPY, "its header ends early")
    while at < len(view):
        block, at = _xerial_block(view, at)
        out += _unsnappy_block(block, len(out), limit)
    return bytes(out)


def _xerial_block(view: memoryview, at: int) -> tuple[memoryview, int]:
    start = at + _LENGTH.size
    if start > len(view):
        raise garbage(Compression.SNAPPY, "a block's length ends early")
    (length,) = _LENGTH.unpack_from(view, at)
    if not 0 <= length <= len(view) - start:
        raise garbage(Compression.SNAPPY, f"a block of {length} bytes where {len(view) - start} are left")
    return view[start : start + length], start + length


def _unsnappy_block(block: memoryview, before: int, limit: int) -> bytes:
    """Decompress one raw block, after earlier blocks have used `before` bytes of the limit. Returns its bytes."""
    # cramjam accepts no bytes as an empty block, but every block has at least its length
    if not block:
        raise garbage(Compression.SNAPPY, "an empty block")
    try:
        # The library allocates at once the size that the block states, so this code checks that size first.
        if cramjam.snappy.decompress_raw_len(block) > limit - before:
            raise overrun(Compression.SNAPPY, limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise garbage(Compression.SNAPPY, error) from error
