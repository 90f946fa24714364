"""One timer for many deadlines."""

from __future__ import annotations

import asyncio
import heapq

import pytest
import uvloop

from aioproducer.engine.alarm import Alarm


@pytest.mark.asyncio
async def test_it_rings_for_each_deadline_in_turn() -> None:
    """Also for one that was set earlier than the one at hand; never before its time, and with one timer at a time."""
    loop = asyncio.get_running_loop()
    deadlines: list[float] = []
    rung: list[float] = []
    done = asyncio.Event()

    def ring(now: float) -> None:
        assert now >= deadlines[0]
        rung.append(heapq.heappop(deadlines))
        if not deadlines:
            done.set()

    alarm = Alarm(loop, lambda: deadlines[0] if deadlines else None, ring)
    alarm.check()
    began = loop.time()
    wanted = [began + late for late in (0.006, 0.002, 0.004, 0.002)]
    for when in wanted:
        heapq.heappush(deadlines, when)
        alarm.check()
    await done.wait()
    assert rung == sorted(wanted)


@pytest.mark.asyncio
async def test_a_deadline_that_was_put_off_does_not_ring_at_its_old_time() -> None:
    """It is asked again when the timer comes."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 0.001
    rung = loop.create_future()
    alarm = Alarm(loop, lambda: deadline if not rung.done() else None, rung.set_result)
    alarm.check()
    deadline += 0.01
    assert await rung >= deadline


def test_it_can_be_set_again_on_uvloop_when_it_is_due_at_once() -> None:
    """A handle of uvloop's for at once does not say when."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        rung = loop.create_future()
        deadline = loop.time()
        alarm = Alarm(loop, lambda: None if rung.done() else deadline, rung.set_result)
        alarm.check()
        deadline -= 1
        alarm.check()
        await rung

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.asyncio
async def test_once_stopped_it_never_rings() -> None:
    """Nor can it be set again."""
    loop = asyncio.get_running_loop()
    rung: list[float] = []
    alarm = Alarm(loop, loop.time, rung.append)
    alarm.check()
    alarm.stop()
    alarm.check()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rung == []
