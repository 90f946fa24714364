"""Tests which format a broker takes, and rewrites of records. A rewrite loses only what a format cannot hold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import ProducerConfig
from aioproducer.engine.sender.parcel import Parcel
from aioproducer.engine.sender.record_formats import (
    check_brokers,
    level_of,
    magic_of,
    pack,
    produce_version,
)
from aioproducer.errors import BrokerError, ConfigError
from aioproducer.model import Compression
from aioproducer.net.connection import Connection
from aioproducer.records.compression import compress
from aioproducer.records.message_set import read_messages
from aioproducer.records.reader import Record
from aioproducer.records.record_batch import encode_headers, encode_record, header
from aioproducer.testing.record_batches import read_batches
from aioproducer.wire.api import ApiKey

NOW = 1_700_000_000_000
CODECS = [codec for codec in Compression if codec is not Compression.ZSTD]
RECORDS = [
    Record(0, NOW, b"key", b"value", ()),
    Record(1, NOW - 5, None, b"no key", ()),
    Record(2, NOW + 9, b"tombstone", None, ()),
    Record(3, NOW, b"", b"", ()),
    Record(4, NOW, b"k" * 300, b"v" * 70_000, ()),
]


def parcel_of(records: list[Record], base: int | None = None) -> Parcel:
    """As a batch holds them when it was closed; its first time may be another than its first record's."""
    base = records[0].timestamp_ms if base is None else base
    area = b"".join(
        encode_record(
            index,
            record.timestamp_ms - base,
            record.key,
            record.value,
            encode_headers(record.headers),
        )
        for index, record in enumerate(records)
    )
    return Parcel(
        area,
        2,
        False,
        len(area),
        len(records),
        base,
        max(record.timestamp_ms for record in records),
    )


def packed(parcel: Parcel, magic: int, codec: Compression) -> Parcel:
    """As the batch is after encoding."""
    return parcel._replace(payload=pack(parcel, magic, codec, None), magic=magic, is_packed=True)


def read(parcel: Parcel, codec: Compression) -> list[Record]:
    """As a broker does."""
    if parcel.magic < 2:
        return [record for entry in read_messages(parcel.payload) for record in entry.check()]
    head = header(
        parcel.payload, parcel.record_count, codec, parcel.base_timestamp, parcel.max_timestamp
    )
    (batch,) = read_batches(head + parcel.payload)
    return batch.check()


def timeless(records: list[Record], timestamp_ms: int) -> list[Record]:
    return [record._replace(timestamp_ms=timestamp_ms) for record in records]


# from one format into another


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("first", "second"), [(2, 1), (1, 2), (2, 0), (0, 2), (1, 0), (0, 1), (2, 2)]
)
def test_an_encoded_batch_is_written_once_more(first: int, second: int, codec: Compression) -> None:
    """The Sender encodes a batch again for a leader that is older or newer.

    Records that went through magic 0 get the first time of their batch.
    """
    again = packed(packed(parcel_of(RECORDS), first, codec), second, codec)
    times = -1 if second == 0 or (first == 0 and second == 1) else NOW if first == 0 else None
    assert read(again, codec) == (RECORDS if times is None else timeless(RECORDS, times))


TEXTS = st.none() | st.binary(max_size=60)
ROWS = st.lists(st.tuples(st.integers(0, 2**60), TEXTS, TEXTS), min_size=1, max_size=12)


@given(
    rows=ROWS,
    base=st.integers(0, 2**60),
    codec=st.sampled_from(CODECS),
    magics=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=4),
)
@settings(max_examples=80, deadline=None)
def test_any_records_survive_any_way_through_magic_1_and_2(
    rows: list[Any], base: int, codec: Compression, magics: list[int]
) -> None:
    """The records stay equal through all rewrites, for any contents and any first time of the batch."""
    records = [Record(index, *row, ()) for index, row in enumerate(rows)]
    parcel = parcel_of(records, base)
    for magic in magics:
        parcel = packed(parcel, magic, codec)
    assert read(parcel, codec) == records


# levels


@pytest.mark.parametrize(
    ("magic", "codec"),
    [
        (1, Compression.GZIP),
        (1, Compression.LZ4),
        (2, Compression.GZIP),
        (2, Compression.LZ4),
        (2, Compression.ZSTD),
    ],
)
def test_the_level_reaches_the_codec(magic: int, codec: Compression) -> None:
    """In both kinds of format: lz4's 9 is its fast one, so 8 is smaller."""
    value = b"".join(b"%d," % (number * number % 9973) for number in range(8_000))
    parcel = parcel_of([Record(0, NOW, None, value, ())])
    weak, strong = {
        Compression.GZIP: (1, 9),
        Compression.LZ4: (9, 8),
        Compression.ZSTD: (-1_000, 3),
    }[codec]
    assert len(pack(parcel, magic, codec, strong)) < len(pack(parcel, magic, codec, weak))
    assert pack(parcel, 2, codec, strong) == compress(codec, parcel.payload, strong)


@pytest.mark.parametrize(("options", "level"), [
    ({}, None),
    ({"compression_type": "snappy", "compression_gzip_level": 5}, None),
    ({"compression_type": "gzip"}, -1),
    ({"compression_type": "gzip", "compression_gzip_level": 5, "compression_lz4_level": 3}, 5),
    ({"compression_type": "lz4"}, 9),
    ({"compression_type": "lz4", "compression_lz4_level": 17}, 17),
    ({"compression_type": "zstd"}, 3),
    ({"compression_type": "zstd", "compression_zstd_level": -131_072}, -131_072),
])  # fmt: skip
def test_the_level_is_that_of_the_codec_in_use(options: dict[str, Any], level: int | None) -> None:
    """Java's defaults; the options of other codecs change nothing."""
    assert level_of(ProducerConfig(**options)) == level


# brokers


def lane(highest: int | None, lowest: int = 0) -> Any:
    """Return a connection to a broker with Produce up to version `highest`. None: the broker has no Produce."""

    async def made() -> Connection:
        return Connection("broker:9092", "test", print, print, max_in_flight=5)

    found = asyncio.run(made())
    found.learn_versions({} if highest is None else {ApiKey.PRODUCE: (lowest, highest)})
    return found


@pytest.mark.parametrize("highest", [12, 13])
def test_kafka_4_takes_no_message_sets_whatever_it_says(highest: int) -> None:
    """At the start, and, for a broker that comes later, for its batches."""
    with pytest.raises(
        ConfigError, match=r"broker:9092 is Kafka 4\.0 or newer.*Leave message_format_max at 2"
    ):
        check_brokers([lane(3), lane(highest)], 1)
    with pytest.raises(BrokerError, match="takes no records of format 0"):
        produce_version(lane(highest), magic_of(lane(highest), 0))
    check_brokers([lane(highest)], 2)
    check_brokers([lane(11), lane(2)], 0)


def test_a_broker_without_produce() -> None:
    """It is told where the batch would go, as before."""
    assert magic_of(lane(None), 2) == 2
    with pytest.raises(BrokerError, match="offers no Produce"):
        produce_version(lane(None), 0)
