"""Tests of `buffer_memory` and of the wait queues of pending sends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioproducer.engine.memory.buffer_pool import BufferPool, PendingSend, WaitQueue

if TYPE_CHECKING:
    from collections.abc import Sequence


def line_of(*numbers: int) -> tuple[WaitQueue, list[PendingSend]]:
    line = WaitQueue()
    everybody = []
    for number in numbers:
        record = PendingSend("orders", value=b"v", size=number)
        record.park(asyncio.get_running_loop(), number, "", 0.0)
        line.push(record)
        everybody.append(record)
    return line, everybody


def numbers_of(records: Sequence[PendingSend] | WaitQueue) -> list[int]:
    return [record.number for record in records]


def test_the_pool_gives_what_it_has_and_no_more() -> None:
    """Taking fails rather than waits; overhead found later may go below zero; giving back too much is a bug."""
    pool = BufferPool(100)
    assert pool.try_take(60)
    assert not pool.try_take(41)
    assert pool.try_take(40)
    pool.take(10)
    assert pool.available == -10
    assert not pool.try_take(0)
    pool.release(110)
    assert repr(pool) == "<BufferPool 100 of 100 bytes free>"
    with pytest.raises(AssertionError, match="more was given back"):
        pool.release(1)


@pytest.mark.asyncio
async def test_a_line_passes_over_those_that_were_cancelled() -> None:
    """At its head, in its middle, at its end; they count for nothing."""
    line, everybody = line_of(0, 1, 2, 3, 4)
    for gone in (0, 2, 4):
        assert everybody[gone].waiter is not None
        everybody[gone].waiter.cancel()
    assert len(line) == 2
    assert numbers_of(line) == [1, 3]
    assert line.head() is everybody[1]
    line.pop().leave()
    assert line.head() is everybody[3]
    assert line.take_all() == [everybody[3]]
    assert not line
    assert line.head() is None


@pytest.mark.asyncio
async def test_two_lines_become_one_in_the_order_of_the_calls() -> None:
    """The merge orders the pending sends by their calls: the earliest call is first."""
    line, _ = line_of(1, 4, 5)
    _, others = line_of(0, 2, 6)
    line.merge(others)
    assert numbers_of(line) == [0, 1, 2, 4, 5, 6]
    line.merge([])
    assert len(line) == 6


@pytest.mark.asyncio
async def test_a_wait_ends_with_what_it_was_given() -> None:
    """The record left with a delivery or with an error; its bytes are let go."""
    _, (served, refused) = line_of(0, 1)
    tasks = [asyncio.create_task(record.wait()) for record in (served, refused)]
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    loop.call_soon(served.leave().wake)
    loop.call_soon(refused.leave(error=ZeroDivisionError()).wake)
    assert not served.is_waiting
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[0] is None
    assert isinstance(outcomes[1], ZeroDivisionError)
    assert served.value is refused.value is None


@pytest.mark.asyncio
async def test_a_cancelled_wait_is_out_of_the_line_at_once() -> None:
    """A cancelled send leaves the wait queue before its task runs again, so that the pool cannot serve it in between."""
    line, (record,) = line_of(0)
    task = asyncio.create_task(record.wait())
    await asyncio.sleep(0)
    task.cancel()
    assert not line
    with pytest.raises(asyncio.CancelledError):
        await task
    assert record.value is None
