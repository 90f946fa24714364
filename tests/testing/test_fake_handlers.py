"""Tests of `aioproducer.testing.handlers`: what each request is answered, in which version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_requests import TIME, batch, fetch, produce, topic

from aioproducer.errors import ConnectionLost
from aioproducer.model import Compression
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
async def test_produce_in_every_version(cluster: FakeCluster, kafka: WireClient, version: int) -> None:
    """A request names the topic by name, and from version 13 on by id."""
    place = {"name": "", "topic_id": topic_id(cluster)} if version >= 13 else {"name": "orders"}
    answers = [await produce(kafka, batch(value), version=version, **place) for value in (b"a", b"b")]
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


async def test_a_topic_has_its_own_limit(cluster: FakeCluster, kafka: WireClient) -> None:
    """`max.message.bytes`."""
    cluster.create_topic("small", config={"max.message.bytes": 100})
    assert (await produce(kafka, batch(b"x" * 10), "small")).error_code == 0
    assert (await produce(kafka, batch(b"x" * 100), "small")).error_code == 10


async def test_log_append_time_is_answered() -> None:
    """With the wall clock that the cluster was given."""
    async with FakeCluster(wall_clock=lambda: 1234.5678) as cluster, WireClient(cluster.bootstrap_servers) as kafka:
        cluster.create_topic("orders", config={"message.timestamp.type": "LogAppendTime"})
        assert (await produce(kafka, batch(b"a"))).log_append_time_ms == 1_234_567
        assert cluster.records("orders")[0].timestamp_ms == 1_234_567


@pytest.mark.parametrize(("version", "code"), [(6, 76), (7, 87)])
async def test_zstd_needs_version_7(cluster: FakeCluster, kafka: WireClient, version: int, code: int) -> None:
    """Below version 7 the broker answers UNSUPPORTED_COMPRESSION_TYPE, even if the batch has other faults."""
    sent = batch(b"a", attributes=Compression.ZSTD, last_delta=5)
    assert (await produce(kafka, sent, version=version)).error_code == code


async def test_unknown_ids(cluster: FakeCluster, kafka: WireClient) -> None:
    """The broker does not know the id of a topic that was deleted and made again. The new id is known and its log is empty."""
    old = topic_id(cluster)
    cluster.delete_topic("orders")
    cluster.create_topic("orders")
    assert (await produce(kafka, batch(b"a"), "", version=13, topic_id=old)).error_code == 100
    assert (await produce(kafka, batch(b"a"), "", version=13)).error_code == 100
    assert (await produce(kafka, batch(b"a"), "", version=13, topic_id=topic_id(cluster))).base_offset == 0


@pytest.mark.parametrize("version", [9, 10, 13])
async def test_a_wrong_leader_names_the_right_one(cluster: FakeCluster, kafka: WireClient, version: int) -> None:
    """From version 10 on, with its address (KIP-951)."""
    cluster.move_leader("orders", 0, to=2)
    place = ("", topic_id(cluster)) if version >= 13 else ("orders", bytes(16))
    answer = await kafka.ask(ApiKey.PRODUCE, node=1, version=version, acks=-1, topics=[topic(place[0], {0: batch(b"a")}, place[1])])
    partition = answer.topics[0].partitions[0]
    assert partition.error_code == 6
    named = (partition.current_leader.leader_id, partition.current_leader.leader_epoch)
    endpoints = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
    if version < 10:
        assert (named, endpoints) == ((-1, -1), [])
    else:
        assert (named, endpoints) == ((2, 1), [(2, cluster.brokers[2].host, cluster.brokers[2].port)])
    assert cluster.values("orders") == []


async def test_a_scripted_wrong_leader_names_nobody(cluster: FakeCluster, kafka: WireClient) -> None:
    """The broker is the leader: it could only name itself."""
    cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    answer = await produce(kafka, batch(b"a"), version=12)
    assert (answer.error_code, answer.current_leader.leader_id) == (6, -1)


async def test_one_bad_partition_stops_no_other(cluster: FakeCluster, kafka: WireClient) -> None:
    """Each is answered for itself."""
    cluster.move_leader("orders", 1, to=1)
    sent = [topic("orders", {0: batch(b"a"), 1: batch(b"b", count=2), 9: batch(b"c")}), topic("nothing", {0: batch(b"d")})]
    answer = await kafka.ask(ApiKey.PRODUCE, version=9, acks=1, topics=sent)
    assert [[partition.error_code for partition in one.partitions] for one in answer.topics] == [[0, 0, 3], [3]]
    cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", partition=0)
    answer = await kafka.ask(ApiKey.PRODUCE, version=9, acks=1, topics=[topic("orders", {0: batch(b"e"), 1: batch(b"f")})])
    assert [partition.error_code for partition in answer.topics[0].partitions] == [19, 0]


async def test_acks_0_is_not_answered(cluster: FakeCluster, kafka: WireClient) -> None:
    """The next answer on the connection is the next request's; a failure closes the connection."""
    unanswered = asyncio.ensure_future(produce(kafka, batch(b"a"), acks=0))
    await cluster.seen("Produce")
    await kafka.metadata()
    assert cluster.values("orders") == [b"a"]
    assert not unanswered.done()
    with pytest.raises(ConnectionLost):
        await produce(kafka, batch(b"b"), "nothing", acks=0)
    with pytest.raises(ConnectionLost):
        await unanswered
    assert cluster.violations == []


