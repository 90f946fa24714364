"""MemoryRecordsBuilder: the seeds' checks, what fits, what is guessed; its bytes are the golden vectors' business (test_vectors.py)."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, SerializationError, UsageError
from aioproducer.model import Compression
from aioproducer.records.compression import compress
from aioproducer.records.control import ControlRecord, ControlType, control_record
from aioproducer.records.message_set_reader import read_messages
from aioproducer.records.reader import read_batches
from aioproducer.records.record_batch import header
from aioproducer.records.record_batch_writer import NO_TIMESTAMP, BatchFields, RecordBatchWriter

NOW = 1_700_000_000_000
MAGICS = [0, 1, 2]
FORMATS = [(magic, codec) for magic in MAGICS for codec in Compression if magic == 2 or codec is not Compression.ZSTD]
HEADERS = (("h", b"1"), ("none", None))


FIELDS = {field.name for field in dataclasses.fields(BatchFields)}


def writer(**asked: Any) -> RecordBatchWriter:
    """Return a writer; those of its arguments that are fields of the batch may be given as they are."""
    fields = {name: asked.pop(name) for name in FIELDS & asked.keys()}
    return RecordBatchWriter(**asked, fields=BatchFields(**fields))


def transaction(**more: Any) -> RecordBatchWriter:
    return writer(**{"producer_id": 7, "producer_epoch": 1, "is_transactional": True, "is_control": True, **more})


# the seeds' checks


@pytest.mark.parametrize(("asked", "said"), [
    ({"magic": 3}, "there is no format of magic 3"),
    ({"magic": -1}, "there is no format of magic -1"),
    ({"magic": 1, "codec": Compression.ZSTD}, r"zstd needs record batches \(magic 2\), and these are of magic 1"),
    ({"magic": 0, "codec": Compression.ZSTD}, "of magic 0"),
    ({"magic": 1, "is_transactional": True}, r"know no transactions.*\(magic 2\), not magic 1"),
    ({"magic": 0, "is_control": True}, "know no control records"),
    ({"magic": 1, "producer_id": 0}, "know no producer ids"),
    ({"magic": 0, "log_append_time_ms": NOW}, "magic 0 have no timestamps"),
])  # fmt: skip
def test_what_a_format_cannot_hold_is_refused_at_once(asked: dict[str, Any], said: str) -> None:
    """Before any record."""
    with pytest.raises(UsageError, match=said):
        writer(**asked)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize(("record", "more", "said"), [
    ((NOW, b"k", b"v"), {"offset": 10}, "offset 10 is not later than 10"),
    ((NOW, b"k", b"v"), {"offset": 9}, "offset 9 is not later than 10"),
    ((NOW, b"k", b"v"), {"offset": 10 + 2**31}, "too far from the batch's first"),
    ((-2, b"k", b"v"), {}, "timestamp -2 is negative; -1 stands for none"),
    ((NOW, b"k", b"v"), {"is_control": True}, "control records stand in control batches"),
])  # fmt: skip
def test_a_bad_record_is_refused_and_leaves_no_trace(magic: int, record: tuple[Any, ...], more: dict[str, Any], said: str) -> None:
    """A refused record leaves no trace: the batch holds the records before it and after it alone."""
    builder = RecordBatchWriter(magic=magic, base_offset=10)
    builder.append(NOW, b"first", b"1")
    before = (builder.estimated_size, builder.count, builder.max_timestamp)
    with pytest.raises(UsageError, match=said):
        builder.append(*record, **more)
    assert (builder.estimated_size, builder.count, builder.max_timestamp) == before
    builder.append(NOW, b"second", b"2")
    assert [one.key for one in read(magic, builder)] == [b"first", b"second"]


def read(magic: int, builder: RecordBatchWriter) -> list[Any]:
    raw = builder.build()
    return [record for entry in (read_messages(raw) if magic < 2 else read_batches(raw)) for record in entry.check()]


@pytest.mark.parametrize("magic", [0, 1])
def test_headers_need_magic_2(magic: int) -> None:
    """No headers are no headers."""
    builder = RecordBatchWriter(magic=magic)
    builder.append(NOW, b"k", b"v", ())
    with pytest.raises(UsageError, match=f"headers need record batches .magic 2., and this is a message set of magic {magic}"):
        builder.append(NOW, b"k", b"v", HEADERS)
    assert builder.count == 1


def test_a_bad_header_leaves_no_trace_either() -> None:
    """Its text does not show it."""
    builder = RecordBatchWriter()
    with pytest.raises(SerializationError, match="not list"):
        builder.append(NOW, b"k", b"v", [("h", ["secret"])])  # type: ignore[list-item]
    builder.append(NOW + 5, b"k", b"v")
    (batch,) = read_batches(builder.build())
    assert (batch.count, batch.base_timestamp) == (1, NOW + 5)


@pytest.mark.parametrize("magic", MAGICS)
def test_no_timestamp_is_a_timestamp(magic: int) -> None:
    """The only negative one."""
    builder = RecordBatchWriter(magic=magic)
    builder.append(NO_TIMESTAMP, b"k", b"v")
    assert [record.timestamp_ms for record in read(magic, builder)] == [-1]


@pytest.mark.parametrize("magic", MAGICS)
def test_the_latest_time_is_known(magic: int) -> None:
    """The writer keeps the latest timestamp, which need not be the last record's. Magic 0 has none."""
    builder = RecordBatchWriter(magic=magic)
    assert builder.max_timestamp == NO_TIMESTAMP
    builder.append(NOW + 5, b"k", b"v")
    builder.append(NOW, b"k", b"v")
    assert builder.max_timestamp == (NOW + 5 if magic else NO_TIMESTAMP)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("end", ["close_for_appends", "build", "abort"])
