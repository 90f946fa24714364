"""The reader: what other clients' builders write reads back equal, and hostile bytes are a `ProtocolError` that says where."""

from __future__ import annotations

import struct
import time
import tracemalloc
from typing import TYPE_CHECKING, Any, NamedTuple

import aiokafka.record.default_records as aiokafka_records
import aiokafka.record.memory_records as aiokafka_memory
import kafka.record.default_records as kafka_records
import kafka.record.memory_records as kafka_memory
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError
from aioproducer.model import Compression, TimestampType
from aioproducer.records.compression import compress
from aioproducer.records.reader import Record
from aioproducer.testing.record_batches import RecordBatch, read_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioproducer.model import Header

HEADER = struct.Struct(">qiibIhiqqqhii")
NOW = 1_700_000_000_000
BUILDERS = {
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "aiokafka, plain Python": aiokafka_records._DefaultRecordBatchBuilderPy,
    "kafka-python": kafka_records.DefaultRecordBatchBuilder,
}
# kafka-python wants python-snappy for snappy
WRITERS = [
    (name, codec)
    for name in BUILDERS
    for codec in Compression
    if (name, codec) != ("kafka-python", Compression.SNAPPY)
]


class Input(NamedTuple):
    """Holds the fields of a record as a user sends it."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


INPUTS = [
    Input(NOW, b"key", b"value"),
    Input(NOW + 1, None, b"no key"),
    Input(NOW - 5, b"earlier, and a tombstone", None),
    Input(NOW - 40_000_000_000, b"", b""),
    Input(NOW + 40_000_000_000, None, None),
    Input(NOW, b"k" * 70_000, b"v" * 300_000),
    Input(NOW, b"h", b"one", (("name", b"value"),)),
    Input(NOW, b"h", b"none and empty", (("none", None), ("empty", b""), ("", b"no name"))),
    Input(NOW, b"h", b"repeated", (("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", None))),
    Input(NOW, b"h", b"long", (("\N{SNOWMAN}" * 50, b"x" * 9_000),) * 70),
    *(Input(NOW + i, b"%d" % i, b"v" * i) for i in range(200)),
]


def build(name: str, codec: Compression, inputs: Iterable[Input], **more: Any) -> bytes:
    """The inputs as another client writes them."""
    options: dict[str, Any] = {
        "is_transactional": False,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        **more,
    }
    builder = BUILDERS[name](magic=2, compression_type=int(codec), batch_size=10_000_000, **options)
    for offset, (timestamp, key, value, headers) in enumerate(inputs):
        assert (
            builder.append(offset, timestamp=timestamp, key=key, value=value, headers=list(headers))
            is not None
        )
    return bytes(builder.build())


def expected(inputs: Sequence[Input], base_offset: int = 0) -> list[Record]:
    """Return the records that a reader must give for `inputs`."""
    return [Record(base_offset + i, *record) for i, record in enumerate(inputs)]


def only(buffer: bytes | bytearray | memoryview) -> RecordBatch:
    """The one batch."""
    (batch,) = read_batches(buffer)
    return batch


def batch_of(
    payload: bytes,
    count: int = 1,
    *,
    base_offset: int = 0,
    attributes: int = 0,
    last: int | None = None,
    timestamps: tuple[int, int] = (NOW, NOW),
    crc: int | None = None,
    magic: int = 2,
) -> bytes:
    """A batch of any payload, with a true CRC unless told otherwise."""
    last = count - 1 if last is None else last
    tail = struct.pack(">hiqqqhii", attributes, last, *timestamps, -1, -1, -1, count) + payload
    crc = crc32c(tail) if crc is None else crc
    return struct.pack(">qiibI", base_offset, len(tail) + 9, -1, magic, crc) + tail


def zigzag(value: int) -> bytes:
    """Encode a varint with slow and obvious code."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    out = b""
    while rest > 127:
        out += bytes([rest % 128 + 128])
        rest //= 128
    return out + bytes([rest])


