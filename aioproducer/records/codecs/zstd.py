"""Compresses and decompresses Zstandard frames by the package zstandard."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import zstandard

from aioproducer.model import Compression
from aioproducer.records.codecs.errors import garbage, overrun

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer

__all__ = ["compress", "decompress"]


class _ZstdCompressors(threading.local):
    """Holds a compressor for each level and thread: a new one costs 12 us, and two threads may not use one at the same time."""

    def __init__(self) -> None:
        self.by_level: dict[int, zstandard.ZstdCompressor] = {}

    def of(self, level: int) -> zstandard.ZstdCompressor:
        """Return this thread's compressor of a level."""
        found = self.by_level.get(level)
        if found is None:
            found = self.by_level[level] = zstandard.ZstdCompressor(level=level)
        return found


_zstd_compressors: Final = _ZstdCompressors()


def compress(data: Buffer, level: int) -> bytes:
    """Compress `data`."""
    return _zstd_compressors.of(level).compress(data)


def decompress(data: Buffer, limit: int) -> bytes:
    """Decompress `data` to at most `limit` bytes."""
    # The library allocates the size that a frame states, so this code checks that size first. For a frame without a size the library
    # allocates `limit` bytes, and the system provides memory only for the part that is written. In both cases the library does not
    # allocate the window that the frame asks for, which may be 128 MiB.
    try:
        if zstandard.frame_content_size(data) > limit:
            raise overrun(Compression.ZSTD, limit)
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=limit + 1, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise garbage(Compression.ZSTD, f"{error} (at most {limit} bytes may come out)") from error
