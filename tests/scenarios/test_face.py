"""The producer's calls beside `send`, and the errors of wrong use.

Calls that do not wait, whole batches, a start without Kafka, and hooks.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest
from builds import on_both
from whole import JumpingLoop, assert_nothing_left, jumping, now, running, running_on, turns

from aioproducer import Producer, Record
from aioproducer.engine.append.admission import Admission
from aioproducer.engine.metadata.metadata_updater import MetadataUpdater
from aioproducer.engine.sender.batch_completion import BatchCompletion
from aioproducer.engine.sender.sender import Sender
from aioproducer.errors import (
    BrokerError,
    ConfigError,
    DeliveryError,
    KafkaError,
    MetadataTimeout,
    ProducerClosed,
    SerializationError,
    UsageError,
    WouldBlock,
)
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable


# send_nowait


@jumping
async def test_send_nowait_queues_at_once_or_says_what_it_would_wait_for() -> None:
    """`send_nowait` raises WouldBlock if it would wait for metadata, memory, the next iteration, a partition or earlier sends.

    It asks for the metadata. Once nothing is missing, it queues the record.
    """
    async with running(buffer_memory=30_000, batch_size=4000) as (cluster, producer):
        with pytest.raises(WouldBlock, match="metadata of the topic"):
            producer.send_nowait("orders", b"0")
        await turns(50)
        deliveries = [producer.send_nowait("orders", b"0", partition=0)]
        with pytest.raises(WouldBlock, match="the partition to exist"):
            producer.send_nowait("orders", b"v", partition=7)
        hang = cluster.hang("Produce")
        with pytest.raises(WouldBlock, match="buffer_memory, which is used up"):
            deliveries.extend(
                producer.send_nowait("orders", b"%d" % number + b"." * 900, partition=0)
                for number in range(1, 100)
            )
        waiting = asyncio.create_task(
            producer.send("orders", b"waits" + b"." * 3800)
        )  # a batch that closes gives less than that back
        await turns(20)
        with pytest.raises(WouldBlock, match="records before it"):
            producer.send_nowait("orders", b"v")
        hang.release()
        await (await waiting)
        assert [metadata.offset for metadata in await asyncio.gather(*deliveries)] == list(
            range(len(deliveries))
        )
        for bad in (("orders", "text"), ("", b"v"), ("orders", bytes(2_000_000))):
            with pytest.raises(UsageError):
                producer.send_nowait(*bad)


@on_both
@jumping
async def test_a_tight_loop_of_send_nowait_is_asked_to_let_the_loop_go_on(build: Any) -> None:
    """The loop has no `await`, so it may send for a whole iteration at once and goes on in the next one.

    Few of its records take the slow path.
    """
    async with running_on(build, partitions=2) as (cluster, producer):
        await producer.partitions_for("orders")
        slow, now = 0, producer._fast_path.now

        def noted(*record: Any) -> Any:
            nonlocal slow
            slow += 1
            return now(*record)

        producer._fast_path.now = noted
        sent = 0
        with pytest.raises(WouldBlock, match="the next turn of the loop"):
            for _ in range(10_000):
                producer.send_nowait("orders", b"v" * 10)
                sent += 1
        assert 2000 < sent < 5000
        assert slow < 20
        await asyncio.sleep(0)
        producer.send_nowait("orders", b"v")
        await producer.flush()
    assert len(cluster.values("orders")) == sent + 1


# partitions_for


@jumping
async def test_partitions_for_waits_for_metadata_once() -> None:
    """The first call waits for metadata, and the next one returns at once.

    A topic that cannot be, and one that does not come, raise as `send` does.
    """
    async with running(max_block_ms=500, allow_auto_create_topics=False) as (cluster, producer):
        assert await producer.partitions_for("orders") == {0, 1}
        asked = len(cluster.requests("Metadata"))
        assert await producer.partitions_for("orders") == {0, 1}
        assert len(cluster.requests("Metadata")) == asked
        with pytest.raises(MetadataTimeout) as raised:
            await producer.partitions_for("nowhere")
        assert "record" not in str(raised.value)
        with pytest.raises(BrokerError, match="INVALID_TOPIC"):
            await producer.partitions_for("a topic")
        with pytest.raises(UsageError):
            await producer.partitions_for("")
        asking = asyncio.create_task(producer.partitions_for("never"))
        await turns(3)
        assert await producer.flush() == (0, 0, 0)
        asking.cancel()


# start(wait=False)


@jumping
async def test_a_service_boots_while_kafka_is_down() -> None:
    """Sends wait for a broker for at most max_block_ms; the times of `flush` and `stop` are bounded."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        await cluster.brokers[1].stop()
        before = asyncio.all_tasks()
        producer = Producer(**cluster.client_options, max_block_ms=5000, close_timeout_ms=1000)
        began = now()
        await producer.start(wait=False)
        assert now() == began
        assert "running" in repr(producer)
        with pytest.raises(MetadataTimeout, match="orders"):
            await producer.send("orders", b"too early")
        assert now() - began == pytest.approx(5)
        waiting = asyncio.create_task(producer.send("orders", b"v"))
        await turns(3)
        assert (await producer.flush(timeout=1)).pending == 1
        await cluster.brokers[1].start()
        assert (await (await waiting)).offset == 0
        await producer.stop()
        assert_nothing_left(producer, before)


