"""A start that fails, is cancelled or is stopped leaves nothing and may be repeated; a long one logs why."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from whole import assert_nothing_left, jumping, open_streams, turns

from aioproducer import Producer
from aioproducer.errors import BootstrapFailed, ProducerClosed
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterable


def notices(records: Iterable[logging.LogRecord]) -> list[str]:
    return [
        record.getMessage()
        for record in records
        if record.name == "aioproducer" and record.levelno == logging.WARNING
    ]


@jumping
async def test_a_start_that_failed_may_be_tried_again() -> None:
    """A service that boots before Kafka calls `start` in a loop. The producer closes its interceptors once, at the end."""
    closed: list[int] = []

    class Closed:
        def close(self) -> None:
            closed.append(1)

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        await cluster.brokers[1].stop()
        before = asyncio.all_tasks()
        producer = Producer(**cluster.client_options, max_block_ms=300, interceptors=[Closed()])
        for attempt in range(3):
            with pytest.raises(BootstrapFailed):
                await producer.start()
            assert_nothing_left(producer, before)
            with pytest.raises(ProducerClosed, match="not started"):
                await producer.send("orders", b"v")
            assert closed == [], attempt
        await cluster.brokers[1].start()
        await producer.start()
        assert (await producer.send_and_wait("orders", b"v")).offset == 0
        with pytest.raises(ProducerClosed, match="once"):
            await producer.start()
        await producer.stop()
        assert closed == [1]
        assert_nothing_left(producer, before)


@jumping
async def test_a_stop_after_starts_that_failed_closes_what_they_were_given() -> None:
    """`stop` closes the interceptors once, and a start after it fails."""
    closed: list[int] = []

    class Closed:
        def close(self) -> None:
            closed.append(1)

    async with FakeCluster(memory=True) as cluster:
        await cluster.brokers[1].stop()
        producer = Producer(**cluster.client_options, max_block_ms=300, interceptors=[Closed()])
        for _ in range(2):
            with pytest.raises(BootstrapFailed):
                await producer.start()
        await producer.stop()
        await producer.stop()
        assert closed == [1]
        with pytest.raises(ProducerClosed, match="was stopped"):
            await producer.start()


@pytest.mark.parametrize("steps", range(20))
@jumping
async def test_a_start_that_was_cancelled_may_be_tried_again(steps: int) -> None:
    """The cancellation may come in any event-loop iteration. It leaves no task and no connection, and the next `start` works."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        hang = cluster.hang("Metadata")
        before = asyncio.all_tasks()
        producer = Producer(**cluster.client_options)
        start = asyncio.create_task(producer.start())
        await turns(steps)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await turns(5)
        assert_nothing_left(producer, before)
        assert open_streams(cluster) == 0
        hang.release()
        cluster.faults.clear()
        await producer.start()
        await producer.send_and_wait("orders", b"v")
        await producer.stop()
        assert_nothing_left(producer, before)


@pytest.mark.parametrize("options", [{}, {"transactional_id": "t"}, {"enable_idempotence": False}])
@pytest.mark.parametrize(
    "hung", ["ApiVersions", "Metadata", "InitProducerId", "FindCoordinator", None]
)
@pytest.mark.parametrize("steps", [1, 3, 8, 20, 60])
@jumping
async def test_stop_ends_a_start_that_runs(
    steps: int, hung: str | None, options: dict[str, Any]
) -> None:
    """`stop` ends any wait of `start`, which raises. No task is left when `stop` returns, and a start after it fails."""
    async with FakeCluster(memory=True) as cluster:
        if hung is not None:
            cluster.hang(hung, times=None)
        before = asyncio.all_tasks()
        producer = Producer(**cluster.client_options, **options)
        start = asyncio.create_task(producer.start())
        await turns(steps)
        if start.done():
            await producer.stop()
            assert start.exception() is None
        else:
            with pytest.raises(ProducerClosed, match="starts already"):
                await producer.start()
            began = asyncio.get_running_loop().time()
            await asyncio.gather(producer.stop(), producer.stop())
            assert asyncio.get_running_loop().time() == pytest.approx(began, abs=0.5)
            assert_nothing_left(producer, before | {start})
            with pytest.raises(ProducerClosed, match=r"^stopped while it started$"):
                await start
        assert_nothing_left(producer, before)
        with pytest.raises(ProducerClosed, match="was stopped"):
            await producer.start()
        cluster.faults.clear()


