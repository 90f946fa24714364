"""Holds rows about the client itself: cancellation, other loops, forks, memory, limits, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import Producer
from aioproducer.errors import BufferExhausted, DeliveryError, Persisted, ProducerClosed, RecordTooLarge
from aioproducer.testing import FakeCluster

from .coded import row

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAMS = pathlib.Path(__file__).parent / "programs"


@contextlib.contextmanager
def program(name: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of this folder in a process of its own, with every warning shown. A process that has not ended is killed."""
    command = [sys.executable, "-X", "dev", "-W", "always", str(_PROGRAMS / f"{name}.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# --- 77, 78


@row(77, "the awaiting task is cancelled", "before it is queued: the record is not sent, its place and memory are given back", "parked")
async def cancelled_while_parked() -> None:
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        hang = cluster.hang("Metadata")
        hang.release()
        async with Producer(**cluster.client_options) as producer:
            hang = cluster.hang("Metadata")
            sending = [asyncio.ensure_future(producer.send("orders", b"%d" % number)) for number in range(3)]
            await hang.reached()
            sending[1].cancel()
            hang.release()
            done = await asyncio.gather(*sending, return_exceptions=True)
            assert isinstance(done[1], asyncio.CancelledError)
            assert [(await delivery).offset for delivery in (done[0], done[2])] == [0, 1]  # type: ignore[misc]
            assert producer.buffer_available == producer.config.buffer_memory
        assert cluster.values("orders") == [b"0", b"2"]


@row(77, "the awaiting task is cancelled", "in flight: only that waiter is cancelled, the record goes its way", "in flight")
async def cancelled_in_flight() -> None:
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options) as producer:
            hang = cluster.hang("Produce")
            deliveries = [await producer.send("orders", b"%d" % number) for number in range(3)]

            async def wait(delivery: Any) -> Any:
                return await delivery

            waiting = [asyncio.ensure_future(wait(delivery)) for delivery in (*deliveries, deliveries[1])]
            await hang.reached()
            waiting[1].cancel()
            hang.release()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(done[1], asyncio.CancelledError)
            assert [done[index].offset for index in (0, 2, 3)] == [0, 2, 1]  # type: ignore[union-attr]
            assert producer.buffer_available == producer.config.buffer_memory
        assert cluster.values("orders") == [b"0", b"1", b"2"]


async def _cancelled_after(turns: int, what: Any) -> bool:
    """Cancel a call after `turns` event-loop iterations. Returns whether it was still running."""
    task = asyncio.ensure_future(what)
    for _ in range(turns):
        await asyncio.sleep(0)
    was_going = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return was_going


_CANCELLED = "start, flush or stop is cancelled at any await"


@row(78, _CANCELLED, "nothing is left; a second stop is safe", "start")
async def start_is_cancelled() -> None:
    await _cancel_everywhere("start")


@row(78, _CANCELLED, "nothing is left; a second stop is safe", "flush")
async def flush_is_cancelled() -> None:
    await _cancel_everywhere("flush")


@row(78, _CANCELLED, "nothing is left; a second stop is safe", "stop")
async def stop_is_cancelled() -> None:
    await _cancel_everywhere("stop")


async def _cancel_everywhere(method: str) -> None:
    turns, was_going = 0, True
    while was_going:
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders")
            before = asyncio.all_tasks()
            producer = Producer(**cluster.client_options)
            deliveries: list[Any] = []
            if method != "start":
                await producer.start()
                deliveries = [await producer.send("orders", b"v") for _ in range(3)]
            was_going = await _cancelled_after(turns, getattr(producer, method)())
            await producer.stop()
            await producer.stop()
            for _ in range(5):
                await asyncio.sleep(0)
            assert asyncio.all_tasks() == before, turns
            assert producer.buffer_available == producer.config.buffer_memory
            assert all(delivery.done() for delivery in deliveries)
            if method == "flush":
                assert all(delivery.exception() is None for delivery in deliveries)
        turns += 1
    assert turns > 3


# --- 79, 80, 81


@row(79, "the loop is closed without stop", "a ResourceWarning, no hang, no noise")
def the_loop_is_closed() -> None:
    with program("unstopped") as process:
        out, told = process.communicate(timeout=30)
    assert process.returncode == 0, told
    assert out == "sent\n"
    assert told.count("ResourceWarning: <Producer") == 1, told
    assert "was destroyed" not in told
    assert "Traceback" not in told


@row(80, "used from another loop or thread", "a clear error")
def another_loop() -> None:
    async def main() -> None:
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders")
            async with Producer(**cluster.client_options) as producer:
                await producer.send_and_wait("orders", b"1")
                raised: list[BaseException] = []

                def elsewhere() -> None:
                    try:
                        asyncio.run(producer.send_and_wait("orders", b"2"))
                    except Exception as error:
                        raised.append(error)

                thread = threading.Thread(target=elsewhere)
                thread.start()
                await asyncio.to_thread(thread.join)
                assert [type(error) for error in raised] == [ProducerClosed]
                assert "loop" in str(raised[0])
                await producer.send_and_wait("orders", b"3")
            assert cluster.values("orders") == [b"1", b"3"]

    asyncio.run(main())


@row(81, "fork with a live producer", "the child's use raises, the parent does not notice, the child's exit closes nothing")
def fork() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    with program("forked") as process:
        out, told = process.communicate(timeout=30)
    assert process.returncode == 0, told
    assert out.splitlines() == ["child: ProducerClosed", "parent: 1", "connections: 1"], out + told


# --- 82, 83


@row(
    82, "memory is full, the broker is slow", "send waits in line up to max_block_ms, then BufferExhausted; cancelling gives the place back"
)
async def memory_is_full() -> None:
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        options: dict[str, Any] = {
            "buffer_memory": 200_000,
            "max_block_ms": 2000,
            "max_request_size": 150_000,
            "batch_size": 1000,
            "batch_max_size": 1,
        }
        async with Producer(**cluster.client_options, **options) as producer:
            await producer.send_and_wait("orders", b"first")
            hang = cluster.hang("Produce")
            filling = [await producer.send("orders", bytes(90_000)) for _ in range(2)]
            large = asyncio.ensure_future(producer.send("orders", b"L" * 140_000))
            for _ in range(5):
                await asyncio.sleep(0)
            small = [asyncio.ensure_future(producer.send("orders", b"%d" % number)) for number in range(5)]
            await asyncio.sleep(1)
            assert not large.done()
            assert not any(one.done() for one in small)
            small[2].cancel()
            hang.release()
            ended = await asyncio.gather(large, *small[:2], *small[3:])
            await asyncio.gather(*filling, *ended)
            hang = cluster.hang("Produce")
            filling = [await producer.send("orders", bytes(90_000)) for _ in range(2)]
            began = asyncio.get_running_loop().time()
            with pytest.raises(BufferExhausted):
                await producer.send("orders", bytes(100_000))
            assert asyncio.get_running_loop().time() - began == pytest.approx(2, abs=0.01)
            hang.release()
            await asyncio.gather(*filling)
            assert producer.buffer_available == 200_000
        tail = [value for value in cluster.values("orders") if value is not None and len(value) != 90_000]
        assert tail == [b"first", b"L" * 140_000, b"0", b"1", b"3", b"4"]


@row(83, "a record beyond max_request_size", "an error before it is queued; the limit itself is taken", "beside the limit")
async def beyond_the_limit() -> None:
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, max_request_size=10_000) as producer:
            sizes = {}
            for size in range(9_900, 10_001):
                try:
                    await producer.send_and_wait("orders", bytes(size))
                except RecordTooLarge:
                    sizes[size] = False
                else:
                    sizes[size] = True
            with pytest.raises(RecordTooLarge, match=r"max_request_size.*10.?000"):
                await producer.send("orders", bytes(10_001))
            limit = max(size for size, taken in sizes.items() if taken)
            assert not sizes[10_000]
            assert limit > 9_900
            assert all(taken is (size <= limit) for size, taken in sizes.items())
        assert max(len(value or b"") for value in cluster.values("orders")) == limit


