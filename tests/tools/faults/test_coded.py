"""Rows that data cannot express. Asynchronous ones run in time that jumps."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import pathlib
import signal
import subprocess
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any, Self

import psutil
import pytest
from jumping import jumping

from aioproducer import Producer, ProducerConfig
from aioproducer.errors import ConfigError, DeliveryError, Persisted
from aioproducer.testing import FakeCluster, ListenerSecurity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aioproducer.testing.memory import MemoryNetwork
    from aioproducer.testing.thread import FakeClusterThread

_PROGRAMS = pathlib.Path(__file__).parent / "programs"


def played(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a row in time that jumps. It may leave no task, and the event loop may report nothing."""

    @functools.wraps(function)
    async def main(**given: Any) -> None:
        before = asyncio.all_tasks()
        await function(**given)
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    return jumping(main)


@contextlib.contextmanager
def program(name: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of this folder in a process of its own, with every warning shown. A process that has not ended is killed."""
    command = [sys.executable, "-X", "dev", "-W", "always", str(_PROGRAMS / f"{name}.py")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@played
async def test_row_77_cancelled_while_parked() -> None:
    """Row 77, the awaiting task is cancelled (parked): before it is queued: the record is not sent, its place and memory are given back."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        hang = cluster.hang("Metadata")
        hang.release()
        async with Producer(**cluster.client_options) as producer:
            hang = cluster.hang("Metadata")
            sending = [
                asyncio.ensure_future(producer.send("orders", b"%d" % number))
                for number in range(3)
            ]
            await hang.reached()
            sending[1].cancel()
            hang.release()
            done = await asyncio.gather(*sending, return_exceptions=True)
            assert isinstance(done[1], asyncio.CancelledError)
            assert [(await delivery).offset for delivery in (done[0], done[2])] == [0, 1]  # type: ignore[misc]
            assert producer.buffer_available == producer.config.buffer_memory
        assert cluster.values("orders") == [b"0", b"2"]


async def _cancelled_after(turns: int, what: Any) -> bool:
    """Cancel a call after `turns` event-loop iterations. Returns whether it was still running."""
    task = asyncio.ensure_future(what)
    for _ in range(turns):
        await asyncio.sleep(0)
    was_going = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return was_going


@pytest.mark.parametrize("method", ["flush", "stop"])
@played
async def test_row_78_cancelled(method: str) -> None:
    """Row 78, start, flush or stop is cancelled at any await: nothing is left; a second stop is safe."""
    turns, was_going = 0, True
    while was_going:
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders")
            before = asyncio.all_tasks()
            producer = Producer(**cluster.client_options)
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


@played
async def test_row_84_stop_with_the_broker_gone() -> None:
    """Row 84, stop while senders wait (broker gone): a broker that is gone: the rest fail at the time-out, as certain or unknown."""
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
        assert [getattr(failure, "persisted", None) for failure in failures] == [
            Persisted.NO,
            Persisted.MAYBE,
        ]


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)]
)
def test_row_90_interrupted(sent: int, status: int) -> None:
    """Row 90, KeyboardInterrupt, or SIGTERM that is handled, in asyncio.run: what is queued is flushed, bounded; the exit code is kept."""
    with program("interrupted") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sending\n"
        process.send_signal(sent)
        out, told = process.communicate(timeout=30)
    assert (process.returncode, out) == (status, "logged 100\n"), told


class Cutting:
    """A dialer that cuts the next Produce request after some bytes, and resets its connection."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self.cut: int | None = None
        self.size = 0

    async def dial(self, host: str, port: int, receiver: Callable[[], Any]) -> Any:
        stream = await self._network.dial(host, port, receiver)
        write = stream.write

        def cutting(data: Any) -> None:
            is_produce = bytes(data[4:6]) == b"\x00\x00"
            if not is_produce or self.cut is None:
                write(data)
                return
            self.size = len(data)
            write(bytes(data[: self.cut]))
            self.cut = None
            asyncio.get_running_loop().call_later(0.01, stream.abort)

        stream.write = cutting  # type: ignore[method-assign]  # a test's wedge
        return stream


@played
async def test_row_6_a_request_is_cut_anywhere() -> None:
    """Row 6, reset mid-request (at each cut point): sent again; the broker sees no part of a batch."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        assert cluster.network is not None
        dialer = Cutting(cluster.network)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, dialer=dialer) as producer:
            offset = 0
            size = 1
            while offset < size:
                dialer.cut = offset
                assert (await producer.send_and_wait("orders", b"%d" % offset)).offset == offset
                offset, size = offset + 1, dialer.size
        assert offset > 100
        assert cluster.values("orders") == [b"%d" % number for number in range(offset)]
        assert cluster.violations == []


