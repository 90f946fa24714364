"""The partition circuit breaker (KIP-693): one partition fails, and the others go on.

The records of the failing partition stay in order.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from whole import jumping, now, running, turns

from aioproducer import Producer, Record
from aioproducer.core.topic_routing import murmur2
from aioproducer.errors import (
    BufferExhausted,
    DeliveryError,
    PartitionUnavailable,
    Persisted,
    ProducerClosed,
    UsageError,
    WouldBlock,
)
from aioproducer.model import CircuitEvent, CircuitState, TopicPartition
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BAD = 3
GOOD = range(3)
QUICK: dict[str, Any] = {
    "circuit_breaker_class": "failure_rate",
    "circuit_breaker_trigger_message_count": 4,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 50,
}
TINY: dict[str, Any] = {**QUICK, "buffer_memory": 40_000, "batch_size": 1000}


@asynccontextmanager
async def four(
    **options: Any,
) -> AsyncIterator[tuple[FakeCluster, Producer[Any, Any], list[tuple[str, int]]]]:
    """Give a topic of four partitions, the last of which has a broker of its own.

    The third value lists the circuit events: each state and its partition.
    """
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders", partitions=4)
        for partition in range(4):
            if cluster.leader("orders", partition) != 1 + (partition == BAD):
                cluster.move_leader("orders", partition, 1 + (partition == BAD))
        told: list[tuple[str, int]] = []

        def hear(event: CircuitEvent) -> None:
            told.append((event.state.value, event.partition.partition))

        async with running(cluster, **{"on_circuit_event": hear, **QUICK, **options}) as (
            _,
            producer,
        ):
            yield cluster, producer, told
        queues = [
            queue
            for routing in producer._engine.parts.partition_queues.routings.values()
            for queue in routing.queues
        ]
        assert [(queue.bytes, queue.is_full, queue.circuit) for queue in queues] == [
            (0, False, None)
        ] * len(queues)


async def opened(cluster: FakeCluster, producer: Producer[Any, Any], count: int = 4) -> list[Any]:
    """Let the bad partition fail until its circuit is open. Returns the deliveries of the records sent to it."""
    cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="orders", partition=BAD, times=None)
    deliveries = [
        await producer.send("orders", b"%d" % number, partition=BAD) for number in range(count)
    ]
    while not producer.health().open_breakers:
        await asyncio.sleep(0.01)
    return deliveries


# Opening, probing, closing


@jumping
async def test_a_partition_that_fails_is_left_alone_and_tried_ever_more_rarely() -> None:
    """The Sender probes after 1 s, then 2, then 4, and sends nothing to the partition in between.

    All its records arrive in order when the partition works again.
    """
    async with four() as (cluster, producer, told):
        deliveries = await opened(cluster, producer)
        began = now()
        tries = []
        for _ in range(3):
            seen = len(cluster.requests("Produce"))
            await cluster.seen("Produce", seen + 1)
            tries.append(round(now() - began))
        assert tries == [1, 3, 7]
        cluster.faults.clear()
        await asyncio.gather(*deliveries)
        assert round(now() - began) == 15
        assert cluster.values("orders", BAD) == [b"0", b"1", b"2", b"3"]
        await turns(3)
        assert told == [("open", BAD), ("probing", BAD)] * 4 + [("closed", BAD)]
        assert producer.health().open_breakers == ()


@pytest.mark.parametrize(
    "seconds", [11.3 + 0.37 * number for number in range(12)], ids="{:.2f}".format
)
@jumping
async def test_a_slow_broker_that_heals_is_well_again_within_the_interval(seconds: float) -> None:
    """The partition must work again in time with any batches in flight, and from an open, probing or closed circuit."""
    told: list[CircuitEvent] = []
    async with four(on_circuit_event=told.append) as (cluster, producer, _):
        await producer.partitions_for("orders")
        broker = cluster.brokers[2]
        acknowledged: list[float] = []

        async def work() -> None:
            while True:
                delivery = await producer.send("orders", bytes(100), partition=BAD)
                delivery.add_done_callback(lambda _: acknowledged.append(now()))
                await asyncio.sleep(0.05)

        broker.latency, broker.bandwidth = 2.0, 500
        working = asyncio.create_task(work())
        await asyncio.sleep(seconds)
        assert {event.partition.partition for event in told} == {BAD}
        interval = told[-1].interval_ms / 1000
        healed = now()
        broker.latency, broker.bandwidth = 0.002, 100_000
        while not (acknowledged and acknowledged[-1] >= healed):
            await asyncio.sleep(0.01)
        assert now() - healed <= interval + 1.0
        working.cancel()
        await producer.flush()


@jumping
async def test_errors_that_are_about_records_open_nothing() -> None:
    """The records are invalid and the partition works, so its circuit stays closed."""
    async with four() as (cluster, producer, told):
        cluster.fail("Produce", "INVALID_TIMESTAMP", topic="orders", partition=BAD, times=10)
        for _ in range(10):
            with pytest.raises(DeliveryError):
                await producer.send_and_wait("orders", b"v", partition=BAD)
        assert told == []


@jumping
async def test_a_broker_that_does_not_answer_opens_the_circuit_long_before_the_request_times_out() -> (
    None
):
    """A batch without an answer for the whole interval counts as a failure.

    When the answer comes at last, it closes a probing circuit at once.
    """
    async with four() as (cluster, producer, told):
        hang = cluster.hang("Produce", broker=2)
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=BAD) for number in range(4)
        ]
        await asyncio.sleep(1.1)
        assert told == [("open", BAD)]
        await asyncio.sleep(1.1)
        assert told == [("open", BAD), ("probing", BAD)]
        hang.release()
        await asyncio.gather(*deliveries)
        await turns(3)
        assert told[-1] == ("closed", BAD)


@jumping
async def test_what_was_on_its_way_when_a_circuit_opened_does_not_close_it() -> None:
    """The answer comes within the interval: it acknowledges its batch, and the batches behind that wait for the probe."""
    async with four() as (cluster, producer, told):
        hang = cluster.hang("Produce", broker=2)
        first = await producer.send("orders", b"first", partition=BAD)
        await asyncio.sleep(0.5)
        behind = [
            await producer.send("orders", b"%d" % number, partition=BAD) for number in range(4)
        ]
        await asyncio.sleep(0.6)
        assert told == [("open", BAD)]
        hang.release()
        assert (await first).offset == 0
        assert producer.health().open_breakers == ("orders-3 open",)
        assert not any(delivery.done() for delivery in behind)
        await asyncio.gather(*behind)
        await turns(3)
        assert told == [("open", BAD), ("probing", BAD), ("closed", BAD)]


@jumping
async def test_a_broker_that_cannot_be_reached_opens_the_circuit() -> None:
    """The Sender sends nothing and gets no answer, so attempts to connect count as failures of the batches that are ready."""
    async with four(reconnect_backoff_ms=50) as (cluster, producer, told):
        await producer.send_and_wait("orders", b"first", partition=BAD)
        await cluster.brokers[2].stop(silently=True)
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=BAD) for number in range(4)
        ]
        while not told:
            await asyncio.sleep(0.05)
        assert told[0] == ("open", BAD)
        await asyncio.sleep(3)
        await cluster.brokers[2].start()
        await asyncio.gather(*deliveries)
        assert cluster.values("orders", BAD) == [b"first", b"0", b"1", b"2", b"3"]


@jumping
async def test_another_leader_is_tried_at_once() -> None:
    """The failures belong to the old leader, so the Sender sends to the new one at once."""
    async with four(circuit_breaker_mute_retry_interval_ms=60_000, metadata_max_age_ms=500) as (
        cluster,
        producer,
        _,
    ):
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", broker=2, times=None)
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=BAD) for number in range(4)
        ]
        while not producer.health().open_breakers:
            await asyncio.sleep(0.01)
        began = now()
        cluster.move_leader("orders", BAD, 1)
        await asyncio.gather(*deliveries)
        assert now() - began < 2


@jumping
async def test_records_without_a_key_go_elsewhere_and_one_of_them_is_the_probe() -> None:
    """The partitioner avoids the partition while its circuit is open and its queue is empty.

    Then some records go to it, and their success closes the circuit.
    """
    async with four(
        delivery_timeout_ms=1500,
        request_timeout_ms=1000,
        circuit_breaker_mute_retry_interval_ms=3000,
    ) as (
        cluster,
        producer,
        told,
    ):
        failed = await asyncio.gather(*await opened(cluster, producer), return_exceptions=True)
        assert all(isinstance(error, DeliveryError) for error in failed)
        cluster.faults.clear()
        for _ in range(40):
            assert (await producer.send_and_wait("orders", b"v")).partition != BAD
        while told[-1][0] != "closed":
            await producer.send_and_wait("orders", b"v")
            await asyncio.sleep(0.01)
        assert [state for state, _ in told] == ["open", "probing", "closed"]
        assert cluster.values("orders", BAD) == [b"v"]


@jumping
async def test_a_probe_that_ends_without_an_attempt_is_followed_by_another() -> None:
    """The probe expires, as the partition has no leader.

    When it has one, the producer lets in new records, and their success closes the circuit.
    """
    options = {
        "delivery_timeout_ms": 1500,
        "request_timeout_ms": 500,
        "circuit_breaker_keyed_policy": "fail_fast",
    }
    async with four(**options, metadata_max_age_ms=500) as (cluster, producer, told):
        deliveries = await opened(cluster, producer)
        cluster.faults.clear()
        cluster.move_leader("orders", BAD, None)
        assert all(
            isinstance(error, DeliveryError)
            for error in await asyncio.gather(*deliveries, return_exceptions=True)
        )
        assert told[-1] == ("probing", BAD)
        cluster.move_leader("orders", BAD, 2)
        await producer.send_and_wait("orders", b"v", partition=BAD)
        await turns(1)  # a callback of its own reports the events
        assert told[-1] == ("closed", BAD)


# Memory


async def stalled(producer: Producer[Any, Any], count: int = 100) -> list[asyncio.Task[Any]]:
    """Start sends of 700 bytes to the bad partition, more than memory holds."""
    tasks = [
        asyncio.create_task(producer.send("orders", b"%03d" % number + b"." * 700, partition=BAD))
        for number in range(count)
    ]
    await turns(100)
    return tasks


def firsts(cluster: FakeCluster, partition: int) -> list[int]:
    return [int(value[:3]) for value in cluster.values("orders", partition) if value is not None]


@jumping
async def test_one_partition_never_holds_more_than_half_of_memory() -> None:
    """Sends to the other partitions go on as fast as ever, plain, keyed and in bulk, while those of the bad partition wait.

    Its records are logged in their order.
    """
    async with four(**TINY) as (cluster, producer, _):
        hang = cluster.hang("Produce", broker=2)
        tasks = await stalled(producer)
        waiting = [task for task in tasks if not task.done()]
        assert len(waiting) > 50
        assert 17_000 < producer.buffer_available < 24_000
        began = now()
        for number in range(200):
            await producer.send_and_wait(
                "orders", b"%03d" % number + b"." * 700, partition=number % 3
            )
        await producer.send_many(
            "orders", [Record(b"%03d" % number, partition=number % 3) for number in range(300)]
        )
        await producer.send_many("orders", [b"%03d" % number for number in range(300)])
        assert now() - began < 0.5
        assert sum(not task.done() for task in tasks) == len(waiting)
        hang.release()
        await asyncio.gather(*await asyncio.gather(*tasks))
        assert firsts(cluster, BAD)[:100] == list(range(100))


@jumping
async def test_records_without_a_key_are_not_held_up_by_a_full_partition() -> None:
    """The partitioner avoids the full partition before its circuit opens. No record without a key waits, at any size or number."""
    async with four(**TINY, circuit_breaker_mute_retry_interval_ms=100_000) as (
        cluster,
        producer,
        told,
    ):
        hang = cluster.hang("Produce", broker=2)
        for number in range(400):
            async with asyncio.timeout(1):
                await producer.send("orders", b"%03d" % number + b"." * 500)
        for _ in range(20):
            async with asyncio.timeout(1):
                await producer.send_many("orders", [b"." * 500] * 20)
        assert told == []
        await asyncio.sleep(1)
        assert producer.buffer_available > 16_000, "the others are acknowledged"
        hang.release()
        await producer.flush()


@pytest.mark.parametrize("seed", range(12))
@jumping
async def test_call_order_is_log_order_whoever_waits_for_what(seed: int) -> None:
    """Sends of all kinds and sizes share memory for a few records, and brokers hang one after the other.

    Each partition's log is in the order of the calls.
    """
    chance = random.Random(seed)
    async with four(
        **{
            **TINY,
            "buffer_memory": 2500,
            "batch_size": 300,
            "circuit_breaker_mute_retry_interval_ms": 50,
        }
    ) as (
        cluster,
        producer,
        _,
    ):
        tasks = []
        for number in range(150):
            if not number % 30:
                broker = cluster.brokers[chance.choice((1, 2))]
                broker.pause()
                asyncio.get_running_loop().call_later(chance.uniform(0, 0.3), broker.resume)
            where = chance.choice(
                ({}, {}, {"partition": chance.randrange(4)}, {"key": b"%d" % chance.randrange(9)})
            )
            value = b"%03d" % number + b"." * chance.choice((0, 10, 200, 600))
            tasks.append(asyncio.create_task(producer.send("orders", value, **where)))
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.01)))
        await asyncio.gather(*await asyncio.gather(*tasks))
        logs = [firsts(cluster, partition) for partition in range(4)]
        assert logs == [sorted(log) for log in logs]
        assert sorted(chain.from_iterable(logs)) == list(range(150))


@jumping
async def test_who_waits_for_memory_behind_a_record_of_a_full_partition_does_not_wait_for_that() -> (
    None
):
    """A record of the bad partition comes to the head of the wait queue for memory.

    It leaves that queue, and the producer serves the next send.
    """
    async with four(**TINY) as (cluster, producer, _):
        hang = cluster.hang("Produce", broker=2)
        both = cluster.hang("Produce", broker=1)
        tasks = await stalled(producer)
        others = [
            asyncio.create_task(producer.send("orders", b"." * 900, partition=number % 3))
            for number in range(40)
        ]
        bad = asyncio.create_task(producer.send("orders", b"777", partition=BAD))
        behind = [
            asyncio.create_task(producer.send("orders", b"." * 900, partition=number % 3))
            for number in range(10)
        ]
        await turns(50)
        assert not behind[0].done()
        both.release()
        await asyncio.gather(*others, *behind)
        assert not bad.done()
        hang.release()
        await (await bad)
        assert firsts(cluster, BAD)[-1] == 777
        await asyncio.gather(*tasks)


@jumping
async def test_a_send_that_waits_for_a_muted_partition_is_refused_in_time() -> None:
    """The send fails with PartitionUnavailable after max_block_ms: its record is not in the log, and the error's text says why.

    The deadlines of other sends do not change.
    """
    async with four(**TINY, max_block_ms=5000) as (cluster, producer, _):
        hang = cluster.hang("Produce", broker=2)
        tasks = await stalled(producer)
        began = now()
        with pytest.raises(
            PartitionUnavailable,
            match=r"orders-3: the circuit breaker has muted the partition .*max_block_ms=5000",
        ) as raised:
            await tasks[-1]
        assert now() - began == pytest.approx(5)
        assert raised.value.persisted is Persisted.NO
        assert (raised.value.topic, raised.value.partition) == ("orders", BAD)
        assert producer.health().waiting == 0
        hang.release()
        queued = [task.result() for task in tasks if task.exception() is None]
        await asyncio.gather(*queued)
        assert firsts(cluster, BAD) == list(range(len(queued)))


@jumping
async def test_a_partition_that_is_only_slow_is_not_said_to_be_muted() -> None:
    """The partition holds as much memory as is free, and its circuit is closed. The send fails with BufferExhausted and the figures."""
    async with four(**TINY, max_block_ms=500) as (cluster, producer, told):
        hang = cluster.hang("Produce", broker=2)
        tasks = await stalled(producer)
        with pytest.raises(BufferExhausted, match=r"orders-3 holds \d+ bytes of buffer_memory"):
            await tasks[-1]
        assert told == []
        with pytest.raises(WouldBlock, match="room for its partition"):
            producer.send_nowait("orders", b"v", partition=BAD)
        hang.release()
        await asyncio.gather(*tasks, return_exceptions=True)


@jumping
async def test_flush_and_stop_cover_what_waits_for_a_partition() -> None:
    """A flush waits until the pending sends of a partition have ended, too; `explain` says what they wait for."""
    async with four(**TINY) as (cluster, producer, _):
        hang = cluster.hang("Produce", broker=2)
        tasks = await stalled(producer)
        assert " waiting for room for its partition orders-3" in producer.explain()
        assert (await producer.flush(timeout=0.2)).pending >= sum(not task.done() for task in tasks)
        flush = asyncio.create_task(producer.flush())
        await turns(10)
        hang.release()
        assert (await flush).pending == 0
        assert len(firsts(cluster, BAD)) == 100
        await asyncio.gather(*tasks)


@jumping
async def test_rows_without_a_key_wait_while_every_partition_is_full() -> None:
    """They are queued behind the records that wait for the same partition."""
    async with four(**TINY) as (cluster, producer, _):
        hangs = [cluster.hang("Produce", broker=broker) for broker in (1, 2)]
        await producer.partitions_for("orders")
        with pytest.raises(WouldBlock, match="room for its partition"):
            for _ in range(100):
                producer.send_nowait("orders", b"." * 900)
        waiting = [
            asyncio.create_task(producer.send("orders", b"waits %d" % number, partition=number))
            for number in range(4)
        ]
        await turns(3)
        rows = asyncio.create_task(producer.send_columns("orders", values=pa.array([b"row"] * 10)))
        await turns(20)
        assert not rows.done()
        for hang in hangs:
            hang.release()
        deliveries = await asyncio.gather(*waiting)
        await asyncio.gather(*deliveries, await rows)
        for partition in range(4):
            values = cluster.values("orders", partition)
            assert b"row" not in values[: values.index(b"waits %d" % partition)]


@jumping
async def test_flush_covers_what_comes_to_wait_for_a_partition_meanwhile() -> None:
    """The sends wait for metadata as the flush begins. Most of them wait for their full partition once it is known."""
    async with four(**TINY) as (_, producer, _):
        tasks = [
            asyncio.create_task(producer.send("orders", b"." * 700, partition=BAD))
            for _ in range(100)
        ]
        await turns(2)
        assert "metadata" in producer.explain()
        assert await producer.flush() == (100, 0, 0)
        assert [task.result().done() for task in tasks] == [True] * 100


@jumping
async def test_stopping_tries_once_more_what_is_muted(caplog: pytest.LogCaptureFixture) -> None:
    """`stop` sends the records of a muted partition once more, however long its interval. No record is lost that the cluster would take."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=4)
        async with running(cluster, **QUICK, circuit_breaker_mute_retry_interval_ms=1_000_000) as (
            _,
            producer,
        ):
            deliveries = await opened(cluster, producer)
            cluster.faults.clear()
            await turns(3)
            caplog.clear()
        assert "works again" not in caplog.text, "nobody knows that yet"
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2, 3]


