"""The promises of a delivery that is awaited, cancelled, gathered or called back, and with asyncio's helpers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Side

    from aioproducer import RecordMetadata

pytestmark = pytest.mark.asyncio


async def test_awaited_once_and_again(side: Side) -> None:
    """One task or many await the delivery, before and after its end. Each gets the same metadata."""
    topic = await side.topic()
    async with side.producer() as producer:
        delivery = await producer.send(topic, b"v", partition=0)

        async def wait() -> RecordMetadata:
            metadata: RecordMetadata = await delivery
            return metadata

        seen = await asyncio.gather(*(wait() for _ in range(5)))
        assert {*seen, await delivery, delivery.result()} == {seen[0]}
        assert delivery.done()
        assert not delivery.cancelled()
        assert delivery.exception() is None


async def test_before_its_end_it_says_so(side: Side) -> None:
    topic = await side.topic()
    async with side.producer(
        linger_ms=60_000, request_timeout_ms=10_000, delivery_timeout_ms=120_000
    ) as producer:
        await producer.partitions_for(topic)
        delivery = await producer.send(topic, b"v")
        assert not delivery.done()
        for look in (delivery.result, delivery.exception):
            with pytest.raises(asyncio.InvalidStateError):
                look()
        assert topic in repr(delivery)
        assert "pending" in repr(delivery)
        await producer.flush()
        assert delivery.done()


async def test_cancelling_one_who_waits_touches_nobody_else(side: Side) -> None:
    """Cancelling one task that awaits the delivery changes neither the record nor the delivery nor the other tasks."""
    topic = await side.topic()
    async with side.producer() as producer:
        delivery = await producer.send(topic, b"v", partition=0)

        async def wait() -> Any:
            return await delivery

        tasks = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        if not delivery.done():
            tasks[1].cancel()
        await asyncio.wait(tasks)
        assert (await delivery).offset == 0
        assert tasks[0].result() == tasks[2].result() == delivery.result()
    assert len((await side.log(topic))[0]) == 1


async def test_cancelling_the_handle_ends_the_handle_alone(side: Side) -> None:
    """The record is sent, and a task that awaited it gets its metadata. The handle's callbacks run, and a second cancel returns False."""
    topic = await side.topic()
    called: list[Any] = []
    async with side.producer() as producer:
        await producer.partitions_for(topic)
        delivery = await producer.send(topic, b"v", partition=0)

        async def wait() -> Any:
            return await delivery

        task = asyncio.create_task(wait())
        delivery.add_done_callback(called.append)
        await asyncio.sleep(0)
        ended = delivery.done()
        assert delivery.cancel() is not ended
        assert delivery.cancelled() is not ended
        assert delivery.cancel() is False
        assert (await task).offset == 0
        await producer.flush()
        assert called == [delivery]
    assert len((await side.log(topic))[0]) == 1


async def test_callbacks_run_in_the_order_of_sends(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    """A callback that raises stops no other, and a removed one does not run. A callback added after the end runs in a
    later event-loop iteration.
    """
    topic = await side.topic()
    order: list[int] = []
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: complaints.append(context)
    )
    async with side.producer(linger_ms=1) as producer:
        deliveries = [
            await producer.send(topic, b"%d" % number, partition=0) for number in range(10)
        ]
        for number, delivery in enumerate(deliveries):
            delivery.add_done_callback(lambda _, number=number: order.append(number))
        deliveries[4].add_done_callback(lambda _: 1 / 0)
        forgotten = lambda _: order.append(99)  # noqa: E731
        deliveries[5].add_done_callback(forgotten)
        assert deliveries[5].remove_done_callback(forgotten) == 1
        await producer.flush()
        await asyncio.sleep(0)
        assert order == list(range(10))
        deliveries[0].add_done_callback(lambda _: order.append(100))
        assert order[-1] != 100
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order[-1] == 100
    assert [type(one["exception"]) for one in complaints] == [ZeroDivisionError]


async def test_asyncios_helpers_take_it(side: Side) -> None:
    """gather, wait, wait_for, shield and as_completed take a delivery without a task around it."""
    topic = await side.topic()
    async with side.producer() as producer:
        deliveries = [
            await producer.send(topic, b"%d" % number, partition=0) for number in range(10)
        ]
        assert asyncio.isfuture(deliveries[0])
        gathered = await asyncio.gather(*deliveries)
        assert [one.offset for one in gathered] == list(range(10))
        more = [await producer.send(topic, b"v", partition=0) for _ in range(4)]
        done, pending = await asyncio.wait(more)
        assert (done, pending) == (set(more), set())
        one = await producer.send(topic, b"v", partition=0)
        assert (await asyncio.wait_for(one, 30)).offset == 14
        one = await producer.send(topic, b"v", partition=0)
        assert (await asyncio.shield(one)).offset == 15
        last = [await producer.send(topic, b"v", partition=0) for _ in range(2)]
        assert sorted([(await each).offset for each in asyncio.as_completed(last)]) == [16, 17]


async def test_a_gather_that_is_cancelled_leaves_the_records(side: Side) -> None:
    topic = await side.topic()
    async with side.producer(linger_ms=20) as producer:
        deliveries = [await producer.send(topic, b"v", partition=0) for _ in range(3)]
        gathering = asyncio.gather(*deliveries)
        gathering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathering
        await producer.flush()
    assert len((await side.log(topic))[0]) == 3
