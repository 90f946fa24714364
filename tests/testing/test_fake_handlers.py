"""Tests of `aioproducer.testing.handlers`: what each request is answered, in which version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_requests import TIME, batch, fetch, produce, topic

from aioproducer.errors import ConnectionLost
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient
from aioproducer.testing.handlers import HANDLERS
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

import pytest_asyncio

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def kafka(cluster: FakeCluster) -> AsyncIterator[WireClient]:
    """A client that knows the brokers' addresses."""
    async with WireClient(cluster.bootstrap_servers, dialer=cluster.network) as client:
        await client.metadata()
        yield client


def topic_id(cluster: FakeCluster, name: str = "orders") -> bytes:
    return cluster.topics.existing(name).topic_id


# --- Produce


@pytest.mark.parametrize("version", range(3, 14))
async def test_produce_in_every_version(
    cluster: FakeCluster, kafka: WireClient, version: int
) -> None:
    """A request names the topic by name, and from version 13 on by id."""
    place = {"name": "", "topic_id": topic_id(cluster)} if version >= 13 else {"name": "orders"}
    answers = [
        await produce(kafka, batch(value), version=version, **place) for value in (b"a", b"b")
    ]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1)]
    assert cluster.values("orders") == [b"a", b"b"]


async def test_produce_says_why_it_refuses(cluster: FakeCluster, kafka: WireClient) -> None:
    """Codes as Kafka's, a message from version 8 on, nothing appended."""
    bad = bytearray(batch(b"value"))
    bad[-1] ^= 1
    cases = {2: bytes(bad), 87: batch(b"a") + batch(b"b"), 10: batch(b"x" * 1_048_588)}
    for code, sent in cases.items():
        answer = await produce(kafka, sent)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (code, -1, -1)
        assert answer.error_message
    assert (await produce(kafka, None, version=7)).error_message is None
    assert cluster.values("orders") == []


@pytest.mark.parametrize("version", [9, 10, 13])
async def test_a_wrong_leader_names_the_right_one(
    cluster: FakeCluster, kafka: WireClient, version: int
) -> None:
    """From version 10 on, with its address (KIP-951)."""
    cluster.move_leader("orders", 0, to=2)
    place = ("", topic_id(cluster)) if version >= 13 else ("orders", bytes(16))
    answer = await kafka.ask(
        ApiKey.PRODUCE,
        node=1,
        version=version,
        acks=-1,
        topics=[topic(place[0], {0: batch(b"a")}, place[1])],
    )
    partition = answer.topics[0].partitions[0]
    assert partition.error_code == 6
    named = (partition.current_leader.leader_id, partition.current_leader.leader_epoch)
    endpoints = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
    if version < 10:
        assert (named, endpoints) == ((-1, -1), [])
    else:
        assert (named, endpoints) == (
            (2, 1),
            [(2, cluster.brokers[2].host, cluster.brokers[2].port)],
        )
    assert cluster.values("orders") == []


async def test_a_scripted_wrong_leader_names_nobody(
    cluster: FakeCluster, kafka: WireClient
) -> None:
    """The broker is the leader: it could only name itself."""
    cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    answer = await produce(kafka, batch(b"a"), version=12)
    assert (answer.error_code, answer.current_leader.leader_id) == (6, -1)


async def test_every_request_that_we_know_is_answered() -> None:
    """Scripted or not."""
    assert HANDLERS.keys() == set(ApiKey)


# --- Metadata


@pytest.mark.parametrize("version", range(14))
async def test_metadata_in_every_version(
    cluster: FakeCluster, kafka: WireClient, version: int
) -> None:
    """Brokers and one topic, as far as the version tells."""
    cluster.brokers[2].rack = "b"
    asked = [message("Metadata.request.topics", name="orders")]
    answer = await kafka.ask(ApiKey.METADATA, version=version, topics=asked)
    assert [(node.node_id, node.port) for node in answer.brokers] == [
        (node.node_id, node.port) for node in cluster.brokers.values()
    ]
    assert [node.rack for node in answer.brokers] == [None, "b" if version >= 1 else None]
    (found,) = answer.topics
    assert (found.error_code, found.name, found.topic_id) == (
        0,
        "orders",
        topic_id(cluster) if version >= 10 else bytes(16),
    )
    partitions = [
        (p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
        for p in found.partitions
    ]
    epoch = 0 if version >= 7 else -1
    assert partitions == [(0, 1, epoch, (1, 2), (1, 2)), (1, 2, epoch, (2, 1), (2, 1))]
    assert (answer.controller_id, answer.cluster_id) == (
        1 if version >= 1 else -1,
        cluster.cluster_id if version >= 2 else None,
    )


async def test_all_topics_or_none(cluster: FakeCluster, kafka: WireClient) -> None:
    """Null is all; the empty list is none, but in version 0 it is all."""
    cluster.create_topic("returns")
    for version, asked, names in [
        (0, [], ["orders", "returns"]),
        (1, None, ["orders", "returns"]),
        (1, [], []),
        (13, [], []),
    ]:
        answer = await kafka.ask(ApiKey.METADATA, version=version, topics=asked)
        assert [found.name for found in answer.topics] == names


async def test_topics_by_id(cluster: FakeCluster, kafka: WireClient) -> None:
    """From version 12 on without a name; an unknown id is told as such."""
    asked = [
        message("Metadata.request.topics", topic_id=one, name=None)
        for one in (topic_id(cluster), b"x" * 16)
    ]
    known, unknown = (await kafka.ask(ApiKey.METADATA, topics=asked)).topics
    assert (known.name, known.error_code, len(known.partitions)) == ("orders", 0, 2)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, b"x" * 16, 100)


