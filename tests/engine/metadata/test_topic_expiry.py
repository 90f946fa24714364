"""Topics that the producer forgets when no task sends to them any more (KIP-526).

With the whole producer: what stays, what comes back, and the order.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, now, running, turns

from aioproducer.core.producer_batch import PartitionQueue, ProducerBatch
from aioproducer.core.sequence_numbers import LAST_EPOCH, SequenceNumbers
from aioproducer.core.topic_routing import KeyPlacement, TopicRouting
from aioproducer.errors import BrokerError, MetadataTimeout, UsageError, WouldBlock
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer import Producer

IDLE = 5.0
OPTIONS: dict[str, Any] = {"metadata_max_idle_ms": IDLE * 1000}
TURNS = RoundRobinPartitioner()
OF_A_TOPIC = (ProducerBatch, PartitionQueue, SequenceNumbers, KeyPlacement, TopicRouting)


def known(producer: Producer[Any, Any]) -> list[str]:
    """Return the topics for which any part of the producer keeps state."""
    engine: Any = producer._engine
    parts = engine.parts.updater
    names = {
        *engine.parts.partition_queues.routings,
        *parts.view.topics,
        *parts.schedule._told,
        *parts.schedule._changed,
        *parts.schedule._new,
        *parts.schedule._asked,
    }
    topics = engine.parts.admission.topics
    names |= {*topics._queues, *topics._asked, *topics._troubles}
    return sorted(
        names
        | {topic for topic, _ in engine.parts.ratios._guesses}
        | {topic for _, topic in engine.parts.topic_expiry._looks}
    )


def left_of_topics() -> list[Any]:
    """Return the objects of the rules that the collector sees."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, OF_A_TOPIC)]


def asked(cluster: FakeCluster) -> list[list[str]]:
    return [
        [topic.name for topic in request.message.topics] for request in cluster.requests("Metadata")
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"enable_idempotence": False}, {"compression_type": "gzip"}, {"partitioner": TURNS}],
)
@jumping
async def test_nothing_is_left_of_an_idle_topic(options: dict[str, Any]) -> None:
    """The producer keeps no topic routing, queue, number, key, estimate or counter of the topic, and its memory is free."""
    async with running(**OPTIONS, **options) as (cluster, producer):
        before = len(left_of_topics())
        names = [f"t{number}" for number in range(50)]
        for name in names:
            cluster.create_topic(name, partitions=3)
        for name in names:
            for number in range(4):
                await producer.send_and_wait(name, b"v" * 500, key=b"k%d" % number)
        assert known(producer) == sorted(names)
        assert len(TURNS._next) == (50 if "partitioner" in options else 0)
        await asyncio.sleep(IDLE + 0.1)
        assert known(producer) == []
        assert producer.buffer_available == producer.config.buffer_memory
        assert len(left_of_topics()) == before
        assert TURNS._next == {}


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": False}])
@jumping
async def test_a_topic_that_comes_back_goes_on_in_its_log(options: dict[str, Any]) -> None:
    """The topic is forgotten and comes back again and again.

    Each record is in the log once, in order, and the producer asks for metadata each time.
    """
    async with running(**OPTIONS, **options) as (cluster, producer):
        values = []
        for round_ in range(6):
            for number in range(3):
                values.append(b"%d-%d" % (round_, number))
                await producer.send_and_wait("orders", values[-1], partition=0)
            await asyncio.sleep(IDLE + 1)
            assert known(producer) == []
        assert cluster.values("orders", 0) == values
        assert asked(cluster).count(["orders"]) == 6


@jumping
async def test_a_topic_that_is_sent_to_stays() -> None:
    """The producer keeps a topic that gets a record within the time, however seldom, and however its batches fill."""
    async with running(**OPTIONS, metadata_max_age_ms=1_000_000) as (cluster, producer):
        for number in range(10):
            await producer.send_and_wait("orders", b"%d" % number)
            await asyncio.sleep(IDLE * 0.9)
        assert asked(cluster) == [[], ["orders"]]


