"""Tests of what a `RecordingProducer` offers a test beyond every producer's behaviour (see tests/contract)."""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from aioproducer import (
    BrokerError,
    BufferExhausted,
    DeliveryError,
    DeliveryTimeout,
    FailedRecord,
    KafkaError,
    MetadataTimeout,
    Persisted,
    Producer,
    ProducerClosed,
    Record,
    RecordMetadata,
    RequestTimedOut,
)
from aioproducer.testing import RecordingProducer
from aioproducer.testing.recorded import RecordedSend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.asyncio


async def test_history_is_what_was_sent() -> None:
    """In call order, serialized, placed and stamped, acknowledged or not; by topic and partition too."""
    async with RecordingProducer(auto_complete=False, value_serializer=str.encode) as producer:
        await producer.send("a", "1", b"k", timestamp_ms=5, headers=[("h", None)])
        producer.send_nowait("b", "2", timestamp_ms=6, partition=4)
        await producer.send_many("a", ["3", Record(None, b"k", 1, 7)])
        assert producer.history[:2] == [RecordedSend("a", 0, b"k", b"1", 5, (("h", None),)), RecordedSend("b", 4, None, b"2", 6, ())]
        assert producer.values("a") == [b"1", b"3", None]
        assert producer.values("a", 1) == [None]
        assert producer.pending == 4
        producer.clear()
        assert producer.history == []
        assert producer.pending == 4
    assert producer.closed


async def test_it_completes_by_itself_in_a_later_turn() -> None:
    """The delivery completes after `send` has returned, as in every producer."""
    async with RecordingProducer() as producer:
        delivery = await producer.send("t", b"v")
        assert not delivery.done()
        await asyncio.sleep(0)
        assert delivery.result().offset == 0
        assert (await producer.send_and_wait("t", b"v")).offset == 1


async def test_a_record_that_takes_too_long() -> None:
    """A test gives the error of such a record, which each look raises anew."""
    async with RecordingProducer(auto_complete=False) as producer:
        delivery = await producer.send("t", b"v")
        assert producer.fail_next(DeliveryTimeout("not acknowledged", "t", 0, Persisted.NO, 1))
        with pytest.raises(TimeoutError) as raised:
            await delivery
        assert isinstance(raised.value, DeliveryTimeout)
        assert (raised.value.code, raised.value.retriable) == ("TIMED_OUT", True)
        refused = await producer.send("t", b"v")
        assert producer.fail_next("MESSAGE_TOO_LARGE")
        error = refused.exception()
        assert error is not None
        assert (error.code, error.retriable) == ("MESSAGE_TOO_LARGE", False)


async def test_records_end_as_the_test_says() -> None:
    """Oldest first; a failed one takes no offset; False when there is none left."""
    async with RecordingProducer(auto_complete=False) as producer:
        assert producer.explain() == repr(producer)
        first, second, third = [await producer.send("t", b"v", partition=1) for _ in range(3)]
        assert producer.explain().count("<RecordedDelivery t-1 pending>") == 3
        assert producer.complete_next()
        assert producer.fail_next(RequestTimedOut("no answer"), persisted=Persisted.MAYBE)
        assert producer.complete_next()
        assert not producer.complete_next()
        assert not producer.fail_next()
        assert [(await first).offset, (await third).offset] == [0, 1]
        with pytest.raises(DeliveryError, match=r"t-1: RequestTimedOut: no answer \(the record may have been written; sent once\)"):
            await second


@pytest.mark.parametrize(
    ("error", "cause", "said"),
    [
        ("NOT_ENOUGH_REPLICAS", BrokerError, r"t-0: NOT_ENOUGH_REPLICAS \(19\) \(the record was not written"),
        (OSError("disk"), OSError, "OSError: disk"),
        (DeliveryError("mine", "t", 0, Persisted.YES, 7), None, "t-0: mine .*was written; sent 7 times"),
    ],
)
async def test_a_failure_has_its_cause(error: Any, cause: type[BaseException] | None, said: str) -> None:
    """Each look raises an error of its own, with the shared cause."""
    async with RecordingProducer(auto_complete=False) as producer:
        delivery = await producer.send("t", b"v")
        producer.fail_next(error)
        raised = []
        for _ in range(2):
            with pytest.raises(DeliveryError, match=said) as seen:
                await delivery
            raised.append(seen.value)
        assert raised[0] is not raised[1]
        assert raised[0].__cause__ is raised[1].__cause__
        assert cause is None or isinstance(raised[0].__cause__, cause)
        assert str(delivery.exception()) == str(raised[0])
        assert "failed" in repr(delivery)


async def test_an_unknown_error_name_is_refused() -> None:
    async with RecordingProducer(auto_complete=False) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(KeyError):
            producer.fail_next("NO_SUCH_ERROR")
        assert producer.complete_next()
        assert (await delivery).offset == 0


