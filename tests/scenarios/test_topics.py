"""Topic handles: serializers that are prepared, the order of calls with the producer's own `send`, and what is left when they fail."""

from __future__ import annotations

import asyncio
import gc
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from builds import on_both
from whole import jumping, running, running_on, turns

from aioproducer import (
    ConfigError,
    KafkaError,
    MetadataTimeout,
    ProducerClosed,
    SerializationError,
    UsageError,
    WouldBlock,
)
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.model import Headers


class Schema:
    """A two-phase serializer: its first phase takes `seconds` or raises, and a test makes its encoders stale."""

    def __init__(self, seconds: float = 0.1, *errors: BaseException) -> None:
        self.seconds = seconds
        self.errors = list(errors)
        self.prepared: list[str] = []
        self.is_stale = False
        self.was_cancelled = False

    async def prepare(self, topic: str) -> Schema.Encoder:
        self.prepared.append(topic)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.errors:
            raise self.errors.pop(0)
        self.is_stale = False
        return self.Encoder(self, len(self.prepared))

    class Encoder:
        """Encodes as text, with the number of the preparation before it."""

        def __init__(self, schema: Schema, number: int) -> None:
            self.schema = schema
            self.number = number

        def encode(self, value: object, headers: Headers) -> tuple[bytes, Headers]:
            return f"{self.number}:{value}".encode(), [*headers, ("schema", b"%d" % self.number)]

        def is_stale(self) -> bool:
            return self.schema.is_stale


