"""Tests of `aioproducer.net.cluster`: which nodes there are, and which of them is asked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from jumping import jumping, settle, until
from nodes import Tasks
from scripted import ScriptedDialer, settings

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.errors import ConnectionLost
from aioproducer.net.cluster import Cluster, Standing
from aioproducer.testing import FakeCluster
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.net.cluster import BrokerNode

ONE, TWO, THREE = (Broker(number, f"host{number}", 9092) for number in (1, 2, 3))


def known(*brokers: Broker) -> dict[int, Broker]:
    return {broker.node_id: broker for broker in brokers}


@contextlib.asynccontextmanager
async def standing(
    dialer: Any = None, *addresses: str, **changes: Any
) -> AsyncIterator[tuple[Cluster, Tasks]]:
    """A cluster; when it is closed no task is left."""
    tasks = Tasks()
    cluster = Cluster(
        addresses or ("boot:1", "boot:2"),
        settings(dialer or ScriptedDialer(), **changes),
        tasks.spawn,
        lambda _: None,
    )
    try:
        yield cluster, tasks
    finally:
        cluster.close(now=True)
        await tasks.end()


def wheres(nodes: list[BrokerNode]) -> list[str]:
    return [node.where for node in nodes]


def ask(node: BrokerNode) -> asyncio.Task[Any]:
    return asyncio.ensure_future(
        node.call(ApiKey.METADATA, lambda _: message("Metadata.request", topics=[]), timeout=30.0)
    )


@jumping
async def test_before_any_answer_the_bootstrap_addresses_take_turns() -> None:
    """So that one that is silent does not stand before the others for ever."""
    async with standing(None, "a:1", "b:2", "c:3") as (cluster, tasks):
        rounds = [wheres(cluster.candidates()) for _ in range(6)]
        assert all(sorted(each) == ["a:1", "b:2", "c:3"] for each in rounds)
        assert {each[0] for each in rounds[:3]} == {"a:1", "b:2", "c:3"}
        assert rounds[:3] == rounds[3:]
        assert tasks.started == [], "a node that nobody asks needs no task"


@pytest.mark.parametrize(
    ("address", "dialled"),
    [("host:1", ("host", 1)), ("[::1]:9092", ("::1", 9092)), ("10.0.0.1:80", ("10.0.0.1", 80))],
)
@jumping
async def test_a_bootstrap_address_is_dialled_as_written(
    address: str, dialled: tuple[str, int]
) -> None:
    """Without the brackets that part an IPv6 address from its port."""
    dialer = ScriptedDialer()
    async with standing(dialer, address) as (cluster, _):
        task = ask(cluster.candidates()[0])
        await until(lambda: dialer.dials)
        assert dialer.dials[0][1:] == dialled
        cluster.close(now=True)
        with pytest.raises(ConnectionLost):
            await task


@jumping
async def test_brokers_that_are_told_again_stay() -> None:
    """Their connections too; a rack is not an address."""
    async with standing() as (cluster, _):
        cluster.update(known(ONE, TWO))
        one = cluster.node(1)
        cluster.update(known(ONE._replace(rack="moved"), TWO))
        assert cluster.node(1) is one
        assert one is not None
        one.produce.request_connection()
        await settle()
        cluster.update(known(ONE, TWO))
        assert one.is_ready


@jumping
async def test_the_least_loaded_is_asked_first() -> None:
    """NET-22: connected nodes come first, the one with the fewest requests in flight leading.

    Then come nodes that are alive, then those not tried yet.
    """
    four = Broker(4, "host4", 9092)
    async with standing() as (cluster, _):
        cluster.update(known(ONE, TWO, THREE, four))
        one, two, three = (cluster.node(number) for number in (1, 2, 3))
        assert one is not None
        assert two is not None
        assert three is not None
        one.produce.request_connection()
        tasks = [ask(two), ask(two), ask(three)]
        await until(
            lambda: (two.load, three.load) == ((Standing.CONNECTED, 2), (Standing.CONNECTED, 1))
        )
        for _ in range(4):
            assert wheres(cluster.candidates()) == [
                "host3:9092",
                "host2:9092",
                "host1:9092",
                "host4:9092",
            ]
        cluster.close(now=False)
        for task in tasks:
            with pytest.raises(ConnectionLost):
                await task


@jumping
async def test_who_pauses_or_throttles_is_not_asked() -> None:
    """The cluster asks no node in backoff and no throttled node while there are others. A node that hangs while it connects comes last."""

    async def before(dial: int) -> None:
        match dialer.dials[dial - 1][1]:
            case "host1":
                raise ConnectionRefusedError
            case "host2":
                await asyncio.Event().wait()

    dialer = ScriptedDialer(before)
    four = Broker(4, "host4", 9092)
    async with standing(dialer) as (cluster, _):
        cluster.update(known(ONE, TWO, THREE, four))
        one, two, three = (cluster.node(number) for number in (1, 2, 3))
        assert one is not None
        assert two is not None
        assert three is not None
        tasks = [ask(one), ask(two)]
        three.throttle(1000)
        await settle()
        assert wheres(cluster.candidates()) == ["host4:9092", "host2:9092"]
        await asyncio.sleep(0.06)
        for _ in range(4):
            assert wheres(cluster.candidates()) == ["host4:9092", "host1:9092", "host2:9092"], (
                "its pause is over; it was tried once"
            )
        await asyncio.sleep(1)
        assert set(wheres(cluster.candidates())) == {
            "host1:9092",
            "host2:9092",
            "host3:9092",
            "host4:9092",
        }
        cluster.close(now=True)
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("rebootstraps", [True, False], ids=["rebootstrap", "none"])
@jumping
async def test_only_when_all_brokers_pause_the_bootstrap_addresses_are_asked_again(
    *, rebootstraps: bool
) -> None:
    """KIP-899, `metadata_recovery_strategy`; a broker that throttles is no broker that is gone."""

    async def refuse_hosts(dial: int) -> None:
        if dialer.dials[dial - 1][1].startswith("host"):
            raise ConnectionRefusedError

    dialer = ScriptedDialer(refuse_hosts)
    async with standing(dialer, "boot:1", rebootstraps=rebootstraps) as (cluster, _):
        cluster.update(known(ONE, TWO))
        one, two = cluster.node(1), cluster.node(2)
        assert one is not None
        assert two is not None
        two.throttle(10)
        with pytest.raises(ConnectionLost):
            await ask(one)
        assert wheres(cluster.candidates()) == []
        await asyncio.sleep(0.02)
        with pytest.raises(ConnectionLost):
            await ask(two)
        assert wheres(cluster.candidates()) == (["boot:1"] if rebootstraps else [])
        await asyncio.sleep(1)
        assert sorted(wheres(cluster.candidates())) == ["host1:9092", "host2:9092"]


@jumping
async def test_to_bootstrap_again_forgets_every_broker() -> None:
    """KIP-1102: also the bootstrap addresses are dialled anew, as their names may stand for others by now."""
    dialer = ScriptedDialer()
    async with standing(dialer, "boot:1") as (cluster, _):
        (first,) = cluster.bootstrap
        tasks = [ask(first)]
        await until(lambda: first.load == (Standing.CONNECTED, 1))
        cluster.update(known(ONE))
        one = cluster.node(1)
        assert one is not None
        tasks += [ask(one)]
        await until(lambda: one.load == (Standing.CONNECTED, 1))
        assert cluster.rebootstrap()
        for task in tasks:
            with pytest.raises(ConnectionLost):
                await task
        assert cluster.node(1) is None
        assert wheres(cluster.candidates()) == ["boot:1"]
        assert cluster.candidates() != [first]
        cluster.close(now=True)
        assert not cluster.rebootstrap()
        cluster.update(known(ONE))
        assert cluster.node(1) is None


@jumping
async def test_equally_loaded_ones_take_turns() -> None:
    """One broker does not get all the questions."""
    async with standing() as (cluster, _):
        cluster.update(known(ONE, TWO, THREE))
        assert {wheres(cluster.candidates())[0] for _ in range(3)} == {
            "host1:9092",
            "host2:9092",
            "host3:9092",
        }


@jumping
async def test_bootstrap_connections_are_closed_when_brokers_are_known() -> None:
    """They would stand idle; one that is still asked something stays until it has answered."""
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
            cluster.update(
                known(
                    *(
                        Broker(number, broker.host, broker.port)
                        for number, broker in fake.brokers.items()
                    )
                )
            )
            await settle()
            assert first.control.connection is None
            assert second.control.connection is not None
            hang.release()
            assert (await task).decode().cluster_id == fake.cluster_id
            assert first in cluster.bootstrap, "they are the last resort, and can be asked again"
            assert (await ask(first)).decode().cluster_id == fake.cluster_id
        await settle()


@jumping
async def test_a_feature_is_the_newest_views() -> None:
    """The feature level is that of the newest connection that is open. It is None while no connection is open (KIP-584)."""
    async with (
        FakeCluster(2, memory=True, transaction_version=1) as fake,
        standing(fake.network, *fake.bootstrap_servers.split(",")) as both,
    ):
        cluster, _ = both
        assert cluster.feature("transaction.version") is None
        first, second = cluster.bootstrap
        await ask(first)
        assert cluster.feature("transaction.version") == 1
        assert cluster.feature("no.such.feature") == 0
        fake.transaction_version = 2
        assert cluster.feature("transaction.version") == 1  # told when the connection was made
        await ask(second)
        assert cluster.feature("transaction.version") == 2
        fake.brokers[2].disconnect_all()
        await until(lambda: second.control.connection is None)
        assert cluster.feature("transaction.version") == 1
        fake.disconnect_all()
        await until(lambda: first.control.connection is None)
        assert cluster.feature("transaction.version") is None
