"""`send_many`: order, the queued records when it ends early, back-pressure, and the sequence that it returns."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from whole import jumping, running, turns

from aioproducer import Deliveries, Producer, Record
from aioproducer.errors import (
    DeliveryError,
    MetadataTimeout,
    ProducerClosed,
    SerializationError,
    UsageError,
)
from aioproducer.serializers import json_serializer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%d" % number + b"." * size for number in range(count)]


async def logged(cluster: FakeCluster, deliveries: Deliveries) -> list[bytes | None]:
    """Return the values at the positions that the deliveries report."""
    told = await deliveries
    logs = {
        partition: {record.offset: record.value for record in cluster.records("orders", partition)}
        for partition in range(2)
    }
    return [logs[metadata.partition][metadata.offset] for metadata in told]


@pytest.mark.parametrize("batch_size", [200, 16_384])
@pytest.mark.parametrize("keyed", ["no key", "keys", "partitions", "all sorts"])
@jumping
async def test_each_record_is_where_its_delivery_says_and_partitions_keep_their_order(
    keyed: str, batch_size: int
) -> None:
    """Many batches hold records appended in bulk and alone, with sizes on both sides of a varint's steps. Each record is at its
    reported position, in order.
    """
    chance = random.Random(7)
    values = [
        b"%05d" % number + b"." * chance.choice((0, 1, 50, 58, 59, 60, 100))
        for number in range(5000)
    ]
    records: list[Any] = list(values)
    if keyed == "keys":
        records = [Record(value, b"key-%d" % chance.randrange(50)) for value in values]
    elif keyed == "partitions":
        records = [Record(value, partition=chance.randrange(2)) for value in values]
    elif keyed == "all sorts":
        odd: list[dict[str, Any]] = [
            {},
            {"key": b"k"},
            {"partition": 1},
            {"headers": [("h", b"v")]},
            {"timestamp_ms": 7},
        ]
        records = [
            Record(value, **chance.choice(odd)) if chance.random() < 0.9 else value
            for value in values
        ]
    async with running(batch_size=batch_size, buffer_memory=200_000) as (cluster, producer):
        deliveries = await producer.send_many("orders", records)
        assert len(deliveries) == 5000
        assert await logged(cluster, deliveries) == values
        for partition in range(2):
            numbers = [
                record.value[:5]
                for record in cluster.records("orders", partition)
                if record.value is not None
            ]
            assert numbers == sorted(numbers)
        for metadata, value, record in zip(await deliveries, values, records, strict=True):
            assert metadata.serialized_value_size == len(value)
            key = record.key if isinstance(record, Record) else None
            assert metadata.serialized_key_size == (-1 if key is None else len(key))


AGREES: Any = mock.ANY


class Bytes(bytes):
    """A subclass of bytes, so not plain bytes."""


@pytest.mark.parametrize(
    "odd",
    [
        Record(b"as the others are", b"k1"),
        Record(b"", b""),
        Record(None, b"k1"),
        Record(Bytes(b"odd"), b"k1"),
        Record(b"odd", Bytes(b"k1")),
        Record(bytes(9_000), b"k1"),
        Record(b"long key", bytes(9_000)),
        Record(b"named", b"k1", partition=1),
        Record(b"dressed", b"k1", headers=[("h", b"v")]),
    ],
    ids=lambda odd: (
        f"{type(odd.value).__name__}-{len(odd.value or b'')}-{type(odd.key).__name__}-{len(odd.key)}-{odd.partition}-{len(odd.headers)}"
    ),
)
@jumping
async def test_records_mean_the_same_in_bulk_as_alone(odd: Record) -> None:
    """The log has the same keys, values, headers and timestamps from `send` and from `send_many`. Chunks with records that are
    not plain are included.
    """
    told = []
    for many in (True, False):
        async with running() as (cluster, producer):
            records = [Record(b"v%d" % number, b"k%d" % (number % 7)) for number in range(300)]
            records[100:200:9] = [odd] * 12
            if many:
                await producer.send_many("orders", records)
            else:
                for record in records:
                    await producer.send(
                        "orders",
                        record.value,
                        record.key,
                        partition=record.partition,
                        headers=record.headers,
                    )
            await producer.flush()
            told.append(
                [
                    [(each.key, each.value, each.headers) for each in cluster.records("orders", at)]
                    for at in range(2)
                ]
            )
    assert told[0] == told[1]


@pytest.mark.parametrize("place", ["key", "partition", "timestamp_ms", "headers"])
@jumping
async def test_what_says_that_it_is_nothing_is_not_nothing(place: str) -> None:
    """An object that equals every other is neither None nor an empty tuple. `send_many` raises UsageError, in bulk as alone."""
    async with running() as (_, producer):
        records = [Record(b"v"), Record(b"v", **{place: AGREES})]
        with pytest.raises(UsageError) as raised:
            await producer.send_many("orders", records)
        assert len(Deliveries.of(raised.value)) == 1


@jumping
async def test_an_async_iterable_is_taken_from_as_fast_as_memory_allows() -> None:
    """The brokers do not respond, so `send_many` stops taking records from the iterable. No record is lost."""
    taken = 0

    async def source() -> AsyncIterator[bytes]:
        nonlocal taken
        for value in numbered(200, 900):
            taken += 1
            yield value

    async with running(buffer_memory=20_000, batch_size=4000) as (cluster, producer):
        await producer.partitions_for("orders")
        hang = cluster.hang("Produce")
        sending = asyncio.create_task(producer.send_many("orders", source()))
        await turns(200)
        assert 5 < taken < 25
        assert not sending.done()
        hang.release()
        deliveries = await sending
        assert await logged(cluster, deliveries) == numbered(200, 900)


@pytest.mark.parametrize("kind", ["list", "iterator", "async iterator"])
@jumping
async def test_cancelled_it_tells_what_is_queued(kind: str) -> None:
    """The cancelled call reports the first records as queued. Those are sent, and no others."""
    values = numbered(300, 500)

    async def source() -> AsyncIterator[bytes]:
        for value in values:
            yield value

    records: dict[str, Any] = {"list": values, "iterator": iter(values), "async iterator": source()}
    async with running(buffer_memory=30_000, batch_size=4000) as (cluster, producer):
        await producer.partitions_for("orders")
        hang = cluster.hang("Produce")
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(1):
                await producer.send_many("orders", records[kind])
        queued = Deliveries.of(raised.value)
        assert 0 < len(queued) < 300
        hang.release()
        assert await logged(cluster, queued) == values[: len(queued)]
        await producer.flush()
        assert len(cluster.values("orders")) == len(queued)


@pytest.mark.parametrize("at", [0, 1, 31, 32, 33, 500, 2999])
@pytest.mark.parametrize("trouble", ["the iterable raises", "a bad value", "too large"])
@jumping
async def test_a_failure_tells_what_is_queued(trouble: str, at: int) -> None:
    """`send_many` raises the iterable's own error, or the error of the wrong record. It sends all records before it and none after it."""
    values: list[Any] = numbered(3000)

    def source() -> Iterator[Any]:
        for number, value in enumerate(values):
            if number == at:
                if trouble == "the iterable raises":
                    raise ZeroDivisionError
                yield "text" if trouble == "a bad value" else bytes(2_000_000)
            else:
                yield value

    async with running() as (cluster, producer):
        with pytest.raises((ZeroDivisionError, UsageError)) as raised:
            await producer.send_many("orders", source())
        queued = Deliveries.of(raised.value)
        assert len(queued) == at
        assert await logged(cluster, queued) == values[:at]
        assert len(cluster.values("orders")) == at
        assert f"{at} record" in raised.value.__notes__[0]


