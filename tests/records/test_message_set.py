"""Message sets: what we write others read, what others write we read, and hostile bytes are a `ProtocolError` that says where."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import aiokafka.record.legacy_records as aiokafka_records
import kafka.record.legacy_records as kafka_records
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError, UsageError
from aioproducer.model import Compression, TimestampType
from aioproducer.records.compression import compress
from aioproducer.records.message_set import (
    Message,
    encode_message_set,
    mend,
    message,
    read_messages,
    spoil,
    wrapper,
)
from aioproducer.records.reader import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = 1_700_000_000_000
CODECS = [codec for codec in Compression if codec is not Compression.ZSTD]
PACKED = [codec for codec in CODECS if codec is not Compression.NONE]
MIB = 1024 * 1024
LIMIT = 200_000
RECORDS = [
    Record(0, NOW, b"key", b"value", ()),
    Record(1, NOW + 1, None, b"no key", ()),
    Record(2, NOW - 5, b"earlier, and a tombstone", None, ()),
    Record(3, NOW, b"", b"", ()),
    Record(4, NOW + 40_000_000_000, None, None, ()),
    Record(5, NOW, b"k" * 7_000, b"v" * 90_000, ()),
    *(Record(6 + i, NOW + i, b"%d" % i, b"v" * i, ()) for i in range(100)),
]
BUILDERS = {
    "aiokafka": aiokafka_records.LegacyRecordBatchBuilder,
    "aiokafka, plain Python": aiokafka_records._LegacyRecordBatchBuilderPy,
    "kafka-python": kafka_records.LegacyRecordBatchBuilder,
}


def peers(magic: int) -> list[tuple[str, Compression]]:
    """kafka-python wants python-snappy for snappy and xxhash for the LZ4 of magic 0, and aiokafka refuses that."""
    return [
        (name, codec)
        for name in BUILDERS
        for codec in CODECS
        if not (name == "kafka-python" and codec is Compression.SNAPPY)
        and (magic, codec) != (0, Compression.LZ4)
    ]


PEERS = [(magic, name, codec) for magic in (0, 1) for name, codec in peers(magic)]


def build(magic: int, codec: Compression, records: Sequence[Record] = RECORDS) -> bytes:
    """Return the records as a broker has them, at their offsets; from offset 0 on, as a producer writes them."""
    if [record.offset for record in records] == list(range(len(records))):
        return encode_message_set(magic, codec, records)
    first = records[0].offset if magic and codec is not Compression.NONE else 0
    inner = b"".join(
        message(magic, one.offset - first, one.timestamp_ms, one.key, one.value) for one in records
    )
    return (
        inner
        if codec is Compression.NONE
        else wrapper(
            magic, codec, inner, records[-1].offset, max(one.timestamp_ms for one in records)
        )
    )


def expected(magic: int, records: Sequence[Record] = RECORDS) -> list[Record]:
    return [record._replace(timestamp_ms=-1) for record in records] if magic == 0 else list(records)


def check(raw: bytes | bytearray | memoryview, limit: int = LIMIT) -> list[Record]:
    return [record for entry in read_messages(raw) for record in entry.check(limit)]


def only(raw: bytes | bytearray | memoryview) -> Message:
    (entry,) = read_messages(raw)
    return entry


def raw_message(body: bytes, magic: int = 1, *, size: int | None = None) -> bytes:
    """A message of any bytes behind its magic, with a true CRC, and a true size unless told otherwise."""
    body = bytes([magic]) + body
    return struct.pack(">qiI", 0, len(body) + 4 if size is None else size, zlib.crc32(body)) + body


# written and read


@pytest.mark.parametrize(("magic", "name", "codec"), PEERS)
def test_what_other_clients_write_is_read(magic: int, name: str, codec: Compression) -> None:
    """Their builders' bytes."""
    builder = BUILDERS[name](magic=magic, compression_type=int(codec), batch_size=10 * MIB)
    for record in RECORDS:
        assert (
            builder.append(
                record.offset, timestamp=record.timestamp_ms, key=record.key, value=record.value
            )
            is not None
        )
    assert check(bytes(builder.build())) == expected(magic)


