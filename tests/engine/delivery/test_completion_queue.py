"""Tests of `CompletionQueue`: callbacks in loop callbacks of their own, tasks that the loop wakes, user code."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import pytest
from builds import BUILDS

from aioproducer.engine.delivery import completion_queue
from aioproducer.engine.delivery.completion_queue import MAX_WAKEUPS_PER_ITERATION, CompletionQueue
from aioproducer.engine.tasks.supervisor import GuardedLoop

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 40


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest) -> Any:
    return request.param


class Ended:
    """Holds batches with pending deliveries, and records which deliveries ended."""

    def __init__(self, build: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.build = build
        self.delivery_context = build.DeliveryContext(loop, lambda *_: None)
        self.completions = CompletionQueue(GuardedLoop(loop, print))
        self.heard: list[int] = []

    def deliveries(self, count: int = RECORDS) -> list[Any]:
        result = self.build.ProduceRequestResult(self.delivery_context, "orders", 0, 1_000)
        opened = self.build.MemoryRecordsBuilder(result, 1_000, 100_000)
        found = [opened.append(1_000, None, b"v") for _ in range(count)]
        opened.close()
        return found

    def hear(self, delivery: Any) -> None:
        self.heard.append(delivery.index)

    def end(self, delivery: Any) -> None:
        delivery._result.complete(0, -1)
        self.completions.add(delivery._result)
        self.completions.run()


def run(
    build: Any,
    main: Callable[[Ended, asyncio.AbstractEventLoop], Any],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Any:
    """In a loop that may be run again once a BaseException ended it."""
    loop = new_loop()
    try:
        return main(Ended(build, loop), loop)
    finally:
        loop.close()


def test_batches_that_end_together_are_told_in_that_order(build: Any) -> None:
    """Callbacks of each in the order of its records; tasks come behind the callbacks of their batch, and before the next batch's."""

    def main(ended: Ended, loop: asyncio.AbstractEventLoop) -> None:
        async def wait(batch: str, delivery: Any) -> None:
            await delivery
            heard.append((batch, "task"))

        async def work() -> None:
            batches = {name: ended.deliveries(3) for name in "abcd"}
            for name, deliveries in batches.items():
                for delivery in deliveries:
                    delivery.add_done_callback(
                        lambda told, name=name: heard.append((name, told.index))
                    )
            task = asyncio.create_task(wait("b", batches["b"][1]))
            await asyncio.sleep(0)
            for deliveries in batches.values():
                deliveries[0]._result.complete(0, -1)
                ended.completions.add(deliveries[0]._result)
            ended.completions.run()
            assert heard == []
            await asyncio.wait_for(task, 10)
            await asyncio.sleep(0)

        heard: list[tuple[str, Any]] = []
        loop.run_until_complete(work())
        assert [entry for entry in heard if entry[1] != "task"] == [
            (name, index) for name in "abcd" for index in range(3)
        ]
        assert heard.index(("b", "task")) > heard.index(("b", 2))

    run(build, main)


def test_a_task_is_woken_by_the_loop(build: Any) -> None:
    """Within another task's step nothing of it runs; it is no step within a step."""

    def main(ended: Ended, loop: asyncio.AbstractEventLoop) -> None:
        async def wait(delivery: Any) -> None:
            await delivery
            ended.hear(delivery)

        async def work() -> None:
            deliveries = ended.deliveries()
            async with asyncio.TaskGroup() as group:
                for delivery in deliveries:
                    group.create_task(wait(delivery))
                await asyncio.sleep(0)
                ended.end(deliveries[0])
                assert ended.heard == []
            assert ended.heard == list(range(RECORDS))

        loop.run_until_complete(work())

    run(build, main)


@pytest.mark.parametrize("is_late", [False, True], ids=["pending", "over"])
@pytest.mark.parametrize(
    "own_contexts", [False, True], ids=["one context", "contexts of their own"]
)
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_a_base_exception_leaves_goes_on(
    build: Any, error: type[BaseException], *, own_contexts: bool, is_late: bool
) -> None:
    """It ends the loop, as from any callback; the others are called, and tasks woken, once that runs again."""

    def main(ended: Ended, loop: asyncio.AbstractEventLoop) -> None:
        deliveries = ended.deliveries()
        if is_late:
            ended.end(deliveries[0])

        def fail(delivery: Any) -> None:
            ended.hear(delivery)
            if delivery.index in {3, 20, RECORDS - 1}:
                raise error

        async def wait() -> None:
            await deliveries[5]

        task = loop.create_task(wait())
        for delivery in deliveries:
            delivery.add_done_callback(
                fail, context=contextvars.Context() if own_contexts else None
            )
        if not is_late:
            loop.call_soon(ended.end, deliveries[0])
        # uvloop runs the next callbacks before it ends, and raises the last error alone.
        for _ in range(3 if isinstance(loop, asyncio.BaseEventLoop) else 1):
            with pytest.raises(error):
                loop.run_until_complete(asyncio.sleep(0.01))
        loop.run_until_complete(task)
        assert ended.heard == list(range(RECORDS))

    run(build, main)


