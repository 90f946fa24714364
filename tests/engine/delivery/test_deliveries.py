"""`Deliveries` as runs of batches: splits within splits, bounded blocks, errors that carry them. The rest is in append/test_send_many.py."""

from __future__ import annotations

import asyncio
from array import array
from itertools import pairwise
from typing import Any

import pytest

from aioproducer.engine.chosen_build import (
    DeliveryContext,
    MemoryRecordsBuilder,
    ProduceRequestResult,
)
from aioproducer.engine.delivery import deliveries as module
from aioproducer.engine.delivery.completion_queue import CompletionQueue
from aioproducer.engine.delivery.deliveries import Deliveries
from aioproducer.engine.tasks.supervisor import GuardedLoop
from aioproducer.errors import DeliveryError, Persisted

pytestmark = pytest.mark.asyncio

ERROR = DeliveryError("it broke", topic="orders", partition=1, persisted=Persisted.NO, attempts=1)


class Batches:
    """Three batches, one for each partition, with four records each."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.completions = CompletionQueue(GuardedLoop(loop, print))
        context = DeliveryContext(loop, lambda _error, _count: None)
        self.results = [
            ProduceRequestResult(context, "orders", partition, 1000) for partition in range(3)
        ]
        for result in self.results:
            records = MemoryRecordsBuilder(result, 1000, 1000)
            for number in range(4):
                records.append(1000, None, b"v" * number)
            records.close()

    def acknowledge(self, *partitions: int) -> None:
        for partition in partitions:
            self.results[partition].complete(100 * partition, -1)
            self.completions.add(self.results[partition])


def by_partition(batches: Batches) -> Deliveries:
    """Return the deliveries of records that went to the partitions in turn."""
    deliveries = Deliveries()
    picks = array("H", [0, 1, 2] * 4)
    deliveries.add(12, [[[result, 0, 4]] for result in batches.results], picks)
    return deliveries


def one_by_one(batches: Batches) -> Deliveries:
    deliveries = Deliveries()
    for index in range(4):
        for result in batches.results:
            deliveries.add_one(result, index)
    return deliveries


WAYS = pytest.mark.parametrize("made", [by_partition, one_by_one])


@WAYS
async def test_a_batch_that_is_split_is_replaced_by_its_parts(made: Any) -> None:
    """Also while its records are waited for, and where a part is split again. Records that a broker names need not be neighbours."""
    batches = Batches()
    deliveries = made(batches)
    waiting = asyncio.ensure_future(deliveries.wait())
    await asyncio.sleep(0)
    outer, inner = batches.results[1].split([[0, 2], [1, 3]])
    last = outer.split([[0], [1]])
    batches.completions.add(batches.results[1])
    batches.completions.add(outer)
    batches.acknowledge(0, 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    last[0].complete(500, -1)
    last[1].fail(ERROR)
    inner.complete(600, -1)
    for result in (*last, inner):
        batches.completions.add(result)
    assert await waiting == (11, 1, 0)
    assert deliveries.first_failure()[0] == 7
    assert deliveries.offsets()[1] == (500, 601)
    assert [deliveries[at].result().offset for at in (1, 4, 10)] == [500, 600, 601]


async def test_records_of_one_batch_are_one_run_however_many_calls_added_them() -> None:
    """A block of single records is searched in bounded time: it has 1,024 of them."""
    batches = Batches()
    deliveries = Deliveries()
    result = batches.results[0]
    for index in range(2 * module._BLOCK + 1):
        deliveries.add_one(result, index)
    assert [[len(runs) for runs in block.runs] for block in deliveries._blocks] == [[1]] * 3
    for count in (3, 4):
        deliveries.add(count, [[[result, 0, count]]])
    assert len(deliveries) == 2 * module._BLOCK + 8
    assert all(before < after for before, after in pairwise(deliveries._starts))


async def test_an_error_carries_the_deliveries_of_the_records_before_it() -> None:
    """Also as the cause of the error that is caught, and where its class takes no attributes; another error has none."""
    deliveries = by_partition(Batches())

    class Frozen(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    for error in (ValueError("no"), Frozen("no")):
        deliveries.attach(error)
        outer = TimeoutError()
        outer.__cause__ = error
        assert Deliveries.of(error) is Deliveries.of(outer) is deliveries
        assert error.__notes__ == ["send_many: 12 records queued before this."]
    assert len(Deliveries.of(ValueError("other"))) == 0
