"""The compression codecs of record batches: for each, its compressor, its bounded decompressor and its levels.

1. The compressors write the formats that Java writes: gzip without a date, snappy in xerial's framing, one plain Zstandard frame. LZ4
   frames have independent 64 KiB blocks, without sizes and checksums, because Java's reader takes no linked blocks.
2. The decompressors read the formats of all clients: also raw snappy (librdkafka), linked LZ4 blocks, and Zstandard frames without a
   content size.
3. Decompression gives at most `limit` bytes or a `ProtocolError`. It never allocates the memory that hostile bytes claim to need.

A level of None is Java's default (KIP-390).
"""

from __future__ import annotations

import functools
import importlib
import struct
import threading
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import lz4.frame
import zstandard

from aioproducer.errors import ConfigError, ProtocolError
from aioproducer.model import Compression

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from aioproducer.interfaces import Buffer

__all__ = ["check_available", "check_level", "compress", "decompress"]


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` with `codec`. Returns the compressed bytes.

    Raises:
        ConfigError: the codec has no such level, or its library is not installed.
    """
    row = _CODECS[codec]
    if level is None:
        return row.compress(data, row.default_level)
    check_level(codec, level)
    return row.compress(data, level)


def decompress(codec: Compression, data: Buffer, limit: int) -> bytes:
    """Decompress `data` with `codec`. Returns at most `limit` bytes.

    The gzip and LZ4 libraries hold these bytes twice while they copy them to the result.

    Raises:
        ProtocolError: `data` is not one complete, valid piece of the codec's format, or holds more than `limit` bytes.
        ConfigError: the codec's library is not installed.
    """
    out = _CODECS[codec].decompress(data, limit)
    if len(out) > limit:
        raise _overrun(codec, limit)
    return out


def check_available(codec: Compression) -> None:
    """Raise ConfigError if the library of `codec` cannot be imported. The error's text names the package to install."""
    if codec is Compression.SNAPPY:
        _cramjam()


def check_level(codec: Compression, level: int) -> None:
    """Raise ConfigError unless `codec` has this level: gzip -1 and 1..9, lz4 1..17, zstd -131072..22, the others none."""
    if level not in _CODECS[codec].levels:
        raise ConfigError(f"{_name(codec)} has no compression level {level}; it takes {_CODECS[codec].levels_text}")


def _name(codec: Compression) -> str:
    return codec.name.lower()


def _garbage(codec: Compression, reason: object) -> ProtocolError:
    return ProtocolError(f"unsound {_name(codec)} data: {reason}")


def _overrun(codec: Compression, limit: int) -> ProtocolError:
    return ProtocolError(f"{_name(codec)} data holds more than the {limit} bytes that it may")


# none


def _copy(data: Buffer, _level: int) -> bytes:
    return bytes(data)


def _bounded_copy(data: Buffer, limit: int) -> bytes:
    return bytes(data[: limit + 1])


# gzip

# zlib's window bits for gzip's own header and trailer; zlib writes no file name, and a date of 0.
_GZIP: Final = 31


def _gzip(data: Buffer, level: int) -> bytes:
    return zlib.compress(data, level, wbits=_GZIP)


def _gunzip(data: Buffer, limit: int) -> bytes:
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        out = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise _garbage(Compression.GZIP, error) from error
    if len(out) <= limit:
        _check_end(Compression.GZIP, ended=stream.eof, rest=stream.unused_data)
    return out


def _check_end(codec: Compression, *, ended: bool, rest: bytes | None) -> None:
    if not ended:
        raise _garbage(codec, "it ends early")
    if rest:
        raise _garbage(codec, f"{len(rest)} bytes follow its end")


# snappy

# Raw snappy never begins with these bytes, because they would copy bytes that do not exist yet. So the two formats cannot be confused.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
# After the magic bytes: version, lowest compatible version.
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
# SnappyOutputStream's default; Kafka's reader takes any size.
_XERIAL_BLOCK: Final = 32 * 1024
_LENGTH: Final = struct.Struct(">i")


@functools.cache
def _cramjam() -> Any:
    try:
        return importlib.import_module("cramjam")
    except ImportError as error:
        raise ConfigError("snappy needs cramjam, which is not installed: pip install aioproducer[snappy]") from error


def _snappy(data: Buffer, _level: int) -> bytes:
    compress_block = _cramjam().snappy.compress_raw
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = compress_block(view[start : start + _XERIAL_BLOCK])
        out += _LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _unsnappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(view, 0, limit)
    out = bytearray()
    at = len(_XERIAL_HEADER)
    if len(view) < at:
        raise _garbage(Compression.SNAPPY, "its header ends early")
    while at < len(view):
        block, at = _xerial_block(view, at)
        out += _unsnappy_block(block, len(out), limit)
    return bytes(out)


def _xerial_block(view: memoryview, at: int) -> tuple[memoryview, int]:
    start = at + _LENGTH.size
    if start > len(view):
        raise _garbage(Compression.SNAPPY, "a block's length ends early")
    (length,) = _LENGTH.unpack_from(view, at)
    if not 0 <= length <= len(view) - start:
        raise _garbage(Compression.SNAPPY, f"a block of {length} bytes where {len(view) - start} are left")
    return view[start : start + length], start + length


def _unsnappy_block(block: memoryview, before: int, limit: int) -> bytes:
    """Decompress one raw block, after earlier blocks have used `before` bytes of the limit. Returns its bytes."""
    cramjam = _cramjam()
    # cramjam accepts no bytes as an empty block, but every block has at least its length
    if not block:
        raise _garbage(Compression.SNAPPY, "an empty block")
    try:
        # The library allocates at once the size that the block states, so this code checks that size first.
        if cramjam.snappy.decompress_raw_len(block) > limit - before:
            raise _overrun(Compression.SNAPPY, limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _garbage(Compression.SNAPPY, error) from error


# lz4

_LZ4_FAST: Final = 9


def _lz4(data: Buffer, level: int) -> bytes:
    out: bytes = lz4.frame.compress(
        data,
        compression_level=_lz4_level(level),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return out


def _lz4_level(level: int) -> int:
    """Return the library's level for Java's level.

    Java's level 9 is the fast compressor. Every other level is one of the high compressor, which has levels 3 to 12 in the library.
    """
    return 0 if level == _LZ4_FAST else min(max(level, lz4.frame.COMPRESSIONLEVEL_MINHC), lz4.frame.COMPRESSIONLEVEL_MAX)


def _unlz4(data: Buffer, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        out: bytes = stream.decompress(data, max_length=limit + 1)
    # the library has no error class of its own
    except RuntimeError as error:
        raise _garbage(Compression.LZ4, error) from error
    if len(out) <= limit:
        _check_end(Compression.LZ4, ended=stream.eof, rest=stream.unused_data)
    return out


# zstd


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


def _zstd(data: Buffer, level: int) -> bytes:
    return _zstd_compressors.of(level).compress(data)


def _unzstd(data: Buffer, limit: int) -> bytes:
    # The library allocates the size that a frame states, so this code checks that size first. For a frame without a size the library
    # allocates `limit` bytes, and the system provides memory only for the part that is written. In both cases the library does not
    # allocate the window that the frame asks for, which may be 128 MiB.
    try:
        if zstandard.frame_content_size(data) > limit:
            raise _overrun(Compression.ZSTD, limit)
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=limit + 1, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _garbage(Compression.ZSTD, f"{error} (at most {limit} bytes may come out)") from error


class _Codec(NamedTuple):
    """Holds one codec. `levels` are the levels that a caller may choose; `default_level` is Java's default."""

    compress: Callable[[Buffer, int], bytes]
    decompress: Callable[[Buffer, int], bytes]
    default_level: int
    levels: Container[int]
    levels_text: str


_CODECS: Final[Mapping[Compression, _Codec]] = {
    Compression.NONE: _Codec(_copy, _bounded_copy, 0, (), "none"),
    Compression.GZIP: _Codec(_gzip, _gunzip, -1, (-1, *range(1, 10)), "-1 and 1..9"),
    Compression.SNAPPY: _Codec(_snappy, _unsnappy, 0, (), "none"),
    Compression.LZ4: _Codec(_lz4, _unlz4, _LZ4_FAST, range(1, 18), "1..17 (9 is the fast one)"),
    Compression.ZSTD: _Codec(_zstd, _unzstd, 3, range(-131072, 23), "-131072..22"),
}
