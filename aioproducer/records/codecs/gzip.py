"""Compresses and decompresses gzip by zlib."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from aioproducer.model import Compression
from aioproducer.records.codecs.errors import check_end, garbage

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer

__all__ = ["compress", "decompress"]

# zlib's window bits for gzip's own header and trailer; zlib writes no file name, and a date of 0.
_GZIP: Final = 31


def compress(data: Buffer, level: int) -> bytes:
    """Compress `data`."""
    return zlib.compress(data, level, wbits=_GZIP)


def decompress(data: Buffer, limit: int) -> bytes:
    """Decompress `data` to at most one byte more than `limit`."""
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        out = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise garbage(Compression.GZIP, error) from error
    if len(out) <= limit:
        check_end(Compression.GZIP, ended=stream.eof, rest=stream.unused_data)
    return out