def test_a_closed_batch_takes_no_more(magic: int, end: str) -> None:
    """However it was closed; and says so before it looks at the record."""
    builder = RecordBatchWriter(magic=magic)
    builder.append(NOW, b"k", b"v")
    getattr(builder, end)()
    with pytest.raises(UsageError, match="closed and takes no more"):
        builder.append(-5, b"k", b"v", offset=-1)
    assert builder.is_full
    assert not builder.has_room_for(NOW, None, None)


def test_an_aborted_batch_cannot_be_built_and_a_built_one_not_aborted() -> None:
    """One end is enough."""
    builder = RecordBatchWriter()
    builder.append(NOW, b"k", b"v")
    builder.abort()
    with pytest.raises(UsageError, match="was aborted"):
        builder.build()
    built = RecordBatchWriter()
    built.append(NOW, b"k", b"v")
    raw = built.build()
    with pytest.raises(UsageError, match="built already"):
        built.abort()
    assert built.build() is raw


@pytest.mark.parametrize(("asked", "said"), [
    ({"is_transactional": True}, "needs a producer id"),
    ({"producer_id": 7}, "needs an epoch"),
    ({"producer_id": 7, "producer_epoch": -5, "base_sequence": 0}, "needs an epoch"),
    ({"producer_id": 7, "producer_epoch": 0}, "needs a sequence"),
    ({"producer_id": 7, "producer_epoch": 0, "base_sequence": -3}, "needs a sequence"),
])  # fmt: skip
def test_a_producer_is_whole_or_not_there(asked: dict[str, Any], said: str) -> None:
    """RCD-04; found when it is built, as id and sequence may be known late."""
    builder = writer(**asked)
    builder.append(NOW, b"k", b"v")
    with pytest.raises(UsageError, match=said):
        builder.build()


def test_producer_and_flags_are_in_the_header() -> None:
    """The header holds the producer's fields and the flags as a broker reads them."""
    builder = writer(
        producer_id=77, producer_epoch=3, base_sequence=40, is_transactional=True, base_offset=500, leader_epoch=6, codec=Compression.ZSTD
    )
    builder.append(NOW, b"k", b"v", HEADERS, offset=502)
    builder.append(NOW - 9, b"k", b"v", offset=509)
    (batch,) = read_batches(builder.build())
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.leader_epoch) == (77, 3, 40, 6)
    assert (batch.base_offset, batch.last_offset_delta, batch.count) == (500, 9, 2)
    assert (batch.is_transactional, batch.is_control, batch.max_timestamp) == (True, False, NOW)
    assert [(record.offset, record.timestamp_ms, record.headers) for record in batch.records()] == [(502, NOW, HEADERS), (509, NOW - 9, ())]


# control batches


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_transactions_end_is_written_and_read(kind: ControlType) -> None:
    """The writer appends an end marker as a broker does. test_vectors.py compares its bytes with Kafka's."""
    builder = transaction(base_offset=9, leader_epoch=4)
    builder.append_end_marker(NOW, kind, 21)
    (batch,) = read_batches(builder.build())
    assert (batch.is_control, batch.is_transactional) == (True, True)
    assert [control_record(record) for record in batch.check()] == [ControlRecord(9, NOW, 0, kind, 0, 21)]


@pytest.mark.parametrize("asked", [{"is_transactional": False}, {"producer_id": -1}])
def test_a_transactions_end_needs_a_transaction(asked: dict[str, Any]) -> None:
    """The writer refuses an end marker without a transaction or its producer."""
    with pytest.raises(UsageError, match="needs a transactional batch with a producer id"):
        transaction(**asked).append_end_marker(NOW, ControlType.COMMIT, 1)


def test_a_transactions_end_needs_a_control_batch() -> None:
    """The flag of the batch and of the record are one."""
    with pytest.raises(UsageError, match="control records stand in control batches"):
        transaction(is_control=False).append_end_marker(NOW, ControlType.COMMIT, 1)
    with pytest.raises(UsageError, match="and nothing else does"):
        transaction().append(NOW, b"k", b"v")
    with pytest.raises(UsageError, match="LEADER_CHANGE ends no transaction"):
        transaction().append_end_marker(NOW, ControlType.LEADER_CHANGE, 1)


