"""Tests of the loops with virtual time that the tests run on: asyncio's and uvloop's behave alike."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from loops import JumpingUvloop

from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

Jumping = JumpingLoop | JumpingUvloop


@pytest.fixture(params=[JumpingLoop, JumpingUvloop])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as made:
        yield made


def loop_of(runner: asyncio.Runner) -> Jumping:
    loop = runner.get_loop()
    assert isinstance(loop, (JumpingLoop, JumpingUvloop))
    return loop


def test_timers_run_in_order_at_their_exact_times(runner: asyncio.Runner) -> None:
    """A cancelled timer does not run, nor does its time pass."""
    loop = loop_of(runner)
    rang: list[tuple[str, float]] = []

    async def main() -> None:
        for name, after in (("third", 3600.25), ("first", 0.0001), ("second", 60)):
            loop.call_later(after, lambda name=name: rang.append((name, loop.time() - 1000)))
        loop.call_later(7200, rang.append, ("cancelled", 0)).cancel()
        await asyncio.sleep(3601)
        loop.call_soon(rang.append, ("ready", 0))
        loop.call_at(loop.time(), rang.append, ("at once", 0))
        await asyncio.sleep(0.1)

    runner.run(main())
    assert rang == [("first", pytest.approx(0.0001)), ("second", 60), ("third", 3600.25), ("ready", 0), ("at once", 0)]
    assert loop.time() == pytest.approx(1000 + 3601.1)


def test_time_stands_while_a_callback_is_ready(runner: asyncio.Runner) -> None:
    """Also one that a call from another thread, or from a finalizer in this one, has made ready."""
    loop = loop_of(runner)

    async def main() -> float:
        loop.call_later(0.001, lambda: None)
        for _ in range(1000):
            await asyncio.sleep(0)
        for _ in range(10):
            ready = loop.create_future()
            loop.call_soon_threadsafe(ready.set_result, None)
            await ready
        return loop.time()

    assert runner.run(main()) == 1000


def test_a_timer_that_sets_itself_for_now_holds_up_no_callback(runner: asyncio.Runner) -> None:
    """As the timer of a deadline that has passed while its batch cannot leave yet."""
    loop = loop_of(runner)

    async def main() -> float:
        stopped = loop.create_future()

        def again() -> None:
            if not stopped.done():
                loop.call_at(loop.time(), again)

        loop.call_later(1, again)
        loop.call_later(1, lambda: loop.call_soon(stopped.set_result, None))
        await stopped
        return loop.time()

    assert runner.run(main()) == 1001


def test_time_that_passes_without_callbacks_makes_timers_late(runner: asyncio.Runner) -> None:
    """The clock does not go back to the timer's time."""
    loop = loop_of(runner)

    async def main() -> float:
        rang = loop.create_future()
        loop.call_later(10, lambda: rang.set_result(loop.time()))
        loop.advance(40)
        return float(await rang)

    assert runner.run(main()) == 1040


def test_a_deadlock_ends_the_run(runner: asyncio.Runner) -> None:
    """The loop can run again afterwards."""
    with pytest.raises(RuntimeError, match="deadlock"):
        runner.run(asyncio.Event().wait())
    assert runner.run(asyncio.sleep(5, "rested")) == "rested"


def test_a_closed_loop_takes_no_timer(runner: asyncio.Runner) -> None:
    """As any other loop."""
    loop = loop_of(runner)
    runner.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)


@pytest.mark.parametrize("least", [None, 0.1])
def test_a_slow_step_is_a_warning_where_a_test_asks_for_it(least: float | None, caplog: pytest.LogCaptureFixture) -> None:
    """In asyncio's debug mode."""
    with asyncio.Runner(debug=True, loop_factory=JumpingLoop) as runner:
        loop = loop_of(runner)
        if least is not None:
            loop.slow_callback_duration = least
        loop.call_soon(loop.advance, 30)
        runner.run(asyncio.sleep(0))
    told = [record.getMessage().rpartition(" took ")[2] for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ([] if least is None else ["30.000 seconds"])
