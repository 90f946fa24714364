"""A task that computes between its sends: how long its records wait, and how often other tasks run.

The task has no wait beside its sends.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from typing import TYPE_CHECKING, Any

import pytest
from builds import on_both, producer_on
from loops import JumpingUvloop
from whole import JumpingLoop, jumping, running, running_on, turns

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer import Producer

VALUE = b"v" * 100
GO = 0.001  # seconds that a loop of sends takes before the producer lets the event loop iterate
FIRST = (
    17  # records before the producer reads the clock, where the burst before took less than that
)


def compute(seconds: float) -> None:
    """Hold the loop for `seconds`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, (JumpingLoop, JumpingUvloop))
    loop.advance(seconds)


async def warm_up(producer: Producer[Any, Any]) -> None:
    """Connect, and acknowledge each partition's first batch, which goes alone."""
    await asyncio.gather(
        *[await producer.send("orders", VALUE, b"%d" % number) for number in range(100)]
    )


async def send(
    producer: Producer[Any, Any], records: int, seconds: float, value: bytes = VALUE
) -> list[float]:
    """Compute and send, in a loop. Returns the seconds from before each `send` to its acknowledgement."""
    loop, waited = asyncio.get_running_loop(), []
    for number in range(records):
        compute(seconds)
        began = loop.time()
        delivery = await producer.send("orders", value, b"%d" % number)
        delivery.add_done_callback(lambda _, began=began: waited.append(loop.time() - began))
    await producer.flush()
    while len(waited) < records:  # callbacks run in slices
        await turns(1)
    return waited


@pytest.mark.parametrize(
    "seconds", [0.000_004, 0.000_02, 0.000_2, 0.002], ids=["4us", "20us", "200us", "2ms"]
)
@on_both
@jumping
async def test_a_record_waits_for_one_go_at_most(build: Any, seconds: float) -> None:
    """A record waits for 1 ms of its loop of sends, then for the answer.

    It does not wait for a number of queued records, nor for the end of that loop.
    """
    async with running_on(build, partitions=6) as (cluster, producer):
        await warm_up(producer)
        waited = await send(producer, 4_000, seconds)
    assert max(waited) < 2.5 * max(GO, FIRST * seconds)
    # To write a record and to read its answer takes five iterations of the event loop. Each of them sends one record at least.
    assert statistics.median(waited) < 2 * GO + 4 * seconds


@pytest.mark.parametrize("seconds", [0.000_02, 0.000_2], ids=["20us", "200us"])
@on_both
@jumping
async def test_a_load_that_changes_is_followed(build: Any, seconds: float) -> None:
    """After a thousand records that took no time, the producer reads the clock after 17 records at the latest."""
    async with running_on(build, partitions=6) as (cluster, producer):
        await send(producer, 1_000, 0.0)
        waited = await send(producer, 1_000, seconds)
    assert max(waited) < 2.5 * max(GO, FIRST * seconds)


@on_both
@jumping
async def test_other_tasks_have_their_turn(build: Any) -> None:
    """The event loop iterates every 1 ms or so, however long the task computes for each record."""
    late: list[float] = []

    async def beat() -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 0.001
            await asyncio.sleep(0.001)
            late.append(loop.time() - due)

    async with running_on(build, partitions=6) as (cluster, producer):
        await warm_up(producer)
        beating = asyncio.create_task(beat())
        await send(producer, 4_000, 0.000_1)
        beating.cancel()
    assert len(late) > 80
    assert max(late) < 2 * GO


