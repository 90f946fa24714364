"""The life of a producer: not started, running, stopped; flush and stop."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from aioproducer import ConfigError, ProducerClosed, ProducerConfig, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Side

pytestmark = pytest.mark.asyncio

USES: dict[str, Callable[[Any, str], Any]] = {
    "send": lambda producer, topic: producer.send(topic, b"v"),
    "send_nowait": lambda producer, topic: producer.send_nowait(topic, b"v"),
    "send_and_wait": lambda producer, topic: producer.send_and_wait(topic, b"v"),
    "send_many": lambda producer, topic: producer.send_many(topic, [b"v"]),
    "send_columns": lambda producer, topic: producer.send_columns(topic, values=pa.array([b"v"])),
    "partitions_for": lambda producer, topic: producer.partitions_for(topic),
    "flush": lambda producer, _topic: producer.flush(),
}


@pytest.mark.parametrize("use", USES)
async def test_before_the_start_and_after_the_end(side: Side, use: str) -> None:
    """The producer raises ProducerClosed, which names the remedy, and the log stays empty."""
    topic = await side.topic()
    producer = side.producer()
    for words in ("not started", "stopped"):
        with pytest.raises(ProducerClosed, match=words):
            result = USES[use](producer, topic)
            if asyncio.iscoroutine(result):
                await result
        if words == "not started":
            await producer.start()
            await producer.stop()
    assert await side.log(topic) == {0: [], 1: [], 2: []}


async def test_one_start(side: Side) -> None:
    """A producer starts once, and not after its end. `stop` is safe twice, and before the start."""
    producer = side.producer()
    await producer.stop()
    await producer.start()
    with pytest.raises(ProducerClosed, match="starts once"):
        await producer.start()
    await producer.stop()
    await producer.stop()
    with pytest.raises(ProducerClosed, match="starts once"):
        await producer.start()


async def test_flush_covers_what_was_sent(side: Side) -> None:
    """After the flush every delivery has ended. The summary counts the records that it waited for, and is zero when there was none."""
    topic = await side.topic()
    async with side.producer(
        linger_ms=60_000, request_timeout_ms=10_000, delivery_timeout_ms=120_000
    ) as producer:
        await producer.partitions_for(topic)
        assert await producer.flush() == (0, 0, 0)
        deliveries = [await producer.send(topic, b"%d" % number) for number in range(10)]
        assert await producer.flush() == (10, 0, 0)
        assert all(delivery.done() for delivery in deliveries)
        assert await producer.flush(timeout=5) == (0, 0, 0)
        assert await producer.flush(timeout=timedelta(seconds=5)) == (0, 0, 0)
        assert producer.health(patience=timedelta(seconds=5))
        for call in (
            lambda: producer.flush(timeout=timedelta(-1)),
            lambda: producer.health(patience="5"),
        ):
            with pytest.raises(UsageError, match="it is seconds, from 0 on, or a timedelta"):
                await call()


async def test_stop_sends_what_is_there(side: Side) -> None:
    """The end of the block waits for the records, also after an exception, which is raised again."""
    topic = await side.topic()
    deliveries = []
    with pytest.raises(ZeroDivisionError):
        async with side.producer(linger_ms=1000) as producer:
            deliveries += [
                await producer.send(topic, b"%d" % number, partition=0) for number in range(5)
            ]
            1 / 0  # noqa: B018
    assert [delivery.result().offset for delivery in deliveries] == list(range(5))
    assert len((await side.log(topic))[0]) == 5


async def test_options(side: Side) -> None:
    """The constructor takes a config, its fields, or both: then the fields take precedence. The error names the nearest known option."""
    assert side.producer(linger_ms=5).config.linger_ms == 5
    with pytest.raises(ConfigError, match="linger_ms"):
        side.producer(lingr_ms=5)
    with pytest.raises(ConfigError, match="acks"):
        side.producer(acks=7)
    config = type(side.producer())(ProducerConfig(linger_ms=5, acks=1), linger_ms=7).config
    assert (config.linger_ms, config.acks) == (7, 1)


async def test_options_of_the_environment(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """`from_env` reads environment variables. Arguments of the call take precedence."""
    for name in [
        each for each in os.environ if each.startswith("AIOPRODUCER_")
    ]:  # as those of this run of the tests
        monkeypatch.delenv(name)
    monkeypatch.setenv("SHOP_KAFKA_LINGER_MS", "5")
    monkeypatch.setenv("SHOP_KAFKA_ACKS", "1")
    config = type(side.producer()).from_env("SHOP_KAFKA_", acks="all").config
    assert (config.linger_ms, config.acks) == (5, -1)


@pytest.mark.parametrize("wait", [True, False])
async def test_running_starts_and_stops(side: Side, *, wait: bool) -> None:
    """`running` is a context manager that starts as it is told, gives the producer, and stops it. An exception leaves it unchanged."""
    topic = await side.topic()
    producer = side.producer()
    with pytest.raises(ZeroDivisionError):
        async with producer.running(wait=wait) as entered:
            assert entered is producer
            await entered.send(topic, b"v", partition=0)
            1 / 0  # noqa: B018
    assert "stopped" in repr(producer)
    assert len((await side.log(topic))[0]) == 1


async def test_closing(side: Side) -> None:
    """`aclose` is `stop`, by the name that `contextlib.aclosing` calls."""
    producer = side.producer()
    await producer.start()
    async with aclosing(producer):
        assert "running" in repr(producer)
    assert "stopped" in repr(producer)
    await producer.aclose()


async def test_what_it_shows(side: Side) -> None:
    """The producer's repr has its state and no key or value. All memory is free when no record is pending."""
    topic = await side.topic()
    producer = side.producer()
    assert "not started" in repr(producer)
    async with producer:
        await producer.send_and_wait(topic, b"canary", b"canary")
        assert "running" in repr(producer)
        assert "canary" not in repr(producer) + producer.explain()
        assert producer.buffer_available == producer.config.buffer_memory
    assert "stopped" in repr(producer)
