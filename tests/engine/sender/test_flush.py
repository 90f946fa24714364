"""Tests of `aioproducer.engine.sender.flush`: batches of other calls end, or are split, while a flush waits."""

from __future__ import annotations

from batches import partition_queues, put, sent, split

from aioproducer.core.retries import ProduceAttempts
from aioproducer.engine.sender.flush import Flush


def test_a_flush_waits_for_the_parts_of_its_own_batches_alone() -> None:
    """A batch of other calls may be split meanwhile, too."""
    rules, queues = partition_queues(1, 1)
    for _ in range(2):
        put(rules, queues[0])
        put(rules, queues[1])
    batch, other = sent(rules, 1)
    woken: list[bool] = []
    flush = Flush([batch], lambda: woken.append(True))
    parts, others = split(rules, batch), split(rules, other)
    flush.split(batch, parts)
    flush.split(other, others)
    assert not flush.ended(batch)
    for part, is_last in ((others[0], False), (parts[0], False), (parts[1], True)):
        ProduceAttempts(rules).fail(part)
        assert flush.ended(part) is is_last
    assert (flush.pending, flush.failed, woken) == (0, 2, [True])
