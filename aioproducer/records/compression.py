"""The compression codecs of record batches: for each, its compressor, its bounded decompressor and its levels.

1. The compressors write the formats that Java writes: gzip without a date, snappy in xerial's framing, one plain Zstandard frame. LZ4
   frames have independent 64 KiB blocks, without sizes and checksums, because Java's reader takes no linked blocks.
2. The decompressors read the formats of all clients: also raw snappy (librdkafka), linked LZ4 blocks, and Zstandard frames without a
   content size.
3. Decompression gives at most `limit` bytes or a `ProtocolError`. It never allocates the memory that hostile bytes claim to need.

A level of None is Java's default (KIP-390). The libraries are imported when a producer asks for their codec. LZ4 and Zstandard are
compressed by cramjam where their own packages are not installed.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import ConfigError
from aioproducer.model import Compression
from aioproducer.records.codecs.errors import overrun
from aioproducer.records.codecs.levels import LZ4_FAST

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from aioproducer.interfaces import Buffer

__all__ = ["check_available", "check_level", "compress", "decompress"]


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` with `codec`. Returns the compressed bytes.

    Raises:
        ConfigError: the codec has no such level, or its library is not installed.
    """
    if level is None:
        level = _CODECS[codec].default_level
    else:
        check_level(codec, level)
    return functions_of(codec).compress(data, level)


def decompress(codec: Compression, data: Buffer, limit: int) -> bytes:
    """Decompress `data` with `codec`. Returns at most `limit` bytes.

    The gzip and LZ4 libraries hold these bytes twice while they copy them to the result.

    Raises:
        ProtocolError: `data` is not one complete, valid piece of the codec's format, or holds more than `limit` bytes.
        ConfigError: the codec's library is not installed.
    """
    out = functions_of(codec).decompress(data, limit)
    if len(out) > limit:
        raise overrun(codec, limit)
    return out


def check_available(codec: Compression) -> None:
    """Raise ConfigError if the library of `codec` cannot be imported. The error's text names the package to install."""
    functions_of(codec)


def check_level(codec: Compression, level: int) -> None:
    """Raise ConfigError unless `codec` has this level: gzip -1 and 1..9, lz4 1..17, zstd -131072..22, the others none."""
    if level not in _CODECS[codec].levels:
        raise ConfigError(f"{codec.name.lower()} has no compression level {level}; it takes {_CODECS[codec].levels_text}")


@cache
def functions_of(codec: Compression) -> Functions:
    """Return the functions of a codec, by the first of its libraries that is installed.

    Raises:
        ConfigError: none is; the error's text names the package to install.
    """
    for name in _CODECS[codec].modules:
        try:
            module = importlib.import_module(f"aioproducer.records.codecs.{name}")
        except ImportError:
            continue
        return Functions(module.compress, module.decompress)
    raise ConfigError(f"{codec.name.lower()} needs {_CODECS[codec].needs}")


class Functions(NamedTuple):
    """Holds the functions of a codec: `compress(data, level)`, and `decompress(data, limit)`, which may give a byte more than `limit`."""

    compress: Callable[[Buffer, int], bytes]
    decompress: Callable[[Buffer, int], bytes]


class _Codec(NamedTuple):
    """Holds one codec.

    Attributes:
        modules: those that have its functions, the best one first.
        needs: says what to install.
        default_level: Java's default.
        levels: those that a caller may choose.
    """

    modules: tuple[str, ...]
    needs: str
    default_level: int
    levels: Container[int]
    levels_text: str


_CODECS: Final[Mapping[Compression, _Codec]] = {
    Compression.NONE: _Codec(("none",), "nothing", 0, (), "none"),
    Compression.GZIP: _Codec(("gzip",), "a Python that has zlib", -1, (-1, *range(1, 10)), "-1 and 1..9"),
    Compression.SNAPPY: _Codec(("snappy",), "cramjam, which is not installed: pip install aioproducer[snappy]", 0, (), "none"),
    Compression.LZ4: _Codec(
        ("lz4", "cramjam_lz4"),
        "lz4 or cramjam, and neither is installed: pip install lz4",
        LZ4_FAST,
        range(1, 18),
        "1..17 (9 is the fast one)",
    ),
    Compression.ZSTD: _Codec(
        ("zstd", "cramjam_zstd"),
        "zstandard or cramjam, and neither is installed: pip install zstandard",
        3,
        range(-131072, 23),
        "-131072..22",
    ),
}
