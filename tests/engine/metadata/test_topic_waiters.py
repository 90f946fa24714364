"""Sends that wait for metadata: of a topic that is late, missing, refused, without a leader, or growing."""

from __future__ import annotations

import asyncio

import pytest
from whole import jumping, now, running, turns

from aioproducer.errors import BrokerError, MetadataTimeout
from aioproducer.testing import FakeCluster


@jumping
async def test_a_topic_that_never_comes_fails_the_send_after_max_block_ms() -> None:
    """The send raises MetadataTimeout with the brokers' errors as its cause, and the record is not queued."""
    async with running(max_block_ms=700) as (_, producer):
        began = now()
        with pytest.raises(MetadataTimeout, match="max_block_ms=700") as raised:
            await producer.send("nowhere", b"v")
        assert now() - began == pytest.approx(0.7, abs=0.01)
        assert isinstance(raised.value.__cause__, BrokerError)
        assert raised.value.__cause__.name == "UNKNOWN_TOPIC_OR_PARTITION"


@jumping
async def test_a_topic_that_is_made_later_is_found() -> None:
    """The waiting sends are logged in their order, with and without keys, together with later sends."""
    async with running() as (cluster, producer):
        tasks = [
            asyncio.create_task(producer.send_and_wait("late", b"%d" % number, key=b"k"))
            for number in range(5)
        ]
        await asyncio.sleep(2)
        cluster.create_topic("late")
        began = now()
        await asyncio.gather(*tasks)
        assert now() - began < 2
        assert cluster.values("late") == [b"%d" % number for number in range(5)]


@jumping
async def test_a_topic_that_brokers_make_on_demand_is_found_at_once() -> None:
    """auto.create.topics.enable: the first response does not have the topic yet, the next one has it."""
    async with (
        FakeCluster(memory=True, auto_create=True) as cluster,
        running(cluster) as (_, producer),
    ):
        began = now()
        await producer.send_and_wait("made", b"v")
        assert now() - began < 0.5


@jumping
async def test_an_unknown_topic_is_asked_for_a_few_times_a_second() -> None:
    """The pause between two requests grows, so that there are not thousands of requests."""
    async with running(max_block_ms=10_000) as (cluster, producer):
        with pytest.raises(MetadataTimeout):
            await producer.send("nowhere", b"v")
        assert 5 < len(cluster.requests("Metadata")) < 40


@jumping
async def test_a_wait_for_one_topic_holds_up_no_other() -> None:
    """Sends to a known topic continue. The producer finds a second unknown topic at once, while it requests the first in vain."""
    async with running() as (cluster, producer):
        waiting = asyncio.create_task(producer.send("nowhere", b"v"))
        await asyncio.sleep(5)
        began = now()
        await producer.send_and_wait("orders", b"v")
        cluster.create_topic("second")
        await producer.send_and_wait("second", b"v")
        assert now() - began < 0.1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@jumping
async def test_a_flush_that_waits_for_a_topic_that_is_refused_does_not_raise() -> None:
    """The send raises the error to its caller, and the flush covers the other records."""
    async with running() as (cluster, producer):
        cluster.delay("Metadata", 0.2, times=1)
        send = asyncio.create_task(producer.send("bad topic!", b"v"))
        await turns(2)
        flush = asyncio.create_task(producer.flush())
        with pytest.raises(BrokerError):
            await send
        assert await flush == (0, 0, 0)


@jumping
async def test_a_partition_without_a_leader_costs_few_requests_and_recovers() -> None:
    """The producer sends at most ten Metadata requests in the first second. The records are sent when the partition has a leader again."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        async with running(cluster) as (_, producer):
            await producer.send_and_wait("orders", b"0", partition=0)
            cluster.move_leader("orders", 0, None)
            before = len(cluster.requests("Metadata"))
            deliveries = [await producer.send("orders", b"1", partition=0)]
            until = now() + 1
            while now() < until:
                deliveries.append(
                    await producer.send("orders", b"%d" % len(deliveries), partition=0)
                )
                await producer.send_and_wait("orders", b"goes on", partition=1)
                await asyncio.sleep(0.01)
            assert len(cluster.requests("Metadata")) - before <= 10
            assert not any(delivery.done() for delivery in deliveries)
            cluster.move_leader("orders", 0, 1)
            await asyncio.gather(*deliveries)


@jumping
async def test_records_without_a_key_avoid_partitions_without_a_leader() -> None:
    """Records without a key go to other partitions, so their sends do not wait."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=4)
        cluster.move_leader("orders", 2, None)
        async with running(cluster) as (_, producer):
            await asyncio.gather(
                *[producer.send_and_wait("orders", b"%d" % number) for number in range(30)]
            )
            assert cluster.values("orders", 2) == []


