"""confluent-kafka, aiokafka and kafka-python behind one face each for writing, reading in a group, and administration."""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import aiokafka
import aiokafka.admin
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
from group_members import named

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its modules use what Python 3.11 deprecates
    import kafka
    import kafka.admin
    import kafka.errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping

    from aioproducer.testing import FakeCluster

HEADERS = [("trace", b"1"), ("trace", None), ("n", b"")]
_SECONDS = 60  # a machine with other work to do
_POLL_SECONDS = 0.2


class Sent(NamedTuple):
    """One record, and the partition that it goes to."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


# --- writing


async def aiokafka_writes(
    cluster: FakeCluster, topic: str, records: Iterable[Sent], compression: str | None
) -> list[int]:
    """The offsets that they were given."""
    options: Any = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "compression_type": compression,
        "linger_ms": 1,
    }
    async with aiokafka.AIOKafkaProducer(**options) as producer:
        sent = [
            await producer.send(topic, one.value, one.key, one.partition, one.timestamp_ms)
            for one in records
        ]
        return [delivered.offset for delivered in await asyncio.gather(*sent)]


async def confluent_writes(
    cluster: FakeCluster, topic: str, records: Iterable[Sent], compression: str | None
) -> list[int]:
    """Write the records with confluent-kafka, with headers. Returns the offsets that they were given."""
    offsets: dict[int, int] = {}

    def write() -> None:
        options = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "compression.type": compression or "none",
            "linger.ms": 1,
        }
        producer = confluent_kafka.Producer(options)
        for number, one in enumerate(records):

            def delivered(error: object, message: Any, number: int = number) -> None:
                assert error is None
                offsets[number] = message.offset()

            producer.produce(
                topic,
                one.value,
                one.key,
                one.partition,
                timestamp=one.timestamp_ms,
                headers=HEADERS,
                on_delivery=delivered,
            )
        assert producer.flush(10) == 0

    await asyncio.to_thread(write)
    return [offsets[number] for number in sorted(offsets)]


async def kafka_python_writes(
    cluster: FakeCluster, topic: str, records: Iterable[Sent], compression: str | None
) -> list[int]:
    """Write the records with kafka-python, without headers. Returns the offsets that they were given."""

    def write() -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            compression_type=compression,
            linger_ms=1,
            enable_idempotence=False,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    one.value,
                    one.key,
                    partition=one.partition,
                    timestamp_ms=one.timestamp_ms,
                )
                for one in records
            ]
            producer.flush(10)
            return [delivered.get(10).offset for delivered in sent]
        finally:
            producer.close()

    return await asyncio.to_thread(write)


WRITERS = {
    "aiokafka": aiokafka_writes,
    "confluent": confluent_writes,
    "kafka-python": kafka_python_writes,
}


# --- reading


class Reader:
    """A consumer in a group; it reads from the beginning where nothing is committed."""

    _consumer: Any

    async def commit(self) -> None:
        await asyncio.to_thread(self._consumer.commit)

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)

    def partitions(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}


class AiokafkaReader(Reader):
    def __init__(self, cluster: FakeCluster, topic: str, group: str) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )

    async def start(self) -> None:
        await self._consumer.start()

    async def poll(self) -> list[Sent]:
        found = await self._consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1000))
        return [
            Sent(one.partition, one.key, one.value, one.timestamp)
            for records in found.values()
            for one in records
        ]

    async def commit(self) -> None:
        await self._consumer.commit()

    async def close(self) -> None:
        await self._consumer.stop()


class ConfluentReader(Reader):
    def __init__(self, cluster: FakeCluster, topic: str, group: str) -> None:
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 100,
            }
        )

    async def start(self) -> None:
        self._consumer.subscribe([self._topic])

    async def poll(self) -> list[Sent]:
        found = await asyncio.to_thread(self._consumer.consume, 500, _POLL_SECONDS)
        assert [one.error() for one in found if one.error()] == []
        return [Sent(one.partition(), one.key(), one.value(), one.timestamp()[1]) for one in found]

    async def commit(self) -> None:
        await asyncio.to_thread(self._consumer.commit, asynchronous=False)


class KafkaPythonReader(Reader):
    """It leads a group with no partitions for minutes if a poll has to end before it knows the topic's: so it is made to ask for them."""

    def __init__(self, cluster: FakeCluster, topic: str, group: str) -> None:
        self._topic = topic
        self._make: Callable[[], Any] = lambda: kafka.KafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )

    async def start(self) -> None:
        self._consumer = await asyncio.to_thread(self._make)
        assert await asyncio.to_thread(self._consumer.partitions_for_topic, self._topic)

    async def poll(self) -> list[Sent]:
        found = await asyncio.to_thread(self._consumer.poll, int(_POLL_SECONDS * 1000))
        return [
            Sent(one.partition, one.key, one.value, one.timestamp)
            for records in found.values()
            for one in records
        ]


READERS: Mapping[str, Any] = {
    "aiokafka": AiokafkaReader,
    "confluent": ConfluentReader,
    "kafka-python": KafkaPythonReader,
}


@contextlib.asynccontextmanager
async def reading(peer: str, cluster: FakeCluster, group: str = "readers") -> AsyncIterator[Any]:
    """A consumer in its group, until the block ends."""
    reader = READERS[peer](cluster, "t", group)
    await reader.start()
    try:
        yield reader
    finally:
        await reader.close()


