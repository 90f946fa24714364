"""A full batch takes more records until the Sender sends it (KIP-782): `batch_max_size`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running

from aioproducer.core.record_validation import BATCH_OVERHEAD
from aioproducer.engine.chosen_build import RECORD_OVERHEAD
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer import Delivery, Producer

ROUND_TRIP = 0.1
VALUE = b"." * 89  # a record of 98 bytes or so


@asynccontextmanager
async def far(
    partitions: int = 1, *, config: dict[str, object] | None = None, **options: Any
) -> AsyncIterator[tuple[FakeCluster, Any]]:
    """Give a producer with one request in flight, a round trip away from its broker, after it has sent a record to each partition."""
    async with FakeCluster(memory=True, verify_records=True) as cluster:
        cluster.create_topic("orders", partitions=partitions, config=config)
        async with running(cluster, **{"max_in_flight_requests_per_connection": 1, **options}) as (
            _,
            producer,
        ):
            await asyncio.gather(
                *[
                    await producer.send("orders", b"before", partition=number)
                    for number in range(partitions)
                ]
            )
            cluster.brokers[1].latency = ROUND_TRIP
            yield cluster, producer


def sizes(cluster: FakeCluster, partition: int = 0) -> list[int]:
    """Return the sizes in bytes of the batches in a partition's log, after the first."""
    return [batch.size_in_bytes for batch in cluster.log("orders", partition).batches()][1:]


async def send(
    producer: Producer[Any, Any], count: int, *, first: int = 0, **where: Any
) -> list[Delivery]:
    return [
        await producer.send("orders", b"%6d" % number + VALUE[6:], **where)
        for number in range(first, first + count)
    ]


async def in_flight(producer: Producer[Any, Any], **where: Any) -> Delivery:
    """Send a record that is in flight for the next round trip."""
    delivery = await producer.send("orders", VALUE, **where)
    await asyncio.sleep(ROUND_TRIP / 10)
    return delivery


@pytest.mark.parametrize("linger_ms", [0, 5, "auto"])
@pytest.mark.parametrize("where", [{"partition": 0}, {"key": b"k"}, {}])
@jumping
async def test_what_cannot_be_sent_yet_gathers_in_one_batch(
    linger_ms: Any, where: dict[str, Any]
) -> None:
    """The records share one batch instead of many of 16 KiB. They stay in order, over several iterations of the loop."""
    async with far(linger_ms=linger_ms) as (cluster, producer):
        first = await in_flight(producer, **where)
        for part in range(4):
            await send(producer, 250, first=250 * part, **where)
            await asyncio.sleep(0.01)
        assert not first.done()
        await producer.flush()
        assert len(sizes(cluster)) == 2
        assert sizes(cluster)[1] > 90_000
        assert [int(value[:6]) for value in cluster.values("orders", 0)[2:]] == list(range(1000))


@jumping
async def test_no_more_than_batch_max_size() -> None:
    """The batch closes at `batch_max_size`, and the next one takes the remaining records."""
    async with far(batch_size=4_000, batch_max_size=40_000) as (cluster, producer):
        await in_flight(producer, partition=0)
        await send(producer, 1000, partition=0)
        await producer.flush()
        full, also_full, rest = sizes(cluster)[1:]
        assert 39_800 < full <= 40_000
        assert 39_800 < also_full <= 40_000
        assert rest < 40_000


@pytest.mark.parametrize("options", [{"batch_max_size": 1}, {"batch_max_size": 4_000}])
@jumping
async def test_no_more_than_batch_size_if_that_is_said(options: dict[str, Any]) -> None:
    """A `batch_max_size` of at most `batch_size` bounds batches at `batch_size`, as in Java."""
    async with far(batch_size=4_000, **options) as (cluster, producer):
        await in_flight(producer, partition=0)
        await send(producer, 200, partition=0)
        await producer.flush()
        assert len(sizes(cluster)) == 1 + 5
        assert max(sizes(cluster)) <= 4_000


@jumping
async def test_each_record_its_own_batch() -> None:
    """With `batch_size=0` each record stays alone in its batch."""
    async with far(batch_size=0, batch_max_size=262_144) as (cluster, producer):
        await send(producer, 20, partition=0)
        await producer.flush()
        assert len(sizes(cluster)) == 20


