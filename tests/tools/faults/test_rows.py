"""Tests that play the rows that are data, in time that jumps."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aioproducer.testing.jumping import run_jumping

from .judge import complaints
from .row import Row, rows
from .stage import Client, play


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.file)
def test_row(row: Row) -> None:
    """The row's expected results hold, and no task or socket is left."""
    assert run_jumping(_complaints(row)) == []


async def _complaints(row: Row) -> list[str]:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: told.append(f"the loop was told: {context['message']}")
    )
    before = asyncio.all_tasks()
    client = Client()
    played = await play(row, client)
    found = complaints(played)
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - before
    if left:
        found.append(f"{len(left)} tasks are left")
    producer = client.producer
    if (
        producer is not None
        and played.start_error is None
        and producer.buffer_available != producer.config.buffer_memory
    ):
        found.append(
            f"{producer.config.buffer_memory - producer.buffer_available} bytes of memory are not free"
        )
    gc.collect()
    return found + told
