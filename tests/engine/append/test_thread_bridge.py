"""`from_thread`, for sends of other threads: order, back-pressure, cancellation, and errors.

The errors include those after the producer is gone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections import defaultdict
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from aioproducer import Producer
from aioproducer.errors import (
    BufferExhausted,
    DeliveryError,
    MetadataTimeout,
    ProducerClosed,
    SerializationError,
    UsageError,
)
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioproducer import FromThread, ThreadDelivery


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(memory=True) as made:
        made.create_topic("orders", partitions=2)
        yield made


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread of its own, and wait for it here."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(done)


@pytest.mark.parametrize("memory", [10_000, 33_554_432])
@pytest.mark.asyncio
async def test_each_of_eight_threads_keeps_its_order(cluster: FakeCluster, memory: int) -> None:
    """Each thread keeps the order of its key, with and without memory for all records at once. Each future gives its record's offset."""
    async with Producer(
        **cluster.client_options, buffer_memory=memory, batch_size=2000
    ) as producer:
        door = producer.from_thread

        def work(name: int) -> list[ThreadDelivery]:
            return [
                door.send("orders", b"%d %d" % (name, number), b"%d" % name)
                for number in range(300)
            ]

        told = await asyncio.gather(*(in_thread(partial(work, name)) for name in range(8)))
        for name, deliveries in enumerate(told):
            metadata = [await asyncio.wrap_future(delivery) for delivery in deliveries]
            assert [each.offset for each in metadata] == sorted(each.offset for each in metadata)
            assert len({each.partition for each in metadata}) == 1
            log = cluster.records("orders", metadata[0].partition)
            assert [record.value for record in log if record.key == b"%d" % name] == [
                b"%d %d" % (name, number) for number in range(300)
            ]


@pytest.mark.asyncio
async def test_what_is_wrong_with_a_record_its_future_tells(cluster: FakeCluster) -> None:
    """The future raises UsageError and its kind, MetadataTimeout for a missing topic, or the broker's refusal. The next record is sent."""
    async with Producer(
        **cluster.client_options, max_block_ms=200, allow_auto_create_topics=False
    ) as producer:
        await producer.partitions_for("orders")
        door: FromThread[Any, Any] = producer.from_thread

        def error_of(*record: Any, **options: Any) -> BaseException | None:
            return door.send(*record, **options).exception(10)

        assert isinstance(await in_thread(lambda: error_of("orders", "text")), SerializationError)
        assert isinstance(
            await in_thread(lambda: error_of("orders", b"v", partition=-1)), UsageError
        )
        assert isinstance(await in_thread(lambda: error_of("nowhere", b"v")), MetadataTimeout)
        cluster.fail("Produce", "INVALID_RECORD")
        assert isinstance(await in_thread(lambda: error_of("orders", b"v")), DeliveryError)
        assert (await in_thread(lambda: door.send("orders", b"v").result(10))).offset == 0


class EndOfLoop(BaseException):
    """Stands for KeyboardInterrupt."""


@pytest.mark.asyncio
async def test_what_ends_the_loop_leaves_no_thread_waiting(cluster: FakeCluster) -> None:
    """It fails the producer: the threads get it for the record that was being taken, and ProducerClosed for those behind."""
    error, told = EndOfLoop(), []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: told.append(context["exception"])
    )

    def choose(_topic: str, _key: object, value: bytes, _count: int, _available: object) -> int:
        if value == b"bad":
            raise error
        return 0

    async with Producer(**cluster.client_options, partitioner=choose) as producer:
        await producer.partitions_for("orders")

        def work() -> list[BaseException | None]:
            sent = [producer.from_thread.send("orders", value) for value in (b"bad", b"2", b"3")]
            return [delivery.exception(10) for delivery in sent]

        first, *others = await in_thread(work)
    assert (first, told) == (error, [error])
    assert [type(other) for other in others] == [ProducerClosed] * 2


@pytest.mark.asyncio
async def test_a_thread_waits_while_the_loop_does_not_take_its_records(
    cluster: FakeCluster,
) -> None:
    """The thread hands over about a MiB; then its send fails with BufferExhausted after max_block_ms.

    The producer sends the records handed over.
    """
    async with Producer(**cluster.client_options, max_block_ms=50) as producer:
        await producer.partitions_for("orders")
        door = producer.from_thread
        sent: list[ThreadDelivery] = []

        def work() -> None:
            while True:
                sent.append(door.send("orders", bytes(100_000)))

        done = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BufferExhausted as error:
                errors.append(error)
            finally:
                done.set()

        threading.Thread(target=run, daemon=True).start()
        assert done.wait(10)  # the loop is held meanwhile
        assert [type(error) for error in errors] == [BufferExhausted]
        assert 9 <= len(sent) <= 12
        for delivery in sent:
            await asyncio.wrap_future(delivery)
        assert len(cluster.values("orders")) == len(sent)


