"""Tests of `aioproducer.core.topic_routing`: the choice of a partition for records without a key, and when.

Keys are tested with the partition queues.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from batches import FULL
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.availability import Availability
from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.producer_batch import PartitionQueue, ProducerBatch
from aioproducer.core.topic_routing import NO_LEADER, TopicRouting


def made(leaders: list[int], sticky: int | None) -> TopicRouting:
    routing = TopicRouting("t", NO_ID)
    routing.queues += [
        PartitionQueue(routing, partition, leader, FULL) for partition, leader in enumerate(leaders)
    ]
    routing.sticky = None if sticky is None else routing.queues[sticky]
    return routing


def held(queue: PartitionQueue, credit: int) -> ProducerBatch:
    """A batch that holds so much memory."""
    return ProducerBatch(queue, 1, None, None, credit=credit, expires_at=1.0)


@given(leaders=st.lists(st.sampled_from([NO_LEADER, 1, 2]), min_size=1, max_size=8), data=st.data())
def test_all_others_are_as_likely(leaders: list[int], data: st.DataObject) -> None:
    """The choice selects each of the other partitions equally often."""
    sticky = data.draw(st.none() | st.integers(0, len(leaders) - 1))
    routing = made(leaders, sticky)
    led = [queue for queue in routing.queues if queue.leader >= 0] or routing.queues
    others = [queue for queue in led if queue is not routing.sticky] or led
    many = len(others) * 10
    chosen = [routing.another((number + 0.5) / many).partition for number in range(many)]
    assert sorted(chosen) == sorted(queue.partition for queue in others for _ in range(10))


def test_leaders_that_were_elected_are_noticed() -> None:
    """As they are told, or looked at anew."""
    routing = made([1, NO_LEADER, 1], None)
    assert routing.available == (0, 2)
    routing.queues[1].leader = 5
    assert routing.available == (0, 2)
    routing.elected()
    assert routing.available == (0, 1, 2)
    routing.elected([1, 2])
    assert routing.available == (1, 2)


# Shares


def test_a_share_is_its_bytes() -> None:
    """The sticky partition stays until what it has had, and what comes, is more than the quantum; the first record always fits."""
    routing = made([1, 1, 1], 0)
    assert routing.stays(1000, 100)
    routing.share = 60
    assert routing.stays(40, 100)
    assert not routing.stays(41, 100)


def test_a_new_turn_is_a_new_share() -> None:
    """Nothing of the last one's counts; without a sticky partition, none stays."""
    routing = made([1, 1], None)
    assert not routing.stays(1, 100)
    first = routing.switch(0.0, is_adaptive=False)
    routing.share = 100
    second = routing.switch(0.0, is_adaptive=False)
    assert first is not second is routing.sticky
    assert routing.share == 0


# Queues


def fill(routing: TopicRouting, *depths: int) -> None:
    for queue, depth in zip(routing.queues, depths, strict=True):
        queue.closed.clear()
        queue.closed.extend([None] * depth)  # type: ignore[list-item]


def test_an_open_batch_is_one_of_the_queue() -> None:
    """As the last one in Java's queue is."""
    routing = made([1, 2], None)
    routing.queues[0].current = held(routing.queues[0], 1000)
    chosen = Counter(
        routing.another((nth + 0.5) / 30, is_adaptive=True).partition for nth in range(30)
    )
    assert chosen == {0: 10, 1: 20}


def test_a_batch_that_took_more_as_it_could_not_be_sent_is_several() -> None:
    """KIP-782: else a late broker's queue would look as short as the others'."""
    routing = made([1, 2], None)
    for queue, credits_ in zip(routing.queues, ([1000, 900, 3999], [700]), strict=True):
        queue.closed += [held(queue, credit) for credit in credits_]
        queue.bytes = sum(credits_)
    chosen = Counter(
        routing.another((nth + 0.5) / 60, is_adaptive=True, unit=1000).partition
        for nth in range(60)
    )
    assert chosen == {0: 10, 1: 50}


