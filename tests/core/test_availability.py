"""Tests of `aioproducer.core.availability`: what makes a partition unusable, and for how long (PAR-07, PAR-08)."""

from __future__ import annotations

import pytest
from batches import FULL, partition_queues, put, topic
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.availability import Availability
from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.core.topic_routing import NO_LEADER, TopicRouting
from aioproducer.core.topic_updates import elect


def made(
    *leaders: int, timeout: float = 0.0, near: set[int] | None = None
) -> tuple[Availability, TopicRouting]:
    availability = Availability(timeout, near.__contains__ if near is not None else None)
    routing = TopicRouting("t", NO_ID, availability)
    routing.queues += [
        PartitionQueue(routing, partition, leader, FULL) for partition, leader in enumerate(leaders)
    ]
    return availability, routing


def fill(queue: PartitionQueue, depth: int) -> None:
    queue.closed.clear()
    queue.closed.extend([None] * depth)  # type: ignore[list-item]


def waiting(routing: TopicRouting) -> dict[int, list[PartitionQueue]]:
    """Something for every partition."""
    ready: dict[int, list[PartitionQueue]] = {}
    for queue in routing.queues:
        ready.setdefault(queue.leader, []).append(queue)
    return ready


def test_both_reasons_count_by_themselves() -> None:
    """The end of one is not the end of the other."""
    availability, routing = made(1, 2, timeout=1.0)
    availability.avoid(routing.queues[0])
    availability.blocked(1, 0.0)
    availability.look(5.0, waiting(routing))
    availability.welcome(routing.queues[0])
    assert routing.available == (1,)
    availability.avoid(routing.queues[0])
    availability.drained(1)
    assert routing.available == (1,)
    availability.welcome(routing.queues[0])
    assert routing.available == (0, 1)


def test_if_none_is_usable_all_with_a_leader_are() -> None:
    """A record has to go somewhere; and if none has a leader, to any."""
    availability, routing = made(1, NO_LEADER, 1)
    availability.avoid(routing.queues[0])
    availability.avoid(routing.queues[2])
    assert routing.available == routing.choices == (0, 2)
    _, headless = made(NO_LEADER, NO_LEADER)
    assert headless.available == ()
    assert list(headless.choices) == [0, 1]


def test_a_broker_is_late_after_the_timeout() -> None:
    """Not at it; from when it first took nothing, until it takes something."""
    availability, routing = made(1, 2, timeout=1.0)
    availability.blocked(1, 10.0)
    availability.blocked(1, 10.9)
    availability.look(11.0, waiting(routing))
    assert routing.available == (0, 1)
    availability.look(11.01, waiting(routing))
    assert routing.available == (1,)
    availability.blocked(1, 12.0)
    availability.drained(1)
    assert routing.available == (0, 1)
    assert not availability.is_watching


def test_a_sticky_partition_is_left_at_once() -> None:
    """The sticky choice leaves a partition when that is avoided, and when its broker is found to be late. Other topics keep theirs."""
    availability, routing = made(1, 2, timeout=1.0)
    _, other = made(1)
    routing.sticky, other.sticky = routing.queues[0], other.queues[0]
    availability.avoid(routing.queues[1])
    assert routing.sticky is routing.queues[0]
    availability.avoid(routing.queues[0])
    assert (routing.sticky, other.sticky) == (None, other.queues[0])
    routing.sticky = routing.queues[0]
    availability.blocked(2, 0.0)
    availability.look(5.0, waiting(routing))
    assert routing.sticky is routing.queues[0]
    availability.blocked(1, 5.0)
    availability.look(10.0, waiting(routing))
    assert routing.sticky is None


def test_who_takes_now_and_then_is_not_late() -> None:
    """Each time its time begins anew."""
    availability, routing = made(1, 2, timeout=1.0)
    for now in (10.0, 10.8, 11.6, 12.4):
        availability.drained(1)
        availability.blocked(1, now)
        availability.look(now + 0.7, waiting(routing))
    assert routing.available == (0, 1)
    availability.look(13.5, waiting(routing))
    assert routing.available == (1,)


def test_who_is_asked_for_nothing_is_not_late_any_more() -> None:
    """A late broker becomes usable when no batch waits for it: the batches expired or have another leader.

    A broker without waiting batches does not become late.
    """
    availability, routing = made(1, 2, timeout=1.0)
    availability.blocked(1, 0.0)
    availability.look(2.0, {})
    assert routing.available == (0, 1)
    assert not availability.is_watching
    availability.blocked(1, 3.0)
    availability.look(5.0, waiting(routing))
    assert routing.available == (1,)
    availability.look(5.0, {})
    assert routing.available == (0, 1)
    assert not availability.is_watching