@jumping
async def test_who_waits_for_a_partition_stays_with_it_when_its_key_belongs_elsewhere() -> None:
    """The topic gets partitions while sends wait for one of them. They keep their partition, as the records that are queued there do."""
    async with four(**TINY, metadata_max_age_ms=500) as (cluster, producer, _):
        hang = cluster.hang("Produce", broker=2)
        key = next(
            key
            for key in (b"%d" % number for number in range(1000))
            if murmur2(key) % 4 == BAD != murmur2(key) % 64
        )
        tasks = [
            asyncio.create_task(producer.send("orders", b"%03d" % number + b"." * 700, key=key))
            for number in range(60)
        ]
        await turns(100)
        assert not tasks[-1].done()
        cluster.add_partitions("orders", 64)
        await asyncio.sleep(0.7)
        tasks.append(asyncio.create_task(producer.send("orders", b"060", key=key)))
        await turns(100)
        hang.release()
        await asyncio.gather(*await asyncio.gather(*tasks))
        assert firsts(cluster, BAD) == list(range(60))
        assert sorted(
            chain.from_iterable(firsts(cluster, partition) for partition in range(4, 64))
        ) == [60]


# Keyed records: the policy


async def bad_key(producer: Producer[Any, Any]) -> bytes:
    """Return a key of the bad partition."""
    await producer.partitions_for("orders")
    return next(
        key
        for key in (b"%d" % number for number in range(100))
        if (murmur2(key) & 0x7FFFFFFF) % 4 == BAD
    )


