"""Tests `Delivery` and its batch's result with asyncio's functions, on every kind of loop, without a broker."""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import contextvars
import functools
import gc
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import uvloop
from builds import BUILDS

from aioproducer.engine.delivery.completion_queue import CompletionQueue
from aioproducer.engine.tasks.supervisor import GuardedLoop
from aioproducer.errors import BrokerError, DeliveryError, Persisted, broker_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType

    from aioproducer.engine.chosen_build import Delivery

ERROR = DeliveryError(
    "it broke", topic="orders", partition=3, persisted=Persisted.MAYBE, attempts=2
)
ERROR.__cause__ = broker_error("NOT_ENOUGH_REPLICAS")


class PyTaskLoop(asyncio.SelectorEventLoop):
    """With asyncio's tasks of Python, which follow another code path than those of C."""

    def __init__(self) -> None:
        super().__init__()
        self.set_task_factory(
            lambda loop, coroutine, **options: asyncio.tasks._PyTask(
                coroutine, loop=loop, **options
            )
        )


@contextlib.contextmanager
def current_of_python() -> Iterator[None]:
    """From Python 3.14 on asyncio's `current_task` of C does not know tasks of Python: one that knows both takes its place."""
    if sys.version_info < (3, 14):
        yield
        return
    of_c, of_python = asyncio.current_task, asyncio.tasks._py_current_task  # type: ignore[attr-defined]

    def either(loop: asyncio.AbstractEventLoop | None = None) -> Any:
        return of_python(loop) or of_c(loop)

    with (
        mock.patch.object(asyncio.tasks, "current_task", either),
        mock.patch.object(asyncio, "current_task", either),
    ):
        yield


LOOPS = {
    "asyncio": asyncio.SelectorEventLoop,
    "debug": asyncio.SelectorEventLoop,
    "python tasks": PyTaskLoop,
    "uvloop": uvloop.new_event_loop,
}


def on_every_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Any:
    """Run an asynchronous test on each kind of loop."""

    @pytest.mark.parametrize("kind", LOOPS)
    @functools.wraps(test)
    def run(kind: str) -> None:
        of_python = current_of_python() if kind == "python tasks" else contextlib.nullcontext()
        with of_python, asyncio.Runner(loop_factory=LOOPS[kind], debug=kind == "debug") as runner:
            runner.run(test())

    del run.__wrapped__  # its signature has no `kind`
    return run


class Batch:
    """A batch of three records, and the deliveries of it."""

    build: Any  # the build that made the classes; each test runs on both

    def __init__(self, unseen: list[tuple[DeliveryError, int]] | None = None) -> None:
        loop = asyncio.get_running_loop()
        seen: list[tuple[DeliveryError, int]] = [] if unseen is None else unseen
        self.completions = CompletionQueue(GuardedLoop(loop, print))
        self.result = self.build.ProduceRequestResult(
            self.build.DeliveryContext(loop, lambda error, count: seen.append((error, count))),
            "orders",
            3,
            1000,
        )
        self.open = self.build.MemoryRecordsBuilder(self.result, 1000, 10_000)
        for value in (b"", b"x", b"xx"):
            self.open.append(1000, b"key", value)

    def delivery(self, index: int = 0) -> Delivery:
        delivery: Delivery = self.build.make_delivery(self.result, index)
        return delivery

    def end(self, error: DeliveryError | None = None) -> None:
        """End the batch as the Sender does, in a callback of the loop: it sets all results before it wakes any task."""
        self.open.close()
        if error is None:
            self.result.complete(100, -1)
        else:
            self.result.fail(error)
        self.completions.add(self.result)

    def end_soon(self, error: DeliveryError | None = None) -> None:
        asyncio.get_running_loop().call_soon(self.end, error)


@pytest.fixture(autouse=True, params=BUILDS)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch, "build", request.param, raising=False)


def result_of(delivery: Delivery) -> None:
    with pytest.raises(DeliveryError):
        delivery.result()


async def offset_of(delivery: Delivery) -> int:
    return (await delivery).offset


@on_every_loop
async def test_asyncio_takes_it_for_a_future() -> None:
    """isfuture, ensure_future and wrap_future give the delivery itself; no task is made."""
    batch = Batch()
    delivery = batch.delivery()
    assert asyncio.isfuture(delivery)
    assert asyncio.ensure_future(delivery) is delivery
    assert asyncio.wrap_future(delivery) is delivery  # type: ignore[arg-type]
    assert not asyncio.iscoroutine(delivery)
    assert not delivery.done()
    assert not delivery.cancelled()
    for look in (delivery.result, delivery.exception):
        with pytest.raises(asyncio.InvalidStateError):
            look()
    batch.end()
    assert delivery.done()
    assert delivery.exception() is None
    assert delivery.result() == await delivery == ("orders", 3, 100, 1000, 0, 3, 0)


