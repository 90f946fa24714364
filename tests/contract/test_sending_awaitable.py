"""What `send` and `send_and_wait` give is a coroutine to everybody: each case on both builds of the way of a record."""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import contextvars
import copy
import functools
import gc
import inspect
import io
import pickle
import sys
import traceback
import types
import warnings
import weakref
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, create_autospec

import anyio
import fastapi
import httpx
import pytest
from builds import BUILDS, on_compiled, producer_on
from starlette.background import BackgroundTask

from aioproducer.engine import plain
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

VERBS = ("send", "send_and_wait")


class Boom(Exception):
    """What a test throws."""


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Stepped by hand: the way is a stub


class Slow:
    """A slow way: what it was asked, and a future for each step of it. It ends with `delivery`, or what it is told to raise."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.ended: list[str] = []
        self.step: Callable[[], Any] = lambda: None

    async def __call__(self, *record: Any) -> Any:
        self.asked.append(record)
        try:
            self.step()
            await pause()
            return Now(record)
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise


@types.coroutine
def pause() -> Iterator[str]:
    """One step."""
    yield "waits"


class Now:
    """What stands for a delivery: over at once."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __await__(self) -> Iterator[Any]:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Now) and other.record == self.record

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def face(build: Any, slow: Slow) -> Any:
    """A producer of that build that knows only the slow way."""

    class Face(build.SendPath):  # type: ignore[misc, name-defined]
        pass

    made = Face()
    made._way = build.Way(lambda: 1, slow)
    return made


def states(call: Any) -> tuple[str, bool, bool]:
    return inspect.getcoroutinestate(call), call.cr_running, call.cr_suspended


def test_it_is_stepped_to_its_end(face: Any, slow: Slow, verb: str) -> None:
    """Nothing happens before the first step; it yields what the slow way yields, and ends with what that gives."""
    call = getattr(face, verb)("orders", b"v", b"k", partition=1, timestamp_ms=2, headers=[("a", b"1")])
    assert slow.asked == []
    assert states(call) == ("CORO_CREATED", False, False)
    assert call.send(None) == "waits"
    assert slow.asked == [("orders", b"v", b"k", 1, 2, [("a", b"1")])]
    assert states(call) == ("CORO_SUSPENDED", False, True)
    with pytest.raises(StopIteration) as ended:
        call.send(None)
    assert ended.value.value == (Now(slow.asked[0]) if verb == "send" else None)
    assert states(call) == ("CORO_CLOSED", False, False)
    for again in (lambda: call.send(None), lambda: call.throw(Boom)):
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            again()
    assert call.close() is None
    assert slow.ended == []


def test_it_takes_nothing_before_its_first_step(face: Any, slow: Slow, verb: str) -> None:
    """As a coroutine; and it can be stepped all the same after that."""
    call = getattr(face, verb)("orders")
    with pytest.raises(TypeError, match="can't send non-None value to a just-started coroutine"):
        call.send(1)
    assert states(call) == ("CORO_CREATED", False, False)
    assert call.send(None) == "waits"
    call.close()
    assert slow.ended == ["GeneratorExit"]


THROWN: dict[str, tuple[Any, ...]] = {
    "a class": (Boom,),
    "an instance": (Boom("it"),),
    "cancellation": (asyncio.CancelledError("now"),),
    "KeyboardInterrupt": (KeyboardInterrupt,),
    "GeneratorExit": (GeneratorExit,),
}


@pytest.mark.parametrize("error", THROWN.values(), ids=THROWN)
@pytest.mark.parametrize("steps", [0, 1])
def test_what_is_thrown_into_it_ends_it(face: Any, slow: Slow, verb: str, steps: int, error: tuple[Any, ...]) -> None:
    """Before its first step the slow way never learns of it."""
    call = getattr(face, verb)("orders")
    for _ in range(steps):
        call.send(None)
    kind = error[0] if isinstance(error[0], type) else type(error[0])
    with pytest.raises(kind) as raised:
        call.throw(*error)
    assert isinstance(error[0], type) or raised.value is error[0]
    assert slow.ended == [kind.__name__] * steps
    assert states(call) == ("CORO_CLOSED", False, False)
    with pytest.raises(RuntimeError, match="cannot reuse"):
        call.send(None)


