"""The wire client asks, waits while a cluster is not ready, and says clearly why there is no answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.errors import BrokerError, ConnectionLost, ProtocolError, RequestTimedOut
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient
from aioproducer.wire.api import CLIENT_VERSIONS, ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio


def connect(cluster: FakeCluster, **options: Any) -> WireClient:
    theirs = cluster.client_options
    return WireClient(theirs["bootstrap_servers"], dialer=theirs.get("dialer"), **options)


# against the fake cluster


@pytest.mark.parametrize("memory", [False, True], ids=["sockets", "memory"])
async def test_asks_over_any_dialer(*, memory: bool) -> None:
    """The client connects with sockets or with the given dialer, and asks in the highest common version."""
    async with FakeCluster(brokers=2, memory=memory) as cluster, connect(cluster) as client:
        cluster.create_topic("orders", 3)
        answer = await client.metadata(["orders"])
        assert sorted(broker.node_id for broker in answer.brokers) == [1, 2]
        assert [topic.name for topic in answer.topics] == ["orders"]
        assert cluster.requests("Metadata")[-1].version == CLIENT_VERSIONS[ApiKey.METADATA][1]


async def test_version_is_the_highest_common_or_the_one_that_is_asked_for() -> None:
    """An older broker is asked in its own version; a test may choose a lower one."""
    async with (
        FakeCluster(memory=True, versions={"Metadata": (0, 7)}) as cluster,
        connect(cluster) as client,
    ):
        await client.metadata()
        await client.ask(ApiKey.METADATA, version=1, topics=None)
        assert [request.version for request in cluster.requests("Metadata")] == [7, 1]


async def test_no_common_version() -> None:
    """A request that a broker does not know fails here, and is not sent."""
    async with FakeCluster(memory=True, version="0.10.2") as cluster, connect(cluster) as client:
        with pytest.raises(ProtocolError, match="the broker speaks InitProducerId in no version"):
            await client.ask(ApiKey.INIT_PRODUCER_ID)


async def test_end_offsets_come_from_each_leader() -> None:
    """Partitions of several brokers are asked of their own, and come back in order."""
    async with FakeCluster(brokers=3, memory=True) as cluster, connect(cluster) as client:
        cluster.create_topic("orders", 5)
        assert await client.end_offsets("orders") == [0] * 5
        assert {request.broker for request in cluster.requests("ListOffsets")} == {1, 2, 3}


async def test_end_offsets_wait_for_a_leader_that_does_not_know_yet() -> None:
    """A broker that is not leader yet, though Metadata says so, is asked again."""
    async with FakeCluster(memory=True) as cluster, connect(cluster) as client:
        cluster.create_topic("orders")
        cluster.fail("ListOffsets", error="NOT_LEADER_OR_FOLLOWER", times=2)
        assert await client.end_offsets("orders") == [0]
        assert len(cluster.requests("ListOffsets")) == 3
        cluster.assert_all_fired()


async def test_end_offsets_of_no_topic_fail_at_once() -> None:
    """A topic that is not there is an error without waiting, and is not created by asking."""
    async with FakeCluster(memory=True) as cluster, connect(cluster, timeout=3600) as client:
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await client.end_offsets("absent")
        assert len(cluster.requests("Metadata")) == 1


async def test_end_offsets_without_a_leader_fail_after_the_timeout() -> None:
    """A partition that gets no leader: the broker's error, once `timeout` is over."""
    async with FakeCluster(memory=True) as cluster, connect(cluster, timeout=0.1) as client:
        cluster.create_topic("orders")
        cluster.move_leader("orders", 0, None)
        with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE"):
            await client.end_offsets("orders")


async def test_no_answer() -> None:
    """A broker that hangs: RequestTimedOut that names the request; the next question goes over a new connection."""
    async with FakeCluster(memory=True) as cluster, connect(cluster, timeout=0.05) as client:
        cluster.hang("Metadata", times=1)
        with pytest.raises(RequestTimedOut, match=r"no answer to Metadata within 0\.05 s"):
            await client.metadata()
        await client.metadata()
        assert len({request.connection for request in cluster.requests()}) == 2


async def test_lost_connection() -> None:
    """A broker that hangs up: ConnectionLost, and a new connection for the next question."""
    async with FakeCluster(memory=True) as cluster, connect(cluster) as client:
        cluster.fail("Metadata", disconnect="before")
        with pytest.raises(ConnectionLost, match="the connection ended"):
            await client.metadata()
        await client.metadata()
        assert len({request.connection for request in cluster.requests()}) == 2


async def test_garbage_answers() -> None:
    """The client raises ProtocolError for an answer that it cannot decode."""
    async with FakeCluster(memory=True) as cluster, connect(cluster) as client:
        cluster.garbage("Metadata")
        with pytest.raises(ProtocolError):
            await client.metadata()