@jumping
async def test_it_stops_before_kafka_came() -> None:
    """`stop` ends in bounded time and leaves nothing behind; the pending send fails with ProducerClosed."""
    async with FakeCluster(memory=True) as cluster:
        await cluster.brokers[1].stop()
        before = asyncio.all_tasks()
        producer = Producer(**cluster.client_options, close_timeout_ms=1000)
        await producer.start(wait=False)
        waiting = asyncio.create_task(producer.send("orders", b"v"))
        await turns(5)
        began = now()
        await producer.stop()
        assert now() - began <= 1.01
        with pytest.raises(ProducerClosed):
            await waiting
        assert_nothing_left(producer, before)


# Failures without a look at their delivery, and a crash


@pytest.mark.parametrize("looks", [False, True])
@jumping
async def test_the_hook_hears_of_failures_that_nobody_looked_at(looks: bool) -> None:
    """The producer calls the hook in the loop, for each batch with its number of records. A hook that raises harms nothing."""
    told: list[tuple[DeliveryError, int]] = []
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: reported.append(context["exception"])
    )

    def hook(error: DeliveryError, count: int) -> None:
        assert asyncio.get_running_loop()
        told.append((error, count))
        raise ZeroDivisionError

    async with running(on_delivery_error=hook) as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.fail("Produce", "INVALID_RECORD", partition=0)
        deliveries = [await producer.send("orders", b"v", partition=0) for _ in range(3)]
        await producer.flush()
        if looks:
            assert all(delivery.exception() for delivery in deliveries)
        del deliveries
        gc.collect()
        await turns(2)
        assert [(str(error.__cause__), count) for error, count in told] == (
            [] if looks else [("INVALID_RECORD (87)", 3)]
        )
        assert [type(error) for error in reported] == [ZeroDivisionError] * len(told)
        await producer.send_and_wait("orders", b"v", partition=0)


BUGS: dict[str, tuple[type, str]] = {
    "turn": (Admission, "serve"),
    "answer": (BatchCompletion, "end_attempt"),
    "node": (Sender, "drain"),
    "deadline": (Admission, "_overdue"),
    "metadata": (MetadataUpdater, "_take"),
}


