"""Ordinary deliveries: acks, linger, large records, timestamps, requests in flight, long-lived connections."""

from __future__ import annotations

import asyncio

import pytest
from whole import jumping, now, running, turns

from aioproducer.model import TimestampType
from aioproducer.testing import FakeCluster


@jumping
async def test_acks_0_is_done_when_it_is_written() -> None:
    """The Sender waits for no answer, and no offset is known; order and memory hold."""
    async with running(acks=0, batch_size=200) as (cluster, producer):
        told = await asyncio.gather(
            *[
                await producer.send("orders", b"%d" % number + b"." * 50, partition=0)
                for number in range(30)
            ]
        )
        assert {metadata.offset for metadata in told} == {-1}
        await turns(20)
        assert [value.split(b".")[0] for value in cluster.values("orders", 0)] == [
            b"%d" % number for number in range(30)
        ]


@jumping
async def test_acks_0_to_a_broker_that_does_not_read_waits_until_it_does() -> None:
    """A record is done when the Sender has handed it over: a full write buffer holds deliveries and memory back."""
    async with running(acks=0, max_request_size=400_000, batch_size=1) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        cluster.brokers[1].pause()
        deliveries = [await producer.send("orders", bytes(300_000), partition=0) for _ in range(5)]
        await asyncio.sleep(1)
        assert not deliveries[-1].done()
        cluster.brokers[1].resume()
        await asyncio.gather(*deliveries)
        await turns(10)
        assert len(cluster.values("orders", 0)) == 6


@jumping
async def test_acks_0_written_to_a_connection_that_is_lost_may_have_been_written() -> None:
    """The producer retries or fails the records that waited in the write buffer. Nothing hangs, and memory comes back."""
    async with running(acks=0, max_request_size=400_000, batch_size=1) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        cluster.brokers[1].pause()
        deliveries = [await producer.send("orders", bytes(300_000), partition=0) for _ in range(5)]
        await asyncio.sleep(1)
        cluster.disconnect_all()
        cluster.brokers[1].resume()
        await asyncio.gather(*deliveries, return_exceptions=True)
        await turns(10)
        await producer.send_and_wait("orders", b"last", partition=0)
        await turns(10)
        assert all(delivery.done() for delivery in deliveries)
        assert cluster.values("orders", 0)[0] == b"first"
        assert cluster.values("orders", 0)[-1] == b"last"


@pytest.mark.parametrize("linger_ms", [0, 50])
@jumping
async def test_linger_lets_a_batch_fill(linger_ms: int) -> None:
    """Records of several iterations leave together; the first waits no longer than linger_ms."""
    async with running(linger_ms=linger_ms) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        began, requests = now(), len(cluster.requests("Produce"))
        deliveries = []
        for number in range(5):
            deliveries.append(await producer.send("orders", b"%d" % number, partition=0))
            await asyncio.sleep(0.001)
        await asyncio.gather(*deliveries)
        assert now() - began == pytest.approx(max(linger_ms / 1000, 0.005), abs=0.003)
        assert len(cluster.requests("Produce")) - requests == (1 if linger_ms else 5)


@jumping
async def test_a_full_batch_does_not_linger() -> None:
    """The full batch leaves in the next iteration; the one behind it lingers."""
    async with running(linger_ms=60_000, batch_size=1000) as (_, producer):
        deliveries = [await producer.send("orders", b"." * 100, partition=0) for _ in range(12)]
        await asyncio.sleep(1)
        done = [delivery.done() for delivery in deliveries]
        assert done[0]
        assert not done[-1]


@jumping
async def test_records_larger_than_a_batch_go_alone() -> None:
    """The large records stay in order with the small ones around them; metadata gives their sizes."""
    async with running(batch_size=1000, compression_type="none") as (cluster, producer):
        sizes = [1, 50_000, 3, 999_000, 1, 1, 40_000]
        told = await asyncio.gather(
            *[await producer.send("orders", bytes(size), partition=0, key=b"k") for size in sizes]
        )
        assert [metadata.serialized_value_size for metadata in told] == sizes
        assert [metadata.offset for metadata in told] == list(range(len(sizes)))
        assert [len(value or b"") for value in cluster.values("orders", 0)] == sizes


@jumping
async def test_thousands_of_tiny_records_in_one_batch_keep_their_places() -> None:
    """Indices and lengths take more than one varint byte, and exceed the table of varints."""
    async with running(batch_size=1_000_000, max_request_size=4_000_000) as (cluster, producer):
        hang = cluster.hang("Produce")
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=0) for number in range(20_000)
        ]
        keyed = [
            await producer.send("orders", b"%d" % number, key=b"k") for number in range(40_000)
        ]
        hang.release()
        await producer.flush()
        assert [
            delivery.result().offset - deliveries[0].result().offset for delivery in deliveries
        ] == sorted(range(20_000))
        where = keyed[0].result().partition
        at = {record.offset: record.value for record in cluster.records("orders", where)}
        assert all(
            at[delivery.result().offset] == b"%d" % number for number, delivery in enumerate(keyed)
        )


@jumping
async def test_timestamps_are_the_callers_the_turns_or_the_brokers() -> None:
    """With CreateTime each record of a batch keeps its given timestamp. With LogAppendTime the metadata has the broker's time."""
    async with FakeCluster(memory=True, wall_clock=lambda: 5000.0) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
        async with running(cluster) as (_, producer):
            stamps = [7_000, 3_000, 0, 7_000, 2**41]
            told = await asyncio.gather(
                *[await producer.send("orders", b"v", timestamp_ms=stamp) for stamp in stamps]
            )
            assert [metadata.timestamp_ms for metadata in told] == stamps
            assert [record.timestamp_ms for record in cluster.records("orders")] == stamps
            plain = await producer.send_and_wait("orders", b"v")
            assert plain.timestamp_ms > 1_700_000_000_000
            stamped = await producer.send_and_wait("stamped", b"v", timestamp_ms=9)
            assert (stamped.timestamp_ms, stamped.timestamp_type) == (
                5_000_000,
                TimestampType.LOG_APPEND_TIME,
            )


@jumping
async def test_what_is_queued_while_the_slots_are_taken_travels_together() -> None:
    """The Sender sends one request of many partitions, not one each."""
    async with running(partitions=50, max_in_flight_requests_per_connection=1) as (
        cluster,
        producer,
    ):
        cluster.delay("Produce", 0.1)
        await producer.send_and_wait("orders", b"first", partition=0)
        before = len(cluster.requests("Produce"))
        await asyncio.gather(
            *[await producer.send("orders", b"v", partition=partition) for partition in range(50)]
        )
        assert len(cluster.requests("Produce")) - before <= 2


@jumping
async def test_old_brokers_are_spoken_to_in_their_versions() -> None:
    """The producer speaks Produce 3 to 13, for Kafka 0.11 to 4."""
    for highest in (3, 5, 7, 8, 9, 11, 12, 13):
        async with running(versions={"Produce": (3, highest)}, partitions=1) as (cluster, producer):
            assert (await producer.send_and_wait("orders", b"v", headers=[("h", b"v")])).offset == 0
            assert {request.version for request in cluster.requests("Produce")} == {highest}
