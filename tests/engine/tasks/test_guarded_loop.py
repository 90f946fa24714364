"""Callbacks in which a bug may hide, and one timer for many deadlines."""

from __future__ import annotations

import asyncio
import heapq
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aioproducer.engine.tasks.supervisor import DeadlineTimer, GuardedLoop, Supervisor
from aioproducer.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable


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

    alarm = DeadlineTimer(loop, lambda: deadlines[0] if deadlines else None, ring)
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
    alarm = DeadlineTimer(loop, lambda: deadline if not rung.done() else None, rung.set_result)
    alarm.check()
    deadline += 0.01
    assert await rung >= deadline


def test_a_timer_that_uvloop_runs_early_runs_once() -> None:
    """uvloop rounds to milliseconds: a timer for a deadline between two of them ran hundreds of times until the clock moved."""

    async def count() -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 0.0024
        rung = loop.create_future()
        asked = 0

        def earliest() -> float | None:
            nonlocal asked
            asked += 1
            return None if rung.done() else deadline

        DeadlineTimer(loop, earliest, rung.set_result).check()
        assert await rung >= deadline
        return asked

    # The check that sets the timer, the timer, and the check after it.
    assert [uvloop.run(count()) for _ in range(5)] == [3] * 5


def test_it_can_be_set_again_on_uvloop_when_it_is_due_at_once() -> None:
    """A handle of uvloop's for at once does not say when."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        rung = loop.create_future()
        deadline = loop.time()
        alarm = DeadlineTimer(loop, lambda: None if rung.done() else deadline, rung.set_result)
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
    alarm = DeadlineTimer(loop, loop.time, rung.append)
    alarm.check()
    alarm.stop()
    alarm.check()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rung == []


@pytest.mark.parametrize(
    "factory", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
@pytest.mark.parametrize("is_patient", [True, False])
def test_a_patient_one_rings_after_the_sockets_were_read(
    *, factory: Callable[[], asyncio.AbstractEventLoop], is_patient: bool
) -> None:
    """A patient timer judges after the loop has read data that arrived while another timer blocked it.

    It judges as of the time of its own timer.
    """
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        rung = loop.create_future()
        deadline = loop.time() + 0.002

        def read() -> None:
            here.recv(1)
            seen.append("read")
            loop.remove_reader(here)

        def ring(now: float) -> None:
            assert deadline <= now <= loop.time()
            seen.append("rung")
            rung.set_result(None)

        with here, there:
            loop.add_reader(here, read)
            loop.call_at(deadline - 0.001, there.send, b"x")
            DeadlineTimer(
                loop, lambda: None if rung.done() else deadline, ring, is_patient=is_patient
            ).check()
            time.sleep(0.004)  # noqa: ASYNC251  both timers are due in one turn
            await rung
            while len(seen) < 2:
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
    assert seen == (["read", "rung"] if is_patient else ["rung", "read"])


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.asyncio
async def test_a_patient_one_can_be_stopped_while_it_waits_for_the_sockets(turns: int) -> None:
    """A patient timer that is stopped in any event-loop iteration calls its callback no more."""
    loop = asyncio.get_running_loop()
    rung: list[float] = []
    deadline = loop.time()
    alarm = DeadlineTimer(
        loop, lambda: deadline if not rung else None, rung.append, is_patient=True
    )
    alarm.check()
    for _ in range(turns):
        await asyncio.sleep(0)
    alarm.stop()
    before = len(rung)
    for _ in range(6):
        await asyncio.sleep(0)
    assert len(rung) == before <= (turns > 3)


@pytest.mark.asyncio
async def test_what_a_callback_raises_is_told_and_not_raised() -> None:
    """Soon, at a time, and from elsewhere; what runs well is not touched."""
    told: list[BaseException] = []
    ran: list[Any] = []
    loop = GuardedLoop(asyncio.get_running_loop(), told.append)

    def crash(*_: object) -> None:
        raise ZeroDivisionError

    loop.call_soon(crash)
    loop.call_soon(ran.append, 1)
    loop.call_at(loop.time(), crash, "argument")
    loop.call_at(loop.time(), ran.append, 2)
    loop.guarded(crash)(7)
    loop.guarded(ran.append)(0)
    loop.call_soon(crash).cancel()
    await asyncio.sleep(0.001)
    assert ran == [0, 1, 2]
    assert [type(error) for error in told] == [ZeroDivisionError] * 3


def test_what_ends_the_loop_is_told_and_raised() -> None:
    """By a callback, at a time, or in a step of the user's, whose own exceptions are not told."""
    told: list[BaseException] = []
    loop = asyncio.new_event_loop()
    guarded = GuardedLoop(loop, told.append)

    def interrupt() -> None:
        raise KeyboardInterrupt

    guarded.call_soon(interrupt)
    guarded.call_at(loop.time(), interrupt)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
    loop.close()
    with pytest.raises(KeyboardInterrupt):
        guarded.step(interrupt)
    assert [type(error) for error in told] == [KeyboardInterrupt] * 3
    for refused in (ZeroDivisionError, asyncio.CancelledError):
        with pytest.raises(refused):
            guarded.step(_raise, refused)
    assert guarded.step(divmod, 7, 2) == (3, 1)
    assert len(told) == 3


def test_a_task_that_ends_the_loop_is_told_when_that_runs_again() -> None:
    """A task group raises KeyboardInterrupt bare. The loop gets it once."""
    told: list[BaseException] = []

    async def interrupt() -> None:
        # An eager task ends the call that makes it, otherwise.
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    async def begin() -> Supervisor:
        supervisor = Supervisor(told.append)
        await supervisor.start()
        supervisor.spawn(asyncio.sleep(1e6), "victim")
        return supervisor

    with asyncio.Runner() as runner:
        supervisor = runner.run(begin())
        loop = runner.get_loop()
        loop.call_soon(supervisor.spawn, interrupt(), "culprit")
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        runner.run(supervisor.ended())
    assert [type(error) for error in told] == [KeyboardInterrupt]


def _raise(error: type[BaseException]) -> None:
    raise error


@pytest.mark.asyncio
async def test_a_brokers_nonsense_is_no_bug() -> None:
    """It goes on to the connection, which ends."""
    told: list[BaseException] = []

    def refuse(_answer: object) -> None:
        raise ProtocolError("nonsense")

    with pytest.raises(ProtocolError):
        GuardedLoop(asyncio.get_running_loop(), told.append).guarded(refuse)(None)
    assert told == []