def values(cluster: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return list(cluster.values("orders", partition))


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@jumping
async def test_records_wait_in_the_order_of_their_calls(known: bool) -> None:
    """Records of `send` and of other handles wait behind those of a handle that is not prepared. The serializer is prepared once."""
    schema = Schema()
    async with running() as (cluster, producer):
        if known:
            await producer.partitions_for("orders")
        orders = producer.topic("orders", value=schema)
        texts = producer.topic("orders", value=str)
        sends = [
            asyncio.ensure_future(call)
            for number in range(4)
            for call in (
                orders.send(number, partition=0),
                producer.send("orders", b"plain %d" % number, partition=0),
                texts.send(f"text {number}", partition=0),
            )
        ]
        await turns(50)
        assert not any(task.done() for task in sends)
        assert (
            "12 sends waiting for a serializer to be prepared 'orders'" in producer.explain()
            or not known
        )
        deliveries = [*await asyncio.gather(*sends), await orders.send(9, partition=0)]
        await producer.flush()
        expected = [
            part
            for number in range(4)
            for part in (b"1:%d" % number, b"plain %d" % number, b"text %d" % number)
        ]
        assert values(cluster) == [*expected, b"1:9"]
        assert [(await delivery).offset for delivery in deliveries] == [*range(13)]
        assert cluster.records("orders", 0)[0].headers == (("schema", b"1"),)
        assert schema.prepared == ["orders"]


@jumping
async def test_other_topics_do_not_wait() -> None:
    """A record of another topic is sent while a serializer is prepared."""
    async with running() as (cluster, producer):
        cluster.create_topic("others")
        waiting = asyncio.ensure_future(producer.topic("orders", value=Schema(5)).send(1))
        await turns(5)
        assert (await producer.send_and_wait("others", b"v")).offset == 0
        assert not waiting.done()
        await waiting


@jumping
async def test_a_preparation_that_takes_too_long() -> None:
    """Each send fails after its own `max_block_ms`. The error names the serializer, and no record is queued."""
    schema = Schema(1000)
    loop = asyncio.get_running_loop()
    async with running(max_block_ms=2000) as (cluster, producer):
        orders = producer.topic("orders", value=schema)
        began = loop.time()

        async def failed(pause: float) -> tuple[float, str]:
            await asyncio.sleep(pause)
            with pytest.raises(MetadataTimeout) as caught:
                await orders.send(1)
            return round(loop.time() - began, 3), str(caught.value)

        text = "value_serializer Schema was not prepared for 'orders' within max_block_ms=2000. The record was not queued."
        assert await asyncio.gather(failed(0), failed(1.5)) == [(2.0, text), (3.5, text)]
        with pytest.raises(
            MetadataTimeout,
            match="value_serializer Schema was not prepared for 'orders' within max_block_ms=2000",
        ):
            await orders.ready()
        # A record without the serializer waits for nothing once they are gone.
        await producer.send_and_wait("orders", b"plain", partition=0)
        assert values(cluster) == [b"plain"]
    assert schema.was_cancelled


@jumping
async def test_a_preparation_that_fails() -> None:
    """The records that wait for it fail, those behind them are sent, and the next send prepares again."""
    schema = Schema(0.1, ValueError("a secret"))
    async with running() as (cluster, producer):
        orders = producer.topic("orders", key=str, value=schema)
        sends = [
            asyncio.ensure_future(call)
            for call in (
                orders.send(1, partition=0),
                producer.send("orders", b"plain", partition=0),
                orders.send(2, partition=0),
            )
        ]
        first, plain, second = await asyncio.gather(*sends, return_exceptions=True)
        for error in (first, second):
            assert isinstance(error, SerializationError)
            assert isinstance(error.__cause__, ValueError)
            assert "value_serializer raised ValueError in prepare (" in str(error)
            assert str(error).endswith("while it was prepared for 'orders'")
            assert "secret" not in str(error)
        assert not isinstance(plain, BaseException)
        await (await orders.send(3, partition=0))
        assert values(cluster) == [b"plain", b"2:3"]


@jumping
async def test_a_preparation_that_awaits_something_cancelled() -> None:
    """The sends that wait for the preparation fail, as it was not itself cancelled. The producer goes on."""
    async with running() as (cluster, producer):
        schema = Schema(0.1, asyncio.CancelledError("a request that several preparations share"))
        orders = producer.topic("orders", value=schema)
        with pytest.raises(
            SerializationError,
            match="value_serializer Schema awaited something that was cancelled, while it was prepared for 'orders'",
        ):
            await orders.send(1, partition=0)
        await (await orders.send(2, partition=0))
        assert values(cluster) == [b"2:2"]


@jumping
async def test_a_cancelled_send_leaves_no_trace() -> None:
    """Its record is not queued. The record that waited behind it alone is sent at once."""
    schema = Schema(1000)
    async with running(max_block_ms=60_000) as (cluster, producer):
        orders = producer.topic("orders", value=schema)
        await orders.partitions()
        first = asyncio.ensure_future(orders.send(1, partition=0))
        await turns(3)
        second = asyncio.ensure_future(producer.send("orders", b"plain", partition=0))
        await turns(3)
        assert not second.done()
        first.cancel()
        await turns(5)
        assert second.done()
        await producer.flush()
        assert values(cluster) == [b"plain"]
        assert first.cancelled()


@jumping
async def test_a_stale_encoder_is_prepared_again() -> None:
    """The serializer is prepared again before the next record. Records that were encoded before keep their bytes."""
    schema = Schema()
    async with running() as (cluster, producer):
        orders = producer.topic("orders", value=schema)
        await orders.send(1, partition=0)
        await orders.send(2, partition=0)
        schema.is_stale = True
        with pytest.raises(WouldBlock, match="a serializer to be prepared"):
            orders.send_nowait(3, partition=0)
        await asyncio.gather(
            orders.send(4, partition=0),
            producer.send("orders", b"plain", partition=0),
            orders.send(5, partition=0),
        )
        await producer.flush()
        assert values(cluster) == [b"1:1", b"1:2", b"2:4", b"plain", b"2:5"]
        assert schema.prepared == ["orders", "orders"]


@jumping
async def test_ready_warms_metadata_and_serializers() -> None:
    """After `ready`, no send waits. A plain send does not wait for a `ready` that has not returned."""
    schema = Schema(5)
    async with running() as (cluster, producer):
        orders = producer.topic("orders", value=schema)
        with pytest.raises(WouldBlock, match="'orders' would wait for"):
            orders.send_nowait(1)
        await producer.partitions_for("orders")
        with pytest.raises(WouldBlock, match=r"\(value_serializer Schema\), which begins now"):
            orders.send_nowait(1)
        warming = asyncio.ensure_future(orders.ready())
        await turns(5)
        assert not warming.done()
        await producer.send_and_wait("orders", b"plain", partition=0)
        await warming
        orders.send_nowait(2, partition=0)
        await producer.flush()
        assert values(cluster) == [b"plain", b"1:2"]
        assert schema.prepared == ["orders"]


@jumping
async def test_ready_says_why_not() -> None:
    """`ready` raises the error of the preparation. The next call tries again."""
    async with running() as (_, producer):
        orders = producer.topic("orders", value=Schema(1, OSError("no registry")))
        with pytest.raises(SerializationError, match="value_serializer raised OSError") as caught:
            await orders.ready()
        assert str(caught.value.__cause__) == "no registry"
        await orders.ready()


@jumping
async def test_a_flush_waits_for_records_that_wait_for_a_serializer() -> None:
    """The flush waits for them as for any send that waited when it was called."""
    async with running() as (cluster, producer):
        send = asyncio.ensure_future(producer.topic("orders", value=Schema(3)).send(1, partition=0))
        await turns(3)
        await producer.flush()
        assert send.done()
        assert values(cluster) == [b"1:1"]


@jumping
async def test_stop_ends_a_preparation() -> None:
    """The send that waits for it fails with ProducerClosed, and no task is left."""
    schema = Schema(1000)
    async with running(close_timeout_ms=100) as (cluster, producer):
        send = asyncio.ensure_future(producer.topic("orders", value=schema).send(1))
        await turns(20)
    with pytest.raises(
        ProducerClosed,
        match=r"stopped during a wait for a serializer to be prepared 'orders'\. The record was not queued",
    ):
        await send
    assert schema.was_cancelled
    assert values(cluster) == []


@jumping
async def test_the_option_of_a_producer_is_prepared_for_each_topic() -> None:
    """`value_serializer` may be two-phase: `send`, `send_many` and threads find it prepared, or wait."""
    schema = Schema()
    async with running(value_serializer=schema, key_serializer=str.encode) as (cluster, producer):
        cluster.create_topic("others")
        first = asyncio.ensure_future(producer.send("orders", "a", key="k", partition=0))
        many = asyncio.ensure_future(producer.send_many("orders", ["b", None]))
        await asyncio.gather(first, many)
        await producer.topic("others").ready()
        producer.send_nowait("others", "c", partition=0)
        await producer.flush()
        logged = [
            *cluster.values("orders", 0),
            *cluster.values("orders", 1),
            *cluster.values("others"),
        ]
        assert sorted(logged, key=str) == sorted([b"1:a", b"1:b", None, b"2:c"], key=str)
        assert schema.prepared == ["orders", "others"]


@jumping
async def test_an_encoder_that_would_have_to_be_awaited() -> None:
    """A coroutine function is refused with words, wherever it is found."""

    class Later:
        async def encode(self, value: object, headers: Headers) -> bytes:
            return b""

        def is_stale(self) -> bool:
            return False

    class Prepares:
        async def prepare(self, topic: str) -> Any:
            return Later()

    async def later(_value: object) -> bytes:
        return b""

    async with running() as (_, producer):
        with pytest.raises(
            ConfigError, match=r"`topic\(value=\.\.\.\)` is a plain function.*Await before `send`"
        ):
            producer.topic("orders", value=later)
        with pytest.raises(SerializationError, match="await in your code, before `send`"):
            await producer.topic("orders", value=Prepares()).send(1)


@pytest.mark.parametrize("fails", [False, True])
@jumping
async def test_a_serializer_that_is_prepared_without_a_wait(*, fails: bool) -> None:
    """An eager task ends within the call that makes it: the send waits by then, or it would wait for max_block_ms."""

    class AtOnce:
        is_stale = False

        async def prepare(self, _topic: str) -> AtOnce:
            if fails:
                raise ValueError
            return self

        def encode(self, value: bytes, _headers: Headers) -> bytes:
            return value

    async with running() as (cluster, producer):
        cluster.create_topic("others")
        await producer.send_and_wait("orders", b"known", partition=0)
        began = asyncio.get_running_loop().time()
        for topic in ("orders", "others"):
            with (
                pytest.raises(SerializationError, match="ValueError in prepare")
                if fails
                else nullcontext()
            ):
                await producer.topic(topic, value=AtOnce()).send_and_wait(b"v")
        assert asyncio.get_running_loop().time() == began


@jumping
async def test_a_serializer_is_called_once_for_a_record() -> None:
    """This holds also if the fast path has called it and the record then waits for memory, with `send` and with a handle."""
    called: list[int] = []

    def encode(value: int) -> bytes:
        called.append(value)
        return b"%d" % value + b"." * 4_000

    async with running(
        buffer_memory=30_000, max_request_size=8_000, batch_size=5_000, value_serializer=encode
    ) as (cluster, producer):
        orders = producer.topic("orders", value=encode)
        await orders.ready()
        for number in range(0, 90, 3):
            await orders.send(number, partition=0)
            await producer.send("orders", number + 1, partition=0)
            await asyncio.gather(producer.send_and_wait("orders", number + 2, partition=0))
        await producer.flush()
        assert called == [*range(90)]
        assert [
            int(str(value, "ascii").rstrip(".")) for value in cluster.values("orders", 0) if value
        ] == called


@jumping
async def test_in_a_transaction() -> None:
    """A record that waits for its serializer when the commit is called is in the transaction; one that fails makes the commit fail."""
    async with running(transactional_id="tx") as (cluster, producer):
        orders = producer.topic("orders", value=Schema(1))
        async with producer.transaction():
            send = asyncio.ensure_future(orders.send(1, partition=0))
            await turns(2)
        await send
        assert values(cluster) == [b"1:1"]


@on_both
@pytest.mark.parametrize(
    "kind", ["coroutine", "wrapping mock", "task", "future", "asynchronous generator"]
)
@pytest.mark.parametrize("option", ["value_serializer", "key_serializer"])
@jumping
async def test_an_awaitable_is_named_with_its_option(build: Any, option: str, kind: str) -> None:
    """The first send says where to await. Nothing is queued, no warning of a coroutine follows, and the next record is sent."""

    async def later(_value: object) -> bytes:
        return b""

    async def pieces(_value: object) -> AsyncIterator[bytes]:
        yield b""

    functions: dict[str, Any] = {
        "coroutine": lambda value: later(value),
        "wrapping mock": mock.Mock(wraps=later),
        "task": lambda value: asyncio.ensure_future(later(value)),
        "future": lambda _value: asyncio.get_running_loop().create_future(),
        "asynchronous generator": pieces,
    }
    async with running_on(build, **{option: functions[kind]}) as (cluster, producer):
        for _ in range(2):
            with pytest.raises(
                SerializationError,
                match=f"{option} gave .* for 'orders', not bytes: await in your code, before `send`",
            ):
                await producer.send("orders", b"v", b"k")
            gc.collect()
    assert cluster.values("orders") == []


class Cancels:
    """Calls a function for each record but "bad", for which it raises."""

    def __init__(self, kind: str, error: type[BaseException]) -> None:
        self.kind = kind
        self.error = error

    def _check(self, value: object) -> None:
        if value == b"bad":
            raise self.error

    def on_send(self, record: Any) -> None:
        self._check(record.value)

    def serialize(self, value: bytes) -> bytes:
        self._check(value)
        return value

    def choose(self, _key: bytes, value: bytes, _partitions: int) -> int:
        self._check(value)
        return 0

    async def prepare(self, _topic: str) -> Cancels:
        await asyncio.sleep(0.1)
        return self

    def encode(self, value: bytes, _headers: Headers) -> bytes:
        return self.serialize(value)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "serializer": {"value_serializer": self.serialize},
            "encoder": {"value_serializer": self},
            "partitioner": {
                "partitioner": lambda _topic, key, value, count, _available: self.choose(
                    key, value, count
                )
            },
            "interceptor": {"interceptors": [self]},
        }[self.kind]


