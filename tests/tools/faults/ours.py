"""Plays a row that is data with our producer, in time that jumps, and checks that no task or socket is left."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

from aioproducer.testing.jumping import run_jumping

from .clients import Ours
from .judge import complaints
from .stage import play

if TYPE_CHECKING:
    from .row import Row

__all__ = ["complaints_of_ours"]


def complaints_of_ours(row: Row) -> list[str]:
    """Return the rules that do not hold."""
    return run_jumping(_play(row))


async def _play(row: Row) -> list[str]:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(f"the loop was told: {context['message']}"))
    before = asyncio.all_tasks()
    client = Ours()
    played = await play(row, client, memory=True)
    found = complaints(played, is_ours=True)
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - before
    if left:
        found.append(f"{len(left)} tasks are left")
    producer = client.producer
    if producer is not None and played.start_error is None and producer.buffer_available != producer.config.buffer_memory:
        found.append(f"{producer.config.buffer_memory - producer.buffer_available} bytes of memory are not free")
    gc.collect()
    return found + told
