"""Sends while memory is short: their wait, their order, and the state after a cancelled or overdue wait."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from builds import on_both, producer_on
from whole import jumping, running, running_on, turns

from aioproducer.core.record_validation import BATCH_OVERHEAD
from aioproducer.core.topic_routing import murmur2
from aioproducer.engine.append import loop_budget
from aioproducer.engine.append.admission import Admission
from aioproducer.engine.chosen_build import SLICE_RECORDS
from aioproducer.engine.memory.pending_send import FOR_FULL_PARTITION, PendingSend
from aioproducer.errors import BufferExhausted, RecordTooLarge, WouldBlock
from aioproducer.records.record_batch import OVERHEAD
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer import Producer

KEYS = {(murmur2(b"%d" % number) & 0x7FFFFFFF) % 8: b"%d" % number for number in range(100)}
"""One for each of eight partitions."""
SMALL = {"buffer_memory": 4000, "batch_size": 1000}


async def fill(producer: Producer[Any, Any]) -> list[asyncio.Task[Any]]:
    """Send until one send has to wait for memory. Returns the task of that send."""
    sent = 0
    while True:
        task = asyncio.create_task(
            producer.send("orders", b"fill-%d" % sent + b"." * 700, partition=0)
        )
        await turns(20)
        if not task.done():
            return [task]
        sent += 1
        assert sent < 100, "memory never became short"


@jumping
async def test_fifty_tasks_against_a_stalled_broker_all_arrive_once_and_in_order() -> None:
    """A broker stalls for 5 s and the producer has 20 KB of memory: the records of each task arrive once, in order."""
    async with running(partitions=6, buffer_memory=20_000, batch_size=1000) as (cluster, producer):

        async def work(number: int) -> None:
            for count in range(100):
                await producer.send("orders", b"%d:%d" % (number, count), key=b"key-%d" % number)

        await producer.send_and_wait("orders", b"0:-1", key=b"key-0")
        cluster.brokers[1].pause()
        asyncio.get_running_loop().call_later(5, cluster.brokers[1].resume)
        await asyncio.gather(*(work(number) for number in range(50)))
        await producer.flush()
    order: dict[bytes, list[int]] = {b"%d" % number: [] for number in range(50)}
    for value in cluster.values("orders"):
        assert value is not None
        number, count = value.split(b":")
        order[number].append(int(count))
    assert order.pop(b"0") == list(range(-1, 100))
    assert all(counts == list(range(100)) for counts in order.values())


@pytest.mark.parametrize("linger_ms", ["auto", 0, 50])
@on_both
@jumping
async def test_a_backlog_that_has_used_up_the_memory_is_not_cut_into_small_batches(
    build: Any, linger_ms: Any
) -> None:
    """The broker is slower than the task that sends, so memory comes back in small amounts.

    The producer must append to batches with bytes left and must not open new ones.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=12)
        cluster.brokers[1].latency, cluster.brokers[1].bandwidth = 0.001, 1_000_000
        options: dict[str, Any] = {
            "buffer_memory": 300_000,
            "batch_size": 8192,
            "linger_ms": linger_ms,
        }
        async with producer_on(build)(**cluster.client_options, **options) as producer:
            for number in range(20_000):
                await producer.send("orders", b"%0100d" % number, b"%d" % number)
            await producer.flush()
        logs = [cluster.log("orders", partition) for partition in range(12)]
        assert sum(log.end_offset for log in logs) == 20_000
        assert sum(len(log.batches()) for log in logs) < 3.25 * 20_000 * 110 / 8192, (
            "of a few records each"
        )


@pytest.mark.parametrize("memory", [28_000, 30_000, 32_000])
@on_both
@jumping
async def test_a_batch_that_finds_no_memory_to_grow_stays_open_behind_others(
    build: Any, memory: int
) -> None:
    """The send that waits for memory, and those after it, are appended to that batch until it is full: 15 records.

    Closed, it would not be sent sooner, and a small batch would follow it. (Here no batch grows beyond `batch_size`.)
    """
    options: dict[str, Any] = {"buffer_memory": memory, "batch_size": 8192, "batch_max_size": 1}
    options |= {"linger_ms": 0, "max_in_flight_requests_per_connection": 1}
    async with running_on(build, **options) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        hang = cluster.hang("Produce")
        waiting: asyncio.Task[Any] | None = None
        while waiting is None:
            task = asyncio.create_task(producer.send("orders", bytes(500), partition=0))
            await turns(20)
            waiting = None if task.done() else task
        hang.release()
        await waiting
        for _ in range(10):
            await producer.send("orders", bytes(500), partition=0)
        await producer.flush()
    # The second batch is in flight, and the last one is cut by the flush.
    counts = [len(list(batch.records())) for batch in cluster.log("orders", 0).batches()]
    assert counts[:2] == [1, 1]
    assert len(counts) >= 5
    assert set(counts[2:-1]) == {15}


