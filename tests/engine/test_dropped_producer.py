"""A producer that the program drops without a call of `stop`.

The producer sends the queued records, closes everything, and logs one message.
"""

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

from aioproducer import Producer, ProducerClosed
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return all warnings of the library, each without the producer's name and its advice."""
    records = [record for record in caplog.records if record.name.startswith("aioproducer") and record.levelno >= logging.WARNING]
    assert {record.name for record in records} <= {"aioproducer"}
    return [record.getMessage().partition("without stop(): ")[2].partition(". Use")[0] for record in records]


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


async def send(cluster: FakeCluster, count: int, **options: Any) -> None:
    """Make a producer and drop it, as a handler does that makes a producer for each request."""
    producer = Producer(**cluster.client_options, **options)
    await producer.start()
    for number in range(count):
        await producer.send("orders", b"%d" % number)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("options", [{"linger_ms": 60_000}, {}, {"acks": 0, "enable_idempotence": False}])
@jumping
async def test_what_is_queued_is_sent_first(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """The producer sends its queued records; then its tasks end and its connections are closed."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        before = asyncio.all_tasks()
        for nth in (1, 2):
            await send(cluster, 5, **options)
            await asyncio.sleep(1)
            assert told(caplog) == ["all its records were sent"] * nth
            assert len(cluster.values("orders")) == 5 * nth
            assert asyncio.all_tasks() == before
            assert open_streams(cluster) == 0


@jumping
async def test_a_task_made_it(caplog: pytest.LogCaptureFixture) -> None:
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
        await asyncio.sleep(1)
        assert told(caplog) == ["all its records were sent"]


@jumping
async def test_it_is_a_resource_warning_too() -> None:
    """The dropped producer gives one ResourceWarning, which names it."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        with one_resource_warning():
            await send(cluster, 1)
        await asyncio.sleep(1)
        assert cluster.values("orders") == [b"0"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@jumping
async def test_what_could_not_be_sent_within_close_timeout_ms_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The message counts the records that still wait and those that failed meanwhile; then the producer closes everything."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        before = asyncio.all_tasks()
        cluster.hang("Produce", times=None)
        await send(cluster, 5, close_timeout_ms=3000)
        await asyncio.sleep(2.9)
        assert told(caplog) == []
        await asyncio.sleep(0.2)
        assert told(caplog) == ["5 records not sent, or not acknowledged"]
        gc.collect()
        assert len(told(caplog)) == 1
        assert asyncio.all_tasks() == before
        cluster.faults.clear()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@jumping
async def test_an_open_transaction_is_aborted(caplog: pytest.LogCaptureFixture) -> None:
    """The dropped producer aborts its transaction, as `stop` does. The next producer of that name need not wait for its time-out."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")

        async def begin() -> None:
            producer = Producer(**cluster.client_options, transactional_id="t")
            await producer.start()
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"v")

        await begin()
        await asyncio.sleep(1)
        assert told(caplog) == ["all its records were sent"]
        assert [request.message.committed for request in cluster.requests("EndTxn")] == [False]


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
async def test_the_collector_may_find_it_in_another_thread(caplog: pytest.LogCaptureFixture) -> None:
    """The producer is in a cycle, as web frameworks have them, and the collector runs in another thread."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        before = asyncio.all_tasks()

        async def forget() -> None:
            state: dict[str, Any] = {"producer": Producer(**cluster.client_options)}
            state["state"] = state
            await state["producer"].start()
            await state["producer"].send("orders", b"v")

        await forget()
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
        await asyncio.sleep(1)
        assert told(caplog) == ["all its records were sent"]
        assert asyncio.all_tasks() == before
        assert open_streams(cluster) == 0


@jumping
async def test_warnings_that_are_errors_do_not_keep_it_from_ending(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python only prints what `__del__` raises, so the producer ends all the same."""
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await send(cluster, 1)
        await asyncio.sleep(1)
        assert told(caplog) == ["all its records were sent"]
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


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_program_that_ends(make_loop: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    """`asyncio.run` cancels every task: the records that were not sent by then are lost, and the producer logs that once."""

    async def main() -> None:
        cluster.hang("Produce", times=None)
        await send(cluster, 3)

    with served() as cluster:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(main())
        gc.collect()
        assert told(caplog) == ["3 records not sent, or not acknowledged"]
        cluster.faults.clear()


@pytest.mark.parametrize("make_loop", LOOPS)
def test_stop_in_another_loop_once_the_own_one_is_closed(make_loop: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    """`stop` closes what is open and logs what was lost; the collector has nothing to warn of afterwards."""

    async def main() -> Producer[Any, Any]:
        producer = Producer(**cluster.client_options, linger_ms=60_000)
        await producer.start()
        await producer.send("orders", b"v")
        return producer

    with served() as cluster:
        loop = make_loop()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of the loop itself, for its transports
            producer = loop.run_until_complete(main())
            loop.close()
            asyncio.run(producer.stop())
            gc.collect()
            assert told(caplog) == ["1 record not sent, or not acknowledged"]
            asyncio.run(producer.stop())
            del producer
            gc.collect()
        assert len(told(caplog)) == 1


ENDS = """
import asyncio, gc, sys
import uvloop
from aioproducer import Producer
from aioproducer.testing import FakeCluster

async def main():
    cluster = FakeCluster(memory=True)
    await cluster.__aenter__()
    cluster.create_topic("orders")
    cluster.hang("Produce")
    producer = Producer(**cluster.client_options)
    await producer.start()
    for number in range(3):
        await producer.send("orders", b"%d" % number)
    return producer

loop = {"asyncio": asyncio, "uvloop": uvloop}[sys.argv[1]].new_event_loop()
producer = loop.run_until_complete(main())
"""
DROPPED = "the producer was dropped without stop(): 3 records not sent, or not acknowledged."
AT_THE_END = {
    "still referenced": ("", "the program ends without stop(): 3 records not acknowledged."),
    "still referenced, and sends wait": (
        "asyncio.Task(producer.send('unknown', b'v'), loop=loop)\nloop.run_until_complete(asyncio.sleep(0.01))",
        "the program ends without stop(): 4 records not acknowledged.",
    ),
    "dropped, and the loop runs no more": ("del producer\ngc.collect()", DROPPED),
    "dropped, and the flush has begun": ("del producer\ngc.collect()\nloop.run_until_complete(asyncio.sleep(0.01))", DROPPED),
}
# The function is registered before the module is imported, so it is called after the module's own.
STOPPED_AT_EXIT = """
import asyncio, atexit, sys

@atexit.register
def stop():
    loop.run_until_complete(producer.stop())
    print([delivery.result().offset for delivery in deliveries])

import uvloop
from aioproducer import Producer
from aioproducer.testing import FakeCluster

async def main():
    cluster = FakeCluster(memory=True)
    await cluster.__aenter__()
    cluster.create_topic("orders")
    producer = Producer(**cluster.client_options, linger_ms=60_000)
    await producer.start()
    return producer, [await producer.send("orders", b"%d" % number) for number in range(3)]

loop = {"asyncio": asyncio, "uvloop": uvloop}[sys.argv[1]].new_event_loop()
producer, deliveries = loop.run_until_complete(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("end", AT_THE_END)
def test_a_program_that_ends_with_its_loop_open(end: str, loop: str) -> None:
    """`loop.run_until_complete` without `loop.close()`, as many scripts have it: default settings show the number of lost records, once."""
    code, text = AT_THE_END[end]
    ended = subprocess.run([sys.executable, "-c", ENDS + code, loop], capture_output=True, text=True, timeout=120, check=True)
    lines = [line for line in ended.stderr.splitlines() if "without stop()" in line]
    assert len(lines) == 1, ended.stderr
    assert text in lines[0]
    assert "never awaited" not in ended.stderr


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_program_that_stops_its_producer_by_atexit(loop: str) -> None:
    """Its records are sent, also if the function was registered before the import of this library, and is therefore called last."""
    ended = subprocess.run([sys.executable, "-c", STOPPED_AT_EXIT, loop], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "[0, 1, 2]\n", ended.stderr


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_record_of_a_thread_that_waits_for_its_topic_is_counted_as_lost(
    make_loop: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The event loop has taken it, and no task waits for it that would keep the producer."""

    async def main() -> Producer[Any, Any]:
        producer = Producer(**cluster.client_options)
        await producer.start()
        await asyncio.to_thread(producer.from_thread.send, "unknown", b"v")
        await turns(10)
        return producer

    with served() as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        cluster.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", times=1000)
        loop = make_loop()
        producer = loop.run_until_complete(main())
        assert producer.metrics() is not None
        # The executor's thread holds the producer until it has returned from the call.
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        del producer
        gc.collect()
        assert told(caplog) == ["1 record not sent, or not acknowledged"]


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
        asyncio.run(producer.stop())
        del producer
        gc.collect()