async def test_columns_name_the_row_whose_partition_the_topic_does_not_have() -> None:
    async with RecordingProducer(partitions={"t": 2}) as producer:
        with pytest.raises(MetadataTimeout, match=r"^row 1: partition 7 of 't' is not known: it has 2$") as raised:
            await producer.send_columns("t", values=pa.array([b"0", b"1"]), partitions=pa.array([1, 7]))
        assert len(raised.value.queued) == 1  # type: ignore[attr-defined]
        assert producer.values("t", 1) == [b"0"]


CALLS: dict[str, Callable[[Any], Any]] = {
    "start": lambda producer: producer.start(),
    "send": lambda producer: producer.send("t", b"v"),
    "send_nowait": lambda producer: producer.send_nowait("t", b"v"),
    "send_many": lambda producer: producer.send_many("t", [b"v"]),
    "send_columns": lambda producer: producer.send_columns("t", values=pa.array([b"v"])),
    "send_batch": lambda producer: producer.send_batch(producer.create_batch("t", 0)),
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "flush": lambda producer: producer.flush(),
    "stop": lambda producer: producer.stop(),
}


@pytest.mark.parametrize("method", CALLS)
async def test_every_method_can_fail(method: str) -> None:
    """So often as it is said, then no more; what it would have done is not done."""
    producer = RecordingProducer.started()

    async def call() -> None:
        result = CALLS[method](producer)
        if inspect.isawaitable(result):
            await result

    producer.raise_on(method, BufferExhausted("full"), times=2)
    for _ in range(2):
        with pytest.raises(BufferExhausted, match="full"):
            await call()
    assert producer.history == []
    assert not producer.closed
    if method not in ("start", "send_batch"):  # it runs already; the batch is empty
        await call()
    producer.raise_on(method, MetadataTimeout("still not"))
    for _ in range(3):
        with pytest.raises(MetadataTimeout):
            await call()
    producer.raise_on(method, None)
    producer.clear()
    assert "stopped" in repr(producer) if method == "stop" else await producer.send_and_wait("t", b"v")


async def test_send_and_wait_fails_as_send_does() -> None:
    producer = RecordingProducer.started()
    producer.raise_on("send", BufferExhausted("full"))
    with pytest.raises(BufferExhausted):
        await producer.send_and_wait("t", b"v")
    producer.clear()
    assert (await producer.send_and_wait("t", b"v")).offset == 0


async def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match=r"raise_on takes one of start, send, .*, not 'close'"):
        RecordingProducer().raise_on("close", KafkaError())


@pytest.mark.parametrize(
    ("options", "arguments", "says"),
    [
        ({}, {"topic": "t" * 40_000}, "names no topic"),
        ({"message_format_max": 1}, {"topic": "t", "headers": [("h", b"1")]}, "headers need record format 2"),
        ({"buffer_memory": 20_000}, {"topic": "t", "value": bytes(19_500)}, "takes 19587 bytes, more than buffer_memory=20000 holds"),
    ],
)
async def test_it_refuses_what_a_producer_refuses(options: dict[str, Any], arguments: dict[str, Any], says: str) -> None:
    """The checks of both are the same code."""
    async with RecordingProducer(**options) as producer:
        with pytest.raises(KafkaError, match=says):
            await producer.send(**arguments)


async def test_partitions_that_are_said() -> None:
    """They bound what is given and chosen, and are what `partitions_for` tells."""
    async with RecordingProducer(partitions={"t": 2}, partitioner=lambda key, partitions: int(key) % partitions) as producer:
        assert await producer.partitions_for("t") == {0, 1}
        assert (await producer.send_and_wait("t", b"v", b"7")).partition == 1
        with pytest.raises(MetadataTimeout, match="partition 2 of 't' is not known: it has 2"):
            await producer.send("t", b"v", partition=2)
        with pytest.raises(Exception, match="the partitioner raised TypeError for 't'"):
            await producer.send("t", b"v")


async def test_a_failure_that_nobody_looked_at() -> None:
    """The hook hears of it, as a producer's does; of one that was looked at it does not."""
    heard: list[tuple[DeliveryError, int]] = []
    async with RecordingProducer(auto_complete=False, on_delivery_error=lambda error, count: heard.append((error, count))) as producer:
        seen = await producer.send("seen", b"v")
        await producer.send("unseen", b"v")
        producer.fail_next()
        producer.fail_next()
        assert seen.exception() is not None
        del seen
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [(error.topic, count) for error, count in heard] == [("unseen", 1)]


async def test_a_failed_record_is_handed_out(caplog: pytest.LogCaptureFixture) -> None:
    """`on_failed` gets it as a producer's does, after `on_delivery_error`, also at the end. What it raises is logged."""
    heard: list[object] = []

    def hook(error: DeliveryError, records: Sequence[FailedRecord]) -> None:
        heard.append((error.persisted, *records))
        raise OSError

    producer: RecordingProducer[bytes, bytes] = RecordingProducer.started(
        auto_complete=False, on_delivery_error=lambda _error, count: heard.append(count), on_failed=hook, partitions={"t": 2}
    )
    await producer.send("t", b"v", b"k", 1, 7, {"a": "b"})
    await producer.send("t", b"acknowledged")
    producer.fail_next(persisted=Persisted.MAYBE)
    gc.collect()
    await producer.stop()
    record = FailedRecord("t", b"v", b"k", 1, 7, (("a", b"b"),), Persisted.MAYBE)
    assert heard == [1, (Persisted.MAYBE, record)]
    assert "on_failed could not take <FailedRecord for t-1 of 7, persisted=maybe: 1 header>: OSError()" in caplog.text


