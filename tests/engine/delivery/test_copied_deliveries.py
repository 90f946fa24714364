"""Tests of `aioproducer.engine.delivery.copied_deliveries`: deliveries of a `send_many` error in a new process."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import Deliveries, DeliveryError, Producer, ProducerClosed, Record
from aioproducer.errors import BrokerError, KafkaError, Persisted
from aioproducer.model import TimestampType
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.asyncio


class RowError(ValueError):
    """The caller's own, raised out of its iterable."""


@dataclass(frozen=True)
class FrozenError(Exception):
    """An error that takes no attribute."""

    row: int


def rows(count: int, error: Exception) -> Iterator[Record[bytes, bytes]]:
    for number in range(count):
        yield Record(b"v" * (number % 70), b"%d" % number, partition=number % 2, timestamp_ms=1_000 + number if number % 3 else None)
    raise error


async def job(count: int, raised: Exception, **scripted: Any) -> None:
    """Send rows until the iterable raises; leaving `async with` waits for what was queued."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        async with Producer(**cluster.client_options, batch_size=2_000) as producer:
            await producer.partitions_for("orders")
            if scripted:
                cluster.fail("Produce", **scripted)
            await producer.send_many("orders", rows(count, raised))


def work(count: int) -> None:
    asyncio.run(job(count, RowError("row 300 of the file is broken")))


async def test_a_pools_worker_sends_it() -> None:
    """The caller's own error, with what is known of the records queued before it."""
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(RowError, match="row 300 of the file is broken") as raised,
    ):
        pool.submit(work, 300).result()
    queued = Deliveries.of(raised.value)
    assert queued.summary() == (300, 0, 0)
    assert queued.offsets() == {0: (0, 149), 1: (0, 149)}
    assert raised.value.__notes__ == ["send_many: 300 records queued before this."]


@pytest.mark.parametrize("stamps", [False, True])
async def test_metadata_is_the_same_in_the_copy(stamps: bool) -> None:
    """The copy has the offset, the time and the sizes of each record, even if its batch also has records of other sends."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2, config={"message.timestamp.type": "LogAppendTime"} if stamps else {})
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"before", partition=1)
            await producer.send("orders", b"another's", partition=0)
            with pytest.raises(RowError) as raised:
                await producer.send_many("orders", rows(500, RowError("x")))
            told = await Deliveries.of(raised.value)
            again = Deliveries.of(pickle.loads(pickle.dumps(raised.value)))
    assert await again == told
    assert [again[at].result() for at in range(0, 500, 7)] == told[::7]
    assert [each.timestamp_type for each in await again] == [TimestampType(stamps)] * 500
    assert again.offsets() == Deliveries.of(raised.value).offsets()
    assert pickle.loads(pickle.dumps(again)).offsets() == again.offsets()


async def test_failures_and_their_causes_go_along() -> None:
    """Also what the broker said, which is the cause of a `DeliveryError`."""
    with pytest.raises(RowError) as raised:
        await job(20, RowError("x"), error="INVALID_RECORD", partition=1, message="no key")
    queued = Deliveries.of(pickle.loads(pickle.dumps(raised.value)))
    found = queued.first_failure()
    assert found is not None
    index, error = found
    assert (index, type(error), queued.summary()) == (1, DeliveryError, (10, 10, 0))
    assert isinstance(error.__cause__, BrokerError)
    assert error.__cause__.message == "no key"
    with pytest.raises(DeliveryError, match="no key"):
        await queued


async def test_a_split_batch_is_known_by_its_parts() -> None:
    with pytest.raises(RowError) as raised:
        await job(40, RowError("x"), error="MESSAGE_TOO_LARGE", partition=0)
    queued = Deliveries.of(pickle.loads(pickle.dumps(raised.value)))
    assert await queued == await Deliveries.of(raised.value)


async def test_a_copy_in_this_process_tells_of_the_same_records() -> None:
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        async with Producer(**cluster.client_options) as producer:
            with pytest.raises(RowError) as raised:
                await producer.send_many("orders", rows(10, RowError("x")))
            queued = Deliveries.of(raised.value)
            for again in (copy.copy(raised.value), copy.deepcopy(raised.value)):
                assert Deliveries.of(again) is queued
            elsewhere = Deliveries.of(pickle.loads(pickle.dumps(raised.value)))
            assert elsewhere.summary() == (0, 0, 10)
            for waiting in (elsewhere, elsewhere[0]):
                with pytest.raises(ProducerClosed, match="copy"):
                    await waiting
            assert len(await queued) == 10


async def test_an_error_that_takes_no_attribute_is_raised_as_it_is() -> None:
    """A frozen dataclass; it tells of what was queued all the same."""
    with pytest.raises(FrozenError) as raised:
        await job(10, FrozenError(10))
    assert Deliveries.of(raised.value).summary() == (10, 0, 0)


async def test_a_cause_of_ours_goes_along() -> None:
    """As `DeliveryError` promises; one of the user's, which might not be read again, does not."""
    for cause, expected in ((KafkaError("why"), KafkaError), (RowError("why"), type(None))):
        error = DeliveryError("why", "t", 3, Persisted.MAYBE, 2)
        error.__cause__ = cause
        assert type(pickle.loads(pickle.dumps(error)).__cause__) is expected