async def sent_around(producer: Any) -> tuple[list[Any], list[str]]:
    """Send three records at once, the second one "bad". Returns their results, and what the loop's exception handler was told."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: told.append(repr(context.get("exception")))
    )
    sends = [
        asyncio.ensure_future(producer.send_and_wait("orders", value))
        for value in (b"1", b"bad", b"2")
    ]
    async with asyncio.timeout(5):
        return await asyncio.gather(*sends, return_exceptions=True), told


@on_both
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("kind", ["serializer", "encoder", "partitioner", "interceptor"])
@jumping
async def test_a_cancelled_error_of_a_users_function_is_its_own(
    build: Any, kind: str, known: bool
) -> None:
    """A plain function asks for the result of a cancelled future. Its record fails; no task is cancelled, and the other records are sent."""
    cancels = Cancels(kind, asyncio.CancelledError)
    async with running_on(build, max_block_ms=2000, **cancels.options) as (cluster, producer):
        if known:
            await producer.partitions_for("orders")
        (_, failed, _), told = await sent_around(producer)
    assert told == []
    if kind == "interceptor":
        assert cluster.values("orders") == [b"1", b"bad", b"2"]
    else:
        assert cluster.values("orders") == [b"1", b"2"]
        assert isinstance(failed, UsageError)
        assert "raised CancelledError" in str(failed)


class Stale:
    """An encoder that the producer asks for each record whether it is stale. It raises when the test says so."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    async def prepare(self, _topic: str) -> Stale:
        return self

    def encode(self, value: bytes, _headers: Headers) -> bytes:
        return value

    def is_stale(self) -> bool:
        if self.error is not None:
            raise self.error
        return False


