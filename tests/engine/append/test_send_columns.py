"""`send_columns`: bytes equal to those of a loop of sends, order, early ends, memory, and no object for a row."""

from __future__ import annotations

import asyncio
import gc
import random
import struct
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from builds import both_builds
from sent_columns import START, batches, logged, numbered
from transacting import committed, transactional
from whole import jumping, running, turns

from aioproducer import Deliveries, Producer, build_info
from aioproducer.engine.append.send_columns import _ROWS
from aioproducer.errors import (
    BufferExhausted,
    MetadataTimeout,
    PartitionUnavailable,
    ProducerClosed,
    RecordTooLarge,
    TransactionMisuse,
    UsageError,
)
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.model import ProducerRecord


def needs_windows(test: Any) -> Any:
    """Only the compiled build has windows: `nox -s plain` leaves these out."""
    is_plain = bool(build_info().columns_reason)
    return both_builds(pytest.mark.skipif(is_plain, reason="plain Python sends rows")(test))


ROW = 110
"""Bytes of a row with a value of 15 less, about."""


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
@jumping
async def test_brokers_get_the_same_bytes_as_from_the_loop(compression: str) -> None:
    """`send_columns` makes full batches, cut at the same records as a loop of sends. The flush sends the last ones."""
    chance = random.Random(5)
    count = 250  # one window: the next would begin with new batches
    values = [None if chance.random() < 0.1 else b"." * chance.randrange(150) for _ in range(count)]
    keys = [b"key-%d" % chance.randrange(50) for _ in range(count)]
    times = [START + chance.randrange(5000) for _ in range(count)]
    found = []
    for by_columns in (False, True):
        # with enough linger time and memory, no event-loop iteration cuts a batch
        options: dict[str, Any] = {
            "linger_ms": 60_000,
            "batch_size": 2500,
            "buffer_memory": 8_000_000,
        }
        async with running(**options, compression_type=compression) as (cluster, producer):
            if by_columns:
                arrays = {
                    "values": pa.array(values),
                    "keys": pa.array(keys),
                    "timestamps_ms": pa.array(times),
                }
                await producer.send_columns("orders", **arrays)
            else:
                for value, key, time in zip(values, keys, times, strict=True):
                    await producer.send("orders", value, key, timestamp_ms=time)
            await producer.flush()
            found.append(batches(cluster))
    if (
        compression == "none"
    ):  # with compression, a batch's size depends on the compression ratio of the batches before it
        assert found[0] == found[1]
    assert min(map(len, found[1])) > 2


KINDS = [
    pa.binary(),
    pa.large_binary(),
    pa.string(),
    pa.large_string(),
    pa.dictionary(pa.int32(), pa.binary()),
    pa.string_view(),
]


@pytest.mark.parametrize("batch_size", [200, 16_384])
@pytest.mark.parametrize(
    "keyed", ["no key", "keys", "some keys", "partition", "keys and partition"]
)
@jumping
async def test_each_record_is_where_its_delivery_says_and_partitions_keep_their_order(
    keyed: str, batch_size: int
) -> None:
    """The columns have several layouts and many batches, with memory for few of them. Each delivery reports its record's position."""
    chance = random.Random(7)
    count = 1000 if batch_size > 1000 else 300
    values = [
        None
        if chance.random() < 0.05
        else f"{number:05}" + "." * chance.choice((0, 1, 50, 58, 59, 60, 100))
        for number in range(count)
    ]
    keys = [f"key-{chance.randrange(50)}" for _ in range(count)]
    if keyed == "some keys":
        keys = [key if chance.random() < 0.8 else None for key in keys]  # type: ignore[misc]
    given: dict[str, Any] = {"partition": 1 if "partition" in keyed else None}
    async with running(batch_size=batch_size, buffer_memory=60_000) as (cluster, producer):
        for kind in KINDS:
            begins = [len(cluster.records("orders", partition)) for partition in range(2)]
            if "key" in keyed and keyed != "no key":
                given["keys"] = pa.chunked_array(
                    [pa.array(keys[:170], kind), pa.array(keys[170:], kind)]
                )
            column = pa.array([None] * 3 + values + [None], kind).slice(3, count)
            deliveries = await producer.send_columns("orders", values=column, **given)
            assert len(deliveries) == count
            wanted = [None if value is None else value.encode() for value in values]
            assert await logged(cluster, deliveries) == wanted
            assert await deliveries[232] == (await deliveries)[232]
            for metadata, value, key in zip(await deliveries, values, keys, strict=True):
                assert metadata.serialized_value_size == (-1 if value is None else len(value))
                assert metadata.serialized_key_size == (
                    -1 if key is None or "keys" not in given else len(key)
                )
            for partition, begin in enumerate(begins):
                numbers = [
                    record.value[:5]
                    for record in cluster.records("orders", partition)[begin:]
                    if record.value is not None
                ]
                assert numbers == sorted(numbers)


