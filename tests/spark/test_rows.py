"""Arrow batches of Spark on the fake cluster: what is in its logs, in which order, and which row an error names."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from whole import jumping, running

from aioproducer.errors import KafkaError
from aioproducer.spark.rows import RowCount, RowFailed, RowSender, timed
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(**columns: Any) -> pa.RecordBatch:
    """Return a batch as Spark makes them; a list becomes a column of the usual type."""
    kinds = {
        "partition": pa.int32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "headers": HEADERS,
        "topic": pa.string(),
    }
    arrays = {
        name: pa.array(column, kinds.get(name, pa.string())) if isinstance(column, list) else column
        for name, column in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


def values(cluster: FakeCluster, topic: str, partition: int) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, partition)]


@asynccontextmanager
async def sending(
    topic: str | None, **options: Any
) -> AsyncIterator[tuple[FakeCluster, RowSender]]:
    """Give a cluster with the topics orders and returns, of two partitions each, and a sender of task 3."""
    async with FakeCluster(memory=True) as cluster:
        for name in ("orders", "returns"):
            cluster.create_topic(name, partitions=2)
        async with running(cluster, **options) as (_, producer):
            yield cluster, RowSender(producer, topic, 3)


@jumping
async def test_all_columns() -> None:
    """One row with everything, one with nulls."""
    async with sending("orders") as (cluster, sender):
        await sender.send(
            batch(
                key=["k", None],
                value=["v", None],
                topic=["ignored", None],
                partition=[1, None],
                headers=[[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
                timestamp=[1_700_000_000_123_999, None],
                offset=pa.array([7, 8], pa.int64()),
                timestampType=pa.array([0, 0], pa.int32()),
            )
        )
        await sender.send(batch(value=["w"], key=["k"], partition=[1]))
        await sender.end()
        [first, second] = [record for record in cluster.records("orders", 1) if record.key == b"k"]
        assert (first.value, first.timestamp_ms, list(first.headers)) == (
            b"v",
            1_700_000_000_123,
            [("h", b"1"), ("h", None)],
        )
        assert (second.value, list(second.headers)) == (b"w", [])
        [rest] = [
            record
            for partition in range(2)
            for record in cluster.records("orders", partition)
            if record.key is None
        ]
        assert (rest.value, list(rest.headers)) == (None, [])
        assert (sender.count.rows, sender.count.bytes) == (3, 4)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_the_times_of_records_are_opt_in(zone: str) -> None:
    """Null and -1 ms, by which Spark's source says that a record has no time, are now. A column `timestamp` that is not named is dropped."""
    moments = pa.array([-1_000, None, -2_000, 1_700_000_000_123_999], pa.timestamp("us", zone))
    rows = batch(value=list("abcd"), at=moments, timestamp=[7, 7, 7, 7])
    assert timed(rows, None).schema.names == ["value", "at"]
    assert timed(rows, "at").column("timestamp").cast(pa.int64()).to_pylist() == [
        None,
        None,
        *moments.cast(pa.int64()).to_pylist()[2:],
    ]


@jumping
async def test_topics_of_a_column_keep_their_order() -> None:
    """Rows of two topics and two partitions in turn: each log has its rows in the order of the batch."""
    rows = range(200)
    async with sending(None) as (cluster, sender):
        for begin in (0, 100):
            some = rows[begin : begin + 100]
            await sender.send(
                batch(
                    value=[str(row) for row in some],
                    topic=["orders" if row % 3 else "returns" for row in some],
                    partition=[row // 3 % 2 for row in some],
                )
            )
        await sender.end()
        for topic in ("orders", "returns"):
            for partition in range(2):
                wanted = [
                    b"%d" % row
                    for row in rows
                    if ("orders" if row % 3 else "returns") == topic and row // 3 % 2 == partition
                ]
                assert values(cluster, topic, partition) == wanted


@jumping
async def test_slices_and_binary() -> None:
    """Spark hands over slices of larger arrays, too, and binary as well as text."""
    whole = batch(
        value=pa.array([b"\x00", b"\x01", b"\x02", b"\x03"], pa.binary()), partition=[0, 0, 1, 0]
    )
    async with sending("orders") as (cluster, sender):
        await sender.send(whole.slice(1, 3))
        await sender.send(whole.slice(0, 0))
        await sender.end()
        assert (values(cluster, "orders", 0), values(cluster, "orders", 1)) == (
            [b"\x01", b"\x03"],
            [b"\x02"],
        )
        assert (sender.count.rows, sender.count.bytes) == (3, 3)


@jumping
async def test_rows_that_are_queued_are_copied() -> None:
    """Their Arrow batch is freed before their acknowledgement, so the next one may take its memory."""
    async with sending("orders") as (cluster, sender):
        await sender.send(batch(value=["a"]))
        await sender.end()
        cluster.brokers[1].pause()
        some = batch(value=["b", "c"], partition=[0, 1])
        is_kept = weakref.ref(some)
        await sender.send(some)
        del some
        assert is_kept() is None
        cluster.brokers[1].resume()
        await sender.end()
        assert sender.count.rows == 3


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            {"value": ["a", "b"], "topic": ["orders", None]},
            "task 3, row 6: its topic is null, and no option 'topic' is given",
        ),
        (
            {
                "value": ["a", "b", "c"],
                "topic": ["orders", "returns", "returns"],
                "partition": [0, 0, 5],
            },
            (
                "task 3, row 7: topic returns, partition 5: 'returns' has 2 partitions, and partition 5 did not come within max_block_ms=1000. "
                "The record was not queued."
            ),
        ),
        (
            {"value": ["a", "b"], "topic": ["orders", "returns"], "partition": [0, -1]},
            "task 3, row 6: topic returns, partition -1: partition=-1: it is a number from 0 on and below the number of partitions, or null",
        ),
        (
            {
                "value": ["a", "b", "c", "x" * 2_000],
                "topic": ["returns", "orders", "returns", "returns"],
            },
            (
                "task 3, row 8: topic returns: a record for 'returns' takes 2086 bytes, more than max_request_size=2000. "
                "Raise it (and the topic's max.message.bytes), or send less."
            ),
        ),
    ],
)
def test_the_row_that_cannot_be_sent_is_named(columns: dict[str, Any], text: str) -> None:
    """By its number in the task, though its batch was split: five rows came before. Nothing of the row itself is shown."""

    @jumping
    async def run() -> None:
        async with sending(None, max_block_ms=1000, max_request_size=2000) as (_, sender):
            await sender.send(batch(value=["1", "2", "3", "4", "5"], topic=["orders"] * 5))
            with pytest.raises(RowFailed) as caught:
                await sender.send(batch(**columns))
            assert str(caught.value) == text
            await sender.end()

    run()