async def test_flush_and_stop_complete_what_is_pending() -> None:
    """`flush` and `stop` complete pending records, as Java's do, so that a test need not."""
    producer = RecordingProducer.started(auto_complete=False)
    one = await producer.send("t", b"v")
    assert await producer.flush() == (1, 0, 0)
    assert one.done()
    two = await producer.send("t", b"v")
    await producer.stop()
    assert two.result().offset == 1


async def test_it_belongs_to_the_first_loop_that_sends() -> None:
    """A producer from `started` has no loop before. It takes the loop of its first send."""
    producer = RecordingProducer.started()

    async def send() -> None:
        await producer.send_and_wait("t", b"v")

    await send()
    with pytest.raises(ProducerClosed, match="another event loop"):
        await asyncio.to_thread(asyncio.run, send())


def _send_in_this_thread(producer: RecordingProducer[Any, Any]) -> RecordMetadata:
    return producer.from_thread.send("t", b"v").result(10)


async def test_a_thread_may_be_the_first_to_ask_for_from_thread() -> None:
    """With the loop that made it, or that it was used in; a thread raised "no event loop runs here"."""
    made_here = RecordingProducer.started()
    made_elsewhere = await asyncio.to_thread(RecordingProducer.started)
    await made_elsewhere.send_and_wait("t", b"0")
    for producer, offset in ((made_here, 0), (made_elsewhere, 1)):
        assert (await asyncio.to_thread(_send_in_this_thread, producer)).offset == offset


async def test_from_thread_without_a_loop_says_so() -> None:
    producer = await asyncio.to_thread(RecordingProducer.started)
    with pytest.raises(ProducerClosed, match=r"knows no event loop yet.*async with RecordingProducer"):
        await asyncio.to_thread(lambda: producer.from_thread)
    # The loop's own thread may ask for it at any time.
    assert producer.from_thread


async def test_from_thread_of_a_closed_loop_says_so() -> None:
    """Also in the thread that ran the loop, or has its number by now, as Starlette's threads do: it was said to run the loop."""

    def in_one_thread() -> None:
        producer = RecordingProducer.started()
        asyncio.run(_send(producer))
        with pytest.raises(ProducerClosed, match="the producer's loop is closed"):
            producer.from_thread.send("t", b"v")

    await asyncio.to_thread(in_one_thread)


async def _send(producer: RecordingProducer[Any, Any]) -> None:
    await producer.send_and_wait("t", b"v")


async def test_without_a_running_loop_it_says_so() -> None:
    """A plain test may take the fixture; a call there needs the loop of a coroutine, as a `Producer` does."""

    def plain() -> None:
        with pytest.raises(ProducerClosed, match=r"no event loop runs here: .* `async def` test"):
            RecordingProducer.started().send_nowait("t", b"v")

    await asyncio.to_thread(plain)


async def test_its_face_is_the_producers() -> None:
    """Each public method of `Producer` is there, with the same parameters and defaults."""
    for name, method in inspect.getmembers(Producer):
        if name.startswith("_"):
            continue
        twin = inspect.getattr_static(RecordingProducer, name)
        if isinstance(twin, classmethod):
            twin = getattr(RecordingProducer, name)
        if inspect.isroutine(method):  # compiled ones too
            mine, theirs = inspect.signature(twin).parameters, inspect.signature(method).parameters
            assert [(p.name, p.kind, p.default) for p in mine.values()] == [(p.name, p.kind, p.default) for p in theirs.values()], name
            assert inspect.iscoroutinefunction(twin) == inspect.iscoroutinefunction(method), name
        else:
            assert isinstance(twin, type(inspect.getattr_static(Producer, name))), name


async def test_who_awaits_a_cancelled_handle_still_hears_of_the_record() -> None:
    """The handle has ended and the record has not. A cancelled task that waits on the handle does not cancel the other tasks."""
    async with RecordingProducer(auto_complete=False) as producer:
        delivery = await producer.send("t", b"v")

        async def wait() -> Any:
            return await delivery

        tasks = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        assert delivery.cancel()
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert delivery.cancelled()
        assert [task.done() for task in tasks] == [False, True, False]
        assert producer.complete_next()
        async with asyncio.timeout(5):
            assert (await tasks[0]).offset == (await tasks[2]).offset == 0
        with pytest.raises(asyncio.CancelledError):
            delivery.result()


async def test_it_has_metrics_and_health() -> None:
    """Its metrics are those of a producer that only sent. It is ready while it runs."""
    producer = RecordingProducer()
    assert not producer.health()
    async with producer:
        await producer.send("t", b"v")
        assert producer.health()
        assert producer.metrics().number("record-send-total") == 1
        assert producer.metrics().number("record-error-total") == 0
    assert producer.health().reasons == ("the producer has stopped",)
