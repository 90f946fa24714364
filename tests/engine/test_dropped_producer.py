"""A producer that the program drops without a call of `stop`: one ResourceWarning, and nothing is sent for it or left of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from whole import jumping, open_streams, turns

from aioproducer import DeliveryError, Producer, ProducerClosed
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.new_event_loop,
    uvloop.new_event_loop,
]


@contextmanager
def one_resource_warning() -> Iterator[None]:
    """Expect one ResourceWarning of the producer, which default settings ignore. Those of the test's own cluster do not count."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield
    assert sum("was never stopped" in str(warning.message) for warning in caught) == 1
    for warning in caught:
        warning.source = None  # it would hold the producer


@pytest.fixture(autouse=True)
def _nothing_of_others() -> None:
    gc.collect()


async def send(cluster: FakeCluster, count: int, **options: Any) -> list[Any]:
    """Make a producer and drop it, as a handler does that makes a producer for each request."""
    producer = Producer(**cluster.client_options, **options)
    await producer.start()
    return [await producer.send("orders", b"%d" % number) for number in range(count)]


@jumping
async def test_it_ends_at_once_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its tasks and connections end, its interceptors are closed, and its records fail: they were not sent."""
    closed: list[str] = []

    class Closing:
        def on_error(self, *_told: Any) -> None:
            closed.append("error")

        def close(self) -> None:
            closed.append("close")

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        before = asyncio.all_tasks()
        for _ in range(2):
            with one_resource_warning():
                deliveries = await send(cluster, 2, linger_ms=60_000, interceptors=[Closing()])
                gc.collect()
            with pytest.raises(DeliveryError, match="dropped without stop") as raised:
                await deliveries[0]
            assert raised.value.persisted == "no"
            assert isinstance(deliveries[1].exception(), DeliveryError)
            await turns(20)
            assert asyncio.all_tasks() == before
            assert open_streams(cluster) == 0
        assert cluster.values("orders") == []
        assert closed == ["error", "error", "close"] * 2
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@jumping
async def test_records_that_no_code_looks_at_are_told_of_as_any(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Default settings hide a ResourceWarning. The log says that records were lost."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        await send(cluster, 3, linger_ms=60_000)
        await turns(20)
        gc.collect()
        (told,) = [
            record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
        ]
        assert "3 records failed, and no code looked at the outcome" in told


@jumping
async def test_a_task_made_it() -> None:
    """The producer is the result of the task that started it, which nothing of the producer's may reference."""

    async def make() -> Producer[bytes, bytes]:
        producer = Producer(**cluster.client_options)
        await producer.start()
        return producer

    async with FakeCluster(memory=True) as cluster:
        with one_resource_warning():
            await asyncio.create_task(make())
            await turns(2)
            gc.collect()
        await turns(20)
        assert open_streams(cluster) == 0


@jumping
async def test_what_is_held_of_a_producer_holds_it() -> None:
    """`from_thread` and a transaction that has not begun keep the producer alive while the program uses them."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        producer = Producer(**cluster.client_options, transactional_id="t")
        await producer.start()
        scope = producer.transaction()
        del producer
        gc.collect()
        async with scope:
            pass
        door = scope._running.__closure__[0].cell_contents.from_thread  # type: ignore[attr-defined]
        del scope
        gc.collect()
        await turns(10)
        producer = door._owner
        assert "running" in repr(producer)
        await producer.stop()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@jumping
async def test_the_collector_may_find_it_in_another_thread() -> None:
    """The producer is in a cycle, as web frameworks have them, and the collector runs in another thread."""
    async with FakeCluster(memory=True) as cluster:
        before = asyncio.all_tasks()

        async def forget() -> None:
            state: dict[str, Any] = {"producer": Producer(**cluster.client_options)}
            state["state"] = state
            await state["producer"].start()

        await forget()
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == before
        assert open_streams(cluster) == 0


@jumping
async def test_warnings_that_are_errors_do_not_keep_it_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python only prints what `__del__` raises, so the producer ends all the same."""
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    async with FakeCluster(memory=True) as cluster:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await send(cluster, 0)
        await asyncio.sleep(1)
        assert open_streams(cluster) == 0


@contextmanager
def served() -> Iterator[FakeCluster]:
    """Give a cluster with real sockets in a thread of its own, which outlives the loops of the test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    cluster = FakeCluster()
    run(cluster.__aenter__())
    cluster.create_topic("orders")
    try:
        yield cluster
    finally:
        run(cluster.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("make_loop", LOOPS)
def test_stop_in_another_loop_once_the_own_one_is_closed(make_loop: Callable[[], Any]) -> None:
    """`stop` closes what is open; the collector has nothing to warn of afterwards."""

    async def main() -> Producer[Any, Any]:
        producer = Producer(**cluster.client_options, linger_ms=60_000)
        await producer.start()
        await producer.send("orders", b"v")
        return producer

    with served() as cluster:
        loop = make_loop()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            producer = loop.run_until_complete(main())
            loop.close()
            asyncio.run(producer.stop())
            asyncio.run(producer.stop())
            with pytest.raises(ProducerClosed, match="has stopped"):
                asyncio.run(producer.send_and_wait("orders", b"v"))
            del producer
            gc.collect()
        assert [warning for warning in caught if "was never stopped" in str(warning.message)] == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_producer_whose_loop_is_closed_is_not_ready(make_loop: Callable[[], Any]) -> None:
    """`health` names the reason, so that a probe in another thread ends the program. `from_thread` refuses in every thread."""

    async def main() -> Producer[Any, Any]:
        producer = Producer(**cluster.client_options)
        await producer.start()
        assert producer.health()
        return producer

    with served() as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        loop = make_loop()
        producer = loop.run_until_complete(main())
        loop.close()
        assert producer.health().reasons == ("the producer's loop is closed",)
        with pytest.raises(ProducerClosed, match="loop is closed"):
            producer.from_thread.send("orders", b"v")
        del producer
        gc.collect()


ENDS = """
import asyncio, gc, sys
import uvloop
from aioproducer import Producer
from aioproducer.testing import FakeCluster

async def main():
    cluster = FakeCluster(memory=True)
    await cluster.__aenter__()
    cluster.create_topic("orders")
    producer = Producer(**cluster.client_options, linger_ms=60_000)
    await producer.start()
    deliveries = [await producer.send("orders", b"%d" % number) for number in range(3)]
    return producer, deliveries
"""
WAYS = {
    "asyncio.run": "asyncio.run(main())",
    "still referenced, and the loop left open": "kept = asyncio.new_event_loop().run_until_complete(main())",
    "dropped, and the loop left open": "asyncio.new_event_loop().run_until_complete(main())[1][0]\ngc.collect()",
    "uvloop left open": "kept = uvloop.new_event_loop().run_until_complete(main())",
    "stopped by atexit": """
import atexit

@atexit.register
def stop():
    loop.run_until_complete(producer.stop())
    print([delivery.result().offset for delivery in deliveries])

loop = asyncio.new_event_loop()
producer, deliveries = loop.run_until_complete(main())
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_ends(way: str) -> None:
    """It ends, without a traceback or a hang; a function of `atexit` can still stop the producer."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDS + WAYS[way]],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "Traceback" not in ended.stderr
    assert "never awaited" not in ended.stderr
    assert ended.stdout == ("[0, 1, 2]\n" if way == "stopped by atexit" else "")
