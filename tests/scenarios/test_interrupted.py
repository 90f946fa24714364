"""KeyboardInterrupt between any two lines of the engine, as by a second Ctrl-C: the producer fails as a whole, and nothing hangs.

The loop runs again after it, as in a notebook's next cell. A producer that was hit outside the engine's own work may run on.

The variable AIOPRODUCER_INTERRUPTS makes the nets finer, by hand: 14 tries every 7th call, which takes two minutes.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from builds import BUILDS, plain, producer_on

import aioproducer
from aioproducer import KafkaError, ProducerClosed
from aioproducer.engine.tasks.supervisor import GuardedLoop
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType

FINENESS = int(os.environ.get("AIOPRODUCER_INTERRUPTS", "1"))
FOLDERS = tuple(
    str(pathlib.Path(aioproducer.__file__).parent / folder) + os.sep
    for folder in ("core", "engine", "net", "records")
)
# Sends wait for memory.
SHORT = {"buffer_memory": 7_000, "batch_size": 1_000, "linger_ms": 0}
WAYS: dict[str, dict[str, Any]] = {
    "short of memory": SHORT,
    "compressed": {**SHORT, "compression_type": "gzip"},
    "not acknowledged": {**SHORT, "acks": 0, "enable_idempotence": False},
    "lingering": {"linger_ms": 5},
    "too large": {"linger_ms": 5, "batch_size": 1_000, "batch_max_size": 1_000},
}
# Bytes of a batch that the broker takes, if not its usual.
LIMITS = {"too large": 600}
# What is called within these fails the producer.
GUARDED = frozenset({"GuardedLoop.run", "GuardedLoop.step", "Admission.submit", "Runtime.stop"})
# Seconds of virtual time: what takes longer hangs.
LONG = 100


class Call:
    """Raises KeyboardInterrupt at the n-th call of a function of the engine; 0: never. Counts the calls.

    But not before a callback of the loop's begins: asyncio loses that one, as it may lose any.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0
        self.where = ""
        self.is_guarded = False

    def set(self) -> None:
        sys.setprofile(self._notice)

    def _notice(self, frame: FrameType, event: str, _arg: object) -> None:
        if (
            event == "call"
            and frame.f_code.co_filename.startswith(FOLDERS)
            and not (frame.f_code is GuardedLoop.run.__code__ and _is_loops(frame.f_back))
        ):
            self.count += 1
            if self.count == self.at:
                sys.setprofile(None)
                stack = list(_stack(frame))
                self.where = " < ".join(map(_name, stack[:8]))
                self.is_guarded = any(one.f_code.co_qualname in GUARDED for one in stack[1:])
                raise KeyboardInterrupt

    def stop(self) -> None:
        sys.setprofile(None)


