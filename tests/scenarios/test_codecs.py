"""Every codec through the whole producer, on the loop and in the worker's thread.

The loop has real time, as threads cannot jump in time.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from whole import encode_at_once, running

from aioproducer.engine.sender import record_formats
from aioproducer.errors import BrokerError, DeliveryError, Persisted

pytestmark = pytest.mark.asyncio

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS[1:])
async def test_order_holds_when_batches_are_compressed_in_the_thread(codec: str) -> None:
    """Small requests do not overtake large ones before them.

    A batch shrinks its memory to its compressed size, and all memory comes back.
    """
    async with running(compression_type=codec, batch_size=4_000, buffer_memory=60_000) as (
        cluster,
        producer,
    ):
        encode_at_once(producer, 2_000)
        noise = random.Random(1).randbytes(3_000)
        deliveries = []
        for number in range(120):
            size = 3_000 if number % 3 == 0 else 10
            deliveries.append(
                await producer.send("orders", b"%d:" % number + noise[:size], partition=number % 2)
            )
            if number % 5 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*deliveries)
        for partition in (0, 1):
            values = [value.split(b":")[0] for value in cluster.values("orders", partition)]
            assert values == [b"%d" % number for number in range(partition, 120, 2)]


@pytest.mark.parametrize("at_once", [0, 1_000_000], ids=["thread", "loop"])
async def test_a_broker_too_old_for_zstd_fails_its_records_and_nobody_hangs(at_once: int) -> None:
    """Kafka 2.0 takes no zstd: each record fails for certain. A send that waits for memory gets it, and its record fails, too."""
    async with running(
        versions={"Produce": (3, 6)},
        partitions=3,
        compression_type="zstd",
        buffer_memory=6_000,
        batch_size=2_000,
    ) as (
        cluster,
        producer,
    ):
        encode_at_once(producer, at_once)

        async def fail(number: int) -> DeliveryError | None:
            delivery = await producer.send("orders", bytes(1_000), partition=number % 3)
            await asyncio.wait([delivery])  # type: ignore[type-var]
            return delivery.exception()

        async with asyncio.timeout(20):
            errors = await asyncio.gather(*(fail(number) for number in range(20)))
        for error in errors:
            assert error is not None
            assert error.persisted is Persisted.NO
            assert isinstance(error.__cause__, BrokerError)
            assert error.__cause__.name == "UNSUPPORTED_COMPRESSION_TYPE"


async def test_records_that_expire_while_they_are_compressed_give_their_memory_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records' deadline passes while the thread compresses them. They fail as certainly not written, and the next records go."""
    began, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    compress = record_formats.compress

    def slowly(*work: Any) -> bytes:
        if not go_on.is_set():
            loop.call_soon_threadsafe(began.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)
        return compress(*work)

    monkeypatch.setattr(record_formats, "compress", slowly)
    async with running(compression_type="gzip", delivery_timeout_ms=30, request_timeout_ms=30) as (
        cluster,
        producer,
    ):
        encode_at_once(producer, 0)
        delivery = await producer.send("orders", b"v" * 3000, partition=0)
        await began.wait()
        await asyncio.wait([delivery])  # type: ignore[type-var]
        error = delivery.exception()
        assert error is not None
        assert (error.persisted, error.attempts) == (Persisted.NO, 0)
        assert producer.buffer_available < producer.config.buffer_memory
        go_on.set()
        await producer.flush()
        while producer.buffer_available < producer.config.buffer_memory:
            await asyncio.sleep(0)
        assert cluster.values("orders") == []
    go_on.set()


async def test_stop_while_the_thread_compresses_ends_cleanly() -> None:
    """The stop ends in bounded time, and all memory is free."""
    async with running(compression_type="gzip", close_timeout_ms=0) as (_, producer):
        encode_at_once(producer, 0)
        noise = random.Random(2).randbytes(10_000)
        deliveries = [
            await producer.send("orders", noise, partition=number % 2) for number in range(20)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert all(delivery.done() for delivery in deliveries)
    assert [delivery for delivery in deliveries if delivery.exception() is None] != deliveries


@pytest.mark.parametrize(("codec", "most"), [("none", 2_000), ("zstd", 200_000)])
async def test_batch_size_is_reckoned_in_compressed_bytes(codec: str, most: int) -> None:
    """As in Java, a batch takes more and more records where they compress well, until a broker refuses one as too large."""
    async with running(compression_type=codec, batch_size=2_000, linger_ms=1) as (
        cluster,
        producer,
    ):

        async def largest(records: int) -> int:
            """Return roughly the raw bytes of the largest batch of `records` records."""
            before = len(cluster.log("orders", 0).batches())
            await asyncio.gather(
                *[await producer.send("orders", b"v" * 100, partition=0) for _ in range(records)]
            )
            return max(batch.count for batch in cluster.log("orders", 0).batches()[before:]) * 100

        assert await largest(200) <= 2_200
        grown = [await largest(2_000) for _ in range(8)][-1]
        assert grown <= most
        assert grown > 4_000 or codec == "none"
        cluster.fail("Produce", "MESSAGE_TOO_LARGE")
        await largest(100)
        assert await largest(200) <= 2_200