@jumping
async def test_keys_go_where_send_has_them_go() -> None:
    """A key goes to the same partition as with `send`. Rows without a key go to the sticky partitions, a batch each."""
    keys = [b"key-%d" % number for number in range(300)]
    async with running() as (cluster, producer):
        for key in keys:
            await producer.send("orders", b"one", key)
        await producer.send_columns(
            "orders", values=pa.array([b"column"] * 300), keys=pa.array(keys)
        )
        await producer.flush()
        for partition in range(2):
            one, column = (
                [
                    record.key
                    for record in cluster.records("orders", partition)
                    if record.value == kind
                ]
                for kind in (b"one", b"column")
            )
            assert one == column
    async with running(batch_size=1000) as (cluster, producer):
        await producer.send_columns("orders", values=numbered(2000, 50))
        await producer.flush()
        assert min(len(cluster.records("orders", partition)) for partition in range(2)) > 700
        counts = [
            batch.count
            for partition in range(2)
            for batch in cluster.log("orders", partition).batches()
        ]
        assert sum(count == max(counts) for count in counts) > 0.9 * len(
            counts
        )  # all but the last of each window


@jumping
async def test_rows_go_behind_what_was_sent_before_and_before_what_comes_after() -> None:
    """The rows are logged after earlier records and before later ones, also within the open batch of their partition."""
    async with running(linger_ms=1000) as (cluster, producer):
        await producer.send("orders", b"before", partition=0)
        await producer.send_columns("orders", values=numbered(3), partition=0)
        await producer.send("orders", b"after", partition=0)
        await producer.flush()
        assert cluster.values("orders", 0) == [b"before", b"00000", b"00001", b"00002", b"after"]


@jumping
async def test_times() -> None:
    """Times come from an array in ms, an array of timestamps in any unit, or one number. Without any, the rows get the current time."""
    moments = [START, None, START - 5, START + 10]
    async with running(wall_clock=lambda: 123.456) as (cluster, producer):
        expected = [123_456 if moment is None else moment for moment in moments]
        for unit in ("ms", "us", "ns"):
            column = (
                pa.array(moments, pa.int64())
                .cast(pa.timestamp("ms"))
                .cast(pa.timestamp(unit, "Europe/Paris"))
            )
            told = await (
                await producer.send_columns("orders", values=numbered(4), timestamps_ms=column)
            )
            assert [metadata.timestamp_ms for metadata in told] == expected
        told = await (
            await producer.send_columns(
                "orders", values=numbered(4), timestamps_ms=pa.array(moments), partition=0
            )
        )
        assert [metadata.timestamp_ms for metadata in told] == expected
        assert [record.timestamp_ms for record in cluster.records("orders", 0)[-4:]] == expected
        for given, stamp in ((5, 5), (None, 123_456)):
            told = await (
                await producer.send_columns("orders", values=numbered(2), timestamps_ms=given)
            )
            assert [metadata.timestamp_ms for metadata in told] == [stamp] * 2