@on_every_loop
async def test_it_is_no_iterator() -> None:
    """A delivery is an awaitable and no iterator, pending or over, though an `await` may step it itself."""
    batch = Batch()
    delivery = batch.delivery(1)
    for _ in range(2):
        assert not isinstance(
            delivery,
            (collections.abc.Iterable, collections.abc.Iterator, collections.abc.Coroutine),
        )
        assert isinstance(delivery, collections.abc.Awaitable)
        assert not hasattr(delivery, "__next__")
        with pytest.raises(TypeError):
            iter(delivery)  # type: ignore[call-overload]
        batch.end_soon()
        await delivery


@on_every_loop
async def test_who_is_not_over_is_not_stepped() -> None:
    with pytest.raises(TypeError):
        next(Batch().delivery())  # type: ignore[call-overload]


@on_every_loop
async def test_it_is_stepped_by_hand_as_any_awaitable() -> None:
    """A caller may step the iterator of `__await__` by hand, of a delivery that is over and of one that is pending.

    A tracer may look at each step.
    """

    class Outer:
        def __await__(self) -> Iterator[Any]:
            return (yield from delivery.__await__())

    batch = Batch()
    delivery = batch.delivery(2)
    assert next(delivery.__await__()) is not None
    batch.end_soon()
    assert (await Outer()).offset == 102
    for step in (next, lambda steps: steps.send(None)):
        with pytest.raises(StopIteration) as ended:
            step(delivery.__await__())
        assert ended.value.value == delivery.result()
    assert await Outer() == await delivery
    lines: list[int] = []

    def look(frame: FrameType, _event: str, _argument: Any) -> Any:
        lines.append(frame.f_lineno)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        assert await offset_of(delivery) == 102
    finally:
        sys.settrace(before)
    assert lines


@on_every_loop
async def test_gather_raises_or_returns_a_failure() -> None:
    """With and without return_exceptions, failed before and failing after."""
    failed, good = Batch(), Batch()
    failed.end_soon(ERROR)
    with pytest.raises(DeliveryError, match="it broke"):
        await asyncio.gather(failed.delivery(), good.delivery())
    good.end_soon()
    outcome = await asyncio.gather(failed.delivery(1), good.delivery(1), return_exceptions=True)
    assert isinstance(outcome[0], DeliveryError)
    assert outcome[1].offset == 101


@on_every_loop
async def test_gather_takes_a_child_that_was_cancelled() -> None:
    """Cancelled before and while it is gathered: gather ends, and says CancelledError."""
    batch = Batch()
    cancelled, later = batch.delivery(), batch.delivery(1)
    assert cancelled.cancel()
    assert not cancelled.cancel()
    asyncio.get_running_loop().call_soon(later.cancel)
    outcome = await asyncio.gather(cancelled, later, return_exceptions=True)
    assert [type(error) for error in outcome] == [asyncio.CancelledError] * 2


@on_every_loop
async def test_a_handle_is_cancelled_with_words() -> None:
    """As a future is."""
    delivery = Batch().delivery()
    delivery.cancel("by the scope")
    for look in (delivery.result, delivery.exception):
        with pytest.raises(asyncio.CancelledError, match="by the scope"):
            look()


@on_every_loop
async def test_a_record_of_a_batch_that_is_split_goes_with_its_part() -> None:
    """With its sizes, through a second split."""
    batch = Batch()
    deliveries = [batch.delivery(index) for index in range(3)]
    batch.open.close()
    first, second = batch.result.split([[1], [0, 2]])
    parts = first, *second.split([[0], [1]])
    for offset, part in enumerate(parts):
        part.complete(offset, -1)
    assert [(*delivery.result()[2:3], delivery.result()[-1]) for delivery in deliveries] == [
        (1, 0),
        (0, 1),
        (2, 2),
    ]
    assert (
        [metadata.offset for metadata in batch.result.get_many(0, 3)]
        == [1, 0, 2]
        == [batch.result.get(index)[2] for index in range(3)]
    )