def field(data: bytes | None) -> bytes:
    """Bytes behind their length."""
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def record_of(body: bytes) -> bytes:
    """A record's body behind its length."""
    return zigzag(len(body)) + body


def plain(delta: int = 0, timestamp_delta: int = 0, value: bytes | None = b"v") -> bytes:
    """A record without key and headers."""
    return record_of(
        b"\0" + zigzag(timestamp_delta) + zigzag(delta) + field(None) + field(value) + zigzag(0)
    )


@pytest.mark.parametrize(("name", "codec"), WRITERS)
def test_other_builders_batches_read_back_equal(name: str, codec: Compression) -> None:
    """Null, empty and large keys and values, headers with None and repeated names, times before the first record's."""
    batch = only(build(name, codec, INPUTS))
    assert batch.compression is codec
    assert batch.records() == expected(INPUTS)
    assert batch.check() == expected(INPUTS)


INT64 = st.integers(0, 2**62)
INPUT = st.builds(
    Input,
    st.one_of(st.integers(NOW - 1000, NOW + 1000), INT64),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(
        tuple
    ),
)


@pytest.mark.parametrize(
    ("name", "codec"), [("aiokafka", Compression.NONE), ("kafka-python", Compression.LZ4)]
)
@given(inputs=st.lists(INPUT, min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_any_records_of_other_builders_read_back_equal(
    name: str, codec: Compression, inputs: list[Input]
) -> None:
    """The reader reads any records of other builders back."""
    assert only(build(name, codec, inputs)).check() == expected(inputs)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_header_is_what_the_builder_wrote(kind: Any) -> None:
    """Each field, from any kind of buffer."""
    raw = build(
        "aiokafka",
        Compression.GZIP,
        INPUTS[:3],
        is_transactional=True,
        producer_id=77,
        producer_epoch=3,
        base_sequence=40,
    )
    theirs = aiokafka_memory.MemoryRecords(raw).next_batch()
    batch = only(kind(raw))
    assert theirs is not None
    assert (batch.base_offset, batch.leader_epoch, batch.magic) == (0, -1, 2)
    assert (batch.length, batch.size_in_bytes, bytes(batch.raw)) == (len(raw) - 12, len(raw), raw)
    assert (batch.crc, batch.attributes) == (theirs.crc, theirs.attributes)
    assert (batch.last_offset_delta, batch.count) == (2, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 40)
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.timestamp_type is TimestampType.CREATE_TIME


def test_attributes_have_names() -> None:
    """Codec, time stamp type, transaction and control: one bit or three each."""
    batch = only(batch_of(plain(), attributes=0b110000))
    assert (batch.is_transactional, batch.is_control) == (True, True)
    assert (
        only(batch_of(plain(), attributes=0b1000)).timestamp_type is TimestampType.LOG_APPEND_TIME
    )
    assert only(batch_of(plain(), attributes=0b0100)).compression is Compression.ZSTD
    assert not only(batch_of(plain(), attributes=0b1100)).is_transactional


def test_a_repr_does_not_show_the_bytes() -> None:
    """Logs are no place for keys and values."""
    assert "raw" not in repr(only(batch_of(plain(value=b"secret"))))


def test_log_append_time_overrides_the_records_own() -> None:
    """The broker stamps the header only; its maximum is every record's time."""
    payload = plain(0, 5) + plain(1, -5)
    batch = only(batch_of(payload, 2, attributes=0b1000, timestamps=(NOW, NOW + 99)))
    assert [record.timestamp_ms for record in batch.check()] == [NOW + 99, NOW + 99]


def test_offsets_count_from_the_base_offset() -> None:
    """The broker assigns it, outside of what the CRC covers."""
    raw = bytearray(build("aiokafka", Compression.ZSTD, INPUTS[:4]))
    struct.pack_into(">q", raw, 0, 2**40)
    struct.pack_into(">i", raw, 12, 9)  # so is the leader epoch
    batch = only(raw)
    assert batch.leader_epoch == 9
    assert batch.check() == expected(INPUTS[:4], 2**40)


def test_batches_follow_one_another() -> None:
    """Each with its own codec; nothing is nothing."""
    raws = [build("aiokafka", codec, INPUTS[:3]) for codec in Compression]
    batches = list(read_batches(b"".join(raws)))
    assert [batch.compression for batch in batches] == list(Compression)
    assert [batch.records() for batch in batches] == [expected(INPUTS[:3])] * 5
    assert list(read_batches(b"")) == []


def test_a_cut_off_last_batch_is_left_out_or_an_error() -> None:
    """A Fetch response may end anywhere; a Produce request may not."""
    first, second = batch_of(plain()), batch_of(plain(value=b"second"))
    for end in range(len(first) + 1, len(first) + len(second)):
        cut = (first + second)[:end]
        assert len(list(read_batches(cut, allow_partial=True))) == 1
        with pytest.raises(
            ProtocolError, match=f"at byte {len(first)} is cut off: {end - len(first)} bytes"
        ):
            list(read_batches(cut))
    assert len(list(read_batches(first + second, allow_partial=True))) == 2


@pytest.mark.parametrize("allow_partial", [False, True])
@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_named(magic: int, allow_partial: bool) -> None:
    """Message sets (0 and 1) and formats to come are no batches."""
    raw = bytearray(batch_of(plain()))
    raw[16] = magic
    with pytest.raises(ProtocolError, match=f"magic {magic} at byte 0"):
        list(read_batches(raw, allow_partial=allow_partial))


@pytest.mark.parametrize("allow_partial", [False, True])
@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 5, 48])
def test_a_length_below_the_headers_cannot_be(length: int, allow_partial: bool) -> None:
    """Also when a batch may be cut off; reading always moves on."""
    raw = bytearray(batch_of(plain()))
    struct.pack_into(">i", raw, 8, length)
    with pytest.raises(ProtocolError, match=f"says that it has {length + 12} bytes"):
        list(read_batches(raw, allow_partial=allow_partial))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named(codec: int) -> None:
    """Three bits, five codecs."""
    with pytest.raises(ProtocolError, match=f"codec {codec}"):
        list(read_batches(batch_of(plain(), attributes=codec)))