@pytest.mark.parametrize("linger_ms", ["auto", 0, 5])
@pytest.mark.parametrize(
    ("partitions", "is_keyed", "most_seconds"), [(6, True, 0.11), (6, False, 0.11), (1, True, 0.2)]
)
@on_both
@jumping
async def test_a_backlog_for_a_distant_broker_leaves_in_large_batches(
    build: Any, partitions: int, is_keyed: bool, most_seconds: float, linger_ms: Any
) -> None:
    """More is sent than five requests of 16 KiB a partition carry in a round trip, so memory is used up.

    Were a full batch closed while memory is short, the backlog would never get shorter.
    """
    count = 50_000
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=partitions)
        cluster.brokers[1].latency = 0.02
        async with producer_on(build)(
            **cluster.client_options, linger_ms=linger_ms, buffer_memory=4 << 20
        ) as producer:
            await producer.partitions_for("orders")
            before = asyncio.get_running_loop().time()
            for number in range(count):
                await producer.send(
                    "orders", b"%0100d" % number, b"%d" % number if is_keyed else None
                )
            await producer.flush()
            seconds = asyncio.get_running_loop().time() - before
        logs = [cluster.log("orders", number) for number in range(partitions)]
        assert sum(log.end_offset for log in logs) == count
        assert seconds < most_seconds
        assert sum(len(log.batches()) for log in logs) < 80


@pytest.mark.parametrize(
    ("partitions", "memory", "most"),
    [(400, 32 << 20, 4_000), (3000, 32 << 20, 8_000), (3000, 8 << 20, 12_000)],
)
@on_both
@jumping
async def test_a_burst_to_many_partitions_fills_their_batches(
    build: Any, partitions: int, memory: int, most: int
) -> None:
    """The batches of a burst linger and fill; sent every few iterations of the loop, each would carry a record or two.

    When the burst is over, the Sender sends the partial batches soon. Where memory is short, no batch takes all its bytes at once, as a
    few such batches would leave no memory for the others.
    """
    async with running_on(build, partitions=partitions, buffer_memory=memory, linger_ms=5) as (
        cluster,
        producer,
    ):
        sent = [
            await producer.send("orders", b"%0100d" % number, b"%d" % number)
            for number in range(40_000)
        ]
        before = asyncio.get_running_loop().time()
        await asyncio.gather(*sent)
        assert asyncio.get_running_loop().time() - before < 0.1
    logs = [cluster.log("orders", partition) for partition in range(partitions)]
    assert sum(log.end_offset for log in logs) == 40_000
    assert sum(len(log.batches()) for log in logs) < most


@on_both
@jumping
async def test_batches_open_with_what_the_last_ones_took_while_memory_is_short(build: Any) -> None:
    """A thousand partitions fill the memory: a new batch allocates the bytes that the previous batches took.

    To grow from the smallest size to three records each time would cost as much as the records.
    """
    async with running_on(build, partitions=1000, buffer_memory=4 << 20, linger_ms=5) as (
        cluster,
        producer,
    ):
        room = producer._engine.parts.appender.room
        grown, grow = 0, room.grow

        def count(*batch: Any) -> bool:
            nonlocal grown
            grown += 1
            return bool(grow(*batch))

        room.grow = count
        for burst in range(3):
            batches = sum(
                len(cluster.log("orders", partition).batches()) for partition in range(1000)
            )
            grown = 0
            await asyncio.gather(
                *[
                    await producer.send("orders", bytes(700), b"%d" % number)
                    for number in range(burst, 8000)
                ]
            )
        batches = (
            sum(len(cluster.log("orders", partition).batches()) for partition in range(1000))
            - batches
        )
    assert grown < batches


