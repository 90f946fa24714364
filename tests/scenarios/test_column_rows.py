"""Rows of `send_columns` with headers and partitions: by each way of a row, with the bytes, the order and the errors of sends."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from sent_columns import START, batches, logged, numbered
from transacting import transactional
from whole import jumping, running, turns

from aioproducer import Deliveries, build_info
from aioproducer.errors import MetadataTimeout, RecordTooLarge, UsageError

if TYPE_CHECKING:
    from aioproducer.model import ProducerRecord


class Seeing:
    """Changes nothing."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        return record


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SEVERAL = [[("a", b"1")], None, [], [("\u00e9", None), ("", b"")], [("a" * 70, b"v" * 200)]]


def lists(rows: list[Any], kind: Any = HEADERS) -> Any:
    return pa.array(
        [row and [{"key": key, "value": value} for key, value in row] for row in rows], kind
    )


def as_sent(row: Any) -> tuple[Any, ...]:
    return tuple(row or ())


@pytest.mark.parametrize("compression", ["none", "lz4"])
@jumping
async def test_rows_with_headers_are_the_bytes_of_sends(compression: str) -> None:
    """With headers and partitions, brokers get the bytes of a loop of sends."""
    count = 250
    values, partitions = (
        [b"." * (at % 90) for at in range(count)],
        [at % 7 % 2 for at in range(count)],
    )
    some = [SEVERAL[at % 5] for at in range(count)]
    found = []
    for by_columns in (False, True):
        options: dict[str, Any] = {
            "linger_ms": 60_000,
            "batch_size": 4000,
            "buffer_memory": 8_000_000,
        }
        async with running(**options, compression_type=compression) as (cluster, producer):
            await producer.partitions_for("orders")
            if by_columns:
                given = {
                    "values": pa.array(values),
                    "headers": lists(some),
                    "partitions": pa.array(partitions, pa.int32()),
                }
                await producer.send_columns("orders", **given, timestamps_ms=START)
            else:
                for value, row, partition in zip(values, some, partitions, strict=True):
                    await producer.send(
                        "orders",
                        value,
                        partition=partition,
                        timestamp_ms=START,
                        headers=as_sent(row),
                    )
            await producer.flush()
            found.append(batches(cluster))
    if compression == "none":
        assert found[0] == found[1]
    assert [sum(batch[2] for batch in partition) for partition in found[1]] == [
        partitions.count(0),
        partitions.count(1),
    ]


SLOW: dict[str, dict[str, Any]] = {
    "fast": {},
    "interceptors": {"interceptors": []},
    "partitioner": {"partitioner": lambda _topic, _key, _value, _partitions, _available: 1},
    "breaker": {"circuit_breaker_class": "failure_rate"},
    "small batches": {"batch_size": 300, "buffer_memory": 20_000},
}