def test_what_is_no_error_is_not_thrown(face: Any, slow: Slow, verb: str) -> None:
    """TypeError: before its first step it goes on as before; later that ends it."""
    call = getattr(face, verb)("orders")
    for odd in ("error", 3, int):
        with pytest.raises(TypeError, match="exceptions must be"):
            call.throw(odd)
    assert states(call) == ("CORO_CREATED", False, False)
    assert call.send(None) == "waits"
    with pytest.raises(TypeError, match="exceptions must be"):
        call.throw("error")
    assert states(call) == ("CORO_CLOSED", False, False)
    assert slow.ended == ["TypeError"]


def test_a_slow_way_may_go_on_after_an_error(build: Any, face: Any, verb: str) -> None:
    """What was thrown is caught there: it yields once more, and then ends; or it ends at once."""

    async def stubborn(*record: Any) -> Any:
        with contextlib.suppress(Boom):
            await pause()
        if record[0] == "twice":
            await pause()
        return Now(record)

    face._way = build.Way(lambda: 1, stubborn)
    call = getattr(face, verb)("twice")
    call.send(None)
    assert call.throw(Boom) == "waits"
    assert states(call) == ("CORO_SUSPENDED", False, True)
    with pytest.raises(StopIteration):
        call.send(None)
    call = getattr(face, verb)("once")
    call.send(None)
    with pytest.raises(StopIteration) as ended:
        call.throw(Boom())
    assert isinstance(ended.value.value, Now) == (verb == "send")
    assert states(call) == ("CORO_CLOSED", False, False)


def test_an_error_of_the_slow_way_comes_out(face: Any, slow: Slow, verb: str) -> None:
    """In its first step and later, whoever steps it."""

    def fail() -> None:
        raise Boom("first")

    slow.step = fail
    for step in (lambda call: call.send(None), lambda call: next(call.__await__()), lambda call: call.__await__().send(None)):
        call = getattr(face, verb)("orders")
        with pytest.raises(Boom, match="first"):
            step(call)
        assert states(call) == ("CORO_CLOSED", False, False)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_close_ends_it(face: Any, slow: Slow, verb: str, steps: int) -> None:
    """In every state, twice; no complaint of one that never began."""
    call = getattr(face, verb)("orders")
    with contextlib.suppress(StopIteration):
        for _ in range(steps):
            call.send(None)
    call.close()
    call.close()
    assert states(call) == ("CORO_CLOSED", False, False)
    assert slow.ended == ["GeneratorExit"] * (steps == 1)
    with pytest.raises(RuntimeError, match="cannot reuse"):
        call.send(None)
    del call
    gc.collect()


def test_a_slow_way_that_ignores_close(build: Any, face: Any, verb: str) -> None:
    """RuntimeError, as of any coroutine; it is over."""

    async def ignoring(*_record: Any) -> None:
        with contextlib.suppress(GeneratorExit):
            await pause()
        await pause()

    face._way = build.Way(lambda: 1, ignoring)
    call = getattr(face, verb)("orders")
    call.send(None)
    with pytest.raises(RuntimeError, match="coroutine ignored GeneratorExit"):
        call.close()
    assert states(call) == ("CORO_CLOSED", False, False)
    call.close()


