"""Tests of `aioproducer.engine.memory.pending_send`: the wait of one send, and its cancellation at any moment."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from aioproducer.engine.memory.buffer_pool import BufferPool
from aioproducer.engine.memory.pending_send import FOR_MEMORY, PendingSend, first, sort_by_call

on_condition_and_future = pytest.mark.parametrize("sleeps_in_pool", [True, False])


def pending_send(*, sleeps_in_pool: bool = True) -> PendingSend:
    pending = PendingSend("orders", value=b"v")
    pending.begin(asyncio.get_running_loop(), FOR_MEMORY)
    pending.pool = BufferPool(1000, lambda: None) if sleeps_in_pool else None
    return pending


async def wait_for(pending: PendingSend, log: list[str]) -> None:
    await pending.wait()
    log.append("ran")


# The wait


@on_condition_and_future
@pytest.mark.asyncio
async def test_the_loop_runs_the_task(*, sleeps_in_pool: bool) -> None:
    """Never the step that notifies it, which may be one of another task."""
    pending, log = pending_send(sleeps_in_pool=sleeps_in_pool), list[str]()
    task = asyncio.create_task(wait_for(pending, log))
    await asyncio.sleep(0)
    log.append("settle")
    pending.settle("a delivery")
    pending.go_on()
    log.append("goes on")
    pending.go_on()
    await task
    assert log == ["settle", "goes on", "ran"]
    assert not pending.is_waiting


@on_condition_and_future
@pytest.mark.parametrize("is_queued", [True, False])
@pytest.mark.asyncio
async def test_a_wait_whose_coroutine_is_closed_ends(
    *, sleeps_in_pool: bool, is_queued: bool
) -> None:
    """The interpreter closes the coroutine of a task that its loop no longer runs. Who waits for the end hears of it."""
    pending = pending_send(sleeps_in_pool=sleeps_in_pool)
    done, pending.placed = pending.done, asyncio.get_running_loop().create_future()
    waiting = pending.wait()
    waiting.send(None)
    if is_queued:
        pending.settle("a delivery")
    assert pending.placed.done() == is_queued
    waiting.close()
    assert done is not None
    assert done.cancelled()
    assert pending.placed.done()
    assert not pending.is_waiting
    assert pending.value is None


@on_condition_and_future
@pytest.mark.asyncio
async def test_who_may_go_on_before_it_waits_does_not_wait(*, sleeps_in_pool: bool) -> None:
    """A serializer that is prepared in the step of the call."""
    pending = pending_send(sleeps_in_pool=sleeps_in_pool)
    pending.settle("a delivery")
    pending.go_on()
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    assert await pending.wait() == "a delivery"
    assert not turned.done(), "it waited for an iteration of the loop"


@on_condition_and_future
@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.asyncio
async def test_what_follows_the_state_hears_how_the_send_ended(
    *, sleeps_in_pool: bool, is_late: bool
) -> None:
    """Interceptors and threads: a cancellation that comes too late takes the delivery from nobody."""
    pending = pending_send(sleeps_in_pool=sleeps_in_pool)
    assert pending.done is not None
    heard: list[object] = []
    pending.done.add_done_callback(
        lambda done: heard.append(pending.delivery if done.cancelled() else done.result())
    )
    task = asyncio.create_task(pending.wait())
    await asyncio.sleep(0)
    if is_late:
        pending.settle("a delivery")
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert heard == ["a delivery" if is_late else None]


# Its cancellation


@on_condition_and_future
@pytest.mark.parametrize("when", ["notified", "served", "before"])
@pytest.mark.asyncio
async def test_a_cancellation_between_its_service_and_its_step_comes_after_it(
    *, sleeps_in_pool: bool, when: str
) -> None:
    """The task returns from its wait first, since the record is appended. Then the cancellation ends it, at its next await.

    That holds also for a record that is appended after the request for the cancellation: the task has not run since.
    """
    pending, log = pending_send(sleeps_in_pool=sleeps_in_pool), list[str]()

    async def work() -> None:
        assert await pending.wait() == "a delivery"
        log.append("ran")
        await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    if when == "before":
        task.cancel("enough")
    pending.settle("a delivery")
    if when != "served":
        pending.go_on()
    if when != "before":
        task.cancel("enough")
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert raised.value.args == ("enough",)
    assert log == ["ran"]
    assert task.cancelling() == 1


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
    pending.settle("a delivery")
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
    pending.settle("a delivery")
    await task
    assert log == ["ran", "timed out"]
    assert task.cancelling() == 0


@pytest.mark.asyncio
async def test_a_late_cancellation_of_a_task_that_ends_meanwhile_changes_nothing() -> None:
    """It has what it waited for, and gives it back."""
    pending, log = pending_send(), list[str]()
    task = asyncio.create_task(wait_for(pending, log))
    await asyncio.sleep(0)
    pending.settle("a delivery")
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
    pending.settle("a delivery")
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    over.set_result(None)
    assert await task == "cleaned up"


@on_condition_and_future
@pytest.mark.asyncio
async def test_a_late_cancellation_that_comes_too_late_again_is_told_after_that(
    *, sleeps_in_pool: bool
) -> None:
    """With its own words, once the task waits for something that is still to come."""
    loop, log = asyncio.get_running_loop(), list[str]()
    sends = [pending_send(sleeps_in_pool=sleeps_in_pool) for _ in range(2)]

    async def work() -> None:
        for pending in sends:
            await wait_for(pending, log)
        await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    sends[0].settle("a delivery")
    task.cancel("enough")
    loop.call_soon(sends[1].settle, "a delivery")
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    loop.call_soon(sends[1].go_on)
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert raised.value.args == ("enough",)
    assert log == ["ran", "ran"]
    assert task.cancelling() == 1


# Wait queues


@pytest.mark.asyncio
async def test_those_that_have_left_are_passed_over_in_call_order() -> None:
    """A send that was given up, cancelled or queued is removed once it is first."""
    sends = [pending_send() for _ in range(5)]
    queue = deque([sends[3], sends[0], sends[4], sends[1], sends[2]])
    sort_by_call(queue)
    assert list(queue) == sends
    sends[0].settle("a delivery")
    sends[1].settle(error=ValueError())
    sends[1].go_on()
    assert sends[3].done is not None
    sends[3].done.cancel()
    assert first(queue) is sends[2]
    assert list(queue) == sends[2:]
    sends[2].go_on()
    assert first(queue) is sends[4]
    sends[4].go_on()
    assert first(queue) is None