@jumping
async def test_a_backlog_of_thousands_of_partitions_goes_in_several_requests() -> None:
    """The Sender spreads the batches over several requests, as a broker appends one batch after the other.

    In a single request, all batches would wait for the last one, perhaps past the request's time-out.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=3000)
        cluster.brokers[1].latency = 0.05
        async with running(cluster, linger_ms=1000) as (_, producer):
            for partition in range(3000):
                await producer.send("orders", b"v", partition=partition)
            await asyncio.sleep(2)
        sent = [
            len(topic.partitions)
            for request in cluster.requests("Produce")
            for topic in request.message.topics
        ]
        assert sum(sent) == 3000
        assert 500 < max(sent) <= 1024


@jumping
async def test_who_waits_for_memory_does_not_keep_the_loop_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a broker stalls, the producer tries a pending send when memory comes back, not once in every iteration of the loop."""
    async with running(**SMALL) as (cluster, producer):
        hang = cluster.hang("Produce")
        waiting = await fill(producer)
        tried = 0
        serve = Admission.serve

        def count(*self: Any, **how: Any) -> None:
            nonlocal tried
            tried += 1
            serve(*self, **how)

        monkeypatch.setattr(Admission, "serve", count)
        before = time.process_time()
        await asyncio.sleep(20)
        assert tried < 50
        assert time.process_time() - before < 5
        assert not waiting[0].done()
        hang.release()
        await (await waiting[0])


@jumping
async def test_waiting_sends_are_served_in_call_order_whatever_their_size() -> None:
    """A send of a small record never overtakes an earlier send of a large one (BUF-02), not even to another partition."""
    async with running(**SMALL) as (cluster, producer):
        hang = cluster.hang("Produce")
        first = await fill(producer)
        served: list[int] = []

        async def send(number: int, size: int) -> None:
            await producer.send("orders", b"." * size, partition=number % 2)
            served.append(number)

        tasks = [
            asyncio.create_task(send(number, size))
            for number, size in enumerate((900, 1, 500, 1, 1, 900, 3))
        ]
        await turns(3)
        assert served == []
        hang.release()
        await asyncio.gather(*first, *tasks)
        assert served == sorted(served)
        await producer.flush()


@jumping
async def test_a_send_cancelled_in_the_turn_in_which_memory_comes_back_is_queued_or_is_not() -> (
    None
):
    """At any moment of the cancellation, CancelledError means that the record is not logged; a delivery means that it is logged once."""
    outcomes = set()
    for delay in range(14):
        for is_before_the_turn in (True, False):
            async with running(**SMALL) as (cluster, producer):
                hang = cluster.hang("Produce")
                await fill(producer)
                waiting = asyncio.create_task(producer.send("orders", b"mine", partition=0))
                await turns(2)
                hang.release()
                await turns(delay)
                if is_before_the_turn:
                    waiting.cancel()
                else:  # behind the other callbacks of this iteration
                    asyncio.get_running_loop().call_soon(waiting.cancel)
                try:
                    await (await waiting)
                    was_queued = True
                except asyncio.CancelledError:
                    was_queued = False
                outcomes.add(was_queued)
                await producer.flush()
                assert cluster.values("orders", 0).count(b"mine") == was_queued
    assert outcomes == {True, False}


@pytest.mark.parametrize("headers", [(), [("h", b"v")]])
@jumping
async def test_a_tight_loop_over_many_partitions_lets_the_loop_go_on(
    headers: list[tuple[str, bytes]],
) -> None:
    """Each batch has bytes left, so that no send allocates memory.

    The event loop must iterate all the same, and the records' times go on with it.
    """
    async with running(partitions=1000, linger_ms=60_000) as (cluster, producer):
        keys = [b"key-%d" % number for number in range(1000)]
        for key in keys:
            await producer.send("orders", b"first", key=key)
        turned = 0

        async def count() -> None:
            nonlocal turned
            while True:
                turned += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        for _ in range(10):
            for key in keys:
                await producer.send("orders", b"v", key=key, headers=headers)
        counting.cancel()
        assert turned >= 10 * len(keys) // (2 * SLICE_RECORDS)
    assert len(cluster.values("orders")) == 11 * len(keys)


@on_both
@pytest.mark.parametrize(
    ("crowd", "value", "partitions"),
    [(4000, b"v" * 100, 6), (4000, b"v" * 100, 1), (200, b"v" * 5000, 6)],
    ids=["full-batches", "one-partition", "large-values"],
)
@jumping
async def test_a_crowd_that_sends_once_each_does_not_wait_for_a_turn(
    build: Any, crowd: int, value: bytes, partitions: int
) -> None:
    """No send of the crowd waits, however many records one iteration of the loop takes in.

    A pending send would cost ten times as much, and every send behind it would have to wait, too.
    """
    turn, waited = 0, []

    async def one(producer: Producer[Any, Any], number: int) -> None:
        began = turn
        delivery = await producer.send("orders", value, key=b"%d" % number)
        waited.extend([number] * (turn != began))
        await delivery

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=partitions)
        # No batch grows beyond `batch_size`: each large record takes memory of its own, so the sends use up the bytes of a slice.
        async with producer_on(build)(
            **cluster.client_options, batch_size=560, batch_max_size=560
        ) as producer:
            await producer.send_and_wait("orders", b"first")
            counting = asyncio.create_task(count())
            await asyncio.gather(*(one(producer, number) for number in range(crowd)))
            counting.cancel()
        assert waited == []
        assert len(cluster.values("orders")) == 1 + crowd


