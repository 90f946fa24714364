"""One task's wait that ends in the step that ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer.engine.waiter import Waiter


async def wait_for(waiter: Waiter, log: list[str]) -> None:
    await waiter
    log.append("ran")


@pytest.mark.asyncio
async def test_waking_runs_the_task_in_that_same_step() -> None:
    """No turn of the loop lies between, in which the task could be cancelled."""
    loop = asyncio.get_running_loop()
    waiter, log = Waiter(loop), list[str]()
    task = asyncio.create_task(wait_for(waiter, log))
    await asyncio.sleep(0)

    def wake() -> None:
        log.append("wake")
        waiter.wake()
        log.append("woken")
        waiter.wake()

    loop.call_soon(wake)
    await task
    assert log == ["wake", "ran", "woken"]
    assert waiter.done()
    assert not waiter.cancelled()
    assert not waiter.cancel()


@pytest.mark.asyncio
async def test_a_waiter_that_was_cancelled_is_not_woken() -> None:
    """The task ends with CancelledError, in the next turn."""
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
    """Woken or cancelled before anybody awaited it."""
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
