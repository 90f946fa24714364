"""Tests of `aioproducer.testing.cluster` and `broker`: the face, faults on the wire, life and death of brokers. On sockets and in memory."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import Any

import pytest
from fake_requests import batch, client, produce

from aioproducer.errors import ConnectionLost
from aioproducer.testing import FakeCluster
from aioproducer.wire.api import ApiKey

pytestmark = pytest.mark.asyncio


async def test_what_is_produced_is_there(cluster: FakeCluster) -> None:
    """Values by topic, by partition, with offsets, and as requests."""
    async with client(cluster) as kafka:
        await kafka.metadata()
        await produce(kafka, batch(b"a", b"b"), node=1)
        await produce(kafka, batch(None), partition=1, node=2)
    assert cluster.values("orders") == [b"a", b"b", None]
    assert cluster.values("orders", 0) == [b"a", b"b"]
    assert [record.offset for record in cluster.records("orders")] == [0, 1, 0]
    assert cluster.end_offsets("orders") == {0: 2, 1: 1}
    assert cluster.log("orders", 1).end_offset == 1
    asked = cluster.requests("Produce")
    assert [(request.broker, request.version, request.message.acks) for request in asked] == [
        (1, 9, -1),
        (2, 9, -1),
    ]
    assert asked[0].connection != asked[1].connection
    assert [request.api for request in cluster.requests()][:2] == ["ApiVersions", "Metadata"]
    assert cluster.violations == []
    with pytest.raises(ValueError, match=r"ordres.*orders"):
        cluster.values("ordres")


async def test_client_options_carry_the_dialer_in_memory_alone(cluster: FakeCluster) -> None:
    """`client_options` holds the options with which a producer reaches this cluster."""
    expected = {"bootstrap_servers": cluster.bootstrap_servers} | (
        {"dialer": cluster.network} if cluster.network else {}
    )
    assert cluster.client_options == expected


@pytest.mark.parametrize("memory", [False, True])
async def test_two_clusters_share_nothing(*, memory: bool) -> None:
    """Same topic, same time, other log."""
    async with FakeCluster(memory=memory) as one, FakeCluster(memory=memory) as other:
        one.create_topic("orders")
        other.create_topic("orders")
        async with client(one) as kafka:
            await produce(kafka, batch(b"a"))
            assert (await kafka.metadata()).cluster_id == one.cluster_id != other.cluster_id
        assert one.values("orders") == [b"a"]
        assert other.values("orders") == []


@pytest.mark.parametrize("memory", [False, True])
async def test_it_leaves_nothing_behind(*, memory: bool) -> None:
    """The cluster ends with clients connected and requests delayed or hanging. It leaves no task, no timer's effect, no open socket."""
    before = asyncio.all_tasks()
    async with FakeCluster(brokers=2, memory=memory) as cluster:
        cluster.create_topic("orders")
        cluster.delay("Metadata", 1000)
        cluster.hang("Produce")
        kafka = client(cluster)
        asking = [
            asyncio.ensure_future(kafka.ask(ApiKey.METADATA, topics=None)),
            asyncio.ensure_future(produce(kafka, batch(b"a"))),
            asyncio.ensure_future(cluster.seen("Fetch")),
        ]
        await cluster.seen("Metadata")
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionLost, ConnectionLost, RuntimeError]
    kafka.close()
    assert asyncio.all_tasks() == before
    assert cluster.values("orders") == []
    gc.collect()  # a socket that was left open is a ResourceWarning, and those are errors here
    with pytest.raises(ConnectionLost):
        await client(cluster).metadata()


async def test_a_stopped_broker_keeps_its_port(cluster: FakeCluster) -> None:
    """Refused, unknown to Metadata, without leadership; then back at the same address with its log."""
    async with client(cluster) as kafka:
        await kafka.metadata()
        await produce(kafka, batch(b"a"), partition=1, node=2)
        address = cluster.brokers[2].port
        await cluster.brokers[2].stop()
        await cluster.brokers[2].stop()
        with pytest.raises(ConnectionLost):
            await produce(kafka, batch(b"b"), partition=1, node=2)
        answer = await kafka.metadata()
        assert [broker.node_id for broker in answer.brokers] == [1]
        lost = answer.topics[0].partitions[1]
        assert (lost.error_code, lost.leader_id, lost.offline_replicas, lost.isr_nodes) == (
            5,
            -1,
            (2,),
            (1,),
        )
        await cluster.brokers[2].start()
        await cluster.brokers[2].start()
        assert cluster.brokers[2].port == address
        assert (await kafka.metadata()).topics[0].partitions[1].leader_id == 2
        await produce(kafka, batch(b"b"), partition=1, node=2)
    assert cluster.values("orders", 1) == [b"a", b"b"]


