"""Brokers that refuse, hang, vanish or send garbage: retries, failures, and whether the record may be written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, now, running

from aioproducer.errors import ConnectionLost, DeliveryError, KafkaError, Persisted
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer import Producer


async def failure_of(producer: Producer[Any, Any], value: bytes = b"v") -> DeliveryError:
    """Return the failure of one record to partition 0."""
    delivery = await producer.send("orders", value, partition=0)
    with pytest.raises(DeliveryError) as raised:
        await delivery
    return raised.value


@jumping
async def test_a_batch_that_was_appended_and_refused_may_have_been_written() -> None:
    """The broker responds REQUEST_TIMED_OUT until the delivery times out: persisted=maybe."""
    async with running(delivery_timeout_ms=500, request_timeout_ms=500) as (cluster, producer):
        cluster.fail("Produce", "REQUEST_TIMED_OUT", times=4)
        cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        with pytest.raises(DeliveryError) as raised:
            await producer.send_and_wait("orders", b"v", partition=0)
        assert raised.value.persisted is Persisted.MAYBE
        assert cluster.values("orders")
        cluster.faults.clear()


@jumping
async def test_a_delivery_that_times_out_in_flight_may_have_been_written() -> None:
    """The delivery fails at delivery_timeout_ms, not later. Its memory is free again when the connection releases it."""
    async with running(delivery_timeout_ms=1500, request_timeout_ms=1000) as (cluster, producer):
        cluster.hang("Produce", times=2)
        began = now()
        delivery = await producer.send("orders", b"v", partition=0)
        with pytest.raises(DeliveryError, match="delivery_timeout_ms=1500") as raised:
            await delivery
        assert now() - began == pytest.approx(1.5, abs=0.01)
        assert raised.value.persisted is Persisted.MAYBE
        assert raised.value.attempts == 2
        assert isinstance(raised.value.__cause__, KafkaError)
        await asyncio.sleep(5)
        assert producer.buffer_available == producer.config.buffer_memory
        assert (await producer.send_and_wait("orders", b"next", partition=0)).offset == 0


@jumping
async def test_a_delivery_that_never_left_was_not_written() -> None:
    """The batch had no connection until it timed out: persisted=no, never sent. The cause says why there was no connection."""
    async with running(delivery_timeout_ms=1500, request_timeout_ms=1000) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        await cluster.brokers[1].stop(silently=True)
        error = await failure_of(producer)
        assert (error.persisted, error.attempts) == (Persisted.NO, 0)
        assert isinstance(error.__cause__, ConnectionLost)
        await cluster.brokers[1].start()
        await producer.send_and_wait("orders", b"last", partition=0)
        assert cluster.values("orders", 0) == [b"first", b"last"]


@jumping
async def test_a_topic_whose_leader_vanished_is_asked_for_though_another_topic_told_of_it() -> None:
    """A refresh for one topic removes a broker. The producer also refreshes other topics with records for that broker."""
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.create_topic("other")
        async with running(cluster) as (_, producer):
            await producer.send_and_wait("orders", b"0", partition=1)
            await cluster.brokers[2].stop()
            await producer.send_and_wait("other", b"0")
            cluster.move_leader("orders", 1, 1)
            delivery = await producer.send("orders", b"1", partition=1)
            assert (await asyncio.wait_for(asyncio.shield(delivery), 10)).offset == 1
            await cluster.brokers[2].start()


@jumping
async def test_a_partition_in_trouble_does_not_stop_the_others() -> None:
    """The broker refuses one partition for a while. The other partition's records are sent."""
    async with running() as (cluster, producer):
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=4, partition=0)
        held = await producer.send("orders", b"held", partition=0)
        await asyncio.gather(
            *[await producer.send("orders", b"%d" % number, partition=1) for number in range(5)]
        )
        assert not held.done()
        await held


@jumping
async def test_keys_and_values_are_in_no_error_text() -> None:
    """No error text has a key or a value, because these may be secret."""
    canary = b"CANARY-4711"
    told: list[BaseException] = []
    async with running(max_block_ms=100, delivery_timeout_ms=300, request_timeout_ms=300) as (
        cluster,
        producer,
    ):
        cluster.fail("Produce", "INVALID_RECORD")
        for call in (
            lambda: producer.send_and_wait(
                "orders", canary, canary, headers=[("h", canary)], partition=0
            ),
            lambda: producer.send("nowhere", canary, canary),
            lambda: producer.send("orders", canary.decode(), canary),
            lambda: producer.send("orders", canary, canary.decode()),
            lambda: producer.send("orders", canary * 200_000, canary),
            lambda: producer.send("orders", canary, headers=[(canary, canary)]),
            lambda: producer.send("orders", canary, headers=[("h", [canary])]),
            lambda: producer.send("orders", canary, headers=canary),
        ):
            with pytest.raises(KafkaError) as raised:
                await call()
            told.append(raised.value)
        hang = cluster.hang("Produce")
        told.append(await failure_of(producer, canary))
        hang.release()
    for error in told:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KafkaError):
                assert "CANARY" not in f"{cause!s} {cause!r}"
            cause = cause.__cause__
    assert len({type(error) for error in told}) >= 4
