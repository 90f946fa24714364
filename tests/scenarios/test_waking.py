"""Batches that leave or close though no record, answer or metadata comes, and sends that wait for their memory."""

from __future__ import annotations

import asyncio

from whole import jumping, running, turns

from aioproducer import CircuitBreakManager, Producer, TopicPartition
from aioproducer.testing import FakeCluster


async def fill(cluster: FakeCluster, producer: Producer[bytes, bytes], *, partitions: int) -> None:
    """Take the memory of a producer whose broker is away: an open batch of partition 0 has little of it, two batches of partition 1 the rest."""
    for partition in range(partitions):
        await producer.send_and_wait("orders", b"first", partition=partition)
    await cluster.brokers[1].stop()
    await producer.send("orders", b"open", partition=0)
    for _ in range(2):
        await producer.send("orders", b"." * 12_000, partition=1)
        await turns(10)


@jumping
async def test_a_batch_that_is_too_old_for_more_records_gives_memory_to_the_sends_that_wait() -> (
    None
):
    """It closes, and gives back the bytes that it does not need. Its broker need not be there."""
    async with running(buffer_memory=40_000, batch_max_size=16_384) as (cluster, producer):
        await fill(cluster, producer, partitions=2)
        sending = asyncio.create_task(producer.send("orders", b"." * 10_000, partition=1))
        # A sixteenth of delivery_timeout_ms is 7.5 s.
        await asyncio.sleep(7)
        assert not sending.done()
        await asyncio.sleep(1)
        assert sending.done()
        await cluster.brokers[1].start()


@jumping
async def test_batches_that_fail_for_a_refused_producer_id_give_memory_to_the_sends_that_wait() -> (
    None
):
    """They were never sent, so no answer comes."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.delay("InitProducerId", 3, times=1)
        cluster.fail("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED", times=10)
        async with Producer(**cluster.client_options, buffer_memory=40_000).running(
            wait=False
        ) as producer:
            await producer.partitions_for("orders")
            deliveries = [await producer.send("orders", b"." * 12_000) for _ in range(3)]
            sending = asyncio.create_task(producer.send("orders", b"." * 12_000))
            await turns(100)
            assert not sending.done()
            await asyncio.sleep(4)
            assert [str(delivery.exception())[:6] for delivery in deliveries] == ["orders"] * 3
            assert sending.done()


class MutedByHand:
    """Is a circuit breaker that mutes nothing by itself."""

    def __init__(self) -> None:
        self.manager: CircuitBreakManager

    def configure(self, _options: object) -> None:
        """Take none."""

    def set_circuit_break_manager(self, manager: CircuitBreakManager) -> None:
        self.manager = manager

    def on_send(self, _context: object) -> bool:
        return True

    def on_complete(
        self, _context: object, _partition: TopicPartition, _error: Exception | None
    ) -> bool:
        return False

    def close(self) -> None:
        """Hold nothing."""


@jumping
async def test_a_partition_that_is_muted_gives_memory_to_the_sends_that_wait() -> None:
    """Its open batch closes, and no answer or timer has to come first."""
    breaker = MutedByHand()
    options = {
        "buffer_memory": 40_000,
        "batch_max_size": 16_384,
        "circuit_breaker_class": breaker,
    }
    async with running(partitions=3, **options) as (cluster, producer):
        await fill(cluster, producer, partitions=3)
        sending = asyncio.create_task(producer.send("orders", b"." * 10_000, partition=2))
        await turns(100)
        assert not sending.done()
        breaker.manager.mute(TopicPartition("orders", 0))
        await turns(10)
        assert sending.done()
        breaker.manager.unmute(TopicPartition("orders", 0))
        await cluster.brokers[1].start()


@jumping
async def test_on_failed_gives_its_memory_to_the_sends_that_wait_for_a_full_partition() -> None:
    """The bytes of a failed batch are free once `on_failed` has had its records. No batch of the full partition has to end before that."""
    options = {
        "buffer_memory": 40_000,
        "delivery_timeout_ms": 10_000,
        "request_timeout_ms": 2_000,
        "circuit_breaker_class": MutedByHand(),
    }
    async with running(**options, on_failed=lambda _error, _records: None) as (cluster, producer):
        for partition in range(2):
            await producer.send_and_wait("orders", b"first", partition=partition)
        await cluster.brokers[1].stop()
        await producer.send("orders", b"." * 16_000, partition=1)
        await asyncio.sleep(5)
        first = await producer.send("orders", b"." * 12_000, partition=0)
        sending = asyncio.create_task(producer.send("orders", b"." * 10_000, partition=0))
        await turns(20)
        assert not sending.done()
        await asyncio.sleep(5.1)
        assert sending.done()
        assert not first.done()
        await cluster.brokers[1].start()
