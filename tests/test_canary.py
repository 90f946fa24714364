"""Tests that no error, log message, warning or repr shows a key, a value or a header value.

The loop runs in debug mode and finds every callback slow, so that asyncio writes down the repr of everything that it runs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from aioproducer import DeliveryError, Producer, Record
from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.testing import FakeCluster
from tests.support.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEY, VALUE, HEADER = (b"canary-bird-%d" % number for number in (7, 8, 9))
BIRD = "canary-bird"


def raising(*given: object) -> bytes:
    """A serializer, partitioner or hook that is no help: what it was given is in its error."""
    raise RuntimeError(f"given {len(given)}")


def crash(producer: Producer[Any, Any]) -> None:
    """A bug of ours, in a task of ours."""
    assert producer._engine is not None

    async def buggy() -> None:
        raise RuntimeError("a bug")

    producer._engine.parts.supervisor.spawn(buggy(), "buggy")


TROUBLES: dict[str, tuple[Callable[[FakeCluster], object], dict[str, Any]]] = {
    "none": (lambda _: None, {}),
    "refused": (lambda cluster: cluster.fail("Produce", "POLICY_VIOLATION", message="no"), {}),
    "some records refused": (
        lambda cluster: cluster.fail(
            "Produce", "INVALID_RECORD", record_errors={0: "bad", 1: None}
        ),
        {},
    ),
    "too large for the broker": (
        lambda cluster: cluster.fail("Produce", "MESSAGE_TOO_LARGE", times=None),
        {},
    ),
    "retried to the end": (
        lambda cluster: cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None),
        {},
    ),
    "retries used up": (
        lambda cluster: cluster.fail("Produce", "CORRUPT_MESSAGE", times=None),
        {"retries": 1},
    ),
    "cut before": (lambda cluster: cluster.fail("Produce", disconnect="before", times=None), {}),
    "cut after": (
        lambda cluster: cluster.fail("Produce", disconnect="after", times=None),
        {"retries": 0},
    ),
    "silence": (lambda cluster: cluster.hang("Produce"), {}),
    "garbage": (lambda cluster: cluster.garbage("Produce", times=None), {}),
    "truncated": (lambda cluster: cluster.truncate("Produce", times=None), {}),
    "another's answer": (lambda cluster: cluster.wrong_correlation_id("Produce", times=None), {}),
    "no topic": (lambda cluster: cluster.delete_topic("orders"), {}),
    "no leader": (
        lambda cluster: [cluster.move_leader("orders", number, None) for number in (0, 1)],
        {},
    ),
    "no memory": (
        lambda cluster: cluster.hang("Produce"),
        {"buffer_memory": 6_000, "batch_size": 2_000},
    ),
    "too large": (lambda _: None, {"max_request_size": 90}),
    "serializer": (lambda _: None, {"value_serializer": raising}),
    "serializer gives text": (lambda _: None, {"key_serializer": bytes.decode}),
    "partitioner": (lambda _: None, {"partitioner": raising}),
    "partitioner gives the key": (lambda _: None, {"partitioner": lambda key, _count: key}),
    "hook": (
        lambda cluster: cluster.fail("Produce", "POLICY_VIOLATION"),
        {"on_delivery_error": raising},
    ),
    "acks 0": (
        lambda cluster: cluster.fail("Produce", disconnect="before", times=None),
        {"acks": 0},
    ),
    "compressed": (
        lambda cluster: cluster.fail("Produce", "POLICY_VIOLATION"),
        {"compression_type": "zstd"},
    ),
}


class Watch:
    """Collects the texts that a user can see."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def look(self, *things: Any) -> None:
        """At what a user may print: the thing itself, and an error with its whole traceback."""
        for thing in things:
            self.seen += [repr(thing), str(thing)]
            if isinstance(thing, (DeliveryError, Producer)):
                self.seen.append(thing.explain())
            if isinstance(thing, BaseException):
                self.seen += [
                    *traceback.format_exception(thing),
                    repr(thing.args),
                    repr(getattr(thing, "__notes__", "")),
                ]

    async def run(self, awaitable: Any) -> Any:
        """Await it, and look at its result or its error."""
        try:
            given = await awaitable
        except Exception as error:
            self.look(error)
            return None
        self.look(given)
        return given


async def in_thread(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call it in another thread. The loop waits for the call, as its time jumps and would not wait for a thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *arguments, **named).result()


