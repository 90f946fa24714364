"""Our message sets, kept verbatim by the fake, as aiokafka's and librdkafka's consumers read them."""

from __future__ import annotations

import asyncio
import gc

import pytest
from peers import Sent, read, reading

from aioproducer import Compression, Producer
from aioproducer.testing import FakeCluster

pytestmark = pytest.mark.asyncio

NOW = 1_700_000_000_000
RECORDS = [
    Sent(0, b"key", b"value", NOW),
    Sent(0, b"tombstone", None, NOW - 5),
    Sent(0, None, b"no key", NOW + 1),
    Sent(0, b"", b"", NOW),
    Sent(0, b"k" * 200, b"v" * 70_000, NOW),
    *(Sent(0, b"%d" % (number % 5), b"value %d" % number, NOW + number) for number in range(200)),
]
CODECS = [codec.name.lower() for codec in Compression if codec is not Compression.ZSTD]
# aiokafka refuses LZ4 in magic 0
FORMATS = [
    (magic, codec, reader)
    for magic in (0, 1)
    for codec in CODECS
    for reader in ("aiokafka", "confluent")
    if (magic, codec, reader) != (0, "lz4", "aiokafka")
]


@pytest.mark.parametrize(("magic", "codec", "reader"), FORMATS)
async def test_consumers_read_our_message_sets(magic: int, codec: str, reader: str) -> None:
    """Keys, values, order and offsets; timestamps with magic 1."""
    async with FakeCluster(version="3.9") as cluster:
        cluster.create_topic("t")
        async with Producer(
            **cluster.client_options, compression_type=codec, message_format_max=magic, linger_ms=5
        ) as producer:
            told = await asyncio.gather(
                *[
                    await producer.send("t", sent.value, sent.key, timestamp_ms=sent.timestamp_ms)
                    for sent in RECORDS
                ]
            )
        assert [one.offset for one in told] == list(range(len(RECORDS)))
        kept = cluster.log("t", 0).messages()
        assert {(one.magic, one.compression.name.lower()) for one in kept} == {(magic, codec)}
        async with reading(reader, cluster, group=reader) as consumer:
            found = await read(consumer, len(RECORDS))
        assert found == [
            sent if magic else sent._replace(timestamp_ms=found[0].timestamp_ms) for sent in RECORDS
        ]
        assert magic or found[0].timestamp_ms in {
            -1,
            None,
            0,
        }  # 0: librdkafka, of what a wrapper holds
        assert cluster.violations == []
    gc.collect()