@played
async def test_row_88_the_wall_clock_jumps() -> None:
    """Row 88, the wall clock jumps, a laptop sleeps (by an hour, both ways): deadlines do not see the wall clock; timestamps do."""
    now = 1_700_000_000.0
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        options = {
            **cluster.client_options,
            "delivery_timeout_ms": 5000,
            "request_timeout_ms": 4000,
        }
        async with Producer(**options, wall_clock=lambda: now) as producer:
            for hours in (0, 1, -2):
                now += 3600 * hours
                delivery = await producer.send("orders", b"v")
                assert (await delivery).timestamp_ms == now * 1000
            hang = cluster.hang("Produce")
            began = asyncio.get_running_loop().time()
            delivery = await producer.send("orders", b"v")
            await hang.reached()
            now += 7200
            await asyncio.sleep(1)
            assert not delivery.done()
            hang.release()
            await delivery
            assert asyncio.get_running_loop().time() - began < 2
        assert len(cluster.requests("Produce")) == 4


class _Turns:
    """Measures the most CPU seconds of this thread in one event-loop iteration, without the collector's pauses."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> Self:
        gc.collect()
        gc.disable()
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        gc.enable()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(
                0.0001
            )  # in each iteration of a busy loop, without keeping an idle loop busy
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now


_BAR = 0.010  # seconds


def test_row_50_one_large_topic(fake_cluster: FakeClusterThread) -> None:
    """Row 50, Metadata with 100,000 partitions (of one topic, new): the loop is never held for more than 10 ms.

    The cluster is in a thread of its own, so that its work is not counted as the client's.
    """

    async def main() -> float:
        longest = 1.0
        for _ in range(3):  # a busy machine may make one of them look slow
            if longest >= _BAR:
                async with Producer(**fake_cluster.client_options) as producer, _Turns() as turns:
                    await producer.send_and_wait("orders", b"v", partition=99_999)
                    await asyncio.gather(*[await producer.send("orders", b"v") for _ in range(100)])
                longest = min(longest, turns.longest)
        return longest

    fake_cluster.create_topic("orders", 100_000)
    longest = asyncio.run(main())
    assert longest < _BAR, f"a turn of the loop took {longest * 1000:.1f} ms of CPU"


def test_row_50_one_large_topic_changes(fake_cluster: FakeClusterThread) -> None:
    """Row 50, Metadata with 100,000 partitions (of one topic, that grows, or is made anew with few): the loop is never held for more than 10 ms."""

    def make_anew() -> None:
        fake_cluster.delete_topic("orders")
        fake_cluster.create_topic("orders", 3)

    def grow() -> None:
        fake_cluster.add_partitions("orders", 100_100)

    def asked() -> int:
        return len(fake_cluster.requests("Metadata"))

    async def main() -> dict[int, float]:
        longest = {100_100: 1.0, 3: 1.0}
        async with Producer(**fake_cluster.client_options, metadata_max_age_ms=300) as producer:
            await producer.send_and_wait("orders", b"v", partition=1)
            assert producer._engine is not None
            routings = producer._engine.parts.partition_queues.routings
            for _ in range(3):  # a busy machine may make one of them look slow
                for partitions, change in (
                    ((100_100, grow), (3, make_anew)) if max(longest.values()) >= _BAR else ()
                ):
                    async with _Turns() as turns:
                        await asyncio.to_thread(change)
                        while len(routings["orders"].queues) != partitions:
                            await producer.send_and_wait("orders", b"v", partition=1)
                        before = asked()
                        # the client drops the old ones, and nothing changes any more
                        while asked() < before + 2:
                            await producer.send_and_wait("orders", b"v", partition=1)
                    longest[partitions] = min(longest[partitions], turns.longest)
        return longest

    fake_cluster.create_topic("orders", 100_000)
    longest = asyncio.run(main())
    assert max(longest.values()) < _BAR, f"a turn of the loop took seconds of CPU for: {longest}"


def _held(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of the package."""
    return [one.getMessage() for one in caplog.records if one.name.startswith("aioproducer")]


