"""Tests of the batch compressor: what the loop encodes at once, what the worker's thread encodes, and the level."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.producer_batch import PartitionQueue, ProducerBatch, State
from aioproducer.core.topic_routing import TopicRouting
from aioproducer.engine.append.loop_budget import DrainSchedule, LoopBudget
from aioproducer.engine.chosen_build import FastPath
from aioproducer.engine.sender.batch_compressor import BatchCompressor
from aioproducer.engine.tasks.supervisor import GuardedLoop
from aioproducer.model import Compression
from aioproducer.records.compression import CompressionRatios, compress
from aioproducer.records.record_batch import NO_HEADERS, encode_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.errors import KafkaError
    from aioproducer.net.cluster import BrokerNode

pytestmark = pytest.mark.asyncio

NOW = 1_700_000_000_000
VALUE = b"".join(b"%d," % (number * number % 9973) for number in range(400))
QUICK = [
    (Compression.SNAPPY, None),
    (Compression.GZIP, -1),
    (Compression.GZIP, 1),
    (Compression.GZIP, 6),
    (Compression.LZ4, 9),
    (Compression.ZSTD, 3),
    (Compression.ZSTD, -50),
]
HARD = [
    (Compression.GZIP, 9),
    (Compression.LZ4, 8),
    (Compression.LZ4, 17),
    (Compression.ZSTD, 4),
    (Compression.ZSTD, 22),
]


def batch(value: bytes = VALUE) -> ProducerBatch:
    """Return a drained batch, as the encoder gets it."""
    one = ProducerBatch(
        PartitionQueue(TopicRouting("orders", NO_ID), 0, 1, None), 1, None, None, expires_at=1.0
    )
    one.payload = encode_record(0, 0, b"k", value, NO_HEADERS)
    one.raw_size = len(one.payload)
    one.header = b"old"
    one.count = 1
    one.base_timestamp = one.max_timestamp = NOW
    return one


def never(refused: ProducerBatch, error: KafkaError) -> None:
    pytest.fail(f"{refused} was refused: {error}")


class Drains:
    """Counts the drains that were scheduled."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        fast_path = FastPath(lambda: NOW, None)  # type: ignore[arg-type]
        self.count = 0
        self.budget = LoopBudget(loop, fast_path)
        self.schedule = DrainSchedule(
            GuardedLoop(loop, pytest.fail), fast_path, self.budget, lambda: NOW, lambda: None
        )
        self.schedule.drain_by(self)

    def on_turn(self) -> None:
        self.count += 1
        self.schedule.begin(0.0)

    def on_node(self, node: BrokerNode) -> None:
        pytest.fail(f"nothing changed at {node}")


def made(codec: Compression, level: int | None, drains: Drains | None = None) -> BatchCompressor:
    schedule = (drains or Drains()).schedule
    return BatchCompressor(
        asyncio.get_running_loop(), schedule, codec, level, CompressionRatios(), never
    )


@asynccontextmanager
async def working(batch_compressor: BatchCompressor) -> AsyncIterator[None]:
    """Run the task that encodes what the loop does not."""
    worker = asyncio.ensure_future(batch_compressor.run())
    yield
    worker.cancel()
    await asyncio.wait([worker])


@pytest.mark.parametrize(("codec", "level"), QUICK)
async def test_a_quick_level_compresses_at_once(codec: Compression, level: int | None) -> None:
    """Before `encode` returns; the header of before is void."""
    one, done = batch(), []
    raw = one.payload
    made(codec, level).encode([one], 2, "lane", lambda: done.append(one.payload))
    assert done == [compress(codec, raw, level)]
    assert (one.is_encoded, one.header, one.magic) == (True, None, 2)


@pytest.mark.parametrize(("codec", "level"), HARD)
async def test_a_hard_level_compresses_in_the_thread(codec: Compression, level: int) -> None:
    """However small the batch: such a level may need milliseconds to begin with."""
    one, done = batch(), asyncio.Event()
    raw = one.payload
    batch_compressor = made(codec, level)
    async with working(batch_compressor):
        batch_compressor.encode([one], 2, "lane", done.set)
        assert not done.is_set()
        assert one.payload is raw
        await done.wait()
        assert one.payload == compress(codec, raw, level)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
