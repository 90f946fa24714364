"""The two sides of the contract tests, a real Kafka and the fake cluster. A test takes the fixture `side`."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition
from settled import settled

from aioproducer import Producer, TransactionResolver
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient
from aioproducer.testing.record_batches import read_batches
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.testing.kafka_server import ServerThread

_numbers = itertools.count()


class Side(ABC):
    """Holds one of the two, with its topics."""

    partitions = 3

    @abstractmethod
    async def topic(self) -> str:
        """Create a topic with three partitions and return its name."""

    @abstractmethod
    def producer(self, **options: Any) -> Any:
        """Return a producer for this side, not started."""

    @abstractmethod
    def resolver(self) -> TransactionResolver:
        """Return a resolver for this side, not started."""

    @abstractmethod
    async def log(
        self, topic: str
    ) -> dict[int, list[tuple[bytes | None, bytes | None, int, tuple[Any, ...]]]]:
        """Return key, value, timestamp and headers of each record, by partition."""

    @abstractmethod
    async def visible(self, topic: str, *, is_open: bool = False) -> dict[int, list[bytes | None]]:
        """Return the values visible to a reader of committed records, by partition. Without `is_open`, wait until
        no transaction is open.
        """

    @abstractmethod
    async def committed(self, producer: Any, group: str, topic: str) -> dict[int, int]:
        """Return a group's committed offsets of a topic's partitions. `producer` is the one that committed them."""


class RealSide(Side):
    def __init__(self, server: ServerThread) -> None:
        self.server = server

    async def topic(self) -> str:
        name = f"contract-{next(_numbers)}"
        self.server.create_topic(name, self.partitions)
        return name

    def producer(self, **options: Any) -> Any:
        return Producer(bootstrap_servers=self.server.bootstrap_servers, **options)

    def resolver(self) -> TransactionResolver:
        return TransactionResolver(bootstrap_servers=self.server.bootstrap_servers)

    async def log(self, topic: str) -> dict[int, list[Any]]:
        async with WireClient(self.server.bootstrap_servers) as client:
            await client.metadata([topic])
            return {
                index: await self._read(client, topic, index) for index in range(self.partitions)
            }

    async def visible(self, topic: str, *, is_open: bool = False) -> dict[int, list[bytes | None]]:
        partitions = [TopicPartition(topic, index) for index in range(self.partitions)]
        if not is_open:
            await settled(self.server.bootstrap_servers, topic, range(self.partitions))
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.server.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            found: dict[int, list[bytes | None]] = {index: [] for index in range(self.partitions)}
            for partition in partitions:
                while await consumer.position(partition) < ends[partition]:
                    for at, records in (await consumer.getmany(timeout_ms=100)).items():
                        found[at.partition] += [record.value for record in records]
            return found
        finally:
            await consumer.stop()

    async def committed(self, producer: Any, group: str, topic: str) -> dict[int, int]:
        """Read the offsets by librdkafka, which waits for the pending offsets of a transaction."""
        import confluent_kafka  # some Python versions of the tests do not have it

        options = {
            "bootstrap.servers": self.server.bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed",
        }
        consumer = confluent_kafka.Consumer(options)
        try:
            asked = [
                confluent_kafka.TopicPartition(topic, index) for index in range(self.partitions)
            ]
            found = await asyncio.to_thread(consumer.committed, asked, 30)
            return {one.partition: one.offset for one in found if one.offset >= 0}
        finally:
            consumer.close()

    async def _read(self, client: WireClient, topic: str, index: int) -> list[Any]:
        found: list[Any] = []
        while True:
            wanted = message(
                "Fetch.request.topics.partitions",
                partition=index,
                fetch_offset=len(found),
                partition_max_bytes=1 << 20,
            )
            asked = message("Fetch.request.topics", topic=topic, partitions=[wanted])
            answer = await client.ask(
                ApiKey.FETCH, version=11, replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[asked]
            )
            partition = answer.responses[0].partitions[0]
            assert partition.error_code == 0
            if len(found) == partition.high_watermark:
                return found
            for batch in read_batches(partition.records, allow_partial=True):
                found += [
                    (one.key, one.value, one.timestamp_ms, one.headers) for one in batch.records()
                ]


class FakeSide(Side):
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    async def topic(self) -> str:
        name = f"contract-{next(_numbers)}"
        self.cluster.create_topic(name, self.partitions)
        return name

    def producer(self, **options: Any) -> Any:
        return Producer(**self.cluster.client_options, **options)

    def resolver(self) -> TransactionResolver:
        return TransactionResolver(**self.cluster.client_options)

    async def log(self, topic: str) -> dict[int, list[Any]]:
        return {
            index: [
                (one.key, one.value, one.timestamp_ms, one.headers)
                for one in self.cluster.records(topic, index)
            ]
            for index in range(self.partitions)
        }

    async def visible(self, topic: str, *, is_open: bool = False) -> dict[int, list[bytes | None]]:
        return {
            index: self.cluster.values(topic, index, isolation="read_committed")
            for index in range(self.partitions)
        }

    async def committed(self, producer: Any, group: str, topic: str) -> dict[int, int]:
        return {
            index: offset
            for (name, index), offset in self.cluster.committed(group).items()
            if name == topic
        }


@pytest_asyncio.fixture(params=[pytest.param("real", marks=pytest.mark.integration), "fake"])
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    """Return each of the two, one after another."""
    if request.param == "real":
        yield RealSide(request.getfixturevalue("kafka_server"))
    else:
        async with FakeCluster() as cluster:
            yield FakeSide(cluster)
            assert cluster.violations == []