@jumping
async def test_strict_keeps_a_key_where_it_belongs() -> None:
    """The default policy queues the record behind those of its partition."""
    async with four() as (cluster, producer, _):
        key = await bad_key(producer)
        await opened(cluster, producer)
        delivery = await producer.send("orders", b"keyed", key=key)
        await asyncio.sleep(0.5)
        assert not delivery.done()
        cluster.faults.clear()
        assert (await delivery).partition == BAD
        assert cluster.values("orders", BAD)[-1] == b"keyed"


@pytest.mark.parametrize("is_named", [False, True], ids=["key", "name"])
@jumping
async def test_available_sends_elsewhere_while_it_is_muted(is_named: bool) -> None:
    """A key always goes to the same partition while the same partitions are usable. It returns to its own when the circuit closes."""
    async with four(circuit_breaker_keyed_policy="available") as (cluster, producer, told):
        key = await bad_key(producer)
        where: dict[str, Any] = {"partition": BAD} if is_named else {"key": key}
        assert (await producer.send_and_wait("orders", b"v", **where)).partition == BAD
        await opened(cluster, producer)
        seen = {
            (await producer.send_and_wait("orders", b"v", **where)).partition for _ in range(20)
        }
        seen |= {
            metadata.partition
            for metadata in await (
                await producer.send_many("orders", [Record(b"v", **where)] * 100)
            )
        }
        assert BAD not in seen
        assert is_named or len(seen) == 1
        cluster.faults.clear()
        while told[-1][0] != "closed":
            await asyncio.sleep(0.1)
        assert (await producer.send_and_wait("orders", b"v", **where)).partition == BAD


