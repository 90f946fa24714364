"""Brokers that come back elsewhere, as pods do: at other addresses, behind names whose answers change. Addresses that they left lead nowhere."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from whole import Names, jumping, now, running, turns

from aioproducer import Producer
from aioproducer.errors import TransactionTimeout
from aioproducer.testing import FakeCluster
from aioproducer.transaction_resolver import TransactionResolver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def behind_a_name(
    **of_cluster: Any,
) -> AsyncIterator[tuple[FakeCluster, Names, dict[str, Any]]]:
    """Give a cluster of three brokers, the names, and the options of a client that knows the bootstrap name alone."""
    async with FakeCluster(brokers=3, memory=True, **of_cluster) as cluster:
        cluster.create_topic("orders", partitions=3)
        names = Names(kafka=[broker.host for broker in cluster.brokers.values()])
        yield (
            cluster,
            names,
            {"bootstrap_servers": "kafka:9092", "dialer": cluster.network, "resolver": names},
        )
        assert cluster.violations == []


def drop_packets(broker: Any) -> None:
    """Let nothing that a client sends over its open connections reach a broker."""
    for connection in broker.connections:
        connection._transport.pause_reading()


def go_silent(cluster: FakeCluster, *, resets: bool) -> None:
    """Let the addresses of all brokers lead nowhere: packets to them are dropped. With `resets`, the connections end before."""
    network: Any = cluster.network
    for broker in cluster.brokers.values():
        if resets:
            broker.disconnect_all()
        else:
            drop_packets(broker)
        network.silence(*broker.address)
        broker.is_running = False


async def come_back(cluster: FakeCluster, label: str = "new") -> list[str]:
    """Start all brokers at other addresses, with their numbers. Returns the hosts."""
    hosts = []
    for number, broker in cluster.brokers.items():
        broker._listens_on = (f"{label}-{number}", 9092)
        broker.advertise(f"{label}-{number}", 9092)
        # connections to the old addresses are not told
        broker.connections = {}
        await broker.start()
        hosts.append(f"{label}-{number}")
    return hosts


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


@jumping
async def test_after_a_restart_the_first_record_does_not_wait_for_the_old_address() -> None:
    """The connection ended while nothing was in flight. The leader has moved, and a dial to the old address takes ten seconds."""
    async with running(brokers=2, partitions=1) as (cluster, producer):
        await producer.send_and_wait("orders", b"1")
        cluster.move_leader("orders", 0, 2)
        one, network = cluster.brokers[1], cluster.network
        assert network is not None
        await one.stop()
        network.silence(*one.address)
        await asyncio.sleep(60)
        began = now()
        await producer.send_and_wait("orders", b"2")
        assert now() - began < 1
        assert cluster.values("orders") == [b"1", b"2"]


@jumping
async def test_a_rolling_restart_in_which_each_broker_gets_another_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Three pods, one after the other. No record fails, waits for long, or is there twice; a few lines are logged."""
    async with behind_a_name() as (cluster, names, options):
        waits, sent = [], 0
        async with Producer(**options) as producer:
            network: Any = cluster.network

            async def send_for(seconds: float) -> None:
                nonlocal sent
                until = now() + seconds
                while now() < until:
                    began = now()
                    await producer.send_and_wait("orders", b"%d" % sent, partition=sent % 3)
                    waits.append(now() - began)
                    sent += 1
                    await asyncio.sleep(0.5)

            await send_for(5)
            for number, broker in cluster.brokers.items():
                left = broker.address
                for partition in range(3):
                    if cluster.leader("orders", partition) == number:
                        cluster.move_leader("orders", partition, number % 3 + 1)
                await broker.stop()
                network.silence(*left)
                await send_for(20)
                broker._listens_on = (f"new-{number}", 9092)
                broker.advertise(f"new-{number}", 9092)
                await broker.start()
                names.names["kafka"] = [each.address[0] for each in cluster.brokers.values()]
                cluster.move_leader("orders", number - 1, number)
                await send_for(20)
        assert max(waits) < 2
        for partition in range(3):
            assert cluster.values("orders", partition) == [
                b"%d" % each for each in range(sent) if each % 3 == partition
            ]
        assert len(warnings(caplog)) < 20


