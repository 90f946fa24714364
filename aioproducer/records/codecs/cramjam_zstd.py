"""Compresses and decompresses Zstandard frames by cramjam, where zstandard is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cramjam

from aioproducer.model import Compression
from aioproducer.records.codecs.errors import garbage

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer

__all__ = ["compress", "decompress"]


def compress(data: Buffer, level: int) -> bytes:
    """Compress `data`."""
    return bytes(cramjam.zstd.compress(data, level))


def decompress(data: Buffer, limit: int) -> bytes:
    """Decompress `data` to at most `limit` bytes. Several frames, one behind the other, are read as one."""
    # The system provides memory only for the part that is written.
    out = bytearray(limit)
    try:
        return bytes(memoryview(out)[: cramjam.zstd.decompress_into(data, out)])
    except cramjam.DecompressionError as error:
        raise garbage(Compression.ZSTD, f"{error} (at most {limit} bytes may come out)") from error