@jumping
async def test_cancelled_it_tells_what_is_queued() -> None:
    """The cancelled call reports the first rows as queued. Those are sent, and no others."""
    values = numbered(3000, 500)
    async with running(buffer_memory=300_000, batch_size=4000) as (cluster, producer):
        await producer.partitions_for("orders")
        hang = cluster.hang("Produce")
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(1):
                await producer.send_columns(
                    "orders", values=values, keys=pa.array([b"%d" % (at % 9) for at in range(3000)])
                )
        queued = Deliveries.of(raised.value)
        assert 0 < len(queued) < 3000
        assert f"send_columns: {len(queued)} records" in raised.value.__cause__.__notes__[0]  # type: ignore[union-attr]
        hang.release()
        assert await logged(cluster, queued) == values.to_pylist()[: len(queued)]
        await producer.flush()
        assert len(cluster.values("orders")) == len(queued)


@jumping
async def test_cancelled_while_the_topic_is_not_known_nothing_is_queued() -> None:
    async with running() as (cluster, producer):
        hang = cluster.hang("Metadata")
        sending = asyncio.create_task(producer.send_columns("orders", values=numbered(3)))
        await turns(3)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await sending
        assert len(Deliveries.of(raised.value)) == 0
        hang.release()
        assert len(await (await producer.send_columns("orders", values=numbered(2)))) == 2
        assert len(cluster.values("orders")) == 2


@pytest.mark.parametrize(
    ("options", "widest"),
    [({}, 262_144), ({"batch_max_size": 65_536}, 65_536), ({"batch_max_size": 1}, 16_384)],
)
@jumping
async def test_rows_that_are_there_at_once_travel_in_batches_as_wide_as_full_ones_may_become(
    options: dict[str, Any], widest: int
) -> None:
    """Batches become as large as full ones may. A batch's cost is most of a row's cost. In plain Python few rows come at once."""
    widest = min(widest, _ROWS * ROW)
    async with running(**options) as (cluster, producer):
        await (await producer.send_columns("orders", values=numbered(20_000, size=ROW - 15)))
        sizes = [
            batch.size_in_bytes for at in range(2) for batch in cluster.log("orders", at).batches()
        ]
        assert widest * 3 // 4 < max(sizes) <= widest