@on_both
@jumping
async def test_a_record_leaves_at_the_end_of_its_turn_beside_a_loop_of_sends(build: Any) -> None:
    """A request slot is free, so the Sender sends the record at the end of its event-loop iteration.

    Another task that sends without a pause, to hundreds of partitions, must not delay it.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=300)
        cluster.create_topic("alone")
        async with producer_on(build)(**cluster.client_options) as producer:
            await producer.send_and_wait("alone", b"first")
            sending = asyncio.create_task(send(producer, 60_000, 0.000_01))
            loop = asyncio.get_running_loop()
            for _ in range(5):
                await turns(7)
                began = loop.time()
                await producer.send_and_wait("alone", b"one")
                assert loop.time() - began < 0.12
                assert not sending.done()
            await sending


@pytest.mark.parametrize("seconds", [0.000_005, 0.000_02], ids=["5us", "20us"])
@on_both
@jumping
async def test_a_record_waits_for_one_round_beside_a_loop_to_hundreds_of_partitions(
    build: Any, seconds: float
) -> None:
    """For 0.25 s, and until the loop's partial batches have left.

    A drain has slots for part of them. It was the only one in 0.25 s, so that the record waited for several such times, up to 1.7 s.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=500)
        cluster.create_topic("alone", partitions=1)
        async with producer_on(build)(linger_ms="auto", **cluster.client_options) as producer:
            await producer.send_and_wait("alone", b"first")
            cluster.brokers[1].latency = 0.005
            loop, waited = asyncio.get_running_loop(), []
            sending = asyncio.create_task(send(producer, int(2 / seconds), seconds))
            while not sending.done():
                began = loop.time()
                await producer.send_and_wait("alone", b"one")
                waited.append(loop.time() - began)
                await asyncio.sleep(0.03)
            await sending
    assert len(waited) > 5
    assert max(waited) < 0.35


@pytest.mark.parametrize(
    ("seconds", "partitions", "most"),
    [
        # The loop sends a few records in each slice of 1 ms: the record lingers 5 ms, then waits 1.5 ms and some slices at most.
        pytest.param(0.000_2, 6, 0.020, id="200us"),
        pytest.param(0.002, 50, 0.025, id="2ms"),
        # Each record takes an iteration of the event loop, and to write it and read the answer takes five.
        pytest.param(0.1, 6, 0.65, id="100ms"),
        pytest.param(0.3, 500, 1.95, id="300ms"),
    ],
)
@pytest.mark.parametrize("linger_ms", [5, "auto"])
@on_both
@jumping
async def test_a_batch_that_has_lingered_leaves_beside_a_loop_that_computes(
    build: Any, linger_ms: Any, seconds: float, partitions: int, most: float
) -> None:
    """What fills batches in a burst is counted in slices of 1 ms. A task that computes for longer between its sends holds back no batch."""

    async def burst() -> None:
        for number in range(1_000_000):
            compute(seconds)
            await producer.send("orders", VALUE, partition=number % partitions)

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=partitions)
        cluster.create_topic("alone")
        async with producer_on(build)(**cluster.client_options, linger_ms=linger_ms) as producer:
            await producer.send_and_wait("alone", b"first")
            sending = asyncio.create_task(burst())
            # The burst's first records go before the producer has learned its pace.
            await producer.send_and_wait("alone", b"second")
            loop, waited = asyncio.get_running_loop(), []
            for _ in range(10):
                await asyncio.sleep(0.05)
                began = loop.time()
                await producer.send_and_wait("alone", b"one")
                waited.append(loop.time() - began)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()
    assert max(waited) < most


@pytest.mark.parametrize("seconds", [0.000_002, 0.000_01, 0.000_1], ids=["2us", "10us", "100us"])
@pytest.mark.parametrize("linger_ms", [5, "auto"])
@on_both
@jumping
async def test_the_records_of_a_loop_that_computes_wait_little_longer_than_their_linger(
    build: Any, linger_ms: Any, seconds: float
) -> None:
    """They wait for `linger_ms`, and then for the next drain that takes their batch.

    Full batches of a burst left with every fourth drain, and a drain came after 8 ms: the records waited three times as long.
    """
    async with running_on(build, partitions=6, linger_ms=linger_ms) as (cluster, producer):
        await warm_up(producer)
        waited = await send(producer, int(0.4 / seconds), seconds)
    assert statistics.median(waited) < 0.010
    assert max(waited) < 0.020


@jumping
async def test_a_turn_of_the_loop_is_one_request_while_slots_are_free() -> None:
    """The records queued in one iteration leave together, and wait for nothing else."""
    async with running(max_in_flight_requests_per_connection=5) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        cluster.brokers[1].latency = 1.0
        for number in range(1, 8):
            for count in range(number):
                await producer.send("orders", b"%d" % count, partition=0)
            await turns(2)
        await producer.flush()
        counts = [batch.count for batch in cluster.log("orders", 0).batches()]
    assert counts == [1, 1, 2, 3, 4, 5, 6 + 7]