# Size limits


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_the_first_record_always_fits(magic: int, codec: Compression) -> None:
    """Larger than the limit or not (RCD-05); and fills it."""
    builder = RecordBatchWriter(10, magic=magic, codec=codec)
    assert builder.has_room_for(NOW, b"k" * 1000, b"v" * 1000, HEADERS if magic == 2 else ())
    builder.append(NOW, b"k" * 1000, b"v" * 1000)
    assert builder.is_full
    assert not builder.has_room_for(NOW, None, b"")


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize(
    ("key", "value", "headers"), [(None, None, ()), (b"k", b"v" * 40, ()), (b"", None, ()), (None, b"v" * 300, HEADERS)]
)
def test_room_is_reckoned_to_the_byte(magic: int, key: bytes | None, value: bytes | None, headers: Any) -> None:
    """A limit of the size that it will have is enough, and one byte less is not."""
    headers = headers if magic == 2 else ()

    def filled(limit: int) -> RecordBatchWriter:
        builder = RecordBatchWriter(limit, magic=magic, base_offset=5)
        builder.append(NOW, b"first", b"record")
        return builder

    both = filled(10_000)
    both.append(NOW - 7_000, key, value, headers)
    size = len(both.build())
    assert filled(size).has_room_for(NOW - 7_000, key, value, headers)
    assert not filled(size - 1).has_room_for(NOW - 7_000, key, value, headers)
    one = filled(10_000).estimated_size
    assert (filled(one).is_full, filled(one + 1).is_full) == (True, False)


ROW = st.tuples(st.integers(NOW - 10**12, NOW + 10**12), st.none() | st.binary(max_size=90), st.none() | st.binary(max_size=200))


@given(rows=st.lists(ROW, min_size=1, max_size=30), limit=st.integers(1, 2_000), magic=st.sampled_from(MAGICS))
@settings(max_examples=150, deadline=None)
def test_what_has_room_stays_within_the_limit(rows: list[Any], limit: int, magic: int) -> None:
    """Without compression exactly; and the size told while it fills is the size it has."""
    builder = RecordBatchWriter(limit, magic=magic)
    for row in rows:
        if builder.has_room_for(*row):
            builder.append(*row)
    told = builder.estimated_size
    assert len(builder.build()) == told == builder.estimated_size == builder.uncompressed_size
    assert builder.count == 1 or told <= limit


@pytest.mark.parametrize(("magic", "codec"), [one for one in FORMATS if one[1] is not Compression.NONE])
def test_a_compressed_size_is_guessed_by_the_ratio(magic: int, codec: Compression) -> None:
    """Header, and uncompressed bytes times ratio times 1.05 (RCD-06); the next record is reckoned without compression."""
    overhead = (26, 34, 61)[magic]
    builder = RecordBatchWriter(2_000, magic=magic, codec=codec, ratio=0.5)
    assert (builder.estimated_size, builder.compression_ratio) == (overhead, 1.0)
    builder.append(NOW, b"", b"v" * 1_000)
    written = builder.uncompressed_size - overhead
    assert builder.estimated_size == overhead + int(written * 0.5 * 1.05)
    left = 2_000 - builder.estimated_size
    assert builder.has_room_for(NOW, None, b"v" * (left - 60))
    assert not builder.has_room_for(NOW, None, b"v" * left)
    raw = builder.build()
    assert builder.estimated_size == len(raw)
    assert builder.compression_ratio == (len(raw) - overhead) / written < 0.2


def test_the_sets_crc_is_told() -> None:
    """`append` returns the CRC of a message. A batch has one CRC for all its records, so `append` returns None."""
    crc = RecordBatchWriter(magic=1).append(NOW, b"k", b"v")
    assert crc == zlib.crc32(struct.pack(">bbqi", 1, 0, NOW, 1) + b"k" + struct.pack(">i", 1) + b"v")
    assert RecordBatchWriter().append(NOW, b"k", b"v") is None


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_nothing_appended_is_no_bytes(magic: int, codec: Compression) -> None:
    """A batch without records is no bytes, as in Kafka's writer."""
    assert RecordBatchWriter(magic=magic, codec=codec).build() == b""


def test_a_level_is_used_and_a_wrong_one_told() -> None:
    """KIP-390."""
    text = b"".join(b"%d," % (number * number % 997) for number in range(3_000))

    def size(level: int | None) -> int:
        builder = RecordBatchWriter(codec=Compression.GZIP, level=level)
        builder.append(NOW, None, text)
        return len(builder.build())

    assert size(9) < size(1)
    with pytest.raises(ConfigError, match="gzip has no compression level 12"):
        size(12)


def test_the_header_of_a_batch_without_gaps_needs_no_last_offset() -> None:
    """The producer's `header` and the writer's `build` give the same bytes."""
    builder = RecordBatchWriter(codec=Compression.LZ4)
    for number in range(3):
        builder.append(NOW + number, b"k", b"v" * 50)
    raw = builder.build()
    assert header(raw[61:], 3, Compression.LZ4, NOW, NOW + 2) + raw[61:] == raw
    assert compress(Compression.LZ4, b"") not in raw
