"""The wait queues of topics: a pending send waits until metadata has its topic and its partition.

1. The step that sets the routing of a topic also moves its pending sends to the end of the pool's wait queue. So a later send cannot
   overtake them.
2. If a topic cannot be produced to, its pending sends fail, unless the error is retriable.
3. A record whose serializers are not prepared waits here, too, and each later record of its topic waits behind it (`held`).
4. A call that would send to a topic, and does not wait for it, requests its metadata. The topic is remembered for a while.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from aioproducer.core.topic_updates import elect, installing, leave_cluster, retiring
from aioproducer.engine.memory.pending_send import (
    FOR_OTHERS,
    FOR_PARTITION,
    FOR_SERIALIZER,
    first,
    sort_by_call,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from aioproducer.core.metadata.cluster_metadata import TopicView
    from aioproducer.core.metadata.metadata_schedule import MetadataSchedule, TopicExpiry
    from aioproducer.core.partition_queues import PartitionQueues, TopicRouting
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.append.loop_budget import DrainSchedule
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.memory.pending_send import PendingSend
    from aioproducer.errors import KafkaError
    from aioproducer.serializers import Encoding


class TopicWaiters:
    """Holds the wait queues of one producer's topics.

    Args:
        metadata: is asked for the metadata of topics.
        expiry: learns of each topic that gets its first routing.
        drains: schedules a drain, which also serves the pending sends.
        admission: takes the pending sends that no longer wait for their topic.

    Attributes:
        held: the topics of which a record waits for a serializer: a new record waits behind it.
    """

    def __init__(
        self,
        context: EngineContext,
        partition_queues: PartitionQueues,
        metadata: MetadataSchedule,
        expiry: TopicExpiry,
        drains: DrainSchedule,
        admission: Admission,
    ) -> None:
        config = context.config
        self._loop = context.loop
        self._partition_queues = partition_queues
        self._metadata = metadata
        self._expiry = expiry
        self._recorder = context.instruments.recorder
        self._admission = admission
        self._drains = drains
        # Seconds that a pending send waits at most.
        self._max_block = config.max_block_ms / 1000
        # Seconds for which a topic is remembered after a call that would send to it and did not wait.
        self._max_idle = config.metadata_max_idle_ms / 1000
        self.held: set[str] = set()
        self._queues: dict[str, deque[PendingSend]] = {}
        # The time of the last call that would send to a topic and did not wait, by topic.
        self._asked: dict[str, float] = {}
        # The brokers' errors for topics that have a wait queue.
        self._troubles: dict[str, KafkaError] = {}

    def join(self, pending: PendingSend) -> None:
        """Let a send wait for the metadata of its topic, which is requested."""
        self._queue(pending.topic).append(pending)
        self._metadata.want(pending.topic)

    def join_again(self, topic: str, again: list[PendingSend]) -> None:
        """Let sends wait for a topic that was forgotten. Their calls were before those of others there."""
        queue = self._queue(topic)
        queue.extend(again)
        sort_by_call(queue)
        self._metadata.want(topic)

    def hold(self, pending: PendingSend) -> None:
        """Let a send to a known topic wait: it, or a record before it, waits for a serializer."""
        if not pending.asks:
            self.held.add(pending.topic)
        self._queue(pending.topic).append(pending)

    def _queue(self, topic: str) -> deque[PendingSend]:
        queue = self._queues.setdefault(topic, deque())
        # Removes those that have left.
        first(queue)
        return queue

    def is_waiting_for(self, encoding: Encoding) -> bool:
        """Return whether a pending send waits for the serializers of an encoding."""
        return any(_is_of(pending, encoding) for pending in self._waiting(encoding.topic))

    def on_prepared(self, encoding: Encoding, error: Exception | None) -> None:
        """Admit the pending sends whose serializers are prepared now; or give them up with `error`, because they cannot be prepared."""
        if error is not None:
            for pending in self._waiting(encoding.topic):
                if _is_of(pending, encoding):
                    self._admission.give_up(pending, error)
        self.release(encoding.topic)

    def release(self, topic: str) -> None:
        """Admit the pending sends of a known topic, up to the first one that waits for a serializer."""
        routing = self._partition_queues.routings.get(topic)
        self.held.discard(topic)
        if routing is not None:
            self._admit_known(routing, grows=False)
            self._drains.turn()

    def release_all(self) -> None:
        """Admit the records that waited behind those that have left."""
        for topic in tuple(self.held):
            self.release(topic)

    def on_left(self, pending: PendingSend) -> None:
        """Admit the records that waited behind a send that has left, if no other one holds them."""
        if pending.topic in self.held:
            head = first(self._queues.get(pending.topic, deque()))
            if head is None or head.asks or not head.waits_for_serializer:
                self.release(pending.topic)

    def ask(self, topic: str) -> None:
        """Request the metadata of a topic for a call that would send to it and does not wait."""
        self._asked[topic] = self._loop.time()
        self._metadata.want(topic)

    def trouble(self, topic: str) -> KafkaError | None:
        """Return the error because of which a topic is not known yet; None: there is none."""
        return self._metadata.trouble or self._troubles.get(topic)

    def known(self, topic: str) -> TopicRouting | None:
        """Return the routing of a topic, which is used now; None: metadata does not have it."""
        routing = self._partition_queues.routings.get(topic)
        if routing is not None:
            routing.used_at = self._loop.time()
        return routing

    def queues(self) -> Iterable[deque[PendingSend]]:
        """Return all wait queues. Some sends in them may have left."""
        return self._queues.values()

    def _waiting(self, topic: str) -> list[PendingSend]:
        return [pending for pending in self._queues.get(topic, ()) if pending.is_waiting]

    def waited_for(self) -> Iterable[str]:
        """Return the topics that a call waits for, or would have sent to less than `max_idle` ago."""
        return filter(self.is_waited_for, tuple(dict.fromkeys((*self._queues, *self._asked))))

    def is_waited_for(self, topic: str) -> bool:
        """Return whether a topic is one of `waited_for`. Drops its state if it is not."""
        queue = self._queues.get(topic)
        if (queue is not None and first(queue) is not None) or (
            self._loop.time() - self._asked.get(topic, -math.inf) < self._max_idle
        ):
            return True
        self._forget(topic)
        return False

    def _forget(self, topic: str) -> None:
        self._queues.pop(topic, None)
        self._asked.pop(topic, None)
        self._troubles.pop(topic, None)

    def topics(self) -> Iterable[str]:
        """Return the topics that are produced to or waited for."""
        return (*self._partition_queues.routings, *self.waited_for())

    def is_needed(self, topic: str) -> bool:
        """Return whether a topic is produced to or waited for."""
        return topic in self._partition_queues.routings or self.is_waited_for(topic)

    def on_topic(self, topic: TopicView) -> Generator[None, None, None]:
        """Apply the metadata of a topic, in steps. Its pending sends are admitted, or fail with the topic's error."""
        name = topic.name
        if topic.error is None and (
            name in self._queues or name in self._asked or name in self._partition_queues.routings
        ):
            is_new = name not in self._partition_queues.routings
            routing = yield from installing(self._partition_queues, topic)
            if is_new:
                routing.used_at = self._loop.time()
                self._expiry.watch(name, routing.used_at)
            self._asked.pop(name, None)
            self._troubles.pop(name, None)
            # Mostly no send waits for the topic.
            if name in self._queues:
                self._note_wait(name)
                self._admit_known(routing, grows=not is_new)
            self._drains.turn()
            yield from retiring(self._partition_queues, topic)
        elif topic.error is not None:
            self._asked.pop(name, None)
            if name in self._queues:
                self._refuse(topic)

    def on_leader(self, topic: TopicView, partition: int) -> None:
        """Apply the new leader of one partition."""
        elect(self._partition_queues, topic, partition)
        self._drains.turn()

    def leave_cluster(self) -> None:
        """Number all batches anew: the producer goes on in another cluster."""
        leave_cluster(self._partition_queues)

    def _note_wait(self, topic: str) -> None:
        """Record how long the pending sends of a topic have waited for its metadata: the first one waited longest."""
        head = first(self._queues[topic])
        if head is not None:
            now = self._loop.time()
            self._recorder.record("metadata-wait", now, now + self._max_block - head.deadline)

    def _admit_known(self, routing: TopicRouting, *, grows: bool) -> None:
        """Admit the pending sends of a known topic. `grows`: it was known before, and has more partitions now.

        A record waits on for a partition that the topic does not have, and for a serializer. Each later one waits behind the latter.
        """
        known: list[PendingSend] = []
        waits_on: deque[PendingSend] = deque()
        is_held = False
        for pending in self._waiting(routing.topic):
            is_held = is_held or (pending.waits_for_serializer and not pending.asks)
            if pending.asks and not pending.waits_for_serializer:
                pending.go_on()
            elif is_held or pending.asks:
                waits_on.append(pending)
                pending.reason = FOR_SERIALIZER
            elif pending.is_missing(routing):
                waits_on.append(pending)
                pending.reason = FOR_PARTITION
            else:
                pending.reason = FOR_OTHERS
                known.append(pending)
        self._queues.pop(routing.topic, None)
        if waits_on:
            self._queues[routing.topic] = waits_on
        self.held.discard(routing.topic)
        if is_held:
            self.held.add(routing.topic)
        self._admission.admit(known, grows=grows)

    def _refuse(self, topic: TopicView) -> None:
        error = topic.error
        assert error is not None
        if error.retriable:
            self._troubles[topic.name] = error
            return
        for pending in self._waiting(topic.name):
            text = f"topic {topic.name!r} cannot be produced to"
            self._admission.give_up(pending, type(error)(error.error, text))
        self._forget(topic.name)

    @property
    def waiting(self) -> int:
        """Return the number of records that wait for a topic or a partition."""
        return sum(
            pending.is_waiting and not pending.asks
            for queue in self._queues.values()
            for pending in queue
        )

    def clear(self) -> None:
        """Drop all wait queues."""
        self._queues.clear()
        self.held.clear()


def _is_of(pending: PendingSend, encoding: Encoding) -> bool:
    """Return whether a pending send is to be encoded by an encoding."""
    return pending.unencoded is not None and pending.unencoded.encoding is encoding
