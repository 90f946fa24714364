"""Tests of `aioproducer.net.cluster`: a broker that throttles (KIP-219, row 35 of the fault catalogue)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jumping import jumping, settle, until
from nodes import ask, now, running, with_fake
from scripted import ScriptedDialer

from aioproducer.errors import ConnectionLost, RequestTimedOut
from aioproducer.net.cluster import BrokerNode
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import codec, message


@pytest.mark.parametrize(
    ("second", "ends"), [(500, 2.0), (1000, 2.0), (5000, 6.0), (0, 2.0), (-1000, 2.0)]
)
@jumping
async def test_a_shorter_time_shortens_no_longer_one(second: int, ends: float) -> None:
    """The later end counts."""
    changed: list[float] = []
    async with running(ScriptedDialer(), on_change=lambda _: changed.append(now())) as node:
        began = now()
        node.throttle(2000)
        await asyncio.sleep(1)
        node.throttle(second)
        await asyncio.sleep(10)
        assert changed == [pytest.approx(began + ends)]


@jumping
async def test_the_longest_time() -> None:
    """An answer may say 24 days. The node is asked again after five minutes."""
    changed: list[float] = []
    async with running(ScriptedDialer(), on_change=lambda _: changed.append(now())) as node:
        began = now()
        node.throttle(2**31 - 1)
        await asyncio.sleep(301)
        assert changed == [pytest.approx(began + 300)]
        assert not node.is_muted


@jumping
async def test_the_time_counts_for_no_request_on_its_way() -> None:
    """NET-14: the throttle time does not count against a request in flight, as the broker does not read meanwhile.

    A later request has its own time.
    """
    async with running(ScriptedDialer()) as node:
        node.produce.request_connection()
        await until(lambda: node.is_ready)
        connection = node.produce.connection
        assert connection is not None
        ended: list[Any] = []
        connection.send(
            ApiKey.METADATA,
            9,
            codec("Metadata.request", 9).encode(message("Metadata.request", topics=[])),
            ended.append,
            5.0,
        )
        began = now()
        node.throttle(3000)
        node.throttle(1000)
        while not ended:
            await asyncio.sleep(0.01)
        assert now() - began == pytest.approx(8, abs=0.02)
        assert isinstance(ended[0], RequestTimedOut)


@jumping
async def test_a_call_waits_until_the_broker_may_be_asked() -> None:
    """And counts the wait as its own time."""
    async with with_fake() as (node, cluster, _):
        node.throttle(2000)
        began = now()
        assert (await ask(node)).decode().cluster_id == cluster.cluster_id
        assert now() - began == pytest.approx(2, abs=0.01)
        node.throttle(2000)
        with pytest.raises(RequestTimedOut):
            await ask(node, timeout=1.0)


@jumping
async def test_a_node_that_is_closed_throttles_no_more() -> None:
    """A closed node fails the waiting calls at once and leaves no timer."""
    changed: list[BrokerNode] = []
    async with running(ScriptedDialer(), on_change=changed.append) as node:
        node.throttle(60_000)
        task = ask(node, timeout=100.0)
        await settle()
        began = now()
        node.close()
        with pytest.raises(ConnectionLost, match="no longer a broker"):
            await task
        assert now() == began
        await asyncio.sleep(100)
        assert changed == []