def test_every_bit_after_the_crc_is_covered() -> None:
    """`check` finds one flipped bit anywhere in what a broker may not change."""
    raw = batch_of(plain())
    for at in range(16, len(raw)):
        mutant = bytearray(raw)
        mutant[at] ^= 0x40
        with pytest.raises(ProtocolError):
            only(mutant).check()


def test_a_wrong_crc_is_told_by_check_alone() -> None:
    """Both values are named; `records` decodes all the same."""
    batch = only(batch_of(plain(), crc=0x1234))
    with pytest.raises(
        ProtocolError, match=r"offset 0: its CRC-32C is 0x[0-9a-f]{8}, its header says 0x00001234"
    ):
        batch.check()
    assert len(batch.records()) == 1


@pytest.mark.parametrize(("count", "last"), [(2, 0), (2, 2), (1, 1), (1, -1), (0, -1), (-1, -2)])
def test_count_and_offset_range_must_agree(count: int, last: int) -> None:
    """The reader refuses counts that a broker refuses from a producer, and empty batches."""
    payload = b"".join(plain(i) for i in range(max(count, 0)))
    with pytest.raises(ProtocolError, match=f"count of {count} with a last offset delta of {last}"):
        only(batch_of(payload, count, last=last)).check()


def test_a_producers_offsets_have_no_gap() -> None:
    """In order, each once. The log may have gaps, so `records` reads them."""
    for deltas in ([1, 0], [0, 0], [1, 1]):
        batch = only(batch_of(b"".join(plain(delta) for delta in deltas), 2))
        assert [record.offset for record in batch.records()] == deltas
        with pytest.raises(ProtocolError, match="stands where"):
            batch.check()


