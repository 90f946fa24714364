"""The codecs: what they write others read, what others write they read, and hostile bytes cost a `ProtocolError` and little memory."""

from __future__ import annotations

import functools
import gzip
import struct
import sys
import threading
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import aiokafka.codec
import cramjam
import kafka.codec
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, ProtocolError
from aioproducer.model import Compression
from aioproducer.records.compression import check_available, check_level, compress, decompress

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024
REAL = [codec for codec in Compression if codec is not Compression.NONE]
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": b'{"carrier": "AA", "delay": 12}' * 40,
    "one block": b"block" * 6553 + b"!!!",  # 32 KiB
    "blocks and a bit": bytes(range(256)) * 300 + b"end",
    "incompressible": zlib.compress(bytes(i * i % 251 for i in range(100_000)), 9) * 3,
}
# (codec, what another client writes, what it reads); kafka-python has no snappy here, as it wants python-snappy
PEERS: list[tuple[Compression, Callable[[bytes], bytes], Callable[[bytes], bytes]]] = [
    (Compression.GZIP, gzip.compress, gzip.decompress),
    (Compression.GZIP, aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    (Compression.GZIP, kafka.codec.gzip_encode, kafka.codec.gzip_decode),
    (Compression.SNAPPY, aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    (Compression.LZ4, aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    (Compression.LZ4, kafka.codec.lz4_encode, kafka.codec.lz4_decode),
    (Compression.ZSTD, aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
    (Compression.ZSTD, kafka.codec.zstd_encode, kafka.codec.zstd_decode),
]
PEER_NAMES = [f"{write.__module__}.{write.__name__}" for _, write, _ in PEERS]


@functools.cache
def bombs() -> dict[str, tuple[Compression, bytes]]:
    """Small bytes that want 64 MiB or more."""
    zeros = bytes(64 * MIB)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(zeros)
    raw_block = b"\xff\xff\xff\xff\x0f" + b"\x00a"  # says that it holds 4 GiB - 1
    framed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(raw_block)) + raw_block
    small = cramjam.snappy.compress_raw(bytes(MIB))
    many = (
        b"\x82SNAPPY\0"
        + struct.pack(">ii", 1, 1)
        + (struct.pack(">i", len(small)) + bytes(small)) * 64
    )
    return {
        "none": (Compression.NONE, zeros),
        "gzip": (Compression.GZIP, zlib.compress(zeros, 1, wbits=31)),
        "snappy, raw": (Compression.SNAPPY, raw_block),
        "snappy, one block": (Compression.SNAPPY, framed),
        "snappy, many blocks": (Compression.SNAPPY, many),
        "lz4": (Compression.LZ4, lz4.frame.compress(zeros, store_size=False)),
        "lz4, sized": (Compression.LZ4, lz4.frame.compress(zeros, store_size=True)),
        "zstd": (Compression.ZSTD, zstandard.ZstdCompressor().compress(zeros)),
        "zstd, unsized": (Compression.ZSTD, unsized),
    }


@pytest.mark.parametrize("codec", Compression)
@given(data=st.binary(max_size=2_000), repeats=st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_any_bytes_come_back(codec: Compression, data: bytes, repeats: int) -> None:
    """Any bytes come back, even if they repeat often."""
    data *= repeats
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(
    codec: Compression, kind: Callable[[bytes], bytes | bytearray | memoryview]
) -> None:
    """Also a look into a larger one; what comes out is bytes."""
    data = SAMPLES["blocks and a bit"]
    compressed = compress(codec, kind(data))
    out = decompress(codec, memoryview(kind(b"--" + compressed + b"--"))[2:-2], len(data))
    assert type(compressed) is bytes
    assert type(out) is bytes
    assert out == data


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("name", ["text", "one byte"])
def test_one_byte_over_the_limit_is_too_much(codec: Compression, name: str) -> None:
    """The limit is held to the byte, and named."""
    data = SAMPLES[name]
    with pytest.raises(ProtocolError, match=r"zstd|lz4|gzip|snappy|none"):
        decompress(codec, compress(codec, data), len(data) - 1)


@pytest.mark.parametrize(("codec", "write", "read"), PEERS, ids=PEER_NAMES)
@pytest.mark.parametrize(
    "data",
    [data for data in SAMPLES.values() if data],
    ids=[name for name, data in SAMPLES.items() if data],
)
def test_other_clients_and_ours_read_each_other(
    codec: Compression, write: Callable[[bytes], bytes], read: Callable[[bytes], bytes], data: bytes
) -> None:
    """We read the bytes that other clients write, and they read the bytes that we write."""
    assert decompress(codec, write(data), len(data)) == data
    assert read(compress(codec, data)) == data


def test_gzip_says_no_date() -> None:
    """The same bytes give the same bytes, today and tomorrow: the date field is zero."""
    assert compress(Compression.GZIP, b"v" * 100)[4:8] == bytes(4)


def test_snappy_is_framed_as_xerial_does() -> None:
    """Magic, version 1, lowest version 1, then blocks of at most 32 KiB, each behind its compressed length."""
    data = SAMPLES["blocks and a bit"]
    out = compress(Compression.SNAPPY, data)
    assert out[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    at, sizes = 16, []
    while at < len(out):
        (length,) = struct.unpack_from(">i", out, at)
        sizes.append(cramjam.snappy.decompress_raw_len(out[at + 4 : at + 4 + length]))
        at += 4 + length
    assert sizes == [32768, 32768, len(data) - 65536]


def test_raw_snappy_is_read() -> None:
    """librdkafka writes one raw block without xerial's framing."""
    data = SAMPLES["blocks and a bit"]
    assert (
        decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data
    )


def test_xerial_blocks_of_any_size_are_read() -> None:
    """Java's block size is an option there."""
    blocks = [b"a" * 100_000, b"b", b"c" * 7]
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    framed = (
        b"\x82SNAPPY\0"
        + struct.pack(">ii", 1, 1)
        + b"".join(struct.pack(">i", len(block)) + block for block in packed)
    )
    assert decompress(Compression.SNAPPY, framed, 200_000) == b"".join(blocks)


def test_lz4_frames_are_ones_that_java_takes() -> None:
    """Version 1, independent blocks, no checksums, no content size, 64 KiB blocks: FLG is 0x60, the block size code 4."""
    info = compress(Compression.LZ4, SAMPLES["incompressible"])
    assert info[:4] == b"\x04\x22\x4d\x18"
    assert info[4] == 0x60
    assert info[5] == 0x40


def test_lz4_frames_with_linked_blocks_and_sizes_are_read() -> None:
    """librdkafka and others write them."""
    data = SAMPLES["blocks and a bit"] * 4
    written = lz4.frame.compress(
        data, block_linked=True, store_size=True, content_checksum=True, block_checksum=True
    )
    assert decompress(Compression.LZ4, written, len(data)) == data


def test_zstd_frames_without_a_content_size_are_read() -> None:
    """Streaming writers, librdkafka and Java among them, do not know it when the frame begins."""
    data = SAMPLES["blocks and a bit"]
    stream = zstandard.ZstdCompressor().compressobj()
    written = stream.compress(data) + stream.flush()
    assert zstandard.frame_content_size(written) == -1
    assert decompress(Compression.ZSTD, written, len(data)) == data


def test_zstd_frames_of_the_highest_level_are_read_without_their_window() -> None:
    """Level 22 asks for a window of 128 MiB for frames of any content."""
    stream = zstandard.ZstdCompressor(level=22).compressobj()
    written = stream.compress(b"v" * 1000) + stream.flush()
    assert zstandard.get_frame_parameters(written).window_size == 128 * MIB
    assert decompress(Compression.ZSTD, written, 1000) == b"v" * 1000


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_is_refused_before_it_costs_memory(name: str) -> None:
    """The peak stays near the limit, far from what the bytes would grow to."""
    codec, bomb = bombs()[name]
    limit = MIB
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(
            ProtocolError, match=f"more than the {limit} bytes|at most {limit} bytes"
        ):
            decompress(codec, bomb, limit)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert (
        peak < 2 * limit + min(len(bomb), MIB) + 200_000
    )  # zlib and LZ4 keep a copy of the input that they did not use


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("cut", [1, 2, 5, 8])
def test_a_truncated_end_is_garbage(codec: Compression, cut: int) -> None:
    """Less than what was written never passes for all of it."""
    with pytest.raises(ProtocolError):
        decompress(codec, compress(codec, SAMPLES["text"])[:-cut], MIB)


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"not compressed at all",
        b"\xff" * 40,
        b"\x82SNAPPY\0",
        b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0",
    ],
)
def test_garbage_is_a_protocol_error(codec: Compression, data: bytes) -> None:
    """The codec is named, so that the reader knows which attribute lied."""
    if codec is Compression.SNAPPY and data == b"\x00":
        assert decompress(codec, data, 10) == b""  # an empty raw block
        return
    with pytest.raises(ProtocolError, match=codec.name.lower()):
        decompress(codec, data, MIB)


@pytest.mark.parametrize(
    "codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD, Compression.SNAPPY]
)
def test_bytes_after_the_end_are_garbage(codec: Compression) -> None:
    """A batch holds one piece. Bytes after its end are an error of the writer, and are refused."""
    with pytest.raises(ProtocolError):
        decompress(codec, compress(codec, b"value" * 50) + b"more", MIB)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 50])
def test_a_xerial_block_ends_within_the_data(length: int) -> None:
    """Its length is held against what is left."""
    framed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, length) + b"x" * 10
    with pytest.raises(ProtocolError, match="where 10 are left"):
        decompress(Compression.SNAPPY, framed, MIB)


