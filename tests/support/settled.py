"""Waiting until no transaction is open in a topic of a real Kafka: a commit is answered before its markers are written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["settled"]

# seconds between two questions to a broker, as no event tells when it has settled
_PAUSE = 0.02
_DEADLINE = 60.0


async def settled(bootstrap_servers: str, topic: str, partitions: Iterable[int]) -> None:
    """Until the last stable offset of each partition is its end. TimeoutError: not within a minute."""
    asked = [TopicPartition(topic, partition) for partition in partitions]
    everything = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
    stable = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, isolation_level="read_committed")
    async with asyncio.timeout(_DEADLINE), everything, stable:
        while await stable.end_offsets(asked) != await everything.end_offsets(asked):
            await asyncio.sleep(_PAUSE)