def test_what_compaction_leaves_is_read() -> None:
    """Gaps, and batches without records, which keep their producer's last sequence."""
    gapped = only(batch_of(plain(1) + plain(4), 2, last=5, base_offset=10))
    assert [record.offset for record in gapped.records()] == [11, 14]
    assert only(batch_of(b"", 0, last=5)).records() == []


@pytest.mark.parametrize(("payload", "count", "said"), [
    (plain() + plain(1), 1, "8 bytes follow its 1 record"),
    (plain(value=b"long enough"), 2, "its bytes end in record 1"),
    (plain(), 2, "2 records cannot be in 8 bytes"),
    (plain(), 2**31 - 1, "2147483647 records cannot be"),
    (plain(), -1, "-1 records cannot be"),
    (plain(1), 1, "record 0: an offset delta of 1 in a batch up to 0"),
    (plain(-1), 1, "record 0: an offset delta of -1"),
    (zigzag(-1) + bytes(8), 1, "a length of -1"),
    (zigzag(0) + bytes(8), 1, "a length of 0"),
    (zigzag(9) + bytes(8), 1, "a length of 9 where 8 bytes are left"),
    (record_of(b"\0\0\0" + zigzag(-2) + field(b"v") + b"\0\0"), 1, "a length of -2"),
    (record_of(b"\0\0\0" + zigzag(50) + field(b"v") + b"\0\0"), 1, "a field of 50 bytes where"),
    (record_of(b"\0\0\0" + field(None) + zigzag(2**31 - 1) + b"\0"), 1, "a field of 2147483647 bytes where"),
    (record_of(b"\0\0\0" + field(None) + field(b"v") + zigzag(0) + b"rest"), 1, "its fields at"),
    (record_of(b"\0\0\0" + field(None) + field(b"v") + zigzag(2) + b"\0\0\0"), 1, "2 headers cannot be in 3 bytes"),
    (record_of(b"\0\0\0" + field(None) + field(b"v") + zigzag(2**31 - 1)), 1, "2147483647 headers cannot be in 0 bytes"),
    (record_of(b"\0\0\0" + field(None) + field(b"v") + zigzag(-1)), 1, "-1 headers cannot be"),
    (record_of(b"\0\0\0" + field(None) + field(b"v") + zigzag(1) + field(None) + field(b"v")), 1, "a header without a name"),
    (record_of(b"\0\0\0" + field(None) + field(b"v") + zigzag(1) + field(b"\xff") + field(b"v")), 1, "'utf-8' codec can't decode"),
    (record_of(b"\0" + b"\xff" * 9 + b"\x02" + b"\0" + field(None) * 2 + b"\0"), 1, "a varint longer than 64 bits"),
    (record_of(b"\0" + b"\xff" * 12 + b"\0"), 1, "a varint longer than 64 bits"),
    (record_of(b"\0\0" + b"\xff" * 4 + b"\x10" + field(None) * 2 + b"\0"), 1, "a varint longer than 32 bits"),
    (record_of(b"\0\0" + b"\xff" * 5 + b"\0" + field(None) * 2 + b"\0"), 1, "a varint longer than 32 bits"),
])  # fmt: skip
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_a_record_that_cannot_be_is_told(
    payload: bytes, count: int, said: str, codec: Compression
) -> None:
    """The error says the fault and its place, with a true CRC, compressed or not."""
    batch = only(
        batch_of(
            compress(codec, payload),
            count,
            base_offset=7,
            attributes=int(codec),
            last=max(count - 1, 0),
        )
    )
    with pytest.raises(ProtocolError, match=f"^record batch at offset 7: .*{said}"):
        batch.records()


@pytest.mark.parametrize(
    "value",
    [
        0,
        63,
        64,
        -64,
        -65,
        8191,
        8192,
        -8192,
        -8193,
        2**20,
        -(2**20) - 1,
        2**31 - 1,
        -(2**31),
        2**63 - 1,
        -(2**63),
    ],
)
def test_timestamp_deltas_have_64_bits(value: int) -> None:
    """Each width of a varint, at both ends."""
    (record,) = only(batch_of(plain(0, value), timestamps=(0, 0))).records()
    assert record.timestamp_ms == value


