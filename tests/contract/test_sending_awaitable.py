"""`send` and `send_and_wait` are coroutine functions on both builds: any runner sends the record."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, create_autospec

import anyio
import fastapi
import httpx
import pytest
from builds import BUILDS, producer_on
from starlette.background import BackgroundTask

from aioproducer.engine.append import loop_budget
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

VERBS = ("send", "send_and_wait")


class Boom(Exception):
    """An exception that a test throws."""


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.asynccontextmanager
async def running(build: Any, **options: Any) -> AsyncIterator[tuple[Any, FakeCluster]]:
    """Start a producer that knows the topic, so that the next send takes the fast path."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with producer_on(build)(**cluster.client_options, **options) as producer:
            await producer.send_and_wait("orders", b"first")
            yield producer, cluster
        assert cluster.violations == []


async def by_task_group(call: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(call())


async def by_timeout(call: Any) -> None:
    async with asyncio.timeout(10):
        await call()


async def by_as_completed(call: Any) -> None:
    for ended in asyncio.as_completed([call()]):
        await ended


async def by_eager_task(call: Any) -> None:
    task = asyncio.Task(call(), eager_start=True, loop=asyncio.get_running_loop())  # type: ignore[call-arg]
    assert task.done() == (call.func.__name__ == "send")
    await task


async def by_start_soon(call: Any) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(call)


async def by_move_on_after(call: Any) -> None:
    with anyio.move_on_after(10) as scope:
        await call()
    assert not scope.cancelled_caught


async def by_fastapi(call: Any) -> None:
    app = fastapi.FastAPI()

    @app.post("/orders")
    async def order(tasks: fastapi.BackgroundTasks) -> dict[str, bool]:
        tasks.add_task(call)
        return {"taken": True}

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test"
    ) as client:
        assert (await client.post("/orders")).json() == {"taken": True}


async def by_partial_of_partial(call: Any) -> None:
    wrapped = functools.partial(functools.partial(call))
    assert inspect.iscoroutinefunction(wrapped)
    await wrapped()


async def by_exit_stack(call: Any) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(call)


RUNNERS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "by_create_task": lambda call: asyncio.create_task(call()),
    "by_ensure_future": lambda call: asyncio.ensure_future(call()),
    "by_gather": lambda call: asyncio.gather(call()),
    "by_wait_for": lambda call: asyncio.wait_for(call(), 10),
    "by_wait": lambda call: asyncio.wait([asyncio.create_task(call())]),
    "by_shield": lambda call: asyncio.shield(call()),
    "from_a_thread": lambda call: asyncio.to_thread(
        lambda loop: asyncio.run_coroutine_threadsafe(call(), loop).result(10),
        asyncio.get_running_loop(),
    ),
    "by_python_task": lambda call: asyncio.tasks._PyTask(call()),  # type: ignore[attr-defined]
    "by_background_task": lambda call: BackgroundTask(call)(),
} | {
    run.__name__: run
    for run in (
        by_task_group,
        by_timeout,
        by_as_completed,
        by_start_soon,
        by_move_on_after,
        by_fastapi,
        by_partial_of_partial,
        by_exit_stack,
    )
}
if sys.version_info >= (3, 12):
    RUNNERS["by_eager_task"] = by_eager_task


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.asyncio
async def test_whoever_runs_it_the_record_is_sent(build: Any, verb: str, run: str) -> None:
    """The coroutine sends its record on the fast path and on the slow path: to a known topic, and to an unknown one."""
    async with running(build) as (producer, cluster):
        cluster.create_topic("others")
        for _ in range(2):
            await RUNNERS[run](functools.partial(getattr(producer, verb), "orders", b"v", b"k"))
        if run != "by_eager_task":
            await RUNNERS[run](
                functools.partial(
                    getattr(producer, verb), topic="others", value=b"w", headers=[("a", b"1")]
                )
            )
        await producer.flush()
        assert cluster.values("orders") == [b"first", b"v", b"v"]
        assert cluster.values("others") == [b"w"] * (run != "by_eager_task")


@pytest.mark.asyncio
async def test_records_stand_in_the_order_of_their_first_steps(build: Any) -> None:
    """The log has the records in the order of the coroutines' first steps, not of the calls, however each is run."""
    async with running(build) as (producer, cluster):
        late, early = producer.send("orders", b"late"), producer.send("orders", b"early")
        await early
        await late
        tasks = [
            asyncio.create_task(producer.send("orders", b"%d" % number)) for number in range(100)
        ]
        assert len(cluster.values("orders")) == 1
        await asyncio.gather(*tasks)
        await asyncio.gather(
            *(producer.send_and_wait("orders", b"%d" % number) for number in range(100, 200))
        )
        assert cluster.values("orders") == [
            b"first",
            b"early",
            b"late",
            *(b"%d" % number for number in range(200)),
        ]