@jumping
async def test_a_partition_beyond_the_last_is_waited_for() -> None:
    """The send waits until the topic grows. Sends to existing partitions continue meanwhile, and a flush covers the send."""
    async with running(metadata_max_age_ms=300) as (cluster, producer):
        await producer.send_and_wait("orders", b"v")
        tasks = [
            asyncio.create_task(producer.send("orders", b"%d" % number, partition=4))
            for number in range(3)
        ]
        await asyncio.sleep(1)
        await producer.send_and_wait("orders", b"v", partition=0)
        assert not tasks[0].done()
        flush = asyncio.create_task(producer.flush())
        await asyncio.sleep(1)
        assert not flush.done()
        cluster.add_partitions("orders", 3)
        await asyncio.sleep(1)
        assert not flush.done()
        cluster.add_partitions("orders", 5)
        assert (await flush).acknowledged == 3
        assert cluster.values("orders", 4) == [b"0", b"1", b"2"]
        await asyncio.gather(*tasks)


@jumping
async def test_a_missing_partition_holds_up_no_one_who_waits_for_memory() -> None:
    """The send that waits for a partition is never first in the wait queue for memory."""
    async with running(buffer_memory=4000, batch_size=1000, max_block_ms=60_000) as (
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", b"first")
        hang = cluster.hang("Produce", times=1)
        tasks = [
            asyncio.create_task(producer.send("orders", b"." * 900, partition=number % 2))
            for number in range(6)
        ]
        await turns(10)
        assert not tasks[-1].done()
        missing = asyncio.create_task(producer.send("orders", b"v", partition=9))
        await turns(3)
        behind = asyncio.create_task(producer.send("orders", b"v", partition=1))
        await turns(3)
        hang.release()
        began = now()
        await (await behind)
        assert now() - began < 1
        missing.cancel()
        await asyncio.gather(missing, return_exceptions=True)


@jumping
async def test_a_topic_made_anew_with_fewer_partitions_holds_up_no_one() -> None:
    """A send that waits for memory raises when its partition is gone. The sends behind it continue."""
    async with running(buffer_memory=4000, batch_size=1000, metadata_max_age_ms=500) as (
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", b"first")
        hang = cluster.hang("Produce", times=1)
        tasks = [
            asyncio.create_task(producer.send("orders", b"." * 900, partition=0)) for _ in range(3)
        ]
        await turns(10)
        gone = asyncio.create_task(producer.send("orders", b"v", partition=1))
        behind = asyncio.create_task(producer.send("orders", b"v", partition=0))
        await turns(3)
        assert not gone.done()
        cluster.delete_topic("orders")
        cluster.create_topic("orders")
        await asyncio.sleep(2)
        hang.release()
        with pytest.raises(MetadataTimeout, match="has 1 partition, and partition 1 did not come"):
            await gone
        await (await behind)
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("who", [0, 1, 2])
@jumping
async def test_a_send_cancelled_while_it_waits_for_metadata_leaves_no_trace(who: int) -> None:
    """The cancelled record is not logged, and the other waiting records are logged in their order."""
    async with running() as (cluster, producer):
        tasks = [
            asyncio.create_task(producer.send("late", b"%d" % number, key=b"k"))
            for number in range(3)
        ]
        await turns(5)
        tasks[who].cancel()
        cluster.create_topic("late")
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(outcomes.pop(who), asyncio.CancelledError)
        await producer.flush()
        assert cluster.values("late") == [b"%d" % number for number in range(3) if number != who]


@jumping
async def test_a_cancelled_wait_for_a_topic_ends_the_asking() -> None:
    """After the cancellation no send waits for the topic, and the producer stops requesting it."""
    async with running() as (cluster, producer):
        task = asyncio.create_task(producer.send("nowhere", b"v"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(2)
        before = len(cluster.requests("Metadata"))
        await asyncio.sleep(100)
        assert len(cluster.requests("Metadata")) == before


@jumping
async def test_a_flush_awaits_the_records_of_two_topics_that_come_one_before_the_other() -> None:
    """The flush waits for two wait queues. The second one is served before the first."""
    async with running() as (cluster, producer):
        hang = cluster.hang("Metadata", topic="late")
        cluster.create_topic("late")
        cluster.create_topic("early")
        sends = [asyncio.ensure_future(producer.send("late", b"a"))]
        await hang.reached()
        sends.append(asyncio.ensure_future(producer.send("early", b"b")))
        await asyncio.sleep(0)
        flush = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0.01)
        hang.release()
        summary = await flush
        assert (summary.failed, summary.pending) == (0, 0)
        await asyncio.gather(*await asyncio.gather(*sends))
        assert cluster.values("late") == [b"a"]
        assert cluster.values("early") == [b"b"]
