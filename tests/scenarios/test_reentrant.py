"""User code that sends while a record is being appended: serializers, partitioners, interceptors, finalizers, log handlers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import pytest
from builds import BUILDS, producer_on
from whole import jumping, running

from aioproducer import Producer, WouldBlock
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from aioproducer import Delivery, ProducerRecord

SHORT_OF_MEMORY = {"buffer_memory": 60_000, "batch_size": 4_000, "max_request_size": 5_000}
INNER = b"inner"


class Sends:
    """Sends a record of its own for each record that it sees: at once, or in a task."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.producer: Producer[Any, Any] | None = None
        self.sent: list[Delivery] = []
        self.tasks: list[asyncio.Task[Delivery]] = []

    def see(self, value: object) -> None:
        if self.producer is None or value == INNER:
            return
        if self.how == "send":
            self.tasks.append(
                asyncio.ensure_future(self.producer.send("orders", INNER, partition=0))
            )
            return
        with contextlib.suppress(WouldBlock):
            self.sent.append(self.producer.send_nowait("orders", INNER, partition=0))

    def on_send(self, record: ProducerRecord) -> None:
        self.see(record.value)

    def serialize(self, value: bytes) -> bytes:
        self.see(value)
        return value

    def partition(
        self, _topic: str, _key: object, value: object, _count: int, _available: object
    ) -> int:
        self.see(value)
        return 0


def options_of(sends: Sends, kind: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "interceptor": [sends],
        "serializer": sends.serialize,
        "partitioner": sends,
    }
    names = {
        "interceptor": "interceptors",
        "serializer": "value_serializer",
        "partitioner": "partitioner",
    }
    return {names[kind]: made[kind]}


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    "options",
    [{}, SHORT_OF_MEMORY, {"batch_size": 300}],
    ids=["plain", "short of memory", "small batches"],
)
@pytest.mark.parametrize("how", ["send_nowait", "send"])
@pytest.mark.parametrize("kind", ["interceptor", "serializer", "partitioner"])
@jumping
async def test_the_outer_records_stay_in_order(
    kind: str, how: str, options: dict[str, Any], known: bool
) -> None:
    """The records of each task and of `send_many` stay in order. Each inner record is logged once, and all memory is free at the end."""
    sends = Sends(how)
    async with running(**options, **options_of(sends, kind)) as (cluster, producer):
        if known:
            await producer.partitions_for("orders")
        sends.producer = producer

        async def work(number: int) -> None:
            for count in range(200):
                await producer.send("orders", b"%d %d " % (number, count) + b"." * 200)

        await asyncio.gather(*map(work, range(3)))
        await producer.send_many("orders", [b"9 %d " % count for count in range(200)])
        sends.producer = None
        deliveries = await asyncio.gather(*sends.tasks)
        await producer.flush()
        assert {delivery.exception() for delivery in (*deliveries, *sends.sent)} <= {None}
        values = [
            value
            for partition in range(2)
            for value in cluster.values("orders", partition)
            if value is not None
        ]
        assert values.count(INNER) == len(deliveries) + len(sends.sent)
        assert how == "send_nowait" or len(deliveries) == 800
        for number in (0, 1, 2, 9):
            own = [
                int(value.split()[1])
                for value in cluster.values("orders", 0)
                if value and value.startswith(b"%d " % number)
            ]
            if kind == "partitioner":
                assert own == list(range(200))
            else:
                assert own == sorted(own)


class Handler:
    """Calls a function where the interpreter may run a finalizer: at the n-th begin of a Python function or return of a C function."""

    def __init__(self, events: int, handle: Callable[[], None]) -> None:
        self.left = events
        self.handle = handle

    def notice(self, frame: FrameType, event: str, _arg: object) -> None:
        if event in {"call", "c_return"} and frame.f_code is not Handler.__exit__.__code__:
            self.left -= 1
            if not self.left:
                sys.setprofile(None)
                self.handle()
                sys.setprofile(self.notice)

    def __enter__(self) -> None:
        sys.setprofile(self.notice)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


FULL = {"batch_size": 1000, "batch_max_size": 1000}


@pytest.mark.parametrize(
    ("options", "records", "given"),
    [
        ({"linger_ms": 0}, 1, {}),
        ({"linger_ms": 5}, 1, {}),
        ({"linger_ms": "auto", **FULL}, 3, {}),
        ({"linger_ms": 0, **FULL}, 3, {"key": b"k", "headers": [("a", b"b")]}),
        ({"linger_ms": 0, **FULL}, 2, {"partition": 0}),
    ],
    ids=["one", "one that lingers", "full batches", "with keys", "the slow path"],
)
@pytest.mark.parametrize(
    "inner", [[b"inner"], [b"w" * 400] * 3], ids=["a small record", "large ones"]
)
@pytest.mark.parametrize("build", BUILDS)
@jumping
async def test_a_finalizer_sends_within_a_send(
    build: Any, options: dict[str, Any], records: int, given: Any, inner: list[bytes]
) -> None:
    """So does a log handler. Wherever that is, brokers get both records.

    A second open batch of the partition failed the producer. In plain Python, a batch had a record that it did not count. After several large
    records, the outer send raised WouldBlock, or found its batch closed.
    """
    async with FakeCluster(memory=True, verify_records=True) as cluster:
        cluster.create_topic("orders", partitions=1)
        async with producer_on(build)(**options, **cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"first")
            sent: list[Any] = []
            handler, events = Handler(0, lambda: None), 0
            while handler.left <= 0:
                events += 1
                handler = Handler(
                    events,
                    lambda: sent.extend([producer.send_nowait("orders", value) for value in inner]),
                )
                with handler:
                    sent.extend(
                        [
                            producer.send_nowait("orders", b"v" * 400, **given)
                            for _ in range(records)
                        ]
                    )
                await asyncio.gather(*sent)
                assert producer.buffer_available == producer.config.buffer_memory, events
            assert events > 20
        assert cluster.values("orders").count(inner[0]) == (events - 1) * len(inner)
        assert cluster.values("orders").count(b"v" * 400) == events * records
