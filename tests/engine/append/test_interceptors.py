"""Interceptors (KIP-42) around a whole producer.

They hear of each record once, and no failure of theirs touches a record.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running, turns

from aioproducer import Interceptor, Producer, ProducerRecord, Record, RecordMetadata
from aioproducer.errors import (
    BootstrapFailed,
    BrokerError,
    BufferExhausted,
    ConfigError,
    DeliveryError,
    MetadataTimeout,
    ProducerClosed,
    SerializationError,
    UsageError,
    WouldBlock,
)
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer.model import Headers


class Heard(Interceptor):
    """Writes down each call, and marks the headers."""

    def __init__(self, name: str = "heard") -> None:
        self.name = name
        self.sent: list[ProducerRecord] = []
        self.ends: list[tuple[Any, ...]] = []
        self.closed_after: list[int] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record._replace(headers=(*record.headers, (self.name, b"%d" % len(self.sent))))

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        self.ends.append((metadata.offset, dict(headers)[self.name]))

    def on_error(self, error: BaseException, topic: str, partition: int, headers: Headers) -> None:
        self.ends.append((type(error), topic, partition))

    def close(self) -> None:
        self.closed_after.append(len(self.ends))


class Raising:
    """Raises in each call."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("canary")

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        raise KeyError("canary")

    def on_error(self, error: BaseException, topic: str, partition: int, headers: Headers) -> None:
        raise RuntimeError("canary")

    def close(self) -> None:
        raise OSError("canary")


@jumping
async def test_each_record_is_seen_and_told_of_once() -> None:
    """Interceptors see the records of `send`, `send_nowait` and `send_many` in order, with the headers that the interceptors left."""
    heard = Heard()
    async with running(interceptors=[heard]) as (cluster, producer):
        await producer.send("orders", b"0", key=b"k", partition=0, headers=[("a", b"b")])
        producer.send_nowait("orders", b"1", partition=0)
        await producer.send_many("orders", [Record(b"2", partition=0), Record(b"3", partition=0)])
        await producer.send_and_wait("orders", b"4", partition=0)
        assert [record.value for record in heard.sent] == [b"%d" % number for number in range(5)]
        assert heard.sent[0] == ProducerRecord("orders", b"0", b"k", 0, None, [("a", b"b")])
        assert heard.ends == [(number, b"%d" % (number + 1)) for number in range(5)]
        assert [record.headers for record in cluster.records("orders", 0)][:2] == [
            (("a", b"b"), ("heard", b"1")),
            (("heard", b"2"),),
        ]
        assert not heard.closed_after
    assert len(heard.closed_after) == 1