@jumping
async def test_a_batch_that_grows_while_memory_is_short_takes_little_that_it_does_not_fill() -> (
    None
):
    """It grows by `batch_size` at once, as much as another batch would take: most of what is free is left to other partitions."""
    async with far(partitions=2, buffer_memory=200_000) as (cluster, producer):
        await in_flight(producer, partition=0)
        await send(producer, 1300, partition=0)
        used = 1301 * len(VALUE)
        assert (
            200_000 - producer.buffer_available
            < used + 1301 * (9 + RECORD_OVERHEAD) + 16_384 + 2 * BATCH_OVERHEAD
        )
        await producer.flush()
        assert max(sizes(cluster)) > 90_000


@jumping
async def test_after_one_that_is_too_large_they_are_as_before() -> None:
    """A topic may take less than 256 KiB. The producer splits one batch, and all later batches have `batch_size`."""
    async with far(config={"max.message.bytes": 20_000}) as (cluster, producer):
        await in_flight(producer, partition=0)
        await send(producer, 1000, partition=0)
        await producer.flush()
        assert [int(value[:6]) for value in cluster.values("orders", 0)[2:]] == list(range(1000))
        asked = len(cluster.requests("Produce"))
        await in_flight(producer, partition=0)
        await send(producer, 1000, first=1000, partition=0)
        await producer.flush()
        assert len(cluster.requests("Produce")) - asked == 1 + 6 + 1
        assert [int(value[:6]) for value in cluster.values("orders", 0)[1003:]] == list(
            range(1000, 2000)
        )


@pytest.mark.parametrize("where", [{}, {"timestamp_ms": 1}], ids=["fast", "slow"])
@jumping
async def test_without_a_key_each_partition_gets_its_share(where: dict[str, Any]) -> None:
    """KIP-794: the share of a partition does not depend on whether its batch can be sent. The batches take more all the same.

    A record with a timestamp takes the slow path where the batch is full, in both builds.
    """
    async with far(partitions=4, partitioner_adaptive_partitioning_enable=False) as (
        cluster,
        producer,
    ):
        for number in range(4):
            await in_flight(producer, partition=number)
        deliveries = await send(producer, 4000, **where)
        await producer.flush()
        *visits, _ = [
            len(list(some))
            for _, some in groupby(delivery.result().partition for delivery in deliveries)
        ]
        assert 150 < min(visits) <= max(visits) < 340, visits
        each = [sizes(cluster, number) for number in range(4)]
        assert max(map(max, each)) > 60_000
        assert max(map(len, each)) <= 4


@jumping
async def test_a_share_goes_on_behind_a_batch_that_was_sent_meanwhile() -> None:
    """The partitioner counts the share from its switch to the partition, not from the start of its batch."""
    async with far(partitions=2, partitioner_adaptive_partitioning_enable=False) as (_, producer):
        for number in range(2):
            await in_flight(producer, partition=number)
        first = await send(
            producer, 400
        )  # a share, the next partition's share, and some of the third
        await asyncio.sleep(ROUND_TRIP)
        deliveries = [*first, *await send(producer, 400)]
        await producer.flush()
        visits = [
            len(list(some))
            for _, some in groupby(delivery.result().partition for delivery in deliveries)
        ]
        assert 150 < min(visits[:3]) <= max(visits[:3]) < 340, visits


@jumping
async def test_a_burst_fills_batches() -> None:
    """Batches linger. A tight loop's batches leave at their largest size, or every few iterations of the loop."""
    async with far(partitions=4, linger_ms=5, max_in_flight_requests_per_connection=5) as (
        cluster,
        producer,
    ):
        cluster.brokers[1].latency = 0.0
        for number in range(20_000):
            await producer.send("orders", VALUE, partition=number % 4)
        await producer.flush()
        a_turns = (
            1_300 if RECORD_OVERHEAD == 0 else 450
        )  # records; plain Python counts their objects, too
        for number in range(4):
            assert max(sizes(cluster, number)) > 3 * a_turns / 4 * len(VALUE)


@jumping
async def test_what_is_old_takes_no_more() -> None:
    """The records of a batch share the deadline that began with the first.

    A record after a sixteenth of that time goes to another batch.
    """
    async with far(delivery_timeout_ms=32_000) as (cluster, producer):
        cluster.brokers[1].latency = 5.0
        await in_flight(producer, partition=0)
        await send(producer, 100, partition=0)
        await asyncio.sleep(2.1)
        await send(producer, 400, first=100, partition=0)
        await producer.flush()
        _, old, *_others = sizes(cluster)
        assert old <= 16_384


