"""Tasks that send without pause, side by side: the cost of each, its share, and how a task ends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from builds import on_both, plain, producer_on
from whole import jumping, running, running_on, turns

from aioproducer import Deliveries
from aioproducer.engine.append import loop_budget
from aioproducer.errors import ProducerClosed, WouldBlock
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer import Producer

VALUE = b"v" * 100


@pytest.fixture
def short_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a pass to one or two records, so that a tight loop waits for the loop budget all the time."""
    monkeypatch.setattr(loop_budget, "MAX_SLICE_RECORDS", 1)


@pytest.mark.parametrize(
    "options", [{}, {"buffer_memory": 300_000, "batch_size": 8192}], ids=["free", "short-memory"]
)
@pytest.mark.parametrize("tasks", [1, 2, 16])
@on_both
@jumping
async def test_they_do_not_stand_behind_each_other(
    build: Any, tasks: int, options: dict[str, Any]
) -> None:
    """A record on the slow path costs ten times as much. Fewer than a tenth of the records may take it."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=6)
        if options:
            cluster.brokers[1].latency, cluster.brokers[1].bandwidth = 0.001, 1_000_000
        async with producer_on(build)(**cluster.client_options, **options) as producer:
            slow = count_slow(producer)

            async def work(number: int) -> None:
                for count in range(32_000 // tasks):
                    await producer.send("orders", VALUE, b"%d-%d" % (number, count))

            await asyncio.gather(*(work(number) for number in range(tasks)))
            await producer.flush()
            assert len(slow) < 32_000 // 10
        assert len(cluster.values("orders")) == 32_000


def count_slow(producer: Producer[Any, Any]) -> list[str]:
    """Return a list that collects the topic of each record that takes the slow path from now on."""
    seen: list[str] = []
    slowly = producer._fast_path.slowly

    def noted(topic: str, *record: Any) -> Any:
        seen.append(topic)
        return slowly(topic, *record)

    producer._fast_path.slowly = noted
    return seen


@pytest.mark.parametrize(
    "options", [{}, {"buffer_memory": 300_000, "batch_size": 8192}], ids=["free", "short-memory"]
)
@on_both
@jumping
async def test_each_gets_its_share(build: Any, options: dict[str, Any]) -> None:
    """Five tasks send in tight loops. The task that began first does not send the most by far: each sends more than half of the maximum."""
    sent = [0] * 5
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=6)
        if options:
            cluster.brokers[1].latency, cluster.brokers[1].bandwidth = 0.001, 1_000_000
        async with producer_on(build)(**cluster.client_options, **options) as producer:

            async def work(number: int) -> None:
                while max(sent) < 10_000:
                    await producer.send("orders", VALUE, b"%d" % number)
                    sent[number] += 1

            await asyncio.gather(*(work(number) for number in range(len(sent))))
        assert min(sent) > 5_000


@pytest.mark.usefixtures("short_goes")
@on_both
@jumping
async def test_one_of_them_hears_of_its_cancellation(build: Any) -> None:
    """A cancelled task ends within four event-loop iterations, although the other task queues its record each time the loop waits."""
    async with running_on(build) as (cluster, producer):
        called: list[list[bytes]] = [[], []]
        returned: list[list[bytes]] = [[], []]

        async def work(number: int) -> None:
            while True:
                called[number].append(b"%d:%d" % (number, len(called[number])))
                await producer.send("orders", called[number][-1])
                returned[number].append(called[number][-1])

        tasks = [asyncio.create_task(work(number)) for number in range(2)]
        await turns(20)
        for task in tasks:
            task.cancel()
            await turns(4)
            assert task.cancelled()
    logged = cluster.values("orders")
    assert len(logged) > 30
    for number in range(2):
        assert [
            value for value in logged if value is not None and value.startswith(b"%d" % number)
        ] == returned[number]


async def by_send(producer: Producer[Any, Any]) -> int:
    await producer.send("orders", VALUE)
    return 1


async def by_send_many(producer: Producer[Any, Any]) -> int:
    return len(await producer.send_many("orders", [VALUE] * 5_000))


async def by_send_columns(producer: Producer[Any, Any]) -> int:
    return len(await producer.send_columns("orders", values=pyarrow.array([VALUE] * 5_000)))


class Loop:
    """Sends by one call without a pause, and counts what was queued, also by a call that was cancelled."""

    def __init__(self, producer: Producer[Any, Any], send: Any) -> None:
        self._producer, self._send = producer, send
        self.queued = 0

    async def run(self) -> None:
        try:
            while True:
                self.queued += await self._send(self._producer)
        except asyncio.CancelledError as error:
            self.queued += len(Deliveries.of(error))
            raise


async def ends_by_cancel(work: Loop) -> None:
    task = asyncio.create_task(work.run())
    await turns(30)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def ends_by_timeout(work: Loop) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as scope:
            ending = asyncio.create_task(passes(scope))
            await work.run()
    await ending
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def passes(scope: asyncio.Timeout) -> None:
    await turns(30)
    scope.reschedule(asyncio.get_running_loop().time())


async def ends_by_group(work: Loop) -> None:
    async def fail() -> None:
        await turns(30)
        raise LookupError

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(work.run())
            group.create_task(fail())


@pytest.mark.parametrize("end", [ends_by_cancel, ends_by_timeout, ends_by_group])
@pytest.mark.parametrize("send", [by_send, by_send_many, by_send_columns])
@pytest.mark.parametrize("memory", [300_000, 33_554_432])
@jumping
async def test_a_task_that_only_sends_ends(memory: int, send: Any, end: Any) -> None:
    """It hears of its cancellation at one of its sends, and the log has what was queued before."""
    async with running(buffer_memory=memory, batch_size=8192) as (cluster, producer):
        work = Loop(producer, send)
        await end(work)
    assert work.queued == len(cluster.values("orders")) > 100


@pytest.mark.usefixtures("short_goes")
@jumping
async def test_flush_waits_for_who_rests() -> None:
    """The record of a send that waits for the loop budget is in no batch yet. The flush covers it, because the send came first."""
    async with running() as (cluster, producer):
        called = 0

        async def work() -> None:
            nonlocal called
            while called < 3000:
                called += 1
                await producer.send("orders", b"%d" % called)

        task = asyncio.create_task(work())
        while not task.done():
            await turns(1)
            before = called
            await producer.flush()
            assert len(cluster.values("orders")) >= before
        assert called == 3000


@pytest.mark.usefixtures("short_goes")
@jumping
async def test_flush_covers_a_record_whose_task_pauses_and_does_not_wait_for_the_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record is queued. Its task goes on later, as other tasks are woken before it."""
    monkeypatch.setattr(loop_budget, "MAX_WAKEUPS_PER_ITERATION", 1)
    async with running() as (cluster, producer):
        await producer.send_and_wait("orders", b"first")
        engine = producer._engine
        tired = [asyncio.create_task(engine.parts.accumulator.next_slice()) for _ in range(200)]

        async def pauses() -> Any:
            engine.parts.loop_budget.end()
            engine.parts.loop_budget.must_pause()
            engine._fast_path.taken = loop_budget.SLICE_RECORDS
            return await producer.send("orders", b"pauses")

        pausing = asyncio.create_task(pauses())
        await turns(1)
        engine.parts.loop_budget.hold(is_held=True)
        await producer.flush()
        assert cluster.values("orders") == [b"first", b"pauses"]
        assert not pausing.done()
        engine.parts.sender._schedule.hold(is_held=False)
        await asyncio.gather(pausing, *tired)


