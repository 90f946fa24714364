"""Batches too large for a broker, or with refused records (catalogue rows 42 and 43; BAT-03..06, KIP-467)."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running, turns

from aioproducer.errors import BrokerError, DeliveryError, Persisted, RecordTooLarge, broker_error
from aioproducer.records.record_batch import size_limit
from aioproducer.testing import FakeCluster
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioproducer.model import RecordMetadata

LIMIT = 1000


@asynccontextmanager
async def strict(**options: Any) -> AsyncIterator[tuple[FakeCluster, Any]]:
    """Start a producer, and create a topic with batches of at most 1000 bytes."""
    async with FakeCluster(memory=True, verify_records=True) as cluster:
        cluster.create_topic("orders", config={"max.message.bytes": LIMIT})
        async with running(cluster, **options) as both:
            yield both


def value_of(number: int, size: int = 60) -> bytes:
    return b"%04d" % number + random.Random(number).randbytes(size)


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
@pytest.mark.parametrize("in_flight", [1, 5])
@jumping
async def test_a_batch_that_is_too_large_arrives_in_pieces(
    compression: str, in_flight: int
) -> None:
    """Every record arrives once, in order and unchanged, at the position that its delivery reports."""
    async with strict(
        compression_type=compression, max_in_flight_requests_per_connection=in_flight
    ) as (cluster, producer):
        deliveries = [
            await producer.send(
                "orders",
                value_of(number),
                b"k",
                headers=[("n", b"%d" % number)],
                timestamp_ms=5000 + 7 * (number % 3),
            )
            for number in range(50)
        ]
        told: list[RecordMetadata] = await asyncio.gather(*deliveries)
        records = cluster.records("orders")
        assert [record.value for record in records] == [value_of(number) for number in range(50)]
        for number, (record, metadata) in enumerate(zip(records, told, strict=True)):
            assert record.headers == (("n", b"%d" % number),)
            assert record.timestamp_ms == metadata.timestamp_ms == 5000 + 7 * (number % 3)
            assert (
                metadata.offset,
                metadata.serialized_key_size,
                metadata.serialized_value_size,
            ) == (number, 1, 64)
            assert deliveries[number].result() == metadata
        assert len(cluster.requests("Produce")) < 20, "halves, not single records"


@jumping
async def test_what_is_sent_after_a_batch_that_is_split_comes_after_it() -> None:
    """With one request in flight, several batches are split, and one is refused for another reason. The order of the records holds."""
    async with strict(max_in_flight_requests_per_connection=1, batch_size=3000) as (
        cluster,
        producer,
    ):
        cluster.delay("Produce", 0.01)
        cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
        for number in range(200):
            await producer.send("orders", value_of(number))
            if not number % 30:
                await asyncio.sleep(0.005)
        summary = await producer.flush()
        assert (summary.failed, summary.pending) == (0, 0)
        assert cluster.values("orders") == [value_of(number) for number in range(200)]
        cluster.faults.clear()


@jumping
async def test_a_record_that_is_too_large_alone_fails_alone() -> None:
    """The record fails for good, and its error names sizes. The others of its batch arrive, in order."""
    async with strict() as (cluster, producer):
        deliveries = [
            await producer.send("orders", value_of(number, 2000 if number == 13 else 60))
            for number in range(40)
        ]
        done = await asyncio.gather(*deliveries, return_exceptions=True)
        error = done.pop(13)
        assert isinstance(error, DeliveryError)
        assert (error.persisted, error.topic, error.partition) == (Persisted.NO, "orders", 0)
        cause = error.__cause__
        assert isinstance(cause, RecordTooLarge)
        assert "max.message.bytes of 'orders'" in str(cause)
        assert "a record of 2013 bytes" in str(cause)
        assert isinstance(cause.__cause__, BrokerError)
        assert cause.__cause__.name == "MESSAGE_TOO_LARGE"
        values = [value_of(number) for number in range(40) if number != 13]
        assert cluster.values("orders") == values
        assert [metadata.offset for metadata in done] == list(range(39))


@jumping
async def test_callbacks_are_called_once_in_order_though_the_batch_was_split() -> None:
    """Callbacks added before and after the split run once, also without a reference to the delivery. Removed ones do not run."""
    async with strict() as (cluster, producer):
        hang = cluster.hang("Produce")
        called: list[int] = []

        def note(number: int) -> Callable[[Any], None]:
            return lambda delivery: (
                called.append(number) if delivery.result().offset == number else called.append(-1)
            )

        deliveries = [await producer.send("orders", value_of(number)) for number in range(40)]
        forget = note(7)
        for number in reversed(range(0, 40, 2)):
            deliveries[number].add_done_callback(note(number))
        deliveries[7].add_done_callback(forget)
        await cluster.seen("Produce", 1)
        hang.release()
        cluster.delay("Produce", 0.5)
        await cluster.seen("Produce", 2)
        await turns(3)
        assert deliveries[7].remove_done_callback(forget) == 1
        assert not any(delivery.done() for delivery in deliveries)
        for number in range(1, 40, 2):
            deliveries[number].add_done_callback(note(number))
        await producer.flush()
        await turns(50)
        assert called == list(range(40))


@jumping
async def test_who_awaits_a_record_of_a_split_batch_is_woken_by_its_own_piece() -> None:
    """Each task wakes when its record's piece completes. A cancelled task or handle changes no other."""
    async with strict() as (cluster, producer):
        cluster.delay("Produce", 1.0)
        woken: list[int] = []
        deliveries = [await producer.send("orders", value_of(number)) for number in range(40)]

        async def wait(number: int) -> None:
            await deliveries[number]
            woken.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(40)]
        await cluster.seen("Produce", 2)
        await asyncio.sleep(0.5)
        tasks[3].cancel()
        assert deliveries[5].cancel()
        assert not any(task.done() for task in tasks if task is not tasks[3])
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [number for number, outcome in enumerate(done) if outcome is not None] == [3]
        assert woken == [number for number in range(40) if number != 3]
        with pytest.raises(asyncio.CancelledError):
            deliveries[5].result()
        assert len(list(cluster.log("orders", 0).batches())) > 2


