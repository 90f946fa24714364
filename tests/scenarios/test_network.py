"""Addresses, names and connections of a whole producer, beside the rows 1-4, 9-11, 21, 27, 28, 47 and 48 of tests/tools/faults."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING, Any

import pytest
from whole import Names, jumping, now, running, turns

from aioproducer import Producer
from aioproducer.errors import (
    BootstrapFailed,
    ConnectionLost,
    DeliveryError,
    MetadataTimeout,
    Persisted,
)
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    pass


@pytest.mark.parametrize("wrong", [False, True], ids=["refused", "hangs"])
@jumping
async def test_start_says_of_every_address_why_it_failed(*, wrong: bool) -> None:
    """Row 2: `start` fails within max_block_ms and leaves nothing. Row 3: the error has all addresses of a name, and
    the resolver's own text.
    """
    async with FakeCluster(brokers=2, memory=True) as cluster:
        if wrong:
            await cluster.brokers[1].vanish()
        else:
            await cluster.brokers[1].stop()
        await cluster.brokers[2].stop()
        before = asyncio.all_tasks()
        names = Names(several=["10.0.0.1", "10.0.0.2"], unknown=[])
        servers = f"{cluster.bootstrap_servers},several:1,unknown:2"
        producer = Producer(
            bootstrap_servers=servers, dialer=cluster.network, resolver=names, max_block_ms=20_000
        )
        began = now()
        with pytest.raises(BootstrapFailed) as raised:
            await producer.start()
        assert now() - began == pytest.approx(20)
        text = str(raised.value)
        first = "no usable connection within" if wrong else "nobody listens"
        for where, why in [
            ("broker-1.memory:9092", first),
            ("broker-2.memory:9092", "nobody listens"),
            ("several:1 (10.0.0.1)", "nobody listens"),
            ("several:1 (10.0.0.2)", "nobody listens"),
            ("unknown:2", "Name or service not known"),
        ]:
            assert any(
                part.startswith(where) and why in part
                for part in text.removeprefix("no broker could be reached within 20 s. ").split(
                    "; "
                )
            )
        assert asyncio.all_tasks() == before


@jumping
async def test_a_send_that_found_no_broker_to_ask_says_why() -> None:
    """All brokers are down. The error says so, and not only that the topic was not found."""
    async with running(max_block_ms=3000) as (cluster, producer):
        await cluster.brokers[1].stop()
        with pytest.raises(
            MetadataTimeout, match=r"nobody listens on broker-1\.memory:9092"
        ) as raised:
            await producer.send("new", b"v")
        assert isinstance(raised.value.__cause__, ConnectionLost)
        await cluster.brokers[1].start()


@jumping
async def test_every_address_of_a_name_is_tried() -> None:
    """Row 3: the first address is dead, the second a black hole, and the third is the broker. The producer reaches the broker."""
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.move_leader("orders", 0, 2)
        await cluster.brokers[1].vanish()
        names = Names(kafka=["10.0.0.1", "broker-1.memory", "broker-2.memory"])
        began = now()
        async with Producer(
            bootstrap_servers="kafka:9092", dialer=cluster.network, resolver=names
        ) as producer:
            await producer.send_and_wait("orders", b"v")
            assert now() - began < 15, "about ten seconds for the black hole, once"


@jumping
async def test_a_black_hole_holds_up_no_other_broker() -> None:
    """Row 4: a connection attempt has 10 s, then 20 s, then 30 s. The Sender sends to other brokers at once, and metadata comes as well."""
    async with running(brokers=2, delivery_timeout_ms=200000) as (cluster, producer):
        dials: list[float] = []
        network: Any = cluster.network
        dial = network.dial

        async def watch(host: str, port: int, receiver: Any) -> Any:
            if host == "broker-1.memory":
                dials.append(now())
            return await dial(host, port, receiver)

        network.dial = watch
        await cluster.brokers[1].vanish()
        stuck = await producer.send("orders", b"1", partition=0)
        for number in range(90):
            began = now()
            await producer.send_and_wait("orders", b"%d" % number, partition=1)
            assert now() - began < 0.1
            await asyncio.sleep(1)
        pauses = [later - earlier for earlier, later in itertools.pairwise(dials)]
        assert all(pause <= 37 for pause in pauses)
        assert max(pauses) > 23
        await cluster.brokers[1].start()
        await stuck


@jumping
async def test_a_hanging_dial_for_records_holds_up_no_metadata_of_the_same_broker() -> None:
    """The producer finds a new topic while the other connection's dial hangs."""
    async with running() as (cluster, producer):
        network: Any = cluster.network
        dial, dials = network.dial, []

        async def hang_at_first(*where: Any) -> Any:
            dials.append(now())
            if len(dials) == 1:
                await asyncio.Event().wait()
            return await dial(*where)

        await producer.send_and_wait("orders", b"1")
        cluster.disconnect_all()
        await asyncio.sleep(1)
        network.dial = hang_at_first
        cluster.create_topic("new")
        delivery = await producer.send("orders", b"2")
        await turns(10)
        began = now()
        await producer.send("new", b"v")
        assert (now(), len(dials)) == (began, 2)
        assert not delivery.done()
        await delivery