def test_it_does_not_run_twice_at_once(face: Any, slow: Slow, verb: str) -> None:
    """Stepped, thrown into or closed from within its own step."""
    call = getattr(face, verb)("orders")
    seen: list[str] = []

    def again() -> None:
        assert states(call)[:2] == ("CORO_RUNNING", True)
        for step in (lambda: call.send(None), lambda: call.throw(Boom), call.close):
            with pytest.raises(ValueError, match="coroutine already executing") as raised:
                step()
            seen.append(str(raised.value))

    slow.step = again
    assert call.send(None) == "waits"
    assert len(seen) == 3
    assert states(call) == ("CORO_SUSPENDED", False, True)
    call.close()


def run_through(call: Any) -> Any:
    call.send(None)
    with pytest.raises(StopIteration):
        call.send(None)
    return call


def test_one_that_is_over_stays_so_while_anybody_has_it(face: Any, slow: Slow, verb: str) -> None:
    """The next ones take its place only once nobody has it."""
    kept = []
    for number in range(6):
        call = run_through(getattr(face, verb)("orders", b"%d" % number))
        if number % 2:
            kept.append(call)
        del call
    assert [record[1] for record in slow.asked] == [b"%d" % number for number in range(6)]
    assert len({id(call) for call in kept}) == 3
    for call in kept:
        assert states(call) == ("CORO_CLOSED", False, False)
        with pytest.raises(RuntimeError, match="cannot reuse"):
            call.send(None)


def test_one_that_takes_the_place_of_another_is_as_new(face: Any, slow: Slow, verb: str) -> None:
    """Whatever that one was: it is told when nobody awaits it, and takes what it is given."""
    run_through(getattr(face, verb)("orders", b"v", b"k", partition=1, timestamp_ms=2, headers=[("a", b"1")]))
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        getattr(face, verb)("orders")
    call = getattr(face, verb)("others")
    assert states(call) == ("CORO_CREATED", False, False)
    run_through(call)
    assert slow.asked[-1] == ("others", None, None, None, None, ())


def test_one_that_is_watched_is_seen_to_go(face: Any, verb: str) -> None:
    """At once, as any coroutine: it is kept for nobody."""
    call = getattr(face, verb)("orders")
    gone = weakref.ref(call)
    run_through(call)
    del call
    assert gone() is None


def test_what_is_over_keeps_no_producer(face: Any, slow: Slow, verb: str) -> None:
    """Nor do they keep each other: it goes with its last reference, without the collector."""
    other = type(face)()
    other._way = face._way
    for steps in (1, 2):
        call = getattr(other, verb)("orders")
        with contextlib.suppress(StopIteration):
            for _ in range(steps):
                call.send(None)
        call.close()
    gone = weakref.ref(other)
    del other
    assert gone() is None
    del call
    assert slow.ended == ["GeneratorExit"]


def test_headers_are_read_at_the_first_step(face: Any, slow: Slow, verb: str) -> None:
    """As a coroutine reads them, however they changed since the call."""
    headers: list[Any] = []
    call = getattr(face, verb)("orders", headers=headers)
    headers.append(("a", b"1"))
    call.send(None)
    assert slow.asked == [("orders", None, None, None, None, [("a", b"1")])]
    call.close()


def test_it_says_what_it_is(face: Any, verb: str) -> None:
    """In each state, and without a trace of having been asked."""
    call = getattr(face, verb)("orders", b"v")
    for _ in range(3):
        assert inspect.iscoroutine(call)
        assert inspect.isawaitable(call)
        assert asyncio.iscoroutine(call)
        for kind in (types.CoroutineType, collections.abc.Coroutine, collections.abc.Awaitable):
            assert isinstance(call, kind)
        for kind in (collections.abc.Iterable, collections.abc.Iterator, collections.abc.Generator, asyncio.Future):
            assert not isinstance(call, kind)
        assert not inspect.isgenerator(call)
        assert (call.__name__, call.__qualname__) == (verb, f"SendPath.{verb}")
        assert repr(call) == f"<coroutine object SendPath.{verb} at {id(call):#x}>"
        assert call.cr_origin is None
        assert isinstance(call.cr_code, types.CodeType)
        assert weakref.ref(call)() is call
        assert {call: "it"}[call] == "it"
        for fail in (iter, list, len):
            with pytest.raises(TypeError):
                fail(call)
        with contextlib.suppress(StopIteration, RuntimeError):
            call.send(None)