@jumping
async def test_an_unknown_topic_and_a_closed_producer_end_it() -> None:
    """`send_many` raises the same errors as a send."""
    async with running(max_block_ms=500, allow_auto_create_topics=False) as (_, producer):
        with pytest.raises(MetadataTimeout):
            await producer.send_many("nowhere", [b"v"])
        topics: list[Any] = ["", 7, ["orders"]]
        for topic in topics:
            with pytest.raises(UsageError):
                await producer.send_many(topic, [b"v"])
    with pytest.raises(ProducerClosed):
        await producer.send_many("orders", [])


@jumping
async def test_other_sends_keep_their_place() -> None:
    """A send that waited before `send_many` is served before it. A heartbeat task runs all the while."""
    async with running(batch_size=4000) as (cluster, producer):
        await producer.partitions_for("orders")
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        heart = asyncio.create_task(beat())
        first = asyncio.create_task(producer.send("orders", b"first", partition=0))
        many = asyncio.create_task(
            producer.send_many(
                "orders", [Record(value, partition=0) for value in numbered(20_000, 50)]
            )
        )
        await turns(2)
        late = asyncio.create_task(producer.send("orders", b"late", partition=0))
        deliveries = await many
        beats_meanwhile = beats
        await deliveries
        heart.cancel()
        values = [record.value for record in cluster.records("orders", 0)]
        await (await first)
        offset = (await (await late)).offset
        assert values[0] == b"first"
        assert 0 < offset < 20_000
        assert beats_meanwhile > 5


