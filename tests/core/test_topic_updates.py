"""Tests of `aioproducer.core.topic_updates`: large topics are applied and forgotten in steps.

Sends append records between any two of the steps.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from batches import FULL, answered, install, partition_queues, put, sent, topic, whole

from aioproducer.core.metadata.cluster_metadata import STRIDE
from aioproducer.core.partition_queues import NO_LEADER, PartitionQueue, PartitionQueues
from aioproducer.core.topic_updates import elect, forgetting, installing, retiring

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioproducer.core.metadata.cluster_metadata import TopicView
    from aioproducer.core.producer_batch import ProducerBatch

ID, OTHER_ID = b"sixteen bytes id", b"another topic id"
MANY = 3 * STRIDE


def large(count: int, leader: int = 1, *, topic_id: bytes = ID, epoch: int = 0) -> TopicView:
    return topic(*[leader] * count, topic_id=topic_id, epoch=epoch)


def with_topic(view: TopicView) -> tuple[PartitionQueues, list[PartitionQueue]]:
    rules = PartitionQueues(FULL, linger=0.0, lifetime=1000.0, on_close=lambda batch: None)
    return rules, list(install(rules, view).queues)


def test_a_new_topic_is_there_when_it_is_whole() -> None:
    """In the last step, not before."""
    rules = PartitionQueues(FULL, linger=0.0, lifetime=1000.0, on_close=lambda batch: None)
    steps = 0
    for _ in installing(rules, large(MANY)):
        steps += 1
        assert rules.routings == {}
    assert steps >= 3
    assert [queue.partition for queue in rules.routings["t"].queues] == list(range(MANY))
    assert {queue.leader for queue in rules.routings["t"].queues} == {1}
    assert rules.routings["t"].available == tuple(range(MANY))


def test_a_small_topic_takes_one_step() -> None:
    """The update of a small topic yields to no other code."""
    rules = PartitionQueues(FULL, linger=0.0, lifetime=1000.0, on_close=lambda batch: None)
    assert list(installing(rules, large(STRIDE - 1))) == []
    assert list(retiring(rules, large(STRIDE - 1))) == []
    assert list(installing(rules, large(STRIDE - 2, topic_id=OTHER_ID))) == []
    assert list(retiring(rules, large(STRIDE - 2, topic_id=OTHER_ID))) == []


VIEWS = {
    "moved": large(MANY, 2, epoch=1),
    "grown": large(MANY + STRIDE + 5, 2, epoch=1),
    "made anew": large(MANY, 2, topic_id=OTHER_ID),
    "made anew, smaller": large(STRIDE + 5, 2, topic_id=OTHER_ID),
    "made anew, larger": large(MANY + 5, 2, topic_id=OTHER_ID),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_records_flow_between_the_steps(view: TopicView) -> None:
    """Sends append to the partitions that exist at the time.

    Each batch is drained once, to its leader of that time. Batches of partitions that are gone wait there.
    """
    rules, queues = with_topic(large(MANY))
    routing = rules.routings["t"]
    written: list[ProducerBatch] = []
    received: list[ProducerBatch] = []
    step = 0
    for _ in installing(rules, view):
        assert rules.routings["t"] is routing
        written += [
            put(rules, queues[partition], step)
            for partition in (step, (step * STRIDE) % MANY, MANY - 1)
        ]
        if step % 2:
            for node_id in (1, 2):
                batches = sent(rules, node_id, f"lane of {node_id}", 10**6)
                assert all(batch.queue.leader == node_id for batch in batches)
                assert len({batch.queue.routing.topic_id for batch in batches}) <= 1, (
                    "a request has one id for a topic"
                )
                received += batches
                for batch in batches:
                    answered(rules, batch)
        step += 1
    assert step >= 3
    put(rules, queues[MANY - 1], step)
    whole(retiring(rules, view))
    installed = rules.routings["t"]
    assert [queue.partition for queue in installed.queues] == list(range(len(view.partitions)))
    assert all(queue is queues[queue.partition] for queue in installed.queues[:MANY])
    assert installed.topic_id == view.topic_id
    assert {(queue.leader, queue.epoch, queue.routing) for queue in installed.queues} == {
        (2, view.partitions[0].epoch, installed)
    }
    if len(view.partitions) < MANY:
        assert installed.gone == [queues[-1]]
        assert (queues[-1].open, queues[-1].current) == (FULL, None)
    while batches := sent(rules, 2, "lane of 2", 10**6):
        received += batches
        for batch in batches:
            answered(rules, batch)
    assert not list(rules.incomplete)
    assert not any(rules.ready.nodes())
    assert len(received) == len(set(received))
    assert set(written) <= set(received)


def test_a_batch_that_is_opened_last_for_a_partition_that_is_no_more_is_not_lost() -> None:
    """A send that appends in the step before the new topic routing is installed still finds the old one."""
    rules, queues = with_topic(large(MANY))
    view = large(2, topic_id=OTHER_ID)
    for _ in installing(rules, view):
        pass
    batch = put(rules, queues[-1])
    whole(retiring(rules, view))
    assert rules.routings["t"].gone == [queues[-1]]
    assert sent(rules, 1) == [batch]


def test_no_batch_passes_one_that_names_the_topic_as_it_was() -> None:
    """The broker will refuse that one for its id, and would accept a later batch of the new topic at once."""
    rules, queues = with_topic(large(MANY))
    for number, _ in enumerate(installing(rules, large(MANY, topic_id=OTHER_ID))):
        put(rules, queues[0], number)
        for batch in sent(rules, 1):
            assert batch.queue.routing.topic_id == ID
    assert queues[0].in_flight
    put(rules, queues[0], MANY)
    assert sent(rules, 1) == []


def test_one_partition_is_elected() -> None:
    """As a hint tells it: no other one is touched."""
    rules, queues = partition_queues(1, 1, NO_LEADER)
    batches = [put(rules, queue) for queue in queues]
    elect(rules, topic(2, 2, 2, epoch=1), 1)
    assert [queue.leader for queue in queues] == [1, 2, NO_LEADER]
    assert rules.routings["t"].available == (0, 1)
    elect(rules, topic(2, 2, 2, epoch=1), 2)
    assert rules.routings["t"].available == (0, 1, 2)
    assert sent(rules, 2) == batches[1:]
    elect(rules, topic(NO_LEADER, 2, 2, epoch=2), 0)
    assert rules.routings["t"].available == (1, 2)


@pytest.mark.parametrize(("name", "partition"), [("other", 0), ("t", 2)])
def test_what_is_not_known_is_not_elected(name: str, partition: int) -> None:
    """The leader of an unknown partition is ignored, as no send produces to it."""
    rules, queues = partition_queues(1, 1)
    elect(rules, topic(2, 2, 2, epoch=1, name=name), partition)
    assert [queue.leader for queue in queues] == [1, 1]
    assert list(rules.routings) == ["t"]


# Forgetting


def forget(
    rules: PartitionQueues, told: list[str], *, is_in_use: bool = False
) -> Generator[None, None, bool]:
    return forgetting(rules, rules.routings["t"], lambda _topic: is_in_use, told.append)


def cells_alive() -> set[PartitionQueue]:
    return {each for each in gc.get_objects() if isinstance(each, PartitionQueue)}


def test_a_topic_that_nobody_uses_is_forgotten_in_one_step() -> None:
    """The code that keeps parts of the topic is notified in that step.

    The remaining objects form no reference cycle that needs the collector.
    """
    others = cells_alive()
    rules, queues = with_topic(large(MANY))
    routing, told = rules.routings["t"], list[str]()
    routing.by_key[b"k"]
    seen = [("t" in rules.routings, list(told)) for _ in forget(rules, told)]
    assert set(map(str, seen)) == {str((True, [])), str((False, ["t"]))}
    assert len(seen) >= 5
    del queues
    gc.collect()
    gc.disable()
    try:
        assert (rules.routings, routing.queues, dict(routing.by_key), routing.sticky) == (
            {},
            [],
            {},
            None,
        )
        assert cells_alive() - others == set()
    finally:
        gc.enable()


@pytest.mark.parametrize("step", [1, 2])
def test_a_record_that_comes_between_two_steps_keeps_its_topic(step: int) -> None:
    """Also if it is acknowledged before the next."""
    rules, queues = with_topic(large(MANY))
    told: list[str] = []
    steps = forget(rules, told)
    for _ in range(step):
        next(steps)
    batch = put(rules, queues[0], now=5.0)
    assert sent(rules, 1) == [batch]
    answered(rules, batch)
    assert not whole(steps)
    assert rules.routings["t"].queues == queues
    assert told == []


def test_a_topic_that_is_asked_for_is_not_forgotten() -> None:
    """Its answer is about to be taken (MET-05)."""
    rules, _ = with_topic(large(MANY))
    assert not whole(forget(rules, [], is_in_use=True))
    assert "t" in rules.routings
