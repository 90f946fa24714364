"""The state that `start` and `stop` leave behind, in all circumstances."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import sys
import warnings
from typing import Any

import pytest
from whole import JumpingLoop, assert_nothing_left, jumping, open_streams, running, turns

from aioproducer import Producer
from aioproducer.errors import DeliveryError, ProducerClosed
from aioproducer.testing import FakeCluster


@jumping
async def test_stop_sends_what_is_queued_and_leaves_nothing() -> None:
    """`stop` sends the queued records and leaves no task, connection or timer. All memory is free."""
    async with running(linger_ms=60_000) as (cluster, producer):
        deliveries = [await producer.send("orders", b"%d" % number) for number in range(10)]
        await producer.stop()
        assert [delivery.result().topic for delivery in deliveries] == ["orders"] * 10
        await turns(3)
        assert open_streams(cluster) == 0
        loop: Any = asyncio.get_running_loop()
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []


@jumping
async def test_stop_twice_and_at_once_is_one_stop() -> None:
    """Both calls of `stop` wait until everything has ended."""
    async with running(partitions=1) as (cluster, producer):
        cluster.delay("Produce", 0.5)
        await producer.send("orders", b"v")
        first = asyncio.create_task(producer.stop())
        await turns(1)
        await producer.stop()
        await turns(2)
        assert first.done()
        await producer.stop()
        assert cluster.values("orders") == [b"v"]


@jumping
async def test_senders_that_wait_when_the_producer_stops_are_told() -> None:
    """A send that waits for memory or a topic raises ProducerClosed, and its record is not logged."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        before = asyncio.all_tasks()
        producer = Producer(
            **cluster.client_options, buffer_memory=4000, batch_size=1000, close_timeout_ms=500
        )
        await producer.start()
        await producer.send_and_wait("orders", b"first")
        cluster.hang("Produce")
        sends = [
            asyncio.create_task(producer.send("orders", b"%d" % number + b"." * 900))
            for number in range(9)
        ]
        sends.append(asyncio.create_task(producer.send("nowhere", b"v")))
        await turns(10)
        waiting = [send for send in sends if not send.done()]
        assert len(waiting) > 2
        await producer.stop()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ProducerClosed] * len(waiting)
        unqueued = ". The record was not queued, and is not sent."
        *for_memory, for_topic = map(str, outcomes)
        assert set(for_memory) == {
            f"the producer was stopped during a wait for buffer_memory{unqueued}"
        }
        assert (
            for_topic
            == f"the producer was stopped during a wait for metadata of the topic 'nowhere'{unqueued}"
        )
        for send in sends:
            if send not in waiting:
                assert isinstance(send.result().exception(), DeliveryError)
        await turns(5)
        assert_nothing_left(producer, before)


@jumping
async def test_senders_that_wait_for_memory_are_served_while_stop_flushes() -> None:
    """The sends were called before `stop`. When the broker responds in time, their records are sent."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        producer = Producer(**cluster.client_options, buffer_memory=4000, batch_size=1000)
        await producer.start()
        await producer.send_and_wait("orders", b"first")
        hang = cluster.hang("Produce")
        sends = [
            asyncio.create_task(producer.send("orders", b"%d" % number + b"." * 900))
            for number in range(9)
        ]
        await turns(10)
        stop = asyncio.create_task(producer.stop())
        await turns(3)
        with pytest.raises(ProducerClosed):
            await producer.send("orders", b"too late")
        hang.release()
        await stop
        assert [(await (await send)).offset for send in sends] == list(range(1, 10))


@jumping
async def test_leaving_the_block_by_a_cancellation_flushes_and_keeps_it() -> None:
    """The end of the block flushes, and the task is cancelled. With any other exception: the contract suite."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")

        async def work() -> None:
            async with Producer(**cluster.client_options, linger_ms=1000) as producer:
                await producer.send("orders", b"1")
                await asyncio.sleep(0.1)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cluster.values("orders") == [b"1"]


@jumping
async def test_a_flush_that_runs_when_the_producer_stops_returns() -> None:
    """The flush returns its summary when the producer stops. It neither raises nor hangs."""
    async with running(partitions=1, close_timeout_ms=500) as (cluster, producer):
        await producer.send_and_wait("orders", b"v")
        cluster.hang("Produce")
        delivery = await producer.send("orders", b"v")
        waiting = asyncio.create_task(producer.send("nowhere", b"v"))
        await turns(3)
        flushes = [asyncio.create_task(producer.flush())]
        await turns(3)
        await producer.stop()
        summary = await asyncio.wait_for(flushes[0], 10)
        assert summary.acknowledged == 0
        assert delivery.exception() is not None
        assert isinstance(
            (await asyncio.gather(waiting, return_exceptions=True))[0], ProducerClosed
        )


