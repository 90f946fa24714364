"""The whole producer over sockets, on each kind of loop: it works, and `stop` leaves no socket, task or warning."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import psutil
import pytest
import uvloop
from whole import assert_nothing_left

from aioproducer import Producer
from aioproducer.testing import FakeCluster

LOOPS = {
    "asyncio": asyncio.SelectorEventLoop,
    "debug": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


def run(kind: str, main: Any) -> None:
    """Run on one kind of loop, and assert that as many files are open afterwards as before."""
    with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
        runner.run(asyncio.sleep(0))  # files that a kind of loop opens once for the process
    gc.collect()
    before = psutil.Process().num_fds()
    with asyncio.Runner(loop_factory=LOOPS[kind], debug=kind == "debug") as runner:
        runner.run(main())
    gc.collect()
    assert psutil.Process().num_fds() == before


@pytest.mark.parametrize("kind", LOOPS)
def test_it_sends_and_leaves_nothing(kind: str) -> None:
    """The records go to two brokers and exceed a write buffer, and the producer loses a connection meanwhile."""

    async def main() -> None:
        async with FakeCluster(brokers=2) as cluster:
            cluster.create_topic("orders", partitions=4)
            before = asyncio.all_tasks()
            files = psutil.Process().num_fds()
            async with Producer(
                **cluster.client_options, buffer_memory=500_000, retry_backoff_ms=1
            ) as producer:
                await producer.send_and_wait("orders", b"first")
                cluster.fail("Produce", disconnect="before")
                deliveries = [
                    await producer.send("orders", b"%d" % number + bytes(1000), key=b"%d" % number)
                    for number in range(2000)
                ]
                await asyncio.gather(*deliveries)
            assert_nothing_left(producer, before)
            while any(broker.connections for broker in cluster.brokers.values()):
                await asyncio.sleep(0.001)
            assert psutil.Process().num_fds() <= files
            assert len(cluster.values("orders")) == 2001
            assert cluster.violations == []

    run(kind, main)


@pytest.mark.parametrize("kind", LOOPS)
def test_stop_is_bounded_and_clean_when_a_broker_reads_nothing(kind: str) -> None:
    """More bytes wait to be written than the sockets' buffers hold: `stop` aborts the connections."""

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.create_topic("orders")
            before = asyncio.all_tasks()
            producer = Producer(**cluster.client_options, close_timeout_ms=50)
            await producer.start()
            await producer.send_and_wait("orders", b"first")
            files = psutil.Process().num_fds()
            cluster.brokers[1].pause()
            deliveries = [await producer.send("orders", bytes(1_000_000)) for _ in range(15)]
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await producer.stop()
            assert all(delivery.exception() for delivery in deliveries)
            await asyncio.sleep(0)
            assert_nothing_left(producer, before)
            assert psutil.Process().num_fds() < files
            cluster.brokers[1].resume()

    run(kind, main)


@pytest.mark.parametrize("kind", LOOPS)
def test_start_against_nobody_leaves_nothing(kind: str) -> None:
    """The kernel refuses the connection: the error names the address, and no socket stays."""

    async def main() -> None:
        async with FakeCluster() as cluster:
            await cluster.brokers[1].stop()
            producer = Producer(**cluster.client_options, max_block_ms=30)
            before = asyncio.all_tasks()
            with pytest.raises(Exception, match=cluster.bootstrap_servers):
                await producer.start()
            assert_nothing_left(producer, before)

    run(kind, main)