@jumping
async def test_no_headers_are_an_empty_sequence() -> None:
    """`headers=None` means no headers for `send`. Interceptors and serializers get an empty sequence, and may iterate over it."""

    class Bare:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            given.append(record.headers)
            return record._replace(headers=None)  # type: ignore[arg-type]

    given: list[Headers] = []
    seen: list[Headers] = []
    unheaded = (Record(b"2", headers=None), ProducerRecord("orders", headers=None))  # type: ignore[arg-type]

    def serialized(_topic: str, headers: Headers, value: bytes) -> bytes:
        seen.append(headers)
        return value

    last = Heard("last")
    async with running(interceptors=[Bare(), last], value_serializer=serialized) as (
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", b"0", partition=0, headers=None)
        producer.send_nowait("orders", b"1", partition=0, headers=None)
        await producer.send_many("orders", [Record(b"2", partition=0, headers=None)])
        await producer.flush()
        assert given == [()] * 3
        assert [repr(record) for record in unheaded] == [
            "<Record: 0 headers>",
            "<ProducerRecord for orders: 0 headers>",
        ]
        assert [record.headers for record in cluster.records("orders", 0)] == [
            (("last", b"%d" % number),) for number in (1, 2, 3)
        ]
        assert last.ends == [(number, b"%d" % (number + 1)) for number in range(3)]
        assert not [
            value
            for metric, value in producer.metrics().items()
            if metric.name == "interceptor-errors-total"
        ]
    async with running(value_serializer=serialized) as (cluster, producer):
        await producer.send_and_wait("orders", b"0", headers=None)
    assert seen[3:] == [()]


@pytest.mark.asyncio
async def test_records_of_other_threads_too() -> None:
    """Interceptors see the records of `from_thread`, also those that wait for their topic."""
    heard = Heard()
    async with (
        FakeCluster(memory=True) as cluster,
        Producer(**cluster.client_options, interceptors=[heard]) as producer,
    ):
        sending = asyncio.create_task(
            asyncio.to_thread(lambda: producer.from_thread.send("later", b"x").result(30))
        )
        while not heard.sent:
            await asyncio.sleep(0)
        cluster.create_topic("later")
        assert (await sending).offset == 0
        assert heard.ends == [(0, b"1")]


@jumping
async def test_each_has_what_the_one_before_made() -> None:
    """INT-01: each interceptor gets the record of the one before.

    It may change topic, key and value, too, and None leaves the record as it is.
    """

    class Elsewhere:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(topic="orders", value=b"other")

    class Silent:
        def on_send(self, record: ProducerRecord) -> None:
            return None

    first, last = Heard("first"), Heard("last")
    async with running(interceptors=(first, Elsewhere, Silent(), last)) as (cluster, producer):
        metadata = await producer.send_and_wait("nowhere", b"mine")
        assert metadata.topic == "orders"
        assert cluster.values("orders") == [b"other"]
        assert last.sent[0].headers == (("first", b"1"),)
        assert first.ends == last.ends == [(0, b"1")]


@jumping
async def test_what_they_raise_touches_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The next interceptor gets the last good record. The producer logs each kind of error once, without its text, and counts each."""
    heard = Heard()
    async with running(interceptors=[Raising(), heard]) as (cluster, producer):
        for number in range(3):
            await producer.send_and_wait("orders", b"%d" % number, partition=0)
        cluster.fail("Produce", "INVALID_RECORD", times=1)
        with pytest.raises(DeliveryError):
            await producer.send_and_wait("orders", b"bad", partition=0)
        taken = producer.metrics()
        assert taken.number("interceptor-errors-total", interceptor="Raising.on_send") == 4
        assert (
            taken.number("interceptor-errors-total", interceptor="Raising.on_acknowledgement") == 3
        )
        assert taken.number("interceptor-errors-total", interceptor="Raising.on_error") == 1
        assert [end[0] for end in heard.ends] == [0, 1, 2, DeliveryError]
        assert cluster.values("orders", 0) == [b"0", b"1", b"2"]
    told = [record.getMessage() for record in caplog.records if "Raising" in record.getMessage()]
    assert [text.split()[1] for text in told] == [
        "Raising.on_send",
        "Raising.on_acknowledgement",
        "Raising.on_error",
        "Raising.close",
    ]
    assert "raised ValueError in on_send, " in told[0]
    assert "canary" not in caplog.text
    assert len(heard.closed_after) == 1


@jumping
async def test_what_is_no_record_is_not_taken_for_one(caplog: pytest.LogCaptureFixture) -> None:
    """An interceptor returns a wrong type, or a coroutine: the record goes on as it was."""

    class Wrong:
        def on_send(self, record: ProducerRecord) -> Any:
            return record.value

    async def later() -> None: ...

    class Later:
        def on_send(self, record: ProducerRecord) -> Any:
            return later()

    async with running(interceptors=[Wrong(), Later()]) as (cluster, producer):
        await producer.send_and_wait("orders", b"x")
        assert cluster.values("orders") == [b"x"]
    assert "it gave a bytes: it gives a ProducerRecord, or None" in caplog.text
    assert "it gave a coroutine: interceptors are plain functions" in caplog.text


@jumping
async def test_errors_are_told_with_their_place() -> None:
    """INT-03: interceptors hear of sends that were refused at once, timed out in their wait, failed, or were cancelled in their wait."""
    heard = Heard()
    async with running(interceptors=[heard], max_block_ms=1000, buffer_memory=20_000) as (
        cluster,
        producer,
    ):
        with pytest.raises(SerializationError):
            await producer.send("orders", "text")
        with pytest.raises(WouldBlock):
            producer.send_nowait("unknown", b"x", partition=3)
        cluster.fail("Produce", "INVALID_RECORD", times=1)
        with pytest.raises(DeliveryError):
            await producer.send_and_wait("orders", b"x", partition=1)
        hang = cluster.hang("Produce")
        kept = [await producer.send("orders", b"." * 8000, partition=0) for _ in range(2)]
        waiting = asyncio.create_task(producer.send("orders", b"." * 8000, partition=0))
        await turns(5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(BufferExhausted):
            await producer.send("orders", b"." * 8000, partition=0)
        assert heard.ends == [
            (SerializationError, "orders", -1),
            (WouldBlock, "unknown", 3),
            (DeliveryError, "orders", 1),
            (asyncio.CancelledError, "orders", 0),
            (BufferExhausted, "orders", 0),
        ]
        hang.release()
        await asyncio.gather(*kept)
        assert len(heard.ends) == len(heard.sent) == 7


@jumping
async def test_they_hear_before_the_task_that_waits_and_the_callbacks() -> None:
    """INT-02: the interceptor hears first, then the callbacks, then the task."""
    order: list[str] = []

    class First:
        def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
            order.append("interceptor")

    async with running(interceptors=[First]) as (_, producer):
        delivery = await producer.send("orders", b"x")
        delivery.add_done_callback(lambda _delivery: order.append("callback"))
        await delivery
        order.append("task")
    assert order == ["interceptor", "callback", "task"]


@jumping
async def test_a_cancelled_handle_is_not_the_records_end() -> None:
    """`Delivery.cancel` ends the handle. The record is acknowledged, and the interceptor hears of that."""
    heard = Heard()
    async with running(interceptors=[heard]) as (_, producer):
        delivery = await producer.send("orders", b"x", partition=0)
        delivery.cancel()
        await producer.flush()
        assert heard.ends == [(0, b"1")]


@jumping
async def test_a_failure_that_nobody_looked_at_is_still_told() -> None:
    """The call of an interceptor does not count as a look at the failure."""
    unseen: list[int] = []
    heard = Heard()
    async with running(
        interceptors=[heard], on_delivery_error=lambda _error, count: unseen.append(count)
    ) as (cluster, producer):
        cluster.fail("Produce", "INVALID_RECORD", times=1)
        await producer.send("orders", b"x", partition=0)
        await producer.flush()
        await turns(5)
        assert unseen == [1]
        assert heard.ends == [(DeliveryError, "orders", 0)]


@jumping
async def test_records_of_a_batch_that_is_cut_are_told_of_once() -> None:
    """The broker answers MESSAGE_TOO_LARGE, and the records end in smaller batches."""
    heard = Heard()
    async with running(interceptors=[heard]) as (cluster, producer):
        cluster.fail("Produce", "MESSAGE_TOO_LARGE", times=1)
        for _ in range(4):
            await producer.send("orders", b"." * 50, partition=0)
        await producer.flush()
        assert heard.ends == [(number, b"%d" % (number + 1)) for number in range(4)]


@jumping
async def test_records_that_stop_fails_are_told_of_before_close() -> None:
    """The queued records fail with the producer's end, and only then does the producer close its interceptors."""
    heard = Heard()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.hang("Produce")
        async with Producer(
            **cluster.client_options, interceptors=[heard], close_timeout_ms=500
        ) as producer:
            delivery = await producer.send("orders", b"x")
        await turns(5)
        assert isinstance(delivery.exception(), DeliveryError)
        assert heard.ends == [(DeliveryError, "orders", 0)]
        assert len(heard.closed_after) == 1
        with pytest.raises(ProducerClosed):
            await producer.send("orders", b"y")


class Counted(Interceptor):
    """Counts its objects that are not closed, and its calls of `close`."""

    alive = 0
    closed = 0

    def __init__(self) -> None:
        type(self).alive += 1

    def close(self) -> None:
        type(self).alive -= 1
        type(self).closed += 1


@pytest.mark.parametrize("then", ["start", "stop", "nothing"])
@jumping
async def test_a_start_that_fails_closes_the_interceptors_that_it_made(then: str) -> None:
    """Each start makes an object of a class. A given object is closed once, by `stop`."""

    class Kind(Counted): ...

    given, heard = Kind(), Heard()
    async with FakeCluster(memory=True) as cluster:
        await cluster.brokers[1].stop()
        producer: Producer[Any, Any] = Producer(
            **cluster.client_options, interceptors=[Kind, given, heard], max_block_ms=500
        )
        for _ in range(2):
            with pytest.raises(BootstrapFailed):
                await producer.start()
            assert Kind.alive == 1
            assert heard.closed_after == []
        if then == "nothing":
            return
        if then == "start":
            await cluster.brokers[1].start()
            await producer.start()
            assert Kind.alive == 2
        await producer.stop()
        assert Kind.alive == 0
        assert Kind.closed == (4 if then == "start" else 3)
        assert heard.closed_after == [0]


@jumping
async def test_close_comes_behind_the_last_of_many() -> None:
    """The producer reports the ends in several iterations of the loop, and closes the interceptor after the last."""
    heard = Heard()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.hang("Produce")
        async with Producer(
            **cluster.client_options, interceptors=[heard], close_timeout_ms=500
        ) as producer:
            deliveries = [await producer.send("orders", b"x") for _ in range(20_000)]
        while not heard.closed_after:
            await asyncio.sleep(0)
        assert len(heard.ends) == len(deliveries)
        assert heard.closed_after == [20_000]


@jumping
async def test_a_sender_that_is_cancelled_while_it_is_told_is_told_of_once() -> None:
    """The interceptor hears that the topic is refused before the task does, and cancels the task.

    The cancellation is too late for that send.
    """
    senders: list[asyncio.Task[Any]] = []

    class Cancelling(Heard):
        def on_error(
            self, error: BaseException, topic: str, partition: int, headers: Headers
        ) -> None:
            super().on_error(error, topic, partition, headers)
            senders[0].cancel()

    heard = Cancelling()
    async with running(interceptors=[heard]) as (cluster, producer):
        cluster.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="secret", times=1)
        senders.append(asyncio.create_task(producer.send("secret", b"x")))
        with pytest.raises(BrokerError, match="secret"):
            await senders[0]
        assert heard.ends == [(BrokerError, "secret", -1)]


