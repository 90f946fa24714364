"""A producer frees its used objects at once, without the cyclic collector.

The collector takes a fifth of a record's cost as it is.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running

if TYPE_CHECKING:
    from aioproducer import Producer


def circles() -> list[str]:
    """Return the types of the library that only the collector frees."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return sorted(
            {
                type(one).__qualname__
                for one in gc.garbage
                if type(one).__module__.startswith(("aioproducer.core", "aioproducer.engine"))
            }
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def send_and_look(producer: Producer[Any, Any]) -> None:
    for _ in range(5):
        await asyncio.gather(
            *[await producer.send("orders", bytes(100), b"%d" % number) for number in range(100)]
        )
    for delivery in [
        await producer.send("orders", bytes(100), headers=[("a", b"b")]) for _ in range(100)
    ]:
        await delivery
    await (await producer.send_many("orders", [bytes(100)] * 300))


@pytest.mark.parametrize(
    "options",
    [{}, {"linger_ms": 5}, {"buffer_memory": 40_000}],
    ids=["plain", "linger", "admission"],
)
@jumping
async def test_sent_records_leave_no_circles(options: dict[str, Any]) -> None:
    """Batches, results, deliveries and pending sends form no reference cycles."""
    async with running(**options) as (_, producer):
        await send_and_look(producer)
        gc.collect()
        gc.disable()
        gc.freeze()  # a thread of an earlier producer may free objects meanwhile; they do not count
        try:
            await send_and_look(producer)
            assert circles() == []
        finally:
            gc.unfreeze()
            gc.enable()