@pytest.mark.parametrize("is_late", [False, True], ids=["pending", "over"])
def test_a_callback_may_run_the_loop_itself(
    build: Any, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    """As `nest_asyncio` lets it: the other callbacks are called meanwhile, each once, though they share a context."""

    def main(ended: Ended, loop: asyncio.AbstractEventLoop) -> None:
        deliveries = ended.deliveries()
        meanwhile: list[int] = []

        def nest(delivery: Any) -> None:
            ended.hear(delivery)
            if delivery.index == 2:
                for _ in range(100):
                    if len(ended.heard) < RECORDS:
                        loop._ready.popleft()._run()  # type: ignore[attr-defined]
                meanwhile.extend(ended.heard)

        if is_late:
            ended.end(deliveries[0])
        for delivery in deliveries:
            delivery.add_done_callback(nest)
        if not is_late:
            ended.end(deliveries[0])
        loop.run_until_complete(asyncio.sleep(0.01))
        assert ended.heard == meanwhile == list(range(RECORDS))

    run(
        build, main, asyncio.SelectorEventLoop
    )  # whatever loop is tested: another one has no `_ready`


def test_an_iteration_wakes_a_bounded_number_of_tasks(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has other business."""

    def main(ended: Ended, loop: asyncio.AbstractEventLoop) -> None:
        count = 3 * MAX_WAKEUPS_PER_ITERATION + 7
        deliveries = ended.deliveries(count)
        seen: list[int] = []

        async def wait(delivery: Any) -> None:
            await delivery
            ended.hear(delivery)

        async def work() -> None:
            tasks = [loop.create_task(wait(delivery)) for delivery in deliveries]
            await asyncio.sleep(0)
            ended.end(deliveries[0])
            while len(ended.heard) < count:
                before = len(ended.heard)
                await asyncio.sleep(0)
                seen.append(len(ended.heard) - before)
            await asyncio.gather(*tasks)

        loop.run_until_complete(work())
        assert max(seen) <= MAX_WAKEUPS_PER_ITERATION
        assert ended.heard == list(range(count))

    run(build, main)


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("more", [0, 1])
def test_tasks_that_follow_those_of_a_run_send_together_with_them(
    build: Any, *, is_held: bool, more: int
) -> None:
    """The first task that was woken schedules a drain. It comes after as many tasks again, so that their records leave in one request.

    A queue that is held schedules nothing for tasks that one `run` wakes.
    """

    def main(ended: Ended, loop: asyncio.AbstractEventLoop) -> None:
        count = MAX_WAKEUPS_PER_ITERATION + more
        deliveries = ended.deliveries(count)
        drained: list[int] = []

        async def wait(delivery: Any) -> None:
            await delivery
            if not ended.heard:
                loop.call_soon(lambda: drained.append(len(ended.heard)))
            ended.hear(delivery)

        async def work() -> None:
            tasks = [loop.create_task(wait(delivery)) for delivery in deliveries]
            await asyncio.sleep(0)
            if is_held:
                ended.completions.hold()
            deliveries[0]._result.complete(0, -1)
            ended.completions.add(deliveries[0]._result)
            assert (ended.completions._due is None) == (is_held and not more)
            ended.completions.run()
            assert (ended.completions._due is None) == (not more)
            await asyncio.gather(*tasks)

        loop.run_until_complete(work())
        assert drained == [count]

    run(build, main)


def test_callbacks_are_called_for_a_bounded_time(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The completion queue yields to the event loop when its time is over. It calls the remaining callbacks in the next iterations."""
    monkeypatch.setattr(completion_queue, "_SECONDS_PER_ITERATION", -1.0)

    def main(ended: Ended, loop: asyncio.AbstractEventLoop) -> None:
        deliveries = ended.deliveries(1_000)
        for delivery in deliveries:
            delivery.add_done_callback(ended.hear)

        async def work() -> list[int]:
            ended.end(deliveries[0])
            seen = []
            while len(ended.heard) < len(deliveries):
                await asyncio.sleep(0)
                seen.append(len(ended.heard))
            return seen

        assert loop.run_until_complete(work())[:3] == [128, 256, 384]

    run(build, main)
