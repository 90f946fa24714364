"""Tests of how the fake waits: by its loop's clock, which jumps here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_requests import batch, fetch, produce

from aioproducer.errors import RequestTimedOut
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


BEGAN = 1000.0  # where a jumping loop's time does


def client(cluster: FakeCluster, **options: Any) -> WireClient:
    return WireClient(cluster.bootstrap_servers, dialer=cluster.network, **options)


def test_delays_follow_the_loops_clock(run_jumping: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
    """Two requests of one connection wait one after the other, in virtual time."""

    async def main() -> list[float]:
        async with FakeCluster(memory=True) as cluster, client(cluster, timeout=1000) as kafka:
            cluster.delay("Metadata", 30, times=2)
            await asyncio.gather(*(kafka.metadata() for _ in range(3)))
            return [request.at - BEGAN for request in cluster.requests("Metadata")] + [asyncio.get_running_loop().time() - BEGAN]

    assert run_jumping(main()) == [0, 30, 60, 60]


@pytest.mark.parametrize(("when", "values"), [("before", []), ("after", [b"a"])])
def test_a_late_request_or_a_late_answer(run_jumping: Callable[[Coroutine[Any, Any, Any]], Any], when: Any, values: list[bytes]) -> None:
    """A client that gives up drops a request that was not carried out yet, and only the answer of one that was."""

    async def main() -> list[bytes | None]:
        async with FakeCluster(memory=True) as cluster, client(cluster, timeout=5) as kafka:
            cluster.create_topic("orders")
            cluster.delay("Produce", 30, when=when)
            with pytest.raises(RequestTimedOut):
                await produce(kafka, batch(b"a"))
            await asyncio.sleep(100)
            return cluster.values("orders")

    assert run_jumping(main()) == values


def test_an_empty_fetch_waits_its_time(run_jumping: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
    """Until `max_wait_ms`, or until `min_bytes` are there."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders")
            options: Any = {"dialer": cluster.network, "timeout": 1000}
            async with WireClient(cluster.bootstrap_servers, **options) as kafka, WireClient(cluster.bootstrap_servers, **options) as other:
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

    run_jumping(main())
