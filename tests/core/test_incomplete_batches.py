"""Tests of `aioproducer.core.incomplete_batches`: in which order batches stand there, and for how long."""

from __future__ import annotations

from batches import OpenBatch

from aioproducer.core.batch_splitting import Piece
from aioproducer.core.incomplete_batches import IncompleteBatches
from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.producer_batch import PartitionQueue, ProducerBatch
from aioproducer.core.topic_routing import TopicRouting


def made(*expiries: float) -> tuple[IncompleteBatches, list[ProducerBatch]]:
    routing = TopicRouting("t", NO_ID)
    queue = PartitionQueue(routing, 0, 1, None)
    batches = [ProducerBatch(queue, at, OpenBatch(), None, credit=0, expires_at=expiry) for at, expiry in enumerate(expiries)]
    incomplete = IncompleteBatches()
    for batch in batches:
        incomplete.add(batch)
    return incomplete, batches


def part(batch: ProducerBatch, number: int) -> ProducerBatch:
    return batch.part(number, Piece(range(1), b".", 0, 0), None)


def test_the_oldest_expires_first() -> None:
    """The batches expire oldest first. A batch that has ended is no longer among them."""
    incomplete, [first, second, third] = made(10.0, 20.0, 30.0)
    assert incomplete.expired(9.9) == []
    assert incomplete.expired(20.0) == [first, second]
    incomplete.end(first)
    assert (list(incomplete), len(incomplete), incomplete.next_expiry()) == ([second, third], 2, 20.0)
    incomplete.end(second)
    incomplete.end(third)
    assert (list(incomplete), len(incomplete), incomplete.next_expiry()) == ([], 0, None)


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