async def test_every_request_that_we_know_is_answered() -> None:
    """Scripted or not."""
    assert HANDLERS.keys() == set(ApiKey)


async def test_older_brokers_can_be_imitated() -> None:
    """The broker closes the connection on a request in a version that it does not advertise."""
    async with FakeCluster(versions={"Produce": (3, 8), "Metadata": (0, 9)}) as cluster, WireClient(cluster.bootstrap_servers) as kafka:
        cluster.create_topic("orders")
        await kafka.metadata()
        assert cluster.requests("Metadata")[0].version == 9
        with pytest.raises(ConnectionLost):
            await produce(kafka, batch(b"a"), version=9)
        assert "request 0 in version 9" in cluster.violations[0].what


# --- Metadata


@pytest.mark.parametrize("version", range(14))
async def test_metadata_in_every_version(cluster: FakeCluster, kafka: WireClient, version: int) -> None:
    """Brokers and one topic, as far as the version tells."""
    cluster.brokers[2].rack = "b"
    asked = [message("Metadata.request.topics", name="orders")]
    answer = await kafka.ask(ApiKey.METADATA, version=version, topics=asked)
    assert [(node.node_id, node.port) for node in answer.brokers] == [(node.node_id, node.port) for node in cluster.brokers.values()]
    assert [node.rack for node in answer.brokers] == [None, "b" if version >= 1 else None]
    (found,) = answer.topics
    assert (found.error_code, found.name, found.topic_id) == (0, "orders", topic_id(cluster) if version >= 10 else bytes(16))
    partitions = [(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes) for p in found.partitions]
    epoch = 0 if version >= 7 else -1
    assert partitions == [(0, 1, epoch, (1, 2), (1, 2)), (1, 2, epoch, (2, 1), (2, 1))]
    assert (answer.controller_id, answer.cluster_id) == (1 if version >= 1 else -1, cluster.cluster_id if version >= 2 else None)


async def test_all_topics_or_none(cluster: FakeCluster, kafka: WireClient) -> None:
    """Null is all; the empty list is none, but in version 0 it is all."""
    cluster.create_topic("returns")
    for version, asked, names in [(0, [], ["orders", "returns"]), (1, None, ["orders", "returns"]), (1, [], []), (13, [], [])]:
        answer = await kafka.ask(ApiKey.METADATA, version=version, topics=asked)
        assert [found.name for found in answer.topics] == names


async def test_topics_by_id(cluster: FakeCluster, kafka: WireClient) -> None:
    """From version 12 on without a name; an unknown id is told as such."""
    asked = [message("Metadata.request.topics", topic_id=one, name=None) for one in (topic_id(cluster), b"x" * 16)]
    known, unknown = (await kafka.ask(ApiKey.METADATA, topics=asked)).topics
    assert (known.name, known.error_code, len(known.partitions)) == ("orders", 0, 2)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, b"x" * 16, 100)


async def test_unknown_and_illegal_names(cluster: FakeCluster, kafka: WireClient) -> None:
    """Told apart; nothing is made unless the cluster makes topics."""
    answer = await kafka.ask(ApiKey.METADATA, topics=[message("Metadata.request.topics", name=name) for name in ("nothing", "a b")])
    assert [(found.name, found.error_code) for found in answer.topics] == [("nothing", 3), ("a b", 17)]
    with pytest.raises(ValueError):
        cluster.values("nothing")


async def test_topics_are_made_when_asked_for() -> None:
    """Unknown in this answer, there in the next; only if both sides want it."""
    async with FakeCluster(auto_create=True, default_partitions=3) as cluster, WireClient(cluster.bootstrap_servers) as kafka:
        asked = [message("Metadata.request.topics", name="fresh")]
        for allowed, code in [(False, 3), (False, 3), (True, 3), (False, 0)]:
            answer = await kafka.ask(ApiKey.METADATA, topics=asked, allow_auto_topic_creation=allowed)
            assert answer.topics[0].error_code == code
        assert len(answer.topics[0].partitions) == 3