@jumping
async def test_available_takes_along_those_who_wait() -> None:
    """Sends that wait for memory when the circuit opens go to other partitions then, in order."""
    async with four(**TINY, circuit_breaker_keyed_policy="available") as (cluster, producer, told):
        hang = cluster.hang("Produce", broker=2)
        tasks = await stalled(producer)
        assert not tasks[-1].done()
        await asyncio.sleep(1.2)
        assert told[0] == ("open", BAD)
        deliveries = await asyncio.gather(*tasks)
        assert {(await delivery).partition for delivery in deliveries[-20:]} <= set(GOOD)
        hang.release()
        await producer.flush()


@jumping
async def test_available_with_nothing_available_keeps_to_the_partition() -> None:
    """All partitions are muted, so that no other one is better: the record goes to its own."""
    own = Own()
    async with four(circuit_breaker_class=own, circuit_breaker_keyed_policy="available") as (
        _,
        producer,
        _,
    ):
        await producer.partitions_for("orders")
        for partition in range(4):
            own.manager.mute(TopicPartition("orders", partition))
        delivery = await producer.send("orders", b"v", partition=BAD)
        assert (await delivery).partition == BAD


@jumping
async def test_fail_fast_says_so_at_once() -> None:
    """Sends by key, by partition, in bulk, and of whole batches fail at once; a record without a key goes to another partition.

    Pending sends fail when the circuit opens.
    """
    async with four(**TINY, circuit_breaker_keyed_policy="fail_fast") as (cluster, producer, told):
        key = await bad_key(producer)
        hang = cluster.hang("Produce", broker=2)
        tasks = await stalled(producer)
        parked = [task for task in tasks if not task.done()]
        await asyncio.sleep(1.1)
        assert told == [("open", BAD)]
        for task in parked:
            with pytest.raises(PartitionUnavailable, match="muted"):
                await task
        began = now()
        with pytest.raises(PartitionUnavailable, match=r"orders-3: .*RequestTimedOut|no answer"):
            await producer.send("orders", b"v", key=key)
        with pytest.raises(PartitionUnavailable):
            producer.send_nowait("orders", b"v", partition=BAD)
        with pytest.raises(PartitionUnavailable):
            await producer.send_many("orders", [Record(b"v", partition=BAD)])
        assert (await producer.send_and_wait("orders", b"v")).partition != BAD
        assert now() == pytest.approx(began, abs=0.1)
        hang.release()


