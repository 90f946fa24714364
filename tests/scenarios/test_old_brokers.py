"""Brokers before Kafka 0.11, and `message_format_max`: message sets in place of record batches; their limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from whole import encode_at_once, jumping, running

from aioproducer import Producer
from aioproducer.errors import BrokerError, ConfigError, DeliveryError, Persisted, UsageError
from aioproducer.model import Compression
from aioproducer.testing import FakeCluster

CODECS = ["none", "gzip", "snappy", "lz4"]
FORMATS = [  # Kafka's release, message_format_max, and the magic that the batch must get
    ("0.10", 2, 1),
    ("0.10", 1, 1),
    ("0.10", 0, 0),
    ("3.9", 1, 1),
    ("3.9", 0, 0),
    ("0.11", 2, 2),
]
SENT = [
    (b"v" * 100, b"k"),
    (None, b"k"),
    (b"", b""),
    (b"x", None),
    *((b"%d" % number * 9, b"many") for number in range(50)),
]


@pytest.mark.parametrize(("version", "newest", "magic"), FORMATS)
@pytest.mark.parametrize("codec", CODECS)
@jumping
async def test_records_arrive_in_the_format_that_the_broker_takes(
    codec: str, version: str, newest: int, magic: int
) -> None:
    """Keys, values, order and offsets arrive, and timestamps except with magic 0. The metadata is the same as with record batches."""
    async with running(
        version=version, partitions=1, compression_type=codec, message_format_max=newest
    ) as (cluster, producer):
        deliveries = [
            await producer.send("orders", value, key, timestamp_ms=1000 + number)
            for number, (value, key) in enumerate(SENT)
        ]
        told = [await delivery for delivery in deliveries]
    assert [(one.offset, one.timestamp_ms) for one in told] == [
        (number, 1000 + number) for number in range(len(SENT))
    ]
    records = cluster.records("orders", 0)
    assert [(record.value, record.key) for record in records] == SENT
    assert [record.timestamp_ms for record in records] == [
        -1 if magic == 0 else 1000 + number for number in range(len(SENT))
    ]
    log = cluster.log("orders", 0)
    kept = log.batches() if magic == 2 else log.messages()
    assert {(entry.magic, entry.compression) for entry in kept} == {
        (magic, Compression[codec.upper()])
    }


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.asyncio
async def test_large_batches_are_written_anew_in_the_thread(codec: str) -> None:
    """The thread rewrites large batches, and they keep their order with the small ones."""
    async with running(version="0.10", partitions=1, compression_type=codec) as (cluster, producer):
        encode_at_once(producer, 2_000)
        values = [b"%04d" % number * (1 + number % 7 * 40) for number in range(600)]
        deliveries = [await producer.send("orders", value) for value in values]
        assert [(await delivery).offset for delivery in deliveries] == list(range(600))
    assert cluster.values("orders") == values


@jumping
async def test_headers_to_an_old_broker_fail_their_batch_and_no_other() -> None:
    """The record fails with the reason and was certainly not written. The next records are sent."""
    async with running(version="0.10") as (cluster, producer):
        bad = await producer.send("orders", b"secret", partition=0, headers=[("secret", b"secret")])
        good = await producer.send("orders", b"v", partition=1)
        with pytest.raises(
            DeliveryError, match=r"headers need record batches \(magic 2\)"
        ) as caught:
            await bad
        assert (caught.value.persisted, caught.value.attempts) == (Persisted.NO, 0)
        assert isinstance(caught.value.__cause__, BrokerError)
        assert "secret" not in str(caught.value)
        assert (await good).offset == 0
        assert (await (await producer.send("orders", b"later", partition=0))).offset == 0
    assert cluster.values("orders", 0) == [b"later"]


@jumping
async def test_zstd_to_an_old_broker_fails_the_delivery() -> None:
    """The error names the reason and a remedy."""
    async with running(version="0.10", partitions=1, compression_type="zstd") as (
        cluster,
        producer,
    ):
        with pytest.raises(
            DeliveryError, match=r"zstd needs record batches.*choose another compression_type"
        ) as caught:
            await producer.send_and_wait("orders", b"v")
        assert caught.value.persisted is Persisted.NO


@pytest.mark.parametrize("newest", [0, 1])
@jumping
async def test_headers_are_refused_at_the_call_where_the_option_rules_them_out(newest: int) -> None:
    """The send raises an error that names the option, and queues nothing."""
    async with running(version="3.9", partitions=1, message_format_max=newest) as (
        cluster,
        producer,
    ):
        with pytest.raises(
            UsageError, match=f"headers need record format 2, and message_format_max={newest}"
        ):
            await producer.send("orders", b"v", headers=[("h", b"v")])
        with pytest.raises(
            UsageError, match=f"headers need record format 2, and message_format_max={newest}"
        ):
            await producer.send_columns("orders", values=pa.array([b"v"]), headers=pa.nulls(1))
        assert (await producer.send_and_wait("orders", b"v")).offset == 0


@pytest.mark.parametrize("newest", [0, 1])
@pytest.mark.parametrize("version", ["4.0", "4.3"])
@jumping
async def test_a_broker_that_no_longer_takes_message_sets_is_told_at_the_start(
    version: str, newest: int
) -> None:
    """`start` raises, although the broker reports that it takes Produce 0 (KAFKA-18659)."""
    async with FakeCluster(memory=True, version=version) as cluster:
        producer: Producer[Any, Any] = Producer(**cluster.client_options, message_format_max=newest)
        before = asyncio.all_tasks()
        with pytest.raises(
            ConfigError, match=f"takes no records of format {newest}.*Leave message_format_max at 2"
        ):
            await producer.start()
        assert asyncio.all_tasks() == before


UPGRADES = [("0.10", "0.11", 2), ("0.11", "0.10", 1), ("0.10", "4.3", 2), ("4.3", "0.10", 1)]


@pytest.mark.parametrize(("version", "later", "magic"), UPGRADES)
@pytest.mark.parametrize("codec", ["none", "lz4"])
@jumping
async def test_a_batch_is_written_once_more_for_a_broker_of_another_age(
    codec: str, version: str, later: str, magic: int
) -> None:
    """The broker refuses the batch, and its release changes before the retry. The batch is rewritten with all its
    data, timestamps included.
    """
    async with running(version=version, partitions=1, compression_type=codec, linger_ms=5) as (
        cluster,
        producer,
    ):
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
        deliveries = [
            await producer.send("orders", value, key, timestamp_ms=1000 + number)
            for number, (value, key) in enumerate(SENT)
        ]
        await cluster.seen("Produce")
        cluster.speak(later)
        assert [(await delivery).offset for delivery in deliveries] == list(range(len(SENT)))
    records = cluster.records("orders", 0)
    assert [(record.value, record.key) for record in records] == SENT
    assert [record.timestamp_ms for record in records] == [
        1000 + number for number in range(len(SENT))
    ]
    log = cluster.log("orders", 0)
    assert {entry.magic for entry in (*log.batches(), *log.messages())} == {magic}


@jumping
async def test_magic_0_kept_no_times_when_its_broker_is_upgraded() -> None:
    """The batch was written with magic 0, and the broker is newer at the second attempt. All records get the batch's first time."""
    async with running(versions={"Produce": (0, 1)}, partitions=1, linger_ms=5) as (
        cluster,
        producer,
    ):
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
        deliveries = [
            await producer.send("orders", b"v", timestamp_ms=1000 + number) for number in range(3)
        ]
        await cluster.seen("Produce")
        cluster.speak("3.9")
        assert [(await delivery).timestamp_ms for delivery in deliveries] == [1000, 1001, 1002]
    assert [record.timestamp_ms for record in cluster.records("orders", 0)] == [1000, 1000, 1000]