async def send_in_every_way(producer: Producer[Any, Any], watch: Watch) -> None:
    """Call every sending method, and look at its objects at once, while it waits, and at the end."""
    record: dict[str, Any] = {"value": VALUE, "key": KEY, "headers": [("bird", HEADER)]}
    whole = Record(VALUE, KEY, headers=[("bird", HEADER)])
    plain = Record(VALUE, KEY)
    watch.look(producer, producer.config, whole, plain)
    calls = [producer.send("orders", **record) for _ in range(3)]
    many = [
        producer.send_many("orders", values)
        for values in ([VALUE, VALUE], [whole, plain, (KEY, VALUE)])
    ]
    column = pa.array([VALUE, VALUE])
    many += [
        producer.send_columns("orders", values=column, keys=keys)
        for keys in (None, column, pa.array([KEY]), VALUE)
    ]
    many += [
        producer.send_columns("orders", values=column, timestamps_ms=times)
        for times in (VALUE, column)
    ]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    bad_headers = (VALUE, column, pa.array([[(None, HEADER)], []], kind))
    many += [
        producer.send_columns("orders", values=column, headers=headers) for headers in bad_headers
    ]
    many += [
        producer.send_columns("orders", values=column, partitions=partitions)
        for partitions in (VALUE, column, pa.array(["canary-bird-7", None]))
    ]
    awaited: list[Any] = [await watch.run(call) for call in (*calls, *many)]
    wrong = (
        {"partition": VALUE},
        {"timestamp_ms": VALUE},
        {"headers": [HEADER]},
        {"headers": [(HEADER, KEY)]},
        {"headers": VALUE},
    )
    awaited += [await watch.run(producer.send("orders", **{**record, **one})) for one in wrong]
    awaited.append(await watch.run(in_thread(producer.from_thread.send, "orders", **record)))
    try:
        awaited.append(producer.send_nowait("orders", **record))
    except Exception as error:
        watch.look(error)
    tasks = [asyncio.create_task(producer.send("orders", **record), name="send") for _ in range(20)]
    await asyncio.sleep(0)
    watch.look(producer, *awaited, *tasks)
    for task in tasks[::2]:
        task.cancel()
    awaited += [await watch.run(asyncio.wait([task])) and task for task in tasks]
    for one in awaited[::2]:  # the others fail unseen
        if hasattr(one, "add_done_callback") and not isinstance(one, asyncio.Task):
            one.add_done_callback(watch.look)
        if hasattr(one, "__await__"):
            await watch.run(one)
    watch.look(
        producer, *awaited, *[each for each in gc.get_objects() if isinstance(each, PartitionQueue)]
    )


@pytest.mark.parametrize("trouble", [*TROUBLES, "crash"])
def test_nothing_of_the_records_is_shown(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    """Through errors, deliveries, batches, producer, logs of ours and asyncio's, and warnings."""
    cause, options = TROUBLES.get(trouble, (lambda _: None, {}))
    watch = Watch()

    async def act() -> None:
        asyncio.get_running_loop().slow_callback_duration = 0
        async with FakeCluster(memory=True) as cluster:
            cluster.create_topic("orders", partitions=2)
            async with Producer(**cluster.client_options, **options) as producer:
                await producer.partitions_for("orders")
                cause(cluster)
                if trouble == "crash":
                    crash(producer)
                await send_in_every_way(producer, watch)
            watch.look(producer)

    caplog.set_level(logging.DEBUG)
    with (
        warnings.catch_warnings(record=True) as warned,
        asyncio.Runner(debug=True, loop_factory=JumpingLoop) as runner,
    ):
        warnings.simplefilter("always")
        runner.run(act())
        gc.collect()
    watch.look(*warned)
    assert len(watch.seen) > 100
    assert "Executing <" in caplog.text
    shown = [*watch.seen, caplog.text]
    assert [text for text in shown for form in forms() if form in text] == []


def forms() -> Sequence[str]:
    """Return the forms of the bird: its text, and its bytes in hexadecimal."""
    return BIRD, BIRD.encode().hex(), BIRD.encode().hex(" ")


def test_the_watch_sees_birds() -> None:
    """The watch finds a bird, as otherwise the tests above would prove nothing."""
    watch = Watch()
    watch.look(ValueError(VALUE), [KEY])
    assert sum(BIRD in text for text in watch.seen) > 4
