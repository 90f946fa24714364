"""A topic that was forgotten and comes back, on a real Kafka (KIP-526 beside KIP-98): the broker knows the producer, and its numbers."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import Producer
from aioproducer.testing.client import WireClient

if TYPE_CHECKING:
    from aioproducer.testing.kafka_server import ServerThread

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

PARTITIONS = 3
RECORDS = 4


async def test_what_is_acknowledged_is_written(kafka_server: ServerThread) -> None:
    """The producer writes as many records as before, three times. With the old sequence numbers the broker would acknowledge them
    unwritten.
    """
    topic = f"idle-{uuid.uuid4().hex[:8]}"
    await asyncio.to_thread(kafka_server.create_topic, topic, PARTITIONS)
    async with Producer(
        bootstrap_servers=kafka_server.bootstrap_servers, metadata_max_idle_ms=5000
    ) as producer:
        parts: Any = producer._engine.parts  # type: ignore[union-attr]
        for round_ in range(3):
            for partition in range(PARTITIONS):
                deliveries = [
                    await producer.send(topic, b"v", partition=partition) for _ in range(RECORDS)
                ]
                offsets = [(await delivery).offset for delivery in deliveries]
                assert offsets == list(range(round_ * RECORDS, (round_ + 1) * RECORDS))
            epochs = {
                queue.numbers.identity.epoch
                for queue in parts.partition_queues.routings[topic].queues
            }
            assert epochs == {round_}
            async with asyncio.timeout(20):
                while topic in parts.partition_queues.routings:
                    await asyncio.sleep(0.1)
    async with WireClient(kafka_server.bootstrap_servers) as client:
        assert await client.end_offsets(topic) == [3 * RECORDS] * PARTITIONS
