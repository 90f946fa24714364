"""Applies the metadata of a topic to its routing, and forgets topics that are not used.

New leaders change the topic routing. Another topic id or number of partitions makes a new one. Another cluster changes the sequence numbers
of all topics.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.core.topic_routing import NO_LEADER, TopicRouting

if TYPE_CHECKING:
    from aioproducer.core.metadata.cluster_metadata import TopicView
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch

__all__ = ["elect", "forget", "install", "leave_cluster"]


def install(partition_queues: PartitionQueues, topic: TopicView) -> TopicRouting:
    """Apply the metadata of a topic and return its topic routing, which may be a new one."""
    before = partition_queues.routings.get(topic.name) or TopicRouting(topic.name, topic.topic_id, partition_queues.availability)
    routing = before
    if before.topic_id == NO_ID:
        before.topic_id = topic.topic_id
    if len(before.queues) != len(topic.partitions) or topic.topic_id not in (before.topic_id, NO_ID):
        routing = _reroute(partition_queues, topic, before)
    for queue, (leader, epoch) in zip(routing.queues, topic.partitions, strict=True):
        partition_queues.lead(queue, leader, epoch)
    routing.elected([queue.partition for queue in routing.queues if queue.leader >= 0])
    routing.used_at = max(routing.used_at, before.used_at)
    if routing is not before:
        before.sticky = None
    partition_queues.routings[topic.name] = routing
    if routing.gone:
        _retire(partition_queues, topic)
    return routing


def _reroute(partition_queues: PartitionQueues, topic: TopicView, before: TopicRouting) -> TopicRouting:
    """Return a new topic routing without the placement of the old one. Partitions of the old one keep their batches."""
    is_anew = topic.topic_id not in (before.topic_id, NO_ID)
    if is_anew:
        # For all partitions at once: a request has one id for a topic.
        before.topic_id = topic.topic_id
    routing = TopicRouting(topic.name, before.topic_id, partition_queues.availability)
    gone = {queue.partition: queue for queue in before.gone}
    routing.queues += before.queues[: len(topic.partitions)]
    for index in range(len(routing.queues), len(topic.partitions)):
        queue = gone.pop(index, None)
        routing.queues.append(queue or PartitionQueue(routing, index, NO_LEADER, partition_queues.full))
    routing.gone = [*before.queues[len(routing.queues) :], *gone.values()] or ()
    for queue in chain(routing.queues, routing.gone):
        queue.routing = routing
        if is_anew:
            partition_queues.lead_anew(queue)
    return routing


def _retire(partition_queues: PartitionQueues, topic: TopicView) -> None:
    """Close the partitions that the topic no longer has. Each is dropped when its last batch has ended.

    Until its deadline, a batch that waits for such a partition is still sent, to a broker that will refuse it. A broker that lags
    may report the old topic once more.
    """
    routing, leaders = partition_queues.routings[topic.name], topic.partitions
    left = []
    for queue in routing.gone:
        partition_queues.close(queue)
        if queue.closed or queue.in_flight:
            partition_queues.lead(queue, *leaders[queue.partition % len(leaders)])
            left.append(queue)
    routing.gone = left or ()


def elect(partition_queues: PartitionQueues, topic: TopicView, partition: int) -> None:
    """Apply the leader of one partition of a topic that has the known id and number of partitions."""
    routing = partition_queues.routings.get(topic.name)
    if routing is not None and partition < len(routing.queues):
        queue, (leader, epoch) = routing.queues[partition], topic.partitions[partition]
        if (queue.leader >= 0) != (leader >= 0):
            routing.elected()
        else:
            routing.moved()
        partition_queues.lead(queue, leader, epoch)


def leave_cluster(partition_queues: PartitionQueues) -> None:
    """Number all batches anew, because they go to another cluster. They wait for a producer id of that cluster."""
    routings = partition_queues.routings.values()
    partition_queues.idempotence.leave_cluster(queue for routing in routings for queue in chain(routing.queues, routing.gone))


def forget(partition_queues: PartitionQueues, routing: TopicRouting) -> bool:
    """Forget a topic that no call uses. Returns whether it is gone: it stays while it has a batch, or state that brokers depend on."""
    idempotence = partition_queues.idempotence
    if routing.gone or not all(_may_be_forgotten(queue, idempotence.granted) for queue in routing.queues):
        return False
    del partition_queues.routings[routing.topic]
    routing.abandon()
    for queue in routing.queues:
        idempotence.forget(queue)
        partition_queues.availability.forget(queue)
    # Apart, they are freed now. The garbage collector would block the event loop for it later.
    routing.queues.clear()
    return True


def _may_be_forgotten(queue: PartitionQueue, granted: ProducerIdAndEpoch | None) -> bool:
    """Return whether a partition has no batch left, and no state that brokers still depend on."""
    if queue.current is not None or queue.closed or queue.in_flight:
        return False
    return queue.numbers is None or queue.numbers.may_be_forgotten(granted)