async def test_answer_to_no_question() -> None:
    """A wrong correlation id ends the connection. Every request that waits on the connection fails with the reason."""
    async with FakeCluster(memory=True) as cluster, connect(cluster) as client:
        cluster.wrong_correlation_id("Metadata")
        with pytest.raises(ProtocolError, match="an answer to no question"):
            await client.metadata()


async def test_cancelled_question_harms_no_other() -> None:
    """A cancelled request ends alone. The other request on the same connection still gets its answer."""
    async with FakeCluster(memory=True) as cluster, connect(cluster) as client:
        await client.metadata()
        hang = cluster.hang("Metadata")
        first, second = (
            asyncio.create_task(client.metadata()),
            asyncio.create_task(client.metadata()),
        )
        await cluster.seen("Metadata", 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        hang.release()
        assert (await second).brokers[0].node_id == 1
        assert len({request.connection for request in cluster.requests()}) == 1


async def test_closed_client_fails_who_waits() -> None:
    """Leaving the context ends what is asked."""
    async with FakeCluster(memory=True) as cluster:
        hang = cluster.hang("Metadata")
        async with connect(cluster) as client:
            asking = asyncio.create_task(client.metadata())
            await cluster.seen("Metadata")
        with pytest.raises(ConnectionLost, match="closed by this side"):
            await asking
        hang.release()


async def test_nobody_listens(unused_tcp_port_factory: Callable[[], int]) -> None:
    """Each address that was tried is named."""
    ports = unused_tcp_port_factory(), unused_tcp_port_factory()
    async with WireClient(f"127.0.0.1:{ports[0]}, 127.0.0.1:{ports[1]}") as client:
        with pytest.raises(ConnectionLost) as caught:
            await client.metadata()
    assert all(f"127.0.0.1:{port}" in str(caught.value) for port in ports)


async def test_second_address_is_tried(unused_tcp_port: int) -> None:
    """The first that accepts is asked."""
    async with (
        FakeCluster() as cluster,
        WireClient(f"127.0.0.1:{unused_tcp_port},{cluster.bootstrap_servers}") as client,
    ):
        assert (await client.metadata()).brokers


async def test_unknown_node() -> None:
    """A broker that Metadata did not name has no address."""
    async with FakeCluster(memory=True) as cluster, connect(cluster) as client:
        with pytest.raises(ConnectionLost, match="address of broker 7 is not known"):
            await client.ask(ApiKey.METADATA, node=7, topics=None)


# creating topics


async def test_create_topic_says_what_it_was_told() -> None:
    """Name, partitions, copies and options arrive; option values as text."""
    async with FakeCluster(brokers=3, memory=True) as cluster, connect(cluster) as client:
        await client.create_topic("orders", 2, {"retention.ms": -1}, replication_factor=3)
        topic = cluster.topics.existing("orders")
        assert [len(partition.replicas) for partition in topic.partitions] == [3, 3]
        assert topic.config == {"retention.ms": "-1"}


async def test_create_topic_waits_for_the_controller() -> None:
    """NOT_CONTROLLER and its like are asked again."""
    async with FakeCluster(memory=True) as cluster, connect(cluster) as client:
        for error in ("NOT_CONTROLLER", "REQUEST_TIMED_OUT"):
            cluster.fail("CreateTopics", error)
        await client.create_topic("orders")
        assert len(cluster.requests("CreateTopics")) == 3


async def test_create_topic_that_was_created_after_all() -> None:
    """TOPIC_ALREADY_EXISTS after REQUEST_TIMED_OUT is success; at the first attempt it is an error."""
    async with FakeCluster(memory=True) as cluster, connect(cluster) as client:
        cluster.create_topic("orders")
        with pytest.raises(BrokerError, match=r"TOPIC_ALREADY_EXISTS \(36\)"):
            await client.create_topic("orders")
        cluster.fail("CreateTopics", "REQUEST_TIMED_OUT")
        await client.create_topic("orders")


async def test_create_topic_waits_for_every_leader() -> None:
    """It returns only when Metadata shows all partitions and their leader knows of them."""
    async with FakeCluster(memory=True) as cluster, connect(cluster) as client:
        cluster.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="orders")
        cluster.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER")
        await client.create_topic("orders", 2)
        cluster.assert_all_fired()
        assert len(cluster.requests("Metadata")) == 3


async def test_create_topic_without_leaders() -> None:
    """Partitions that never come: the error counts them."""
    async with FakeCluster(memory=True) as cluster, connect(cluster, timeout=0.2) as client:
        cluster.omit("Metadata", topic="orders", partition=1, times=None)
        with pytest.raises(BrokerError, match="1 of 2 partitions of orders are there"):
            await client.create_topic("orders", 2)
