"""Tests of `aioproducer.engine.sender.flush`: which batches a flush covers, and what it counts."""

from __future__ import annotations

from batches import answered, partition_queues, put, sent, split

from aioproducer.core.produce_attempt import ProduceAttempts
from aioproducer.engine.sender.flush import Flush


def test_a_flush_counts_the_records_of_its_batches_and_wakes_once() -> None:
    """Batches that were opened later are none of its own."""
    rules, queues = partition_queues(1, 1, 1)
    batches = [put(rules, queue) for queue in queues]
    put(rules, queues[1])
    first, second, later = sent(rules, 1)
    woken: list[bool] = []
    flush = Flush([first, second], lambda: woken.append(True))
    assert (flush.pending, flush.acknowledged, flush.failed) == (3, 0, 0)
    assert batches == [first, second, later]
    for batch, is_last in ((later, False), (first, False), (second, True)):
        if batch is second:
            ProduceAttempts(rules).fail(batch)
        else:
            answered(rules, batch)
        assert flush.ended(batch) is is_last
        assert not flush.ended(batch), "a batch ends once"
    assert (flush.pending, flush.acknowledged, flush.failed) == (0, 1, 2)
    assert woken == [True]


def test_a_flush_whose_sends_wait_counts_each_batch_until_they_are_queued() -> None:
    """Before `cover_last` it counts batches that it does not hold, and wakes nothing."""
    rules, queues = partition_queues(1, 1, 1, 1)
    for queue in queues:
        put(rules, queue)
    first, between, last, later = sent(rules, 1)
    woken: list[bool] = []
    flush = Flush([first], lambda: woken.append(True), waits=True, takes_all=True)
    for batch in (first, between):
        answered(rules, batch)
        assert not flush.ended(batch)
    flush.cover_last([last])
    answered(rules, later)
    assert not flush.ended(later)
    assert (flush.acknowledged, flush.pending, woken) == (2, 1, [])
    answered(rules, last)
    assert flush.ended(last)
    assert (flush.acknowledged, flush.pending, woken) == (3, 0, [True])


def test_a_flush_waits_for_the_parts_of_a_batch() -> None:
    """A batch of other calls may be split meanwhile, too."""
    rules, queues = partition_queues(1, 1)
    for _ in range(2):
        put(rules, queues[0])
        put(rules, queues[1])
    batch, other = sent(rules, 1)
    woken: list[bool] = []
    flush = Flush([batch], lambda: woken.append(True))
    parts = split(rules, batch)
    flush.split(batch, parts)
    flush.split(other, split(rules, other))
    assert not flush.ended(batch)
    for part, is_last in zip(parts, (False, True), strict=True):
        ProduceAttempts(rules).fail(part)
        assert flush.ended(part) is is_last
    assert (flush.pending, flush.failed, woken) == (0, 2, [True])
