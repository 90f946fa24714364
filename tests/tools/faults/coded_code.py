"""Holds rows about code that is not ours, and about very large numbers of records and topics."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any, Self

import psutil
import pytest

from aioproducer import Producer
from aioproducer.errors import ConfigError, DeliveryError, SerializationError
from aioproducer.testing import FakeCluster

from .coded import row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_WRONG = "a user's serializer, partitioner or callback raises, or blocks for 1 s"


@row(86, _WRONG, "only that record fails", "serializer")
async def a_serializer_raises() -> None:
    def serialize(topic: str, headers: Any, value: Any) -> bytes:
        if value == "bad":
            raise LookupError("a bug")
        return str(value).encode()

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, value_serializer=serialize) as producer:
            good = await producer.send("orders", "1")
            with pytest.raises(SerializationError):
                await producer.send("orders", "bad")
            await producer.send_and_wait("orders", "2")
            await good
        assert cluster.values("orders") == [b"1", b"2"]


@row(86, _WRONG, "only that record fails", "partitioner")
async def a_partitioner_raises() -> None:
    def choose(topic: str, key: Any, partitions: Any, *rest: Any) -> int:
        if key == b"bad":
            raise LookupError("a bug")
        return 1

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        async with Producer(**cluster.client_options, partitioner=choose) as producer:
            await producer.send_and_wait("orders", b"1", b"good")
            with pytest.raises(Exception, match="partitioner"):
                await producer.send("orders", b"2", b"bad")
            await producer.send_and_wait("orders", b"3", b"good")
            assert producer.buffer_available == producer.config.buffer_memory
        assert cluster.values("orders", 1) == [b"1", b"3"]


@row(86, _WRONG, "the loop is told, no other record or callback notices", "callback")
def a_callback_raises() -> None:
    async def main() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders")
            async with Producer(**cluster.client_options) as producer:
                called: list[int] = []

                def callback(number: int) -> Any:
                    def call(delivery: Any) -> None:
                        called.append(number)
                        if number == 1:
                            raise LookupError("a bug")

                    return call

                deliveries = [await producer.send("orders", b"v") for _ in range(3)]
                for number, delivery in enumerate(deliveries):
                    delivery.add_done_callback(callback(number))
                assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]
                await producer.send_and_wait("orders", b"v")
            assert called == [0, 1, 2]
            assert [type(error) for error in told] == [LookupError]

    asyncio.run(main())


class _Told(logging.Handler):
    """Collects the warnings of the package."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def __enter__(self) -> Self:
        # what an earlier test left warns when it is collected
        gc.collect()
        logging.getLogger("aioproducer").addHandler(self)
        return self

    def __exit__(self, *_error: object) -> None:
        logging.getLogger("aioproducer").removeHandler(self)


async def _blocked(name: str, **options: Callable[..., Any]) -> None:
    """A user's function delays two records of ten by a second each. One warning names the function, and no other effect is seen."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        with _Told() as told:
            async with Producer(**cluster.client_options, **options) as producer:
                deliveries = [await producer.send("orders", b"canary", b"%d" % number) for number in range(10)]
                if not options:
                    for delivery in deliveries:
                        delivery.add_done_callback(lambda delivery: _take_a_second(delivery.index in {2, 5}))
                assert max(metadata.offset for metadata in await asyncio.gather(*deliveries)) >= 4
                await asyncio.sleep(0.1)
        assert len(cluster.values("orders")) == 10
        assert [text.split(" held the event loop for ")[0] for text in told.texts] == [name]
        assert "canary" not in told.texts[0]


def _take_a_second(condition: object) -> None:
    loop: Any = asyncio.get_running_loop()
    if condition:
        loop.advance(1)


_NAMED = "one warning names it; no record fails"


@row(86, _WRONG, _NAMED, "a serializer blocks")
async def a_serializer_blocks() -> None:
    def serialize(value: bytes) -> bytes:
        _take_a_second(value in {b"2", b"5"})
        return value

    await _blocked("key_serializer", key_serializer=serialize)
    calls = iter(range(10))

    def serialize_value(value: bytes) -> bytes:
        _take_a_second(next(calls) in {2, 5})
        return value

    await _blocked("value_serializer", value_serializer=serialize_value)


@row(86, _WRONG, _NAMED, "a partitioner blocks")
async def a_partitioner_blocks() -> None:
    def choose(key: Any, partitions: Any) -> int:
        _take_a_second(key in {b"2", b"5"})
        return int(key) % 2

    await _blocked("partitioner", partitioner=choose)


@row(86, _WRONG, _NAMED, "a callback blocks")
async def a_callback_blocks() -> None:
    await _blocked("a delivery's done callback (_blocked.<locals>.<lambda>, gather.<locals>._done_callback)")


@row(86, _WRONG, _NAMED, "on_delivery_error blocks")
async def a_hook_blocks() -> None:
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.fail("Produce", error="INVALID_REQUIRED_ACKS")
        with _Told() as told:
            async with Producer(**cluster.client_options, on_delivery_error=lambda error, count: _take_a_second(count)) as producer:
                await producer.send("orders", b"canary")
                await asyncio.sleep(1)
                assert (await producer.send_and_wait("orders", b"v")).offset == 0
        held = [text for text in told.texts if "held the event loop" in text]
        assert [text.split(" held ")[0] for text in held] == ["on_delivery_error"]


async def _cpu_of(pending: int) -> float:
    """Return CPU seconds for each record of `pending` records that are all pending at once."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, buffer_memory=2**30, linger_ms=1000) as producer:
            await producer.send_and_wait("orders", b"first")
            hang = cluster.hang("Produce")
            before = psutil.Process().memory_info().rss
            began = time.thread_time()
            deliveries = [await producer.send("orders", b"0123456789") for _ in range(pending)]
            gathered = asyncio.gather(*deliveries)
            await asyncio.sleep(0)
            grown = psutil.Process().memory_info().rss - before
            hang.release()
            await gathered
            took = time.thread_time() - began
            assert producer.buffer_available == producer.config.buffer_memory
        assert cluster.end_offsets("orders") == {0: pending + 1}
    assert grown < pending * _BYTES + 2**24, f"{grown / pending:.0f} bytes a delivery"
    return took / pending