@pytest.mark.parametrize("codec", REAL)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_changed_bytes_give_a_value_or_a_protocol_error(
    codec: Compression, data: st.DataObject
) -> None:
    """Nothing else, and never more than the limit."""
    mutant = bytearray(compress(codec, SAMPLES["text"]))
    for _ in range(data.draw(st.integers(1, 4))):
        mutant[data.draw(st.integers(0, len(mutant) - 1))] = data.draw(st.integers(0, 255))
    del mutant[data.draw(st.integers(1, len(mutant))) :]
    try:
        out = decompress(codec, mutant, 2_000)
    except ProtocolError:
        return
    assert len(out) <= 2_000


@pytest.mark.parametrize("codec", Compression)
@given(data=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_random_bytes_give_a_value_or_a_protocol_error(codec: Compression, data: bytes) -> None:
    """Nothing else, and never more than the limit."""
    try:
        out = decompress(codec, data, 500)
    except ProtocolError:
        return
    assert len(out) <= 500


LEVELS = {
    Compression.GZIP: ([-1, 1, 9], [0, -2, 10]),
    Compression.LZ4: ([1, 2, 9, 12, 17], [0, -1, 18]),
    Compression.ZSTD: ([-131072, -1, 0, 3, 22], [-131073, 23]),
    Compression.SNAPPY: ([], [0, 1, -1]),
    Compression.NONE: ([], [0, 1, -1]),
}


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_are_those_of_kip_390(codec: Compression) -> None:
    """The allowed ones work, the others are a mistake of configuration that says what is allowed."""
    allowed, refused = LEVELS[codec]
    for level in allowed:
        check_level(codec, level)
        assert decompress(codec, compress(codec, SAMPLES["text"], level), MIB) == SAMPLES["text"]
    for level in refused:
        with pytest.raises(
            ConfigError, match=f"{codec.name.lower()} has no compression level {level}"
        ):
            compress(codec, b"v", level)


@pytest.mark.parametrize(
    ("codec", "default"), [(Compression.GZIP, 6), (Compression.LZ4, 9), (Compression.ZSTD, 3)]
)
def test_no_level_is_javas_default(codec: Compression, default: int) -> None:
    """For gzip it is zlib's -1, which is 6; LZ4's 9 means its fast compressor."""
    data = SAMPLES["incompressible"] + SAMPLES["text"] * 30
    assert compress(codec, data) == compress(codec, data, default)


def test_lz4_level_nine_is_the_fast_compressor() -> None:
    """Level 9 is the fast compressor, as in Java. The levels beside it compress harder."""
    data = b"".join(b"%d," % (i * 7919 % 1009) for i in range(9_000))
    assert len(compress(Compression.LZ4, data, 9)) > len(compress(Compression.LZ4, data, 8))
    assert compress(Compression.LZ4, data, 9) == lz4.frame.compress(
        data,
        compression_level=0,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )


def test_zstd_serves_threads_at_once() -> None:
    """Each thread has compressors of its own; one shared by two would write each other's bytes."""
    samples = [bytes([i]) * 50_000 + b"%d" % i * 10_000 for i in range(8)]
    gate = threading.Barrier(4)

    def work(part: int) -> bool:
        gate.wait()
        data = samples[part]
        return all(
            decompress(Compression.ZSTD, compress(Compression.ZSTD, data), len(data)) == data
            for _ in range(30)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_snappy_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """At configuration time, and wherever it is used; the others do not miss it."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    for use in (
        lambda: check_available(Compression.SNAPPY),
        lambda: compress(Compression.SNAPPY, b"v"),
        lambda: decompress(Compression.SNAPPY, b"v", 10),
    ):
        with pytest.raises(ConfigError, match=r"pip install aioproducer\[snappy\]"):
            use()
    for codec in Compression:
        if codec is not Compression.SNAPPY:
            check_available(codec)