@on_both
@pytest.mark.parametrize("way", ["send_many", "send_columns"])
@jumping
async def test_a_tight_loop_of_many_at_once_lets_the_loop_go_on(build: Any, way: str) -> None:
    """Bulk sends count their bytes as single sends do: the loop iterates after `SLICE_BYTES` bytes of them."""
    values = [b"v" * 80] * 100
    column = pa.array(values)
    turned = 0

    async def count() -> None:
        nonlocal turned
        while True:
            turned += 1
            await asyncio.sleep(0)

    async with running_on(build, linger_ms=60_000) as (cluster, producer):
        await producer.send_many("orders", [b"first"])
        counting = asyncio.create_task(count())
        for _ in range(200):
            if way == "send_many":
                await producer.send_many("orders", values)
            else:
                await producer.send_columns("orders", values=column)
        counting.cancel()
        assert turned >= 200 * 8000 // (2 * loop_budget.SLICE_BYTES)
    assert len(cluster.values("orders")) == 1 + 200 * len(values)


@jumping
async def test_no_memory_within_max_block_ms_fails_the_send_and_nothing_is_queued() -> None:
    """The send fails with BufferExhausted after max_block_ms, with the facts in its text."""
    async with running(max_block_ms=500, **SMALL) as (cluster, producer):
        hang = cluster.hang("Produce")
        (waiting,) = await fill(producer)
        began = asyncio.get_running_loop().time()
        with pytest.raises(BufferExhausted, match="max_block_ms=500") as raised:
            await waiting
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.5)
        assert isinstance(raised.value, TimeoutError)
        before = len(cluster.values("orders", 0))
        assert before == 0
        hang.release()
        await producer.flush()


@jumping
async def test_a_record_that_buffer_memory_cannot_hold_is_refused_at_once() -> None:
    """The producer refuses the record at once and does not let the send wait for ever."""
    async with running(**SMALL) as (_, producer):
        with pytest.raises(RecordTooLarge, match="buffer_memory=4000"):
            await producer.send("orders", bytes(3500))
        with pytest.raises(RecordTooLarge, match="max_request_size"):
            await producer.send("orders", bytes(2_000_000))


@jumping
async def test_memory_smaller_than_a_batchs_first_step_still_sends() -> None:
    """buffer_memory is just above batch_size: a record that fits is sent. Its send never waits for a first step that memory cannot hold."""
    async with running(buffer_memory=2500, batch_size=2000, max_block_ms=100) as (
        cluster,
        producer,
    ):
        for key in (None, b"a", b"b", b"c"):
            await producer.send("orders", b"." * 41, key=key)
            await producer.send("orders", b"." * 41, partition=1)
        await producer.flush()
        assert len(cluster.values("orders")) == 8


@on_both
@jumping
async def test_a_batch_takes_by_need_where_that_costs_nothing_or_memory_is_not_plenty(
    build: Any,
) -> None:
    """In the compiled build a batch grows by a copy.

    While half of the memory is free, a batch allocates its full size at once; beyond that it allocates 4 KiB and what it holds.
    """
    step, whole = 4096 + BATCH_OVERHEAD, 16_384 - OVERHEAD + BATCH_OVERHEAD
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=8)
        producer = producer_on(build)(
            **cluster.client_options,
            linger_ms=60_000,
            delivery_timeout_ms=300_000,
            buffer_memory=4 * whole,
        )
        async with producer:
            await producer.partitions_for("orders")
            taken = []
            for partition in range(6):
                before = producer.buffer_available
                await producer.send("orders", b"1", KEYS[partition])
                taken.append(before - producer.buffer_available)
            assert taken == ([whole] * 3 + [step] * 3 if build.RECORD_OVERHEAD == 0 else [step] * 6)