def test_what_waits_behind_its_own_batches_waits_too() -> None:
    """For the answer to what is in flight; not for anything else, and not once it has gone elsewhere."""
    for leader, in_flight, queued, is_late in (
        (1, 1, 1, True),
        (1, 0, 1, False),
        (1, 1, 0, False),
        (2, 1, 1, False),
    ):
        availability, routing = made(1, 2, timeout=1.0)
        queue = routing.sticky = routing.queues[0]
        availability.blocked(1, 0.0, queue)
        fill(queue, queued)
        queue.in_flight, queue.leader = in_flight, leader
        availability.look(2.0, {})
        assert (routing.sticky is None) is is_late
        routing.moved()
        assert routing.available == ((1,) if is_late else (0, 1))
        assert availability.is_watching is is_late
        fill(queue, 0)
        availability.look(3.0, {})
        assert routing.available == (0, 1)


def test_without_a_timeout_nobody_is_late() -> None:
    """As is the default: nothing is remembered of brokers."""
    availability, routing = made(1, 2)
    availability.blocked(1, 0.0)
    assert not availability.is_watching
    availability.look(1e9, waiting(routing))
    assert routing.available == (0, 1)


def test_a_change_is_told_by_another_version() -> None:
    """And what changes nothing is not."""
    availability, routing = made(1, 2, timeout=1.0)
    versions = [availability.version]
    for step in (
        lambda: availability.avoid(routing.queues[0]),
        lambda: availability.welcome(routing.queues[0]),
        lambda: (availability.blocked(2, 0.0), availability.look(2.0, waiting(routing))),
        lambda: availability.drained(2),
    ):
        step()
        versions.append(availability.version)
    assert len(set(versions)) == 5
    for nothing in (
        lambda: availability.drained(2),
        lambda: availability.blocked(2, 0.0),
        lambda: availability.look(1.0, waiting(routing)),
        lambda: availability.welcome(routing.queues[0]),
    ):
        nothing()
    assert availability.version == versions[-1]


@pytest.mark.parametrize(
    ("near", "avoided", "choices"),
    [
        ({1}, set(), (0, 2)),
        ({1, 3}, set(), (0, 2, 3)),
        ({1}, {1}, (1, 3)),
        ({1, 3}, {1}, (3,)),
        ({7}, set(), (0, 1, 2, 3)),
        (set(), {2}, (0, 2, 3)),
    ],
)
def test_records_without_a_key_stay_in_the_rack(
    near: set[int], avoided: set[int], choices: tuple[int, ...]
) -> None:
    """While anything in it is usable; the user's partitioner is told of all."""
    availability, routing = made(1, 2, 1, 3, near=near)
    for queue in routing.queues:
        if queue.leader in avoided:
            availability.avoid(queue)
    assert routing.choices == choices
    assert routing.available == tuple(
        queue.partition for queue in routing.queues if queue.leader not in avoided
    )


def test_a_leader_in_another_rack_is_noticed() -> None:
    """As many partitions have a leader, but fewer in the rack."""
    _, routing = made(1, 2, 1, near={1})
    assert routing.choices == (0, 2)
    routing.queues[2].leader = 2
    routing.moved()
    assert routing.choices == (0,)


def test_one_partition_that_another_broker_leads_is_judged_anew() -> None:
    """As Produce answers tell it: by its rack, and by whether its broker is late."""
    rules, queues = partition_queues(1, 1, 2)
    rules.availability.timeout = 1.0
    rules.availability.blocked(2, 0.0)
    put(rules, queues[2])
    rules.availability.look(5.0, rules.ready)
    routing = queues[0].routing
    assert routing.available == (0, 1)
    elect(rules, topic(1, 2, 2, epoch=1), 1)
    assert routing.available == (0,)


def test_who_loses_its_leader_is_left_by_the_sticky_choice() -> None:
    """The sticky choice leaves a partition that loses its leader, however many bytes its open batch has left.

    It keeps one that gets another leader.
    """
    rules, queues = partition_queues(1, 2)
    routing = queues[0].routing
    routing.sticky = queues[0]
    put(rules, queues[0])
    rules.lead(queues[0], 2, 1)
    assert routing.sticky is queues[0]
    rules.lead(queues[0], NO_LEADER, 2)
    assert routing.sticky is None


@given(
    leaders=st.lists(st.sampled_from([NO_LEADER, 1, 2, 3]), min_size=1, max_size=8),
    late=st.sets(st.integers(1, 3)),
    muted=st.sets(st.integers(0, 7)),
)
def test_one_notion_of_usable(leaders: list[int], late: set[int], muted: set[int]) -> None:
    """The verdict on one partition is the verdict on all."""
    availability, routing = made(*leaders, timeout=1.0)
    for node_id in late:
        availability.blocked(node_id, 0.0)
    availability.look(2.0, waiting(routing))
    for at in muted.intersection(range(len(leaders))):
        availability.avoid(routing.queues[at])
    usable = tuple(queue.partition for queue in routing.queues if availability.is_usable(queue))
    expected = tuple(
        at
        for at, leader in enumerate(leaders)
        if leader >= 0 and leader not in late and at not in muted
    )
    assert usable == expected
    assert routing.available == (
        expected or tuple(at for at, leader in enumerate(leaders) if leader >= 0)
    )
