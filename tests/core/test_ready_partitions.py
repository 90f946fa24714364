"""Tests of `aioproducer.core.ready_partitions`."""

from __future__ import annotations

from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.ready_partitions import ReadyPartitions
from aioproducer.core.topic_routing import NOBODY, PartitionQueue, TopicRouting


def test_turns_are_taken_in_order_and_by_broker() -> None:
    """Who stands there already keeps its turn; who leaves twice leaves once."""
    route = TopicRouting("orders", NO_ID)
    cells = [PartitionQueue(route, partition, leader, None) for partition, leader in enumerate((1, 2, 1, NOBODY))]
    ready = ReadyPartitions()
    for cell in (*cells, cells[0]):
        ready[cell.leader][cell] = None
    assert ready.cells(1) == (cells[0], cells[2])
    assert set(ready.nodes()) == {1, 2, NOBODY}
    assert ready.topics(NOBODY) == {"orders"}
    ready.remove(cells[1])
    ready.remove(cells[1])
    assert set(ready.nodes()) == {1, NOBODY}
    assert (ready.cells(2), ready.cells(7), ready.topics(7)) == ((), (), set())
    assert not ready.get(2)
