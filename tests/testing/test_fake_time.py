"""Tests of how the fake waits: by its loop's clock, which jumps here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_requests import batch, client, fetch, produce
from jumping import jumping

from aioproducer.errors import RequestTimedOut
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient

BEGAN = 1000.0  # where a jumping loop's time does


@jumping
async def test_delays_follow_the_loops_clock() -> None:
    """Two requests of one connection wait one after the other, in virtual time."""
    async with FakeCluster(memory=True) as cluster, client(cluster, timeout=1000) as kafka:
        cluster.delay("Metadata", 30, times=2)
        await asyncio.gather(*(kafka.metadata() for _ in range(3)))
        assert [request.at - BEGAN for request in cluster.requests("Metadata")] == [0, 30, 60]
        assert asyncio.get_running_loop().time() - BEGAN == 60


@pytest.mark.parametrize(("when", "values"), [("before", []), ("after", [b"a"])])
@jumping
async def test_a_late_request_or_a_late_answer(when: Any, values: list[bytes]) -> None:
    """A client that gives up drops a request that was not carried out yet, and only the answer of one that was."""
    async with FakeCluster(memory=True) as cluster, client(cluster, timeout=5) as kafka:
        cluster.create_topic("orders")
        cluster.delay("Produce", 30, when=when)
        with pytest.raises(RequestTimedOut):
            await produce(kafka, batch(b"a"))
        await asyncio.sleep(100)
        assert cluster.values("orders") == values


@jumping
async def test_an_empty_fetch_waits_its_time() -> None:
    """Until `max_wait_ms`, or until `min_bytes` are there."""
    loop = asyncio.get_running_loop()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        options: Any = {"dialer": cluster.network, "timeout": 1000}
        async with (
            WireClient(cluster.bootstrap_servers, **options) as kafka,
            WireClient(cluster.bootstrap_servers, **options) as other,
        ):
            answer = await fetch(kafka, {0: 0}, max_wait_ms=500)
            assert loop.time() - BEGAN == 0.5
            assert not answer.responses[0].partitions[0].records
            waiting = asyncio.ensure_future(fetch(kafka, {0: 0}, max_wait_ms=60_000, min_bytes=100))
            await asyncio.sleep(1)
            await produce(other, batch(b"a"))
            await asyncio.sleep(1)
            assert not waiting.done()
            await produce(other, batch(b"b"))
            answer = await waiting
            assert loop.time() - BEGAN == 2.5
            assert len(answer.responses[0].partitions[0].records) == 2 * len(batch(b"a"))
            answer = await fetch(kafka, {0: 0}, max_wait_ms=60_000)
            assert loop.time() - BEGAN == 2.5
            assert cluster.log("orders", 0).watchers == set()