@pytest.mark.parametrize("where", BUGS)
@jumping
async def test_a_bug_in_a_callback_of_ours_fails_the_producer(
    where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries, pending sends and later sends raise with the bug as the reason, and nothing is left.

    Without that, the event loop would only log the bug.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        before = asyncio.all_tasks()
        producer = Producer(**cluster.client_options, max_block_ms=1000)
        await producer.start()
        await producer.send_and_wait("orders", b"v")
        hang = cluster.hang("Produce")
        delivery = await producer.send("orders", b"v")
        waiting = asyncio.create_task(producer.send("nowhere", b"v", partition=9))
        await turns(5)

        def crash(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(*BUGS[where], crash)
        if where == "turn":
            await producer.send("orders", b"v")
        elif where == "answer":
            hang.release()
        elif where == "node":
            cluster.disconnect_all()
        await asyncio.sleep(2)
        for call in (
            delivery,
            waiting,
            producer.send("orders", b"v"),
            producer.flush(),
            producer.send_many("orders", [b"v"]),
        ):
            with pytest.raises((DeliveryError, ProducerClosed), match="a bug") as raised:
                await call
            causes = []
            error: BaseException | None = raised.value
            while error is not None:
                causes.append(type(error))
                error = error.__cause__
            assert ZeroDivisionError in causes or isinstance(raised.value, ProducerClosed)
        assert "failed" in repr(producer)
        assert asyncio.all_tasks() - before == set()
        began = now()
        await producer.stop()
        assert now() == began
        assert "The producer failed: ZeroDivisionError" in caplog.text
        cluster.faults.clear()


# Wrong use


async def _unstarted(cluster: FakeCluster) -> Producer[Any, Any]:
    return Producer(**cluster.client_options)


async def _stopped(cluster: FakeCluster) -> Producer[Any, Any]:
    async with Producer(**cluster.client_options) as producer:
        await producer.partitions_for("orders")
    return producer


CALLS: dict[str, Callable[[Producer[Any, Any]], Any]] = {
    "send": lambda producer: producer.send("orders", b"v"),
    "send_and_wait": lambda producer: producer.send_and_wait("orders", b"v"),
    "send_nowait": lambda producer: producer.send_nowait("orders", b"v"),
    "send_many": lambda producer: producer.send_many("orders", [b"v"]),
    "partitions_for": lambda producer: producer.partitions_for("orders"),
    "flush": lambda producer: producer.flush(),
    "send_columns": lambda producer: producer.send_columns("orders", values=None),
    "transaction": lambda producer: producer.transaction(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction(
        {("orders", 0): 1}, "group"
    ),
    "send_position_to_transaction": lambda producer: producer.send_position_to_transaction(
        "job", 1, topic="orders"
    ),
    "committed_position": lambda producer: producer.committed_position("job", topic="orders"),
}


async def call(name: str, producer: Producer[Any, Any]) -> Any:
    result = CALLS[name](producer)
    return await result if asyncio.iscoroutine(result) else result


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("state", "text"), [(_unstarted, "was not started: use `async with"), (_stopped, "has stopped")]
)
@jumping
async def test_a_producer_that_does_not_run_says_so(
    state: Callable[..., Any], text: str, name: str
) -> None:
    """Every call raises ProducerClosed before `start` and after `stop`."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        with pytest.raises(ProducerClosed, match=text):
            await call(name, await state(cluster))


@pytest.mark.parametrize("name", CALLS)
def test_a_producer_of_another_loop_says_so(name: str) -> None:
    """A call raises in another loop of this thread, in another thread's loop, and in a forked child."""
    first = JumpingLoop()

    async def start() -> tuple[FakeCluster, Producer[Any, Any]]:
        cluster = await FakeCluster(memory=True).__aenter__()
        cluster.create_topic("orders")
        producer = Producer(**cluster.client_options)
        await producer.start()
        await producer.send_and_wait("orders", b"v")
        return cluster, producer

    async def use() -> None:
        with pytest.raises(ProducerClosed, match="another event loop"):
            await call(name, producer)

    async def use_as_a_child() -> None:
        engine: Any = producer._engine
        pid, engine._pid = engine._pid, -1
        engine.forget_fork()
        with pytest.raises(ProducerClosed, match="forked"):
            await call(name, producer)
        engine._pid = pid

    try:
        cluster, producer = first.run_until_complete(start())
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(use())
        thread = threading.Thread(target=lambda: asyncio.run(use()))
        thread.start()
        thread.join()
        first.run_until_complete(use_as_a_child())
        first.run_until_complete(producer.stop())
        first.run_until_complete(cluster.__aexit__())
        assert len(cluster.values("orders")) == 1
    finally:
        first.close()


@pytest.mark.parametrize("name", [*CALLS, "start", "stop"])
@jumping
async def test_a_call_in_another_thread_names_the_door_for_threads(name: str) -> None:
    """The other thread calls with an event loop of its own and without one, while the producer's loop runs.

    Nothing is queued, and the producer goes on.
    """
    calls = {
        **CALLS,
        "start": lambda producer: producer.start(),
        "stop": lambda producer: producer.stop(),
    }
    raised: list[BaseException] = []

    async def use() -> None:
        called = calls[name](producer)
        if asyncio.iscoroutine(called):
            await called

    def use_without_a_loop() -> None:
        called = calls[name](producer)
        if asyncio.iscoroutine(called):
            called.send(None)

    def work() -> None:
        for way in (lambda: asyncio.run(use()), use_without_a_loop):
            try:
                way()
            except KafkaError as error:
                raised.append(error)

    async with running() as (cluster, producer):
        await producer.send_and_wait("orders", b"v", partition=0)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert len(raised) == 2
        assert all("from_thread" in str(error) for error in raised), raised
        await producer.send_and_wait("orders", b"v", partition=0)
        assert len(cluster.values("orders")) == 2


@pytest.mark.asyncio
async def test_what_only_looks_may_be_called_in_any_thread() -> None:
    """Calls that only read may run in any thread while the producer's loop runs."""

    def look() -> list[object]:
        return [producer.config, producer.buffer_available, producer.explain(), repr(producer)]

    async with running() as (_, producer):
        assert await asyncio.to_thread(look)
        assert await asyncio.to_thread(producer.health)
        assert await asyncio.to_thread(producer.metrics)


def _raises(*_: object) -> Any:
    raise ZeroDivisionError


async def _coroutine(*_: object) -> Any:
    return b""


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"value_serializer": lambda value: _raises() if value == b"bad" else value},
            SerializationError,
        ),
        ({"value_serializer": lambda value: 7 if value == b"bad" else value}, SerializationError),
        (
            {"value_serializer": lambda value: _coroutine() if value == b"bad" else value},
            SerializationError,
        ),
        ({"key_serializer": lambda key: _raises() if key == b"bad" else key}, SerializationError),
        (
            {"partitioner": lambda key, partitions: _raises() if key == b"bad" else partitions - 1},
            UsageError,
        ),
        (
            {"partitioner": lambda key, partitions: "0" if key == b"bad" else partitions - 1},
            UsageError,
        ),
        (
            {"partitioner": lambda key, partitions: -1 if key == b"bad" else partitions - 1},
            UsageError,
        ),
        (
            {
                "partitioner": lambda key, partitions: (
                    _coroutine() if key == b"bad" else partitions - 1
                )
            },
            UsageError,
        ),
    ],
)
@jumping
async def test_user_code_that_fails_fails_its_record_alone(
    options: dict[str, Any], error: type[KafkaError]
) -> None:
    """The send of that record raises an error without the value, also while other sends wait with it."""
    async with running(**options, buffer_memory=20_000, batch_size=1000) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", b"k")
        hang = cluster.hang("Produce")
        values = [b"%d" % number + b"." * 900 for number in range(40)]
        sends = [asyncio.create_task(producer.send("orders", value, b"k")) for value in values]
        await turns(3)
        bad = asyncio.create_task(producer.send("orders", b"bad", b"bad"))
        await turns(3)
        hang.release()
        with pytest.raises(error) as raised:
            await bad
        assert "bad" not in str(raised.value)
        for send in sends:
            await (await send)
        assert len(cluster.values("orders")) == 41