async def read(reader: Any, count: int) -> list[Sent]:
    """So many records."""
    found: list[Sent] = []
    started = time.monotonic()
    while len(found) < count:
        assert time.monotonic() - started < _SECONDS, f"{len(found)} records of {count} were found"
        found += await reader.poll()
    return found


async def until(condition: Callable[[], bool], *readers: Any) -> list[Sent]:
    """Let readers poll until something holds; what they read meanwhile."""
    found: list[Sent] = []
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < _SECONDS, "it did not come to hold"
        for records in await asyncio.gather(*(reader.poll() for reader in readers)):
            found += records
    return found


# --- administration


# Each method of an administrator gives back the name of the error, or the empty string.


class ConfluentAdmin:
    def __init__(self, cluster: FakeCluster) -> None:
        self._admin = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": cluster.bootstrap_servers}
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """It has nothing to close."""

    async def create(
        self, topic: str, partitions: int, config: dict[str, str], replicas: int = 1
    ) -> str:
        new = confluent_kafka.admin.NewTopic(topic, partitions, replicas, config=config)
        return await self._end(self._admin.create_topics([new])[topic])

    async def grow(self, topic: str, partitions: int) -> str:
        return await self._end(
            self._admin.create_partitions([confluent_kafka.admin.NewPartitions(topic, partitions)])[
                topic
            ]
        )

    async def delete(self, topic: str) -> str:
        return await self._end(self._admin.delete_topics([topic])[topic])

    async def config(self, topic: str) -> dict[str, str]:
        resource = confluent_kafka.admin.ConfigResource(
            confluent_kafka.admin.ResourceType.TOPIC, topic
        )
        found = await asyncio.to_thread(
            self._admin.describe_configs([resource])[resource].result, 10
        )
        return {name: entry.value for name, entry in found.items()}

    async def topics(self) -> set[str]:
        return set((await asyncio.to_thread(self._admin.list_topics, timeout=10)).topics)

    async def _end(self, future: Any) -> str:
        try:
            await asyncio.to_thread(future.result, 10)
        except confluent_kafka.KafkaException as error:
            return named(error.args[0].code())
        return ""


class AiokafkaAdmin:
    def __init__(self, cluster: FakeCluster) -> None:
        self._admin = aiokafka.admin.AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers
        )

    async def __aenter__(self) -> Self:
        await self._admin.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._admin.close()

    async def create(
        self, topic: str, partitions: int, config: dict[str, str], replicas: int = 1
    ) -> str:
        new = aiokafka.admin.NewTopic(topic, partitions, replicas, topic_configs=config)
        return await self._end(self._admin.create_topics([new]))

    async def grow(self, topic: str, partitions: int) -> str:
        return await self._end(
            self._admin.create_partitions({topic: aiokafka.admin.NewPartitions(partitions)})
        )

    async def delete(self, topic: str) -> str:
        return await self._end(self._admin.delete_topics([topic]))

    async def config(self, topic: str) -> dict[str, str]:
        resource = aiokafka.admin.config_resource.ConfigResource(
            aiokafka.admin.config_resource.ConfigResourceType.TOPIC, topic
        )
        (answer,) = await self._admin.describe_configs([resource])
        return {entry[0]: entry[1] for entry in answer.resources[0][4]}

    async def topics(self) -> set[str]:
        return set(await self._admin.list_topics())

    async def _end(self, asking: Coroutine[Any, Any, Any]) -> str:
        try:
            answer = await asking
        except aiokafka.errors.KafkaError as error:
            return named(error.errno)
        (told,) = (
            answer.topic_error_codes
            if hasattr(answer, "topic_error_codes")
            else answer.topic_errors
        )
        return named(told[1])


class KafkaPythonAdmin:
    def __init__(self, cluster: FakeCluster) -> None:
        self._servers = cluster.bootstrap_servers

    async def __aenter__(self) -> Self:
        self._admin = await asyncio.to_thread(
            lambda: kafka.admin.KafkaAdminClient(bootstrap_servers=self._servers)
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self._admin.close)

    async def create(
        self, topic: str, partitions: int, config: dict[str, str], replicas: int = 1
    ) -> str:
        return await self._end(
            self._admin.create_topics,
            {
                topic: {
                    "num_partitions": partitions,
                    "replication_factor": replicas,
                    "configs": config,
                }
            },
        )

    async def grow(self, topic: str, partitions: int) -> str:
        return await self._end(self._admin.create_partitions, {topic: partitions})

    async def delete(self, topic: str) -> str:
        return await self._end(self._admin.delete_topics, [topic])

    async def config(self, topic: str) -> dict[str, str]:
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic)
        found = await asyncio.to_thread(
            lambda: self._admin.describe_configs([resource], config_filter="all")
        )
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    async def topics(self) -> set[str]:
        return set(await asyncio.to_thread(self._admin.list_topics))

    async def _end(self, method: Callable[..., Any], asked: object) -> str:
        try:
            await asyncio.to_thread(method, asked)
        except kafka.errors.KafkaError as error:
            return named(error.errno)
        return ""


ADMINS: Mapping[str, Any] = {
    "aiokafka": AiokafkaAdmin,
    "confluent": ConfluentAdmin,
    "kafka-python": KafkaPythonAdmin,
}
