"""One real Kafka for a bench, near and, through a proxy in a process of its own, far. Knows nothing of clients and workloads."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import socket
import sys
from typing import TYPE_CHECKING

from aioproducer.testing.kafka_server import KafkaServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ROOT = pathlib.Path(__file__).parents[2]
DELAY_MS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Broker:
    """A running Kafka and the two ways to it."""

    server: KafkaServer
    bootstrap_servers: str
    far_bootstrap_servers: str

    async def create_topic(self, name: str, partitions: int) -> None:
        await self.server.create_topic(name, partitions=partitions)

    def pause(self) -> None:
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()