@on_every_loop
async def test_wait_leaves_what_is_pending_alone() -> None:
    """FIRST_COMPLETED and a timeout."""
    first, second = Batch(), Batch()
    one, two = first.delivery(), second.delivery()
    first.end_soon()
    done, pending = await asyncio.wait([one, two], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
    assert done == {one}
    assert pending == {two}
    done, pending = await asyncio.wait([one, two], timeout=0.001)  # type: ignore[type-var]
    assert pending == {two}
    assert not two.cancelled()
    second.end_soon(ERROR)
    done, pending = await asyncio.wait([one, two], return_when=asyncio.FIRST_EXCEPTION)  # type: ignore[type-var]
    assert done == {one, two}


@on_every_loop
async def test_wait_for_ends_in_time_or_cancels_nothing_but_its_handle() -> None:
    """Done, in time, and too late."""
    batch = Batch()
    late, kept = batch.delivery(), batch.delivery()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(late, 0.001)
    assert not kept.done()
    batch.end_soon()
    assert (await asyncio.wait_for(kept, 10)).offset == 100
    assert (await asyncio.wait_for(kept, 10)).offset == 100


@on_every_loop
async def test_shield_keeps_the_handle() -> None:
    """A shielded delivery survives its waiter's timeout, and gives results and failures through."""
    batch, failing = Batch(), Batch()
    delivery = batch.delivery()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(delivery), 0.001)
    assert not delivery.cancelled()
    batch.end_soon()
    assert (await asyncio.shield(delivery)).offset == 100
    failing.end_soon(ERROR)
    with pytest.raises(DeliveryError):
        await asyncio.shield(failing.delivery())


@on_every_loop
async def test_tasks_of_a_group_await_deliveries() -> None:
    """A failure cancels the group's other tasks, and only them."""
    batch = Batch()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(offset_of(batch.delivery(index))) for index in range(3)]
        await asyncio.sleep(0)
        batch.end_soon()
    assert [task.result() for task in tasks] == [100, 101, 102]
    failed, pending = Batch(), Batch()
    delivery = pending.delivery()
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            group.create_task(offset_of(failed.delivery()))
            group.create_task(offset_of(delivery))
            failed.end_soon(ERROR)
    assert [type(error) for error in raised.value.exceptions] == [DeliveryError]
    assert not delivery.done()


@on_every_loop
async def test_callbacks_are_taken_back_and_added_again_in_any_order() -> None:
    """As a service does that polls with asyncio.wait: those that stay run in order, and what was taken back takes no room."""
    batch = Batch()
    seen: list[str] = []
    callbacks = {
        name: functools.partial(lambda name, _delivery: seen.append(name), name)
        for name in "abcdef"
    }
    deliveries = [batch.delivery(index) for index in (0, 1, 2, 0, 1, 2)]
    for _ in range(200):
        for delivery, callback in zip(deliveries, callbacks.values(), strict=True):
            delivery.add_done_callback(callback)
        for delivery, callback in reversed(list(zip(deliveries, callbacks.values(), strict=True))):
            assert delivery.remove_done_callback(callback) == 1
    assert len(batch.result.callbacks or ()) < 100
    for delivery, callback in zip(deliveries, callbacks.values(), strict=True):
        delivery.add_done_callback(callback)
    assert deliveries[4].remove_done_callback(callbacks["e"]) == 1
    batch.end()
    await asyncio.sleep(0.001)
    assert seen == ["a", "d", "b", "c", "f"]


@pytest.mark.asyncio
async def test_giving_up_on_many_deliveries_of_a_batch_costs_no_square() -> None:
    """asyncio.wait takes back a callback of each: 20,000 of them in well under a second, though they share a batch."""
    batch = Batch()
    deliveries = [batch.delivery() for _ in range(20_000)]
    began = time.process_time()
    await asyncio.wait(deliveries, timeout=0)  # type: ignore[type-var]
    assert time.process_time() - began < 3


@on_every_loop
async def test_cancel_runs_the_handles_own_callbacks() -> None:
    """And no other handle's."""
    batch = Batch()
    seen: list[Delivery] = []
    one, other = batch.delivery(), batch.delivery()
    one.add_done_callback(seen.append)
    other.add_done_callback(seen.append)
    one.cancel()
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [one]
    batch.end()
    await asyncio.sleep(0.001)
    assert seen == [one, other]


@on_every_loop
async def test_callbacks_run_in_their_callers_context() -> None:
    """The one at hand when they were added, or the one that was given."""
    batch = Batch()
    variable = contextvars.ContextVar("variable", default="")
    seen: list[str] = []
    for value in ("a", "b"):
        variable.set(value)
        batch.delivery().add_done_callback(lambda _delivery: seen.append(variable.get()))
    given = contextvars.copy_context()
    variable.set("c")
    batch.delivery().add_done_callback(lambda _delivery: seen.append(variable.get()), context=given)
    batch.end()
    batch.delivery().add_done_callback(lambda _delivery: seen.append(variable.get()))
    await asyncio.sleep(0.001)
    assert sorted(seen) == ["a", "b", "b", "c"]


