"""The whole producer on a fake cluster, in a loop that jumps in time.

The set-up of every scenario, and the checks after each.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from builds import producer_on
from jumping import JumpingLoop, jumping, now

from aioproducer import Producer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = [
    "JumpingLoop",
    "Names",
    "assert_nothing_left",
    "encode_at_once",
    "jumping",
    "now",
    "open_streams",
    "running",
    "running_on",
    "turns",
]


_OF_CLUSTER = ("auto_create", "transaction_version", "verify_records", "version", "versions")


async def turns(count: int) -> None:
    """Let `count` iterations of the loop go by."""
    for _ in range(count):
        await asyncio.sleep(0)


def assert_nothing_left(producer: Producer[Any, Any], before: set[asyncio.Task[Any]]) -> None:
    """Assert that `stop` left no task and no pending send, and that every byte of memory is free."""
    assert asyncio.all_tasks() - before == set()
    assert producer.buffer_available == producer.config.buffer_memory
    assert " waiting" not in repr(producer) or repr(producer).endswith(" 0 waiting>")


def open_streams(cluster: FakeCluster) -> int:
    """Return the number of connections that brokers have."""
    return sum(len(broker.connections) for broker in cluster.brokers.values())


def encode_at_once(producer: Producer[Any, Any], most: int) -> None:
    """Let the producer encode `most` bytes on the loop in one event-loop iteration, and more than that in the worker's thread."""
    engine = producer._engine
    assert engine is not None
    engine.parts.sender._batch_compressor._at_once = most


@asynccontextmanager
async def running(
    cluster: FakeCluster | None = None, *, brokers: int = 1, partitions: int = 2, **options: Any
) -> AsyncIterator[tuple[FakeCluster, Producer[Any, Any]]]:
    """Give a cluster with the topic orders and a started producer, and assert afterwards that nothing is left.

    Options of a cluster are the cluster's. A test that names `batch_size` counts batches: its batches take no more, unless it names `batch_max_size`, too.
    """
    if cluster is None:
        of_cluster = {name: options.pop(name) for name in _OF_CLUSTER if name in options}
        async with FakeCluster(brokers, memory=True, **of_cluster) as made:
            made.create_topic("orders", partitions)
            async with running(made, **options) as both:
                yield both
            return
    before = asyncio.all_tasks()
    named = {"batch_max_size": 1} if "batch_size" in options else {}
    async with Producer(**cluster.client_options, **{**named, **options}) as producer:
        yield cluster, producer
    assert_nothing_left(producer, before)
    assert cluster.violations == []
    cluster.assert_all_fired()
    gc.collect()


@asynccontextmanager
async def running_on(
    build: Any, *, partitions: int = 1, **options: Any
) -> AsyncIterator[tuple[FakeCluster, Producer[Any, Any]]]:
    """Give a cluster with the topic orders and a started producer of one build."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions)
        async with producer_on(build)(**cluster.client_options, **options) as producer:
            yield cluster, producer


class Names:
    """DNS with scripted results. A name without a script resolves to itself."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names = names
        self.asked = 0

    async def resolve(self, host: str) -> Sequence[str]:
        self.asked += 1
        found = self.names.get(host, [host])
        if not found:
            raise OSError(-2, "Name or service not known")
        return found

    async def canonical_name(self, address: str) -> str:
        return f"canonical-{address}"
