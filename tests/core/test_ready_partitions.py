"""Tests of `aioproducer.core.ready_partitions`."""

from __future__ import annotations

from aioproducer.core.drain_policy import DrainPolicy, Linger
from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.core.ready_partitions import ReadyPartitions
from aioproducer.core.sequence_numbers import Idempotence
from aioproducer.core.topic_routing import NOBODY, TopicRouting


def test_turns_are_taken_in_order_and_by_broker() -> None:
    """A partition that is ready already keeps its position. A second removal of a partition has no effect."""
    routing = TopicRouting("orders", NO_ID)
    queues = [PartitionQueue(routing, partition, leader, None) for partition, leader in enumerate((1, 2, 1, NOBODY))]
    ready = ReadyPartitions(DrainPolicy(Linger.NONE), Idempotence())
    for queue in (*queues, queues[0]):
        ready[queue.leader][queue] = None
    assert ready.queues(1) == (queues[0], queues[2])
    assert set(ready.nodes()) == {1, 2, NOBODY}
    assert ready.topics(NOBODY) == {"orders"}
    ready.remove(queues[1])
    ready.remove(queues[1])
    assert set(ready.nodes()) == {1, NOBODY}
    assert (ready.queues(2), ready.queues(7), ready.topics(7)) == ((), (), set())
    assert not ready.get(2)