@pytest.mark.parametrize("name", ["on_delivery_error", "on_failed"])
@pytest.mark.parametrize("hook", [7, _coroutine, lambda: None])
def test_a_hook_that_cannot_be_called_is_refused(name: str, hook: Any) -> None:
    """The producer's constructor refuses the hook."""
    with pytest.raises(ConfigError, match=name):
        Producer(**{name: hook})


def test_a_record_does_not_show_its_bytes() -> None:
    """`repr` shows no bytes of a record; the record compares and unpacks by its fields."""
    record = Record(b"canary", b"canary", 3, 7, [("name", b"canary")])
    assert repr(record) == "<Record for partition 3 of 7: 1 header>"
    assert record == Record(
        value=b"canary", key=b"canary", partition=3, timestamp_ms=7, headers=[("name", b"canary")]
    )


# explain


@jumping
async def test_a_failure_explains_what_happened_to_its_batch() -> None:
    """The error explains each attempt with its broker and error, in order, with times, and shortens a long list.

    Nothing of the record is in its text.
    """
    async with running(delivery_timeout_ms=3000, request_timeout_ms=1000, retry_backoff_ms=100) as (
        cluster,
        producer,
    ):
        await producer.partitions_for("orders")
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", partition=0, times=100)
        with pytest.raises(DeliveryError) as raised:
            await producer.send_and_wait("orders", b"canary", partition=0)
        cluster.faults.clear()
        lines = raised.value.explain().splitlines()
        where = cluster.client_options["bootstrap_servers"]
        assert lines[:2] == ["orders-0, a batch of 1 record:", "    +0.000 s queued"]
        assert lines[2] == f"    +0.000 s sent to broker 1 at {where}"
        assert lines[3].endswith("s BrokerError: NOT_ENOUGH_REPLICAS (19)")
        assert "failed: not acknowledged within delivery_timeout_ms=3000" in lines[-1]
        assert lines[-1].startswith("    +3.000 s")
        assert len(lines) <= 24
        assert "canary" not in raised.value.explain()


