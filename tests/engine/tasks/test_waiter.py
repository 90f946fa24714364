"""One task's wait: settled in the step in which what it waits for happens, and ended by the loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer.engine.tasks.waiter import Waiter


async def wait_for(waiter: Waiter, log: list[str]) -> None:
    await waiter
    log.append("ran")


@pytest.mark.asyncio
async def test_the_loop_runs_the_task() -> None:
    """Never the step that wakes it, which may be one of another task."""
    loop = asyncio.get_running_loop()
    waiter, log = Waiter(loop), list[str]()
    task = asyncio.create_task(wait_for(waiter, log))
    await asyncio.sleep(0)
    log.append("wake")
    waiter.wake()
    log.append("woken")
    waiter.wake()
    await task
    assert log == ["wake", "woken", "ran"]
    assert waiter.done()
    assert not waiter.cancelled()
    assert not waiter.cancel()


@pytest.mark.asyncio
async def test_a_cancellation_between_its_wake_and_its_step_comes_after_it() -> None:
    """The task runs on after its wait first, since the event has happened. Then the cancellation ends it."""
    waiter, log = Waiter(asyncio.get_running_loop()), list[str]()

    async def work() -> None:
        await wait_for(waiter, log)
        await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    waiter.wake()
    task.cancel()
    assert waiter.is_settled
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["ran"]


@pytest.mark.asyncio
async def test_a_waiter_that_was_cancelled_is_not_woken() -> None:
    """The cancelled task ends with CancelledError in the next event-loop iteration."""
    waiter, log = Waiter(asyncio.get_running_loop()), list[str]()
    task = asyncio.create_task(wait_for(waiter, log))
    await asyncio.sleep(0)
    task.cancel()
    assert waiter.cancelled()
    asyncio.get_running_loop().call_soon(waiter.wake)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == []


@pytest.mark.asyncio
async def test_who_comes_late_does_not_wait() -> None:
    """A waiter that was woken or cancelled before the first await ends that await at once."""
    woken, cancelled = (Waiter(asyncio.get_running_loop()) for _ in range(2))
    with pytest.raises(asyncio.InvalidStateError):
        woken.result()
    woken.wake()
    cancelled.cancel()
    await woken
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    seen: list[Any] = []
    woken.add_done_callback(seen.append)
    await asyncio.sleep(0)
    assert seen == [woken]
    assert woken.get_loop() is asyncio.get_running_loop()


@pytest.mark.asyncio
async def test_its_callback_can_be_taken_back() -> None:
    """It then is not called."""
    waiter, seen = Waiter(asyncio.get_running_loop()), list[Any]()
    waiter.add_done_callback(seen.append)
    assert waiter.remove_done_callback(print) == 0
    assert waiter.remove_done_callback(seen.append) == 1
    waiter.wake()
    await asyncio.sleep(0)
    assert seen == []


@pytest.mark.asyncio
async def test_a_cancellation_that_comes_once_it_is_settled_is_told_after_it() -> None:
    """The event has happened, so the task returns from its wait. Its next await raises the cancellation."""
    loop, log = asyncio.get_running_loop(), list[str]()
    waiter = Waiter(loop)

    async def work() -> None:
        await wait_for(waiter, log)
        await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    waiter.settle()
    assert waiter.done()
    assert task.cancel()
    assert not waiter.cancelled()
    assert log == []
    loop.call_soon(waiter.wake)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["ran"]
    assert task.cancelling() == 1


@pytest.mark.asyncio
async def test_a_late_cancellation_may_be_taken_back_meanwhile() -> None:
    """The task takes the cancellation back, as a time-out does if its block ended well all the same."""
    loop = asyncio.get_running_loop()
    waiter, over = Waiter(loop), loop.create_future()

    async def work() -> str:
        await waiter
        task = asyncio.current_task()
        assert task is not None
        assert task.uncancel() == 0
        await over
        return "not cancelled"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    waiter.settle()
    task.cancel()
    loop.call_soon(waiter.wake)
    for _ in range(5):
        await asyncio.sleep(0)
    over.set_result(None)
    assert await task == "not cancelled"


@pytest.mark.asyncio
async def test_a_late_cancellation_of_a_task_that_ends_meanwhile_changes_nothing() -> None:
    """It has what it waited for, and gives it back."""
    loop, log = asyncio.get_running_loop(), list[str]()
    waiter = Waiter(loop)
    task = asyncio.create_task(wait_for(waiter, log))
    await asyncio.sleep(0)
    waiter.settle()
    task.cancel()
    loop.call_soon(waiter.wake)
    await task
    await asyncio.sleep(0)
    assert not task.cancelled()
    assert log == ["ran"]


@pytest.mark.asyncio
async def test_what_was_cancelled_before_the_wait_is_not_told_again() -> None:
    """A task that cleans up after a cancellation, within a time-out that is taken back."""
    loop = asyncio.get_running_loop()
    waiter, over = Waiter(loop), loop.create_future()

    async def work() -> str:
        task = asyncio.current_task()
        assert task is not None
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await waiter
        task.uncancel()
        await over
        return "cleaned up"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    waiter.settle()
    task.cancel()
    loop.call_soon(waiter.wake)
    for _ in range(5):
        await asyncio.sleep(0)
    over.set_result(None)
    assert await task == "cleaned up"


@pytest.mark.asyncio
async def test_a_late_cancellation_that_comes_too_late_again_is_told_after_that() -> None:
    """With its own words, once the task waits for something that is still to come."""
    loop, log = asyncio.get_running_loop(), list[str]()
    waiters = [Waiter(loop), Waiter(loop)]

    async def work() -> None:
        for waiter in waiters:
            await wait_for(waiter, log)
        await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    waiters[0].settle()
    task.cancel("enough")
    loop.call_soon(waiters[0].wake)
    loop.call_soon(waiters[1].settle)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    loop.call_soon(waiters[1].wake)
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert raised.value.args == ("enough",)
    assert log == ["ran", "ran"]
    assert task.cancelling() == 1
