"""The compression codecs of record batches, a row of `_CODECS` for each; and the ratio by which a topic's batches compress.

1. The compressors write the formats that Java writes: gzip without a date, snappy in xerial's framing, one plain Zstandard frame. LZ4
   frames have independent 64 KiB blocks, without sizes and checksums, because Java's reader takes no linked blocks.
2. The decompressors read the formats of all clients: also raw snappy (librdkafka), linked LZ4 blocks, and Zstandard frames without a
   content size.
3. Decompression gives at most `limit` bytes or a `ProtocolError`. It never allocates the memory that hostile bytes claim to need.

A level of None is Java's default (KIP-390). Only snappy needs a package of an extra, cramjam, for its raw blocks.
"""

from __future__ import annotations

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


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` with `codec`. Returns the compressed bytes.

    Raises:
        ConfigError: the codec has no such level, or its library is not installed.
    """
    if level is None:
        level = _CODECS[codec].default_level
    else:
        check_level(codec, level)
    return _CODECS[codec].compress(data, level)


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
        raise ConfigError(
            f"{codec.name.lower()} has no compression level {level}; it takes {_CODECS[codec].levels_text}"
        )


def _garbage(codec: Compression, reason: object) -> ProtocolError:
    return ProtocolError(f"unsound {codec.name.lower()} data: {reason}")


def _overrun(codec: Compression, limit: int) -> ProtocolError:
    return ProtocolError(f"{codec.name.lower()} data holds more than the {limit} bytes that it may")


# No codec


def _copy(data: Buffer, _level: int) -> bytes:
    return bytes(data)


def _copy_some(data: Buffer, limit: int) -> bytes:
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
    return _ended(Compression.GZIP, stream, out, limit)


def _ended(codec: Compression, stream: Any, out: bytes, limit: int) -> bytes:
    """Return `out`, of which a byte more than `limit` was asked for, after a check that it is all that the stream has."""
    if len(out) <= limit:
        if not stream.eof:
            raise _garbage(codec, "it ends early")
        if stream.unused_data:
            raise _garbage(codec, f"{len(stream.unused_data)} bytes follow its end")
    return out


# LZ4

# Java's level 9 is the fast compressor. Every other level is one of the high compressor, which has levels 3 to 12 in the library.
_LZ4_FAST: Final = 9


def _lz4(data: Buffer, level: int) -> bytes:
    highest, lowest = lz4.frame.COMPRESSIONLEVEL_MAX, lz4.frame.COMPRESSIONLEVEL_MINHC
    out: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level == _LZ4_FAST else min(max(level, lowest), highest),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return out


def _unlz4(data: Buffer, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        out: bytes = stream.decompress(data, max_length=limit + 1)
    # the library has no error class of its own
    except RuntimeError as error:
        raise _garbage(Compression.LZ4, error) from error
    return _ended(Compression.LZ4, stream, out, limit)


# Zstandard


class _ZstdCompressors(threading.local):
    """Holds a compressor for each level and thread: a new one costs 12 us, and two threads may not use one at the same time."""

    def __init__(self) -> None:
        self.by_level: dict[int, zstandard.ZstdCompressor] = {}


_zstd_compressors: Final = _ZstdCompressors()


def _zstd(data: Buffer, level: int) -> bytes:
    compressors = _zstd_compressors.by_level
    if level not in compressors:
        compressors[level] = zstandard.ZstdCompressor(level=level)
    return compressors[level].compress(data)


def _unzstd(data: Buffer, limit: int) -> bytes:
    # The library allocates the size that a frame states, so this code checks that size first. For a frame without a size the library
    # allocates `limit` bytes, and the system provides memory only for the part that is written. In both cases the library does not
    # allocate the window that the frame asks for, which may be 128 MiB.
    try:
        if zstandard.frame_content_size(data) > limit:
            raise _overrun(Compression.ZSTD, limit)
        return zstandard.ZstdDecompressor().decompress(
            data, max_output_size=limit + 1, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise _garbage(Compression.ZSTD, f"{error} (at most {limit} bytes may come out)") from error


# snappy, whose framing by xerial is written here

# Raw snappy never begins with these bytes, because they would copy bytes that do not exist yet. So the two formats cannot be confused.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
# After the magic bytes: version, lowest compatible version.
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
# SnappyOutputStream's default; Kafka's reader takes any size.
_XERIAL_BLOCK: Final = 32 * 1024
_LENGTH: Final = struct.Struct(">i")


def _cramjam() -> Any:
    try:
        import cramjam
    except ImportError:
        raise ConfigError(
            "snappy needs cramjam, which is not installed: pip install aioproducer[snappy]"
        ) from None
    return cramjam


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
        return _unsnappy_block(view, limit, limit)
    out = bytearray()
    at = len(_XERIAL_HEADER)
    if len(view) < at:
        raise _garbage(Compression.SNAPPY, "its header ends early")
    while at < len(view):
        start = at + _LENGTH.size
        if start > len(view):
            raise _garbage(Compression.SNAPPY, "a block's length ends early")
        (length,) = _LENGTH.unpack_from(view, at)
        if not 0 <= length <= len(view) - start:
            raise _garbage(
                Compression.SNAPPY, f"a block of {length} bytes where {len(view) - start} are left"
            )
        at = start + length
        out += _unsnappy_block(view[start:at], limit - len(out), limit)
    return bytes(out)


def _unsnappy_block(block: memoryview, left: int, limit: int) -> bytes:
    """Return the bytes of one raw block, at most `left` of the `limit` bytes of all."""
    # cramjam accepts no bytes as an empty block, but every block has at least its length
    if not block:
        raise _garbage(Compression.SNAPPY, "an empty block")
    cramjam = _cramjam()
    try:
        # The library allocates at once the size that the block states, so this code checks that size first.
        if cramjam.snappy.decompress_raw_len(block) > left:
            raise _overrun(Compression.SNAPPY, limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _garbage(Compression.SNAPPY, error) from error


class _Codec(NamedTuple):
    """Holds one codec.

    Attributes:
        compress: called with the data and a level.
        decompress: called with the data and a limit; it may give a byte more than that.
        default_level: Java's default.
        levels: those that a caller may choose.
    """

    compress: Callable[[Buffer, int], bytes]
    decompress: Callable[[Buffer, int], bytes]
    default_level: int
    levels: Container[int]
    levels_text: str


_CODECS: Final[Mapping[Compression, _Codec]] = {
    Compression.NONE: _Codec(_copy, _copy_some, 0, (), "none"),
    Compression.GZIP: _Codec(_gzip, _gunzip, -1, (-1, *range(1, 10)), "-1 and 1..9"),
    Compression.SNAPPY: _Codec(_snappy, _unsnappy, 0, (), "none"),
    Compression.LZ4: _Codec(_lz4, _unlz4, _LZ4_FAST, range(1, 18), "1..17 (9 is the fast one)"),
    Compression.ZSTD: _Codec(_zstd, _unzstd, 3, range(-131072, 23), "-131072..22"),
}


# The estimate (Kafka's CompressionRatioEstimator; RCD-07)

# The factor by which an estimated size is raised.
_SAFETY: Final = 1.05
_BETTER: Final = 0.005
_WORSE: Final = 0.05
_AT_FIRST: Final = 1.0


class CompressionRatios:
    """Holds the ratios of topics and codecs, estimated from their latest batches: bytes after compression for each byte before.

    The estimate lets a batch take more raw bytes than `batch_size`. It rises at once when a batch compresses worse than estimated, and
    falls slowly when batches compress better. Java keeps one estimator for the whole process; here each producer has its own.
    """

    __slots__ = ("_guesses",)

    def __init__(self) -> None:
        self._guesses: dict[tuple[str, Compression], float] = {}

    def guess(self, topic: str, codec: Compression) -> float:
        """Return the estimated ratio; 1.0 before the first batch."""
        return self._guesses.get((topic, codec), _AT_FIRST)

    def room(self, topic: str, codec: Compression, size: int) -> int:
        """Return the raw bytes that should compress to at most `size`, with `_SAFETY` as a margin; never fewer than `size`."""
        return max(size, int(size / (self.guess(topic, codec) * _SAFETY)))

    def observe(self, topic: str, codec: Compression, ratio: float) -> None:
        """Update the estimate with the ratio of a compressed batch."""
        guess = self.guess(topic, codec)
        guess = max(guess + _WORSE, ratio) if ratio > guess else max(guess - _BETTER, ratio)
        self._guesses[topic, codec] = guess

    def retract(self, topic: str, codec: Compression, ratio: float) -> None:
        """Reset the estimate after a broker refused a batch of that ratio as too large (BAT-03).

        The new estimate is 1.0 (no compression), or `ratio` if that is larger.
        """
        self._guesses[topic, codec] = max(_AT_FIRST, ratio)

    def forget(self, topic: str) -> None:
        """Drop the estimates of a topic."""
        for codec in Compression:
            self._guesses.pop((topic, codec), None)