@needs_windows
@jumping
async def test_rows_that_are_there_at_once_travel_in_wide_batches_while_memory_is_short() -> None:
    """A window is a quarter of `buffer_memory`, and one batch of it takes no more memory than ten would."""
    window = min(700_000 // 4, _ROWS * ROW)
    async with running(buffer_memory=700_000) as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.brokers[1].pause()
        asyncio.get_running_loop().call_later(1, cluster.brokers[1].resume)
        await (await producer.send_columns("orders", values=numbered(5_000, size=ROW - 15)))
        sizes = [
            batch.size_in_bytes for at in range(2) for batch in cluster.log("orders", at).batches()
        ]
        assert sum(size > window * 3 // 4 for size in sizes) >= len(sizes) - 1


@needs_windows
@jumping
async def test_columns_that_are_changed_meanwhile_end_in_an_error() -> None:
    """The caller breaks the rule and changes a column during the call. `send_columns` names the row that grew, and
    does not hold the loop.
    """
    async with running() as (cluster, producer):
        hang = cluster.hang("Metadata")
        offsets = bytearray(struct.pack("<2i", 0, 10))
        values = pa.Array.from_buffers(
            pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(bytes(400_000))]
        )
        sending = asyncio.create_task(producer.send_columns("orders", values=values))
        await turns(20)
        offsets[:] = struct.pack("<2i", 0, 400_000)
        hang.release()
        with pytest.raises(
            UsageError, match=r"^row 0: the columns were changed before send_columns returned"
        ):
            await sending
        await producer.send_and_wait("orders", b"next")


@pytest.mark.parametrize("at", [0, 1, 500, 2999])
@pytest.mark.parametrize("keyed", [False, True])
@jumping
async def test_a_row_that_is_too_large_is_named_and_all_before_it_is_sent(
    keyed: bool, at: int
) -> None:
    values = numbered(3000).to_pylist()
    values[at] = bytes(2_000_000)
    given: dict[str, Any] = (
        {"keys": pa.array([b"%d" % (row % 7) for row in range(3000)])} if keyed else {}
    )
    async with running() as (cluster, producer):
        with pytest.raises(
            RecordTooLarge,
            match=rf"^row {at}: a record for 'orders' takes 20000\d\d bytes, more than max_request_size",
        ) as raised:
            await producer.send_columns("orders", values=pa.array(values), **given)
        queued = Deliveries.of(raised.value)
        assert len(queued) == at
        assert await logged(cluster, queued) == values[:at]
        assert len(cluster.values("orders")) == at


@jumping
async def test_the_largest_row_that_send_takes_goes_alone() -> None:
    """`send_columns` and `send` take a record of the same largest size. Both refuse one byte more."""
    async with running(max_request_size=5000, batch_size=1000) as (cluster, producer):
        size = 5000
        while True:
            try:
                await producer.send("orders", bytes(size), partition=0)
            except RecordTooLarge:
                size -= 1
            else:
                break
        column = pa.array([b"small", bytes(size), b"small"])
        await producer.send_columns("orders", values=column, partition=1)
        with pytest.raises(RecordTooLarge, match="row 1: "):
            await producer.send_columns(
                "orders", values=pa.array([b"small", bytes(size + 1), b"small"]), partition=0
            )
        await producer.flush()
        assert cluster.values("orders", 1) == column.to_pylist()
        assert cluster.values("orders", 0) == [bytes(size), b"small"]


@pytest.mark.parametrize(
    ("what", "said"),
    [("offsets", "row 2: its offsets"), ("time", "row 2: its timestamp is negative")],
)
@pytest.mark.parametrize("slow", [False, True])
@jumping
async def test_a_row_that_cannot_be_one_is_named_and_all_before_it_is_sent(
    what: str, said: str, slow: bool
) -> None:
    offsets = pa.py_buffer(
        pa.array([0, 1, 2, 1 if what == "offsets" else 3, 4], pa.int32()).buffers()[1]
    )
    values = pa.Array.from_buffers(pa.binary(), 4, [None, offsets, pa.py_buffer(b"abcd")])
    times = pa.array([1, 2, -3, 4]) if what == "time" else None
    async with running(interceptors=[Heard()] if slow else []) as (cluster, producer):
        with pytest.raises(UsageError, match=said) as raised:
            await producer.send_columns("orders", values=values, timestamps_ms=times)
        assert await logged(cluster, Deliveries.of(raised.value)) == [b"a", b"b"]
        assert len(cluster.values("orders")) == 2


def send_rows(producer: Producer[Any, Any], values: pa.Array) -> Any:
    return producer.send_columns("orders", values=values)


def send_records(producer: Producer[Any, Any], values: pa.Array) -> Any:
    return producer.send_many("orders", values.to_pylist())


BULK = pytest.mark.parametrize("send", [send_rows, send_records])


@BULK
@jumping
async def test_memory_that_does_not_come_ends_it(send: Any) -> None:
    """The call raises BufferExhausted after max_block_ms and reports the queued rows. Sends queued behind it wait as long as that."""
    async with running(buffer_memory=40_000, batch_size=4000, max_block_ms=1000) as (
        cluster,
        producer,
    ):
        await producer.partitions_for("orders")
        hang = cluster.hang("Produce")
        with pytest.raises(BufferExhausted) as raised:
            await send(producer, numbered(200, 900))
        queued = Deliveries.of(raised.value)
        assert 0 < len(queued) < 200
        assert producer.buffer_available >= 0
        hang.release()
        assert (await queued.wait()).acknowledged == len(queued)


@jumping
async def test_columns_larger_than_memory_go_as_fast_as_brokers_take_them() -> None:
    """The batches never take more than the memory, and all rows are logged."""
    least = []
    async with running(buffer_memory=50_000, batch_size=4000) as (cluster, producer):
        deliveries = None
        sending = asyncio.create_task(producer.send_columns("orders", values=numbered(2000, 400)))
        while not sending.done():
            least.append(producer.buffer_available)
            await asyncio.sleep(0)
        deliveries = await sending
        assert await logged(cluster, deliveries) == numbered(2000, 400).to_pylist()
    assert 0 <= min(least) < 40_000


@jumping
async def test_an_unknown_topic_a_missing_partition_and_a_closed_producer_end_it() -> None:
    """`send_columns` raises the same errors as a send."""
    async with running(max_block_ms=500, allow_auto_create_topics=False) as (_, producer):
        with pytest.raises(MetadataTimeout):
            await producer.send_columns("nowhere", values=numbered(1))
        with pytest.raises(MetadataTimeout, match="partition 7"):
            await producer.send_columns("orders", values=numbered(1), partition=7)
        topics: list[Any] = ["", 7, ["orders"]]
        for topic in topics:
            with pytest.raises(UsageError):
                await producer.send_columns(topic, values=numbered(1))
        with pytest.raises(UsageError, match="partition=-1"):
            await producer.send_columns("orders", values=numbered(1), partition=-1)
    with pytest.raises(ProducerClosed):
        await producer.send_columns("orders", values=numbered(0))


@BULK
@jumping
async def test_stop_ends_it_and_what_is_queued_is_sent(send: Any) -> None:
    """The call raises ProducerClosed and reports the first rows as queued. Those are sent."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        async with Producer(
            **cluster.client_options, buffer_memory=100_000, batch_size=4000
        ) as producer:
            await producer.partitions_for("orders")
            hang = cluster.hang("Produce")
            sending = asyncio.create_task(send(producer, numbered(3000, 500)))
            await turns(20)
            stopping = asyncio.create_task(producer.stop())
            await turns(2)
            hang.release()
            with pytest.raises(ProducerClosed) as raised:
                await sending
            await stopping
            queued = Deliveries.of(raised.value)
            assert await logged(cluster, queued) == numbered(3000, 500).to_pylist()[: len(queued)]
            assert len(cluster.values("orders")) == len(queued) > 0


@jumping
async def test_others_have_their_turns() -> None:
    """The event loop runs between two windows of rows, and another task's send is appended in between."""
    async with running(buffer_memory=1_000_000) as (_, producer):
        await producer.partitions_for("orders")
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        heart = asyncio.create_task(beat())
        many = asyncio.create_task(
            producer.send_columns("orders", values=numbered(20_000, 90), partition=0)
        )
        await turns(2)
        late = asyncio.create_task(producer.send("orders", b"late", partition=0))
        deliveries = await many
        heart.cancel()
        assert beats > 2
        assert 0 < (await (await late)).offset < 20_000
        assert (await deliveries.wait()).acknowledged == 20_000


@jumping
async def test_chunks_cut_anyhow() -> None:
    """The columns have many tiny and empty chunks, cut differently in each column. The batches are full all the same."""
    chance = random.Random(3)

    def cut(array: Any, pieces: int) -> Any:
        places = sorted(chance.randrange(len(array)) for _ in range(pieces))
        return pa.chunked_array(
            [array[begin:end] for begin, end in pairwise([0, *places, len(array)])]
        )

    values = numbered(5000, 20)
    keys = pa.array([b"%d" % (at % 11) for at in range(5000)])
    async with running(batch_size=1000) as (cluster, producer):
        deliveries = await producer.send_columns(
            "orders",
            values=cut(values, 900),
            keys=cut(keys, 3),
            timestamps_ms=cut(pa.array(range(5000)), 60),
        )
        assert await logged(cluster, deliveries) == values.to_pylist()
        assert [metadata.timestamp_ms for metadata in await deliveries] == list(range(5000))
        counts = [
            batch.count
            for partition in range(2)
            for batch in cluster.log("orders", partition).batches()
        ]
        assert sum(counts) / len(counts) > 0.6 * max(counts)


@jumping
async def test_no_object_for_a_row() -> None:
    """Waiting rows take little memory beside the batches, and add no objects that the collector walks."""
    count = 40_000
    values, times = numbered(count, 95), pa.array(range(START, START + count))
    keys = pa.array([b"k%d" % (at % 100) for at in range(count)])
    async with running(buffer_memory=64_000_000) as (cluster, producer):
        await producer.partitions_for("orders")
        hang = cluster.hang("Produce")
        await producer.send_columns(
            "orders", values=values[:10], keys=keys[:10], timestamps_ms=times[:10]
        )
        gc.collect()
        before = len(gc.get_objects())
        tracemalloc.start()
        try:
            deliveries = await producer.send_columns(
                "orders", values=values, keys=keys, timestamps_ms=times
            )
            held, peak = tracemalloc.get_traced_memory()
            blocks = sum(
                statistic.count for statistic in tracemalloc.take_snapshot().statistics("filename")
            )
        finally:
            tracemalloc.stop()
        taken = producer.config.buffer_memory - producer.buffer_available
        assert len(deliveries) == count
        assert blocks < count / 2
        assert len(gc.get_objects()) - before < count / 3
        assert (
            held - taken < 40 * count
        )  # two sizes, a time, a group: 18 bytes; the smallest object has more than 40
        assert peak - taken < 40 * count + 4_000_000
        await cluster.seen("Produce")
        hang.release()
        assert (await deliveries.wait()).acknowledged == count


class Heard:
    """An interceptor that changes what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append((record.key, record.value, record.timestamp_ms))
        return record._replace(headers=(("seen", b"1"),))


@jumping
async def test_interceptors_see_each_row() -> None:
    """The interceptors see each row, as they see each record of `send_many`."""
    heard = Heard()
    async with running(interceptors=[heard]) as (cluster, producer):
        keys = pa.array([b"k", None, b"l"])
        deliveries = await producer.send_columns(
            "orders", values=numbered(3), keys=keys, timestamps_ms=pa.array([7, None, 9])
        )
        assert await logged(cluster, deliveries) == numbered(3).to_pylist()
        assert heard.sent == [(b"k", b"00000", 7), (None, b"00001", None), (b"l", b"00002", 9)]
        assert {record.headers for record in cluster.records("orders")} == {(("seen", b"1"),)}


@jumping
async def test_a_partitioner_of_the_users_is_asked_for_each_row() -> None:
    """The producer calls the user's partitioner for each row, unless the call names a partition."""
    asked: list[Any] = []

    def odd(
        _topic: str,
        key: bytes | None,
        value: bytes | None,
        _partitions: int,
        _available: Sequence[int],
    ) -> int:
        asked.append((key, value))
        return int(value or b"0") % 2

    async with running(partitioner=odd) as (cluster, producer):
        await (await producer.send_columns("orders", values=numbered(4), keys=pa.array([b"k"] * 4)))
        assert cluster.values("orders", 0) == [b"00000", b"00002"]
        assert asked == [(b"k", value) for value in numbered(4).to_pylist()]
        await (await producer.send_columns("orders", values=numbered(4), partition=0))
        assert len(asked) == 4


@pytest.mark.parametrize("partitions", [200, 300])
@jumping
async def test_keys_of_very_many_partitions(partitions: int) -> None:
    """A topic has 200 or 300 partitions. No row is lost, and each key goes to its partition."""
    keys = [b"%d" % at for at in range(1000)]
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=partitions)
        async with running(cluster) as (_, producer):
            homes = [
                (await producer.send_and_wait("orders", b"home", key)).partition
                for key in keys[:50]
            ]
            deliveries = await producer.send_columns(
                "orders", values=numbered(1000), keys=pa.array(keys)
            )
            assert await logged(cluster, deliveries, partitions) == numbered(1000).to_pylist()
            assert [metadata.partition for metadata in await deliveries][:50] == homes