# Promises that are kept


@pytest.mark.parametrize(
    "options",
    [{}, {"enable_idempotence": False}, {"max_in_flight_requests_per_connection": 1}],
    ids=str,
)
@jumping
async def test_nothing_is_lost_doubled_or_out_of_order_over_openings(
    options: dict[str, Any],
) -> None:
    """Errors come and go on two of four partitions for 30 s, and the fake cluster checks the sequence numbers strictly."""
    async with four(**{**TINY, **options}) as (cluster, producer, told):
        sent: dict[int, list[int]] = {partition: [] for partition in range(4)}

        async def work(partition: int) -> None:
            for number in range(300):
                await producer.send("orders", b"%03d" % number + b"." * 100, partition=partition)
                sent[partition].append(number)
                await asyncio.sleep(0.1)

        async def trouble() -> None:
            for round_ in range(5):
                partition = BAD if round_ % 2 else 0
                cluster.fail(
                    "Produce",
                    "NOT_LEADER_OR_FOLLOWER",
                    topic="orders",
                    partition=partition,
                    times=None,
                )
                await asyncio.sleep(4)
                cluster.faults.clear()
                await asyncio.sleep(2)

        await asyncio.gather(trouble(), *map(work, range(4)))
        await producer.flush()
        there = {partition: firsts(cluster, partition) for partition in range(4)}
        assert {partition: sorted(numbers) for partition, numbers in there.items()} == sent
        assert there == sent or not producer.config.is_idempotent
        assert ("open", BAD) in told
        assert ("open", 0) in told


