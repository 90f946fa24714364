"""Drains and answers that an exception of a signal handler breaks off anywhere: Ctrl-C ends the loop, and the program runs it again."""

from __future__ import annotations

import asyncio
import inspect
import pathlib
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from builds import BUILDS, producer_on
from whole import encode_at_once

import aioproducer
from aioproducer.errors import UsageError
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from types import CodeType, FrameType

PACKAGE = pathlib.Path(aioproducer.__file__).parent
FOLDERS = tuple(f"{PACKAGE / folder}{'/'}" for folder in ("core", "engine", "net"))


def is_producers(code: CodeType) -> bool:
    return code.co_filename.startswith(FOLDERS)


def stack(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def is_in_task(frame: FrameType) -> bool:
    """Whether a task runs: the exception would end the task, and not break off what the loop calls."""
    return any(one.f_code.co_flags & inspect.CO_COROUTINE for one in stack(frame))


class Alarm:
    """Raises KeyboardInterrupt once within a callback of the producer, where the interpreter runs signal handlers.

    That is at the n-th begin of a Python function or return of a C function there, or the next of them that is not within a task. A function of
    asyncio or of the stream that the producer calls counts as one of these. What the loop itself calls is lost if it is interrupted before it begins:
    so is the step of any task.
    """

    def __init__(self, events: int) -> None:
        self.left = events
        self.where = ""

    def notice(self, frame: FrameType, event: str, _arg: object) -> None:
        is_inner = frame.f_back is not None and is_producers(frame.f_back.f_code)
        if is_producers(frame.f_code):
            is_one = event == "c_return" or (event == "call" and is_inner)
        else:
            # A C function, with other streams and loops; anyio's semaphore has none.
            is_one = (
                is_inner
                and (
                    event == "call"
                    or (event == "return" and "anyio" not in frame.f_code.co_filename)
                )
                and not is_waking(frame)
            )
        if is_one:
            self.left -= 1
            if self.left <= 0 and not is_in_task(frame):
                sys.setprofile(None)
                self.where = f"{event} in {' < '.join(f'{at.f_code.co_qualname}:{at.f_lineno}' for at in stack(frame)[:8])}"
                raise KeyboardInterrupt

    def start(self) -> None:
        sys.setprofile(self.notice)


def is_waking(frame: FrameType) -> bool:
    """Whether asyncio schedules the step of a task, the future of which is done by then: whoever wakes it, the step is lost."""
    return frame.f_back is not None and frame.f_back.f_code.co_qualname in {
        "wake",
        "_Waiters.wake",
        "PendingSend.notify",
    }


FULL = {"batch_size": 1000, "batch_max_size": 1000}
ONE = {"max_in_flight_requests_per_connection": 1}


def run_on_after_ctrl_c(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, and run its loop again each time that Ctrl-C has ended it."""
    loop = JumpingLoop()
    task = loop.create_task(main)
    while not task.done():
        try:
            loop.run_until_complete(task)
        except KeyboardInterrupt:
            continue
        finally:
            sys.setprofile(None)
    loop.close()
    task.result()


@asynccontextmanager
async def running(
    build: Any, partitions: int, options: dict[str, Any]
) -> AsyncIterator[tuple[FakeCluster, Any]]:
    async with FakeCluster(memory=True, verify_records=True) as cluster:
        cluster.create_topic("orders", partitions=partitions)
        async with producer_on(build)(
            close_timeout_ms=1000,
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=1,
            **options,
            **cluster.client_options,
        ) as producer:
            await producer.partitions_for("orders")
            yield cluster, producer


async def ended(delivery: Any) -> None:
    await delivery


@pytest.mark.parametrize(
    ("partitions", "records", "options"),
    [
        (1, 1, {"linger_ms": 0}),
        (1, 1, {"linger_ms": 5, **ONE}),
        (2, 4, {"linger_ms": "auto", **FULL}),
        (1, 3, {"linger_ms": 0, **FULL, **ONE}),
        (1, 2, {"linger_ms": 0, "compression_type": "gzip", **FULL}),
        (1, 1, {"linger_ms": 0, "acks": 0, "enable_idempotence": False}),
    ],
    ids=[
        "one",
        "one that lingers",
        "two partitions",
        "one in flight",
        "compressed",
        "no acknowledgements",
    ],
)
@pytest.mark.parametrize("build", BUILDS)
def test_an_interrupted_callback_is_made_good(
    build: Any, partitions: int, records: int, options: dict[str, Any]
) -> None:
    """Wherever it was interrupted, each record is in the log once and in order, its task is woken, and memory and slots are free again.

    Batches that were taken off their queues waited for their expiry, with a slot of the connection; the batches of an answer did, and their tasks.
    """

    async def main() -> None:
        expected: list[list[bytes]] = [[] for _ in range(partitions)]
        async with running(build, partitions, options) as (cluster, producer):
            encode_at_once(producer, 100_000)
            alarm, events = Alarm(0), 0
            while alarm.left <= 0:
                events += 1
                alarm = Alarm(events)
                deliveries = []
                for at in range(records):
                    value = b"%d, %d" % (events, at)
                    deliveries.append(
                        producer.send_nowait("orders", value.ljust(400), partition=at % partitions)
                    )
                    expected[at % partitions].append(value)
                tasks = [asyncio.create_task(ended(delivery)) for delivery in deliveries]
                alarm.start()
                await asyncio.wait(tasks, timeout=2)
                sys.setprofile(None)
                assert all(task.done() for task in tasks), (alarm.where, deliveries)
                await asyncio.gather(*tasks)
                summary = await producer.flush(timeout=1)
                assert (summary.failed, summary.pending) == (0, 0), alarm.where
                assert producer.buffer_available == producer.config.buffer_memory, alarm.where
                for partition in range(partitions):
                    values = [value.strip() for value in cluster.values("orders", partition)]
                    # Without acknowledgements, a record is sent again if its request was interrupted while it was written.
                    found = list(dict.fromkeys(values)) if options.get("acks") == 0 else values
                    assert found == expected[partition], alarm.where
            assert events > 50

    run_on_after_ctrl_c(main())


@pytest.mark.parametrize("build", BUILDS)
def test_an_interrupted_drain_serves_the_sends_that_wait(build: Any) -> None:
    """Wherever it was interrupted, a send that waits for memory ends, and its record is in the log once, unless the send says that it was interrupted."""

    async def main() -> None:
        before = 0
        async with running(build, 1, {"linger_ms": 0, "buffer_memory": 2500, **FULL}) as (
            cluster,
            producer,
        ):
            alarm, events = Alarm(0), 0

            async def send(value: bytes) -> None:
                await (await producer.send("orders", value.ljust(400)))

            while alarm.left <= 0:
                # A prime: all would take minutes.
                events += 23
                alarm = Alarm(events)
                values = [b"%d, %d" % (events, at) for at in range(8)]
                sends = [asyncio.create_task(send(value)) for value in values]
                await asyncio.sleep(0)
                alarm.start()
                await asyncio.wait(sends, timeout=2)
                sys.setprofile(None)
                assert all(task.done() for task in sends), alarm.where
                errors = {
                    value: task.exception()
                    for value, task in zip(values, sends, strict=True)
                    if task.exception() is not None
                }
                assert len(errors) <= 1, (alarm.where, errors)
                assert all(isinstance(error, UsageError) for error in errors.values()), (
                    alarm.where,
                    errors,
                )
                await producer.flush(timeout=1)
                found = [value.strip() for value in cluster.values("orders")][before:]
                before += len(found)
                assert [value for value in found if value not in errors] == [
                    value for value in values if value not in errors
                ], alarm.where
                assert producer.buffer_available == producer.config.buffer_memory, alarm.where
            assert events > 200

    run_on_after_ctrl_c(main())