def _is_loops(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code is asyncio.Handle._run.__code__


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _name(frame: FrameType) -> str:
    return f"{pathlib.Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"


class Signal:
    """Raises KeyboardInterrupt by a signal, after so many seconds of work."""

    def __init__(self, seconds: float) -> None:
        self.where = f"{seconds} s"
        self.is_guarded = False
        self._left = seconds

    def set(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, self._left)

    def stop(self) -> None:
        self._left, _ = signal.setitimer(signal.ITIMER_VIRTUAL, 0)


class Program:
    """Sends, waits for deliveries, flushes and stops until the alarm, after which it goes on."""

    def __init__(self, build: Any, way: str, alarm: Call | Signal) -> None:
        self.build = build
        self.way = way
        self.alarm = alarm
        self.was_hit = False
        self.deliveries: list[Any] = []
        self.called: list[Any] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.loop = JumpingLoop()
        asyncio.set_event_loop(self.loop)

    def run(self, *, only_stops: bool = False) -> None:
        """Run all of it, and assert that each part ends. After the alarm, it may only stop the producer."""
        self.loop.run_until_complete(self.begin())
        try:
            for part in (self.work, self.producer.flush):
                self.goes_on(part, is_given_up=only_stops)
            # Twice, as one may be hit.
            assert any(self.goes_on(self.producer.stop) for _ in range(2)), self.alarm.where
            assert all(delivery.done() for delivery in self.deliveries), self.alarm.where
            for delivery in self.deliveries:
                delivery.exception()
            if not only_stops:
                must_fail = self.was_hit and self.alarm.is_guarded
                self.was_hit = True
                assert self.goes_on(partial(self.end, must_fail=must_fail)), self.alarm.where
        finally:
            self.loop.run_until_complete(self.cluster.__aexit__(None, None, None))
            self.loop.close()
            asyncio.set_event_loop(None)

    def goes_on(
        self, part: Callable[[], Coroutine[Any, Any, object]], *, is_given_up: bool = False
    ) -> bool:
        """Run a part, with the alarm set unless that has rung, and assert that it ends. Returns whether it ended without an error.

        `is_given_up`: after the alarm, it is cancelled, and no later one begins.
        """
        if is_given_up and self.was_hit:
            return False
        task = self.loop.create_task(part())
        try:
            if not self.was_hit:
                self.alarm.set()
            self.loop.run_until_complete(asyncio.wait([task], timeout=LONG))
            self.alarm.stop()
        except KeyboardInterrupt:
            self.was_hit = True
            if is_given_up:
                task.cancel()
                return False
            self.loop.run_until_complete(asyncio.wait([task], timeout=LONG))
        assert task.done(), f"{part} hangs: {self.alarm.where}"
        error = task.exception()
        assert error is None or isinstance(error, (KafkaError, KeyboardInterrupt)), error
        return error is None

    async def begin(self) -> None:
        self.cluster = await FakeCluster(memory=True).__aenter__()
        limit = LIMITS.get(self.way)
        self.cluster.create_topic("orders", 3, config={"max.message.bytes": limit} if limit else {})
        self.producer = producer_on(self.build)(
            **self.cluster.client_options,
            **WAYS[self.way],
            max_block_ms=2000,
            delivery_timeout_ms=5000,
            request_timeout_ms=2000,
        )
        await self.producer.start()

    async def work(self) -> None:
        self.tasks += [self.loop.create_task(self.send(at)) for at in range(5)]
        await asyncio.wait(self.tasks)

    async def send(self, at: int) -> None:
        """Send records. Two of the tasks wait for each record, too."""
        for _ in range(20):
            try:
                delivery = await self.producer.send("orders", b"v" * 100, b"%d" % at)
                delivery.add_done_callback(self.called.append)
                self.deliveries.append(delivery)
                if at > 2:
                    await delivery
            except KafkaError:
                return

    async def end(self, *, must_fail: bool) -> None:
        """Wait for the tasks. A producer that has failed says why."""
        # An eager task may have raised it to the call that makes the first of them.
        if self.tasks:
            await asyncio.wait(self.tasks)
        for task in self.tasks:
            task.exception()
        await asyncio.sleep(1)
        assert set(self.called) >= set(self.deliveries), self.alarm.where
        with pytest.raises(ProducerClosed) as caught:
            await self.producer.send("orders", b"late")
        assert not must_fail or isinstance(caught.value.__cause__, KeyboardInterrupt)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.both_builds
@pytest.mark.parametrize("way", WAYS)
def test_wherever_it_is_interrupted_nothing_hangs(way: str) -> None:
    """Each send, delivery, flush and stop ends; two stops at most are needed. Many hung for `delivery_timeout_ms` and longer, or for ever."""
    whole = Call(0)
    Program(plain, way, whole).run()
    for at in range(1, whole.count, max(101 // FINENESS, 1)):
        Program(plain, way, Call(at)).run()


# In a finalizer, it goes to stderr.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("build", BUILDS[1:])
@pytest.mark.parametrize("way", WAYS)
def test_at_whatever_instant_a_signal_comes_the_producer_can_be_stopped(
    build: Any, way: str
) -> None:
    """Also within code of asyncio's, which may lose the step of a task by that. But each delivery ends."""
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    try:
        began = time.process_time()
        Program(build, way, Signal(1000)).run()
        seconds = time.process_time() - began
        for _ in range(5 * FINENESS):
            Program(build, way, Signal(random.uniform(0, seconds))).run(only_stops=True)
    finally:
        signal.signal(signal.SIGVTALRM, before)
