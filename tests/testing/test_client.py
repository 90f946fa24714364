"""The wire client asks, waits while a cluster is not ready, and says clearly why there is no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.errors import BrokerError
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.asyncio


def connect(cluster: FakeCluster, **options: Any) -> WireClient:
    theirs = cluster.client_options
    return WireClient(theirs["bootstrap_servers"], dialer=theirs.get("dialer"), **options)


# against the fake cluster


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
