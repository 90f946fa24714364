"""A cluster of thousands of brokers: what the brokers that are known cost, and how long `stop` holds the event loop."""

from __future__ import annotations

import asyncio
import functools
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from jumping import JumpingLoop
from whole import assert_nothing_left, jumping, running, turns

from aioproducer import Producer
from aioproducer.net.cluster import BrokerNode
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable

CALLBACK = 20e-6
"""The seconds that each callback of the loop takes in simulated time, and each close of a node."""


class WorkingLoop(JumpingLoop):
    """A jumping loop in which callbacks take time: they do in reality, and a heartbeat beside them is late by it."""

    def _run_once(self) -> None:
        loop: Any = super()
        loop._run_once()
        self.advance(CALLBACK * len(self._ready))  # type: ignore[attr-defined]


def working(function: Callable[..., None]) -> Callable[..., None]:
    """Let each call of a method take time, too."""

    @functools.wraps(function)
    def timed(*args: Any, **now: bool) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorkingLoop)
        loop.advance(CALLBACK)
        function(*args, **now)

    return timed


async def stop_beside_a_heartbeat(brokers: int, *, is_used: bool) -> list[float]:
    """Stop a producer that knows `brokers` brokers. Return by how much each beat of a 1 ms heartbeat was late meanwhile."""
    loop = asyncio.get_running_loop()
    beats = [loop.time()]

    async def heartbeat() -> None:
        while True:
            await asyncio.sleep(0.001)
            beats.append(loop.time())

    async with FakeCluster(memory=True, brokers=brokers) as cluster:
        cluster.create_topic("orders", partitions=brokers)
        before = asyncio.all_tasks()
        producer = Producer(
            **{
                **cluster.client_options,
                "bootstrap_servers": cluster.bootstrap_servers.split(",")[0],
            }
        )
        await producer.start()
        if is_used:
            await asyncio.gather(
                *[
                    await producer.send("orders", b"v", partition=partition)
                    for partition in range(brokers)
                ]
            )
            assert sum(node.is_ready for node in producer._engine.parts.cluster.nodes) == brokers  # type: ignore[union-attr]
        heart = asyncio.create_task(heartbeat())
        await asyncio.sleep(0.01)
        beats[:] = [loop.time()]
        await producer.stop()
        await asyncio.sleep(0.01)
        heart.cancel()
        await turns(2)
        assert_nothing_left(producer, before)
        assert not any(broker.connections for broker in cluster.brokers.values())
    return [later - earlier - 0.001 for earlier, later in itertools.pairwise(beats)]


@pytest.mark.parametrize("is_used", [True, False], ids=["used", "known"])
def test_stop_with_2000_brokers_keeps_a_heartbeat(
    monkeypatch: pytest.MonkeyPatch, *, is_used: bool
) -> None:
    """`stop` ends the connections and tasks of a few brokers in each event-loop iteration."""
    monkeypatch.setattr(BrokerNode, "close", working(BrokerNode.close))
    with asyncio.Runner(loop_factory=WorkingLoop) as runner:
        late = runner.run(stop_beside_a_heartbeat(2000, is_used=is_used))
    assert sum(late) + 0.001 * len(late) > 2000 * CALLBACK, "it was all done beside the heartbeat"
    assert max(late) < 0.003


@jumping
async def test_a_stop_that_is_cancelled_closes_all_brokers_at_once() -> None:
    """Nothing waits for the rest of the brokers."""
    async with running(brokers=100, partitions=100) as (cluster, producer):
        await asyncio.gather(
            *[await producer.send("orders", b"v", partition=partition) for partition in range(100)]
        )
        stop = asyncio.create_task(producer.stop())
        nodes = producer._engine.parts.cluster.nodes  # type: ignore[union-attr]
        while all(node.is_ready for node in nodes):
            await asyncio.sleep(0)
        assert sum(node.is_ready for node in nodes) > 50
        stop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stop
        assert not any(node.is_ready for node in nodes)
        await turns(3)
        assert not any(broker.connections for broker in cluster.brokers.values())


@jumping
async def test_a_broker_that_is_not_used_has_no_task() -> None:
    """Only the connection over which the metadata came has one. A broker's task begins with its first record."""
    async with running(brokers=1000, partitions=1000, enable_idempotence=False) as (
        cluster,
        producer,
    ):
        assert len(producer._engine.parts.cluster.nodes) == 1000  # type: ignore[union-attr]
        await asyncio.sleep(10)

        def of_brokers() -> list[str]:
            names = [task.get_name() for task in asyncio.all_tasks()]
            return [
                name
                for name in names
                if name.startswith("aioproducer node ")
                and not name.startswith("aioproducer node bootstrap")
            ]

        assert of_brokers() == []
        await producer.send_and_wait("orders", b"v", partition=7)
        leader = cluster.brokers[cluster.leader("orders", 7)]  # type: ignore[index]
        assert [name for name in of_brokers() if "control" not in name] == [
            f"aioproducer node {leader.node_id} {leader.host}:{leader.port}, produce"
        ]
        assert len(of_brokers()) <= 2, (
            "and that of the broker that was asked for the topic's metadata"
        )
