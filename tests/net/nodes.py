"""Nodes to test: of a fake cluster, or with a dialer that does as told."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from jumping import settle
from peers import settings

from aioproducer.core.metadata import Broker
from aioproducer.net.node import Node
from aioproducer.testing import FakeCluster
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["BROKER", "ask", "now", "refuse", "running", "with_fake"]

BROKER = Broker(1, "host", 9092)


@contextlib.asynccontextmanager
async def running(
    dialer: Any, broker: Broker = BROKER, on_change: Callable[[Node], None] | None = None, **changes: Any
) -> AsyncIterator[Node]:
    """A node with its task, which must end when the node is closed."""
    node = Node(broker, settings(dialer, **changes), on_change or (lambda _: None))
    task = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        node.close()
        async with asyncio.timeout(10):
            await task


@contextlib.asynccontextmanager
async def with_fake(**changes: Any) -> AsyncIterator[tuple[Node, FakeCluster, list[Node]]]:
    """A node of a fake cluster's only broker, and the changes it tells of."""
    changed: list[Node] = []
    async with FakeCluster(memory=True) as cluster:
        fake = cluster.brokers[1]
        async with running(cluster.network, Broker(1, fake.host, fake.port), changed.append, **changes) as node:
            yield node, cluster, changed
        await settle()


def ask(node: Node, timeout: float = 30.0) -> asyncio.Task[Any]:
    """Ask for the cluster's metadata."""
    return asyncio.ensure_future(node.call(ApiKey.METADATA, lambda _: message("Metadata.request", topics=[]), timeout=timeout))


def now() -> float:
    return asyncio.get_running_loop().time()


async def refuse(_dial: int) -> None:
    raise ConnectionRefusedError(111, "nobody listens")