@jumping
async def test_keys_can_be_ignored() -> None:
    async with running(partitioner_ignore_keys=True, batch_size=1000) as (cluster, producer):
        await (
            await producer.send_columns(
                "orders", values=numbered(500, 20), keys=pa.array([b"k"] * 500)
            )
        )
        assert min(len(cluster.values("orders", partition)) for partition in range(2)) > 100


@pytest.mark.parametrize("policy", ["strict", "fail_fast", "available"])
@jumping
async def test_a_partition_whose_circuit_is_open(policy: str) -> None:
    """By policy, rows for this partition wait, are refused, or go to another partition, as single records do."""
    options = {
        "circuit_breaker_class": "failure_rate",
        "circuit_breaker_trigger_message_count": 4,
        "circuit_breaker_keyed_policy": policy,
    }
    keys = [b"%d" % at for at in range(40)]
    async with running(**options, retry_backoff_ms=50, retry_backoff_max_ms=50) as (
        cluster,
        producer,
    ):
        homes = {}
        for key in keys:
            homes[key] = (await producer.send_and_wait("orders", b"home", key)).partition
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="orders", partition=1, times=None)
        failing = [
            await producer.send("orders", b"%d" % number, partition=1) for number in range(8)
        ]
        while not producer.health().open_breakers:
            await asyncio.sleep(0.01)
        columns = {"values": pa.array([b"row"] * 40), "keys": pa.array(keys)}
        if policy == "fail_fast":
            with pytest.raises(PartitionUnavailable) as raised:
                await producer.send_columns("orders", **columns)
            assert len(Deliveries.of(raised.value)) == [homes[key] for key in keys].index(1)
            cluster.faults.clear()
        else:
            deliveries = await producer.send_columns("orders", **columns)
            if policy == "strict":
                assert deliveries.summary().pending > 0
                cluster.faults.clear()
                assert [metadata.partition for metadata in await deliveries] == [
                    homes[key] for key in keys
                ]
            else:
                assert {metadata.partition for metadata in await deliveries} == {0}
                cluster.faults.clear()
        free = await producer.send_columns("orders", values=numbered(10))
        await asyncio.gather(*failing, free)


