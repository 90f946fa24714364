"""An event loop that was held: blocking code in it, SIGSTOP, a laptop that slept (row 88).

The producer judges deadlines that passed meanwhile one iteration later, after the loop has read the sockets. An answer that has come in
time gives no time-out and no retry. In real time: the broker runs in a thread of its own, and answers while the producer's loop hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aioproducer import DeliveryError, Producer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
HELD = 0.6  # seconds, twice every time-out below
SHORT = {
    "request_timeout_ms": 300,
    "delivery_timeout_ms": 300,
    "max_block_ms": 300,
    "retry_backoff_ms": 1,
}


@contextmanager
def elsewhere(script: Callable[[FakeCluster], None]) -> Iterator[FakeCluster]:
    """Give a cluster in another thread."""
    ready: list[FakeCluster] = []
    is_up, is_over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with FakeCluster() as cluster:
            cluster.create_topic("orders", partitions=2)
            script(cluster)
            ready.append(cluster)
            is_up.set()
            await asyncio.get_running_loop().run_in_executor(None, is_over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_up.wait(10)
        yield ready[0]
    finally:
        is_over.set()
        thread.join()


def run(kind: str, main: Any) -> None:
    with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
        runner.run(main)


async def known(producer: Producer[Any, Any]) -> None:
    """Connect and get the topic's metadata, before the loop is held."""
    await producer.send_and_wait("orders", b"first", partition=0)


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("holds", ["a task", "a callback"])
def test_answers_that_waited_in_the_socket_count(kind: str, holds: str) -> None:
    """The request and delivery time-outs passed twice over: the producer does not retry, and no record fails."""
    with elsewhere(lambda cluster: cluster.delay("Produce", 0.05)) as cluster:

        async def main() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, **SHORT) as producer:
                await known(producer)
                delivery = await producer.send("orders", b"v", partition=0)
                await asyncio.sleep(0.01)
                if holds == "a callback":
                    asyncio.get_running_loop().call_soon(time.sleep, HELD)
                else:
                    time.sleep(HELD)  # noqa: ASYNC251  the bug that is tried
                assert (await delivery).offset == 1

        run(kind, main())
        assert_sent_once(cluster)


def assert_sent_once(cluster: FakeCluster) -> None:
    """Assert that the two records took one request each, on one connection."""
    requests = cluster.requests("Produce")
    assert len(requests) == 2
    assert len({request.connection for request in requests}) == 1


def twice(cluster: FakeCluster) -> None:
    """Delay the second answer until the loop hangs for the second time."""
    cluster.delay("Produce", 0.0, times=1)
    cluster.delay("Produce", 0.5, times=1)


@pytest.mark.parametrize("kind", LOOPS)
def test_a_timer_behind_one_that_holds_the_loop_waits_for_the_sockets(kind: str) -> None:
    """Both timers are due in the same iteration. The first one holds the loop until the answer comes, and the loop has not read it yet."""
    with elsewhere(twice) as cluster:

        async def main() -> None:
            loop = asyncio.get_running_loop()
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, **SHORT) as producer:
                await known(producer)
                delivery = await producer.send("orders", b"v", partition=0)
                loop.call_later(0.2, time.sleep, HELD)
                await asyncio.sleep(0.01)
                time.sleep(0.32)  # noqa: ASYNC251  until all of them are due
                assert (await delivery).offset == 1

        run(kind, main())
        assert_sent_once(cluster)


@pytest.mark.parametrize("kind", LOOPS)
def test_memory_that_waited_in_the_socket_counts(kind: str) -> None:
    """`max_block_ms` passed twice over while the answer that frees memory was there: the send does not fail."""
    with elsewhere(lambda cluster: cluster.delay("Produce", 0.05)) as cluster:

        async def main() -> None:
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers,
                buffer_memory=4000,
                batch_size=1000,
                **SHORT,
            ) as producer:
                await known(producer)
                first = await producer.send("orders", b"." * 2500, partition=0)
                waiting = asyncio.create_task(producer.send("orders", b"." * 2500, partition=0))
                await asyncio.sleep(0.01)
                assert not waiting.done()
                time.sleep(HELD)  # noqa: ASYNC251
                await (await waiting)
                assert (await first).offset == 1

        run(kind, main())


@pytest.mark.parametrize("kind", LOOPS)
def test_what_did_not_come_times_out_all_the_same(kind: str) -> None:
    """The delivery times out one iteration later, and not after that."""
    with elsewhere(lambda cluster: cluster.delay("Produce", 5.0)) as cluster:

        async def main() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, **SHORT) as producer:
                delivery = await producer.send("orders", b"v", partition=0)
                await asyncio.sleep(0.01)
                time.sleep(HELD)  # noqa: ASYNC251
                began = time.monotonic()
                error = (await asyncio.gather(delivery, return_exceptions=True))[0]
                assert isinstance(error, DeliveryError)
                # the answer comes after 5 s
                assert time.monotonic() - began < 3

        run(kind, main())