TEXTS = st.none() | st.binary(max_size=60)
ROWS = st.lists(st.tuples(st.integers(-1, 2**62), TEXTS, TEXTS), min_size=1, max_size=12)


@pytest.mark.parametrize("magic", [0, 1])
@given(rows=ROWS, codec=st.sampled_from(CODECS), base=st.integers(0, 2**40))
@settings(max_examples=80, deadline=None)
def test_any_records_come_back(magic: int, rows: list[Any], codec: Compression, base: int) -> None:
    """Any records come back, from any offset in a log."""
    records = [Record(base + index, *row, ()) for index, row in enumerate(rows)]
    assert check(build(magic, codec, records)) == expected(magic, records)


@pytest.mark.parametrize("codec", PACKED)
def test_a_wrapper_has_the_latest_time_and_the_last_offset(codec: Compression) -> None:
    """KIP-32; inside, offsets are absolute in magic 0 and count from 0 in magic 1 (KIP-31)."""
    records = [record._replace(offset=record.offset + 500) for record in RECORDS[:3]]
    for magic, inner in ((0, [500, 501, 502]), (1, [0, 1, 2])):
        entry = only(build(magic, codec, records))
        assert (entry.offset, entry.key, entry.timestamp_ms) == (
            502,
            None,
            -1 if magic == 0 else NOW + 1,
        )
        assert [one.offset for one in read_messages(entry._unwrapped(LIMIT))] == inner


def test_a_broker_moves_what_is_inside_by_the_wrappers_offset() -> None:
    """It stamps that one alone, outside of what the CRC covers."""
    raw = bytearray(build(1, Compression.GZIP, RECORDS[:3]))
    struct.pack_into(">q", raw, 0, 1_002)
    assert [record.offset for record in check(raw)] == [1_000, 1_001, 1_002]


def test_gaps_that_compaction_left_stay() -> None:
    """The wrapper's offset is that of the last message, even if messages before it are missing."""
    inner = b"".join(message(1, offset, NOW, None, b"v") for offset in (0, 3, 9))
    assert [record.offset for record in check(wrapper(1, Compression.LZ4, inner, 109, NOW))] == [
        100,
        103,
        109,
    ]


def test_the_wrappers_log_append_time_is_every_records() -> None:
    """The broker stamps the wrapper only; with create time the inner ones count."""
    inner = b"".join(message(1, offset, NOW + offset, None, b"v") for offset in range(3))
    stamped = only(wrapper(1, Compression.GZIP, inner, 2, NOW + 77, attributes=8))
    assert stamped.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in stamped.check()] == [NOW + 77] * 3
    created = only(wrapper(1, Compression.GZIP, inner, 2, NOW + 77))
    assert created.timestamp_type is TimestampType.CREATE_TIME
    assert [record.timestamp_ms for record in created.check()] == [NOW, NOW + 1, NOW + 2]


def test_magic_0_has_no_stamps() -> None:
    """That bit means nothing there."""
    assert only(message(0, 0, NOW, None, b"v", 8)).timestamp_type is TimestampType.CREATE_TIME


def test_the_latest_time_is_the_wrappers() -> None:
    """It need not be the last record's; the only negative one stands for none."""
    times = [-1, NOW + 5, NOW]
    entry = only(
        encode_message_set(
            1, Compression.GZIP, [RECORDS[0]._replace(timestamp_ms=time) for time in times]
        )
    )
    assert entry.timestamp_ms == NOW + 5
    assert [record.timestamp_ms for record in entry.check(LIMIT)] == times


def test_what_a_wrapper_cannot_be_is_refused() -> None:
    """zstd came with magic 2; without a codec there is nothing to wrap."""
    with pytest.raises(UsageError, match="zstd needs record batches"):
        wrapper(1, Compression.ZSTD, b"", 0, NOW)
    with pytest.raises(UsageError, match="without a codec"):
        wrapper(1, Compression.NONE, b"", 0, NOW)