def test_it_shows_the_face_that_the_twin_shows(face: Any, verb: str) -> None:
    """Its frame, its code, its arguments, while it has not begun; that it was looked at changes nothing."""
    call = getattr(face, verb)("orders", b"v", partition=3)
    twin = getattr(plain.SendPath, verb)
    assert call.cr_frame.f_code is call.cr_code is twin.__code__
    assert inspect.getcoroutinelocals(call) == {
        "self": face, "topic": "orders", "value": b"v", "key": None, "partition": 3, "timestamp_ms": None, "headers": (),
    }  # fmt: skip
    assert call.cr_await is None
    assert states(call) == ("CORO_CREATED", False, False)
    assert call.send(None) == "waits"
    assert call.cr_frame is not None
    assert call.cr_await is not None
    with pytest.raises(StopIteration):
        call.send(None)
    assert call.cr_frame is call.cr_await is None


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_it_is_not_copied(face: Any, verb: str, steps: int, way: Callable[[Any], Any]) -> None:
    call = getattr(face, verb)("orders")
    with contextlib.suppress(StopIteration):
        for _ in range(steps):
            call.send(None)
    with pytest.raises(TypeError, match="cannot pickle 'coroutine' object"):
        way(call)
    call.close()


MISTAKES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "no topic": ((), {}),
    "no topic but a value": ((), {"value": b"v"}),
    "an unknown keyword": (("orders", b"v"), {"heders": ()}),
    "too many": (("orders", b"v", b"k", 0), {}),
    "a topic twice": (("orders",), {"topic": "orders"}),
}