@jumping
async def test_in_a_transaction() -> None:
    """The rows are visible all or not at all. Without a transaction the call raises, and a row that is too large makes the commit fail."""
    async with transactional() as (cluster, producer):
        with pytest.raises(TransactionMisuse):
            await producer.send_columns("orders", values=numbered(3))
        async with producer.transaction():
            await producer.send_columns(
                "orders", values=numbered(500), keys=pa.array([b"%d" % at for at in range(500)])
            )
        assert sorted(filter(None, committed(cluster))) == numbered(500).to_pylist()
        await producer.begin_transaction()
        await producer.send_columns("orders", values=numbered(10))
        with pytest.raises(RecordTooLarge):
            await producer.send_columns("orders", values=pa.array([bytes(2_000_000)]))
        with pytest.raises(Exception, match="abort"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert len(committed(cluster)) == 500


@jumping
async def test_a_batch_that_is_too_large_for_its_broker_is_cut() -> None:
    """The split also cuts the record sizes and times that the batch keeps."""
    async with running(batch_size=20_000) as (cluster, producer):
        await producer.partitions_for("orders")
        cluster.fail("Produce", "MESSAGE_TOO_LARGE", times=1)
        values = [b"." * at for at in range(200)]
        deliveries = await producer.send_columns(
            "orders", values=pa.array(values), timestamps_ms=pa.array(range(200)), partition=0
        )
        told = await deliveries
        assert len(cluster.log("orders", 0).batches()) > 1
        assert [metadata.serialized_value_size for metadata in told] == list(range(200))
        assert [metadata.timestamp_ms for metadata in told] == list(range(200))
        assert cluster.values("orders", 0) == values


@pytest.mark.parametrize("name", ["value_serializer", "key_serializer"])
@jumping
async def test_serializers_and_columns_do_not_go_together(name: str) -> None:
    """The columns are bytes already, so the call raises with a serializer. A key serializer is allowed when the call has no keys."""
    async with running(**{name: lambda value: value}) as (cluster, producer):
        with pytest.raises(UsageError, match=f"has a {name}: use one without, or send_many"):
            await producer.send_columns("orders", values=numbered(1), keys=numbered(1))
        if name == "key_serializer":
            await producer.send_columns("orders", values=numbered(1))
        await producer.flush()
        assert len(cluster.values("orders")) == (name == "key_serializer")
