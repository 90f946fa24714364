"""Topics that grow, or are deleted and created again, while records are in flight (rows 37 and 39)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from transacting import VERSIONS, committed, transactional
from whole import jumping, running

from aioproducer.core.topic_routing import murmur2
from aioproducer.errors import BrokerError, DeliveryError, Persisted, TransactionAbortable
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer import Producer

KEYS = [b"key %d" % number for number in range(40)]
OFTEN = {"metadata_max_age_ms": 500}


def placed(key: bytes, partitions: int) -> int:
    """Return the partition that every Kafka client chooses for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


async def assert_placed(producer: Producer[Any, Any], partitions: int) -> None:
    """Check that each key goes to its partition among this number of partitions."""
    told = await asyncio.gather(*[await producer.send("orders", b"v", key) for key in KEYS])
    assert [metadata.partition for metadata in told] == [placed(key, partitions) for key in KEYS]


def make_anew(cluster: FakeCluster, partitions: int) -> None:
    cluster.delete_topic("orders")
    cluster.create_topic("orders", partitions=partitions)


@pytest.mark.parametrize("partitions", [1, 2, 3])
@jumping
async def test_a_topic_made_anew_takes_what_comes(partitions: int) -> None:
    """The topic has a new id. The first attempt is refused and requests metadata, then the record is sent. Offsets start at 0 again."""
    async with running() as (cluster, producer):
        await assert_placed(producer, 2)
        make_anew(cluster, partitions)
        assert (await producer.send_and_wait("orders", b"first", partition=0)).offset == 0
        await assert_placed(producer, partitions)
        assert cluster.values("orders", 0)[0] == b"first"


@jumping
async def test_records_of_a_partition_that_is_no_more_fail_with_the_reason() -> None:
    """They fail as soon as the new id is known, not at their time-out. Other records are sent, and requests stay few."""
    async with running(delivery_timeout_ms=5000, request_timeout_ms=3000) as (cluster, producer):
        await asyncio.gather(
            *[await producer.send("orders", b"old", partition=partition) for partition in (0, 1)]
        )
        make_anew(cluster, 1)
        began = asyncio.get_running_loop().time()
        lost = [await producer.send("orders", b"lost", partition=1) for _ in range(3)]
        await producer.send_and_wait("orders", b"v", partition=0)
        await assert_placed(producer, 1)
        failures = await asyncio.gather(*lost, return_exceptions=True)
        assert asyncio.get_running_loop().time() - began < 0.5
        for failure in failures:
            assert isinstance(failure, DeliveryError)
            assert failure.persisted is Persisted.NO
            assert isinstance(failure.__cause__, BrokerError)
            assert failure.__cause__.name == "UNKNOWN_TOPIC_OR_PARTITION"
            assert "orders-1" in str(failure)
            assert "the topic has 1 partition by now" in str(failure)
        assert len(cluster.requests("Metadata")) < 30
        assert len(cluster.requests("Produce")) < 30