# --- Fetch


@pytest.mark.parametrize("version", range(4, 18))
async def test_fetch_in_every_version(
    cluster: FakeCluster, kafka: WireClient, version: int
) -> None:
    """Fetch serves the bytes that were sent, byte for byte after the stamp."""
    sent = batch(b"a", b"b")
    await produce(kafka, sent)
    by_id = {"name": "", "topic_id": topic_id(cluster)} if version >= 13 else {}
    answer = await fetch(kafka, {0: 0}, version=version, **by_id)
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (
        0,
        2,
        2,
    )
    assert partition.records[16:] == sent[16:]


async def test_fetch_names_the_right_leader(cluster: FakeCluster, kafka: WireClient) -> None:
    """With its epoch, and from version 16 on with its address; test_strictness has what is refused."""
    wrong = (await fetch(kafka, {1: 0})).responses[0].partitions[0]
    assert (
        wrong.error_code,
        wrong.current_leader.leader_id,
        wrong.current_leader.leader_epoch,
    ) == (6, 2, 0)
    answer = await fetch(kafka, {1: 0}, "", version=16, topic_id=topic_id(cluster))
    assert [node.port for node in answer.node_endpoints] == [cluster.brokers[2].port]


async def test_fetch_fails_as_scripted(cluster: FakeCluster, kafka: WireClient) -> None:
    """At once, although there is nothing to give."""
    cluster.fail("Fetch", "KAFKA_STORAGE_ERROR")
    answer = await fetch(kafka, {0: 0}, max_wait_ms=100_000)
    assert answer.responses[0].partitions[0].error_code == 56


async def test_a_waiting_fetch_dies_with_its_connection(
    cluster: FakeCluster, kafka: WireClient
) -> None:
    """Nothing watches the log any more."""
    waiting = asyncio.ensure_future(fetch(kafka, {0: 0}, max_wait_ms=100_000))
    await cluster.seen("Fetch")
    assert cluster.log("orders", 0).watchers
    cluster.disconnect_all()
    with pytest.raises(ConnectionLost):
        await waiting
    assert not cluster.log("orders", 0).watchers


async def test_fetch_keeps_to_max_bytes(cluster: FakeCluster, kafka: WireClient) -> None:
    """`max_bytes` bounds the whole answer. The broker serves the first batch at any size."""
    cluster.move_leader("orders", 1, to=1)
    for partition in (0, 1):
        await produce(kafka, batch(b"x" * 1000), partition=partition)
    answer = await fetch(kafka, {0: 0, 1: 0}, max_bytes=10)
    assert [bool(partition.records) for partition in answer.responses[0].partitions] == [
        True,
        False,
    ]


# --- ListOffsets, FindCoordinator


@pytest.mark.parametrize("version", range(1, 10))
async def test_offsets_by_time(kafka: WireClient, version: int) -> None:
    """Earliest, latest, at or after a time, after all."""
    await produce(kafka, batch(b"a", b"b", b"c"))
    found = {}
    for timestamp in (-2, -1, TIME + 1, TIME + 9, *((-3,) if version >= 7 else ())):
        wanted = message(
            "ListOffsets.request.topics.partitions", partition_index=0, timestamp=timestamp
        )
        asked = message("ListOffsets.request.topics", name="orders", partitions=[wanted])
        answer = await kafka.ask(
            ApiKey.LIST_OFFSETS, version=version, replica_id=-1, topics=[asked]
        )
        partition = answer.topics[0].partitions[0]
        assert partition.error_code == 0
        found[timestamp] = (partition.timestamp, partition.offset)
    newest = {-3: (TIME + 2, 2)} if version >= 7 else {}
    assert found == {-2: (-1, 0), -1: (-1, 3), TIME + 1: (TIME + 1, 1), TIME + 9: (-1, -1)} | newest


@pytest.mark.parametrize("version", range(7))
async def test_a_coordinator_is_found(
    cluster: FakeCluster, kafka: WireClient, version: int
) -> None:
    """The first broker, alone or for several keys."""
    asked: dict[str, Any] = {"coordinator_keys": ["a", "b"]} if version >= 4 else {}
    answer = await kafka.ask(ApiKey.FIND_COORDINATOR, version=version, **asked)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(one.error_code, one.node_id, one.port) for one in found] == [
        (0, 1, cluster.brokers[1].port)
    ] * (2 if version >= 4 else 1)
