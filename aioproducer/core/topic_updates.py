"""Applies the metadata of a topic to its routing, and forgets topics that are not used.

New leaders change the topic routing. Another topic id or number of partitions makes a new one. A large topic is applied and forgotten in
steps, by generators: sends can append records between any two of them. Another cluster changes the sequence numbers of all topics.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from aioproducer.core.metadata.cluster_metadata import NO_ID, STRIDE
from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.core.topic_routing import NO_LEADER, TopicRouting

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioproducer.core.metadata.cluster_metadata import TopicView
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch


def installing(
    partition_queues: PartitionQueues, topic: TopicView
) -> Generator[None, None, TopicRouting]:
    """Apply the metadata of a topic and return its topic routing.

    A new topic routing replaces the old one in the last step, as a whole. `retiring` must follow. Until then no other caller may
    install the topic.
    """
    before = partition_queues.routings.get(topic.name) or TopicRouting(
        topic.name, topic.topic_id, partition_queues.availability
    )
    routing = before
    if before.topic_id == NO_ID:
        before.topic_id = topic.topic_id
    if len(before.queues) != len(topic.partitions) or topic.topic_id not in (
        before.topic_id,
        NO_ID,
    ):
        routing = yield from _rerouting(partition_queues, topic, before)
    led: list[int] = []
    for queue, (leader, epoch) in zip(routing.queues, topic.partitions, strict=True):
        partition_queues.lead(queue, leader, epoch)
        if leader >= 0:
            led.append(queue.partition)
        if not (queue.partition + 1) % STRIDE:
            yield
    routing.elected(led)
    routing.used_at = max(routing.used_at, before.used_at)
    if routing is not before:
        before.sticky = None
    partition_queues.routings[topic.name] = routing
    return routing


def _rerouting(
    partition_queues: PartitionQueues, topic: TopicView, before: TopicRouting
) -> Generator[None, None, TopicRouting]:
    """Return a new topic routing without the placement of the old one. Partitions of the old one keep their batches."""
    is_anew = topic.topic_id not in (before.topic_id, NO_ID)
    routing = TopicRouting(topic.name, before.topic_id, partition_queues.availability)
    gone = {queue.partition: queue for queue in before.gone}
    routing.queues += before.queues[: len(topic.partitions)]
    for index in range(len(routing.queues), len(topic.partitions)):
        queue = gone.pop(index, None)
        routing.queues.append(
            queue or PartitionQueue(routing, index, NO_LEADER, partition_queues.full)
        )
        if not (index + 1) % STRIDE:
            yield
    routing.gone = [*before.queues[len(routing.queues) :], *gone.values()] or ()
    for number, queue in enumerate(chain(routing.queues, routing.gone), 1):
        queue.routing = routing
        if is_anew:
            partition_queues.lead_anew(queue)
        if not number % STRIDE:
            yield
    if is_anew:
        # For all partitions at once: a request has one id for a topic.
        routing.topic_id = topic.topic_id
        # What is in flight names the old topic, and will be refused. The new log would accept a later batch before it.
        for batch in partition_queues.incomplete:
            batch.queue.one_at_a_time |= (
                batch.queue.routing is routing and batch.queue.in_flight > 0
            )
    return routing


def retiring(partition_queues: PartitionQueues, topic: TopicView) -> Generator[None, None, None]:
    """Close the partitions that the topic no longer has, after `installing`. Each is dropped when its last batch has ended.

    A batch that waits for such a partition is still sent, to a broker that will refuse it: then it fails (`retries.over`).
    """
    routing, leaders = partition_queues.routings[topic.name], topic.partitions
    gone = routing.gone
    if not gone:
        return
    routing.gone = left = []
    while gone:
        queue = gone.pop()
        partition_queues.close(queue)
        if queue.closed or queue.in_flight:
            partition_queues.lead(queue, *leaders[queue.partition % len(leaders)])
            left.append(queue)
        if gone and not len(gone) % STRIDE:
            yield


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
    partition_queues.idempotence.leave_cluster(
        queue for routing in routings for queue in chain(routing.queues, routing.gone)
    )


def forgetting(
    partition_queues: PartitionQueues,
    routing: TopicRouting,
    is_in_use: Callable[[str], bool],
    forget: Callable[[str], object],
) -> Generator[None, None, bool]:
    """Forget a topic that is not used. Returns whether it is gone.

    It stays if it has a batch, or state that brokers depend on, or gets a batch between two steps.

    Args:
        partition_queues: the partition queues that have its topic routing.
        routing: the topic routing to forget.
        is_in_use: whether a send waits for a topic, or for an answer about it.
        forget: called with the topic in the step that removes it. Later steps only take the topic routing apart. In one piece it
            would wait for the garbage collector, which would then block the event loop.
    """
    topic, used_at = routing.topic, routing.used_at
    idempotence = partition_queues.idempotence
    for at in range(0, len(routing.queues), STRIDE):
        if at:
            yield
        some = routing.queues[at : at + STRIDE]
        if not all(_may_be_forgotten(queue, idempotence.granted) for queue in some):
            return False
        for queue in some:
            idempotence.forget(queue)
    if (
        routing.gone
        or routing.used_at != used_at
        or partition_queues.routings.get(topic) is not routing
        or is_in_use(topic)
    ):
        return False
    del partition_queues.routings[topic]
    forget(topic)
    routing.abandon()
    while routing.queues:
        yield
        for queue in routing.queues[-STRIDE:]:
            partition_queues.availability.forget(queue)
        del routing.queues[-STRIDE:]
    return True


def _may_be_forgotten(queue: PartitionQueue, granted: ProducerIdAndEpoch | None) -> bool:
    """Return whether a partition has no batch left, and no state that brokers still depend on."""
    if queue.current is not None or queue.closed or queue.in_flight:
        return False
    return queue.numbers is None or queue.numbers.may_be_forgotten(granted)
