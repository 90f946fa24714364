"""Sends that an exception of a signal handler ends somewhere: Ctrl-C in a notebook's cell, a soft time limit of celery, an alarm."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from builds import BUILDS, producer_on
from scenarios.whole import jumping

from aioproducer import Producer
from aioproducer.engine.observability.metrics_recorder import Recorder
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from types import FrameType


class Alarm:
    """Raises KeyboardInterrupt at the n-th call of a Python function, which is where the interpreter runs signal handlers."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def trace(self, _frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    def __enter__(self) -> None:
        # Coverage may have one.
        self.before = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)


# One of the calls is that of a generator which is closed: what it raises goes to stderr.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("linger", [0, 5])
@pytest.mark.parametrize("build", BUILDS)
@jumping
async def test_an_interrupted_send_holds_up_no_later_one(build: Any, linger: int) -> None:
    """Wherever it was interrupted. A drain counted as scheduled, so that no record left any more; or the producer failed with a KeyError."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with producer_on(build)(linger_ms=linger, close_timeout_ms=1000, **cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"first")
            interrupted, calls, before = True, 0, asyncio.get_running_loop().time()
            while interrupted:
                calls += 1
                try:
                    with Alarm(calls):
                        producer.send_nowait("orders", b"interrupted")
                    interrupted = False
                except KeyboardInterrupt:
                    pass
                await producer.send_and_wait("orders", b"next")
                await producer.flush()
            assert calls > 3
            assert asyncio.get_running_loop().time() - before < 0.02 * calls
        assert cluster.values("orders").count(b"next") == calls


def test_an_interrupted_answer_wakes_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the loop while an answer is taken in. Once the loop runs again, the task of the acknowledged record continues."""
    answered = Recorder.answered

    def interrupt(*_: object) -> None:
        monkeypatch.setattr(Recorder, "answered", answered)
        raise KeyboardInterrupt

    async def main() -> None:
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders")
            async with Producer(**cluster.client_options) as producer:
                monkeypatch.setattr(Recorder, "answered", interrupt)
                assert (await asyncio.wait_for(producer.send_and_wait("orders", b"value"), 1)).offset == 0

    loop = JumpingLoop()
    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    loop.run_until_complete(task)
    loop.close()