@row(83, "a record beyond max_request_size", "a codec that makes it larger does no harm", "incompressible")
def incompressible() -> None:
    async def main() -> None:
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders")
            async with Producer(**cluster.client_options, compression_type="gzip", max_request_size=50_000) as producer:
                value = os.urandom(49_000)
                assert (await producer.send_and_wait("orders", value)).offset == 0
            assert cluster.values("orders") == [value]

    asyncio.run(main())


# --- 84, 85


@row(84, "stop while senders wait", "for metadata or memory: they end with ProducerClosed", "waiting")
async def stop_while_senders_wait() -> None:
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        producer = Producer(**cluster.client_options, buffer_memory=100_000, max_request_size=90_000, close_timeout_ms=1000)
        await producer.start()
        await producer.send_and_wait("orders", b"v")
        cluster.hang("Produce")
        queued = await producer.send("orders", bytes(80_000))
        waiting = [asyncio.ensure_future(producer.send(topic, bytes(50_000))) for topic in ("orders", "unknown")]
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        await producer.stop()
        assert asyncio.get_running_loop().time() - began <= 1.1
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in ended] == [ProducerClosed, ProducerClosed]
        assert isinstance(queued.exception(), DeliveryError)
        assert producer.buffer_available == 100_000


@row(84, "stop while senders wait", "a broker that is gone: the rest fail at the time-out, as certain or unknown", "broker gone")
async def stop_with_the_broker_gone() -> None:
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        producer = Producer(**cluster.client_options, close_timeout_ms=2000)
        await producer.start()
        for partition in (0, 1):
            await producer.send_and_wait("orders", b"v", partition=partition)
        await cluster.brokers[1].stop(silently=True)
        hang = cluster.hang("Produce", broker=2)
        unsent = await producer.send("orders", b"unsent", partition=0)
        unknown = await producer.send("orders", b"unknown", partition=1)
        await hang.reached()
        began = asyncio.get_running_loop().time()
        await producer.stop()
        assert asyncio.get_running_loop().time() - began == pytest.approx(2, abs=0.1)
        failures = [unsent.exception(), unknown.exception()]
        assert [getattr(failure, "persisted", None) for failure in failures] == [Persisted.NO, Persisted.MAYBE]


@row(85, "send after stop", "ProducerClosed at once")
async def send_after_stop() -> None:
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"v")
        for call in (producer.send, producer.send_and_wait):
            with pytest.raises(ProducerClosed):
                await call("orders", b"v")
        assert cluster.values("orders") == [b"v"]


# --- 90


def _interrupted(which: int) -> tuple[int, str, str]:
    with program("interrupted") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sending\n"
        process.send_signal(which)
        out, told = process.communicate(timeout=30)
    return process.returncode, out, told


@row(90, "KeyboardInterrupt or SIGTERM in asyncio.run", "what is queued is flushed, bounded; the exit code is kept", "KeyboardInterrupt")
def keyboard_interrupt() -> None:
    code, out, told = _interrupted(signal.SIGINT)
    assert code == -signal.SIGINT, told
    assert out == "logged 100\n", told


@row(90, "KeyboardInterrupt or SIGTERM in asyncio.run", "what is queued is flushed, bounded; the exit code is kept", "SIGTERM, handled")
def sigterm() -> None:
    code, out, told = _interrupted(signal.SIGTERM)
    assert code == 143, told
    assert out == "logged 100\n", told
