"""Tests of what a circuit breaker reads of the producer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aioproducer.core.partition_queues import PartitionQueues
from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.core.topic_routing import TopicRouting
from aioproducer.engine.circuit_breaker.circuit_break_manager import (
    Status,
    _ByBroker,
    _ByPartition,
    name_of,
)
from aioproducer.model import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Cluster:
    """Two brokers, of which the second throttles."""

    def __init__(self) -> None:
        self.nodes = tuple(
            SimpleNamespace(
                broker=SimpleNamespace(node_id=number),
                produce=SimpleNamespace(in_flight=number + 2),
                is_muted=number == 2,
            )
            for number in (1, 2)
        )

    def node(self, node_id: int) -> Any:
        return next((node for node in self.nodes if node.broker.node_id == node_id), None)


def made() -> tuple[Status, list[PartitionQueue]]:
    partition_queues = PartitionQueues(None, linger=0.0, lifetime=1.0, on_close=lambda _batch: None)
    routing = partition_queues.routings["orders"] = TopicRouting(
        "orders", b"", partition_queues.availability
    )
    routing.queues += [PartitionQueue(routing, number, 1, None) for number in range(2)]
    cluster: Any = Cluster()
    status = Status(
        7.0,
        FIRST,
        1,
        3,
        _ByBroker(cluster, "produce.in_flight", 0),
        _ByPartition(partition_queues, "in_flight"),
        _ByPartition(partition_queues, "bytes"),
        _ByBroker(cluster, "is_muted", False),
    )
    return status, routing.queues


def test_what_is_looked_up_is_how_it_stands_then() -> None:
    """The context's mappings read the present state at each look-up: of brokers by id, of partitions by name.

    Iteration covers all of them.
    """
    status, queues = made()
    queues[1].in_flight, queues[1].bytes = 4, 500
    assert dict(status.in_flight_requests) == {1: 3, 2: 4}
    assert dict(status.throttled) == {1: False, 2: True}
    assert dict(status.in_flight_batches) == {FIRST: 0, SECOND: 4}
    assert dict(status.queued_bytes) == {FIRST: 0, SECOND: 500}
    assert len(status.queued_bytes) == len(status.throttled) == 2
    queues[0].bytes = 9
    assert status.queued_bytes[FIRST] == 9
    assert (status.now, status.partition, status.node_id, status.records) == (7.0, FIRST, 1, 3)


def test_what_is_not_known_has_nothing() -> None:
    """A partition without a leader, a broker that is gone, a topic that was forgotten."""
    status, queues = made()
    assert status.in_flight_requests[-1] == 0
    assert status.throttled[77] is False
    for unknown in (
        TopicPartition("orders", 2),
        TopicPartition("orders", -1),
        TopicPartition("nothing", 0),
    ):
        assert status.queued_bytes[unknown] == status.in_flight_batches[unknown] == 0
    assert name_of(queues[1]) == SECOND
