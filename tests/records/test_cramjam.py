"""LZ4 and Zstandard by cramjam, where their own packages are not installed: both libraries read what either wrote, at each level."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import lz4.frame
import pytest
import zstandard
from hidden import OWN_PACKAGES

from aioproducer.errors import ConfigError, ProtocolError
from aioproducer.model import Compression
from aioproducer.records.codecs import cramjam_lz4, cramjam_zstd
from aioproducer.records.compression import check_available, compress, decompress, functions_of

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": b'{"carrier": "AA", "delay": 12}' * 40,
    "one block": b"block" * 13107 + b"!",  # 64 KiB
    "blocks and a bit": bytes(range(256)) * 700 + b"end",
    "incompressible": zlib.compress(bytes(i * i % 251 for i in range(200_000)), 9) * 20,
}
LEVELS = [
    *((Compression.LZ4, level) for level in (None, *range(1, 18))),
    *((Compression.ZSTD, level) for level in (None, -131072, -5, -1, *range(1, 23))),
]


@pytest.fixture
def by_cramjam(hide_libraries: Callable[..., None]) -> None:
    """Hide the packages lz4 and zstandard."""
    hide_libraries(*OWN_PACKAGES)
    assert functions_of(Compression.LZ4).compress.__module__ == cramjam_lz4.__name__
    assert functions_of(Compression.ZSTD).compress.__module__ == cramjam_zstd.__name__


def read(codec: Compression, data: bytes) -> bytes:
    """By the codec's own package."""
    if codec is Compression.LZ4:
        out: bytes = lz4.frame.decompress(data)
        return out
    return zstandard.ZstdDecompressor().decompress(data)


@pytest.mark.usefixtures("by_cramjam")
@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_the_codecs_own_packages_read_each_level(codec: Compression, level: int | None) -> None:
    """All samples; and our own decompression by cramjam, with a limit of exactly the size."""
    for data in SAMPLES.values():
        compressed = compress(codec, data, level)
        assert read(codec, compressed) == data
        assert decompress(codec, compressed, len(data)) == data


@pytest.mark.usefixtures("by_cramjam")
@pytest.mark.parametrize("name", SAMPLES)
def test_what_the_codecs_own_packages_write_is_read(name: str) -> None:
    """Also linked blocks, sizes and checksums, and frames without a size."""
    data = SAMPLES[name]
    assert decompress(Compression.LZ4, lz4.frame.compress(data, content_checksum=True, block_checksum=True), len(data)) == data
    assert decompress(Compression.ZSTD, zstandard.ZstdCompressor().compress(data), len(data)) == data
    if data:
        assert decompress(Compression.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(data), len(data)) == data


@pytest.mark.usefixtures("by_cramjam")
def test_lz4_frames_are_ones_that_java_takes() -> None:
    """Version 1, independent blocks of at most 64 KiB, no checksums, no sizes: as the package lz4 writes them."""
    ours = compress(Compression.LZ4, SAMPLES["incompressible"])
    theirs = lz4.frame.compress(SAMPLES["incompressible"], block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False)
    assert ours[:7] == theirs[:7]
    assert lz4.frame.get_frame_info(ours)["block_linked"] is False


@pytest.mark.usefixtures("by_cramjam")
@pytest.mark.parametrize("level", [1, 22])
def test_zstd_levels_are_told_apart(level: int) -> None:
    """What compresses harder gives fewer bytes than level 1 and no more than the best of zstandard by a tenth."""
    data = b"".join(b"%d," % (i * 7919 % 1009) for i in range(9_000))
    theirs = len(zstandard.ZstdCompressor(level=level).compress(data))
    assert abs(len(compress(Compression.ZSTD, data, level)) - theirs) <= theirs // 10


@pytest.mark.usefixtures("by_cramjam")
@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_hostile_bytes_are_protocol_errors(codec: Compression) -> None:
    """Too many bytes, an early end, no frame; in each case before more than the limit is written."""
    data = SAMPLES["text"]
    compressed = compress(codec, data)
    bomb = compress(codec, bytes(16_000_000))
    for bad, limit in (
        (compressed, len(data) - 1),
        (bomb, 1000),
        (compressed[:-3], len(data)),
        (b"no frame", 10),
        (compressed + b"x", 5000),
    ):
        with pytest.raises(ProtocolError, match=codec.name.lower()):
            decompress(codec, bad, limit)


@pytest.mark.parametrize(("codec", "package"), [(Compression.LZ4, "lz4"), (Compression.ZSTD, "zstandard")])
def test_without_any_library_the_error_says_what_to_install(hide_libraries: Callable[..., None], codec: Compression, package: str) -> None:
    """As for snappy: when a producer is made."""
    hide_libraries(*OWN_PACKAGES, "cramjam")
    with pytest.raises(ConfigError, match=f"neither is installed: pip install {package}"):
        check_available(codec)
    check_available(Compression.GZIP)
