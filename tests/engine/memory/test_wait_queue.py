"""Tests of `aioproducer.engine.memory.wait_queue`: the wait of one send, its cancellation at any moment, and the order of a wait queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioproducer.engine.memory.wait_queue import FOR_LOOP_BUDGET, FOR_MEMORY, PendingSend, WaitQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

on_condition_and_future = pytest.mark.parametrize("reason", [FOR_MEMORY, FOR_LOOP_BUDGET])


def pending_send(number: int = 0, reason: str = FOR_MEMORY) -> PendingSend:
    pending = PendingSend("orders", value=b"v", size=number)
    pending.join(number, reason, 0.0)
    return pending


def queue_of(*numbers: int) -> tuple[WaitQueue, list[PendingSend]]:
    queue = WaitQueue()
    everybody = [pending_send(number) for number in numbers]
    for pending in everybody:
        queue.push(pending)
    return queue, everybody


def numbers_of(records: Sequence[PendingSend] | WaitQueue) -> list[int]:
    return [record.number for record in records]


async def wait_for(pending: PendingSend, log: list[str]) -> None:
    await pending.wait()
    log.append("ran")


# The wait


@on_condition_and_future
@pytest.mark.asyncio
async def test_the_loop_runs_the_task(reason: str) -> None:
    """Never the step that notifies it, which may be one of another task."""
    pending, log = pending_send(reason=reason), list[str]()
    task = asyncio.create_task(wait_for(pending, log))
    await asyncio.sleep(0)
    log.append("complete")
    pending.complete()
    pending.notify()
    log.append("notified")
    pending.notify()
    await task
    assert log == ["complete", "notified", "ran"]
    assert pending.is_served
    assert not pending.is_waiting


@on_condition_and_future
@pytest.mark.parametrize("is_served", [True, False])
@pytest.mark.asyncio
async def test_a_wait_whose_coroutine_is_closed_is_reported_once(
    reason: str, *, is_served: bool
) -> None:
    """The interpreter closes the coroutine of a task that its loop no longer runs. What reports the end is let go with the record."""
    pending, reports = pending_send(reason=reason), list[object]()
    pending.on_left = lambda delivery, error: reports.append(delivery or type(error))
    waiting = pending.wait()
    waiting.send(None)
    if is_served:
        pending.complete("a delivery")
    waiting.close()
    assert reports == ["a delivery" if is_served else GeneratorExit]
    assert not pending.is_waiting
    assert pending.value is pending.on_left is None


@pytest.mark.asyncio
async def test_who_was_served_before_it_waits_does_not_wait() -> None:
    """A flush awaits its marks one after another."""
    pending = pending_send()
    pending.complete()
    pending.notify()
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await pending.wait()
    assert not turned.done(), "it waited for an iteration of the loop"


@pytest.mark.asyncio
async def test_a_notification_of_one_that_was_not_served_wakes_nobody() -> None:
    """The task looks whether it was served, and waits on."""
    pending, log = pending_send(), list[str]()
    task = asyncio.create_task(wait_for(pending, log))
    await asyncio.sleep(0)
    pending.notify()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    pending.complete()
    pending.notify()
    await task


# Its cancellation


@on_condition_and_future
@pytest.mark.parametrize("when", ["notified", "served", "before"])
@pytest.mark.asyncio
async def test_a_cancellation_between_its_service_and_its_step_comes_after_it(
    reason: str, when: str
) -> None:
    """The task returns from its wait first, since the record is appended. Then the cancellation ends it, at its next await.

    That holds also for a record that is appended after the request for the cancellation: the task has not run since.
    """
    pending, log = pending_send(reason=reason), list[str]()

    async def work() -> None:
        await wait_for(pending, log)
        await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    if when == "before":
        task.cancel("enough")
    pending.complete("a delivery")
    if when != "served":
        pending.notify()
    if when != "before":
        task.cancel("enough")
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert raised.value.args == ("enough",)
    assert log == ["ran"]
    assert task.cancelling() == 1
    assert pending.delivery == "a delivery"


@pytest.mark.asyncio
async def test_a_late_cancellation_may_be_taken_back_meanwhile() -> None:
    """The task takes the cancellation back, as a time-out does if its block ended well all the same."""
    pending, over = pending_send(), asyncio.get_running_loop().create_future()

    async def work() -> str:
        await pending.wait()
        task = asyncio.current_task()
        assert task is not None
        assert task.uncancel() == 0
        await over
        return "not cancelled"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    pending.complete()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    over.set_result(None)
    assert await task == "not cancelled"


@pytest.mark.asyncio
async def test_a_time_out_around_the_wait_that_comes_late_is_over_with_it() -> None:
    """The send has succeeded, and what comes after it within the time-out is ended by it."""
    loop, pending, log = asyncio.get_running_loop(), pending_send(), list[str]()

    async def work() -> None:
        try:
            async with asyncio.timeout(None) as scope:
                loop.call_soon(scope.reschedule, loop.time())
                await wait_for(pending, log)
                await asyncio.sleep(60)
        except TimeoutError:
            log.append("timed out")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    pending.complete()
    await task
    assert log == ["ran", "timed out"]
    assert task.cancelling() == 0


@pytest.mark.asyncio
async def test_a_late_cancellation_of_a_task_that_ends_meanwhile_changes_nothing() -> None:
    """It has what it waited for, and gives it back."""
    pending, log = pending_send(), list[str]()
    task = asyncio.create_task(wait_for(pending, log))
    await asyncio.sleep(0)
    pending.complete()
    task.cancel()
    await task
    await asyncio.sleep(0)
    assert not task.cancelled()
    assert log == ["ran"]


@pytest.mark.asyncio
async def test_what_was_cancelled_before_the_wait_is_not_told_again() -> None:
    """A task that cleans up after a cancellation, within a time-out that is taken back."""
    pending, over = pending_send(), asyncio.get_running_loop().create_future()

    async def work() -> str:
        task = asyncio.current_task()
        assert task is not None
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await pending.wait()
        task.uncancel()
        await over
        return "cleaned up"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    pending.complete()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    over.set_result(None)
    assert await task == "cleaned up"


@on_condition_and_future
@pytest.mark.asyncio
async def test_a_late_cancellation_that_comes_too_late_again_is_told_after_that(
    reason: str,
) -> None:
    """With its own words, once the task waits for something that is still to come."""
    loop, log = asyncio.get_running_loop(), list[str]()
    sends = [pending_send(0, reason), pending_send(1, reason)]

    async def work() -> None:
        for pending in sends:
            await wait_for(pending, log)
        await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    sends[0].complete()
    task.cancel("enough")
    loop.call_soon(sends[1].complete)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    loop.call_soon(sends[1].notify)
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert raised.value.args == ("enough",)
    assert log == ["ran", "ran"]
    assert task.cancelling() == 1


@pytest.mark.asyncio
async def test_a_late_cancellation_takes_the_next_send_out_of_its_queue() -> None:
    """At once: were its record appended before its task runs, the cancellation would be late again, perhaps for ever."""
    log = list[str]()
    queue, sends = queue_of(0, 1)

    async def work() -> None:
        for pending in sends:
            await wait_for(pending, log)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    queue.pop().complete()
    task.cancel()
    seen = []
    for _ in range(3):
        await asyncio.sleep(0)
        seen.append((bool(queue), task.done()))
    assert (False, False) in seen
    assert task.cancelled()
    assert log == ["ran"]


# The queue


def test_a_queue_passes_over_those_that_were_cancelled() -> None:
    """At its head, in its middle, at its end; they count for nothing."""
    queue, everybody = queue_of(0, 1, 2, 3, 4)
    for gone in (0, 2, 4):
        everybody[gone].is_waiting = False
    assert len(queue) == 2
    assert numbers_of(queue) == [1, 3]
    assert queue.head() is everybody[1]
    queue.pop().complete()
    assert queue.head() is everybody[3]
    assert queue.take_all() == [everybody[3]]
    assert not queue
    assert queue.head() is None


def test_two_queues_become_one_in_the_order_of_the_calls() -> None:
    """The merge orders the pending sends by their calls: the earliest call is first."""
    queue, _ = queue_of(1, 4, 5)
    _, others = queue_of(0, 2, 6)
    queue.merge(others)
    assert numbers_of(queue) == [0, 1, 2, 4, 5, 6]
    queue.merge([])
    assert len(queue) == 6