@pytest.mark.parametrize("delta", [0, 63, 64, 8191, 8192, 2**20, 2**27, 2**31 - 1])
def test_offset_deltas_have_32_bits(delta: int) -> None:
    """Each width of a varint."""
    (record,) = only(batch_of(plain(delta), last=2**31 - 1)).records()
    assert record.offset == delta


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_records_decompress_within_a_limit(codec: Compression) -> None:
    """The caller's limit bounds both `check` and `records`."""
    payload = plain(value=b"v" * 5_000)
    batch = only(batch_of(compress(codec, payload), attributes=int(codec)))
    assert batch.check(len(payload)) == batch.records(len(payload))
    for read in (batch.check, batch.records):
        with pytest.raises(ProtocolError):
            read(len(payload) - 1)


def test_hostile_counts_cost_no_memory() -> None:
    """Two thousand million records or headers are refused before anything is made for them."""
    headers = record_of(b"\0\0\0" + field(None) + field(b"v") + zigzag(2**31 - 1) + bytes(1000))
    tracemalloc.start()
    try:
        for raw in (batch_of(plain(), 2**31 - 1), batch_of(headers)):
            with pytest.raises(ProtocolError):
                only(raw).records()
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", Compression)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_changed_bytes_give_records_or_a_protocol_error(
    codec: Compression, data: st.DataObject
) -> None:
    """The reader gives records or raises ProtocolError, for any changed bytes, with and without a lost end."""
    mutant = bytearray(build("aiokafka", codec, INPUTS[:5] + INPUTS[6:9]))
    for _ in range(data.draw(st.integers(1, 5))):
        mutant[data.draw(st.integers(0, len(mutant) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(mutant)), st.integers(0, len(mutant))))
    for allow_partial in (False, True):
        try:
            for batch in read_batches(mutant[:end], allow_partial=allow_partial):
                batch.records(100_000)
                batch.check(100_000)
        except ProtocolError:
            continue


@given(
    payload=st.binary(max_size=120), count=st.integers(-1, 12), codec=st.sampled_from(Compression)
)
@settings(max_examples=300, deadline=None)
def test_random_payloads_give_records_or_a_protocol_error(
    payload: bytes, count: int, codec: Compression
) -> None:
    """Behind a true header and a true CRC, so that the records themselves are what is wrong."""
    try:
        records = only(batch_of(compress(codec, payload), count, attributes=int(codec))).check()
    except ProtocolError:
        return
    assert len(records) == count


@given(
    payload=st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=3)), max_size=4),
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_nearly_true_records_are_read_as_other_clients_read_them(
    payload: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    """Where ours takes a changed payload, aiokafka and kafka-python take the same records of it."""
    records = [bytearray(plain(i, delta, value)) for i, (delta, value) in enumerate(payload)]
    if records:
        record = data.draw(st.sampled_from(records))
        at = data.draw(
            st.integers(2, len(record) - 1)
        )  # the attributes stay: both read that byte as a varint, Kafka does not
        record[at] = data.draw(st.integers(0, 255))
    raw = batch_of(b"".join(records), len(records), last=5)
    try:
        ours = only(raw).records()
    except ProtocolError:
        return
    for reader in (aiokafka_memory.MemoryRecords, kafka_memory.MemoryRecords):
        theirs = reader(raw).next_batch()
        assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == [
            tuple(record) for record in ours
        ]


def test_a_large_batch_is_read_in_a_breath() -> None:
    """A guard against anything that grows faster than the batch: 60,000 records in CPU seconds, where 0.3 are usual."""
    raw = batch_of(b"".join(plain(i, i) for i in range(60_000)), 60_000)
    began = time.process_time()
    assert len(only(raw).check()) == 60_000
    assert time.process_time() - began < 5