@jumping
async def test_the_first_row_that_failed_is_named() -> None:
    """A broker refuses the batches of one partition for good."""
    async with sending(None) as (cluster, sender):
        cluster.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="returns", partition=1)
        await sender.send(batch(value=["a", "b"], topic=["orders", "orders"], partition=[0, 1]))
        await sender.send(
            batch(
                value=["c", "d", "e"], topic=["returns", "returns", "returns"], partition=[0, 1, 1]
            )
        )
        with pytest.raises(
            RowFailed, match=r"task 3, row 3: topic returns, partition 1: "
        ) as caught:
            await sender.end()
        assert caught.value.row == 3
        cause = caught.value.__cause__
        assert isinstance(cause, KafkaError)
        assert f": {cause}" in str(caught.value)


@jumping
async def test_a_cancelled_send_leaves_the_producer_usable() -> None:
    """Memory is used up: the send waits, and is cancelled; what was queued is sent."""
    async with sending("orders", buffer_memory=40_000, batch_size=1_000) as (cluster, sender):
        cluster.hang("Produce", times=1)
        task = asyncio.ensure_future(sender.send(batch(value=["x" * 1_000] * 100)))
        await asyncio.sleep(1)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await sender.send(batch(value=["last"]))
        await sender.end()
        assert b"last" in cluster.values("orders")


def counted(*batches: pa.RecordBatch, topic: str | None = None) -> tuple[int, int, int]:
    count = RowCount(topic, is_summed=True)
    for one in batches:
        count.add(one)
    return count.rows, count.bytes, count.checksum


def test_a_replay_is_counted_alike() -> None:
    """Batches may be cut elsewhere: rows, bytes and checksum are equal. A row that changed, or changed its topic, is noticed."""
    rows = {"key": ["k", None, "long"], "value": ["v", "w", None], "topic": ["a", "b", "a"]}
    whole = batch(**rows)
    parts = whole.slice(0, 1), whole.slice(1, 0), whole.slice(1)
    assert counted(whole) == counted(*parts)
    assert counted(whole)[:2] == (3, 7)
    assert counted(whole, topic="t") == counted(*reversed(parts), topic="t")
    assert counted(batch(**{**rows, "topic": ["b", "a", "a"]}))[2] != counted(whole)[2]
    assert counted(batch(**{**rows, "value": ["w", "v", None]}))[2] != counted(whole)[2]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_the_bytes_of_any_column_are_counted(kind: pa.DataType) -> None:
    """Of a slice those of its rows; a null has none, although the buffer may have bytes for it."""
    whole = pa.array(["", "a", "bcd", "", "\u00e9"], kind)
    for begin, end in ((0, 5), (1, 3), (2, 5), (3, 4)):
        rows = whole.slice(begin, end - begin)
        expected = sum(len(row) for row in rows.cast(pa.binary()).to_pylist())
        assert counted(batch(value=rows, key=rows), topic="orders")[1] == 2 * expected
    data = pa.py_buffer(b"abc")
    offsets = pa.array([0, 1, 3], pa.int64() if "large" in str(kind) else pa.int32()).buffers()[1]
    assert (
        counted(
            batch(value=pa.Array.from_buffers(kind, 2, [pa.py_buffer(b"\x01"), offsets, data])),
            topic="orders",
        )[1]
        == 1
    )