@pytest.mark.usefixtures("short_goes")
@pytest.mark.parametrize("after", range(6))
@jumping
async def test_who_rests_when_the_producer_stops_is_served_or_told(after: int) -> None:
    """A send that waits for the loop budget at `stop` is logged or raises ProducerClosed. Only records of sends
    that returned are logged.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        returned = []

        async def work(producer: Producer[Any, Any], number: int) -> None:
            for count in range(5000):
                await producer.send("orders", b"%d:%d" % (number, count))
                returned.append(b"%d:%d" % (number, count))

        async with running(cluster) as (_, producer):
            tasks = [asyncio.create_task(work(producer, number)) for number in range(2)]
            await turns(3 + after)
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, ProducerClosed)
        assert 0 < len(returned) < 10_000
        assert sorted(cluster.values("orders"), key=repr) == sorted(returned, key=repr)


@pytest.mark.usefixtures("short_goes")
@on_both
@jumping
async def test_call_order_is_log_order(build: Any) -> None:
    """The log has the records in the order of the calls, although some tasks wait for the loop budget while others continue."""
    async with running_on(build) as (cluster, producer):
        called: list[bytes] = []

        async def work() -> None:
            while len(called) < 5000:
                called.append(b"%d" % len(called))
                await producer.send("orders", called[-1])

        await asyncio.gather(*(work() for _ in range(3)))
    assert cluster.values("orders") == called


@pytest.mark.usefixtures("short_goes")
@jumping
async def test_who_rests_when_the_producer_fails_is_told() -> None:
    """A send that waits when the producer fails raises ProducerClosed. Its record is not queued after the end."""
    async with running_on(plain) as (cluster, producer):
        sent = []

        async def work() -> None:
            while True:
                sent.append(await producer.send("orders", VALUE))

        task = asyncio.create_task(work())
        while not producer._engine.parts.admission.continuing:
            await turns(1)
        producer._engine.fail(RuntimeError("a bug"))
        with pytest.raises(ProducerClosed, match="a bug"):
            await asyncio.wait_for(task, 1)
        assert all(delivery.done() for delivery in sent)


@pytest.mark.parametrize("linger_ms", [5, "auto"])
@pytest.mark.parametrize(
    ("partitions", "value", "most"),
    [
        (12, VALUE, 1.2 * 20_000 * 112 / loop_budget.SLICE_BYTES),
        (1, b"small", 20_000 / loop_budget.MAX_SLICE_RECORDS / 8),
    ],
    ids=["by-bytes", "by-slices"],
)
@jumping
async def test_a_turn_has_several_goes(
    partitions: int, value: bytes, most: float, linger_ms: Any
) -> None:
    """The Sender does not drain at each pause of a lingering loop of sends. Otherwise the loop would cause up to four times as many requests.

    Batches of small records do not take the bytes of a drain interval. So the Sender drains at every fourth pause. Its drains take full
    batches after 3 ms, and no time passes here.
    """
    async with running(partitions=partitions, linger_ms=linger_ms) as (cluster, producer):
        for number in range(20_000):
            await producer.send("orders", value, b"%d" % number)
    assert len(cluster.requests("Produce")) < most


@pytest.mark.usefixtures("short_goes")
@jumping
async def test_who_is_placed_and_not_yet_woken_goes_on_when_the_producer_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event-loop iteration that would have woken a placed send does not come. The send raises ProducerClosed all the same."""
    async with running_on(plain) as (cluster, producer):
        engine = producer._engine
        pauses, drain = engine.parts.admission.continuing, engine.parts.sender.drain_all

        async def work() -> None:
            while True:
                await producer.send("orders", VALUE)

        def fail() -> None:
            if len(pauses) > 1:
                raise RuntimeError("a bug")
            drain()

        monkeypatch.setattr(engine.parts.sender, "drain_all", fail)
        tasks = [asyncio.create_task(work()) for _ in range(3)]
        while engine.failure is None:
            await turns(1)
            with contextlib.suppress(WouldBlock, ProducerClosed):
                producer.send_nowait("orders", VALUE)  # queues the record of the send that waits
        for result in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 1):
            assert isinstance(result, ProducerClosed)
        with pytest.raises(ProducerClosed, match="a bug"):
            await producer.send("orders", VALUE)