@pytest.mark.parametrize(("arguments", "options"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_call_is_raised_by_the_call(
    face: Any, slow: Slow, verb: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    """Not by the first step; and there is nothing that was never awaited."""
    with pytest.raises(TypeError, match=rf"{verb}\(\)"):
        getattr(face, verb)(*arguments, **options)
    gc.collect()
    assert slow.asked == []


def test_topic_may_be_named(face: Any, slow: Slow, verb: str) -> None:
    call = getattr(face, verb)(key=b"k", topic="orders", value=b"v")
    call.send(None)
    assert slow.asked == [("orders", b"v", b"k", None, None, ())]
    call.close()


def complaints(*steps: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in steps:
            step()
        gc.collect()
    return [f"{one.category.__name__}: {one.message}" for one in told]


def test_one_that_is_never_awaited_complains(face: Any, slow: Slow, verb: str) -> None:
    """Once; dropped at once, or looked at before, or in a cycle; not if it was closed, thrown into or begun."""
    send = getattr(face, verb)
    wanted = [f"RuntimeWarning: coroutine 'SendPath.{verb}' was never awaited"]

    def in_a_cycle() -> None:
        holder: list[Any] = []
        holder.append(send("orders", holder))

    def of_an_object() -> None:
        class Value:
            call: Any

        value = Value()
        value.call = send("orders", value)

    assert complaints(lambda: send("orders") and None) == wanted
    assert complaints(lambda: send("orders").cr_frame and None) == wanted
    assert complaints(in_a_cycle) == wanted
    assert complaints(of_an_object) == wanted
    assert complaints(lambda: send("orders").close()) == []
    assert complaints(lambda: pytest.raises(Boom, lambda: send("orders").throw(Boom)) and None) == []  # noqa: RUF061
    assert slow.asked == []
    assert complaints(lambda: send("orders").send(None) and None) == []


@on_compiled
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_while_it_complains_nobody_finds_it(build: Any, verb: str) -> None:
    """What is made for the complaint may run the collector, which may run anything: that must not get hold of what is about to go."""
    path = build.SendPath()
    path._way = build.Way(lambda: 1, lambda *_: None)
    found: list[Any] = []
    last: list[Any] = [0, lambda: None]

    def look(_phase: str, _info: Any) -> None:
        found.extend(one for one in (last[1](), *gc.get_objects()) if id(one) == last[0])

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(look)
    gc.set_threshold(1)
    try:
        for _ in range(20):
            gc.disable()
            call = getattr(path, verb)("orders")
            last[:] = id(call), weakref.ref(call)
            gc.enable()
            del call
            gc.disable()
    finally:
        gc.callbacks.remove(look)
        gc.set_threshold(*before)
        gc.enable()
    assert found == []
    assert len({id(getattr(path, verb)("orders")) for _ in range(20)}) < 20  # they go, and their memory is used again


def test_in_debug_mode_the_complaint_says_where_it_was_made(face: Any, verb: str) -> None:
    """Not where it was dropped; and it works there as it does elsewhere."""

    def made() -> Any:
        return getattr(face, verb)("orders")

    async def main() -> None:
        [told] = complaints(made)
        assert "Coroutine created at" in told
        assert "in made" in told
        call = made()
        assert call.cr_origin
        assert call.send(None) == "waits"
        call.close()

    asyncio.run(main(), debug=True)


def test_one_that_waits_in_a_cycle_is_closed_by_the_collector(face: Any, slow: Slow, verb: str) -> None:
    holder: list[Any] = []
    holder.append(getattr(face, verb)("orders", holder))
    holder[0].send(None)
    slow.asked.clear()
    watch = weakref.ref(holder[0])
    del holder
    gc.collect()
    assert watch() is None
    assert slow.ended == ["GeneratorExit"]


def test_it_can_be_awaited_by_hand(face: Any, slow: Slow, verb: str) -> None:
    """An object's `__await__` that goes by that of a send; one that throws into it and closes it."""

    class Wrapped:
        def __await__(self) -> Any:
            return (yield from getattr(face, verb)("orders").__await__())

    async def main() -> Any:
        return await Wrapped()

    call = main()
    assert call.send(None) == "waits"
    with pytest.raises(StopIteration):
        call.send(None)
    for end, error in ((lambda call: call.throw(Boom), Boom), (lambda call: call.close(), None)):
        call = main()
        call.send(None)
        with pytest.raises(error) if error else contextlib.nullcontext():
            end(call)
    assert slow.ended == ["Boom", "GeneratorExit"]


def test_a_face_that_was_never_made_says_so(build: Any, verb: str) -> None:
    """AttributeError at the first step."""
    call = getattr(build.SendPath.__new__(build.SendPath), verb)("orders")
    with pytest.raises(AttributeError, match="'SendPath' object has no attribute '_way'"):
        call.send(None)


# In tasks, on a loop


@pytest.mark.asyncio
async def test_a_second_await_is_refused(face: Any, verb: str) -> None:
    """Of one that is over, and of one that another task awaits, which it does not disturb."""
    call = getattr(face, verb)("orders")
    waiting = asyncio.get_running_loop().create_future()

    async def wait(*record: Any) -> Any:
        await waiting
        return Now(record)

    face._way.slowly = wait
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="coroutine is being awaited already"):
        await call
    assert not task.done()
    waiting.set_result(None)
    assert isinstance(await task, Now) == (verb == "send")
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await call


@pytest.mark.asyncio
async def test_a_task_shows_where_it_stands(face: Any, verb: str) -> None:
    """`get_coro`, `repr`, `get_stack`, `print_stack`: before it began, while it waits, and when it is over."""

    async def sleeping(*record: Any) -> Any:
        await asyncio.sleep(0)
        return Now(record)

    def shown() -> tuple[str, list[str]]:
        text = io.StringIO()
        task.print_stack(file=text)
        assert f"SendPath.{verb}()" in text.getvalue()
        assert task.get_coro() is call
        return repr(task), [frame.f_code.co_name for frame in task.get_stack()]

    face._way.slowly = sleeping
    call = getattr(face, verb)("orders")
    task = asyncio.Task(call)
    text, frames = shown()
    assert f"coro=<SendPath.{verb}() running at" in text
    assert frames == [verb]
    await asyncio.sleep(0)
    text, frames = shown()
    assert f"coro=<SendPath.{verb}() running at" in text
    assert len(frames) == 1
    file, line = text.split("running at ")[1].split(">")[0].rsplit(":", 1)
    assert (file, int(line)) == (task.get_stack()[0].f_code.co_filename, task.get_stack()[0].f_lineno)
    await task
    text, frames = shown()
    assert f"coro=<SendPath.{verb}() done, defined at" in text
    assert frames == []


@pytest.mark.asyncio
async def test_a_traceback_leads_to_the_senders_line(face: Any, slow: Slow, verb: str) -> None:
    """From the user's line to the one that raised, by way of the same names."""

    def fail() -> None:
        raise Boom

    async def sender() -> None:
        await getattr(face, verb)("orders")  # this one

    slow.step = fail
    with pytest.raises(Boom) as raised:
        await sender()
    trace = traceback.extract_tb(raised.value.__traceback__)
    assert [one.name for one in trace][:2] == ["test_a_traceback_leads_to_the_senders_line", "sender"]
    assert "this one" in (trace[1].line or "")
    assert [one.name for one in trace][-2:] == ["__call__", "fail"]


@pytest.mark.asyncio
async def test_what_a_task_has_in_its_context_is_seen(face: Any, verb: str) -> None:
    variable = contextvars.ContextVar("variable", default="")
    seen: list[str] = []

    async def look(*record: Any) -> Any:
        seen.append(variable.get())
        await asyncio.sleep(0)
        seen.append(variable.get())
        return Now(record)

    face._way.slowly = look
    variable.set("mine")
    task = asyncio.create_task(getattr(face, verb)("orders"))
    variable.set("other")
    await task
    assert seen == ["mine", "mine"]


# With a real producer, on a fake cluster


@contextlib.asynccontextmanager
async def running(build: Any, **options: Any) -> AsyncIterator[tuple[Any, FakeCluster]]:
    """A producer to which the topic is known, so that the next send goes the fast way."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with producer_on(build)(**cluster.client_options, **options) as producer:
            await producer.send_and_wait("orders", b"first")
            yield producer, cluster
        assert cluster.violations == []


async def by_create_task(call: Any, producer: Any) -> None:
    await asyncio.create_task(call())


async def by_ensure_future(call: Any, producer: Any) -> None:
    await asyncio.ensure_future(call())


async def by_task_group(call: Any, producer: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(call())


async def by_gather(call: Any, producer: Any) -> None:
    await asyncio.gather(call())


async def by_wait_for(call: Any, producer: Any) -> None:
    await asyncio.wait_for(call(), 10)


async def by_wait(call: Any, producer: Any) -> None:
    await asyncio.wait([asyncio.create_task(call())])


async def by_timeout(call: Any, producer: Any) -> None:
    async with asyncio.timeout(10):
        await call()


async def by_shield(call: Any, producer: Any) -> None:
    await asyncio.shield(call())


async def by_as_completed(call: Any, producer: Any) -> None:
    for ended in asyncio.as_completed([call()]):
        await ended


async def from_a_thread(call: Any, producer: Any) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(call(), loop).result(10))


async def by_python_task(call: Any, producer: Any) -> None:
    await asyncio.tasks._PyTask(call())  # type: ignore[attr-defined]


async def by_eager_task(call: Any, producer: Any) -> None:
    task = asyncio.Task(call(), eager_start=True, loop=asyncio.get_running_loop())  # type: ignore[call-arg]
    assert task.done() == (producer.verb == "send")
    await task


async def by_start_soon(call: Any, producer: Any) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(call)


async def by_move_on_after(call: Any, producer: Any) -> None:
    with anyio.move_on_after(10) as scope:
        await call()
    assert not scope.cancelled_caught


async def by_background_task(call: Any, producer: Any) -> None:
    await BackgroundTask(call)()


async def by_fastapi(call: Any, producer: Any) -> None:
    app = fastapi.FastAPI()

    @app.post("/orders")
    async def order(tasks: fastapi.BackgroundTasks) -> dict[str, bool]:
        tasks.add_task(call)
        return {"taken": True}

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.post("/orders")).json() == {"taken": True}


async def by_partial_of_partial(call: Any, producer: Any) -> None:
    wrapped = functools.partial(functools.partial(call))
    assert inspect.iscoroutinefunction(wrapped)
    await wrapped()


async def by_exit_stack(call: Any, producer: Any) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(call)


RUNNERS: list[Callable[[Any, Any], Awaitable[None]]] = [
    by_create_task, by_ensure_future, by_task_group, by_gather, by_wait_for, by_wait, by_timeout, by_shield, by_as_completed, from_a_thread,
    by_python_task, by_start_soon, by_move_on_after, by_background_task, by_fastapi, by_partial_of_partial, by_exit_stack,
]  # fmt: skip
if sys.version_info >= (3, 12):
    RUNNERS.append(by_eager_task)


@pytest.mark.parametrize("run", RUNNERS, ids=[run.__name__ for run in RUNNERS])
@pytest.mark.asyncio
async def test_whoever_runs_it_the_record_is_sent(build: Any, verb: str, run: Callable[[Any, Any], Awaitable[None]]) -> None:
    """Fast and slow: to a topic that is known, and to one that has to be asked for first."""
    async with running(build) as (producer, cluster):
        cluster.create_topic("others")
        producer.verb = verb
        for topic in ("orders", "orders"):
            await run(functools.partial(getattr(producer, verb), topic, b"v", b"k"), producer)
        if run is not by_eager_task:
            await run(functools.partial(getattr(producer, verb), topic="others", value=b"w", headers=[("a", b"1")]), producer)
        await producer.flush()
        assert cluster.values("orders") == [b"first", b"v", b"v"]
        assert cluster.values("others") == [b"w"] * (run is not by_eager_task)


@pytest.mark.asyncio
async def test_records_stand_in_the_order_of_their_first_steps(build: Any) -> None:
    """Not of their calls; whichever way each is run."""
    async with running(build) as (producer, cluster):
        late, early = producer.send("orders", b"late"), producer.send("orders", b"early")
        await early
        await late
        tasks = [asyncio.create_task(producer.send("orders", b"%d" % number)) for number in range(100)]
        assert len(cluster.values("orders")) == 1
        await asyncio.gather(*tasks)
        await asyncio.gather(*(producer.send_and_wait("orders", b"%d" % number) for number in range(100, 200)))
        assert cluster.values("orders") == [b"first", b"early", b"late", *(b"%d" % number for number in range(200))]


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
async def test_cancelled_while_it_waits_for_metadata_it_is_not_queued(build: Any, verb: str) -> None:
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
        assert [value[:9].rstrip(b"\0") for value in cluster.values("orders")] == [b"first", b"0", b"1", b"2", b"next"]


@pytest.mark.asyncio
async def test_cancelled_while_it_waits_for_the_next_turn_it_is_not_queued(build: Any) -> None:
    """The first of a tight loop that does not end with its first step."""
    async with running(build) as (producer, cluster):
        for sent in range(100_000):  # noqa: B007
            call = producer.send("orders", bytes(100))
            try:
                call.send(None)
            except StopIteration:
                continue
            break
        with pytest.raises(asyncio.CancelledError):
            call.throw(asyncio.CancelledError)
        assert states(call) == ("CORO_CLOSED", False, False)
        await producer.flush()
        assert 100 < sent < 99_999
        assert len(cluster.values("orders")) == 1 + sent


@pytest.mark.asyncio
async def test_cancelling_a_send_that_waits_for_its_record_leaves_the_record(build: Any) -> None:
    """It was queued; it is sent all the same."""
    async with running(build, linger_ms=20) as (producer, cluster):
        task = asyncio.create_task(producer.send_and_wait("orders", b"v"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await producer.flush()
        assert cluster.values("orders") == [b"first", b"v"]


@pytest.mark.asyncio
async def test_a_subclass_may_send_in_its_own_way(build: Any) -> None:
    """It overrides `send` and calls the one above; `send_and_wait` goes by that."""
    seen: list[Any] = []
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")

        class Audited(producer_on(build)):  # type: ignore[misc]
            async def send(self, topic: str, *record: Any, **options: Any) -> Any:
                seen.append(topic)
                return await super().send(topic, *record, **options)

        async with Audited(**cluster.client_options) as producer:
            assert inspect.iscoroutinefunction(producer.send)
            await (await producer.send("orders", b"1"))
            await producer.send_and_wait("orders", b"2", key=b"k")
        assert cluster.values("orders") == [b"1", b"2"]
        assert seen == ["orders", "orders"]


@pytest.mark.asyncio
async def test_its_method_may_be_held(build: Any) -> None:
    """Bound, and of the class."""
    async with running(build) as (producer, cluster):
        send = producer.send
        await send("orders", b"1")
        await type(producer).send(producer, "orders", b"2")
        assert send.__self__ is producer
        assert send == producer.send
        await producer.flush()
        assert cluster.values("orders") == [b"first", b"1", b"2"]


def test_its_function_says_what_it_is(build: Any, verb: str) -> None:
    """A coroutine function with the signature, the text and the types of the twin's."""
    face = producer_on(build)
    producer = face(bootstrap_servers="nowhere:1")
    twin = getattr(plain.SendPath, verb)
    bound, function = getattr(producer, verb), getattr(face, verb)
    for one in (bound, function, functools.partial(bound, "orders")):
        assert inspect.iscoroutinefunction(one)
        assert not inspect.isgeneratorfunction(one)
        assert not inspect.isasyncgenfunction(one)
    assert inspect.ismethod(bound)
    assert inspect.isroutine(function)
    assert inspect.signature(function) == inspect.signature(twin)
    assert list(inspect.signature(bound).parameters) == ["topic", "value", "key", "partition", "timestamp_ms", "headers"]
    assert (function.__name__, function.__qualname__) == (verb, f"SendPath.{verb}")
    assert function.__doc__ == twin.__doc__
    assert function.__annotations__ == twin.__annotations__
    assert (function.__defaults__, function.__kwdefaults__) == (twin.__defaults__, twin.__kwdefaults__)
    assert inspect.getsource(function) == inspect.getsource(twin)


@pytest.mark.asyncio
async def test_mocks_take_it_for_a_coroutine_function(build: Any, verb: str) -> None:
    """`AsyncMock(spec=Producer)`, `create_autospec(Producer)`: what they give is awaited; with autospec, mistakes in calls are seen.

    But not of compiled functions: `unittest.mock` asks for Python's own kind.
    """
    face = producer_on(build)
    for mock in (AsyncMock(spec=face), AsyncMock(spec_set=face), create_autospec(face, instance=True), create_autospec(face)()):
        method = getattr(mock, verb)
        method.return_value = "given"
        assert inspect.iscoroutinefunction(method)
        assert await method("orders", b"v", key=b"k") == "given"
        method.assert_awaited_once_with("orders", b"v", key=b"k")
        assert not hasattr(mock, "sned")
    spec = create_autospec(face, instance=True)
    with pytest.raises(TypeError) if build is plain else contextlib.nullcontext():
        await getattr(spec, verb)("orders", heders=())