@on_every_loop
async def test_a_context_is_let_go_once_its_callbacks_ran() -> None:
    """The producer drops a context after its callbacks ran, since a context may be large.

    It does not confuse a changed context with the one that it kept.
    """

    class Held:
        pass

    batch, other = Batch(), Batch()
    other.result.delivery_context = batch.result.delivery_context
    variable: contextvars.ContextVar[Held] = contextvars.ContextVar("held")
    seen: list[int] = []
    refs = []

    def add(to: Batch) -> None:
        held = Held()
        refs.append(weakref.ref(held))
        variable.set(held)
        to.delivery().add_done_callback(lambda _delivery: seen.append(id(variable.get())))

    async def turns() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def held_ids() -> list[int]:
        return [id(ref()) for ref in refs]

    for one in (batch, other, batch):
        contextvars.copy_context().run(add, one)
    alive = held_ids()
    batch.end()
    other.end()
    await turns()
    assert sorted(seen) == sorted(alive)
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3
    contextvars.copy_context().run(add, batch)
    await turns()
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4


@on_every_loop
async def test_context_values_that_cannot_be_compared_harm_nothing() -> None:
    """Two contexts with values that cannot be compared count as two contexts. An example is an array: its == gives no truth value."""

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    batch = Batch()
    variable: contextvars.ContextVar[Odd] = contextvars.ContextVar("odd")
    seen: list[Odd] = []
    values = [Odd(), Odd()]
    for value in values:
        variable.set(value)
        batch.delivery().add_done_callback(lambda _delivery: seen.append(variable.get()))
    batch.end()
    await asyncio.sleep(0.001)
    assert [value is wanted for value, wanted in zip(seen, values, strict=True)] == [True, True]


@on_every_loop
async def test_each_look_at_a_failure_is_an_instance_of_its_own_with_the_shared_cause() -> None:
    """One instance raised in a thousand tasks would collect every traceback."""
    batch = Batch()
    batch.end(ERROR)
    errors = [batch.delivery(1).exception(), batch.delivery(1).exception()]
    for look in (batch.delivery().result, batch.delivery().result):
        with pytest.raises(DeliveryError) as raised:
            look()
        errors.append(raised.value)
    with pytest.raises(DeliveryError) as raised:
        await batch.delivery()
    errors.append(raised.value)
    assert len({id(error) for error in errors}) == 5
    assert ERROR.__traceback__ is None
    for error in errors:
        assert error is not None
        assert isinstance(error.__cause__, BrokerError)
        assert error.__cause__ is ERROR.__cause__
        assert (error.topic, error.partition, error.persisted, error.attempts) == (
            "orders",
            3,
            "maybe",
            2,
        )


@on_every_loop
async def test_another_loops_task_cannot_await_it() -> None:
    """RuntimeError, as with any future of another loop."""
    batch = Batch()
    delivery = batch.delivery()

    def elsewhere() -> BaseException | None:
        with asyncio.Runner() as runner:
            try:
                runner.run(asyncio.wait_for(offset_of(delivery), 5))
            except RuntimeError as error:
                return error
        return None

    assert isinstance(await asyncio.to_thread(elsewhere), RuntimeError)
    batch.end()


@on_every_loop
async def test_a_failure_nobody_looked_at_is_told_once_per_batch() -> None:
    """When the last delivery of the batch is let go; a look of any kind is enough."""
    looks: dict[str, Callable[[Delivery], object]] = {
        "result": result_of,
        "exception": lambda delivery: delivery.exception(),
        "callback after": lambda delivery: delivery.add_done_callback(lambda _delivery: None),
    }
    for look in (None, *looks.values()):
        unseen: list[tuple[DeliveryError, int]] = []
        batch = Batch(unseen)
        delivery: Delivery | None = batch.delivery()
        kept = batch.delivery(1)
        batch.end(ERROR)
        if look is not None and delivery is not None:
            look(delivery)
        await asyncio.sleep(0.001)
        del batch, delivery
        gc.collect()
        assert unseen == []
        del kept
        gc.collect()
        assert unseen == ([(ERROR, 3)] if look is None else [])


@on_every_loop
async def test_who_comes_after_those_who_were_woken_at_once() -> None:
    """The answer wakes the tasks of its batch in the same iteration. A batch that ends after that wakes its tasks in another iteration."""
    first, second = Batch(), Batch()
    second.completions = first.completions
    waiting = [asyncio.create_task(offset_of(batch.delivery())) for batch in (first, second)]

    def end_both() -> None:
        first.end()
        first.completions.run()
        second.end()

    asyncio.get_running_loop().call_soon(end_both)
    async with asyncio.timeout(10):
        assert await asyncio.gather(*waiting) == [100, 100]