@jumping
async def test_sends_for_partitions_that_may_take_more_are_served_in_call_order() -> None:
    """Those of all partitions return to the head by their calls, also one that had waited for another partition before.

    No later send may go ahead of them, not even in the same iteration of the loop.
    """
    async with running() as (_, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        engine = producer._engine
        admission, queues = (
            engine.parts.admission,
            engine.parts.partition_queues.routings["orders"].queues,
        )
        sends = []
        for partition in (0, 1, 0, 1):
            sends.append(PendingSend("orders", value=b"v", partition=partition, size=20))
            sends[-1].behind = queues[partition]
            admission.wait_for(FOR_FULL_PARTITION, sends[-1])
        assert engine._fast_path.fast
        admission.notify(queues[0])
        assert not engine._fast_path.fast
        early = engine.pool.waiters.popleft()
        early.behind = queues[1]
        admission._wait_aside(early)
        assert list(engine.pool.full_partitions[queues[1]]) == [sends[0], sends[1], sends[3]]
        admission.notify(queues[1])
        assert list(engine.pool.waiters) == sends
        for pending in sends:
            await (await admission.wait(pending))
        assert engine._fast_path.fast


async def queued_for_memory(
    producer: Producer[Any, Any], queued: list[object]
) -> asyncio.Task[None]:
    """Return a task that sends 3,000 bytes after 3,000 bytes to partition 2, and waits for memory. `queued` grows with each record."""

    async def send() -> None:
        while len(queued) < 40:
            queued.append(await producer.send("orders", b"." * 3_000, partition=2))

    task = asyncio.create_task(send())
    await turns(60)
    assert not task.done()
    return task


SHORT: dict[str, Any] = {"buffer_memory": 40_000, "batch_max_size": 16_384}


@jumping
async def test_a_flush_that_times_out_gives_memory_to_the_sends_that_wait() -> None:
    """It closes open batches, which give back the bytes that they do not need. No answer has to come first."""
    async with running(
        partitions=4, **SHORT, max_in_flight_requests_per_connection=1, linger_ms=0
    ) as (cluster, producer):
        for partition in range(4):
            await producer.send_and_wait("orders", b"first", partition=partition)
        cluster.brokers[1].latency = 10
        await producer.send("orders", b"takes the slot", partition=0)
        await turns(10)
        await producer.send("orders", b"open", partition=1)
        queued: list[object] = []
        task = await queued_for_memory(producer, queued)
        before = len(queued)
        await producer.flush(timeout=1)
        await asyncio.sleep(1)
        assert len(queued) > before
        cluster.brokers[1].latency = 0
        await task


@jumping
async def test_a_broker_that_is_back_gives_memory_to_the_sends_that_wait() -> None:
    """What is drained then closes, and gives back the bytes that it does not need. No answer has to come first."""
    async with running(partitions=4, **SHORT) as (cluster, producer):
        for partition in range(4):
            await producer.send_and_wait("orders", b"first", partition=partition)
        await cluster.brokers[1].stop()
        await producer.send("orders", b"0123456789", partition=1)
        queued: list[object] = []
        task = await queued_for_memory(producer, queued)
        before = len(queued)
        cluster.delay("Produce", 20, times=1, when="after")
        await cluster.brokers[1].start()
        await asyncio.sleep(10)
        assert len(queued) > before
        await task


@jumping
async def test_batches_linger_again_after_a_call_that_could_not_wait() -> None:
    """`send_nowait` is refused while memory is short, and no send waits: once there is memory, a record lingers as before."""
    async with running(buffer_memory=4000, batch_size=1000, linger_ms=1000) as (_, producer):
        loop = asyncio.get_running_loop()
        await producer.send_and_wait("orders", b"the first", partition=0)
        deliveries: list[Any] = []
        with pytest.raises(WouldBlock):
            while len(deliveries) < 10:
                deliveries.append(producer.send_nowait("orders", b"." * 700, partition=0))
        await asyncio.gather(*deliveries)
        began = loop.time()
        await producer.send_and_wait("orders", b"the last", partition=0)
        assert loop.time() - began >= 1


@jumping
async def test_a_flush_counts_the_records_that_waited_for_memory() -> None:
    """Their batches open, and most of them end, before the flush sends what is left."""
    async with running(buffer_memory=40_000) as (_, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        tasks = [
            asyncio.create_task(producer.send("orders", b"." * 12_000, partition=0))
            for _ in range(20)
        ]
        await turns(1)
        assert await producer.flush() == (20, 0, 0)
        await asyncio.gather(*tasks)


@jumping
async def test_a_flush_that_ends_early_counts_what_was_acknowledged_and_what_still_waits() -> None:
    """It waits for a topic that does not come. Records of other topics are acknowledged meanwhile; a later one of theirs is not counted."""
    async with running(max_block_ms=5_000) as (_, producer):
        for _ in range(3):
            await producer.send("orders", b"before", partition=0)
        waiting = asyncio.create_task(producer.send("nowhere", b"v"))
        await turns(1)
        flushing = asyncio.create_task(producer.flush(timeout=2))
        await asyncio.sleep(1)
        await producer.send_and_wait("orders", b"later", partition=0)
        assert await flushing == (3, 0, 1)
        waiting.cancel()