@jumping
async def test_a_broker_that_closes_idle_connections_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Row 9: the next send uses a new connection at once. The caller sees no error, and the producer logs nothing."""
    async with running(connections_max_idle_ms=0) as (cluster, producer):
        await producer.send_and_wait("orders", b"1")
        await asyncio.sleep(600)
        for connection in tuple(cluster.brokers[1].connections):
            connection._transport.close()
        await turns(10)
        began = now()
        await producer.send_and_wait("orders", b"2")
        assert now() == began
        assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@jumping
async def test_idle_connections_are_closed_here_first() -> None:
    """Row 10: the producer closes an idle connection before the broker's ten minutes end. A send at that moment uses a new one."""
    async with running(metadata_max_age_ms=100_000_000) as (cluster, producer):
        await producer.send_and_wait("orders", b"1")
        await asyncio.sleep(539)
        assert cluster.brokers[1].connections
        await asyncio.sleep(0.999)
        deliveries = []
        for number in range(20):
            deliveries.append(await producer.send("orders", b"%d" % number))
            await asyncio.sleep(0.0001)
        for delivery in deliveries:
            await delivery
        await asyncio.sleep(600)
        assert not cluster.brokers[1].connections
        began = now()
        await producer.send_and_wait("orders", b"again")
        assert now() == began
        assert len(cluster.values("orders")) == 22


@jumping
async def test_a_connection_in_use_is_never_idle() -> None:
    """The producer keeps the connection, no matter how long the broker takes to respond."""
    async with running(connections_max_idle_ms=1000, request_timeout_ms=60_000) as (
        cluster,
        producer,
    ):
        cluster.delay("Produce", 30, times=1)
        await producer.send_and_wait("orders", b"v")
        assert cluster.values("orders") == [b"v"]
        assert len(cluster.requests("Produce")) == 1


@jumping
async def test_an_advertised_address_that_is_wrong_is_in_the_error() -> None:
    """Row 21: the error has the broker's number and address, so that the operator finds the mistake."""
    async with running(delivery_timeout_ms=31_000) as (cluster, producer):
        cluster.brokers[1].advertise("only-inside", 9093)
        with pytest.raises(DeliveryError) as raised:
            await producer.send_and_wait("orders", b"v")
        assert "only-inside:9093" in str(raised.value)
        assert "the address that the cluster advertises for broker 1" in str(raised.value)
        assert raised.value.persisted is Persisted.NO


async def move(cluster: FakeCluster, names: Names) -> None:
    """Give every broker another address, which the bootstrap name stands for from then on."""
    for number, broker in cluster.brokers.items():
        await broker.stop()
        broker._listens_on = (f"elsewhere-{number}", 9092)
        broker.advertise(f"elsewhere-{number}", 9092)
    await asyncio.sleep(5)
    for broker in cluster.brokers.values():
        await broker.start()
    names.names = {"kafka": ["elsewhere-1"]}


@jumping
async def test_a_transaction_without_records_goes_on_in_a_cluster_that_moved() -> None:
    """KIP-899: its coordinators are looked up at the bootstrap name. No record causes a request for metadata."""
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders")
        names = Names(kafka=["broker-1.memory"])
        options: dict[str, Any] = {
            "dialer": cluster.network,
            "resolver": names,
            "transactional_id": "tx",
        }
        async with Producer(bootstrap_servers="kafka:9092", **options) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"0")
            await producer.commit_transaction()
            await move(cluster, names)
            began = now()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({("orders", 0): 1}, "group")
            await producer.commit_transaction()
            assert now() - began < 3


@jumping
async def test_a_broker_that_closes_at_our_newest_handshake() -> None:
    """Row 47: after three attempts the producer uses the oldest versions."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.fail("ApiVersions", disconnect="before", times=2)
        began = now()
        async with running(cluster) as (_, producer):
            assert [request.version for request in cluster.requests("ApiVersions")][:3] == [4, 4, 0]
            await producer.send_and_wait("orders", b"v")
            assert now() - began < 1
