"""A transactional producer on a fake cluster: the set-up and the look-ups of every scenario of transactions."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from whole import running

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer import Producer

__all__ = ["VERSIONS", "asked", "cluster_of", "committed", "transactional"]

VERSIONS = pytest.mark.parametrize("version", [1, 2])
_ALL = ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


def cluster_of(version: int, brokers: int = 1) -> FakeCluster:
    """Return a fake cluster with transactions of `version`, with orders (two partitions) and payments (one)."""
    cluster = FakeCluster(brokers, memory=True, transaction_version=version)
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("payments")
    return cluster


@asynccontextmanager
async def transactional(
    version: int = 2, brokers: int = 1, **options: Any
) -> AsyncIterator[tuple[FakeCluster, Producer[Any, Any]]]:
    """Give a cluster of `version` and a transactional producer."""
    async with (
        cluster_of(version, brokers) as cluster,
        running(cluster, transactional_id="tx", **options) as both,
    ):
        yield both


def committed(
    cluster: FakeCluster, topic: str = "orders", partition: int | None = None
) -> list[bytes | None]:
    """Return the values that a reader of committed records sees."""
    return cluster.values(topic, partition, isolation="read_committed")


def asked(cluster: FakeCluster, *apis: str) -> list[str]:
    """Return the requests of these kinds, in order. Without `apis`, returns all kinds that a transaction needs once there is an id."""
    return [request.api for request in cluster.requests() if request.api in (apis or _ALL)]