async def test_many_requests_in_one_round_of_the_loop_compress_no_more_in_it_than_one_may(
    codec: Compression,
) -> None:
    """The compressor encodes no more for five brokers in one event-loop iteration than for one.

    In the next iteration it may encode again.
    """
    batch_compressor, value = made(codec, None), b"v" * 20_000
    async with working(batch_compressor):
        told = [asyncio.Event() for _ in range(40)]
        for number, done in enumerate(told):
            batch_compressor.encode([batch(value)], 2, f"lane {number}", done.set)
        at_once = [done.is_set() for done in told]
        assert at_once == sorted(at_once, reverse=True)
        assert 1 <= sum(at_once) <= 262_144 // 20_000
        await asyncio.sleep(0)
        again = asyncio.Event()
        batch_compressor.encode([batch(value)], 2, "another lane", again.set)
        assert again.is_set()
        await asyncio.gather(*(done.wait() for done in told))


async def test_slices_are_encoded_by_the_loop_in_order() -> None:
    """The loop encodes in slices over several event-loop iterations, without a thread.

    A batch that is too long for a slice goes to the thread, in its order.
    """
    batch_compressor = made(Compression.ZSTD, None)
    told: list[int] = []
    jobs = [
        [batch(b"v" * 100_000) for _ in range(5)],
        [batch()],
        [batch(b"v" * 300_000)],
        [batch()],
    ]
    for number, job in enumerate(jobs):
        batch_compressor.encode(job, 2, "lane", lambda number=number: told.append(number))  # type: ignore[misc]
    seen = []
    for _ in range(4):
        await asyncio.sleep(0)
        seen.append(list(told))
    assert seen == [[], [], [0], [0, 1]]
    async with working(batch_compressor):
        while len(told) < len(jobs):
            await asyncio.sleep(0)
        assert told == [0, 1, 2, 3]
        assert all(one.is_encoded for job in jobs for one in job)


@pytest.mark.parametrize("size", [100_000, 300_000], ids=["on the loop", "in the thread"])
async def test_no_task_gets_its_next_slice_while_requests_wait(size: int) -> None:
    """Once none waits behind the one that is encoded, a drain is scheduled, which wakes the tasks."""
    drains = Drains()
    batch_compressor = made(Compression.ZSTD, None, drains=drains)
    async with working(batch_compressor):
        told: list[tuple[bool, int]] = []
        held = []
        for _ in range(3):
            job = [batch(b"v" * size) for _ in range(3)]
            batch_compressor.encode(
                job, 2, "lane", lambda: told.append((drains.budget.is_held, drains.count))
            )
            held.append(drains.budget.is_held)
        assert held == [False, True, True], "one request is encoded, the others wait"
        while len(told) < 3:
            await asyncio.sleep(0)
        assert told == [(True, 0), (False, 0), (False, 1)]
        assert drains.count == 1


async def test_what_is_encoded_already_is_left_alone() -> None:
    """A retry sends the same bytes; without a codec there is nothing to do."""
    for codec in (Compression.NONE, Compression.LZ4):
        one, done = batch(), []
        one.is_encoded = codec is not Compression.NONE
        raw = one.payload
        made(codec, None).encode([one], 2, "lane", lambda done=done: done.append(1))  # type: ignore[misc]
        assert (one.payload is raw, one.header, done) == (True, b"old", [1])


@pytest.mark.parametrize("magic", [2, 1], ids=["written", "refused"])
async def test_a_batch_that_ended_meanwhile_is_left_alone(magic: int) -> None:
    """It expired while the thread was at it: its memory is free, and its records have failed. No format below 2 has zstd."""
    one, done = batch(), asyncio.Event()
    batch_compressor = made(Compression.ZSTD, 22)
    async with working(batch_compressor), asyncio.timeout(10):
        batch_compressor.encode([one], magic, "lane", done.set)
        one.state, one.payload = State.FAILED, None
        await done.wait()
        assert (one.payload, one.is_encoded) == (None, False)
