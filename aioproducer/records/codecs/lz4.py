"""Compresses and decompresses LZ4 frames by the package lz4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lz4.frame

from aioproducer.model import Compression
from aioproducer.records.codecs.errors import check_end, garbage
from aioproducer.records.codecs.levels import LZ4_FAST

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer

__all__ = ["compress", "decompress"]


def compress(data: Buffer, level: int) -> bytes:
    """Compress `data` at Java's level."""
    out: bytes = lz4.frame.compress(
        data,
        compression_level=_library_level(level),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return out


def _library_level(level: int) -> int:
    """Return the library's level for Java's level.

    Java's level 9 is the fast compressor. Every other level is one of the high compressor, which has levels 3 to 12 in the library.
    """
    return 0 if level == LZ4_FAST else min(max(level, lz4.frame.COMPRESSIONLEVEL_MINHC), lz4.frame.COMPRESSIONLEVEL_MAX)


def decompress(data: Buffer, limit: int) -> bytes:
    """Decompress `data` to at most one byte more than `limit`."""
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        out: bytes = stream.decompress(data, max_length=limit + 1)
    # the library has no error class of its own
    except RuntimeError as error:
        raise garbage(Compression.LZ4, error) from error
    if len(out) <= limit:
        check_end(Compression.LZ4, ended=stream.eof, rest=stream.unused_data)
    return out