async def _blocked(
    caplog: pytest.LogCaptureFixture, name: str, **options: Callable[..., Any]
) -> None:
    """A user's function delays two records of ten by a second each. One warning names the function, and no other effect is seen."""
    gc.collect()  # what an earlier test left warns when it is collected
    caplog.clear()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        async with Producer(**cluster.client_options, **options) as producer:
            deliveries = [
                await producer.send("orders", b"canary", b"%d" % number) for number in range(10)
            ]
            if not options:
                for delivery in deliveries:
                    delivery.add_done_callback(
                        lambda delivery: _take_a_second(delivery.index in {2, 5})
                    )
            assert max(metadata.offset for metadata in await asyncio.gather(*deliveries)) >= 4
            await asyncio.sleep(0.1)
        assert len(cluster.values("orders")) == 10
    [told] = _held(caplog)
    assert told.split(" held the event loop for ")[0] == name
    assert "canary" not in told


def _take_a_second(condition: object) -> None:
    loop: Any = asyncio.get_running_loop()
    if condition:
        loop.advance(1)


@played
async def test_row_86_a_partitioner_blocks(caplog: pytest.LogCaptureFixture) -> None:
    """Row 86, a user's serializer, partitioner or callback raises, or blocks for 1 s (a partitioner blocks): one warning names it; no record fails."""

    def choose(key: Any, partitions: Any) -> int:
        _take_a_second(key in {b"2", b"5"})
        return int(key) % 2

    await _blocked(caplog, "partitioner", partitioner=choose)


@played
async def test_row_86_a_callback_blocks(caplog: pytest.LogCaptureFixture) -> None:
    """Row 86, a user's serializer, partitioner or callback raises, or blocks for 1 s (a callback blocks): one warning names it; no record fails."""
    await _blocked(
        caplog,
        "a delivery's done callback (_blocked.<locals>.<lambda>, gather.<locals>._done_callback)",
    )


@played
async def test_row_86_a_hook_blocks(caplog: pytest.LogCaptureFixture) -> None:
    """Row 86, a user's serializer, partitioner or callback raises, or blocks for 1 s (on_delivery_error blocks): one warning names it; no record fails."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.fail("Produce", error="INVALID_REQUIRED_ACKS")
        async with Producer(
            **cluster.client_options,
            on_delivery_error=lambda error, count: _take_a_second(count),
        ) as producer:
            await producer.send("orders", b"canary")
            await asyncio.sleep(1)
            assert (await producer.send_and_wait("orders", b"v")).offset == 0
    held = [text for text in _held(caplog) if "held the event loop" in text]
    assert [text.split(" held ")[0] for text in held] == ["on_delivery_error"]


async def _cpu_of(pending: int) -> float:
    """Return CPU seconds for each record of `pending` records that are all pending at once."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(
            **cluster.client_options, buffer_memory=2**30, linger_ms=1000
        ) as producer:
            await producer.send_and_wait("orders", b"first")
            hang = cluster.hang("Produce")
            before = psutil.Process().memory_info().rss
            began = time.thread_time()
            deliveries = [await producer.send("orders", b"0123456789") for _ in range(pending)]
            gathered = asyncio.gather(*deliveries)
            await asyncio.sleep(0)
            grown = psutil.Process().memory_info().rss - before
            hang.release()
            await gathered
            took = time.thread_time() - began
            assert producer.buffer_available == producer.config.buffer_memory
        assert cluster.end_offsets("orders") == {0: pending + 1}
    assert grown < pending * _BYTES + 2**24, f"{grown / pending:.0f} bytes a delivery"
    return took / pending


async def _cpu_of_topics(count: int) -> float:
    """Return CPU seconds for each topic of `count` topics that are all new at once."""
    async with FakeCluster(memory=True) as cluster:
        names = [f"topic-{number}" for number in range(count)]
        for name in names:
            cluster.create_topic(name)
        async with Producer(**cluster.client_options, buffer_memory=2**27) as producer:
            began = time.thread_time()
            sending = await asyncio.gather(*(producer.send(name, b"v") for name in names))
            await asyncio.gather(*sending)
            took = time.thread_time() - began
            assert producer.buffer_available == producer.config.buffer_memory
        assert all(cluster.end_offsets(name) == {0: 1} for name in names)
        assert len(cluster.requests("Metadata")) < 10 + count / 100
    return took / count


