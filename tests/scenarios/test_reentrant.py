"""User code that sends while its own record is being appended: serializers, partitioners, interceptors."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running

from aioproducer import Producer, WouldBlock

if TYPE_CHECKING:
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
