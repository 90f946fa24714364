"""The encoder's parts, put together as its docstring says, are what Java, aiokafka, kafka-python and our own reader read."""

from __future__ import annotations

import struct
from collections import UserDict
from typing import TYPE_CHECKING, Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.engine.delivery.records_builder import FIELD, VARINT
from aioproducer.model import Compression
from aioproducer.records.compression import compress
from aioproducer.records.reader import Record
from aioproducer.records.record_batch import OVERHEAD, PARTS, encode_headers, header, size_limit
from aioproducer.records.varints import NULL, TABLE, field_size, unvarint, varint
from aioproducer.testing.record_batches import RecordBatch, read_batches

if TYPE_CHECKING:
    from collections.abc import Sequence


NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value", ()),
    Record(1, NOW - 5, None, b"no key", ()),
    Record(2, NOW + 3_600_000, b"a tombstone", None, ()),
    Record(3, NOW - 40_000_000_000, b"", b"", ()),
    Record(4, NOW, None, None, ()),
    Record(5, NOW + 1, b"k" * TABLE, b"v" * (TABLE * 3), ()),
    Record(6, NOW, b"h", b"v", (("name", b"value"), ("none", None), ("empty", b""), ("", b""))),
    Record(7, NOW, b"h", b"v", (("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", None))),
    Record(8, NOW, b"h", b"v", (("\N{SNOWMAN}" * 50, b"x" * 9_000),) * 70),
    *(Record(9 + i, NOW + i, b"%d" % i, b"v" * i, ()) for i in range(200)),
]


def parts_of(record: Record, base_timestamp: int) -> list[bytes]:
    """A record's eight parts, in the documented order; lengths within the table are taken from there."""
    _, timestamp, key, value, headers = record
    moment = b"\0" + varint(timestamp - base_timestamp)
    offset_delta = varint(record.offset)
    key_size, value_size = (-1 if one is None else len(one) for one in (key, value))
    encoded = encode_headers(headers)
    size = (
        len(moment)
        + len(offset_delta)
        + field_size(key_size)
        + field_size(value_size)
        + len(encoded)
    )
    lengths = [
        VARINT[one] if 0 <= one < TABLE else varint(one) for one in (size, key_size, value_size)
    ]
    return [
        lengths[0],
        moment,
        offset_delta,
        lengths[1],
        key or b"",
        lengths[2],
        value or b"",
        encoded,
    ]


def written(records: Sequence[Record], codec: Compression = Compression.NONE, **more: Any) -> bytes:
    """A whole batch of them."""
    base = records[0].timestamp_ms
    parts = [part for record in records for part in parts_of(record, base)]
    assert len(parts) == PARTS * len(records)
    payload = compress(codec, b"".join(parts))
    return (
        header(
            payload,
            len(records),
            int(codec),
            base,
            max(record.timestamp_ms for record in records),
            **more,
        )
        + payload
    )


def only(raw: bytes) -> RecordBatch:
    """The one batch, by our reader."""
    (batch,) = read_batches(raw)
    return batch


RECORD = st.builds(
    Record,
    st.just(0),
    st.integers(0, 2**62),
    st.none() | st.binary(max_size=150),
    st.none() | st.binary(max_size=150),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(
        tuple
    ),
)


@given(records=st.lists(RECORD, min_size=1, max_size=20), codec=st.sampled_from(Compression))
@settings(max_examples=100, deadline=None)
def test_any_records_come_back(records: list[Record], codec: Compression) -> None:
    """Any records come back."""
    records = [record._replace(offset=i) for i, record in enumerate(records)]
    assert only(written(records, codec)).check() == records


def test_the_header_has_its_fields_where_kafka_looks_for_them() -> None:
    """61 bytes; the CRC covers all that follows it, payload included, and nothing before it."""
    payload = b"".join(parts_of(RECORDS[0], NOW))
    head = header(payload, 1, 0b10000, NOW, NOW + 7, (99, 4), 1000)
    assert len(head) == OVERHEAD == 61
    fields = struct.unpack(">qiibIhiqqqhii", head)
    crc = crc32c(head[21:] + payload)
    assert fields == (0, len(payload) + 49, -1, 2, crc, 0b10000, 0, NOW, NOW + 7, 99, 4, 1000, 1)