@jumping
async def test_a_flush_covers_the_pieces_and_counts_records() -> None:
    """The flush waits until the last piece has ended, also a failed one (FLU-01)."""
    async with strict() as (cluster, producer):
        for number in range(40):
            await producer.send("orders", value_of(number, 2000 if number == 13 else 60))
        summary = await producer.flush()
        assert (summary.acknowledged, summary.failed, summary.pending) == (39, 1, 0)
        assert len(cluster.values("orders")) == 39


@jumping
async def test_pieces_expire_when_their_batch_would_have() -> None:
    """The pieces expire at the time of their batch: the split adds no time."""
    async with strict(delivery_timeout_ms=3000, request_timeout_ms=2900) as (cluster, producer):
        cluster.delay("Produce", 2.0)
        began = asyncio.get_running_loop().time()
        delivery = [await producer.send("orders", value_of(number)) for number in range(40)][-1]
        with pytest.raises(DeliveryError, match="delivery_timeout_ms=3000"):
            await delivery
        assert asyncio.get_running_loop().time() - began == pytest.approx(3, abs=0.01)
        cluster.faults.clear()
        await asyncio.sleep(5)


@jumping
async def test_a_split_is_no_retry() -> None:
    """With retries=0 the pieces are still sent. A piece that is refused for another reason fails at once."""
    async with strict(retries=0) as (cluster, producer):
        deliveries = [await producer.send("orders", value_of(number)) for number in range(40)]
        await asyncio.gather(*deliveries)
        cluster.fail("Produce", "MESSAGE_TOO_LARGE")
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
        deliveries = [await producer.send("orders", b"%d" % number) for number in range(2)]
        one, two = await asyncio.gather(*deliveries, return_exceptions=True)
        assert isinstance(one, DeliveryError)
        assert (one.attempts, one.persisted) == (2, Persisted.NO)
        assert two.offset == 40


@jumping
async def test_a_piece_may_be_retried_as_often_as_a_batch() -> None:
    """The attempt that was too large does not count as a retry of the piece."""
    async with strict(retries=1) as (cluster, producer):
        cluster.fail("Produce", "MESSAGE_TOO_LARGE")
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
        deliveries = [await producer.send("orders", b"%d" % number) for number in range(2)]
        assert [metadata.offset for metadata in await asyncio.gather(*deliveries)] == [0, 1]


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd", "snappy"])
@jumping
async def test_a_record_of_just_the_limit_goes(compression: str) -> None:
    """Row 83: the send refuses one byte more before it queues the record. A record of the limit may grow in compression."""
    limit = 5000
    value = random.Random(7).randbytes(limit)
    while size_limit(b"k", value, b"\0") > limit:
        value = value[:-1]
    async with running(max_request_size=limit, compression_type=compression) as (cluster, producer):
        deliveries = [await producer.send("orders", value, b"k", partition=0) for _ in range(3)]
        with pytest.raises(RecordTooLarge, match="5001 bytes, more than max_request_size=5000"):
            await producer.send("orders", value + b".", b"k", partition=0)
        await asyncio.gather(*deliveries)
        assert cluster.values("orders", 0) == [value] * 3
        assert producer.buffer_available == producer.config.buffer_memory


