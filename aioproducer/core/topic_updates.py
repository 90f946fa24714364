"""What is known of a topic becomes its route: new leaders change it, another id or number of partitions makes a new one; unused, it goes.

A large topic is taken over in steps, and records flow between any two of them. Knows nothing of how metadata came, or when batches go.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from aioproducer.core.incremental import STRIDE, whole
from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.topic_routing import NOBODY, PartitionQueue, TopicRouting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.core.incremental import Steps
    from aioproducer.core.metadata.cluster_metadata import TopicView
    from aioproducer.core.partition_queues import PartitionQueues

__all__ = ["elect", "forgetting", "install", "installing", "retiring"]


def install(partition_queues: PartitionQueues, topic: TopicView) -> TopicRouting:
    """`installing` and `retiring`, at once."""
    routing = whole(installing(partition_queues, topic))
    whole(retiring(partition_queues, topic))
    return routing


def installing(partition_queues: PartitionQueues, topic: TopicView) -> Steps[TopicRouting]:
    """Take over what is known of a topic.

    A new route takes the old one's place in the last step, whole. `retiring` is to follow; until then nobody else may install the topic.
    """
    before = partition_queues.routings.get(topic.name) or TopicRouting(topic.name, topic.topic_id, partition_queues.availability)
    routing = before
    if before.topic_id == NO_ID:
        before.topic_id = topic.topic_id
    if len(before.queues) != len(topic.partitions) or topic.topic_id not in (before.topic_id, NO_ID):
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


def _rerouting(partition_queues: PartitionQueues, topic: TopicView, before: TopicRouting) -> Steps[TopicRouting]:
    """A route with nothing of the old one's placement; partitions that were there before keep their batches."""
    is_anew = topic.topic_id not in (before.topic_id, NO_ID)
    if is_anew:
        before.topic_id = topic.topic_id  # for all partitions at once: a request has one id for a topic
    routing = TopicRouting(topic.name, before.topic_id, partition_queues.availability)
    gone = {queue.partition: queue for queue in before.gone}
    for index in range(len(topic.partitions)):
        queue = before.queues[index] if index < len(before.queues) else gone.pop(index, None)
        routing.queues.append(queue or PartitionQueue(routing, index, NOBODY, partition_queues.full))
        if not (index + 1) % STRIDE:
            yield
    routing.gone = [*before.queues[len(routing.queues) :], *gone.values()] or ()
    for number, queue in enumerate(chain(routing.queues, routing.gone), 1):
        queue.routing = routing
        if is_anew:
            partition_queues.lead_anew(queue)
        if not number % STRIDE:
            yield
    return routing


def retiring(partition_queues: PartitionQueues, topic: TopicView) -> Steps[None]:
    """After `installing`: partitions that the topic has no more are let go of when their last batch has ended.

    What waits for one is still tried until its time is over, at a broker that will say so: a broker that is behind may tell of the
    old topic once more.
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
    """`install` for one partition, of a topic that has the id and the partitions that are known."""
    routing = partition_queues.routings.get(topic.name)
    if routing is not None and partition < len(routing.queues):
        queue, (leader, epoch) = routing.queues[partition], topic.partitions[partition]
        if (queue.leader >= 0) != (leader >= 0):
            routing.elected()
        else:
            routing.moved()
        partition_queues.lead(queue, leader, epoch)


def forgetting(
    partition_queues: PartitionQueues, routing: TopicRouting, is_in_use: Callable[[str], bool], forget: Iterable[Callable[[str], object]]
) -> Steps[bool]:
    """Forget a topic that nobody uses; whether it is gone: not if a batch of it is there, or comes between two steps.

    Args:
        partition_queues: that has its route.
        routing: likewise.
        is_in_use: whether somebody waits for a topic, or for an answer about it.
        forget: told of the topic in the step in which it goes. Later steps only take it to pieces: in one piece it would wait for the
            collector, and then hold the loop.
    """
    topic, used_at = routing.topic, routing.used_at
    for at in range(0, len(routing.queues), STRIDE):
        if at:
            yield
        some = routing.queues[at : at + STRIDE]
        if not all(map(partition_queues.may_be_forgotten, some)):
            return False
        for queue in some:
            partition_queues.forget(queue)
    if routing.gone or routing.used_at != used_at or partition_queues.routings.get(topic) is not routing or is_in_use(topic):
        return False
    del partition_queues.routings[topic]
    for each in forget:
        each(topic)
    yield
    routing.abandon()
    while routing.queues:
        for queue in routing.queues[-STRIDE:]:
            partition_queues.availability.forget(queue)
        del routing.queues[-STRIDE:]
        yield
    return True