@pytest.mark.parametrize("partitions", [50, 300])
@jumping
async def test_batches_take_a_part_of_the_time_beside_a_loop_of_sends(partitions: int) -> None:
    """The Sender limits its part of the time.

    Otherwise a loop of sends to many partitions would make requests of a record or two a batch, and do nothing else.
    """
    async with running(partitions=partitions) as (cluster, producer):
        for partition in range(partitions):
            await producer.send_and_wait("orders", b"first", partition=partition)
        loop = asyncio.get_running_loop()
        began = loop.time()
        waited = await send(producer, 60_000, 0.000_005)
        took = loop.time() - began
    batches = (
        sum(len(cluster.log("orders", number).batches()) for number in range(partitions))
        - partitions
    )
    # one batch each 125 us; a batch takes the producer some 30
    assert batches * 0.000_03 < took / 3.5
    assert max(waited) < 0.3


@pytest.mark.parametrize(
    "batch_max_size", [262_144, 13_000], ids=["partial batches", "some full ones"]
)
@on_both
@jumping
async def test_each_of_many_partitions_has_its_turn_after_the_same_time(
    build: Any, batch_max_size: int
) -> None:
    """With 500 partitions, each has a request of a loop of sends after 500 times 125 us.

    Several requests at once, up to the end of the ready partitions or of the slots, would delay the next ones by the time of them all. Half
    of the partitions would wait twice. A flush, whose batches are acknowledged, delays nothing. Full batches leave sooner: the search for
    them moved the partitions that it passed behind all others, and some waited until the loop had ended.
    """
    options = {"linger_ms": 0, "batch_size": 13_000, "batch_max_size": batch_max_size}
    async with running_on(build, partitions=500, **options) as (cluster, producer):
        for partition in range(500):
            await producer.send("orders", b"first", partition=partition)
        await producer.flush()
        waited = await send(producer, 100_000, 0.000_005, value=VALUE * 4)
    assert statistics.median(waited) < 0.6 * 0.0625
    assert max(waited) < 1.25 * 0.0625


@pytest.mark.parametrize("partitions", [6, 100])
@on_both
@jumping
async def test_a_full_batch_leaves_in_the_next_iteration_of_a_loop_of_sends(
    build: Any, partitions: int
) -> None:
    """A batch that takes no more records does not wait for the time of other batches.

    With 100 partitions and large records, the queue would grow for as long as the loop sends.
    """
    options = {"linger_ms": 0, "batch_size": 16_384, "batch_max_size": 16_384}
    async with running_on(build, partitions=partitions, **options) as (cluster, producer):
        await warm_up(producer)
        waited = await send(producer, 20_000, 0.000_005, value=VALUE * 30)
    assert max(waited) < 0.025


@on_both
@jumping
async def test_a_function_that_cannot_rest_is_not_refused_for_its_time(build: Any) -> None:
    """A function without an `await` sends with `send_nowait`.

    The producer takes as many records from it in one iteration, however long it computes between them.
    """
    async with running_on(build) as (cluster, producer):
        await producer.send_and_wait("orders", b"first")
        for number in range(200):
            compute(0.01)
            producer.send_nowait("orders", VALUE, b"%d" % number)
        await producer.flush()
    assert len(cluster.values("orders")) == 201


@pytest.mark.parametrize("linger_ms", [0, 5])
@on_both
@jumping
async def test_a_loop_that_sends_more_than_is_compressed_waits_in_send(
    build: Any, linger_ms: int
) -> None:
    """Its records do not fill `buffer_memory`, as each of them would then wait for all of it: at most some requests are queued."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=6)
        options = {
            **cluster.client_options,
            "compression_type": "gzip",
            "batch_max_size": 65_536,
            "linger_ms": linger_ms,
        }
        async with producer_on(build)(**options) as producer:
            await warm_up(producer)
            # No thread compresses batches of these: they stay small, as they do not compress.
            least, value = producer.buffer_available, random.Random(7).randbytes(1_000)
            for number in range(10_000):
                compute(0.000_002)
                await producer.send("orders", value, b"%d" % number)
                least = min(least, producer.buffer_available)
            await producer.flush()
            most = producer.config.buffer_memory - least
    assert most < 2_000_000