def test_a_batch_without_idempotence_says_so() -> None:
    """Producer id, epoch and sequence are -1."""
    batch = only(written(RECORDS[:3]))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 3_600_000)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_payload_may_be_any_buffer(kind: Any) -> None:
    """It is read, never kept."""
    payload = b"".join(parts_of(RECORDS[0], NOW))
    assert header(kind(payload), 1, 0, NOW, NOW) == header(payload, 1, 0, NOW, NOW)


@pytest.mark.parametrize(("value", "encoded"), [
    (0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f"), (-8192, "ff7f"),
    (8192, "808001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f"), (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01"),
])  # fmt: skip
def test_varints_are_those_of_protocol_buffers(value: int, encoded: str) -> None:
    """Writing and reading a varint agree with the values of Kafka's ByteUtilsTest."""
    assert varint(value).hex() == encoded
    assert unvarint(bytes.fromhex(encoded)) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_come_back(value: int) -> None:
    """All of 64 bits."""
    assert unvarint(varint(value)) == value
    assert len(varint(value)) <= 10


def test_the_tables_agree_with_the_functions() -> None:
    """Each entry, and the last as -1 for null: its length is the byte 01, its field one byte."""
    assert len(VARINT) == len(FIELD) == TABLE
    assert varint(-1) == NULL
    assert field_size(-1) == len(NULL)
    for size in range(TABLE):
        assert VARINT[size] == varint(size)
        assert FIELD[size] == field_size(size) == len(varint(size)) + size


@pytest.mark.parametrize("size", [TABLE - 1, TABLE, TABLE + 1, 2**20 - 1, 2**20, 2**27])
def test_fields_above_the_table_have_their_true_size(size: int) -> None:
    """Where the table ends the function goes on."""
    assert field_size(size) == len(varint(size)) + size


@given(record=RECORD)
@settings(max_examples=100, deadline=None)
def test_the_size_limit_is_never_below_the_size(record: Record) -> None:
    """The limit that `max_request_size` is compared with is an upper bound near the size, as in Java."""
    limit = size_limit(record.key, record.value, encode_headers(record.headers))
    assert limit - 21 <= len(written([record])) <= limit


def test_the_size_limit_holds_at_the_worst() -> None:
    """Lengths that take five bytes: still no larger. A batch's first record has no time delta."""
    size = sum(map(len, parts_of(Record(0, NOW, b"", b"v" * 2**27, ()), NOW)))
    assert OVERHEAD + size <= size_limit(b"", b"v" * 2**27, b"\0")


@pytest.mark.parametrize(
    "headers",
    [
        (),
        [],
        (("a", b"1"),),
        [("a", None), ["a", b"2"]],
        (("b", bytearray(b"3")), ("m", memoryview(b"4"))),
    ],
)
def test_headers_are_pairs_in_any_sequence(headers: Any) -> None:
    """Lists, tuples, any bytes-like value; they read back in order."""
    payload = b"".join(
        [*parts_of(Record(0, NOW, b"k", b"v", ()), NOW)[:-1], encode_headers(headers)]
    )
    (length,) = struct.unpack_from("B", payload)
    payload = varint(unvarint(bytes([length])) + len(encode_headers(headers)) - 1) + payload[1:]
    (record,) = only(header(payload, 1, 0, NOW, NOW) + payload).check()
    assert record.headers == tuple(
        (name, None if value is None else bytes(value)) for name, value in headers
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"a": "ż", "b": b"2", "c": None},
        UserDict({"a": "ż", "b": b"2", "c": None}),
        (("a", "ż"), ("b", b"2"), ("c", None)),
    ],
)
def test_headers_as_mappings_and_text(headers: Any) -> None:
    """They are written as pairs of bytes are, in the order of the mapping."""
    assert encode_headers(headers) == encode_headers(
        [("a", "ż".encode()), ("b", b"2"), ("c", None)]
    )


@pytest.mark.parametrize(
    ("number", "wire"),
    [
        (-1, -1),
        (0, 0),
        (2**31 - 1, 2**31 - 1),
        (2**31, 0),
        (2**31 + 4, 4),
        (2**32 - 1, 2**31 - 1),
        (2**32, 0),
    ],
)
def test_sequence_numbers_wrap_on_the_wire_only(number: int, wire: int) -> None:
    """[SequenceNumberOverflow]"""
    made = header(b"", 1, 0, 0, 0, (7, 1), number)
    assert int.from_bytes(made[53:57], "big", signed=True) == wire
