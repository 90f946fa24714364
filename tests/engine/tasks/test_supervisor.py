"""The task that owns all others."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.engine.tasks.supervisor import Supervisor

pytestmark = pytest.mark.asyncio


async def for_ever() -> None:
    await asyncio.Event().wait()


async def crash() -> None:
    raise ZeroDivisionError


async def test_stop_ends_every_task_quietly() -> None:
    """Nothing is a crash; `ended` may be awaited before, after, and twice."""
    crashes: list[BaseException] = []
    supervisor = Supervisor(crashes.append)
    await supervisor.ended()
    before = asyncio.all_tasks()
    await supervisor.start()
    for number in range(3):
        supervisor.spawn(for_ever(), f"{number}")
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks() - before) == 4
    supervisor.stop()
    await supervisor.ended()
    await supervisor.ended()
    assert asyncio.all_tasks() == before
    assert crashes == []
    supervisor.spawn(for_ever(), "too late")
    assert asyncio.all_tasks() == before


async def test_a_task_that_ends_by_itself_is_no_crash() -> None:
    """The others go on."""
    crashes: list[BaseException] = []
    supervisor = Supervisor(crashes.append)
    await supervisor.start()
    supervisor.spawn(asyncio.sleep(0), "short")
    supervisor.spawn(for_ever(), "long")
    for _ in range(5):
        await asyncio.sleep(0)
    assert crashes == []
    supervisor.stop()
    await supervisor.ended()


@pytest.mark.parametrize("how", ["crash", "cancelled child", "cancelled supervisor"])
async def test_a_crash_is_told_once_when_the_others_are_gone(how: str) -> None:
    """By an exception, or cancelled from outside."""
    before = asyncio.all_tasks()
    told = asyncio.get_running_loop().create_future()
    supervisor = Supervisor(told.set_result)
    await supervisor.start()
    supervisor.spawn(for_ever(), "victim")
    await asyncio.sleep(0)
    if how == "crash":
        supervisor.spawn(crash(), "culprit")
    else:
        wanted = "aioproducer victim" if "child" in how else "aioproducer supervisor"
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == wanted]
        task.cancel()
    error = await told
    assert isinstance(error, ZeroDivisionError if how == "crash" else asyncio.CancelledError)
    await supervisor.ended()
    assert asyncio.all_tasks() == before


async def test_what_is_spawned_while_all_tasks_are_cancelled_from_outside_is_dropped() -> None:
    """As when `asyncio.run` ends: the end of one task begins another one, which has no group any more. No warning is left."""
    told = asyncio.get_running_loop().create_future()
    supervisor = Supervisor(told.set_result)
    await supervisor.start()

    async def begins_another() -> None:
        try:
            await for_ever()
        finally:
            supervisor.spawn(for_ever(), "late")

    supervisor.spawn(begins_another(), "early")
    await asyncio.sleep(0)
    mine = asyncio.current_task()
    for task in asyncio.all_tasks() - {mine}:
        task.cancel()
    assert isinstance(await told, asyncio.CancelledError)
    await supervisor.ended()
    assert asyncio.all_tasks() == {mine}
