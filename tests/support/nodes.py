"""Nodes to test: of a fake cluster, or with a dialer that does as told."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from jumping import now, settle
from scripted import settings

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.net.cluster import BrokerNode
from aioproducer.testing import FakeCluster
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

__all__ = ["BROKER", "Tasks", "ask", "now", "refuse", "running", "with_fake"]

BROKER = Broker(1, "host", 9092)


class Tasks:
    """Owns the connections' tasks, as the producer's supervisor does."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._tasks: dict[asyncio.Task[None], str] = {}

    def spawn(self, coroutine: Coroutine[None, None, None], name: str) -> None:
        self.started.append(name)
        self._tasks[asyncio.ensure_future(coroutine)] = name

    @property
    def alive(self) -> list[str]:
        return [name for task, name in self._tasks.items() if not task.done()]

    async def end(self) -> None:
        """Until the last has ended by itself; what one raised is raised here."""
        async with asyncio.timeout(10):
            while self.alive:
                await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()

    async def cancel(self) -> None:
        """Cancel all tasks, as the end of the producer does."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()


@contextlib.asynccontextmanager
async def running(
    dialer: Any,
    broker: Broker = BROKER,
    on_change: Callable[[BrokerNode], None] | None = None,
    tasks: Tasks | None = None,
    **changes: Any,
) -> AsyncIterator[BrokerNode]:
    """A node; its tasks must end when it is closed."""
    tasks = tasks or Tasks()
    told = settings(dialer, **changes)
    node = BrokerNode(
        broker, told, told.resolver.resolve, tasks.spawn, on_change or (lambda _: None)
    )
    try:
        yield node
    finally:
        node.close()
        await tasks.end()


@contextlib.asynccontextmanager
async def with_fake(
    **changes: Any,
) -> AsyncIterator[tuple[BrokerNode, FakeCluster, list[BrokerNode]]]:
    """A node of a fake cluster's only broker, and the changes it tells of."""
    changed: list[BrokerNode] = []
    async with FakeCluster(memory=True) as cluster:
        fake = cluster.brokers[1]
        async with running(
            cluster.network, Broker(1, fake.host, fake.port), changed.append, **changes
        ) as node:
            yield node, cluster, changed
        await settle()


def ask(node: BrokerNode, timeout: float = 30.0) -> asyncio.Task[Any]:
    """Ask for the cluster's metadata."""
    return asyncio.ensure_future(
        node.call(
            ApiKey.METADATA, lambda _: message("Metadata.request", topics=[]), timeout=timeout
        )
    )


async def refuse(_dial: int) -> None:
    raise ConnectionRefusedError(111, "nobody listens")
