"""Tests of denied operations on a fake cluster: the answers of Kafka's StandardAuthorizer (rows 40, 41, 72 and 114 of the faults)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fake_requests import batch, produce
from jumping import jumping

from aioproducer.errors import ConnectionLost
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOPIC, GROUP, CLUSTER, ID = 29, 30, 31, 53


@asynccontextmanager
async def staged(**options: Any) -> AsyncIterator[tuple[FakeCluster, WireClient]]:
    """Give a cluster that does not encrypt, and a client of it, which is ANONYMOUS."""
    async with FakeCluster(memory=True, **options) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("audit")
        async with WireClient(cluster.bootstrap_servers, dialer=cluster.network) as client:
            yield cluster, client


async def codes(client: WireClient, topics: list[str] | None) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in (await client.metadata(topics)).topics}


async def begin(client: WireClient, transactional_id: str | None) -> Any:
    return await client.ask(
        ApiKey.INIT_PRODUCER_ID, transactional_id=transactional_id, transaction_timeout_ms=60_000
    )


@jumping
async def test_metadata() -> None:
    """29 for what may not be described, there or not; left out of all topics; by id, too."""
    async with staged() as (cluster, client):
        by_id = (await client.metadata(["orders"])).topics[0].topic_id
        cluster.security.deny("ANONYMOUS", "Describe", topic="orders")
        cluster.security.deny("ANONYMOUS", "Describe", topic="missing")
        assert await codes(client, ["orders", "audit", "missing", "other"]) == {
            "orders": TOPIC,
            "audit": 0,
            "missing": TOPIC,
            "other": 3,
        }
        assert await codes(client, None) == {"audit": 0}
        asked = message("Metadata.request.topics", name=None, topic_id=by_id)
        assert (await client.ask(ApiKey.METADATA, topics=[asked])).topics[0].error_code == TOPIC
        cluster.security.allow("ANONYMOUS", "Describe", topic="orders")
        assert await codes(client, ["orders"]) == {"orders": 0}


@jumping
async def test_topics_that_may_not_be_created() -> None:
    async with staged(auto_create=True) as (cluster, client):
        cluster.security.deny("*", "Create", topic="new")
        asked = [message("Metadata.request.topics", name=name) for name in ("new", "newer")]
        answer = await client.ask(ApiKey.METADATA, topics=asked, allow_auto_topic_creation=True)
        assert [topic.error_code for topic in answer.topics] == [TOPIC, 3]
        assert cluster.topics.named("new") is None
        assert cluster.topics.named("newer") is not None


@jumping
async def test_produce() -> None:
    """29 without a text; the connection stays, the other topics flow, and acks=0 is told by a closed connection."""
    async with staged() as (cluster, client):
        cluster.security.deny("ANONYMOUS", "Write", topic="orders")
        refused = await produce(client, batch(b"v"))
        assert (refused.error_code, refused.error_message, refused.base_offset) == (TOPIC, None, -1)
        assert (await produce(client, batch(b"v"), "audit")).error_code == 0
        cluster.security.allow("ANONYMOUS", "Write", topic="orders")
        assert (await produce(client, batch(b"w"))).error_code == 0
        cluster.security.deny("User:ANONYMOUS", "All", topic="*")
        with pytest.raises(ConnectionLost):
            await produce(client, batch(b"v"), "audit", acks=0)
        assert cluster.values("orders") == [b"w"]


@jumping
async def test_producer_ids() -> None:
    """31 without any right to write; 53 for a transactional id."""
    async with staged() as (cluster, client):
        cluster.security.deny("ANONYMOUS", "IdempotentWrite")
        assert (await begin(client, None)).error_code == 0
        cluster.security.deny("ANONYMOUS", "Write", topic="*")
        assert (await begin(client, None)).error_code == CLUSTER
        cluster.security.allow("ANONYMOUS", "IdempotentWrite")
        assert (await begin(client, None)).error_code == 0
        cluster.security.deny("ANONYMOUS", "Write", transactional_id="tx")
        assert (
            (await begin(client, "tx")).error_code,
            (await begin(client, "other")).error_code,
        ) == (ID, 0)


@jumping
async def test_transactions() -> None:
    """Each request of a transaction, with the error of what it lacks."""
    async with staged(transaction_version=1) as (cluster, client):
        holder = await begin(client, "tx")
        known = {
            "transactional_id": "tx",
            "producer_id": holder.producer_id,
            "producer_epoch": holder.producer_epoch,
        }

        async def add() -> list[int]:
            topics = [
                message("AddPartitionsToTxn.request.topics", name=name, partitions=[0])
                for name in ("orders", "audit")
            ]
            answer = await client.ask(
                ApiKey.ADD_PARTITIONS_TO_TXN, version=3, topics=topics, **known
            )
            return [topic.partitions[0].error_code for topic in answer.topics]

        async def commit_offsets() -> int:
            part = message(
                "TxnOffsetCommit.request.topics.partitions", partition_index=0, committed_offset=1
            )
            topics = [message("TxnOffsetCommit.request.topics", name="orders", partitions=[part])]
            answer = await client.ask(
                ApiKey.TXN_OFFSET_COMMIT, version=3, group_id="g", topics=topics, **known
            )
            code: int = answer.topics[0].partitions[0].error_code
            return code

        async def others() -> list[int]:
            add_offsets = await client.ask(
                ApiKey.ADD_OFFSETS_TO_TXN, version=3, group_id="g", **known
            )
            end = await client.ask(ApiKey.END_TXN, version=3, committed=True, **known)
            found = await client.ask(ApiKey.FIND_COORDINATOR, version=3, key="tx", key_type=1)
            group = await client.ask(
                ApiKey.FIND_COORDINATOR, version=4, coordinator_keys=["g"], key_type=0
            )
            return [
                add_offsets.error_code,
                end.error_code,
                found.error_code,
                group.coordinators[0].error_code,
            ]

        cluster.security.deny("*", "Write", topic="orders")
        assert await add() == [TOPIC, 55]
        cluster.security.allow("*", "Write", topic="orders")
        cluster.security.deny("*", "Read", group="g")
        assert await commit_offsets() == GROUP
        assert await others() == [GROUP, 48, 0, 0]
        cluster.security.allow("*", "Read", group="g")
        assert await add() == [0, 0]
        assert await others() == [0, 0, 0, 0]
        assert await add() == [0, 0]
        await client.ask(ApiKey.ADD_OFFSETS_TO_TXN, version=3, group_id="g", **known)
        cluster.security.deny("*", "Read", topic="orders")
        assert await commit_offsets() == TOPIC
        cluster.security.deny("*", "All", transactional_id="tx")
        cluster.security.deny("*", "Describe", group="g")
        assert await add() == [ID, ID]
        assert await commit_offsets() == ID
        assert await others() == [ID, ID, ID, GROUP]
        transactional = batch(
            b"v",
            attributes=16,
            producer_id=holder.producer_id,
            epoch=holder.producer_epoch,
            sequence=0,
        )
        assert (await produce(client, transactional, transactional_id="tx")).error_code == ID


@jumping
async def test_offsets_of_groups() -> None:
    """`Read` to commit and `Describe` to fetch, on the group and on each topic. What is not asked for by name is left out."""
    async with staged() as (cluster, client):

        async def commit(name: str) -> int:
            part = message(
                "OffsetCommit.request.topics.partitions", partition_index=0, committed_offset=1
            )
            topics = [message("OffsetCommit.request.topics", name=name, partitions=[part])]
            answer = await client.ask(ApiKey.OFFSET_COMMIT, version=9, group_id="g", topics=topics)
            code: int = answer.topics[0].partitions[0].error_code
            return code

        async def fetch(*names: str) -> tuple[int, dict[str, int]]:
            topics = [
                message("OffsetFetch.request.groups.topics", name=name, partition_indexes=[0])
                for name in names
            ] or None
            groups = [message("OffsetFetch.request.groups", group_id="g", topics=topics)]
            (group,) = (await client.ask(ApiKey.OFFSET_FETCH, version=9, groups=groups)).groups
            return group.error_code, {
                topic.name: topic.partitions[0].error_code for topic in group.topics
            }

        assert [await commit("orders"), await commit("audit")] == [0, 0]
        cluster.security.deny("*", "Read", topic="orders")
        assert [await commit("orders"), await commit("audit")] == [TOPIC, 0]
        cluster.security.deny("*", "Describe", topic="orders")
        assert await fetch("orders", "audit") == (0, {"orders": TOPIC, "audit": 0})
        assert await fetch() == (0, {"audit": 0})
        cluster.security.deny("*", "Read", group="g")
        assert await commit("audit") == GROUP
        cluster.security.deny("*", "Describe", group="g")
        assert await fetch("audit") == (GROUP, {})


@jumping
async def test_lists_of_transactions() -> None:
    """Ids that may not be described are left out of the list; described by name, they are refused; topics are left out."""
    async with staged(transaction_version=1) as (cluster, client):
        holder = await begin(client, "tx")
        known = {
            "transactional_id": "tx",
            "producer_id": holder.producer_id,
            "producer_epoch": holder.producer_epoch,
        }
        topics = [
            message("AddPartitionsToTxn.request.topics", name=name, partitions=[0])
            for name in ("orders", "audit")
        ]
        await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version=3, topics=topics, **known)

        async def seen() -> tuple[int, int, list[str]]:
            listed = await client.ask(ApiKey.LIST_TRANSACTIONS)
            (told,) = (
                await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=["tx"])
            ).transaction_states
            return (
                len(listed.transaction_states),
                told.error_code,
                [topic.topic for topic in told.topics],
            )

        assert await seen() == (1, 0, ["orders", "audit"])
        cluster.security.deny("*", "Describe", topic="orders")
        assert await seen() == (1, 0, ["audit"])
        cluster.security.deny("*", "Describe", transactional_id="tx")
        assert await seen() == (0, ID, [])


def test_denials_that_cannot_be() -> None:
    cluster = FakeCluster()
    with pytest.raises(ValueError, match="operation is"):
        cluster.security.deny("alice", "Append", topic="orders")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one topic"):
        cluster.security.deny("alice", "Write", topic="orders", group="g")
    with pytest.raises(ValueError, match="not denied"):
        cluster.security.allow("alice", "Write", topic="orders")
