"""Fixtures for the fake's tests: an event loop with jumping time, and a cluster on sockets or in memory."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from java_fakes import fake_java, needs_java, own_folder  # noqa: F401  (fixtures)

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest_asyncio.fixture(params=[False, True], ids=["sockets", "memory"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    """Two brokers and the topic orders with two partitions: broker 1 leads 0, broker 2 leads 1."""
    async with FakeCluster(brokers=2, memory=request.param) as cluster:
        cluster.create_topic("orders", partitions=2)
        yield cluster


@pytest.fixture
def forgotten_sockets() -> Iterator[None]:
    """Collect the sockets that kafka-python forgets to close within this test, so that the next test does not report them."""
    yield
    gc.collect()
