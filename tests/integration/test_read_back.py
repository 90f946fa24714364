"""Tests that confluent-kafka's and aiokafka's consumers read our records from a real Kafka, for every codec."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aioproducer import Compression, Producer, RecordMetadata, TimestampType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.testing.kafka_server import ServerThread

pytestmark = pytest.mark.integration

_PARTITIONS = 3
_LARGE = bytes(range(256)) * 1600  # 400 KiB, larger than a batch


class Sent(NamedTuple):
    """A record as it was given to `send`."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Seen(NamedTuple):
    """A record as a consumer saw it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


EDGES = (
    Sent(b"value", b"key"),
    Sent(None, b"tombstone"),
    Sent(b"", b""),
    Sent(b"no key", None, partition=1),
    Sent(None, None, partition=1),
    Sent(_LARGE, b"large value"),
    Sent(b"large key", _LARGE),
    Sent(b"x" * 16_000, b"just below a batch"),
    Sent(
        b"headers",
        b"h",
        (("a", b"1"), ("a", b"2"), ("b", None), ("", b""), ("żółć", _LARGE[:40_000])),
    ),
    Sent(b"old", b"t", timestamp_ms=0),
    Sent(b"2013", b"t", timestamp_ms=1_357_034_400_000),
    Sent(b"back again", b"t", (("late", b"yes"),), 1_357_034_399_999),
    *(Sent(b"%d" % number * 20, b"%d" % (number % 7)) for number in range(2_000)),
)


async def _send_all(bootstrap_servers: str, topic: str, codec: str) -> list[RecordMetadata]:
    async with Producer(
        bootstrap_servers=bootstrap_servers, compression_type=codec, linger_ms=5
    ) as producer:
        deliveries = [
            await producer.send(
                topic,
                sent.value,
                sent.key,
                headers=sent.headers,
                timestamp_ms=sent.timestamp_ms,
                partition=sent.partition,
            )
            for sent in EDGES
        ]
        return list(await asyncio.gather(*deliveries))


def _read_with_confluent(
    bootstrap_servers: str, topic: str, ends: Sequence[int]
) -> dict[int, list[Seen]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "read-back",
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(len(ends))])
    seen: dict[int, list[Seen]] = {partition: [] for partition in range(len(ends))}
    try:
        deadline = time.monotonic() + 60
        while sum(map(len, seen.values())) < sum(ends):
            assert time.monotonic() < deadline, (
                f"nothing more came: {[len(records) for records in seen.values()]} of {ends}"
            )
            for message in consumer.consume(
                500, timeout=0.2
            ):  # it waits that long for 500, however many there are
                assert message.error() is None, message.error()
                headers = tuple((name, value) for name, value in message.headers() or ())
                seen[message.partition()].append(
                    Seen(
                        message.offset(),
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        headers,
                    )
                )
    finally:
        consumer.close()
    return seen


async def _read_with_aiokafka(
    bootstrap_servers: str, topic: str, ends: Sequence[int]
) -> dict[int, list[Seen]]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        check_crcs=True,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    seen: dict[int, list[Seen]] = {partition: [] for partition in range(len(ends))}
    try:
        consumer.assign([TopicPartition(topic, partition) for partition in range(len(ends))])
        while sum(map(len, seen.values())) < sum(ends):
            fetched = await consumer.getmany(timeout_ms=20_000)
            assert fetched, (
                f"nothing more came: {[len(records) for records in seen.values()]} of {ends}"
            )
            for place, records in fetched.items():
                seen[place.partition] += [
                    Seen(one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
                    for one in records
                ]
    finally:
        await consumer.stop()
    return seen


def _check(deliveries: Sequence[RecordMetadata], seen: dict[int, list[Seen]]) -> None:
    for partition, records in seen.items():
        assert [record.offset for record in records] == list(range(len(records))), (
            f"partition {partition} has gaps"
        )
    for sent, told in zip(EDGES, deliveries, strict=True):
        record = seen[told.partition][told.offset]
        expected = Seen(told.offset, told.timestamp_ms, sent.key, sent.value, sent.headers)
        assert record == expected
        if sent.timestamp_ms is not None:
            assert told.timestamp_ms == sent.timestamp_ms
        if sent.partition is not None:
            assert told.partition == sent.partition
        assert told.timestamp_type is TimestampType.CREATE_TIME
        assert told.serialized_key_size == (-1 if sent.key is None else len(sent.key))
        assert told.serialized_value_size == (-1 if sent.value is None else len(sent.value))


@pytest.mark.parametrize("codec", [codec.name.lower() for codec in Compression])
def test_other_clients_read_what_we_wrote(kafka_server: ServerThread, codec: str) -> None:
    """Null, empty and large keys and values, headers with None and repeated keys, timestamps, offsets as the deliveries said."""
    topic = f"read-back-{codec}-{uuid.uuid4().hex[:8]}"
    kafka_server.create_topic(topic, _PARTITIONS, {"retention.ms": -1})
    deliveries = asyncio.run(_send_all(kafka_server.bootstrap_servers, topic, codec))
    ends = kafka_server.end_offsets(topic)
    assert sum(ends) == len(EDGES)
    _check(deliveries, _read_with_confluent(kafka_server.bootstrap_servers, topic, ends))
    _check(
        deliveries, asyncio.run(_read_with_aiokafka(kafka_server.bootstrap_servers, topic, ends))
    )


def test_log_append_time_is_told(kafka_server: ServerThread) -> None:
    """On a topic with LogAppendTime the metadata has the broker's time, not the producer's."""
    topic = f"append-time-{uuid.uuid4().hex[:8]}"
    kafka_server.create_topic(topic, 1, {"message.timestamp.type": "LogAppendTime"})

    async def send() -> list[RecordMetadata]:
        async with Producer(bootstrap_servers=kafka_server.bootstrap_servers) as producer:
            return list(
                await asyncio.gather(
                    *[await producer.send(topic, b"v", timestamp_ms=5) for _ in range(3)]
                )
            )

    told = asyncio.run(send())
    assert {one.timestamp_type for one in told} == {TimestampType.LOG_APPEND_TIME}
    assert all(one.timestamp_ms > 1_600_000_000_000 for one in told)


def test_acks_0_and_1_reach_the_log(kafka_server: ServerThread) -> None:
    """acks=0 gives no offset and acks=1 does; both are in the log, in order."""
    for acks in (0, 1):
        topic = f"acks-{acks}-{uuid.uuid4().hex[:8]}"
        kafka_server.create_topic(topic, 1)

        async def send(acks: int = acks, topic: str = topic) -> list[RecordMetadata]:
            async with Producer(
                bootstrap_servers=kafka_server.bootstrap_servers, acks=acks
            ) as producer:
                return list(
                    await asyncio.gather(
                        *[await producer.send(topic, b"%d" % number) for number in range(3_000)]
                    )
                )

        told = asyncio.run(send())
        assert [one.offset for one in told] == ([-1] * 3_000 if acks == 0 else list(range(3_000)))
        seen = _read_with_confluent(kafka_server.bootstrap_servers, topic, [3_000])
        assert [record.value for record in seen[0]] == [b"%d" % number for number in range(3_000)]