def test_nobody_looks_at_each_batch_of_a_long_queue() -> None:
    """The choice derives a long queue's length from its bytes, and does not look at each batch.

    The length is at least the number of batches.
    """
    routing = made([1, 2, 3], None)
    for queue, (count, held) in zip(
        routing.queues, ((1000, 5_000_000), (99, 50_000), (0, 0)), strict=True
    ):
        queue.closed += [None] * count  # type: ignore[list-item]
        queue.bytes = held
    weights = [5001 - queued for queued in (5000, 99, 0)]
    chosen = Counter(
        routing.another((nth + 0.5) / sum(weights), is_adaptive=True, unit=1000).partition
        for nth in range(sum(weights))
    )
    assert chosen == {0: weights[0], 1: weights[1], 2: weights[2]}


def test_queues_of_what_is_not_usable_say_nothing() -> None:
    """Neither by their length, nor are they chosen; that one was left out is noticed at once."""
    availability = Availability()
    routing = TopicRouting("t", NO_ID, availability)
    routing.queues += [
        PartitionQueue(routing, partition, 1 + partition, FULL) for partition in range(3)
    ]
    fill(routing, 100, 0, 1)
    assert Counter(
        routing.another((nth + 0.5) / 202, is_adaptive=True).partition for nth in range(202)
    ) == {0: 1, 1: 101, 2: 100}
    availability.avoid(routing.queues[0])
    assert Counter(
        routing.another((nth + 0.5) / 3, is_adaptive=True).partition for nth in range(3)
    ) == {1: 2, 2: 1}


def test_what_was_seen_of_queues_does_not_outlive_the_choice() -> None:
    """The choice caches the lengths of the queues of 40 partitions. It reads them again when a partition becomes avoided in between."""
    availability = Availability()
    routing = TopicRouting("t", NO_ID, availability)
    routing.queues += [PartitionQueue(routing, partition, 1, FULL) for partition in range(40)]
    fill(routing, *range(40))
    routing.another(0.5, is_adaptive=True)
    for queue in routing.queues[20:]:
        availability.avoid(queue)
    chosen = Counter(
        routing.another((nth + 0.5) / 210, is_adaptive=True).partition
        for nth in reversed(range(210))
    )
    assert [chosen[at] for at in range(40)] == [*range(20, 0, -1), *[0] * 20]


class Looked(deque[Any]):
    """A partition's queue that counts how often its own length is read. Other queues of this process do not change the count."""

    looks = 0

    def __len__(self) -> int:
        self.looks += 1
        return 0


def test_queues_are_looked_at_as_seldom_as_they_are_many() -> None:
    """The choice reads a few queues for each change of partition, for any number of partitions.

    It reads none of one partition, or of more than 4096.
    """
    for partitions, changes in ((1, 100), (12, 100), (160, 100), (4096, 1000), (4097, 1000)):
        routing = made([1] * partitions, None)
        queues = [Looked() for _ in routing.queues]
        for queue, queue_ in zip(routing.queues, queues, strict=True):
            queue.closed = queue_
        for _ in range(changes):
            routing.switch(0.5, is_adaptive=True)
        looks = sum(queue_.looks for queue_ in queues)
        assert looks <= changes * 16 + partitions
        assert bool(looks) is (1 < partitions <= 4096)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_a_queue_that_grows_is_chosen_less(depths: list[int]) -> None:
    """Chances are the weights'; none is ever left out for good."""
    routing = made([1] * len(depths), None)
    fill(routing, *depths)
    above = max(depths) + 1
    weights = (
        [above - depth for depth in depths] if min(depths) < max(depths) else [1] * len(depths)
    )
    chosen = Counter(
        routing.another((nth + 0.5) / sum(weights), is_adaptive=True).partition
        for nth in range(sum(weights))
    )
    assert [chosen[at] for at in range(len(depths))] == weights
