"""Tests of `aioproducer.net.threads`: calls that hang, fail, or are abandoned."""

from __future__ import annotations

import asyncio
import threading

import pytest
from jumping import jumping

from aioproducer.net.threads import SlowCalls


def test_calls_that_hang_take_four_threads_and_hold_up_no_loop() -> None:
    """Their callers give up; later calls wait for a place; `asyncio.run` ends while they hang."""
    release, threads = threading.Event(), list[threading.Thread]()

    def hang() -> None:
        threads.append(threading.current_thread())
        release.wait(60)

    async def main() -> None:
        calls = SlowCalls()
        for _ in range(6):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await calls.run(hang)
        assert len(threads) == 4

    asyncio.run(main())
    assert all(thread.is_alive() for thread in threads)
    release.set()
    for thread in threads:
        thread.join(60)


@pytest.mark.asyncio
async def test_a_place_is_free_again_when_an_abandoned_call_returns() -> None:
    release, calls = threading.Event(), SlowCalls()
    hanging = [asyncio.ensure_future(calls.run(lambda: release.wait(60))) for _ in range(4)]
    waiting = asyncio.ensure_future(calls.run(lambda: 7))
    await asyncio.sleep(0.05)
    for call in hanging:
        call.cancel()
    await asyncio.sleep(0.05)
    assert not waiting.done()
    release.set()
    assert await waiting == 7


@pytest.mark.asyncio
async def test_results_and_errors() -> None:
    calls = SlowCalls()

    def fail() -> None:
        raise StopIteration

    assert await calls.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await calls.run(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await calls.run(fail)


@jumping
async def test_in_virtual_time_the_call_is_made_at_once() -> None:
    assert await SlowCalls().run(threading.current_thread) is threading.current_thread()