@jumping
async def test_a_start_that_is_stopped_and_cancelled_is_cancelled() -> None:
    """`start` raises CancelledError and leaves nothing."""
    async with FakeCluster(memory=True) as cluster:
        cluster.hang("Metadata", times=None)
        before = asyncio.all_tasks()
        producer = Producer(**cluster.client_options)
        start = asyncio.create_task(producer.start())
        await turns(8)
        stop = asyncio.create_task(producer.stop())
        await asyncio.sleep(0)
        start.cancel()
        await stop
        with pytest.raises(asyncio.CancelledError):
            await start
        assert_nothing_left(producer, before)
        cluster.faults.clear()


@jumping
async def test_a_start_that_lasts_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """The producer logs once, after 2 s: the brokers, the reason and the time left. It logs nothing for a quick start."""
    async with FakeCluster(memory=True) as cluster:
        producer = Producer(**cluster.client_options)
        await producer.start()
        await producer.stop()
        assert notices(caplog.records) == []
        await cluster.brokers[1].stop()
        producer = Producer(**cluster.client_options, max_block_ms=30_000, client_id="shop")
        start = asyncio.create_task(producer.start())
        await asyncio.sleep(1.9)
        assert notices(caplog.records) == []
        await asyncio.sleep(0.2)
        (told,) = notices(caplog.records)
        assert told.startswith(
            "shop: start() waits for a first answer of any broker of broker-1.memory:9092, at most 28 s more: "
        )
        assert "nobody listens" in told
        with pytest.raises(BootstrapFailed):
            await start
        assert len(notices(caplog.records)) == 1


@jumping
async def test_a_stop_that_lasts_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """The producer logs once, after 2 s, also for the stop at the end of `async with`, as after Ctrl-C."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")

        async def work() -> None:
            async with Producer(
                **cluster.client_options, close_timeout_ms=10_000, client_id="shop"
            ) as producer:
                await producer.send_and_wait("orders", b"v")
                await cluster.brokers[1].stop()
                for _ in range(3):
                    await producer.send("orders", b"v")
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()  # asyncio.run does this at the first Ctrl-C
        await asyncio.sleep(1.9)
        assert notices(caplog.records) == []
        await asyncio.wait([task])
        (told,) = notices(caplog.records)
        assert told.startswith(
            "shop: stop() waits for the acknowledgement of 3 records, at most 8 s more (close_timeout_ms): "
        )
        assert "broker-1.memory:9092" in told


class EndOfLoop(BaseException):
    """Stands for what is no Exception, and fails a task of the producer: what `pytest.fail` raises, say."""


@pytest.mark.parametrize("dial", [1, 2])
@jumping
async def test_a_start_ends_when_its_producer_fails(dial: int) -> None:
    """It says why. It waited for `max_block_ms`, and then blamed the brokers, or succeeded."""
    async with FakeCluster(memory=True) as cluster:
        dialled: list[str] = []

        class Dialer:
            async def dial(self, host: str, port: int, receiver: Any) -> Any:
                dialled.append(host)
                if len(dialled) == dial:
                    raise EndOfLoop
                return await cluster.network.dial(host, port, receiver)

        before = asyncio.all_tasks()
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, dialer=Dialer())
        began = asyncio.get_running_loop().time()
        with pytest.raises(ProducerClosed, match=r"the producer failed: EndOfLoop\(\)") as caught:
            await producer.start()
        assert asyncio.get_running_loop().time() == began
        assert isinstance(caught.value.__cause__, EndOfLoop)
        assert_nothing_left(producer, before)
        await producer.start()
        await producer.stop()
