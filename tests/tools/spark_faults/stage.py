"""The Kafka on which cases run, started when a case first needs it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from aioproducer import Producer
from aioproducer.testing import KafkaServer
from tests.support.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from typing import Self

    from tests.tools.spark_faults.case import Case, Kafka

__all__ = ["Stage"]

_SIZE: Final = 100
_PARTITIONS: Final = 6
_DOWN_SECONDS: Final = 3.0
_START_SECONDS: Final = 240.0
_PROPERTIES: Final = {"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": "false"}


class Stage:
    """Holds what cases run on: `async with Stage() as stage: await stage.set_for(case)`.

    One Kafka exists at a time: the next case that wants another ends it.
    """

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._kafka: KafkaServer | KafkaCluster | None = None
        self._wants: Kafka | None = None
        self._filled: set[int] = set()
        self._restarts: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def bootstrap_servers(self) -> str:
        return self._running.bootstrap_servers

    async def set_for(self, case: Case) -> None:
        """Start what the case runs on, if it does not run; fill its source."""
        if case.kafka != self._wants:
            await self._end()
            self._kafka = await self._stack.enter_async_context(_made(case.kafka))
            self._wants = case.kafka
        if case.rows not in self._filled:
            await self._running.create_topic(self.source(case.rows), _PARTITIONS)
            await fill(self.bootstrap_servers, self.source(case.rows), case.rows)
            self._filled.add(case.rows)

    def source(self, rows: int) -> str:
        """Return the topic with so many rows."""
        return f"source-{rows}"

    async def create_topic(self, name: str, partitions: int) -> None:
        await self._running.create_topic(name, partitions)

    async def end_offsets(self, topic: str) -> list[int]:
        return await self._running.end_offsets(topic)

    async def kill_a_broker(self, chance: random.Random) -> bool:
        """Kill one of three nodes, and let it start again some seconds later. Returns whether it could: all must have been up."""
        cluster = self._running
        if not isinstance(cluster, KafkaCluster) or self._restarts:
            return False
        node = chance.choice(cluster.answering)
        await cluster.kill(node)
        task = asyncio.create_task(self._restart(cluster, node))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)
        return True

    async def settle(self) -> None:
        """Return when every node is up again."""
        await asyncio.gather(*self._restarts)
        if isinstance(self._kafka, KafkaCluster):
            await self._kafka.restore()

    @property
    def _running(self) -> KafkaServer | KafkaCluster:
        assert self._kafka is not None, "`set_for` comes first"
        return self._kafka

    async def _restart(self, cluster: KafkaCluster, node: int) -> None:
        await asyncio.sleep(_DOWN_SECONDS)
        await cluster.start(node)

    async def _end(self) -> None:
        for task in self._restarts:
            task.cancel()
        await asyncio.gather(*self._restarts, return_exceptions=True)
        self._kafka = self._wants = None
        self._filled.clear()
        await self._stack.aclose()


def _made(kind: Kafka) -> KafkaServer | KafkaCluster:
    if kind == "three":
        return KafkaCluster(properties=_PROPERTIES, heap="384m", start_timeout=_START_SECONDS)
    features = {"transaction.version": 1} if kind == "version-1" else None
    return KafkaServer(
        properties=_PROPERTIES, features=features, heap="768m", start_timeout=_START_SECONDS
    )


async def fill(bootstrap_servers: str, topic: str, rows: int, size: int = _SIZE) -> None:
    """Send the numbers from 0 to `rows`, each as text with filling behind it."""
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=5) as producer:
        deliveries = await producer.send_many(topic, _values(rows, size))
        summary = await deliveries.wait()
    assert summary.acknowledged == rows, summary


def _values(rows: int, size: int) -> Iterator[bytes]:
    return (b"%d " % number + b"x" * (size - len(str(number)) - 1) for number in range(rows))
