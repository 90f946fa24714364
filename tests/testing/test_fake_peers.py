"""confluent-kafka, aiokafka and kafka-python as judges of the fake: they write to it and read from it, and find what they wrote."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition
from peers import HEADERS, READERS, WRITERS, Sent, read, reading, until

from aioproducer.testing import FakeCluster
from aioproducer.testing.groups import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.usefixtures("forgotten_sockets"),
    # kafka-python forgets to close sockets: "Exception ignored in: <socket...", and from Python 3.14 on "while finalizing socket <socket..."
    pytest.mark.filterwarnings(
        "ignore:Exception ignored (in.|while finalizing socket) <socket.socket:pytest.PytestUnraisableExceptionWarning"
    ),
]
RECORDS = [
    Sent(
        n % 3,
        b"key-%d" % (n % 7) if n % 5 else None,
        b"value %d" % n if n % 11 or not n % 5 else None,
        1_700_000_000_000 + n,
    )
    for n in range(500)
]


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Every record is decoded when it is appended."""
    async with FakeCluster(brokers=3, verify_records=True) as cluster:
        cluster.create_topic("t", partitions=3)
        yield cluster
        assert cluster.violations == []


def by_partition(found: list[Sent]) -> dict[int, list[Sent]]:
    """In the order in which they were read."""
    ordered = sorted(found, key=lambda one: one.partition)
    return {
        partition: list(ones) for partition, ones in groupby(ordered, key=lambda one: one.partition)
    }


# --- what one writes, all read


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("writer", WRITERS)
async def test_peers_read_what_peers_wrote(
    cluster: FakeCluster, writer: str, compression: str | None
) -> None:
    """Keys, values, times, offsets, in order; in every codec; each reader as the one member of a group of its own."""
    offsets = await WRITERS[writer](cluster, "t", RECORDS, compression)
    assert offsets == [n // 3 for n in range(len(RECORDS))]
    for partition in range(3):
        stored = [
            Sent(partition, record.key, record.value, record.timestamp_ms)
            for record in cluster.records("t", partition)
        ]
        assert stored == RECORDS[partition::3]
    for reader in READERS:
        async with reading(reader, cluster, group=reader) as consumer:
            assert by_partition(await read(consumer, len(RECORDS))) == {
                partition: RECORDS[partition::3] for partition in range(3)
            }
    if writer == "confluent":
        assert cluster.records("t", 0)[0].headers == tuple(HEADERS)


async def test_librdkafka_writes_batches_of_magic_2(cluster: FakeCluster) -> None:
    """It falls back to magic 0 where Fetch is not advertised."""
    await WRITERS["confluent"](cluster, "t", RECORDS, None)
    assert {
        one.magic for partition in range(3) for one in cluster.log("t", partition).batches()
    } == {2}


# --- groups


@pytest.mark.parametrize("peer", READERS)
async def test_a_group_goes_on_where_it_committed(cluster: FakeCluster, peer: str) -> None:
    """The group's next member does not read committed records again. A closed member has left the group."""
    await WRITERS["aiokafka"](cluster, "t", RECORDS[:300], None)
    async with reading(peer, cluster) as consumer:
        await read(consumer, 300)
        await consumer.commit()
    assert cluster.committed("readers") == {("t", partition): 100 for partition in range(3)}
    assert cluster.groups["readers"].state is State.EMPTY
    await WRITERS["aiokafka"](cluster, "t", RECORDS[300:], None)
    async with reading(peer, cluster) as consumer:
        assert by_partition(await read(consumer, 200)) == {
            partition: RECORDS[300:][partition::3] for partition in range(3)
        }


@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "3.5"])
@pytest.mark.parametrize("peer", READERS)
async def test_groups_of_older_releases(peer: str, release: str) -> None:
    """Each speaks other versions of everything; what a member commits is there."""
    async with FakeCluster(brokers=2, version=release) as cluster:
        cluster.create_topic("t", partitions=3)
        await WRITERS["aiokafka"](cluster, "t", RECORDS[:30], None)
        async with reading(peer, cluster) as consumer:
            assert by_partition(await read(consumer, 30)) == {
                partition: RECORDS[:30][partition::3] for partition in range(3)
            }
            await consumer.commit()
        assert cluster.committed("readers") == {("t", partition): 10 for partition in range(3)}
        assert cluster.violations == []


@pytest.mark.parametrize("peer", READERS)
async def test_two_members_share_the_partitions(cluster: FakeCluster, peer: str) -> None:
    """The second takes some of the first one's; when it leaves, the first has all of them again, and misses nothing."""
    async with reading(peer, cluster) as first:
        found = await until(lambda: first.partitions() == {0, 1, 2}, first)
        async with reading(peer, cluster) as second:
            found += await until(
                lambda: _is_shared(first.partitions(), second.partitions()), first, second
            )
            await WRITERS["aiokafka"](cluster, "t", RECORDS[:300], None)
            while len(found) < 300:
                for records in await asyncio.gather(first.poll(), second.poll()):
                    found += records
            for reader in (first, second):
                await reader.commit()
        found += await until(lambda: first.partitions() == {0, 1, 2}, first)
        await WRITERS["aiokafka"](cluster, "t", RECORDS[300:], None)
        found += await read(first, 200)
    assert by_partition(found) == {partition: RECORDS[partition::3] for partition in range(3)}


def _is_shared(one: set[int], other: set[int]) -> bool:
    return bool(one) and bool(other) and not one & other and one | other == {0, 1, 2}


@pytest.mark.parametrize("peer", READERS)
async def test_members_rejoin_after_the_coordinator_is_gone(
    cluster: FakeCluster, peer: str
) -> None:
    """The next broker coordinates; the group and its partitions are the same."""
    async with reading(peer, cluster) as consumer:
        await until(lambda: consumer.partitions() == {0, 1, 2}, consumer)
        for partition in range(3):
            cluster.move_leader("t", partition, to=3)
        await cluster.brokers[1].stop()
        await WRITERS["aiokafka"](cluster, "t", RECORDS[:30], None)
        assert len(await read(consumer, 30)) == 30
        await consumer.commit()
        assert cluster.committed("readers") == {("t", partition): 10 for partition in range(3)}


# --- questions about offsets


async def test_times_find_offsets_for_peers(cluster: FakeCluster) -> None:
    """`offsets_for_times` of both consumers."""
    await WRITERS["aiokafka"](cluster, "t", RECORDS, None)
    wanted = RECORDS[250].timestamp_ms
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        found = await consumer.offsets_for_times({TopicPartition("t", 1): wanted})
        assert found[TopicPartition("t", 1)].offset == 83
        assert await consumer.end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 167}

    def ask() -> tuple[int, tuple[int, int]]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"}
        )
        try:
            (there,) = consumer.offsets_for_times(
                [confluent_kafka.TopicPartition("t", 1, wanted)], 5
            )
            return there.offset, consumer.get_watermark_offsets(
                confluent_kafka.TopicPartition("t", 0), 5
            )
        finally:
            consumer.close()

    assert await asyncio.to_thread(ask) == (83, (0, 167))