@VERSIONS
@pytest.mark.parametrize("linger_ms", [0, 2000])
@jumping
async def test_a_partition_that_is_no_more_ends_its_transaction_in_time(
    linger_ms: float, version: int
) -> None:
    """Its records fail with the reason: at once, or at their time-out if the coordinator adds no such partition. The next transaction works."""
    times = {
        "delivery_timeout_ms": 5000,
        "request_timeout_ms": 3000,
        "linger_ms": linger_ms,
        **OFTEN,
    }
    async with transactional(version, **times) as (cluster, producer):
        await producer.begin_transaction()
        lost = [await producer.send("orders", b"lost", partition=1) for _ in range(3)]
        make_anew(cluster, 1)
        began = asyncio.get_running_loop().time()
        assert (await producer.flush()).failed == 3
        assert asyncio.get_running_loop().time() - began <= 5
        for failure in [delivery.exception() for delivery in lost]:
            assert isinstance(failure, DeliveryError)
            code = "TIMED_OUT" if version == 1 else "UNKNOWN_TOPIC_OR_PARTITION"
            assert (failure.persisted, failure.code) == (Persisted.NO, code)
            assert "the topic has 1 partition by now" in str(failure)
            assert "UNKNOWN_TOPIC_OR_PARTITION" in str(failure)
        with pytest.raises(TransactionAbortable, match=r"orders-1.*UNKNOWN_TOPIC_OR_PARTITION"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("orders", b"v", partition=0)
        assert committed(cluster) == [b"v"]


@jumping
async def test_records_of_a_partition_that_comes_back_go_there() -> None:
    """The new topic has too few partitions at first. The records that were sent then fail, and later ones wait until it has grown."""
    async with running(**OFTEN) as (cluster, producer):
        await asyncio.gather(
            *[await producer.send("orders", b"old", partition=partition) for partition in (0, 1)]
        )
        make_anew(cluster, 1)
        with pytest.raises(DeliveryError, match="the topic has 1 partition by now"):
            await producer.send_and_wait("orders", b"lost", partition=1)
        kept = [
            asyncio.ensure_future(producer.send_and_wait("orders", b"%d" % number, partition=1))
            for number in range(3)
        ]
        await asyncio.sleep(2)
        assert not any(delivery.done() for delivery in kept)
        cluster.add_partitions("orders", 2)
        await asyncio.gather(*kept)
        assert cluster.values("orders", 1) == [b"0", b"1", b"2"]


@jumping
async def test_what_was_on_its_way_to_a_partition_that_is_no_more() -> None:
    """The broker refuses it for its old id. The record fails then, without another attempt, as not written."""
    async with running(**OFTEN) as (cluster, producer):
        await producer.send_and_wait("orders", b"old", partition=1)
        hang = cluster.hang("Produce", when="before")
        delivery = await producer.send("orders", b"lost", partition=1)
        await hang.reached()
        make_anew(cluster, 1)
        await asyncio.sleep(1)
        assert not delivery.done()
        hang.release()
        with pytest.raises(DeliveryError, match="the topic has 1 partition by now") as failed:
            await delivery
        assert (failed.value.persisted, failed.value.attempts) == (Persisted.NO, 1)


@jumping
async def test_an_outdated_broker_may_report_too_few_partitions() -> None:
    """The id is the same, so the records of the others wait for a better answer."""
    async with running(**OFTEN, delivery_timeout_ms=9_000, request_timeout_ms=5_000) as (
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", b"0", partition=1)
        cluster.omit("Metadata", topic="orders", partition=1, times=1)
        cluster.fail("Produce", "UNKNOWN_TOPIC_OR_PARTITION", topic="orders", partition=1, times=3)
        await producer.send_and_wait("orders", b"1", partition=1)
        assert cluster.values("orders", 1) == [b"0", b"1"]


@jumping
async def test_an_answer_on_its_way_while_the_topic_is_made_anew_still_counts() -> None:
    """The response names the topic by the id in the request, so it completes the batch (SEN-06, KAFKA-19397)."""
    async with running(partitions=1, **OFTEN) as (cluster, producer):
        await producer.send_and_wait("orders", b"0")
        hang = cluster.hang("Produce", when="after")
        delivery = await producer.send("orders", b"1")
        await hang.reached()
        make_anew(cluster, 1)
        before = len(cluster.requests("Metadata"))
        await asyncio.sleep(1)
        assert len(cluster.requests("Metadata")) > before, "the producer knows of the new topic"
        hang.release()
        assert (await delivery).offset == 1
        assert len(cluster.requests("Produce")) == 2


@jumping
async def test_a_later_record_does_not_pass_one_that_the_old_topic_refuses() -> None:
    """The broker refuses the request on its way for its old id. It would take what is sent to the new topic meanwhile before the retry."""
    async with running(partitions=1, **OFTEN) as (cluster, producer):
        await producer.send_and_wait("orders", b"0")
        hang = cluster.hang("Produce", when="before")
        first = await producer.send("orders", b"1")
        await hang.reached()
        make_anew(cluster, 1)
        await asyncio.sleep(1)
        second = await producer.send("orders", b"2")
        await asyncio.sleep(0.1)
        hang.release()
        await asyncio.gather(first, second)
        assert cluster.values("orders") == [b"1", b"2"]