@jumping
async def test_a_slow_iterable_holds_the_loop_for_a_few_records_at_most() -> None:
    """`send_many` takes fewer records at a time from a slow iterable, and the event loop runs in between."""
    loop: Any = asyncio.get_running_loop()
    between: list[int] = []
    taken = 0

    def source() -> Iterator[bytes]:
        nonlocal taken
        for value in numbered(300):
            loop.advance(0.003)
            taken += 1
            yield value

    async with running() as (cluster, producer):
        await producer.send_and_wait("orders", b"first")

        async def watch() -> None:
            while True:
                between.append(taken)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        deliveries = await producer.send_many("orders", source())
        watching.cancel()
        assert await logged(cluster, deliveries) == numbered(300)
        assert max(later - earlier for earlier, later in pairwise(between) if earlier > 100) <= 8


@jumping
async def test_serializers_make_the_bytes() -> None:
    """The serializers convert keys and values. `send_many` ends at the record for which a serializer raises."""
    async with running(value_serializer=json_serializer) as (cluster, producer):
        deliveries = await producer.send_many("orders", [{"id": 1}, Record({"id": 2}, b"k"), None])
        assert await logged(cluster, deliveries) == [b'{"id":1}', b'{"id":2}', None]
        with pytest.raises(SerializationError) as raised:
            await producer.send_many("orders", [1, 2, object(), 4])
        assert len(Deliveries.of(raised.value)) == 2


@jumping
async def test_failures_are_told_in_order_and_raised_by_the_first() -> None:
    """One partition refuses its records. `wait` counts the failures, `failures` lists them in order, and the await raises the first."""
    async with running() as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.fail("Produce", "INVALID_RECORD", partition=1)
        deliveries = await producer.send_many(
            "orders", [Record(b"%d" % number, partition=number % 2) for number in range(10)]
        )
        assert not deliveries.done()
        assert deliveries.summary() == (0, 0, 10)
        assert await deliveries.wait() == (5, 5, 0)
        assert deliveries.done()
        assert [index for index, _ in deliveries.failures()] == [1, 3, 5, 7, 9]
        with pytest.raises(DeliveryError, match="orders-1"):
            await deliveries
        assert repr(deliveries) == "<Deliveries of 10 records: 5 acknowledged, 5 failed, 0 pending>"
        assert [delivery.exception() is None for delivery in deliveries] == [True, False] * 5


@jumping
async def test_the_first_failure_and_the_offsets_are_asked_of_the_batches() -> None:
    """`first_failure` goes by the index of the record, across partitions. `offsets` covers only acknowledged records, by partition."""
    async with running() as (cluster, producer):
        await producer.send_and_wait("orders", b"before", partition=0)
        records = [Record(b"%d" % number, partition=int(number % 5 == 4)) for number in range(100)]
        deliveries = await producer.send_many("orders", records)
        assert (deliveries.first_failure(), deliveries.offsets()) == (None, {})
        await deliveries.wait()
        assert deliveries.first_failure() is None
        assert deliveries.offsets() == {0: (1, 80), 1: (0, 19)}
        cluster.fail("Produce", "INVALID_RECORD", partition=1)
        deliveries = await producer.send_many("orders", records)
        await deliveries.wait()
        found = deliveries.first_failure()
        assert found is not None
        index, error = found
        assert (index, error.partition) == (4, 1)
        assert [number for number, _ in deliveries.failures()] == list(range(4, 100, 5))
        assert deliveries.offsets() == {0: (81, 160)}


@jumping
async def test_a_million_records_are_asked_for_by_their_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The summary reads the batches. It makes no delivery for a property that all records of a run share."""
    async with running() as (_, producer):
        deliveries = await producer.send_many("orders", [b"v"] * 1_000)
        with monkeypatch.context() as patch:
            patch.setattr("aioproducer.engine.delivery.deliveries.make_delivery", None)
            assert await deliveries.wait() == (1_000, 0, 0)
            assert deliveries.done()
            assert deliveries.first_failure() is None
            assert list(deliveries.failures()) == []
            assert sum(last - first + 1 for first, last in deliveries.offsets().values()) == 1_000
        assert [metadata.offset for metadata in await deliveries] == [
            delivery.result().offset for delivery in deliveries
        ]


@jumping
async def test_a_walk_goes_on_while_batches_are_split() -> None:
    """A summary changes its runs after a split of a batch. An iteration that has begun continues over all deliveries in order."""
    async with running() as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.fail("Produce", "MESSAGE_TOO_LARGE", partition=0)
        values = numbered(40, 50)
        deliveries = await producer.send_many(
            "orders", [Record(value, partition=0) for value in values]
        )
        walk = iter(deliveries)
        offsets = []
        for _ in range(3):
            offsets.append((await next(walk)).offset)
            assert deliveries.summary().failed == 0
        offsets += [(await delivery).offset for delivery in walk]
        assert offsets == list(range(40))
        assert deliveries.offsets() == {0: (0, 39)}
        assert deliveries.first_failure() is None


@jumping
async def test_offsets_are_not_known_without_acknowledgements() -> None:
    """With acks=0 the deliveries have no offsets."""
    async with running(acks=0, enable_idempotence=False) as (_, producer):
        deliveries = await producer.send_many("orders", [b"v"] * 10)
        await deliveries.wait()
        assert [metadata.offset for metadata in await deliveries] == [-1] * 10
        assert deliveries.offsets() == {}


@pytest.mark.parametrize("looks", [True, False])
@jumping
async def test_failures_that_nobody_looks_at_are_not_silent(
    looks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer logs one warning with the number of failed records. It logs none for deliveries that a task awaited."""
    async with running() as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.fail("Produce", "INVALID_RECORD")
        with caplog.at_level(logging.WARNING):
            deliveries = await producer.send_many("orders", numbered(10))
            if looks:
                await deliveries.wait()
            await producer.flush()
            del deliveries
            gc.collect()
        assert caplog.text.count("10 records failed") == (0 if looks else 1)


