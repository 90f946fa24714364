"""Errors of `send_many` that are pickled and copied: the deliveries that they have stay in their process."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import Deliveries, DeliveryError, Producer, Record, UsageError
from aioproducer.errors import KafkaError, Persisted
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
        yield Record(
            b"v" * (number % 70),
            b"%d" % number,
            partition=number % 2,
            timestamp_ms=1_000 + number if number % 3 else None,
        )
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
    """The caller's own error, which says how many records were queued before it."""
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(RowError, match="row 300 of the file is broken") as raised,
    ):
        pool.submit(work, 300).result()
    with pytest.raises(
        UsageError, match="RowError was pickled, without its deliveries: .*Pass on their outcomes"
    ):
        Deliveries.of(raised.value)
    assert raised.value.__notes__ == ["send_many: 300 records queued before this."]


async def test_an_error_that_takes_no_attribute_is_raised_as_it_is() -> None:
    """A frozen dataclass; it tells of what was queued all the same."""
    with pytest.raises(FrozenError) as raised:
        await job(10, FrozenError(10))
    queued = Deliveries.of(raised.value)
    assert queued.summary() == (10, 0, 0)
    assert copy.deepcopy(queued) is copy.copy(queued) is queued


async def test_a_cause_of_ours_goes_along() -> None:
    """As `DeliveryError` promises; one of the user's, which might not be read again, does not."""
    for cause, expected in ((KafkaError("why"), KafkaError), (RowError("why"), type(None))):
        error = DeliveryError("why", "t", 3, Persisted.MAYBE, 2)
        error.__cause__ = cause
        assert type(pickle.loads(pickle.dumps(error)).__cause__) is expected