@pytest.mark.parametrize("way", [*SLOW, "300 partitions"])
@jumping
async def test_each_row_has_its_headers_and_its_partition(way: str) -> None:
    """By each way of a row, from sliced and chunked columns; a null partition is the key's, or where records without a key go."""
    chance = random.Random(3)
    count, partitions = 400, 300 if way == "300 partitions" else 2
    options = SLOW.get(way, {})
    options = {"interceptors": [Seeing()]} if way == "interceptors" else options
    rows = [chance.choice(SEVERAL) for _ in range(count)]
    numbers = [chance.choice((None, 0, 1)) for _ in range(count)]
    keys = [chance.choice((None, b"k%d" % chance.randrange(9))) for _ in range(count)]
    async with running(partitions=partitions, **options) as (cluster, producer):
        homes = {
            key: (await producer.send_and_wait("orders", b"home", key)).partition
            for key in set(keys)
            if key
        }
        columns = {
            "headers": pa.chunked_array(
                [lists([SEVERAL[4], *rows[:170]]).slice(1), lists(rows[170:])]
            ),
            "partitions": pa.chunked_array(
                [pa.array([7, *numbers[:90]]).slice(1), pa.array(numbers[90:])]
            ),
        }
        deliveries = await producer.send_columns(
            "orders", values=numbered(count), keys=pa.array(keys, pa.binary()), **columns
        )
        told = await deliveries
        assert await logged(cluster, deliveries, partitions) == numbered(count).to_pylist()
        for metadata, number, key in zip(told, numbers, keys, strict=True):
            assert metadata.partition == (
                number
                if number is not None
                else homes.get(key, metadata.partition)
                if key
                else metadata.partition
            )
            assert (metadata.serialized_value_size, metadata.serialized_key_size) == (
                5,
                -1 if key is None else len(key),
            )
        for metadata, row in zip(told, rows, strict=True):
            assert cluster.records("orders", metadata.partition)[
                metadata.offset
            ].headers == as_sent(row)
        for partition in range(partitions):
            sent = [
                record.value
                for record in cluster.records("orders", partition)
                if record.value != b"home"
            ]
            assert sent == sorted(filter(None, sent))


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (
            {"partitions": pa.array([0, 1, 2, 0], pa.int32())},
            MetadataTimeout,
            "^row 2: 'orders' has 2 partitions, and partition 2 did not come",
        ),
        ({"partitions": pa.array([0, 1, -1, 0])}, UsageError, "^row 2: partition=-1"),
        (
            {"headers": lists([None, [], [(None, b"")], None])},
            UsageError,
            "^row 2: a header's key is a string, not null",
        ),
        (
            {"headers": lists([None, [], [("a", bytes(2**21))], None])},
            RecordTooLarge,
            "^row 2: a record for 'orders' takes 2097",
        ),
    ],
)
@jumping
async def test_a_row_of_wrong_headers_or_partition_is_named_and_all_before_it_is_sent(
    given: dict[str, Any], error: Any, said: str, is_slow: bool
) -> None:
    async with running(max_block_ms=500, interceptors=[Seeing()] if is_slow else []) as (
        cluster,
        producer,
    ):
        with pytest.raises(error, match=said) as raised:
            await producer.send_columns("orders", values=numbered(4), **given)
        assert await logged(cluster, Deliveries.of(raised.value)) == numbered(2).to_pylist()
        assert len(cluster.values("orders")) == 2


@jumping
async def test_a_partition_that_comes_is_waited_for() -> None:
    """The row waits as a send does, and the rows behind it are queued after it."""
    async with running(metadata_max_age_ms=1000) as (cluster, producer):
        await producer.partitions_for("orders")
        sending = asyncio.create_task(
            producer.send_columns("orders", values=numbered(3), partitions=pa.array([0, 2, 1]))
        )
        await turns(20)
        assert not sending.done()
        cluster.add_partitions("orders", 3)
        assert await logged(cluster, await sending, 3) == numbered(3).to_pylist()
        assert cluster.values("orders", 2) == [b"00001"]


@jumping
async def test_headers_count_in_memory() -> None:
    """Rows wait for the bytes of their headers, too; without that the memory would be exceeded."""
    least = []
    async with running(buffer_memory=50_000, batch_size=4000) as (cluster, producer):
        column = lists([[("name", b"." * 900)]] * 300)
        sending = asyncio.create_task(
            producer.send_columns("orders", values=numbered(300), headers=column)
        )
        while not sending.done():
            least.append(producer.buffer_available)
            await asyncio.sleep(0)
        assert await logged(cluster, await sending) == numbered(300).to_pylist()
    # Plain Python hands the rows to send_many, and the bound is that of send_many: the overhead of a batch is counted only once the
    # record is in it. So send_many was 317 bytes over here before columns went its way, too.
    assert (-1_000 if build_info().columns_reason else 0) <= min(least) < 40_000


@jumping
async def test_in_a_transaction_a_partition_that_does_not_come_fails_the_commit() -> None:
    async with transactional(max_block_ms=500) as (_, producer):
        await producer.begin_transaction()
        with pytest.raises(MetadataTimeout, match="row 1: "):
            await producer.send_columns("orders", values=numbered(2), partitions=pa.array([0, 99]))
        with pytest.raises(Exception, match="abort"):
            await producer.commit_transaction()
        await producer.abort_transaction()
