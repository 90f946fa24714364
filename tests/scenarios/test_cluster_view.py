"""Wrong, old or strange metadata from brokers, with the whole producer.

Beside what the rows 15-19, 24, 36-40, 47, 49 and 51 of tests/tools/faults show.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from whole import jumping, now, running, turns

from aioproducer.errors import BrokerError, DeliveryError, MetadataTimeout, UsageError
from aioproducer.testing import FakeCluster
from aioproducer.wire.schema import message


def broker(node_id: int, host: str, port: int) -> Any:
    return message("Metadata.response.brokers", node_id=node_id, host=host, port=port)


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer.brokers.clear(),
        lambda answer: [setattr(each, "port", 0) for each in answer.brokers],
        lambda answer: [setattr(each, "host", "") for each in answer.brokers],
        lambda answer: [setattr(each, "node_id", -1) for each in answer.brokers],
        lambda answer: answer.brokers.append(broker(1, "elsewhere", 1)),
        lambda answer: answer.brokers.append(broker(-7, "elsewhere", 1)),
        lambda answer: answer.brokers.append(broker(9, "elsewhere", 0)),
    ],
    ids=[
        "zero brokers",
        "port 0",
        "no host",
        "negative id",
        "duplicate id",
        "negative id beside",
        "port 0 beside",
    ],
)
@jumping
async def test_a_strange_list_of_brokers_is_passed_over(change: Any) -> None:
    """Row 49: the producer keeps the old view, and records flow."""
    async with running(metadata_max_age_ms=1000) as (cluster, producer):
        await producer.send_and_wait("orders", b"0", partition=0)
        cluster.rewrite("Metadata", change, times=3)
        for number in range(1, 40):
            began = now()
            await producer.send_and_wait("orders", b"%d" % number, partition=0)
            assert now() - began < 0.1
            await asyncio.sleep(0.2)
        assert len({request.connection for request in cluster.requests("Produce")}) == 1
        assert producer.health().brokers_known == 1
        assert cluster.values("orders", 0) == [b"%d" % number for number in range(40)]


@jumping
async def test_start_waits_for_a_broker_that_knows_the_others() -> None:
    """Row 49: a broker that is starting names no brokers, so `start` asks again."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.rewrite("Metadata", lambda answer: answer.brokers.clear(), times=3)
        async with running(cluster) as (_, producer):
            await producer.send_and_wait("orders", b"v")
            assert len(cluster.requests("Metadata")) == 5


@pytest.mark.parametrize(
    "hints", [True, False], ids=["the leader is named", "the leader is not named"]
)
@jumping
async def test_a_leader_epoch_that_no_election_had_is_given_up(
    hints: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One wrong answer has a leader and an epoch far above the real one. What brokers tell afterwards looks older, and is right."""
    async with FakeCluster(
        brokers=2, memory=True, versions={} if hints else {"Produce": (3, 9)}
    ) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("others")
        cluster.move_leader("orders", 0, 1)
        async with running(cluster) as (_, producer):

            def forge(answer: Any) -> None:
                for topic in answer.topics:
                    topic.partitions[0].leader_id, topic.partitions[0].leader_epoch = 2, 1_000_000

            cluster.rewrite("Metadata", forge, times=1)
            began = asyncio.get_running_loop().time()
            await producer.send_and_wait("orders", b"0")
            assert asyncio.get_running_loop().time() - began < 5
            # Real elections count again.
            cluster.move_leader("orders", 0, 2)
            began = asyncio.get_running_loop().time()
            await producer.send_and_wait("orders", b"1")
            assert asyncio.get_running_loop().time() - began < 0.5
        assert cluster.values("orders") == [b"0", b"1"]
        assert caplog.text.count("older leader epochs of topic orders") == 1


@jumping
async def test_epochs_of_old_brokers_are_not_trusted() -> None:
    """KAFKA-9212: before Metadata v9 a new leader may have an epoch that looks older. The producer follows it all the same."""
    async with FakeCluster(brokers=2, memory=True, versions={"Metadata": (0, 8)}) as cluster:
        cluster.create_topic("orders")
        cluster.topics.existing("orders").partitions[0].leader_epoch = 5
        async with running(cluster, delivery_timeout_ms=31_000) as (_, producer):
            await producer.send_and_wait("orders", b"0")
            cluster.topics.existing("orders").partitions[0].leader_epoch = 1
            cluster.move_leader("orders", 0, 2)
            await producer.send_and_wait("orders", b"1")
            assert cluster.values("orders") == [b"0", b"1"]


@jumping
async def test_a_topic_that_no_longer_exists_fails_its_records_with_that_reason() -> None:
    """Row 36, for ever: the producer retries until delivery_timeout_ms, with a few requests a second, and the error names the reason."""
    async with running(delivery_timeout_ms=31_000) as (cluster, producer):
        await producer.send_and_wait("orders", b"v", partition=0)
        cluster.delete_topic("orders")
        with pytest.raises(DeliveryError) as raised:
            await producer.send_and_wait("orders", b"v", partition=0)
        assert isinstance(raised.value.__cause__, BrokerError)
        assert raised.value.__cause__.name in {"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"}
        assert len(cluster.requests("Metadata")) < 80


@pytest.mark.parametrize("name", ["\udcff", "ok-\ud800", "n" * 32_768, "ü" * 16_384])
@pytest.mark.parametrize("highest", [13, 1])
@jumping
async def test_a_name_that_no_request_can_carry_harms_nobody(name: str, highest: int) -> None:
    """The send raises UsageError at once.

    If the producer asked for that name, its Metadata request would fail for all other topics, too.
    """
    async with running(versions={"Metadata": (0, highest)}, partitions=1) as (cluster, producer):
        with pytest.raises(UsageError, match="names no topic"):
            await producer.send(name, b"v")
        with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
            await producer.send(name[:-1] if len(name) > 100 else "ü", b"v")
        await producer.send_and_wait("orders", b"v")


@pytest.mark.parametrize("flag", [True, False])
@jumping
async def test_topics_are_made_on_demand_only_if_allowed(*, flag: bool) -> None:
    """`allow_auto_create_topics` decides, against a broker that would make the topic."""
    async with (
        FakeCluster(memory=True, auto_create=True) as cluster,
        running(cluster, allow_auto_create_topics=flag, max_block_ms=3000) as (_, producer),
    ):
        if flag:
            await producer.send_and_wait("made", b"v")
        else:
            with pytest.raises(MetadataTimeout, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await producer.send("made", b"v")
        assert ("made" in [topic.name for topic in cluster.topics]) is flag


@jumping
async def test_a_throttling_broker_is_asked_for_no_metadata_either() -> None:
    """Row 35: the throttle time of a Metadata answer holds for records, too, and no record is lost for it."""
    async with running(request_timeout_ms=1000, delivery_timeout_ms=10_000) as (cluster, producer):
        await producer.send_and_wait("orders", b"0")
        cluster.throttle("Metadata", 3)
        cluster.create_topic("new")
        began = now()
        await producer.send("new", b"v")
        delivery = await producer.send("orders", b"1")
        await turns(20)
        assert not delivery.done()
        await delivery
        assert now() - began == pytest.approx(3, abs=0.1)
        assert len(cluster.requests("Produce")) in {2, 3}
