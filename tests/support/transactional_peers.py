"""confluent-kafka, aiokafka and kafka-python as transactional producers, behind one face: so many transactions, some of them aborted."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its modules use what Python 3.11 deprecates
    import kafka

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.testing import FakeCluster

_SECONDS = 20


async def aiokafka_transacts(
    cluster: FakeCluster,
    topic: str,
    transactions: Sequence[tuple[Sequence[bytes], bool]],
    name: str,
) -> None:
    """Each transaction is its values, dealt to partitions 0 and 1, and whether it is committed; with an offset of group "copied"."""
    servers = cluster.bootstrap_servers
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=name
    ) as producer:
        for number, (values, commit) in enumerate(transactions):
            await producer.begin_transaction()
            for place, value in enumerate(values):
                await producer.send(topic, value, partition=place % 2)
            await producer.flush()  # it looks for the group's coordinator on a connection of the records: lost meanwhile, that ends its sender
            await producer.send_offsets_to_transaction(
                {aiokafka.TopicPartition(topic, 2): number}, "copied"
            )
            await (producer.commit_transaction() if commit else producer.abort_transaction())


async def confluent_transacts(
    cluster: FakeCluster,
    topic: str,
    transactions: Sequence[tuple[Sequence[bytes], bool]],
    name: str,
) -> None:
    """Write the transactions with confluent-kafka: values to partitions 0 and 1, each with an offset of group "copied"."""

    def transact() -> None:
        servers = cluster.bootstrap_servers
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": name,
                "transaction.timeout.ms": 10_000,
            }
        )
        group = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "copied"})
        producer.init_transactions(_SECONDS)
        for number, (values, commit) in enumerate(transactions):
            producer.begin_transaction()
            for place, value in enumerate(values):
                producer.produce(topic, value, partition=place % 2)
            offset = confluent_kafka.TopicPartition(topic, 2, number)
            producer.send_offsets_to_transaction(
                [offset], group.consumer_group_metadata(), _SECONDS
            )
            producer.flush(_SECONDS)  # an abort drops what has not been sent
            (producer.commit_transaction if commit else producer.abort_transaction)(_SECONDS)
        group.close()

    await asyncio.to_thread(transact)


async def kafka_python_transacts(
    cluster: FakeCluster,
    topic: str,
    transactions: Sequence[tuple[Sequence[bytes], bool]],
    name: str,
) -> None:
    """Write the transactions with kafka-python: values to partitions 0 and 1, each with an offset of group "copied"."""

    def transact() -> None:
        options: Any = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": name}
        producer = kafka.KafkaProducer(**options)
        try:
            producer.init_transactions()
            for number, (values, commit) in enumerate(transactions):
                producer.begin_transaction()
                for place, value in enumerate(values):
                    producer.send(topic, value, partition=place % 2)
                offset = kafka.structs.OffsetAndMetadata(number, "", -1)
                producer.send_offsets_to_transaction(
                    {kafka.TopicPartition(topic, 2): offset}, "copied"
                )
                producer.flush(_SECONDS)
                if commit:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        finally:
            producer.close()

    await asyncio.to_thread(transact)


TRANSACTORS = {
    "aiokafka": aiokafka_transacts,
    "confluent": confluent_transacts,
    "kafka_python": kafka_python_transacts,
}


# --- idempotent, without transactions


async def aiokafka_writes(cluster: FakeCluster, topic: str, values: Sequence[bytes]) -> None:
    """Each value once, in order, to partition 0."""
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True
    ) as producer:
        await asyncio.gather(*[await producer.send(topic, value, partition=0) for value in values])


async def confluent_writes(cluster: FakeCluster, topic: str, values: Sequence[bytes]) -> None:
    """Write each value once, in order, to partition 0, with confluent-kafka: in batches of a few records, several of them in flight."""

    def write() -> None:
        servers = cluster.bootstrap_servers
        options = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 3,
            "retry.backoff.ms": 10,
        }
        producer = confluent_kafka.Producer(options)
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(_SECONDS) == 0

    await asyncio.to_thread(write)


async def kafka_python_writes(cluster: FakeCluster, topic: str, values: Sequence[bytes]) -> None:
    """Write each value once, in order, to partition 0, with kafka-python."""

    def write() -> None:
        servers = cluster.bootstrap_servers
        producer = kafka.KafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, batch_size=100, retry_backoff_ms=10
        )
        try:
            futures = [producer.send(topic, value, partition=0) for value in values]
            for future in futures:
                future.get(_SECONDS)
        finally:
            producer.close()

    await asyncio.to_thread(write)


IDEMPOTENT = {
    "aiokafka": aiokafka_writes,
    "confluent": confluent_writes,
    "kafka_python": kafka_python_writes,
}


# --- reading


async def aiokafka_reads_committed(
    cluster: FakeCluster, topic: str, partitions: int
) -> list[list[bytes | None]]:
    """Every value of each partition that a consumer with `read_committed` is given."""
    parts = [aiokafka.TopicPartition(topic, partition) for partition in range(partitions)]
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        consumer.assign(parts)
        found: list[list[bytes | None]] = [[] for _ in parts]
        ends = await consumer.end_offsets(parts)
        async with asyncio.timeout(_SECONDS):
            while any([await consumer.position(part) < ends[part] for part in parts]):
                for part, records in (await consumer.getmany(timeout_ms=50)).items():
                    found[part.partition] += [record.value for record in records]
        return found
    finally:
        await consumer.stop()


async def confluent_reads_committed(
    cluster: FakeCluster, topic: str, partitions: int
) -> list[list[bytes | None]]:
    """Read every value of each partition with confluent-kafka's `read_committed` consumer."""

    def read() -> list[list[bytes | None]]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "none",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(partitions)]
        )
        found: list[list[bytes | None]] = [[] for _ in range(partitions)]
        ended: set[int] = set()
        while len(ended) < partitions:
            message: Any = consumer.poll(_SECONDS)
            assert message is not None
            if message.error() is None:
                found[message.partition()].append(message.value())
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                ended.add(message.partition())
        consumer.close()
        return found

    return await asyncio.to_thread(read)


COMMITTED_READERS = {"aiokafka": aiokafka_reads_committed, "confluent": confluent_reads_committed}
