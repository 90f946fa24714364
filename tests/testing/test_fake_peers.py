"""aiokafka and confluent-kafka as judges of the fake: they write to it and read from it, and find what they wrote."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

import pytest_asyncio

pytestmark = pytest.mark.asyncio
RECORDS = [
    (b"key-%d" % (n % 7) if n % 5 else None, b"value %d" % n if n % 11 or not n % 5 else None, 1_700_000_000_000 + n) for n in range(500)
]
HEADERS = [("trace", b"1"), ("trace", None), ("n", b"")]


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Every record is decoded when it is appended."""
    async with FakeCluster(brokers=3, verify_records=True) as cluster:
        cluster.create_topic("t", partitions=3)
        yield cluster


async def written(cluster: FakeCluster, compression: str | None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, compression_type=compression, linger_ms=1) as producer:
        sent = [await producer.send("t", value, key, n % 3, time) for n, (key, value, time) in enumerate(RECORDS)]
        for n, delivered in enumerate(await asyncio.gather(*sent)):
            assert (delivered.partition, delivered.offset) == (n % 3, n // 3)


def confluent_written(cluster: FakeCluster, compression: str | None) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": compression or "none", "linger.ms": 1}
    )
    for n, (key, value, time) in enumerate(RECORDS):
        producer.produce("t", value, key, n % 3, timestamp=time, headers=HEADERS)
    assert producer.flush(10) == 0


async def aiokafka_read(cluster: FakeCluster) -> list[tuple[bytes | None, bytes | None, int]]:
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition("t", partition) for partition in range(3)])
        found = []
        async with asyncio.timeout(10):
            while len(found) < len(RECORDS):
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [(record.key, record.value, record.timestamp) for record in records]
        return found
    finally:
        await consumer.stop()


def confluent_read(cluster: FakeCluster) -> list[tuple[bytes | None, bytes | None, int]]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("t", partition, confluent_kafka.OFFSET_BEGINNING) for partition in range(3)])
    found = []
    try:
        while len(found) < len(RECORDS):
            records = consumer.consume(500, 5)
            assert records, "the consumer found no more"
            assert [record.error() for record in records if record.error()] == []
            found += [(record.key(), record.value(), record.timestamp()[1]) for record in records]
    finally:
        consumer.close()
    return found


def in_order(found: list[tuple[bytes | None, bytes | None, int]]) -> list[tuple[bytes | None, bytes | None, int]]:
    return sorted(found, key=lambda one: one[2])


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("writer", ["aiokafka", "confluent"])
async def test_peers_read_what_peers_wrote(cluster: FakeCluster, writer: str, compression: str | None) -> None:
    """Keys, values, times, offsets; in every codec."""
    if writer == "aiokafka":
        await written(cluster, compression)
    else:
        await asyncio.to_thread(confluent_written, cluster, compression)
    for partition in range(3):
        stored = [(record.key, record.value, record.timestamp_ms) for record in cluster.records("t", partition)]
        assert stored == RECORDS[partition::3]
    assert in_order(await aiokafka_read(cluster)) == RECORDS
    assert in_order(await asyncio.to_thread(confluent_read, cluster)) == RECORDS
    if writer == "confluent":
        assert cluster.records("t", 0)[0].headers == tuple(HEADERS)
    assert cluster.violations == []


async def test_librdkafka_writes_batches_of_magic_2(cluster: FakeCluster) -> None:
    """It falls back to magic 0 where Fetch is not advertised."""
    await asyncio.to_thread(confluent_written, cluster, None)
    assert {one.magic for partition in range(3) for one in cluster.log("t", partition).batches()} == {2}


async def test_times_find_offsets_for_peers(cluster: FakeCluster) -> None:
    """`offsets_for_times` of both consumers."""
    await written(cluster, None)
    wanted = RECORDS[250][2]
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        found = await consumer.offsets_for_times({TopicPartition("t", 1): wanted})
        assert found[TopicPartition("t", 1)].offset == 83
        assert await consumer.end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 167}

    def ask() -> tuple[int, tuple[int, int]]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
        try:
            (there,) = consumer.offsets_for_times([confluent_kafka.TopicPartition("t", 1, wanted)], 5)
            return there.offset, consumer.get_watermark_offsets(confluent_kafka.TopicPartition("t", 0), 5)
        finally:
            consumer.close()

    assert await asyncio.to_thread(ask) == (83, (0, 167))
