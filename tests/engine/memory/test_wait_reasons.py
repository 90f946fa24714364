"""Tests of `aioproducer.engine.memory.wait_reasons`: the texts for the reasons why records wait."""

from __future__ import annotations

from aioproducer.engine.memory.pending_send import FOR_PARTITION, PendingSend
from aioproducer.engine.memory.wait_reasons import told

SECRET = b"a value that nobody may read"


def pending(topic: str, reason: str) -> PendingSend:
    record = PendingSend(topic, value=SECRET, key=SECRET)
    record.reason = reason
    return record


def test_only_the_commonest_reasons_are_told() -> None:
    """The text lists only the commonest reasons, since thousands of topics would make it too long."""
    records = [
        pending(f"topic{number}", FOR_PARTITION) for number in range(50) for _ in range(number + 1)
    ]
    lines = told(records)
    assert lines[0] == "  50 sends waiting for the partition to exist 'topic49'"
    assert len(lines) == 20