@jumping
async def test_flush_tells_what_became_of_what_it_covers() -> None:
    """The summary counts acknowledged, failed and pending records, also after a time-out. Records sent after the call do not count."""
    async with running() as (cluster, producer):
        assert await producer.flush() == (0, 0, 0)
        cluster.fail("Produce", "INVALID_RECORD", partition=1)
        bad = [await producer.send("orders", b"bad", partition=1) for _ in range(2)]
        for _ in range(3):
            await producer.send("orders", b"good", partition=0)
        assert await producer.flush() == (3, 2, 0)
        assert all(delivery.exception() for delivery in bad)
        hang = cluster.hang("Produce")
        await producer.send("orders", b"late", partition=0)
        flush = asyncio.create_task(producer.flush())
        assert await producer.flush(timeout=0.5) == (0, 0, 1)
        await producer.send("orders", b"after", partition=1)
        assert await producer.flush(timeout=0) == (0, 0, 2)
        hang.release()
        assert await flush == (1, 0, 0)


@pytest.mark.parametrize("name", ["supervisor", "metadata", "compression", "node 1"])
@jumping
async def test_a_task_of_ours_that_is_cancelled_from_outside_is_a_failure(name: str) -> None:
    """Some frameworks cancel every task that they find. The producer fails when its own task is cancelled."""
    async with running(partitions=1) as (cluster, producer):
        await producer.send_and_wait("orders", b"v")
        if name == "node 1":  # a node has a task only while a connection is being made
            cluster.hang("ApiVersions")
            cluster.disconnect_all()
            await producer.send("orders", b"v")
            await turns(10)
        task, *_ = [
            task
            for task in asyncio.all_tasks()
            if task.get_name().startswith(f"aioproducer {name}")
        ]
        task.cancel()
        await asyncio.sleep(0.1)
        with pytest.raises(ProducerClosed, match="failed"):
            await producer.send("orders", b"v")
        cluster.faults.clear()  # the dial may have been cancelled before it


@jumping
async def test_its_tasks_do_not_carry_the_callers_context() -> None:
    """The producer's tasks have neither the caller's context nor its cancellation scope."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    variable.set("the caller's")
    seen: list[str] = []
    async with running() as (cluster, producer):
        network: Any = cluster.network
        dial = network.dial

        async def watch(*where: Any) -> Any:
            seen.append(variable.get())
            return await dial(*where)

        network.dial = watch
        cluster.disconnect_all()
        await producer.send_and_wait("orders", b"v")
    assert set(seen) == {"none"}


def test_a_loop_closed_without_stop_gives_one_resource_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program closes the loop without `stop`. Python warns once, and asyncio logs no destroyed task."""
    told: list[dict[str, Any]] = []
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    loop = JumpingLoop()
    loop.set_exception_handler(lambda _loop, context: told.append(context))

    async def forget() -> Producer[Any, Any]:
        cluster = await FakeCluster(memory=True).__aenter__()
        cluster.create_topic("orders")
        producer = Producer(**cluster.client_options)
        await producer.start()
        await producer.send_and_wait("orders", b"v")
        return producer

    producer = loop.run_until_complete(forget())
    loop.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del producer, loop
        for _ in range(3):
            gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]
    assert "was never stopped" in str(caught[0].message)
    assert told == ignored == []


@jumping
async def test_failures_nobody_looks_at_are_told_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The producer logs one warning per topic and error in an interval. It logs none for failures that the caller looked at."""
    caplog.set_level(logging.WARNING)
    async with running(client_id="mine") as (cluster, producer):
        cluster.fail("Produce", "INVALID_RECORD", times=5)
        looked_at = await producer.send("orders", b"v", partition=0)
        await producer.flush()
        assert looked_at.exception() is not None
        del looked_at
        gc.collect()
        assert caplog.text == ""
        for _ in range(4):
            await producer.send("orders", b"v", partition=0)
            await producer.flush()
            gc.collect()
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 1
        assert lines[0].startswith(
            "mine: 1 record failed, and no code looked at the outcome: orders-0: INVALID_RECORD"
        )
        await asyncio.sleep(60)
        cluster.fail("Produce", "INVALID_RECORD")
        await producer.send("orders", b"v", partition=0)
        await producer.flush()
        gc.collect()
        assert len(caplog.records) == 2