@pytest.mark.parametrize("linger_ms", [0, 5, "auto"])
@jumping
async def test_a_record_has_its_time_whatever_it_joins(linger_ms: Any) -> None:
    """A waiting batch may have a deadline that is near, and its records share it. So no batch takes records for long."""
    async with far(linger_ms=linger_ms, delivery_timeout_ms=10_000, request_timeout_ms=9_000) as (
        cluster,
        producer,
    ):
        cluster.hang("Produce", times=1)
        loop = asyncio.get_running_loop()
        lasted: list[float] = []
        await in_flight(producer, partition=0)
        for number in range(90):
            began = loop.time()
            (delivery,) = await send(producer, 1, first=number, partition=0)
            delivery.add_done_callback(
                lambda done, began=began: (
                    lasted.append(loop.time() - began) if done.exception() else None
                )
            )
            await asyncio.sleep(0.1)
        cluster.brokers[1].pause()
        await asyncio.sleep(30)
        cluster.brokers[1].resume()
        await producer.flush()
        assert lasted
        assert min(lasted) > 15 / 16 * 10 - 0.1


@jumping
async def test_a_steady_stream_from_afar_does_not_fall_behind() -> None:
    """The linger is shorter than the round trip.

    A batch for each linger would be more than may be in flight, and the queue would grow for ever.
    """
    async with far(linger_ms=5, max_in_flight_requests_per_connection=5) as (_, producer):
        loop = asyncio.get_running_loop()
        waited: list[float] = []
        for number in range(2000):
            began = loop.time()
            delivery = await producer.send("orders", b"%d" % number, partition=0)
            delivery.add_done_callback(lambda _, began=began: waited.append(loop.time() - began))
            await asyncio.sleep(0.001)
        await producer.flush()
        assert len(waited) == 2000
        assert max(waited) < 2.5 * ROUND_TRIP


@jumping
async def test_a_full_batch_gives_back_what_it_does_not_need_when_memory_is_short() -> None:
    """The batch closes then, and a send that waits for memory gets the bytes that the batch had allocated for later records."""
    async with far(partitions=2, buffer_memory=200_000) as (cluster, producer):
        await in_flight(producer, partition=0)
        await send(
            producer, 180, partition=0
        )  # past 16 KiB: it has bytes left for four times as many
        assert producer.config.buffer_memory - producer.buffer_available > 60_000
        queued: list[Delivery] = []

        async def queue() -> None:
            for number in range(2000):
                queued.extend(await send(producer, 1, first=number, partition=1))

        queueing = asyncio.create_task(queue())
        await asyncio.sleep(ROUND_TRIP / 20)
        # An open batch of the plain build counts the overhead of its records.
        assert len(queued) > (1_200 if RECORD_OVERHEAD else 1_600)
        assert not queueing.done()
        await queueing
        await producer.flush()
        assert len(cluster.values("orders", 0)) == 2 + 180
        assert [int(value[:6]) for value in cluster.values("orders", 1)[1:]] == list(range(2000))


@pytest.mark.parametrize("memory", [20_000, 30_000, 45_000])
@pytest.mark.parametrize("where", [{"partition": 0}, {"key": b"k"}, {}])
@jumping
async def test_a_partition_that_must_not_have_more_is_closed_where_it_would_take_more(
    where: dict[str, Any], memory: int
) -> None:
    """With a circuit breaker, a batch that asks for more memory beyond its partition's quota is closed by that."""
    async with far(
        partitions=3,
        buffer_memory=memory,
        batch_size=8_000,
        batch_max_size=16_000,
        circuit_breaker_class="failure_rate",
    ) as (
        cluster,
        producer,
    ):
        await asyncio.gather(*(in_flight(producer, partition=number) for number in range(3)))
        tasks = [
            asyncio.create_task(send(producer, 1000, **place))
            for place in (where, {"partition": 1}, {"partition": 2})
        ]
        many = await producer.send_many("orders", [VALUE] * 500)
        await asyncio.gather(*tasks)
        await producer.flush()
        assert len(many) == 500
        assert (
            sum(len(cluster.values("orders", number)) for number in range(3))
            == 3 + 3 + 3 * 1000 + 500
        )
