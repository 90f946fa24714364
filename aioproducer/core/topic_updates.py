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


def install(accumulator: PartitionQueues, topic: TopicView) -> TopicRouting:
    """`installing` and `retiring`, at once."""
    route = whole(installing(accumulator, topic))
    whole(retiring(accumulator, topic))
    return route


def installing(accumulator: PartitionQueues, topic: TopicView) -> Steps[TopicRouting]:
    """Take over what is known of a topic.

    A new route takes the old one's place in the last step, whole. `retiring` is to follow; until then nobody else may install the topic.
    """
    before = accumulator.routes.get(topic.name) or TopicRouting(topic.name, topic.topic_id, accumulator.availability)
    route = before
    if before.topic_id == NO_ID:
        before.topic_id = topic.topic_id
    if len(before.cells) != len(topic.partitions) or topic.topic_id not in (before.topic_id, NO_ID):
        route = yield from _rerouting(accumulator, topic, before)
    led: list[int] = []
    for cell, (leader, epoch) in zip(route.cells, topic.partitions, strict=True):
        accumulator.lead(cell, leader, epoch)
        if leader >= 0:
            led.append(cell.partition)
        if not (cell.partition + 1) % STRIDE:
            yield
    route.elected(led)
    route.used_at = max(route.used_at, before.used_at)
    if route is not before:
        before.sticky = None
    accumulator.routes[topic.name] = route
    return route


def _rerouting(accumulator: PartitionQueues, topic: TopicView, before: TopicRouting) -> Steps[TopicRouting]:
    """A route with nothing of the old one's placement; partitions that were there before keep their batches."""
    is_anew = topic.topic_id not in (before.topic_id, NO_ID)
    if is_anew:
        before.topic_id = topic.topic_id  # for all partitions at once: a request has one id for a topic
    route = TopicRouting(topic.name, before.topic_id, accumulator.availability)
    gone = {cell.partition: cell for cell in before.gone}
    for index in range(len(topic.partitions)):
        cell = before.cells[index] if index < len(before.cells) else gone.pop(index, None)
        route.cells.append(cell or PartitionQueue(route, index, NOBODY, accumulator.full))
        if not (index + 1) % STRIDE:
            yield
    route.gone = [*before.cells[len(route.cells) :], *gone.values()] or ()
    for number, cell in enumerate(chain(route.cells, route.gone), 1):
        cell.route = route
        if is_anew:
            accumulator.lead_anew(cell)
        if not number % STRIDE:
            yield
    return route


def retiring(accumulator: PartitionQueues, topic: TopicView) -> Steps[None]:
    """After `installing`: partitions that the topic has no more are let go of when their last batch has ended.

    What waits for one is still tried until its time is over, at a broker that will say so: a broker that is behind may tell of the
    old topic once more.
    """
    route, leaders = accumulator.routes[topic.name], topic.partitions
    gone = route.gone
    if not gone:
        return
    route.gone = left = []
    while gone:
        cell = gone.pop()
        accumulator.close(cell)
        if cell.closed or cell.in_flight:
            accumulator.lead(cell, *leaders[cell.partition % len(leaders)])
            left.append(cell)
        if gone and not len(gone) % STRIDE:
            yield


def elect(accumulator: PartitionQueues, topic: TopicView, partition: int) -> None:
    """`install` for one partition, of a topic that has the id and the partitions that are known."""
    route = accumulator.routes.get(topic.name)
    if route is not None and partition < len(route.cells):
        cell, (leader, epoch) = route.cells[partition], topic.partitions[partition]
        if (cell.leader >= 0) != (leader >= 0):
            route.elected()
        else:
            route.moved()
        accumulator.lead(cell, leader, epoch)


def forgetting(
    accumulator: PartitionQueues, route: TopicRouting, is_in_use: Callable[[str], bool], forget: Iterable[Callable[[str], object]]
) -> Steps[bool]:
    """Forget a topic that nobody uses; whether it is gone: not if a batch of it is there, or comes between two steps.

    Args:
        accumulator: that has its route.
        route: likewise.
        is_in_use: whether somebody waits for a topic, or for an answer about it.
        forget: told of the topic in the step in which it goes. Later steps only take it to pieces: in one piece it would wait for the
            collector, and then hold the loop.
    """
    topic, used_at = route.topic, route.used_at
    for at in range(0, len(route.cells), STRIDE):
        if at:
            yield
        some = route.cells[at : at + STRIDE]
        if not all(map(accumulator.may_be_forgotten, some)):
            return False
        for cell in some:
            accumulator.forget(cell)
    if route.gone or route.used_at != used_at or accumulator.routes.get(topic) is not route or is_in_use(topic):
        return False
    del accumulator.routes[topic]
    for each in forget:
        each(topic)
    yield
    route.abandon()
    while route.cells:
        for cell in route.cells[-STRIDE:]:
            accumulator.availability.forget(cell)
        del route.cells[-STRIDE:]
        yield
    return True