@pytest.mark.asyncio
async def test_cancelled_before_the_loop_took_it_a_record_is_not_sent(cluster: FakeCluster) -> None:
    """Once the loop has taken a record, the producer sends it, and `cancel` returns False."""
    async with Producer(**cluster.client_options) as producer:
        await producer.partitions_for("orders")
        door = producer.from_thread
        handed: list[ThreadDelivery] = []
        done = threading.Event()

        def work() -> None:
            handed.extend(door.send("orders", b"%d" % number, partition=0) for number in range(3))
            handed[1].cancel()
            done.set()

        threading.Thread(target=work, daemon=True).start()
        assert done.wait(10)
        for delivery in (handed[0], handed[2]):
            await asyncio.wrap_future(delivery)
        assert not handed[0].cancel()
        with pytest.raises(CancelledError):
            handed[1].result()
        assert cluster.values("orders") == [b"0", b"2"]


@pytest.mark.asyncio
async def test_a_stopped_producer_tells_threads(cluster: FakeCluster) -> None:
    """The producer sends the records handed over before `stop`.

    Later sends, and threads that wait for memory, fail at once with ProducerClosed.
    """
    with pytest.raises(ProducerClosed, match="not started"):
        _ = Producer(**cluster.client_options).from_thread
    async with Producer(**cluster.client_options) as producer:
        await producer.partitions_for("orders")
        door = producer.from_thread
        sent: list[ThreadDelivery] = []
        errors: list[BaseException] = []
        full, ended = threading.Event(), threading.Event()

        def work() -> None:
            try:
                while True:
                    sent.append(door.send("orders", bytes(200_000)))
                    if len(sent) == 6:
                        full.set()
            except ProducerClosed as error:
                errors.append(error)
            ended.set()

        threading.Thread(target=work, daemon=True).start()
        assert full.wait(10)
        await producer.stop()
        assert ended.wait(10)
        assert len(errors) == 1
        assert [delivery.result(0).topic for delivery in sent] == ["orders"] * len(sent)
        assert len(cluster.values("orders")) == len(sent)
        with pytest.raises(ProducerClosed, match="stopped"):
            await in_thread(lambda: door.send("orders", b"v"))


@pytest.mark.parametrize("look", ["result", "exception", "callback", None])
@pytest.mark.asyncio
async def test_a_failure_that_no_thread_looks_at_is_not_silent(
    cluster: FakeCluster, look: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer logs one warning of the failure, and none if a thread looked at it before or after its end."""
    async with Producer(**cluster.client_options) as producer:
        await producer.partitions_for("orders")
        door = producer.from_thread
        cluster.fail("Produce", "INVALID_RECORD")

        def work() -> None:
            delivery = door.send("orders", b"v")
            if look == "callback":
                delivery.add_done_callback(lambda _done: None)
            wait([delivery], 10)
            if look == "result":
                with pytest.raises(DeliveryError):
                    delivery.result()
            elif look == "exception":
                assert isinstance(delivery.exception(), DeliveryError)

        with caplog.at_level(logging.WARNING):
            await in_thread(work)
            await producer.flush()
            gc.collect()
        assert caplog.text.count("no code looked at the outcome") == (0 if look else 1)


def test_a_loop_that_was_closed_is_told_of() -> None:
    """The send fails with ProducerClosed, as no loop would send its record."""
    doors: dict[str, Any] = defaultdict(lambda: None)

    async def start() -> None:
        async with FakeCluster(memory=True) as cluster:
            producer = Producer(**cluster.client_options)
            await producer.start()
            doors["door"], doors["producer"] = producer.from_thread, producer

    async def main() -> None:
        await start()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    told: list[BaseException] = []

    def work() -> None:
        try:
            doors["door"].send("orders", b"v")
        except ProducerClosed as error:
            told.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [str(error) for error in told] == ["the producer's loop is closed"]

    def forget() -> None:
        doors.clear()
        gc.collect()

    with pytest.warns(ResourceWarning):
        forget()
