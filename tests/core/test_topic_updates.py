"""Tests of `aioproducer.core.topic_updates`: topics change under batches, and are forgotten."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from batches import FULL, answered, partition_queues, put, sent, topic

from aioproducer.core.partition_queues import NO_LEADER, PartitionQueue, PartitionQueues
from aioproducer.core.topic_updates import elect, forget, install

if TYPE_CHECKING:
    from aioproducer.core.metadata.cluster_metadata import TopicView

ID, OTHER_ID = b"sixteen bytes id", b"another topic id"
MANY = 384


def large(count: int, leader: int = 1, *, topic_id: bytes = ID, epoch: int = 0) -> TopicView:
    return topic(*[leader] * count, topic_id=topic_id, epoch=epoch)


def with_topic(view: TopicView) -> tuple[PartitionQueues, list[PartitionQueue]]:
    rules = PartitionQueues(FULL, linger=0.0, lifetime=1000.0, on_close=lambda batch: None)
    return rules, list(install(rules, view).queues)


VIEWS = {
    "moved": large(MANY, 2, epoch=1),
    "grown": large(MANY + 133, 2, epoch=1),
    "made anew": large(MANY, 2, topic_id=OTHER_ID),
    "made anew, smaller": large(133, 2, topic_id=OTHER_ID),
    "made anew, larger": large(MANY + 5, 2, topic_id=OTHER_ID),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_batches_outlast_a_change(view: TopicView) -> None:
    """Each batch is drained once, to its leader of that time. Batches of partitions that are gone wait there."""
    rules, queues = with_topic(large(MANY))
    written = [put(rules, queues[partition]) for partition in (0, 128, MANY - 1)]
    received = sent(rules, 1, "lane of 1", 10**6)[:1]
    assert received
    answered(rules, received[0])
    written.append(put(rules, queues[MANY - 1]))
    install(rules, view)
    installed = rules.routings["t"]
    assert [queue.partition for queue in installed.queues] == list(range(len(view.partitions)))
    assert all(queue is queues[queue.partition] for queue in installed.queues[:MANY])
    assert installed.topic_id == view.topic_id
    assert {(queue.leader, queue.epoch, queue.routing) for queue in installed.queues} == {(2, view.partitions[0].epoch, installed)}
    if len(view.partitions) < MANY:
        assert installed.gone == [queues[-1]]
        assert (queues[-1].open, queues[-1].current) == (FULL, None)
    for node_id in (1, 2):
        for batch in [batch for batch in rules.incomplete if batch.held]:
            answered(rules, batch)
        while batches := sent(rules, node_id, f"lane of {node_id}", 10**6):
            assert len({batch.queue.routing.topic_id for batch in batches}) <= 1, "a request has one id for a topic"
            received += batches
            for batch in batches:
                answered(rules, batch)
    assert not list(rules.incomplete)
    assert not any(rules.ready.nodes())


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


def cells_alive() -> set[PartitionQueue]:
    return {each for each in gc.get_objects() if isinstance(each, PartitionQueue)}


def test_a_topic_that_nobody_uses_is_forgotten_in_one_step() -> None:
    """The remaining objects form no reference cycle that needs the collector."""
    others = cells_alive()
    rules, queues = with_topic(large(MANY))
    routing = rules.routings["t"]
    routing.by_key[b"k"]
    gc.collect()
    gc.disable()
    try:
        assert forget(rules, routing)
        del queues
        assert (rules.routings, routing.queues, dict(routing.by_key), routing.sticky) == ({}, [], {}, None)
        assert cells_alive() - others == set()
    finally:
        gc.enable()


@pytest.mark.parametrize("where", ["open", "closed", "in flight"])
def test_a_topic_with_a_batch_is_not_forgotten(where: str) -> None:
    """Wherever it stands; when it has ended, it is."""
    rules, queues = with_topic(large(MANY))
    batch = put(rules, queues[-1])
    if where != "open":
        rules.close(queues[-1])
    if where == "in flight":
        assert sent(rules, 1) == [batch]
    assert not forget(rules, rules.routings["t"])
    assert rules.routings["t"].queues == queues
    if where != "in flight":
        assert sent(rules, 1) == [batch]
    answered(rules, batch)
    assert forget(rules, rules.routings["t"])


def test_a_topic_that_comes_back_begins_anew() -> None:
    """The topic gets partition queues, keys and batches of its own."""
    rules, queues = with_topic(large(3))
    assert forget(rules, rules.routings["t"])
    again = install(rules, large(3, 2, epoch=4)).queues
    assert not set(again) & set(queues)
    assert [queue.leader for queue in again] == [2, 2, 2]
    put(rules, again[1])
    assert len(sent(rules, 2)) == 1
