"""Message sets against a real Kafka 3.9.2, the last that takes them: accepted in every version and codec, and read back by confluent-kafka."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from without_java import skipped_without_java

from aioproducer import Compression, Producer, RecordMetadata, TimestampType
from aioproducer.errors import ConfigError
from aioproducer.records.message_set import encode_message_set
from aioproducer.records.reader import Record
from aioproducer.testing.client import WireClient
from aioproducer.testing.kafka_server import ServerThread
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

CODECS = [codec.name.lower() for codec in Compression if codec is not Compression.ZSTD]
NOW = int(time.time() * 1000)
SENT = [
    (b"value", b"key", NOW),
    (None, b"a tombstone", NOW + 1),
    (b"", b"", NOW),
    (b"no key", None, NOW - 5),
    (None, None, NOW),
    (bytes(range(256)) * 1_600, b"large", NOW),
    (b"back then", b"t", 1_357_034_400_000),
    *((b"%d" % number * 20, b"%d" % (number % 7), NOW + number) for number in range(1_500)),
]


class Seen(NamedTuple):
    value: bytes | None
    key: bytes | None
    timestamp_ms: int


@pytest.fixture(scope="module")
def old_server() -> Iterator[ServerThread]:
    """Skipped without Java; in CI that is a failure."""
    thread = ServerThread("3.9.2")
    with skipped_without_java():
        thread.open()
    try:
        yield thread
    finally:
        thread.close()


def new_topic(server: ServerThread, config: dict[str, object] | None = None) -> str:
    topic = f"old-{uuid.uuid4().hex[:8]}"
    server.create_topic(topic, 1, {"retention.ms": -1, **(config or {})})
    return topic


def read_with_confluent(server: ServerThread, topic: str, count: int) -> list[Seen]:
    """In the order of their offsets, which have no gap."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "old",
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[Seen] = []
    try:
        deadline = time.monotonic() + 60
        while len(seen) < count:
            assert time.monotonic() < deadline, f"nothing more came: {len(seen)} of {count}"
            for one in consumer.consume(500, timeout=0.2):
                assert one.error() is None, one.error()
                assert one.offset() == len(seen)
                seen.append(Seen(one.value(), one.key(), one.timestamp()[1]))
    finally:
        consumer.close()
    return seen


@pytest.mark.parametrize("newest", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_the_producers_message_sets_are_taken_and_read_back(
    old_server: ServerThread, codec: str, newest: int
) -> None:
    """An old broker takes the message sets of `message_format_max`: values, keys, order and offsets. Magic 1 has timestamps, magic 0
    none.
    """
    topic = new_topic(old_server)

    async def send() -> list[RecordMetadata]:
        async with Producer(
            bootstrap_servers=old_server.bootstrap_servers,
            compression_type=codec,
            message_format_max=newest,
            linger_ms=5,
        ) as producer:
            return list(
                await asyncio.gather(
                    *[
                        await producer.send(topic, value, key, timestamp_ms=stamp)
                        for value, key, stamp in SENT
                    ]
                )
            )

    told = asyncio.run(send())
    assert [(one.offset, one.timestamp_ms) for one in told] == [
        (number, sent[2]) for number, sent in enumerate(SENT)
    ]
    seen = read_with_confluent(old_server, topic, len(SENT))
    assert seen == [Seen(value, key, stamp if newest else -1) for value, key, stamp in SENT]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("codec", CODECS)
def test_every_version_of_produce_that_has_message_sets_takes_ours(
    old_server: ServerThread, codec: str, version: int, magic: int
) -> None:
    """Produce 0 to 2, as brokers of their time spoke it."""
    topic = new_topic(old_server)
    records = [Record(0, stamp, key, value, ()) for value, key, stamp in SENT]

    async def produce() -> Any:
        partition = message(
            "Produce.request.topics.partitions",
            index=0,
            records=encode_message_set(magic, Compression[codec.upper()], records),
        )
        topics = [message("Produce.request.topics", name=topic, partitions=[partition])]
        async with WireClient(old_server.bootstrap_servers) as client:
            return await client.ask(
                ApiKey.PRODUCE, version=version, acks=-1, timeout_ms=10_000, topics=topics
            )

    (answered,) = asyncio.run(produce()).topics[0].partitions
    assert (answered.error_code, answered.base_offset) == (0, 0)
    seen = read_with_confluent(old_server, topic, len(SENT))
    assert seen == [Seen(value, key, stamp if magic else -1) for value, key, stamp in SENT]


def test_log_append_time_is_told(old_server: ServerThread) -> None:
    """Produce 2 brings the log append time, and the metadata has it."""
    topic = new_topic(old_server, {"message.timestamp.type": "LogAppendTime"})

    async def send() -> RecordMetadata:
        async with Producer(
            bootstrap_servers=old_server.bootstrap_servers, message_format_max=1
        ) as producer:
            return await producer.send_and_wait(topic, b"v", timestamp_ms=5)

    told = asyncio.run(send())
    assert told.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert read_with_confluent(old_server, topic, 1) == [Seen(b"v", None, told.timestamp_ms)]
    assert told.timestamp_ms > 1_600_000_000_000


def test_a_broker_that_takes_no_message_sets_is_told_at_the_start(
    kafka_server: ServerThread,
) -> None:
    """Kafka 4, though it says that it takes Produce 0."""

    async def start() -> None:
        async with Producer(bootstrap_servers=kafka_server.bootstrap_servers, message_format_max=1):
            pass

    with pytest.raises(
        ConfigError, match=r"is Kafka 4\.0 or newer and takes no records of format 1"
    ):
        asyncio.run(start())
