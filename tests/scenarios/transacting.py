"""A transactional producer on a fake cluster: what every scenario of transactions sets up, and looks at."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from scenarios.whole import running

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer import Producer

__all__ = ["VERSIONS", "asked", "cluster_of", "committed", "transactional"]

VERSIONS = pytest.mark.parametrize("version", [1, 2])
_ALL = ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


def cluster_of(version: int, brokers: int = 1) -> FakeCluster:
    """One whose transactions are of that version."""
    return FakeCluster(brokers, memory=True, transaction_version=version)


@asynccontextmanager
async def transactional(version: int = 2, brokers: int = 1, **options: Any) -> AsyncIterator[tuple[FakeCluster, Producer[Any, Any]]]:
    """A cluster of that version, with orders (two partitions) and payments (one), and a transactional producer."""
    async with cluster_of(version, brokers) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.create_topic("payments", partitions=1)
        async with running(cluster, transactional_id="tx", **options) as both:
            yield both


def committed(cluster: FakeCluster, topic: str = "orders", partition: int | None = None) -> list[bytes | None]:
    """The values that are visible."""
    return cluster.values(topic, partition, isolation="read_committed")


def asked(cluster: FakeCluster, *apis: str) -> list[str]:
    """The requests of these kinds, in their order; without any, of all that a transaction needs once there is an id."""
    return [request.api for request in cluster.requests() if request.api in (apis or _ALL)]
