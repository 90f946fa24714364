"""Sends that an exception of a signal handler ends somewhere: Ctrl-C in a notebook's cell, a soft time limit of celery, an alarm."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from builds import BUILDS, producer_on
from whole import jumping, running

from aioproducer.engine.append.admission import Admission
from aioproducer.engine.observability.metrics_recorder import Recorder
from aioproducer.engine.sender.sender import Sender
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import FrameType


class Alarm:
    """Raises KeyboardInterrupt where the interpreter runs signal handlers: at the n-th begin of a Python function or return of a C function."""

    def __init__(self, events: int) -> None:
        self.left = events

    def notice(self, frame: FrameType, event: str, _arg: object) -> None:
        if event in {"call", "c_return"} and frame.f_code is not Alarm.__exit__.__code__:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    def __enter__(self) -> None:
        sys.setprofile(self.notice)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


FULL = {"batch_size": 1000, "batch_max_size": 1000}
WIDER = {"batch_size": 1000, "batch_max_size": 9000}


# One of the calls is that of a generator which is closed: what it raises goes to stderr.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("options", "records", "given"),
    [
        ({"linger_ms": 0}, 1, {}),
        ({"linger_ms": 5}, 1, {}),
        ({"linger_ms": 0, **FULL}, 3, {}),
        ({"linger_ms": 5, **WIDER}, 4, {}),
        ({"linger_ms": 0, **FULL}, 3, {"key": b"k", "headers": [("a", b"b")]}),
        ({"linger_ms": 0, **FULL}, 2, {"partition": 0}),
    ],
    ids=["one", "one that lingers", "full batches", "wider batches", "with keys", "the slow path"],
)
@pytest.mark.parametrize("build", BUILDS)
@jumping
async def test_an_interrupted_send_leaves_nothing_half_done(
    build: Any, options: dict[str, Any], records: int, given: Any
) -> None:
    """Wherever it was interrupted, no later record waits, memory returns to its whole, and no broker gets a batch without records.

    A drain counted as scheduled, so that no record left any more; the producer failed with a KeyError; bytes of `buffer_memory` were lost;
    a batch was closed and its payload lost, or had the bytes of a record that it did not count.
    """
    async with FakeCluster(memory=True, verify_records=True) as cluster:
        cluster.create_topic("orders", partitions=1)
        async with producer_on(build)(
            close_timeout_ms=1000, **options, **cluster.client_options
        ) as producer:
            await producer.send_and_wait("orders", b"first")
            alarm, events, before = Alarm(0), 0, asyncio.get_running_loop().time()
            sent = []
            while alarm.left <= 0:
                events += 1
                alarm = Alarm(events)
                try:
                    with alarm:
                        # It keeps the deliveries before an exception.
                        sent.extend(
                            producer.send_nowait("orders", b"v" * 400, **given)
                            for _ in range(records)
                        )
                except KeyboardInterrupt:
                    pass
                if events % 2:
                    await producer.send_and_wait("orders", b"next")
                summary = await producer.flush()
                assert (summary.failed, summary.pending) == (0, 0), events
                assert producer.buffer_available == producer.config.buffer_memory, events
            assert events > 20
            assert asyncio.get_running_loop().time() - before < 0.02 * events
            await asyncio.gather(*sent)
        assert cluster.values("orders").count(b"next") == (events + 1) // 2
        assert cluster.values("orders").count(b"v" * 400) >= len(sent)


class Handler(Alarm):
    """Calls a function in place of the exception."""

    def __init__(self, events: int, handle: Callable[[], None]) -> None:
        super().__init__(events)
        self.handle = handle

    def notice(self, frame: FrameType, event: str, _arg: object) -> None:
        try:
            super().notice(frame, event, _arg)
        except KeyboardInterrupt:
            sys.setprofile(None)
            self.handle()
            sys.setprofile(self.notice)


@pytest.mark.parametrize(
    ("options", "records", "given"),
    [
        ({"linger_ms": 0}, 1, {}),
        ({"linger_ms": 5}, 1, {}),
        ({"linger_ms": "auto", **FULL}, 3, {}),
        ({"linger_ms": 0, **FULL}, 3, {"key": b"k", "headers": [("a", b"b")]}),
        ({"linger_ms": 0, **FULL}, 2, {"partition": 0}),
    ],
    ids=["one", "one that lingers", "full batches", "with keys", "the slow path"],
)
@pytest.mark.parametrize(
    "inner", [[b"inner"], [b"w" * 400] * 3], ids=["a small record", "large ones"]
)
@pytest.mark.parametrize("build", BUILDS)
@jumping
async def test_a_signal_handler_sends_within_a_send(
    build: Any, options: dict[str, Any], records: int, given: Any, inner: list[bytes]
) -> None:
    """A log handler does. Wherever that is, brokers get both records.

    A second open batch of the partition failed the producer. In plain Python, a batch had a record that it did not count. After several large
    records, the outer send raised WouldBlock, or found its batch closed.
    """
    async with FakeCluster(memory=True, verify_records=True) as cluster:
        cluster.create_topic("orders", partitions=1)
        async with producer_on(build)(**options, **cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"first")
            sent: list[Any] = []
            handler, events = Handler(0, lambda: None), 0
            while handler.left <= 0:
                events += 1
                handler = Handler(
                    events,
                    lambda: sent.extend([producer.send_nowait("orders", value) for value in inner]),
                )
                with handler:
                    sent.extend(
                        [
                            producer.send_nowait("orders", b"v" * 400, **given)
                            for _ in range(records)
                        ]
                    )
                await asyncio.gather(*sent)
                assert producer.buffer_available == producer.config.buffer_memory, events
            assert events > 20
        assert cluster.values("orders").count(inner[0]) == (events - 1) * len(inner)
        assert cluster.values("orders").count(b"v" * 400) == events * records


def run_on_after_ctrl_c(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine whose loop Ctrl-C ends once, and run the loop again until the coroutine has ended."""
    loop = JumpingLoop()
    task = loop.create_task(main)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    loop.run_until_complete(task)
    loop.close()


def test_an_interrupted_answer_wakes_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the loop while an answer is taken in. Once the loop runs again, the task of the acknowledged record continues."""
    answered = Recorder.answered

    def interrupt(*_: object) -> None:
        monkeypatch.setattr(Recorder, "answered", answered)
        raise KeyboardInterrupt

    async def main() -> None:
        async with running(partitions=1) as (cluster, producer):
            monkeypatch.setattr(Recorder, "answered", interrupt)
            assert (
                await asyncio.wait_for(producer.send_and_wait("orders", b"value"), 1)
            ).offset == 0

    run_on_after_ctrl_c(main())


@pytest.mark.parametrize("linger_ms", [0, 5, "auto"])
@pytest.mark.parametrize(
    ("owner", "method"),
    [(Admission, "go_on"), (Sender, "drain_all")],
    ids=["while a burst goes on", "at a drain"],
)
def test_an_interrupted_drain_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, linger_ms: Any, owner: Any, method: str
) -> None:
    """Ctrl-C ends the loop within a scheduled drain. Once the loop runs again, all records leave: it counted as scheduled, and none did."""
    usual, left = getattr(owner, method), [2]

    def interrupt(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return usual(*args, **options)

    async def main() -> None:
        async with running(partitions=1, linger_ms=linger_ms) as (cluster, producer):
            await producer.send_and_wait("orders", b"first")
            monkeypatch.setattr(owner, method, interrupt)
            async with asyncio.timeout(1):
                await asyncio.gather(
                    *[await producer.send("orders", b"value" * 20) for _ in range(9000)]
                )

    run_on_after_ctrl_c(main())