@jumping
async def test_a_batch_that_was_never_sent_explains_what_it_waited_for() -> None:
    """The batch waited for a broker that cannot be reached."""
    async with running(delivery_timeout_ms=3000, request_timeout_ms=1000) as (cluster, producer):
        await producer.partitions_for("orders")
        await cluster.brokers[1].stop()
        await turns(5)
        with pytest.raises(DeliveryError) as raised:
            await producer.send_and_wait("orders", b"v", partition=0)
        assert raised.value.attempts == 0
        assert "it waited for a connection to broker-1" in raised.value.explain()


@jumping
async def test_the_producer_explains_what_waits() -> None:
    """`explain` shows the memory, the sends that wait and why, and the oldest batches with their reason to wait."""
    async with running(buffer_memory=10_000, batch_size=4000) as (cluster, producer):
        assert "not started" in Producer().explain()
        await producer.partitions_for("orders")
        hang = cluster.hang("Produce")
        sends = [
            asyncio.create_task(producer.send("orders", b"canary" * 150, partition=0))
            for _ in range(20)
        ]
        sends.append(asyncio.create_task(producer.send("nowhere", b"canary", partition=99)))
        await turns(20)
        text = producer.explain()
        assert "of 10000 bytes free" in text
        assert "waiting for buffer_memory" in text
        assert "1 send waiting for " in text
        assert "'nowhere'" in text
        assert "waits for the answer of broker-1" in text
        assert "canary" not in text
        sends.pop().cancel()
        hang.release()
        for send in sends:
            await (await send)