def blame(code: str, *records: tuple[int, str | None]) -> Callable[[Any], None]:
    """Return a function that rewrites a response: some records of partition 0 are refused, and none was appended."""

    def change(answer: Any) -> None:
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_code = broker_error(code).code
                partition.error_message = "see there"
                partition.record_errors = [
                    message(
                        "Produce.response.topics.partitions.record_errors",
                        batch_index=index,
                        batch_index_error_message=text,
                    )
                    for index, text in records
                ]

    return change


@pytest.mark.parametrize("code", ["INVALID_RECORD", "INVALID_TIMESTAMP"])
@jumping
async def test_only_the_records_that_the_broker_names_fail(code: str) -> None:
    """Each named record fails with its own text, and the others are sent again. The Sender ignores an index outside of the batch."""
    async with running() as (cluster, producer):
        cluster.fail("Produce", code)
        cluster.rewrite(
            "Produce", blame(code, (4, "no key"), (1, None), (99, "what"), (-1, "what")), times=1
        )
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=0) for number in range(6)
        ]
        done = await asyncio.gather(*deliveries, return_exceptions=True)
        for number, text in ((4, "no key"), (1, "see there")):
            error = done[number]
            assert isinstance(error, DeliveryError)
            assert isinstance(error.__cause__, BrokerError)
            assert (
                error.persisted,
                error.attempts,
                error.__cause__.name,
                error.__cause__.message,
            ) == (Persisted.NO, 1, code, text)
        assert cluster.values("orders", 0) == [b"0", b"2", b"3", b"5"]
        assert [done[number].offset for number in (0, 2, 3, 5)] == [0, 1, 2, 3]
        summary = await producer.flush()
        assert summary == (0, 0, 0)


@pytest.mark.parametrize("blamed", [[], [0, 1, 2]], ids=["nobody", "all"])
@jumping
async def test_a_refused_batch_of_which_the_broker_names_none_or_all_fails_whole(
    blamed: list[int],
) -> None:
    """The whole batch fails, as it always does in Java."""
    async with running() as (cluster, producer):
        cluster.fail("Produce", "INVALID_RECORD")
        cluster.rewrite(
            "Produce", blame("INVALID_RECORD", *((index, None) for index in blamed)), times=1
        )
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=0) for number in range(3)
        ]
        done = await asyncio.gather(*deliveries, return_exceptions=True)
        assert all(
            isinstance(error, DeliveryError) and error.persisted is Persisted.NO for error in done
        )
        assert cluster.values("orders", 0) == []
        assert len(cluster.requests("Produce")) == 1


RANGE = "Timestamp {} of message with offset {} is out of range. The timestamp should be within [1000, 2000]"


@pytest.mark.parametrize("count", [1, 3])
@jumping
async def test_a_record_that_is_refused_for_its_timestamp_says_the_range(count: int) -> None:
    """The error has the record's own range, also when all records are refused. Kafka's text for the whole batch has no range."""
    async with running() as (cluster, producer):
        cluster.fail(
            "Produce",
            "INVALID_TIMESTAMP",
            message="One or more records have been rejected due to invalid timestamp",
            record_errors={index: RANGE.format(index, index) for index in range(count)},
        )
        deliveries = [
            await producer.send("orders", b"v", partition=0, timestamp_ms=index)
            for index in range(count)
        ]
        done = await asyncio.gather(*deliveries, return_exceptions=True)
        assert [str(error) for error in done] == [
            f"orders-0: INVALID_TIMESTAMP (32): {RANGE.format(index, index)} (the record was not written; sent once)"
            for index in range(count)
        ]
        assert len(cluster.requests("Produce")) == 1
        assert (await producer.send_and_wait("orders", b"v", partition=0)).offset == 0