@pytest.mark.parametrize("codec", CODECS)
@jumping
async def test_a_message_set_that_is_too_large_is_split(codec: str) -> None:
    """The Sender splits a message set in halves and keeps the order, as for a record batch."""
    async with running(version="0.10", partitions=1, compression_type=codec, linger_ms=5) as (
        cluster,
        producer,
    ):
        cluster.fail("Produce", "MESSAGE_TOO_LARGE")
        deliveries = [await producer.send("orders", value, key) for value, key in SENT]
        assert [(await delivery).offset for delivery in deliveries] == list(range(len(SENT)))
    assert [(record.value, record.key) for record in cluster.records("orders", 0)] == SENT
    assert len(cluster.requests("Produce")) > 2


@jumping
async def test_what_a_format_adds_is_counted_as_memory() -> None:
    """Small records take more bytes in a message set than in a record batch. While it is in flight, the free memory is smaller by that."""
    free = {}
    for version in ("0.10", "0.11"):
        async with running(version=version, partitions=1, linger_ms=5) as (cluster, producer):
            await producer.send_and_wait("orders", b"first")
            cluster.brokers[1].pause()
            for _ in range(100):
                await producer.send("orders", b"v")
            await asyncio.sleep(1)
            free[version] = producer.buffer_available
            cluster.brokers[1].resume()
    assert free["0.11"] - free["0.10"] > 100 * 20