@jumping
async def test_a_transaction_waits_for_a_muted_partition() -> None:
    """The commit waits until the probe has succeeded, so that it includes the records of the muted partition."""
    async with four(transactional_id="t") as (cluster, producer, _):
        async with producer.transaction():
            await producer.send("orders", b"good", partition=0)
            await opened(cluster, producer)
            cluster.faults.clear()
        assert cluster.values("orders", BAD, isolation="read_committed") == [b"0", b"1", b"2", b"3"]
        assert cluster.values("orders", 0, isolation="read_committed") == [b"good"]


# A breaker of the user's own


class Own:
    """A breaker that holds batches, raises and mutes as a test wants."""

    def __init__(self) -> None:
        self.manager: Any = None
        self.options: dict[str, Any] = {}
        self.holds = 0
        self.raises = False
        self.is_closed = False
        self.mutes = False
        self.completed: list[tuple[int, str]] = []
        self.contexts: list[tuple[int, int, int, int, bool, int]] = []

    def configure(self, options: Any) -> None:
        self.options = dict(options)

    def set_circuit_break_manager(self, manager: Any) -> None:
        self.manager = manager

    def on_send(self, context: Any) -> bool:
        if self.raises:
            raise RuntimeError("a bug of the user's")
        one = context.partition
        self.contexts.append(
            (
                one.partition,
                context.node_id,
                context.in_flight_requests[context.node_id],
                context.queued_bytes[one],
                context.throttled[context.node_id],
                context.in_flight_batches[one],
            )
        )
        self.holds -= 1
        return self.holds < 0

    def on_complete(self, context: Any, partition: Any, error: Exception | None) -> bool:
        if self.raises:
            raise RuntimeError("a bug of the user's")
        self.completed.append((partition.partition, type(error).__name__))
        if self.mutes and error is not None:
            self.manager.mute(partition)
        return context.records > 1_000_000

    def close(self) -> None:
        self.is_closed = True