async def _cpu_of_topics(count: int) -> float:
    """Return CPU seconds for each topic of `count` topics that are all new at once."""
    async with FakeCluster(memory=True) as cluster:
        names = [f"topic-{number}" for number in range(count)]
        for name in names:
            cluster.create_topic(name)
        async with Producer(**cluster.client_options, buffer_memory=2**27) as producer:
            began = time.thread_time()
            sending = await asyncio.gather(*(producer.send(name, b"v") for name in names))
            await asyncio.gather(*sending)
            took = time.thread_time() - began
            assert producer.buffer_available == producer.config.buffer_memory
        assert all(cluster.end_offsets(name) == {0: 1} for name in names)
        assert len(cluster.requests("Metadata")) < 10 + count / 100
    return took / count


async def _assert_linear(cost: Callable[[int], Awaitable[float]], count: int) -> None:
    """Assert that the cost of each one at a tenth of the number is at least half of the cost at the full number.

    Other work of the machine can only make a measurement worse, so the best of several counts. The collector is off: its full passes go
    over all objects of the process, and chance decides how many passes one measurement has.
    """
    gc.disable()
    try:
        few = min([await cost(count // 10) for _ in range(3)])
        many = 1.0
        for _ in range(3):
            if many > 2 * few:
                many = min(many, await cost(count))
    finally:
        gc.enable()
    assert many <= 2 * few, f"{many * 1e6:.1f} us each, of a tenth as many {few * 1e6:.1f}"


_MANY, _LINEAR = "a million pending deliveries, 10,000 topics", "linear time, bounded memory that all comes back"
_BYTES = 500  # at most so much for a pending delivery with its record, its callback and its place in a gather


@row(87, _MANY, _LINEAR, "deliveries")
async def very_many_deliveries() -> None:
    await _assert_linear(_cpu_of, 1_000_000)


@row(87, _MANY, _LINEAR, "topics")
async def very_many_topics() -> None:
    await _assert_linear(_cpu_of_topics, 10_000)


@row(89, "the compressor is missing, or raises", "an error when the producer is made", "missing")
def no_compressor() -> None:
    program = "import sys; sys.modules['cramjam'] = None\nfrom aioproducer import Producer\nProducer(compression_type='snappy')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"{ConfigError.__module__}.ConfigError")
    assert "snappy" in done.stderr.splitlines()[-1]


@row(89, "the compressor is missing, or raises", "its records fail, certainly not written; the next are sent", "raises")
def a_compressor_raises() -> None:
    async def main() -> None:
        with pytest.MonkeyPatch.context() as patch:
            async with FakeCluster(memory=True) as cluster:
                cluster.create_topic("orders")
                async with Producer(**cluster.client_options, compression_type="gzip") as producer:
                    await producer.send_and_wait("orders", b"1" * 1000)

                    def broken(*args: Any, **options: Any) -> bytes:
                        raise MemoryError("no room for a window")

                    patch.setattr(zlib, "compress", broken)
                    with pytest.raises(DeliveryError) as raised:
                        await producer.send_and_wait("orders", b"2" * 1000)
                    assert raised.value.persisted == "no"
                    patch.undo()
                    await producer.send_and_wait("orders", b"3" * 1000)
                assert [value[:1] for value in cluster.values("orders") if value] == [b"1", b"3"]

    asyncio.run(main())
