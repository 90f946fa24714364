"""Tests of a user's mistakes: each has its error, which says what to do, and nothing of it is queued."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import aioproducer
from aioproducer import Producer, Record
from aioproducer.testing import FakeCluster
from tests.support.jumping import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECRET = "canary"


class Mistake(NamedTuple):
    """Holds a mistake, the options with which it is made, and the error that it raises."""

    what: str
    do: Callable[[Producer[Any, Any]], Awaitable[object]]
    error: str
    text: str
    options: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    version: str = "4.3"


def later(*_given: object) -> Any:
    """A serializer or partitioner that returns a coroutine."""

    async def coroutine() -> bytes:
        return b""

    return coroutine()


async def from_thread_here(producer: Producer[Any, Any]) -> None:
    producer.from_thread.send("orders", b"v")


async def nowait_unknown(producer: Producer[Any, Any]) -> None:
    producer.send_nowait("orders", b"v")


MISTAKES = [
    # topics, partitions, timestamps
    Mistake(
        "topic name", lambda p: p.send("my orders!", b"v"), "BrokerError", "INVALID_TOPIC_EXCEPTION"
    ),
    Mistake(
        "topic unknown",
        lambda p: p.send("ordres", b"v"),
        "MetadataTimeout",
        "'ordres'.*max_block_ms=60000.*not queued",
    ),
    Mistake(
        "partition 2 of 2",
        lambda p: p.send("orders", b"v", partition=2),
        "MetadataTimeout",
        "'orders' has 2 partitions, and partition 2 did not come within max_block_ms=60000",
    ),
    Mistake(
        "time without a zone",
        lambda p: p.send("orders", b"v", timestamp_ms=dt.datetime.now(dt.UTC).replace(tzinfo=None)),
        "UsageError",
        r"timestamp_ms=20.*it has no time zone. Give a datetime with one, as datetime.now\(UTC\) is, whole milliseconds since 1970, or None",
    ),
    # keys, values, headers
    Mistake(
        "headers dict",
        lambda p: p.send("orders", b"v", headers={"ab": SECRET, "cd": 3}),
        "SerializationError",
        "a header's value is bytes, a string or None, not int",
    ),
    Mistake(
        "headers in v1",
        lambda p: p.send("orders", b"v", headers=[("k", b"v")]),
        "UsageError",
        "headers need.*Raise it",
        {"message_format_max": 1},
        "2.8",
    ),
    Mistake(
        "too large",
        lambda p: p.send("orders", b"x" * 2000),
        "RecordTooLarge",
        "max_request_size=1000. Raise it",
        {"max_request_size": 1000},
    ),
    Mistake(
        "more than memory",
        lambda p: p.send("orders", b"x" * 60_000),
        "RecordTooLarge",
        "buffer_memory=50000 holds. Raise it",
        {"buffer_memory": 50_000},
    ),
    # serializers and partitioners
    Mistake(
        "serializer text",
        lambda p: p.send("orders", 1),
        "SerializationError",
        "gave str .*not bytes",
        {"value_serializer": str},
    ),
    Mistake(
        "serializer later",
        lambda p: p.send("orders", 1),
        "SerializationError",
        "gave coroutine .*not bytes: await in your code",
        {"value_serializer": later},
    ),
    Mistake(
        "partitioner later",
        lambda p: p.send("orders", b"v"),
        "UsageError",
        "chose coroutine .*plain function",
        {"partitioner": later},
    ),
    # many
    Mistake(
        "many None",
        lambda p: p.send_many("orders", None),
        "UsageError",
        "records are an iterable .* not NoneType",
    ),
    Mistake(
        "many text",
        lambda p: p.send_many("orders", SECRET),
        "UsageError",
        "records are an iterable .* not str",
    ),
    Mistake(
        "many bytes",
        lambda p: p.send_many("orders", b"v"),
        "UsageError",
        "records are an iterable .* not bytes",
    ),
    Mistake(
        "many dict",
        lambda p: p.send_many("orders", {b"k": b"v"}),
        "UsageError",
        "records are an iterable .* not dict",
    ),
    Mistake(
        "many one",
        lambda p: p.send_many("orders", Record(b"v")),
        "UsageError",
        "records are an iterable .* not Record",
    ),
    Mistake(
        "many a text",
        lambda p: p.send_many("orders", [SECRET]),
        "SerializationError",
        "is str, not bytes",
    ),
    Mistake(
        "many a tuple",
        lambda p: p.send_many("orders", [(b"v", b"k")]),
        "SerializationError",
        "is tuple, not bytes",
    ),
    # now, threads, loops
    Mistake(
        "now unknown",
        nowait_unknown,
        "WouldBlock",
        "metadata of the topic.*partitions_for.*not queued",
    ),
    Mistake(
        "thread of the loop",
        from_thread_here,
        "UsageError",
        "from_thread is for other threads.*await producer.send",
    ),
    Mistake(
        "columns of a list",
        lambda p: p.send_columns("orders", values=[SECRET]),
        "UsageError",
        "a pyarrow array, not list: make one",
    ),
    Mistake(
        "columns of numbers",
        lambda p: p.send_columns("orders", values=pa.array([1])),
        "UsageError",
        "are of type int64, .*: encode them",
    ),
    Mistake(
        "columns and a partition",
        lambda p: p.send_columns(
            "orders", values=pa.array([b"v"]), partition=0, partitions=pa.array([0])
        ),
        "UsageError",
        "give one of them",
    ),
    Mistake(
        "columns apart",
        lambda p: p.send_columns("orders", values=pa.array([SECRET]), keys=pa.array([SECRET] * 2)),
        "UsageError",
        "keys are 2 rows",
    ),
    Mistake(
        "partitions of None",
        lambda p: p.partitions_for(None),
        "UsageError",
        "a topic is a non-empty string",
    ),
    Mistake(
        "flush text",
        lambda p: p.flush("10"),
        "UsageError",
        "timeout='10': it is seconds, from 0 on, or a timedelta, or None",
    ),
    Mistake(
        "flush negative",
        lambda p: p.flush(-1),
        "UsageError",
        "timeout=-1: it is seconds, from 0 on, or a timedelta, or None",
    ),
    Mistake(
        "flush NaN", lambda p: p.flush(float("nan")), "UsageError", "timeout=nan: it is seconds"
    ),
    Mistake("started twice", lambda p: p.start(), "ProducerClosed", "starts once; make a new one"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.what for mistake in MISTAKES])
def test_a_mistake(mistake: Mistake) -> None:
    """Its error is of one kind, and says what is wrong and what would be right; not what is secret. The producer lives on."""

    async def act() -> None:
        async with FakeCluster(memory=True, version=mistake.version) as cluster:
            cluster.create_topic("orders", partitions=2)
            async with Producer(**cluster.client_options, **mistake.options) as producer:
                kind = getattr(aioproducer, mistake.error)
                with pytest.raises(kind, match=mistake.text) as caught:
                    await mistake.do(producer)
                assert type(caught.value) is kind
                assert SECRET not in str(caught.value)
                assert sum(cluster.end_offsets("orders").values()) == 0
                if "serializer" not in mistake.what and "partitioner" not in mistake.what:
                    await producer.send_and_wait("orders", b"v", partition=0)
            assert producer.buffer_available == producer.config.buffer_memory

    if "thread" in mistake.what:
        asyncio.run(act())
    else:
        run(act())