async def test_a_silently_stopped_broker_is_still_named(cluster: FakeCluster) -> None:
    """The cluster still names the stopped broker, as in the seconds before a cluster notices."""
    await cluster.brokers[2].stop(silently=True)
    async with client(cluster) as kafka:
        answer = await kafka.metadata()
        assert [broker.node_id for broker in answer.brokers] == [1, 2]
        assert answer.topics[0].partitions[1].leader_id == 2
        with pytest.raises(ConnectionLost):
            await produce(kafka, batch(b"b"), partition=1, node=2)


async def test_a_paused_broker_answers_when_it_goes_on(cluster: FakeCluster) -> None:
    """Nothing is read or written meanwhile; requests keep their order."""
    async with client(cluster) as kafka:
        await kafka.metadata()
        cluster.brokers[1].pause()
        asking = [
            asyncio.ensure_future(produce(kafka, batch(b"%d" % number))) for number in range(5)
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(one.done() for one in asking)
        assert cluster.requests("Produce") == []
        cluster.brokers[1].resume()
        assert [answer.base_offset for answer in await asyncio.gather(*asking)] == [0, 1, 2, 3, 4]
    assert cluster.values("orders", 0) == [b"0", b"1", b"2", b"3", b"4"]


async def test_answers_that_come_due_in_a_pause_are_held(cluster: FakeCluster) -> None:
    """A paused broker answers nothing, not even requests that it had already carried out."""
    async with client(cluster) as kafka:
        hang = cluster.hang("Produce", when="after")
        asking = asyncio.ensure_future(produce(kafka, batch(b"a")))
        await hang.reached()
        cluster.brokers[1].pause()
        hang.release()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not asking.done()
        cluster.brokers[1].resume()
        assert (await asking).base_offset == 0


async def test_a_paused_broker_fills_its_clients_buffers() -> None:
    """The client's transport is paused, as with a process that was stopped."""

    class Writer(asyncio.Protocol):
        def __init__(self) -> None:
            self.may_write = asyncio.Event()

        def pause_writing(self) -> None:
            self.may_write.clear()

        def resume_writing(self) -> None:
            self.may_write.set()

    async with FakeCluster(memory=True) as cluster:
        writer = Writer()
        assert cluster.network is not None
        stream = await cluster.network.dial(
            cluster.brokers[1].host, cluster.brokers[1].port, lambda: writer
        )
        cluster.brokers[1].pause()
        writer.may_write.set()
        stream.write(bytes(4_000_000))
        assert not writer.may_write.is_set()
        cluster.brokers[1].resume()
        await asyncio.wait_for(writer.may_write.wait(), 5)
        stream.abort()


async def test_leaders_move(cluster: FakeCluster) -> None:
    """A partition moves to another leader, or to no leader, with a greater epoch."""
    cluster.move_leader("orders", 0, to=2)
    assert cluster.leader("orders", 0) == 2
    async with client(cluster) as kafka:
        moved = (await kafka.metadata()).topics[0].partitions[0]
        assert (moved.leader_id, moved.leader_epoch) == (2, 1)
        await produce(kafka, batch(b"a"), node=2)
        cluster.move_leader("orders", 0, to=None)
        moved = (await kafka.metadata()).topics[0].partitions[0]
        assert (moved.error_code, moved.leader_id, moved.leader_epoch) == (5, -1, 2)
    assert [one.leader_epoch for one in cluster.log("orders", 0).batches()] == [1]
    with pytest.raises(ValueError, match="no broker 3"):
        cluster.move_leader("orders", 0, to=3)


# --- faults


async def test_apis_without_topics_fail_as_a_whole(cluster: FakeCluster) -> None:
    """ApiVersions and FindCoordinator."""
    cluster.fail("FindCoordinator", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    cluster.fail("ApiVersions", 42, times=2)
    kafka = client(cluster)
    with pytest.raises(ConnectionLost, match=r"INVALID_REQUEST.*INVALID_REQUEST"):
        await kafka.metadata()
    assert (await kafka.ask(ApiKey.FIND_COORDINATOR, version=3)).error_code == 14
    assert (await kafka.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=["group"])).coordinators[
        0
    ].error_code == 14
    found = (await kafka.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=["group"])).coordinators[0]
    assert (found.key, found.node_id, found.port) == ("group", 1, cluster.brokers[1].port)
    kafka.close()