@jumping
async def test_a_breaker_of_the_users_own_is_asked_and_told_for_each_batch() -> None:
    """The producer configures the breaker with its own options and the producer's, and closes it once."""
    own = Own()
    async with four(circuit_breaker_class=own, circuit_breaker_options={"mine": 5}) as (
        cluster,
        producer,
        _,
    ):
        assert own.options["mine"] == 5
        assert own.options["trigger_message_count"] == 4
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="orders", partition=1)
        for partition in (0, 1):
            for _ in range(50):
                await producer.send("orders", b"v", partition=partition)
        await producer.flush()
        assert sorted(own.completed) == [(0, "NoneType"), (1, "BrokerError"), (1, "NoneType")]
        assert [(one[0], one[1]) for one in own.contexts] == [(0, 1), (1, 1), (1, 1)]
        assert all(1000 < one[3] < 3000 and not one[4] for one in own.contexts)
    assert own.is_closed


@jumping
async def test_the_breaker_is_not_told_of_a_partition_that_its_topic_no_longer_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A topic is created again with fewer partitions while a batch is in flight. A breaker that muted its partition would get UsageError."""
    own = Own()
    own.mutes = True
    async with four(circuit_breaker_class=own) as (cluster, producer, _):
        hang = cluster.hang("Produce", partition=BAD)
        delivery = await producer.send("orders", b"v", partition=BAD)
        await hang.reached()
        cluster.delete_topic("orders")
        cluster.create_topic("orders", partitions=1)
        await producer.send_and_wait("orders", b"v", partition=0)
        own.completed.clear()
        hang.release()
        with pytest.raises(DeliveryError):
            await delivery
        assert BAD not in [partition for partition, _ in own.completed]
    assert "raised UsageError" not in caplog.text


@jumping
async def test_a_batch_that_is_held_goes_a_little_later() -> None:
    """The producer asks the breaker again each time, until the breaker lets the batch go."""
    own = Own()
    async with four(circuit_breaker_class=own) as (_, producer, _):
        own.holds = 5
        began = now()
        await producer.send_and_wait("orders", b"v", partition=0)
        assert now() - began == pytest.approx(0.5, abs=0.05)


@jumping
async def test_a_breaker_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The producer goes on as if the breaker had let each batch go. It logs each function that raises once."""
    own = Own()
    own.raises = True
    async with four(circuit_breaker_class=own) as (cluster, producer, _):
        for number in range(10):
            await producer.send_and_wait("orders", b"%d" % number, partition=0)
        assert len(cluster.values("orders", 0)) == 10
    raised = [record for record in caplog.records if "raised RuntimeError" in record.getMessage()]
    assert len(raised) == 2, "once for each of its functions"


class NoTruth:
    """Stands for an array, which has no truth value."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


@jumping
async def test_a_breaker_whose_answer_has_no_truth_value_harms_nobody() -> None:
    """As one that raises."""
    own = Own()
    own.on_send = own.on_complete = lambda *_told: NoTruth()  # type: ignore[assignment, method-assign, return-value]
    async with four(circuit_breaker_class=own) as (cluster, producer, _):
        await asyncio.gather(
            *[producer.send_and_wait("orders", b"v", partition=0) for _ in range(10)]
        )
        assert len(cluster.values("orders", 0)) == 10


class EndOfLoop(BaseException):
    """Stands for KeyboardInterrupt."""


@pytest.mark.parametrize("function", ["on_send", "on_complete"])
@jumping
async def test_what_ends_a_loop_fails_the_producer(function: str) -> None:
    """The drain or answer that called the breaker cannot go on. Each delivery ends."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: told.append(repr(context["exception"]))
    )
    own, error = Own(), EndOfLoop()
    raises: list[EndOfLoop] = []

    def raise_one(*_told: Any) -> bool:
        if raises:
            raise raises.pop()
        return True

    setattr(own, function, raise_one)
    async with four(circuit_breaker_class=own) as (_, producer, _):
        await producer.send_and_wait("orders", b"first", partition=0)
        raises.append(error)
        deliveries = [await producer.send("orders", b"v", partition=at) for at in range(4)]
        await asyncio.wait([asyncio.ensure_future(delivery) for delivery in deliveries], timeout=1)
        assert any(isinstance(delivery.exception(), DeliveryError) for delivery in deliveries)
        with pytest.raises(ProducerClosed) as caught:
            await producer.send("orders", b"late")
        assert caught.value.__cause__ is error
    assert set(told) == {"EndOfLoop()"}


