"""Tests of a user's mistakes: each has its error, which says what to do, and nothing of it is queued."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
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


def raising(*_given: object) -> Any:
    raise KeyError(SECRET)


class Pathless:
    """A partitioner class that needs an argument."""

    def __init__(self, path: str) -> None:
        raise AssertionError(path)

    def partition(self, *_given: object) -> int:
        return 0


async def elsewhere(act: Callable[[], Awaitable[object]]) -> None:
    """Do it in another thread's loop."""
    error: list[BaseException] = []

    async def there() -> None:
        await act()

    def thread() -> None:
        try:
            asyncio.run(there())
        except BaseException as caught:
            error.append(caught)

    worker = threading.Thread(target=thread)
    worker.start()
    worker.join()
    raise error[0]


async def from_thread_here(producer: Producer[Any, Any]) -> None:
    producer.from_thread.send("orders", b"v")


async def from_thread_wrong(producer: Producer[Any, Any]) -> None:
    await asyncio.wrap_future(await asyncio.to_thread(producer.from_thread.send, "orders", SECRET))


async def nowait_unknown(producer: Producer[Any, Any]) -> None:
    producer.send_nowait("orders", b"v")


MISTAKES = [
    # topics, partitions, timestamps
    Mistake("topic None", lambda p: p.send(None, b"v"), "UsageError", "a topic is a non-empty string, not NoneType"),
    Mistake("topic bytes", lambda p: p.send(b"orders", b"v"), "UsageError", "a topic is a non-empty string, not bytes"),
    Mistake("topic empty", lambda p: p.send("", b"v"), "UsageError", "a topic is a non-empty string, not ''"),
    Mistake("topic name", lambda p: p.send("my orders!", b"v"), "BrokerError", "INVALID_TOPIC_EXCEPTION"),
    Mistake("topic unknown", lambda p: p.send("ordres", b"v"), "MetadataTimeout", "'ordres'.*max_block_ms=60000.*not queued"),
    Mistake(
        "partition text", lambda p: p.send("orders", b"v", partition="1"), "UsageError", "partition=str for 'orders': it is a number from 0"
    ),
    Mistake("partition key", lambda p: p.send("orders", b"v", partition=SECRET), "UsageError", "partition=str for 'orders'"),
    Mistake(
        "partition -1", lambda p: p.send("orders", b"v", partition=-1), "UsageError", "partition=-1 for 'orders': it is a number from 0"
    ),
    Mistake("partition True", lambda p: p.send("orders", b"v", partition=True), "UsageError", "partition=True for 'orders'"),
    Mistake(
        "partition 2 of 2",
        lambda p: p.send("orders", b"v", partition=2),
        "MetadataTimeout",
        "'orders' has 2 partitions, and partition 2 did not come within max_block_ms=60000",
    ),
    Mistake("time -1", lambda p: p.send("orders", b"v", timestamp_ms=-1), "UsageError", "timestamp_ms=-1 .*whole milliseconds since 1970"),
    Mistake("time float", lambda p: p.send("orders", b"v", timestamp_ms=1.5), "UsageError", "timestamp_ms=1.5 .*whole milliseconds"),
    Mistake(
        "time True", lambda p: p.send("orders", b"v", timestamp_ms=True), "UsageError", "timestamp_ms=True .*whole milliseconds since 1970"
    ),
    Mistake(
        "time without a zone",
        lambda p: p.send("orders", b"v", timestamp_ms=dt.datetime.now(dt.UTC).replace(tzinfo=None)),
        "UsageError",
        r"timestamp_ms=20.*it has no time zone. Give a datetime with one, as datetime.now\(UTC\) is, whole milliseconds since 1970, or None",
    ),
    # keys, values, headers
    Mistake(
        "value text",
        lambda p: p.send("orders", SECRET),
        "SerializationError",
        "value .* is str, not bytes: encode it, or .*value_serializer",
    ),
    Mistake("value dict", lambda p: p.send("orders", {"a": SECRET}), "SerializationError", "is dict, not bytes.*value_serializer"),
    Mistake("key number", lambda p: p.send("orders", b"v", 7), "SerializationError", "key for 'orders' is int, not bytes.*key_serializer"),
    Mistake(
        "headers dict",
        lambda p: p.send("orders", b"v", headers={"ab": SECRET, "cd": 3}),
        "SerializationError",
        "a header's value is bytes, a string or None, not int",
    ),
    Mistake(
        "headers number",
        lambda p: p.send("orders", b"v", headers=3),
        "SerializationError",
        "headers are a mapping or a sequence of pairs, not int",
    ),
    Mistake("header single", lambda p: p.send("orders", b"v", headers=[SECRET]), "SerializationError", "a header is a pair"),
    Mistake(
        "header key",
        lambda p: p.send("orders", b"v", headers=[(b"k", b"v")]),
        "SerializationError",
        "a header's key is a string, not bytes",
    ),
    Mistake(
        "header key None", lambda p: p.send("orders", b"v", headers=[(None, b"v")]), "SerializationError", "key is a string, not NoneType"
    ),
    Mistake(
        "header text",
        lambda p: p.send("orders", b"v", headers=[("k", [SECRET])]),
        "SerializationError",
        "value is bytes, a string or None, not list",
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
        "serializer raises",
        lambda p: p.send("orders", 1),
        "SerializationError",
        r"raised KeyError in .* on a int",
        {"value_serializer": raising},
    ),
    Mistake("serializer text", lambda p: p.send("orders", 1), "SerializationError", "gave str .*not bytes", {"value_serializer": str}),
    Mistake(
        "serializer later",
        lambda p: p.send("orders", 1),
        "SerializationError",
        "gave coroutine .*not bytes: await in your code",
        {"value_serializer": later},
    ),
    Mistake(
        "partitioner raises", lambda p: p.send("orders", b"v"), "UsageError", "the partitioner raised KeyError", {"partitioner": raising}
    ),
    Mistake(
        "partitioner None",
        lambda p: p.send("orders", b"v"),
        "UsageError",
        "chose NoneType .*partitions 0 to 1",
        {"partitioner": lambda *_: None},
    ),
    Mistake(
        "partitioner later", lambda p: p.send("orders", b"v"), "UsageError", "chose coroutine .*plain function", {"partitioner": later}
    ),
    Mistake("partitioner 2", lambda p: p.send("orders", b"v"), "UsageError", "chose 2 .*partitions 0 to 1", {"partitioner": lambda *_: 2}),
    Mistake(
        "partitioner -1", lambda p: p.send("orders", b"v"), "UsageError", "chose -1 .*partitions 0 to 1", {"partitioner": lambda *_: -1}
    ),
    Mistake("partitioner key", lambda p: p.send("orders", b"v", b"k"), "UsageError", "chose bytes ", {"partitioner": lambda key, _: key}),
    # many
    Mistake("many None", lambda p: p.send_many("orders", None), "UsageError", "records are an iterable .* not NoneType"),
    Mistake("many text", lambda p: p.send_many("orders", SECRET), "UsageError", "records are an iterable .* not str"),
    Mistake("many bytes", lambda p: p.send_many("orders", b"v"), "UsageError", "records are an iterable .* not bytes"),
    Mistake("many dict", lambda p: p.send_many("orders", {b"k": b"v"}), "UsageError", "records are an iterable .* not dict"),
    Mistake("many one", lambda p: p.send_many("orders", Record(b"v")), "UsageError", "records are an iterable .* not Record"),
    Mistake("many topic", lambda p: p.send_many(None, [b"v"]), "UsageError", "a topic is a non-empty string, not NoneType"),
    Mistake("many a text", lambda p: p.send_many("orders", [SECRET]), "SerializationError", "is str, not bytes"),
    Mistake("many a tuple", lambda p: p.send_many("orders", [(b"v", b"k")]), "SerializationError", "is tuple, not bytes"),
    Mistake("many partition", lambda p: p.send_many("orders", [Record(b"v", partition=-1)]), "UsageError", "partition=-1"),
    # now, threads, loops
    Mistake("now unknown", nowait_unknown, "WouldBlock", "metadata of the topic.*partitions_for.*not queued"),
    Mistake("thread of the loop", from_thread_here, "UsageError", "from_thread is for other threads.*await producer.send"),
    Mistake("thread text", from_thread_wrong, "SerializationError", "is str, not bytes"),
    Mistake(
        "another loop", lambda p: elsewhere(lambda: p.send("orders", b"v")), "ProducerClosed", "another event loop; make one in this loop"
    ),
    Mistake("another's flush", lambda p: elsewhere(p.flush), "ProducerClosed", "another event loop; make one in this loop"),
    Mistake("columns of a list", lambda p: p.send_columns("orders", values=[SECRET]), "UsageError", "a pyarrow array, not list: make one"),
    Mistake(
        "columns of numbers", lambda p: p.send_columns("orders", values=pa.array([1])), "UsageError", "are of type int64, .*: encode them"
    ),
    Mistake(
        "columns of headers",
        lambda p: p.send_columns("orders", values=pa.array([b"v"]), headers=pa.array([SECRET])),
        "UsageError",
        "headers are of type string: they are lists of structs",
    ),
    Mistake(
        "columns of partitions",
        lambda p: p.send_columns("orders", values=pa.array([b"v"]), partitions=pa.array([SECRET])),
        "UsageError",
        "partitions are of type string: they are integers, or null",
    ),
    Mistake(
        "columns and a partition",
        lambda p: p.send_columns("orders", values=pa.array([b"v"]), partition=0, partitions=pa.array([0])),
        "UsageError",
        "give one of them",
    ),
    Mistake("columns topic", lambda p: p.send_columns(None, values=pa.array([b"v"])), "UsageError", "a topic is a non-empty string"),
    Mistake(
        "columns apart",
        lambda p: p.send_columns("orders", values=pa.array([SECRET]), keys=pa.array([SECRET] * 2)),
        "UsageError",
        "keys are 2 rows",
    ),
    Mistake(
        "columns time",
        lambda p: p.send_columns("orders", values=pa.array([SECRET]), timestamps_ms=pa.array([-1])),
        "UsageError",
        "row 0: its time",
    ),
    Mistake("another's many", lambda p: elsewhere(lambda: p.send_many("orders", [b"v"])), "ProducerClosed", "another event loop"),
    Mistake("another's partitions", lambda p: elsewhere(lambda: p.partitions_for("x")), "ProducerClosed", "another event loop"),
    Mistake("partitions of None", lambda p: p.partitions_for(None), "UsageError", "a topic is a non-empty string"),
    Mistake("flush text", lambda p: p.flush("10"), "UsageError", "timeout='10': it is seconds, from 0 on, or a timedelta, or None"),
    Mistake("flush negative", lambda p: p.flush(-1), "UsageError", "timeout=-1: it is seconds, from 0 on, or a timedelta, or None"),
    Mistake("flush NaN", lambda p: p.flush(float("nan")), "UsageError", "timeout=nan: it is seconds"),
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
                before = sum(cluster.end_offsets("orders").values())
                assert before == (1 if mistake.what == "batch twice" else 0)
                if "serializer" not in mistake.what and "partitioner" not in mistake.what:
                    await producer.send_and_wait("orders", b"v", partition=0)
            assert producer.buffer_available == producer.config.buffer_memory

    if "thread" in mistake.what or "another" in mistake.what:
        asyncio.run(act())
    else:
        run(act())


BEFORE_AND_AFTER = {
    "send": lambda p: p.send("orders", b"v"),
    "send_and_wait": lambda p: p.send_and_wait("orders", b"v"),
    "send_nowait": lambda p: p.send_nowait("orders", b"v"),
    "send_many": lambda p: p.send_many("orders", [b"v"]),
    "send_columns": lambda p: p.send_columns("orders", values=pa.array([b"v"])),
    "partitions_for": lambda p: p.partitions_for("orders"),
    "flush": lambda p: p.flush(),
    "from_thread": lambda p: asyncio.to_thread(p.from_thread.send, "orders", b"v"),
}


@pytest.mark.parametrize("name", BEFORE_AND_AFTER)
def test_a_producer_that_does_not_run(name: str) -> None:
    """A producer that is not started says how to start it. A stopped producer says that it is stopped."""

    async def call(producer: Producer[Any, Any]) -> None:
        made: Any = BEFORE_AND_AFTER[name](producer)  # type: ignore[no-untyped-call]
        if asyncio.iscoroutine(made):
            await made

    async def act() -> None:
        async with FakeCluster(memory=True) as cluster:
            producer: Producer[Any, Any] = Producer(**cluster.client_options)
            with pytest.raises(aioproducer.ProducerClosed, match=r"was not started: use `async with .*`await producer.start\(\)`"):
                await call(producer)
            async with producer:
                pass
            with pytest.raises(aioproducer.ProducerClosed, match="the producer has stopped"):
                await call(producer)

    if name == "from_thread":
        asyncio.run(act())
    else:
        run(act())


@pytest.mark.asyncio
async def test_no_broker_answers() -> None:
    """Each address is named with its reason."""
    producer: Producer[Any, Any] = Producer(bootstrap_servers="127.0.0.1:1,127.0.0.1:2", max_block_ms=50)
    with pytest.raises(aioproducer.BootstrapFailed, match=r"127\.0\.0\.1:1: .*127\.0\.0\.1:2: "):
        await producer.start()
