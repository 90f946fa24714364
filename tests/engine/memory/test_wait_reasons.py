"""Tests of `aioproducer.engine.memory.wait_reasons`: the texts for the reasons why records wait."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.engine.memory.buffer_pool import PendingSend
from aioproducer.engine.memory.wait_reasons import FOR_MEMORY, FOR_PARTITION, FOR_TOPIC, told

SECRET = b"a value that nobody may read"


def parked(topic: str | None, reason: str) -> PendingSend:
    record = PendingSend(topic, value=SECRET, key=SECRET)
    record.park(asyncio.get_running_loop(), 0, reason, 0.0)
    return record


@pytest.mark.asyncio
async def test_reasons_are_counted_the_commonest_first() -> None:
    """Sends that wait for a topic are counted by topic.

    A send without a reason waits for the next event-loop iteration. Marks are not counted.
    """
    records = [parked("late", FOR_TOPIC), *(parked(name, FOR_MEMORY) for name in ("a", "b", "c")), parked("a", ""), parked("b", "")]
    assert told([*records, parked(None, ""), parked("late", FOR_TOPIC), parked("late", FOR_TOPIC), parked("late", FOR_TOPIC)]) == [
        "  4 sends wait for metadata of the topic 'late'",
        "  3 sends wait for buffer_memory",
        "  2 sends wait for the next turn of the loop",
    ]


@pytest.mark.asyncio
async def test_only_the_commonest_reasons_are_told() -> None:
    """The text lists only the commonest reasons, since thousands of topics would make it too long."""
    records = [parked(f"topic{number}", FOR_PARTITION) for number in range(50) for _ in range(number + 1)]
    lines = told(records)
    assert lines[0] == "  50 sends wait for the partition to exist 'topic49'"
    assert len(lines) == 20