# --- Fetch


@pytest.mark.parametrize("version", range(4, 18))
async def test_fetch_in_every_version(cluster: FakeCluster, kafka: WireClient, version: int) -> None:
    """Fetch serves the bytes that were sent, byte for byte after the stamp."""
    sent = batch(b"a", b"b")
    await produce(kafka, sent)
    by_id = {"name": "", "topic_id": topic_id(cluster)} if version >= 13 else {}
    answer = await fetch(kafka, {0: 0}, version=version, **by_id)
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
    assert partition.records[16:] == sent[16:]


async def test_fetch_refuses_what_kafka_refuses(cluster: FakeCluster, kafka: WireClient) -> None:
    """Offsets outside, unknown places, wrong leaders with the right one's name, sessions that were not given."""
    answer = await fetch(kafka, {0: 1, 1: 0, 7: 0})
    codes = {partition.partition_index: partition.error_code for partition in answer.responses[0].partitions}
    assert codes == {0: 1, 1: 6, 7: 3}
    wrong = answer.responses[0].partitions[1]
    assert (wrong.current_leader.leader_id, wrong.current_leader.leader_epoch) == (2, 0)
    answer = await fetch(kafka, {1: 0}, "", version=16, topic_id=topic_id(cluster))
    assert [node.port for node in answer.node_endpoints] == [cluster.brokers[2].port]
    assert (await fetch(kafka, {0: 0}, "", version=13, topic_id=b"x" * 16)).responses[0].partitions[0].error_code == 100
    assert (await fetch(kafka, {0: 0}, session_id=5, session_epoch=1)).error_code == 70


async def test_fetch_fails_as_scripted(cluster: FakeCluster, kafka: WireClient) -> None:
    """At once, although there is nothing to give."""
    cluster.fail("Fetch", "KAFKA_STORAGE_ERROR")
    answer = await fetch(kafka, {0: 0}, max_wait_ms=100_000)
    assert answer.responses[0].partitions[0].error_code == 56


async def test_a_waiting_fetch_dies_with_its_connection(cluster: FakeCluster, kafka: WireClient) -> None:
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
    assert [bool(partition.records) for partition in answer.responses[0].partitions] == [True, False]


# --- ListOffsets, FindCoordinator


@pytest.mark.parametrize("version", range(1, 10))
async def test_offsets_by_time(kafka: WireClient, version: int) -> None:
    """Earliest, latest, at or after a time, after all."""
    await produce(kafka, batch(b"a", b"b", b"c"))
    found = {}
    for timestamp in (-2, -1, TIME + 1, TIME + 9, *((-3,) if version >= 7 else ())):
        wanted = message("ListOffsets.request.topics.partitions", partition_index=0, timestamp=timestamp)
        asked = message("ListOffsets.request.topics", name="orders", partitions=[wanted])
        answer = await kafka.ask(ApiKey.LIST_OFFSETS, version=version, replica_id=-1, topics=[asked])
        partition = answer.topics[0].partitions[0]
        assert partition.error_code == 0
        found[timestamp] = (partition.timestamp, partition.offset)
    newest = {-3: (TIME + 2, 2)} if version >= 7 else {}
    assert found == {-2: (-1, 0), -1: (-1, 3), TIME + 1: (TIME + 1, 1), TIME + 9: (-1, -1)} | newest


async def test_offsets_are_the_leaders(cluster: FakeCluster, kafka: WireClient) -> None:
    """A broker that does not lead the partition answers NOT_LEADER_OR_FOLLOWER. A test can script errors."""
    cluster.fail("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION", partition=0)
    wanted = [message("ListOffsets.request.topics.partitions", partition_index=index, timestamp=-1) for index in (0, 1)]
    asked = message("ListOffsets.request.topics", name="orders", partitions=wanted)
    answer = await kafka.ask(ApiKey.LIST_OFFSETS, replica_id=-1, topics=[asked])
    assert [partition.error_code for partition in answer.topics[0].partitions] == [3, 6]


@pytest.mark.parametrize("version", range(7))
async def test_a_coordinator_is_found(cluster: FakeCluster, kafka: WireClient, version: int) -> None:
    """The first broker, alone or for several keys."""
    asked: dict[str, Any] = {"coordinator_keys": ["a", "b"]} if version >= 4 else {}
    answer = await kafka.ask(ApiKey.FIND_COORDINATOR, version=version, **asked)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(one.error_code, one.node_id, one.port) for one in found] == [(0, 1, cluster.brokers[1].port)] * (2 if version >= 4 else 1)