def test_a_repr_does_not_show_the_bytes() -> None:
    """Logs are no place for keys and values."""
    entry = only(message(1, 0, NOW, b"secret", b"secret"))
    assert "secret" not in repr(entry)
    assert "raw" not in repr(entry)


# the LZ4 header of magic 0


def test_lz4_in_magic_0_has_the_wrong_checksum_and_in_magic_1_the_right_one() -> None:
    """0x1a and 0x82: what Java writes for the header that both have, and what its first writer wrote (KAFKA-3160)."""
    assert build(0, Compression.LZ4)[26:33] == b"\x04\x22\x4d\x18\x60\x40\x1a"
    assert build(1, Compression.LZ4)[34:41] == b"\x04\x22\x4d\x18\x60\x40\x82"


OPTIONS = [
    {"store_size": size, "content_checksum": total, "block_linked": linked}
    for size in (0, 1)
    for total in (0, 1)
    for linked in (0, 1)
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("wrong", [0x00, 0x1A, 0xFF])
def test_any_header_checksum_is_mended(options: dict[str, int], wrong: int) -> None:
    """Any header checksum is corrected, with and without a content size. Java does not check it either."""
    frame = lz4.frame.compress(
        b"value" * 1_000, **{name: bool(value) for name, value in options.items()}
    )
    at = 14 if options["store_size"] else 6
    assert mend(frame[:at] + bytes([wrong]) + frame[at + 1 :]) == frame


@pytest.mark.parametrize("cut", range(9))
def test_a_frame_that_ends_within_its_header_stays_as_it_is(cut: int) -> None:
    """The decompressor says what is wrong with it."""
    frame = lz4.frame.compress(b"v", store_size=True)[:cut]
    assert (mend(frame), spoil(frame)) == (frame, frame)


def test_the_right_checksum_does_in_magic_0_too() -> None:
    """Clients that never learnt of the mistake wrote it."""
    inner = message(0, 7, NOW, None, b"v")
    raw = message(0, 7, NOW, None, compress(Compression.LZ4, inner), Compression.LZ4)
    assert [record.value for record in check(raw)] == [b"v"]


# hostile bytes


def test_a_wrong_crc_is_found_within_and_without() -> None:
    """Both numbers are told."""
    raw = bytearray(message(1, 5, NOW, b"k", b"secret"))
    raw[-1] ^= 1
    with pytest.raises(
        ProtocolError,
        match=r"message at offset 5: its CRC-32 is 0x[0-9a-f]{8}, its head says 0x[0-9a-f]{8}",
    ):
        check(raw)
    # a reader that does not check the CRC reads the record
    assert [record.key for record in only(raw).records()] == [b"k"]
    wrapped = wrapper(1, Compression.GZIP, bytes(raw), 9, NOW)
    with pytest.raises(ProtocolError, match="message at offset 9: message at offset 5: its CRC-32"):
        check(wrapped)
    assert len(only(wrapped).records()) == 1


HEAD = struct.pack(">Bq", 0, NOW)
NULL = struct.pack(">i", -1)
ONE = message(1, 0, NOW, None, b"v")


def wrapped(value: bytes | None, offset: int = 0, magic: int = 1) -> bytes:
    return message(magic, offset, NOW, None, value, Compression.GZIP)


BAD = {
    "cut off in the head": (ONE[:20], "cut off"),
    "cut off in the value": (ONE[:-1], "cut off"),
    "another magic": (raw_message(HEAD + NULL + NULL, magic=2), "magic 2 at byte 0"),
    "no magic at all": (raw_message(HEAD + NULL + NULL, magic=255), "magic 255"),
    "a size below the least": (raw_message(HEAD + NULL + NULL, size=21), "33 bytes; without key and value it has 34"),
    "a negative size": (raw_message(HEAD + NULL + NULL, size=-1), "11 bytes"),
    "the smallest size": (raw_message(HEAD + NULL + NULL, size=-(2**31)), "bytes; without"),
    "a size beyond the bytes": (raw_message(HEAD + NULL + NULL, size=2**31 - 1), "cut off"),
    "an unknown codec": (raw_message(struct.pack(">Bq", 5, NOW) + NULL + NULL), "codec 5"),
    "zstd": (raw_message(struct.pack(">Bq", 4, NOW) + NULL + NULL), "codec 4 is none of message sets'"),
    "a key longer than the message": (raw_message(HEAD + struct.pack(">i", 2**31 - 1) + NULL), "a field of 2147483647 bytes where 4 are left"),
    "a key of length -2": (raw_message(HEAD + struct.pack(">i", -2) + NULL), "a length of -2"),
    "a key that leaves no room for a value": (raw_message(HEAD + struct.pack(">i", 2) + b"kk" + b"xx"), "a length ends early"),
    "a value longer than the message": (raw_message(HEAD + NULL + struct.pack(">i", 3) + b"v"), "a field of 3 bytes where 1 are left"),
    "bytes after the value": (raw_message(HEAD + NULL + NULL + b"more"), "4 bytes follow its value"),
    "a wrapper without a value": (wrapped(None), "a wrapper without a value"),
    "a wrapper of nothing": (wrapped(compress(Compression.GZIP, b"")), "a wrapper of no messages"),
    "a wrapper of garbage": (wrapped(b"garbage"), "unsound gzip data"),
    "a wrapper of half a message": (wrapped(compress(Compression.GZIP, ONE[:-1])), "message at offset 0: the message at byte 0 is cut off"),
    "a wrapper of another magic": (wrapped(compress(Compression.GZIP, ONE), magic=0), "it wraps a message of magic 1"),
    "a wrapper of a wrapper": (wrapped(compress(Compression.GZIP, wrapped(b""))), "it wraps a message of magic 1 and codec gzip"),
    "a wrapper before what it wraps": (wrapped(compress(Compression.GZIP, message(1, 9, NOW, None, b"v")), 8), "the relative offset 9"),
    "a wrapper of too much": (wrapped(compress(Compression.GZIP, message(1, 0, NOW, None, bytes(LIMIT)))), f"more than the {LIMIT} bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_told(name: str) -> None:
    """The error says the fault and its place."""
    raw, said = BAD[name]
    with pytest.raises(ProtocolError, match=said):
        check(raw)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_bomb_costs_no_memory(magic: int, codec: Compression) -> None:
    """It is refused at the limit, long before what it holds."""
    bomb = wrapper(magic, codec, message(magic, 0, NOW, None, bytes(64 * MIB)), 0, NOW)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="more than the"):
            check(bomb, MIB)
        assert tracemalloc.get_traced_memory()[1] < 3 * MIB + 2 * min(
            len(bomb), 4 * MIB
        )  # the LZ4 of magic 0 is copied to be mended
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_changed_bytes_give_records_or_a_protocol_error(
    magic: int, codec: Compression, data: st.DataObject
) -> None:
    """Nothing else, with the CRC looked at and without."""
    mutant = bytearray(build(magic, codec, RECORDS[:5]))
    for _ in range(data.draw(st.integers(1, 4))):
        mutant[data.draw(st.integers(0, len(mutant) - 1))] = data.draw(st.integers(0, 255))
    del mutant[data.draw(st.integers(1, len(mutant))) :]
    for read in (Message.check, Message.records):
        try:
            assert all(
                type(record) is Record
                for entry in read_messages(mutant)
                for record in read(entry, LIMIT)
            )
        except ProtocolError:
            continue


@given(data=st.binary(max_size=120), magic=st.integers(0, 1), codec=st.integers(0, 7))
@settings(max_examples=300, deadline=None)
def test_random_bytes_give_records_or_a_protocol_error(data: bytes, magic: int, codec: int) -> None:
    """Behind a head that lets them be read."""
    raw = raw_message(bytes([codec]) + data, magic)
    for buffer in (raw, data):
        try:
            check(buffer)
        except ProtocolError:
            continue
