"""Rows about code that is not ours, and about very many of everything."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import zlib
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.errors import ConfigError, DeliveryError, SerializationError
from aioproducer.testing import FakeCluster

from .coded import row

_RAISES = "a user's serializer, partitioner or callback raises"


@row(86, _RAISES, "only that record fails", "serializer")
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


@row(86, _RAISES, "only that record fails", "partitioner")
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


@row(86, _RAISES, "the loop is told, no other record or callback notices", "callback")
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


async def _cpu_of(pending: int) -> float:
    """CPU seconds a record of so many that are all pending at once."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, buffer_memory=2**30, linger_ms=1000) as producer:
            await producer.send_and_wait("orders", b"first")
            hang = cluster.hang("Produce")
            began = time.thread_time()
            deliveries = [await producer.send("orders", b"0123456789") for _ in range(pending)]
            hang.release()
            await asyncio.gather(*deliveries)
            took = time.thread_time() - began
        assert cluster.end_offsets("orders") == {0: pending + 1}
    return took / pending


@row(87, "a million pending deliveries, 10,000 topics", "linear time", "deliveries: 10 times as many cost no more each")
async def very_many_deliveries() -> None:
    few = min([await _cpu_of(10_000) for _ in range(3)])
    many = min([await _cpu_of(100_000) for _ in range(2)])
    assert many < few * 5, f"{many * 1e6:.1f} us each, of a tenth as many {few * 1e6:.1f}"


@row(87, "a million pending deliveries, 10,000 topics", "linear time, all memory comes back", "topics")
async def very_many_topics() -> None:
    async with FakeCluster(memory=True) as cluster:
        names = [f"topic-{number}" for number in range(10_000)]
        for name in names:
            cluster.create_topic(name)
        async with Producer(**cluster.client_options, buffer_memory=2**27) as producer:
            sending = await asyncio.gather(*(producer.send(name, b"v") for name in names))
            await asyncio.gather(*sending)
            assert producer.buffer_available == producer.config.buffer_memory
        assert all(cluster.end_offsets(name) == {0: 1} for name in names)
        assert len(cluster.requests("Metadata")) < 100


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
