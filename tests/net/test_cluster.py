"""Tests of `aioproducer.net.cluster`: which nodes there are, and whom to ask."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from jumping import run, settle, until
from peers import ScriptedDialer, settings

from aioproducer.core.metadata import Broker
from aioproducer.errors import ConnectionLost
from aioproducer.net.cluster import Cluster
from aioproducer.testing import FakeCluster
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from aioproducer.net.node import Node

ONE, TWO, THREE = (Broker(number, f"host{number}", 9092) for number in (1, 2, 3))


def known(*brokers: Broker) -> dict[int, Broker]:
    return {broker.node_id: broker for broker in brokers}


class Tasks:
    """Owns the nodes' tasks, as the producer's supervisor does."""

    def __init__(self) -> None:
        self.by_name: dict[str, asyncio.Task[None]] = {}

    def spawn(self, coroutine: Coroutine[None, None, None], name: str) -> None:
        self.by_name[name] = asyncio.ensure_future(coroutine)

    @property
    def alive(self) -> list[str]:
        return [name for name, task in self.by_name.items() if not task.done()]


@contextlib.asynccontextmanager
async def standing(dialer: Any = None, *addresses: str) -> AsyncIterator[tuple[Cluster, Tasks]]:
    """A started cluster; when it is closed no task is left."""
    tasks = Tasks()
    cluster = Cluster(addresses or ("boot:1", "boot:2"), settings(dialer or ScriptedDialer()), tasks.spawn, lambda _: None)
    cluster.start()
    await settle()
    try:
        yield cluster, tasks
    finally:
        cluster.close(now=True)
        await asyncio.sleep(2)  # longer than any pause after a failure
        assert tasks.alive == []


def wheres(nodes: list[Node]) -> list[str]:
    return [node.where for node in nodes]


def ask(node: Node) -> asyncio.Task[Any]:
    return asyncio.ensure_future(node.call(ApiKey.METADATA, lambda _: message("Metadata.request", topics=[]), timeout=30.0))


def test_before_any_answer_the_bootstrap_addresses_take_turns() -> None:
    """So that one that is silent does not stand before the others for ever."""

    async def main() -> None:
        async with standing(None, "a:1", "b:2", "c:3") as (cluster, tasks):
            rounds = [wheres(cluster.candidates()) for _ in range(6)]
            assert all(sorted(each) == ["a:1", "b:2", "c:3"] for each in rounds)
            assert {each[0] for each in rounds[:3]} == {"a:1", "b:2", "c:3"}
            assert rounds[:3] == rounds[3:]
            assert tasks.alive == ["node -2 a:1", "node -3 b:2", "node -4 c:3"]

    run(main())


def test_nothing_is_dialled_before_somebody_asks() -> None:
    """Tasks wait for a reason."""

    async def main() -> None:
        dialer = ScriptedDialer()
        async with standing(dialer) as (cluster, _):
            cluster.update(known(ONE, TWO))
            await asyncio.sleep(100)
            assert dialer.dials == []

    run(main())


@pytest.mark.parametrize(
    ("address", "dialled"), [("host:1", ("host", 1)), ("[::1]:9092", ("::1", 9092)), ("10.0.0.1:80", ("10.0.0.1", 80))]
)
def test_a_bootstrap_address_is_dialled_as_written(address: str, dialled: tuple[str, int]) -> None:
    """Without the brackets that part an IPv6 address from its port."""

    async def main() -> None:
        dialer = ScriptedDialer()
        async with standing(dialer, address) as (cluster, _):
            task = ask(cluster.candidates()[0])
            await until(lambda: dialer.dials)
            assert dialer.dials[0][1:] == dialled
            cluster.close(now=True)
            with pytest.raises(ConnectionLost):
                await task

    run(main())


def test_brokers_that_metadata_names_are_nodes() -> None:
    """By their numbers; the bootstrap addresses have none and are asked last."""

    async def main() -> None:
        async with standing() as (cluster, tasks):
            assert cluster.node(1) is None
            cluster.update(known(ONE, TWO))
            await settle()
            assert [cluster.node(number).where for number in (1, 2)] == ["host1:9092", "host2:9092"]  # type: ignore[union-attr]
            assert (cluster.node(3), cluster.node(-1), cluster.node(-2)) == (None, None, None)
            assert "node 1 host1:9092" in tasks.alive
            asked = wheres(cluster.candidates())
            assert sorted(asked[:2]) == ["host1:9092", "host2:9092"]
            assert sorted(asked[2:]) == ["boot:1", "boot:2"]

    run(main())


def test_brokers_that_are_told_again_stay() -> None:
    """Their connections too; a rack is not an address."""

    async def main() -> None:
        async with standing() as (cluster, tasks):
            cluster.update(known(ONE, TWO))
            one = cluster.node(1)
            cluster.update(known(ONE._replace(rack="moved"), TWO))
            assert cluster.node(1) is one
            assert len(tasks.alive) == 4

    run(main())


@pytest.mark.parametrize("changed", [ONE._replace(host="new"), ONE._replace(port=9093)], ids=["host", "port"])
def test_a_broker_at_a_new_address_is_another_node(changed: Broker) -> None:
    """The old one is closed, and what is in flight there fails."""

    async def main() -> None:
        async with standing() as (cluster, tasks):
            cluster.update(known(ONE))
            old = cluster.node(1)
            assert old is not None
            task = ask(old)
            await until(lambda: old.load == (0, 1))
            cluster.update(known(changed))
            new = cluster.node(1)
            assert new is not None
            assert new is not old
            assert new.where == f"{changed.host}:{changed.port}"
            with pytest.raises(ConnectionLost):
                await task
            await settle()
            assert "node 1 host1:9092" not in tasks.alive
            assert f"node 1 {changed.host}:{changed.port}" in tasks.alive

    run(main())


def test_a_broker_that_is_gone_is_closed() -> None:
    """And asked nothing more."""

    async def main() -> None:
        async with standing() as (cluster, tasks):
            cluster.update(known(ONE, TWO))
            cluster.update(known(TWO))
            await settle()
            assert cluster.node(1) is None
            assert "host1:9092" not in wheres(cluster.candidates())
            assert "node 1 host1:9092" not in tasks.alive

    run(main())


def test_the_least_loaded_is_asked_first() -> None:
    """Fewest failures, then fewest requests in flight."""

    async def main() -> None:
        async def refuse_host1(_dial: int) -> None:
            if dialer.dials[-1][1] == "host1":
                raise ConnectionRefusedError

        dialer = ScriptedDialer(refuse_host1)
        async with standing(dialer) as (cluster, _):
            cluster.update(known(ONE, TWO, THREE))
            one, two = cluster.node(1), cluster.node(2)
            assert one is not None
            assert two is not None
            with pytest.raises(ConnectionLost):
                await ask(one)
            task = ask(two)
            await until(lambda: two.load == (0, 1))
            for _ in range(4):
                assert wheres(cluster.candidates())[:3] == ["host3:9092", "host2:9092", "host1:9092"]
            cluster.close(now=False)
            with pytest.raises(ConnectionLost):
                await task

    run(main())


def test_equally_loaded_ones_take_turns() -> None:
    """One broker does not get all the questions."""

    async def main() -> None:
        async with standing() as (cluster, _):
            cluster.update(known(ONE, TWO, THREE))
            assert {wheres(cluster.candidates())[0] for _ in range(3)} == {"host1:9092", "host2:9092", "host3:9092"}

    run(main())


def test_bootstrap_connections_are_closed_when_brokers_are_known() -> None:
    """They would stand idle; one that is still asked something stays until it has answered."""

    async def main() -> None:
        async with FakeCluster(brokers=2, memory=True) as fake:
            async with standing(fake.network, *fake.bootstrap_servers.split(",")) as (cluster, _):
                first, second = cluster.candidates()
                await ask(first)
                hang = fake.hang("Metadata", times=1)
                task = ask(second)
                await fake.seen("Metadata", 2)
                cluster.update({})
                await settle()
                assert first.control.connection is not None, "nobody else is known yet"
                cluster.update(known(*(Broker(number, broker.host, broker.port) for number, broker in fake.brokers.items())))
                await settle()
                assert first.control.connection is None
                assert second.control.connection is not None
                hang.release()
                assert (await task).decode().cluster_id == fake.cluster_id
                assert wheres(cluster.candidates())[2:] != [], "they are the last resort, and can be asked again"
                assert (await ask(first)).decode().cluster_id == fake.cluster_id
            await settle()

    run(main())


@pytest.mark.parametrize("at_once", [False, True], ids=["close", "abort"])
def test_closing_ends_every_node(*, at_once: bool) -> None:
    """At once or when what is written has left."""

    async def main() -> None:
        dialer = ScriptedDialer()
        async with standing(dialer, "boot:1") as (cluster, tasks):
            cluster.update(known(ONE))
            nodes = cluster.candidates()
            questions = [ask(node) for node in nodes]
            await until(lambda: len(dialer.streams) == 2 and all(node.load == (0, 1) for node in nodes))
            cluster.close(now=at_once)
            for question in questions:
                with pytest.raises(ConnectionLost):
                    await question
            await settle()
            assert [stream.aborted for stream in dialer.streams] == [at_once] * 2
            assert tasks.alive == []

    run(main())
