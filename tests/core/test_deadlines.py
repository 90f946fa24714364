"""Tests of `aioproducer.core.deadlines`: which batches and partitions are due, in which order, and when the next one is."""

from __future__ import annotations

from batches import OpenBatch

from aioproducer.core.batch_splitting import Piece
from aioproducer.core.deadlines import Deadlines, IncompleteBatches
from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.producer_batch import NEXT, Event, PartitionQueue, ProducerBatch
from aioproducer.core.topic_routing import TopicRouting


def queues(many: int) -> list[PartitionQueue]:
    routing = TopicRouting("t", NO_ID)
    return [PartitionQueue(routing, partition, 1, None) for partition in range(many)]


def test_what_lingers_and_is_still_open_is_there_at_its_time() -> None:
    """A lingering batch is due at its time. A batch that was closed before is skipped."""
    pauses = Deadlines(10.0, 100.0)
    batches = [ProducerBatch(queue, 1, OpenBatch(), None, expires_at=0.0) for queue in queues(4)]
    for at, batch in enumerate(batches):
        pauses.linger(batch, 10.0 + at)
    assert pauses.next() == 10.0
    assert list(pauses.lingered(9.9)) == []
    batches[1].state = NEXT[batches[1].state, Event.CLOSE]
    assert list(pauses.lingered(10.0)) == [batches[0]]
    assert pauses.next() == 12.0
    batches[2].state = NEXT[batches[2].state, Event.CLOSE]
    assert pauses.next() == 13.0, "nobody is woken for what was closed"
    assert list(pauses.lingered(20.0)) == batches[3:]
    assert pauses.next() is None


def made(*expiries: float) -> tuple[IncompleteBatches, list[ProducerBatch]]:
    routing = TopicRouting("t", NO_ID)
    queue = PartitionQueue(routing, 0, 1, None)
    batches = [
        ProducerBatch(queue, at, OpenBatch(), None, expires_at=expiry)
        for at, expiry in enumerate(expiries)
    ]
    incomplete = IncompleteBatches()
    for batch in batches:
        incomplete.roots[batch] = None
    return incomplete, batches


def part(batch: ProducerBatch, number: int) -> ProducerBatch:
    return batch.part(number, Piece(range(1), b".", 0, 0), None)


def test_parts_stand_in_the_place_of_their_batch() -> None:
    """Those of a part, too; together they count once, until the last of them has ended."""
    incomplete, [first, second] = made(10.0, 20.0)
    left, right = part(first, 0), part(first, 1)
    incomplete.split(first, [left, right])
    smaller = [part(left, 0), part(left, 1)]
    incomplete.split(left, smaller)
    assert list(incomplete) == [*smaller, right, second]
    assert (len(incomplete), incomplete.next_expiry()) == (2, 10.0)
    for each in (smaller[1], right):
        incomplete.end(each)
    assert list(incomplete) == [smaller[0], second]
    incomplete.end(smaller[0])
    assert (list(incomplete), incomplete.next_expiry()) == ([second], 20.0)