@jumping
async def test_it_is_a_sequence() -> None:
    """The result supports length, index from both ends, slices, iteration and membership tests of asyncio's helpers."""
    async with running() as (cluster, producer):
        values = numbered(3000)
        deliveries = await producer.send_many(
            "orders", [Record(value, b"%d" % (at % 97)) for at, value in enumerate(values)]
        )
        metadata = await deliveries
        assert len(metadata) == len(deliveries) == 3000
        assert [deliveries[at].result() for at in range(0, 3000, 37)] == metadata[::37]
        assert [deliveries[at].result() for at in (-1, -3000)] == [metadata[-1], metadata[0]]
        assert [delivery.result() for delivery in deliveries[10:20:3]] == metadata[10:20:3]
        assert [delivery.result() for delivery in reversed(deliveries)] == metadata[::-1]
        assert await asyncio.gather(*deliveries) == metadata
        assert await asyncio.wait_for(deliveries, 1) == metadata
        for at in (3000, -3001):
            with pytest.raises(IndexError):
                deliveries[at]
        assert len(cluster.values("orders")) == 3000


@pytest.mark.parametrize("is_async", [True, False])
@jumping
async def test_records_of_others_in_the_same_batch_are_not_taken_for_these(is_async: bool) -> None:
    """Records of other sends come between those of `send_many`. Each delivery still reports its own record."""
    async with running() as (cluster, producer):
        await producer.partitions_for("orders")
        records = [
            Record(b"%d" % number, partition=0, headers=[("h", b"v")]) for number in range(100)
        ]

        async def source() -> AsyncIterator[Record[Any, bytes]]:
            for record in records:
                await producer.send("orders", b"other", partition=0)
                yield record

        def plain() -> Iterator[Record[Any, bytes]]:
            for record in records:
                producer.send_nowait("orders", b"other", partition=0)
                yield record

        deliveries = await producer.send_many("orders", source() if is_async else plain())
        assert await logged(cluster, deliveries) == [record.value for record in records]
        assert len(cluster.values("orders", 0)) == 200


@jumping
async def test_many_without_a_key_do_not_go_ahead_of_who_waits_for_a_partition() -> None:
    """With a circuit breaker, all partitions may reach their quota. A record of `send_many` without a partition then
    waits, as a send does.
    """
    numbers = count()
    sent: dict[bytes, int] = {}

    async def work(producer: Producer[bytes, bytes], chance: random.Random) -> None:
        for _ in range(30):
            if chance.random() < 0.3:
                await producer.send_many(
                    "orders", [b"many" + b"." * 100] * chance.choice((3, 40, 100))
                )
                continue
            number = next(numbers)
            value = b"%05d" % number + b"." * chance.choice((10, 100, 400))
            sent[value] = number
            await producer.send("orders", value, partition=chance.choice((0, 1, None)))

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        options = {
            "buffer_memory": 60_000,
            "max_request_size": 3_000,
            "max_in_flight_requests_per_connection": 2,
            "compression_type": "gzip",
        }
        async with running(cluster, circuit_breaker_class="failure_rate", **options) as (
            _,
            producer,
        ):
            for broker in cluster.brokers.values():
                broker.latency = 0.001
            await asyncio.gather(*(work(producer, random.Random(seed)) for seed in range(60)))
            await producer.flush()
        for partition in range(2):
            found = [
                sent[value]
                for value in cluster.values("orders", partition)
                if value is not None and value in sent
            ]
            assert found == sorted(found)