@jumping
async def test_a_hook_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The producer goes on when the hook raises, and logs that once."""

    def hook(_event: CircuitEvent) -> None:
        raise RuntimeError("a bug of the user's")

    async with four(on_circuit_event=hook) as (cluster, producer, _):
        deliveries = await opened(cluster, producer)
        cluster.faults.clear()
        await asyncio.gather(*deliveries)
    assert (
        sum(
            "on_circuit_event raised RuntimeError" in record.getMessage()
            for record in caplog.records
        )
        == 1
    )


@jumping
async def test_the_manager_mutes_brokers_and_tells_which_partitions_are_muted() -> None:
    """The manager mutes all partitions that a broker leads. It raises UsageError for a partition that it does not know."""
    own = Own()
    async with four(circuit_breaker_class=own, circuit_breaker_mute_retry_interval_ms=60_000) as (
        _,
        producer,
        told,
    ):
        await producer.partitions_for("orders")
        manager, orders = own.manager, [TopicPartition("orders", number) for number in range(4)]
        assert manager.available_partitions_for_topic("orders") == orders
        manager.mute(1)
        assert manager.muted_partitions_for_topic("orders") == orders[:3]
        assert manager.available_partitions_for_topic("orders") == orders[3:]
        assert manager.muted_partitions_for_node(1) == {"orders": orders[:3]}
        assert manager.available_partitions_for_node(1) == {}
        assert manager.available_partitions_for_node(2) == {"orders": orders[3:]}
        assert {(await producer.send_and_wait("orders", b"v")).partition for _ in range(20)} == {
            BAD
        }
        manager.unmute(orders[0])
        manager.mute(orders[3])
        manager.mute(orders[3])
        assert [manager.is_muted(one) for one in orders] == [False, True, True, True]
        assert {(await producer.send_and_wait("orders", b"v")).partition for _ in range(20)} == {0}
        manager.unmute(1)
        manager.unmute(2)
        assert manager.available_partitions_for_topic("orders") == orders
        assert manager.muted_partitions_for_topic("nothing") == []
        for unknown in (TopicPartition("orders", 4), TopicPartition("nothing", 0)):
            with pytest.raises(UsageError, match="there is no partition"):
                manager.mute(unknown)
        await turns(2)
        assert told == [
            ("open", 0),
            ("open", 1),
            ("open", 2),
            ("closed", 0),
            ("open", 3),
            ("closed", 1),
            ("closed", 2),
            ("closed", 3),
        ]
        assert repr(manager) == "<ProducerCircuitBreakManager of Own: 0 open circuits>"


@jumping
async def test_a_class_is_made_an_object_of() -> None:
    """The producer makes an object of a breaker's class when it starts. A class that cannot be made without arguments raises UsageError."""

    class Needy(Own):
        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    made: list[Own] = []

    class Mine(Own):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    async with four(circuit_breaker_class=Mine) as (_, producer, _):
        await producer.send_and_wait("orders", b"v", partition=0)
    assert [own.completed for own in made] == [[(0, "NoneType")]]
    async with FakeCluster(memory=True) as cluster:
        producer = Producer(**cluster.client_options, circuit_breaker_class=Needy)
        with pytest.raises(UsageError, match="Needy cannot be made without arguments"):
            await producer.start()


@jumping
async def test_with_one_request_in_flight_a_broker_that_does_not_answer_is_muted_whole() -> None:
    """With `circuit_breaker_enable_mute_inflight_full`, one record without an answer is enough."""
    options = {
        "circuit_breaker_enable_mute_inflight_full": True,
        "max_in_flight_requests_per_connection": 1,
    }
    async with four(**options) as (cluster, producer, told):
        hang = cluster.hang("Produce", broker=1)
        delivery = await producer.send("orders", b"v", partition=0)
        await asyncio.sleep(1.01)
        assert told == [("open", 0), ("open", 1), ("open", 2)]
        hang.release()
        assert (await delivery).offset == 0


@jumping
async def test_a_change_is_an_event_with_facts(caplog: pytest.LogCaptureFixture) -> None:
    """The producer logs one message for each change and passes the cause to the hook. Health and metrics show the change."""
    heard: list[CircuitEvent] = []
    with caplog.at_level(logging.INFO, "aioproducer.events"):
        async with four(on_circuit_event=heard.append) as (cluster, producer, _):
            deliveries = await opened(cluster, producer)
            assert producer.health().open_breakers == ("orders-3 open",)
            cluster.faults.clear()
            await asyncio.gather(*deliveries)
            await turns(3)
    assert [(event.state, event.interval_ms) for event in heard] == [
        (CircuitState.OPEN, 1000.0),
        (CircuitState.PROBING, 1000.0),
        (CircuitState.CLOSED, 0.0),
    ]
    assert "NOT_ENOUGH_REPLICAS" in str(heard[0].cause)
    events = [
        record.event
        for record in caplog.records
        if getattr(record, "event", "").startswith("breaker")
    ]  # type: ignore[attr-defined]
    assert events == ["breaker-opened", "breaker-probing", "breaker-closed"]


@jumping
async def test_without_a_breaker_nothing_is_muted_or_bounded() -> None:
    """By default, as in Java, one partition may take all the memory."""
    async with four(**{**TINY, "circuit_breaker_class": None}) as (cluster, producer, told):
        hang = cluster.hang("Produce", broker=2)
        await stalled(producer)
        assert producer.buffer_available < 2000
        hang.release()
        await producer.flush()
        assert told == []