@jumping
async def test_a_topic_stays_while_its_records_are_on_their_way() -> None:
    """The producer keeps a topic beyond its idle time while a record is in flight or waits for a partition without a leader."""
    async with running(**OPTIONS, delivery_timeout_ms=60_000, request_timeout_ms=30_000) as (
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", b"0", partition=0)
        hang = cluster.hang("Produce", times=1)
        in_flight = await producer.send("orders", b"1", partition=0)
        await hang.reached()
        cluster.move_leader("orders", 1, None)
        await asyncio.sleep(3 * IDLE)
        assert known(producer) == ["orders"]
        queued = await producer.send("orders", b"2", partition=1)
        hang.release()
        await in_flight
        await asyncio.sleep(3 * IDLE)
        assert known(producer) == ["orders"]
        cluster.move_leader("orders", 1, 1)
        await queued
        await asyncio.sleep(2 * IDLE + 1)
        assert known(producer) == []


@pytest.mark.parametrize("early", [0.0, 1e-9, 1e-3])
@jumping
async def test_a_send_in_the_moment_of_forgetting(early: float) -> None:
    """The record is logged once, behind those before it, in either order of the send and the forgetting."""
    async with running(**OPTIONS) as (cluster, producer):
        await producer.send_and_wait("orders", b"0", partition=0)
        await asyncio.sleep(IDLE - early)
        deliveries = []
        for number in range(1, 6):
            deliveries.append(await producer.send("orders", b"%d" % number, partition=0))
            await turns(1)
        await asyncio.gather(*deliveries)
        assert cluster.values("orders", 0) == [b"%d" % number for number in range(6)]


@jumping
async def test_the_epoch_of_a_topic_that_comes_back_is_one_that_no_broker_knows() -> None:
    """The topic needs a new epoch when it comes back.

    With the same number of records, a broker would take them for the old ones and acknowledge records that it does not write.
    """
    async with running(**OPTIONS) as (cluster, producer):
        for round_ in range(3):
            deliveries = [
                await producer.send("orders", b"%d" % round_, partition=0) for _ in range(3)
            ]
            assert [(await delivery).offset for delivery in deliveries] == [
                3 * round_ + number for number in range(3)
            ]
            await asyncio.sleep(IDLE + 1)
        epochs = [batch.producer_epoch for batch in cluster.log("orders", 0).batches()]
        assert epochs == sorted(epochs)
        assert set(epochs) == {0, 1, 2}


@jumping
async def test_a_producer_whose_epochs_are_used_up_by_topics_that_come_back() -> None:
    """The producer gets another id."""
    async with running(**OPTIONS) as (cluster, producer):
        partition_queues: Any = producer._engine.parts.partition_queues  # type: ignore[union-attr]
        await producer.send_and_wait("orders", b"0", partition=0)
        queue = partition_queues.routings["orders"].queues[0]
        queue.numbers.identity = queue.numbers.identity._replace(epoch=LAST_EPOCH)
        first = partition_queues.idempotence.granted
        await asyncio.sleep(IDLE + 1)
        await producer.send_and_wait("orders", b"1", partition=0)
        assert partition_queues.idempotence.granted.producer_id != first.producer_id
        assert cluster.values("orders", 0) == [b"0", b"1"]


@jumping
async def test_a_topic_that_is_gone_when_it_comes_back() -> None:
    """The send fails with MetadataTimeout, as for any topic that does not exist."""
    async with running(**OPTIONS, max_block_ms=1000) as (cluster, producer):
        await producer.send_and_wait("orders", b"v")
        await asyncio.sleep(IDLE + 1)
        cluster.delete_topic("orders")
        with pytest.raises(MetadataTimeout):
            await producer.send("orders", b"v")
        await asyncio.sleep(2)
        assert known(producer) == []


@jumping
async def test_nothing_is_left_of_a_topic_that_never_was() -> None:
    """A send to the topic failed, the broker refused its name, or the producer only asked for its metadata: it is forgotten."""
    async with running(**OPTIONS, max_block_ms=500) as (_, producer):
        with pytest.raises(MetadataTimeout):
            await producer.send("nowhere", b"v")
        with pytest.raises(BrokerError):
            await producer.send("bad topic!", b"v")
        with pytest.raises(UsageError):
            await producer.send("\udcff", b"v")
        with pytest.raises(WouldBlock):
            producer.send_nowait("nowhere either", b"v")
        await producer.partitions_for("orders")
        await asyncio.sleep(2 * IDLE + 1)
        assert known(producer) == []


@pytest.mark.parametrize("last", [2, 3])
@jumping
async def test_a_record_that_waits_for_memory_when_its_topic_is_forgotten(last: int) -> None:
    """The send waits for metadata once more, keeps its place among its topic's sends, and holds up no send behind it."""
    async with FakeCluster(memory=True) as cluster:
        for name in ("orders", "other"):
            cluster.create_topic(name)
        options = {
            "buffer_memory": 4000,
            "batch_size": 1000,
            "delivery_timeout_ms": 90_000,
            "request_timeout_ms": 60_000,
        }
        async with running(cluster, **OPTIONS, **options) as (_, producer):
            await producer.send_and_wait("orders", b"0")
            await producer.send_and_wait("other", b"0")
            hang = cluster.hang("Produce", times=1)
            others = [
                asyncio.create_task(producer.send("other", b"%d" % number + b"." * 900))
                for number in range(1, 5)
            ]
            await hang.reached()
            late = [
                asyncio.create_task(producer.send("orders", b"%d" % number))
                for number in range(1, 3)
            ]
            await turns(5)
            await asyncio.sleep(2 * IDLE)
            assert producer.metrics().number("topics-known") == 1, "orders is forgotten"
            late += [
                asyncio.create_task(producer.send("orders", b"%d" % number))
                for number in range(3, last + 1)
            ]
            await turns(5)
            hang.release()
            await asyncio.gather(*await asyncio.gather(*others, *late))
            assert cluster.values("orders") == [b"%d" % number for number in range(last + 1)]


@jumping
async def test_large_topics_are_forgotten_beside_records_that_flow() -> None:
    """The producer forgets large topics in steps. A topic that gets a record meanwhile stays."""
    async with FakeCluster(memory=True) as cluster:
        names = ["large", "huge", "small"]
        for name, partitions in zip(names, (3000, 5000, 1), strict=True):
            cluster.create_topic(name, partitions=partitions)
        async with running(cluster, **OPTIONS) as (_, producer):
            for name in names:
                await producer.send_and_wait(name, b"v", partition=0)
            for _ in range(20):
                await producer.send_and_wait("small", b"v")
                await asyncio.sleep(0.3)
            assert known(producer) == ["small"]


async def _send_all(producer: Producer[Any, Any], names: Sequence[str]) -> None:
    await asyncio.gather(*await asyncio.gather(*(producer.send(name, b"v") for name in names)))


@jumping
async def test_a_steady_refresh_asks_only_for_what_is_in_use() -> None:
    """The program uses 10 of 200 topics: bytes of metadata fall to a twentieth when the producer forgets the others."""
    async with FakeCluster(memory=True) as cluster:
        names = [f"t{number}" for number in range(200)]
        for name in names:
            cluster.create_topic(name)
        async with running(cluster, metadata_max_idle_ms=60_000, metadata_max_age_ms=20_000) as (
            _,
            producer,
        ):
            await _send_all(producer, names)
            assert sum(map(len, asked(cluster))) == 200, "each was asked for once"
            counts = []
            for _ in range(4):
                before = sum(map(len, asked(cluster)))
                for _ in range(59):
                    await _send_all(producer, names[:10])
                    await asyncio.sleep(1)
                counts.append(sum(map(len, asked(cluster))) - before)
            assert counts[0] > 500
            assert max(counts[2:]) <= counts[0] / 15
            assert known(producer) == sorted(names[:10])


@jumping
async def test_stopping_while_topics_are_forgotten() -> None:
    """The stop leaves nothing behind (as `running` proves), and no send waits."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("large", partitions=5000)
        async with running(cluster, **OPTIONS) as (_, producer):
            await producer.send_and_wait("large", b"v")
            began = now()
            await asyncio.sleep(IDLE)
        assert now() - began < IDLE + 1


@pytest.mark.parametrize("version", [1, 2])
@jumping
async def test_a_transactional_producers_topics(version: int) -> None:
    """The producer forgets no topic under an epoch in which brokers know its numbers.

    It keeps a topic within a transaction, and before Kafka 4.0 for ever.
    """
    async with FakeCluster(memory=True, transaction_version=version) as cluster:
        cluster.create_topic("orders")
        async with running(cluster, **OPTIONS, transactional_id="id") as (_, producer):
            for round_ in range(3):
                async with producer.transaction():
                    await producer.send_and_wait("orders", b"%d" % (2 * round_))
                    await asyncio.sleep(2 * IDLE)
                    assert known(producer) == ["orders"]
                    await producer.send("orders", b"%d" % (2 * round_ + 1))
                await asyncio.sleep(2 * IDLE)
                assert known(producer) == (["orders"] if version == 1 else [])
        assert cluster.values("orders", isolation="read_committed") == [
            b"%d" % number for number in range(6)
        ]