@pytest.mark.parametrize(("when", "meanwhile"), [("before", []), ("after", [b"0"])])
async def test_a_hang_holds_until_its_release(
    cluster: FakeCluster, when: Any, meanwhile: list[bytes]
) -> None:
    """The hanging request holds back the requests behind it on the same connection."""
    hang = cluster.hang("Produce", when=when)
    async with client(cluster) as kafka:
        await kafka.metadata()
        asking = [
            asyncio.ensure_future(produce(kafka, batch(b"%d" % number))) for number in range(3)
        ]
        await hang.reached()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(one.done() for one in asking)
        assert cluster.values("orders") == meanwhile
        hang.release()
        await asyncio.gather(*asking)
    assert cluster.values("orders") == [b"0", b"1", b"2"]


async def test_a_hanging_request_dies_with_its_connection(cluster: FakeCluster) -> None:
    """A release does not carry out a request after its connection ended, not even in the same event-loop iteration."""
    hang = cluster.hang("Produce")
    async with client(cluster) as kafka:
        asking = asyncio.ensure_future(produce(kafka, batch(b"a")))
        await hang.reached()
        cluster.disconnect_all()
        hang.release()
        with pytest.raises(ConnectionLost):
            await asking
        assert (await produce(kafka, batch(b"b"))).base_offset == 0
    assert cluster.values("orders") == [b"b"]


async def test_faults_that_did_not_happen_are_told(cluster: FakeCluster) -> None:
    """A test that scripted them tested nothing."""
    cluster.assert_all_fired()
    cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="orders")
    with pytest.raises(AssertionError, match=r"error on Produce \(topic orders, times left 1\)"):
        cluster.assert_all_fired()


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("Produce",), {}),
        (("Produce", "REQUEST_TIMED_OUT"), {"disconnect": "before"}),
        (("Produce",), {"disconnect": "during"}),
        (("Prodcue", 7), {}),
        (("Produce", 7), {"broker": 9}),
        (("Produce", "NO_SUCH_ERROR"), {}),
        (("Produce", 7), {"times": 0}),
    ],
)
async def test_mistakes_in_a_fault_are_told(arguments: Any, options: Any) -> None:
    """Where they are made."""
    with pytest.raises(ValueError):
        FakeCluster().fail(*arguments, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"brokers": 0},
        {"versions": {"Produce": (3, 99)}},
        {"versions": {"Produce": (9, 8)}},
        {"versions": {"Nothing": (0, 1)}},
    ],
)
async def test_mistakes_in_a_cluster_are_told(options: Any) -> None:
    """A version that the fake cannot answer is not advertised."""
    with pytest.raises(ValueError):
        FakeCluster(**options)


async def test_waiting_for_requests(cluster: FakeCluster) -> None:
    """`seen` counts from the beginning; a test waits with it instead of sleeping."""
    async with client(cluster) as kafka:
        waiting = asyncio.ensure_future(cluster.seen("Metadata", 2))
        cancelled = asyncio.ensure_future(cluster.seen("Metadata", 2))
        await kafka.metadata()
        cancelled.cancel()
        assert not waiting.done()
        await kafka.metadata()
        await waiting
        await cluster.seen("Metadata", 2)
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_a_start_that_fails_leaves_nothing() -> None:
    """The first broker is stopped again when the second finds no port."""
    cluster = FakeCluster(brokers=2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cluster.brokers[2].port = taken.getsockname()[1]
        with pytest.raises(OSError):
            await cluster.__aenter__()
        assert not cluster.brokers[1].is_running
    gc.collect()
