"""Compresses and decompresses LZ4 frames by cramjam, where lz4 is not installed.

cramjam links the blocks of its frames, which Java's reader refuses. So the frame is written here, of its single blocks.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import cramjam

from aioproducer.model import Compression
from aioproducer.records.codecs.errors import garbage
from aioproducer.records.codecs.levels import LZ4_FAST

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer

__all__ = ["compress", "decompress"]

# The magic number; version 1, independent blocks, no sizes and checksums; blocks of at most 64 KiB; and the checksum of the two.
_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_END: Final = bytes(4)
_BLOCK: Final = 64 * 1024
_LENGTH: Final = struct.Struct("<I")
# A flag of a block's length: the block is as it was.
_IS_RAW: Final = 1 << 31
# The levels of the library's high compressor.
_LOWEST: Final = 3
_HIGHEST: Final = 12


def compress(data: Buffer, level: int) -> bytes:
    """Compress `data` at Java's level."""
    view = memoryview(data).cast("B")
    out = bytearray(_HEADER)
    for start in range(0, len(view), _BLOCK):
        raw = view[start : start + _BLOCK]
        block = _block(raw, level)
        out += _LENGTH.pack(len(block)) + block if len(block) < len(raw) else _LENGTH.pack(len(raw) | _IS_RAW) + raw
    return bytes(out + _END)


def _block(raw: memoryview, level: int) -> bytes:
    if level == LZ4_FAST:
        return bytes(cramjam.lz4.compress_block(raw, store_size=False))
    best = min(max(level, _LOWEST), _HIGHEST)
    return bytes(cramjam.lz4.compress_block(raw, mode="high_compression", compression=best, store_size=False))


def decompress(data: Buffer, limit: int) -> bytes:
    """Decompress `data` to at most `limit` bytes. Several frames, one behind the other, are read as one."""
    # The system provides memory only for the part that is written.
    out = bytearray(limit)
    try:
        return bytes(memoryview(out)[: cramjam.lz4.decompress_into(data, out)])
    except cramjam.DecompressionError as error:
        raise garbage(Compression.LZ4, f"{error} (at most {limit} bytes may come out)") from error