@jumping
async def test_a_send_that_is_closed_after_its_record_was_queued_is_told_of_once() -> None:
    """The interpreter closes the coroutine of a task that its loop no longer runs. The record has its end already."""
    heard = Heard()
    async with running(interceptors=[heard]) as (cluster, producer):

        async def send() -> None:
            await producer.send("later", b"x")

        sending = send()
        sending.send(None)
        cluster.create_topic("later")
        while not heard.ends:
            await asyncio.sleep(0.1)
        sending.close()
        await turns(5)
        assert heard.ends == [(0, b"1")]


@jumping
async def test_an_interceptor_may_send() -> None:
    """An interceptor may send from `on_error` to another topic, say. That holds also for a send that times out in its wait."""
    later: list[Any] = []

    class Forwarding:
        def on_error(
            self, error: BaseException, topic: str, partition: int, headers: Headers
        ) -> None:
            if topic != "orders":
                later.append(producer.send_nowait("orders", topic.encode()))

    async with running(interceptors=[Forwarding()], max_block_ms=1000) as (cluster, producer):
        await producer.partitions_for("orders")
        sends = [
            asyncio.create_task(producer.send(f"none-{number}", b"x", partition=9))
            for number in range(20)
        ]
        errors = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(error) for error in errors} == {MetadataTimeout}
        await asyncio.gather(*later)
        assert sorted(cluster.values("orders")) == sorted(
            b"none-%d" % number for number in range(20)
        )