async def _assert_linear(cost: Callable[[int], Awaitable[float]], count: int) -> None:
    """Assert that the cost of each one at a tenth of the number is at least half of the cost at the full number.

    Other work of the machine can only make a measurement worse, so the best of several counts. The collector is off: its full passes go
    over all objects of the process, and chance decides how many passes one measurement has.
    """
    gc.disable()
    try:
        few = min([await cost(count // 10) for _ in range(3)])
        many = 1.0
        for _ in range(3):
            if many > 2 * few:
                many = min(many, await cost(count))
    finally:
        gc.enable()
    assert many <= 2 * few, f"{many * 1e6:.1f} us each, of a tenth as many {few * 1e6:.1f}"


_BYTES = 500  # at most so much for a pending delivery with its record, its callback and its place in a gather


@played
async def test_row_87_very_many_deliveries() -> None:
    """Row 87, a million pending deliveries, 10,000 topics (deliveries): linear time, bounded memory that all comes back."""
    await _assert_linear(_cpu_of, 1_000_000)


@played
async def test_row_87_very_many_topics() -> None:
    """Row 87, a million pending deliveries, 10,000 topics (topics): linear time, bounded memory that all comes back."""
    await _assert_linear(_cpu_of_topics, 10_000)


def test_row_89_no_compressor() -> None:
    """Row 89, the compressor is missing, or raises (missing): an error when the producer is made."""
    program = "import sys; sys.modules['cramjam'] = None\nfrom aioproducer import Producer\nProducer(compression_type='snappy')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"{ConfigError.__module__}.ConfigError")
    assert "snappy" in done.stderr.splitlines()[-1]


def test_row_89_a_compressor_raises() -> None:
    """Row 89, the compressor is missing, or raises (raises): its records fail, certainly not written; the next are sent."""

    async def main() -> None:
        with pytest.MonkeyPatch.context() as patch:
            async with FakeCluster(memory=True) as cluster:
                cluster.create_topic("orders")
                async with Producer(**cluster.client_options, compression_type="gzip") as producer:
                    await producer.send_and_wait("orders", b"1" * 1000)

                    def broken(*args: Any, **options: Any) -> bytes:
                        raise MemoryError("no room for a window")

                    patch.setattr(zlib, "compress", broken)
                    with pytest.raises(DeliveryError) as raised:
                        await producer.send_and_wait("orders", b"2" * 1000)
                    assert raised.value.persisted == "no"
                    patch.undo()
                    await producer.send_and_wait("orders", b"3" * 1000)
                assert [value[:1] for value in cluster.values("orders") if value] == [b"1", b"3"]

    asyncio.run(main())


_SECURITY = ListenerSecurity("SASL_SSL", users={"alice": "canary-alice"}, session_ms=2000)
_LOGIN = {
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "canary-alice",
}


def _have_logged_in(cluster: FakeCluster) -> None:
    """Assert that each connection has logged in, and that no login was refused."""
    done = cluster.security.authentications
    assert {one.connection for one in done} == {dial.connection for dial in cluster.security.dials}
    assert not any(one.error for one in done)


def test_row_118_another_loop() -> None:
    """Row 118, fork, a second loop, two producers of one config (another loop, in another thread): each authenticates by itself."""

    async def send(config: ProducerConfig) -> int:
        async with Producer(config) as producer:
            return (await producer.send_and_wait("orders", b"v")).offset

    async def main() -> None:
        async with FakeCluster(security=_SECURITY) as cluster:
            cluster.create_topic("orders")
            config = ProducerConfig(**cluster.client_options, **_LOGIN)
            async with Producer(config) as producer:
                assert (await producer.send_and_wait("orders", b"v")).offset == 0
                logins = len(cluster.security.authentications)
                assert await asyncio.to_thread(asyncio.run, send(config)) == 1
                assert len(cluster.security.authentications) > logins
                assert (await producer.send_and_wait("orders", b"v")).offset == 2
            _have_logged_in(cluster)

    asyncio.run(main())


def test_row_118_a_forked_child() -> None:
    """Row 118, fork, a second loop, two producers of one config (a forked child): each authenticates by itself; the child may not use the parent's."""
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    with program("logging_in") as process:
        out, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert out.splitlines() == [
        "child, with the parent's: ProducerClosed",
        "child, with its own: 1",
        "parent: 2",
        "as many logins: True",
        "connections without a login: set()",
    ], out + told
    assert "canary" not in out + told