@pytest.mark.parametrize("resets", [True, False], ids=["reset", "half-open"])
@jumping
async def test_all_addresses_lead_nowhere_at_once(
    caplog: pytest.LogCaptureFixture, *, resets: bool
) -> None:
    """KIP-899: only the bootstrap name leads back. Dials to the old addresses hang, so that the brokers never fail at the same time."""
    async with behind_a_name() as (cluster, names, options):
        async with Producer(**options) as producer:
            for partition in range(3):
                await producer.send_and_wait("orders", b"0", partition=partition)
            go_silent(cluster, resets=resets)
            deliveries = [
                await producer.send("orders", b"1", partition=partition) for partition in range(3)
            ]
            await asyncio.sleep(5)
            names.names["kafka"] = await come_back(cluster)
            began = now()
            await asyncio.gather(*deliveries)
            assert now() - began < (15 if resets else 45)
        assert [cluster.values("orders", partition) for partition in range(3)] == [[b"0", b"1"]] * 3
        assert len(warnings(caplog)) < 15


@jumping
async def test_many_brokers_whose_addresses_lead_nowhere_are_not_all_tried_first() -> None:
    """Each would take a second: few tell that all are gone."""
    async with FakeCluster(brokers=60, memory=True) as cluster:
        cluster.create_topic("orders")
        names = Names(kafka=["broker-1.memory"])
        options: dict[str, Any] = {"dialer": cluster.network, "resolver": names}
        async with Producer(bootstrap_servers="kafka:9092", **options) as producer:
            await producer.send_and_wait("orders", b"0")
            go_silent(cluster, resets=True)
            names.names["kafka"] = await come_back(cluster)
            began = now()
            await producer.send_and_wait("orders", b"1")
            assert now() - began < 10
        assert cluster.values("orders") == [b"0", b"1"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("resets", [True, False], ids=["reset", "half-open"])
@jumping
async def test_all_addresses_lead_nowhere_within_a_transaction(
    version: int, *, resets: bool
) -> None:
    """The records, the offsets and the commit go to the new addresses. Nothing is there twice, nothing is lost."""
    async with behind_a_name(transaction_version=version) as (cluster, names, options):
        options |= {"transactional_id": "tx", "transaction_timeout_ms": 300_000}
        async with Producer(**options) as producer:
            await producer.begin_transaction()
            for partition in range(3):
                await producer.send_and_wait("orders", b"0", partition=partition)
            go_silent(cluster, resets=resets)
            deliveries = [
                await producer.send("orders", b"1", partition=partition) for partition in range(3)
            ]
            await asyncio.sleep(5)
            names.names["kafka"] = await come_back(cluster)
            began = now()
            while True:
                try:
                    await producer.commit_transaction()
                except TransactionTimeout:
                    continue
                break
            assert now() - began < (20 if resets else 60)
            for delivery in deliveries:
                assert delivery.done()
                delivery.result()
            async with producer.transaction():
                await producer.send("orders", b"2", partition=0)
        assert cluster.values("orders", 1, isolation="read_committed") == [b"0", b"1"]
        assert cluster.values("orders", 0, isolation="read_committed") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("resets", [True, False], ids=["reset", "half-open"])
@jumping
async def test_a_resolver_whose_brokers_all_moved(*, resets: bool) -> None:
    """It finds them by the bootstrap name, within `max_block_ms`."""
    async with (
        behind_a_name() as (cluster, names, options),
        TransactionResolver(**options) as resolver,
    ):
        assert await resolver.committed_offset("group", "orders") is None
        await asyncio.sleep(90)
        go_silent(cluster, resets=resets)
        names.names["kafka"] = await come_back(cluster)
        began = now()
        assert await resolver.committed_offset("group", "orders") is None
        assert now() - began < (20 if resets else 50)


@jumping
async def test_a_bootstrap_name_whose_answers_become_right_later() -> None:
    """A headless service still names the old pods. They take the time of one attempt, not of one for each of them."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        network: Any = cluster.network
        for number in range(5):
            network.silence(f"10.0.0.{number}", 9092)
        names = Names(kafka=[f"10.0.0.{number}" for number in range(5)])
        options: dict[str, Any] = {"dialer": network, "resolver": names}
        producer: Producer[bytes, bytes] = Producer(bootstrap_servers="kafka:9092", **options)
        began = now()
        start = asyncio.ensure_future(producer.start())
        await asyncio.sleep(3)
        names.names["kafka"] = ["10.0.0.4", "broker-1.memory"]
        await start
        try:
            assert now() - began < 40
            await producer.send_and_wait("orders", b"v")
        finally:
            await producer.stop()


@jumping
async def test_a_name_that_does_not_resolve_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """The advertised name of a broker: 30 s. Records wait; the log has the resolver's text, and not often."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.brokers[1].advertise("pod-1", 9092)
        names = Names(**{"kafka": ["broker-1.memory"], "pod-1": ["broker-1.memory"]})
        options: dict[str, Any] = {"dialer": cluster.network, "resolver": names}
        async with Producer(bootstrap_servers="kafka:9092", **options) as producer:
            await producer.send_and_wait("orders", b"0")
            names.names.update({"kafka": [], "pod-1": []})
            cluster.disconnect_all()
            asked = names.asked
            deliveries = [await producer.send("orders", b"%d" % number) for number in range(1, 5)]
            await asyncio.sleep(30)
            assert names.asked - asked < 200
            names.names.update({"kafka": ["broker-1.memory"], "pod-1": ["broker-1.memory"]})
            began = now()
            await asyncio.gather(*deliveries)
            assert now() - began < 3
        assert cluster.values("orders") == [b"%d" % number for number in range(5)]
        told = warnings(caplog)
        assert any("Name or service not known" in each for each in told)
        assert len(told) < 12


@jumping
async def test_the_listeners_of_all_brokers_get_another_port() -> None:
    """The old ports refuse. The bootstrap address is a service's, which follows."""
    async with FakeCluster(brokers=3, memory=True) as cluster:
        cluster.create_topic("orders", partitions=3)
        network: Any = cluster.network
        network.alias("service", 9092, cluster.brokers[1].address)
        async with Producer(bootstrap_servers="service:9092", dialer=network) as producer:
            for partition in range(3):
                await producer.send_and_wait("orders", b"0", partition=partition)
            for broker in cluster.brokers.values():
                await broker.relocate()
            network.alias("service", 9092, cluster.brokers[1].address)
            began = now()
            await asyncio.gather(
                *[
                    await producer.send("orders", b"1", partition=partition)
                    for partition in range(3)
                ]
            )
            assert now() - began < 3
        assert [cluster.values("orders", partition) for partition in range(3)] == [[b"0", b"1"]] * 3


@jumping
async def test_a_nat_forgets_all_idle_connections(caplog: pytest.LogCaptureFixture) -> None:
    """It drops their packets without a word. The brokers are well: a new topic is found, records arrive, within `max_block_ms`."""
    async with running(brokers=3, partitions=3, metadata_max_age_ms=3_600_000) as (
        cluster,
        producer,
    ):
        for partition in range(3):
            await producer.send_and_wait("orders", b"0", partition=partition)
        for broker in cluster.brokers.values():
            node: Any = producer._engine.parts.cluster.node(broker.node_id)  # type: ignore[union-attr]
            await node.control.connected(1)
        await asyncio.sleep(250)
        for broker in cluster.brokers.values():
            drop_packets(broker)
        cluster.create_topic("new")
        began = now()
        await producer.send_and_wait("new", b"v")
        assert now() - began < 45
        began = now()
        await asyncio.gather(
            *[await producer.send("orders", b"1", partition=partition) for partition in range(3)]
        )
        assert now() - began < 35
        await turns(10)
    assert [cluster.values("orders", partition) for partition in range(3)] == [[b"0", b"1"]] * 3
    assert len(warnings(caplog)) < 10