@jumping
async def test_in_transactions_too() -> None:
    """The interceptor hears of aborted records as failed."""
    heard = Heard()
    async with running(interceptors=[heard], transactional_id="tx", linger_ms=1000) as (
        _,
        producer,
    ):
        async with producer.transaction():
            await producer.send("orders", b"x", partition=0)
        await producer.begin_transaction()
        await producer.send("orders", b"y", partition=0)
        await producer.abort_transaction()
        await turns(5)
        assert heard.ends == [(0, b"1"), (DeliveryError, "orders", 0)]


@jumping
async def test_one_that_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The producer names the interceptor in its log, as it does serializers and partitioners."""

    class Slow:
        def on_send(self, record: ProducerRecord) -> None:
            loop: Any = asyncio.get_running_loop()
            loop.advance(0.7)

    async with running(interceptors=[Slow()]) as (_, producer):
        await producer.send_and_wait("orders", b"x")
    assert "interceptor Slow.on_send held the event loop for 0.7 s" in caplog.text
    assert caplog.records[0].levelno >= logging.INFO


@pytest.mark.parametrize(
    "given", ["org.example.Interceptor", 5, [object()], [Heard(), "x"], {"on_send": print}]
)
def test_what_is_no_interceptor_is_refused(given: object) -> None:
    """The object has none of the methods."""
    with pytest.raises(
        ConfigError, match="has none of the methods on_send, on_acknowledgement, on_error, close"
    ):
        Producer(interceptors=given)


def test_a_coroutine_function_is_refused() -> None:
    """The producer would never run the coroutine function."""

    class Later:
        async def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record

    with pytest.raises(ConfigError, match="methods are plain functions, not coroutine functions"):
        Producer(interceptors=[Later])


@jumping
async def test_a_class_that_needs_arguments_is_refused() -> None:
    """The producer refuses the class in `start`, as it does for partitioners."""

    class Needy:
        def __init__(self, argument: object) -> None: ...

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record

    async with FakeCluster(memory=True) as cluster:
        with pytest.raises(UsageError, match="Needy cannot be made without arguments"):
            await Producer(**cluster.client_options, interceptors=[Needy]).start()
