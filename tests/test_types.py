"""Types of the public interface: mypy and pyright check each `assert_type` (`nox -s types pyright`).

When run, it is many users' first snippet.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, assert_type

import pytest

from aioproducer import (
    ConsumerGroupMetadata,
    Deliveries,
    Delivery,
    DeliveryError,
    Distribution,
    FlushSummary,
    FromThread,
    Health,
    OffsetAndMetadata,
    Persisted,
    Position,
    Producer,
    ProducerConfig,
    ReadyBatch,
    Record,
    RecordMetadata,
    TopicPartition,
    TransactionError,
    TransactionTimeout,
    UsageError,
)
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.mark.asyncio
async def test_the_face_has_types() -> None:
    """The arguments, the results and the awaited results have types."""

    async def source() -> AsyncIterator[dict[str, int]]:
        yield {"a": 3}

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        options: dict[str, Any] = {
            **cluster.client_options,
            "key_serializer": str.encode,
            "value_serializer": lambda value: repr(value).encode(),
        }
        producer: Producer[str, dict[str, int]] = Producer(**options)
        async with producer as entered:
            assert_type(entered, Producer[str, dict[str, int]])
            assert_type(producer.config, ProducerConfig)
            delivery = await producer.send("orders", {"a": 1}, "key")
            assert_type(delivery, Delivery)
            assert_type(await delivery, RecordMetadata)
            assert_type(await producer.send_and_wait("orders", {"a": 1}), RecordMetadata)
            assert_type(producer.send_nowait("orders", {"a": 1}), Delivery)
            deliveries = await producer.send_many("orders", [{"a": 1}, None, Record({"a": 2}, "key")])
            assert_type(deliveries, Deliveries)
            assert_type(await deliveries, list[RecordMetadata])
            assert_type(await (await producer.send_many("orders", source())).wait(), FlushSummary)
            with pytest.raises(UsageError, match="serializer"):
                assert_type(await producer.send_columns("orders", values=()), Deliveries)
            assert_type(deliveries[0], Delivery)
            assert_type(deliveries[:1], list[Delivery])
            batch = producer.create_batch("orders", 0)
            assert_type(batch, ReadyBatch)
            assert_type(batch.append({"a": 1}, "key"), bool)
            assert_type(await producer.send_batch(batch), Deliveries)
            assert_type(await producer.partitions_for("orders"), set[int])
            assert_type(producer.from_thread, FromThread[str, dict[str, int]])
            assert_type(await producer.flush(), FlushSummary)
            assert_type(producer.buffer_available, int)
            assert_type(producer.explain(), str)
            assert_type(producer.metrics().number("record-send-total"), float)
            assert_type(producer.metrics().distribution("batch-fill-ratio"), Distribution)
            assert_type(producer.health(), Health)
        assert len(cluster.values("orders")) == 8


@pytest.mark.asyncio
async def test_asyncios_helpers_know_a_delivery() -> None:
    """asyncio's helpers accept a `Delivery` where they are declared to take a Future, as docs/topics/delivery.md uses them."""

    def is_told(ended: Delivery) -> None:
        assert ended.result().offset >= 0

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options) as producer:
            delivery = await producer.send("orders", b"v")
            future: asyncio.Future[RecordMetadata] = delivery
            delivery.add_done_callback(is_told)
            done, pending = await asyncio.wait({delivery}, timeout=30)
            assert_type(done, set[Delivery])
            assert_type(pending, set[Delivery])
            assert (done, pending) == ({delivery}, set())
            assert_type(await asyncio.wait([delivery, delivery], return_when=asyncio.FIRST_COMPLETED), tuple[set[Delivery], set[Delivery]])
            assert_type(await asyncio.gather(delivery, delivery), tuple[RecordMetadata, RecordMetadata])
            assert_type(await asyncio.gather(*[delivery, delivery]), list[RecordMetadata])
            assert_type(await asyncio.gather(*[delivery], return_exceptions=True), list[RecordMetadata | BaseException])
            assert_type(await asyncio.wait_for(delivery, 30), RecordMetadata)
            assert_type(await asyncio.shield(delivery), RecordMetadata)
            for ended in asyncio.as_completed([delivery, delivery], timeout=30):
                assert_type(await ended, RecordMetadata)
            assert_type(asyncio.ensure_future(delivery), Delivery)
            async with asyncio.TaskGroup() as group:
                assert_type(group.create_task(producer.send("orders", b"v")), asyncio.Task[Delivery])
                assert_type(group.create_task(producer.send_and_wait("orders", b"v")), asyncio.Task[RecordMetadata])
            async with asyncio.timeout(30):
                assert_type(await delivery, RecordMetadata)
            assert_type(delivery.exception(), DeliveryError | None)
            assert_type(delivery.remove_done_callback(is_told), int)
            assert future is delivery


@pytest.mark.asyncio
async def test_transactions_have_types() -> None:
    """Offsets may be any mapping of tuples. A group may be of two kinds."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, transactional_id="tx") as producer:
            async with producer.transaction() as nothing:
                assert_type(nothing, None)
                await producer.send_offsets_to_transaction({("orders", 0): 5}, "group")
                await producer.send_offsets_to_transaction(
                    {TopicPartition("orders", 0): OffsetAndMetadata(6)}, ConsumerGroupMetadata("group")
                )
                assert_type(await producer.send_position_to_transaction("job", 5, topic="orders"), None)
            assert_type(await producer.committed_position("job", topic="orders"), Position | None)
            assert_type(await producer.begin_transaction(), None)
            await producer.abort_transaction()
        try:
            raise TransactionTimeout("late")
        except TransactionError as error:
            assert_type(error.hint, str)
            assert_type(error.persisted, Persisted)
        assert cluster.committed("group") == {("orders", 0): 6}