@pytest.mark.asyncio
async def test_what_is_closed_before_its_first_step_is_not_sent(build: Any, verb: str) -> None:
    async with running(build) as (producer, cluster):
        call = getattr(producer, verb)("orders", b"closed")
        call.close()
        thrown = getattr(producer, verb)("orders", b"thrown")
        with pytest.raises(Boom):
            thrown.throw(Boom)
        task = asyncio.create_task(getattr(producer, verb)("orders", b"cancelled"))
        if not task.done():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await producer.flush()
        assert cluster.values("orders")[1:] in ([], [b"cancelled"])


@pytest.mark.asyncio
async def test_cancelled_while_it_waits_for_metadata_it_is_not_queued(
    build: Any, verb: str
) -> None:
    async with running(build) as (producer, cluster):
        task = asyncio.create_task(getattr(producer, verb)("later", b"v"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cluster.create_topic("later")
        await producer.send_and_wait("later", b"next")
        assert cluster.values("later") == [b"next"]


@pytest.mark.asyncio
async def test_cancelled_while_it_waits_for_memory_it_is_not_queued(build: Any, verb: str) -> None:
    async with running(build, buffer_memory=60_000, batch_size=16_384) as (producer, cluster):
        cluster.brokers[1].pause()
        queued = [await producer.send("orders", b"%d" % at + bytes(15_000)) for at in range(3)]
        task = asyncio.create_task(getattr(producer, verb)("orders", b"cancelled" + bytes(15_000)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cluster.brokers[1].resume()
        await asyncio.gather(*queued)
        await producer.send_and_wait("orders", b"next")
        assert [value[:9].rstrip(b"\0") for value in cluster.values("orders")] == [
            b"first",
            b"0",
            b"1",
            b"2",
            b"next",
        ]


@pytest.mark.asyncio
async def test_cancelled_while_it_pauses_its_record_is_queued(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test sends in a tight loop until one coroutine pauses, and cancels that one: too late, so `send` returns."""
    async with running(build) as (producer, cluster):
        # By time a slice is over at its first look at the clock, after 16 records, where another process had this one's core meanwhile.
        # The build that the package has not chosen stands on modules of its own.
        budget = producer._engine.parts.loop_budget
        monkeypatch.setitem(type(budget).share.__globals__, "_SECONDS", 60)
        budget.share(1)
        for sent in range(100_000):  # noqa: B007
            call = producer.send("orders", bytes(100))
            try:
                call.send(None)
            except StopIteration:
                continue
            break
        with pytest.raises(StopIteration) as returned:
            call.throw(asyncio.CancelledError)
        await producer.flush()
        assert loop_budget.MAX_SLICE_RECORDS <= sent <= loop_budget.MAX_SLICE_RECORDS + 1
        assert len(cluster.values("orders")) == 1 + sent + 1
        assert returned.value.value.result().offset == 1 + sent


@pytest.mark.asyncio
async def test_cancelling_a_send_that_waits_for_its_record_leaves_the_record(build: Any) -> None:
    """The record was queued before the cancellation, so it is sent."""
    async with running(build, linger_ms=20) as (producer, cluster):
        task = asyncio.create_task(producer.send_and_wait("orders", b"v"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await producer.flush()
        assert cluster.values("orders") == [b"first", b"v"]


async def waits_for_one(producer: Any) -> None:
    await producer.send_and_wait("orders", b"v")


async def waits_for_gather(producer: Any) -> None:
    await asyncio.gather(*[await producer.send("orders", b"v") for _ in range(3)])


async def waits_for_many(producer: Any) -> None:
    await (await producer.send_many("orders", [b"v", b"v"]))


async def waits_for_flush(producer: Any) -> None:
    await producer.send("orders", b"v")
    await producer.flush()


@pytest.mark.parametrize("wait", [waits_for_one, waits_for_gather, waits_for_many, waits_for_flush])
@pytest.mark.asyncio
async def test_a_wait_ends_within_anyios_cancel_scope(
    build: Any, wait: Callable[[Any], Awaitable[None]]
) -> None:
    """Its scopes know their own cancellations by the message alone. CancelledError left them, through `move_on_after` and `fail_after`, too."""
    async with running(build) as (producer, cluster):
        held = cluster.hang("Produce")
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_soon(scope.cancel)
            await wait(producer)
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError), anyio.fail_after(0):
            await wait(producer)
        held.release()


async def message_of(ended: Any) -> tuple[Any, ...]:
    with pytest.raises(asyncio.CancelledError) as raised:
        await ended
    return raised.value.args


@pytest.mark.asyncio
async def test_a_cancellation_keeps_its_message(build: Any) -> None:
    """As a future keeps it: that of a task that awaits a delivery, of a handle, and of gather."""
    async with running(build) as (producer, cluster):
        held = cluster.hang("Produce")
        task = asyncio.create_task(waits_for_one(producer))
        gathering = asyncio.create_task(waits_for_gather(producer))
        handles = [await producer.send("orders", b"v") for _ in range(3)]
        asyncio.get_running_loop().call_soon(task.cancel, "of the task")
        asyncio.get_running_loop().call_soon(gathering.cancel, "of gather")
        for handle, message in zip(handles, ("of a handle", "of a handle", None), strict=True):
            assert handle.cancel(message)
        assert await message_of(task) == ("of the task",)
        assert await message_of(gathering) == ("of gather",)
        assert [await message_of(handle) for handle in handles] == [
            ("of a handle",),
            ("of a handle",),
            (),
        ]
        gathered = await asyncio.gather(*handles, return_exceptions=True)
        assert [error.args for error in gathered] == [("of a handle",), ("of a handle",), ("",)]
        with pytest.raises(asyncio.CancelledError, match="of a handle"):
            handles[0].result()
        held.release()


@pytest.mark.asyncio
async def test_a_subclass_may_send_in_its_own_way(build: Any) -> None:
    """The subclass overrides `send` and calls the parent's. `send_and_wait` uses the override."""
    seen: list[Any] = []
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")

        class Audited(producer_on(build)):  # type: ignore[misc]
            async def send(self, topic: str, *record: Any, **options: Any) -> Any:
                seen.append(topic)
                return await super().send(topic, *record, **options)

        with pytest.warns(UserWarning, match="overrides send"):
            audited = Audited(**cluster.client_options)
        async with audited as producer:
            assert inspect.iscoroutinefunction(producer.send)
            await (await producer.send("orders", b"1"))
            await producer.send_and_wait("orders", b"2", key=b"k")
        assert cluster.values("orders") == [b"1", b"2"]
        assert seen == ["orders", "orders"]


@pytest.mark.asyncio
async def test_its_method_may_be_held(build: Any) -> None:
    """The caller may keep the bound method, or the function of the class."""
    async with running(build) as (producer, cluster):
        send = producer.send
        await send("orders", b"1")
        await type(producer).send(producer, "orders", b"2")
        assert send.__self__ is producer
        assert send == producer.send
        await producer.flush()
        assert cluster.values("orders") == [b"first", b"1", b"2"]


def test_its_function_says_what_it_is(build: Any, verb: str) -> None:
    """The method is a coroutine function of Python's own kind in `Producer`, with signature, docstring and annotations."""
    face = producer_on(build)
    producer = face(bootstrap_servers="nowhere:1")
    bound, function = getattr(producer, verb), getattr(face, verb)
    for one in (bound, function, functools.partial(bound, "orders")):
        assert inspect.iscoroutinefunction(one)
    assert inspect.isfunction(function)
    assert inspect.ismethod(bound)
    assert list(inspect.signature(bound).parameters) == [
        "topic",
        "value",
        "key",
        "partition",
        "timestamp_ms",
        "headers",
    ]
    assert (function.__name__, function.__qualname__) == (verb, f"Producer.{verb}")
    assert "Raises:" in (function.__doc__ or "")
    call = bound("orders", b"v")
    assert type(call) is types.CoroutineType
    call.close()


@pytest.mark.asyncio
async def test_mocks_take_it_for_a_coroutine_function(build: Any, verb: str) -> None:
    """`AsyncMock(spec=Producer)` and `create_autospec(Producer)` return awaitables. With autospec, wrong arguments raise."""
    face = producer_on(build)
    for mock in (
        AsyncMock(spec=face),
        AsyncMock(spec_set=face),
        create_autospec(face, instance=True),
        create_autospec(face)(),
    ):
        method = getattr(mock, verb)
        method.return_value = "given"
        assert inspect.iscoroutinefunction(method)
        assert await method("orders", b"v", key=b"k") == "given"
        method.assert_awaited_once_with("orders", b"v", key=b"k")
        assert not hasattr(mock, "sned")
    spec = create_autospec(face, instance=True)
    with pytest.raises(TypeError):
        await getattr(spec, verb)("orders", heders=())