@on_both
@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), StopIteration(), LookupError("no such schema")], ids=repr
)
@pytest.mark.parametrize("way", ["send_and_wait", "send_nowait", "send_many"])
@jumping
async def test_an_error_of_is_stale_is_its_records(
    build: Any, way: str, error: BaseException
) -> None:
    """The error cancels no task, and the producer asks the encoder again for the next record."""
    stale = Stale()
    async with running_on(build, value_serializer=stale) as (cluster, producer):
        await producer.send_and_wait("orders", b"1")
        for partition in (None, 0):
            stale.error = error
            with pytest.raises(
                SerializationError,
                match=rf"`is_stale` of the encoder Stale raised {type(error).__name__} in is_stale",
            ) as caught:
                if way == "send_nowait":
                    producer.send_nowait("orders", b"bad", partition=partition)
                else:
                    await getattr(producer, way)(
                        "orders", [b"bad"] if way == "send_many" else b"bad"
                    )
            assert caught.value.__cause__ is error
            stale.error = None
            await producer.send_and_wait("orders", b"2", partition=partition)
    assert cluster.values("orders") == [b"1", b"2", b"2"]


class EndOfProgram(BaseException):
    """Stands for KeyboardInterrupt, which ends the loop."""


@on_both
@pytest.mark.parametrize("kind", ["encoder", "partitioner"])
@jumping
async def test_what_ends_a_program_fails_the_producer(build: Any, kind: str) -> None:
    """The serializer raises while the loop appends a record that waited. The loop gets the error once, and no send waits any longer."""
    async with running_on(build, max_block_ms=2000, **Cancels(kind, EndOfProgram).options) as (
        _,
        producer,
    ):
        results, told = await sent_around(producer)
        assert all(isinstance(result, KafkaError) for result in results), results
        with pytest.raises(ProducerClosed) as caught:
            await producer.send("orders", b"late")
        assert isinstance(caught.value.__cause__, EndOfProgram)
    assert told == ["EndOfProgram()"]
