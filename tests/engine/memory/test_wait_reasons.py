"""Tests of `aioproducer.engine.memory.wait_reasons`: the texts for the reasons why records wait."""

from __future__ import annotations

from aioproducer.engine.memory.wait_queue import FOR_LOOP_BUDGET, FOR_MEMORY, FOR_PARTITION, FOR_TOPIC, PendingSend
from aioproducer.engine.memory.wait_reasons import told

SECRET = b"a value that nobody may read"


def pending(topic: str | None, reason: str) -> PendingSend:
    record = PendingSend(topic, value=SECRET, key=SECRET)
    record.join(0, reason, 0.0)
    return record


def test_reasons_are_counted_the_commonest_first() -> None:
    """Sends that wait for a topic are counted by topic. Marks are not counted."""
    records = [
        pending("late", FOR_TOPIC),
        *(pending(name, FOR_MEMORY) for name in ("a", "b", "c")),
        pending("a", FOR_LOOP_BUDGET),
        pending("b", FOR_LOOP_BUDGET),
    ]
    assert told([*records, pending(None, ""), pending("late", FOR_TOPIC), pending("late", FOR_TOPIC), pending("late", FOR_TOPIC)]) == [
        "  4 sends waiting for metadata of the topic 'late'",
        "  3 sends waiting for buffer_memory",
        "  2 sends waiting for the next turn of the loop",
    ]


def test_only_the_commonest_reasons_are_told() -> None:
    """The text lists only the commonest reasons, since thousands of topics would make it too long."""
    records = [pending(f"topic{number}", FOR_PARTITION) for number in range(50) for _ in range(number + 1)]
    lines = told(records)
    assert lines[0] == "  50 sends waiting for the partition to exist 'topic49'"
    assert len(lines) == 20
