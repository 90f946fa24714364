"""The wait queues of topics: a pending send waits until metadata has its topic and its partition.

1. The step that sets the routing of a topic also admits its pending sends. So a later send cannot overtake them.
2. If a topic cannot be produced to, its pending sends fail, unless the error is retriable.
3. A record whose serializers are not prepared waits here, too, and each later record of its topic waits behind it (`held`).
4. A call that would send to a topic, and does not wait for it, requests its metadata. The topic is remembered for a while.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioproducer.core.topic_updates import elect, installing, leave_cluster, retiring
from aioproducer.engine.memory.wait_queue import (
    FOR_OTHERS,
    FOR_PARTITION,
    FOR_SERIALIZER,
    WaitQueue,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from aioproducer.core.metadata.cluster_metadata import TopicView
    from aioproducer.core.metadata.metadata_schedule import MetadataSchedule, TopicExpiry
    from aioproducer.core.partition_queues import PartitionQueues, TopicRouting
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.append.loop_budget import DrainSchedule
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.memory.wait_queue import PendingSend
    from aioproducer.errors import KafkaError
    from aioproducer.serializers import Encoding


class TopicWaiters:
    """Holds the wait queues of one producer's topics.

    Args:
        metadata: is asked for the metadata of topics.
        expiry: learns of each topic that gets its first routing.
        drains: schedules a drain, which also serves the pending sends.
        admission: admits pending sends, in the order of their calls.

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
        self._wait_queues: dict[str, WaitQueue] = {}
        # The time of the last call that would send to a topic and did not wait, by topic.
        self._asked: dict[str, float] = {}
        # The brokers' errors for topics that have a wait queue.
        self._troubles: dict[str, KafkaError] = {}

    def of(self, topic: str) -> WaitQueue:
        """Return the wait queue of a topic, and request its metadata."""
        queue = self._wait_queues.setdefault(topic, WaitQueue())
        self._metadata.want(topic)
        return queue

    def hold(self, pending: PendingSend) -> WaitQueue:
        """Return the wait queue of a record of a known topic: it, or a record before it, waits for a serializer."""
        assert pending.topic is not None
        if not pending.asks:
            self.held.add(pending.topic)
        return self._wait_queues.setdefault(pending.topic, WaitQueue())

    def is_waiting_for(self, encoding: Encoding) -> bool:
        """Return whether a pending send waits for the serializers of an encoding."""
        return any(
            _is_of(pending, encoding) for pending in self._wait_queues.get(encoding.topic, ())
        )

    def on_prepared(self, encoding: Encoding, error: Exception | None) -> None:
        """Admit the pending sends whose serializers are prepared now; or give them up with `error`, because they cannot be prepared."""
        if error is not None and (queue := self._wait_queues.get(encoding.topic)) is not None:
            for pending in queue.take_all():
                if _is_of(pending, encoding):
                    self._admission.pending.give_up(pending, error)
                else:
                    queue.push(pending)
        self.release(encoding.topic)

    def release(self, topic: str) -> None:
        """Admit the pending sends of a topic, up to the first one that waits for a serializer."""
        routing = self._partition_queues.routings.get(topic)
        self.held.discard(topic)
        if routing is not None:
            queue = self._wait_queues.pop(topic, None)
            self._admit_known(routing, queue.take_all() if queue is not None else [])
            self._drains.turn()

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

    def queues(self) -> Iterable[WaitQueue]:
        """Return all wait queues."""
        return self._wait_queues.values()

    def waited_for(self) -> Iterable[str]:
        """Return the topics that a call waits for, or would have sent to less than `max_idle` ago."""
        return filter(self.is_waited_for, tuple(dict.fromkeys((*self._wait_queues, *self._asked))))

    def is_waited_for(self, topic: str) -> bool:
        """Return whether a topic is one of `waited_for`. Drops its state if it is not."""
        if (
            self._wait_queues.get(topic)
            or self._loop.time() - self._asked.get(topic, -math.inf) < self._max_idle
        ):
            return True
        self._forget(topic)
        self._troubles.pop(topic, None)
        return False

    def _forget(self, topic: str) -> WaitQueue | None:
        """Remove a topic, and return its wait queue."""
        self._asked.pop(topic, None)
        return self._wait_queues.pop(topic, None)

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
            name in self._wait_queues
            or name in self._asked
            or name in self._partition_queues.routings
        ):
            is_new = name not in self._partition_queues.routings
            routing = yield from installing(self._partition_queues, topic)
            if is_new:
                routing.used_at = self._loop.time()
                self._expiry.watch(name, routing.used_at)
            queue = self._forget(name)
            self._troubles.pop(name, None)
            # Mostly no send waits for the topic. One that was held and cancelled leaves no queue.
            if queue is not None or name in self.held:
                waiting = queue.take_all() if queue is not None else []
                self._note_wait(waiting)
                self._admit_known(routing, waiting)
            self._drains.turn()
            yield from retiring(self._partition_queues, topic)
        elif (queue := self._forget(name)) is not None:
            self._refuse(topic, queue)

    def on_leader(self, topic: TopicView, partition: int) -> None:
        """Apply the new leader of one partition."""
        elect(self._partition_queues, topic, partition)
        self._drains.turn()

    def leave_cluster(self) -> None:
        """Number all batches anew: the producer goes on in another cluster."""
        leave_cluster(self._partition_queues)

    def _note_wait(self, waiting: list[PendingSend]) -> None:
        """Record how long the pending sends of a topic have waited for its metadata."""
        first = next((record for record in waiting if record.topic is not None), None)
        if first is not None:
            now = self._loop.time()
            # The first send waited longest: its time contains the times of the others.
            self._recorder.record("metadata-wait", now, now + self._max_block - first.deadline)

    def _admit_known(self, routing: TopicRouting, waiting: list[PendingSend]) -> None:
        """Admit the pending sends of a known topic.

        A record waits on for a partition that the topic does not have, and for a serializer. Each later one waits behind the latter.
        """
        known: list[PendingSend] = []
        is_held = False
        self.held.discard(routing.topic)
        for record in waiting:
            is_held = is_held or (record.waits_for_serializer and not record.asks)
            if record.asks and not record.waits_for_serializer:
                record.complete()
                record.notify()
            elif is_held or record.asks:
                self._wait_queues.setdefault(routing.topic, WaitQueue()).push(record)
                record.reason = FOR_SERIALIZER
            elif self._is_still_early(record, routing):
                self._wait_queues.setdefault(routing.topic, WaitQueue()).push(record)
                record.reason = FOR_PARTITION
            else:
                record.reason = FOR_OTHERS
                known.append(record)
        if is_held:
            self.held.add(routing.topic)
        self._admission.admit(known)

    def _is_still_early(self, record: PendingSend, routing: TopicRouting) -> bool:
        """Return whether a pending send waits on for a partition. A flush mark does while a record before it does."""
        return record.is_missing(routing) or (
            record.topic is None and routing.topic in self._wait_queues
        )

    def _refuse(self, topic: TopicView, queue: WaitQueue) -> None:
        assert topic.error is not None
        if topic.error.retriable:
            self._wait_queues[topic.name] = queue
            self._troubles[topic.name] = topic.error
            return
        for record in queue.take_all():
            self._admission.pending.give_up(
                record,
                type(topic.error)(topic.error.error, f"topic {topic.name!r} cannot be produced to"),
            )

    @property
    def waiting(self) -> int:
        """Return the number of records that wait for a topic or a partition."""
        return sum(record.is_record for queue in self._wait_queues.values() for record in queue)

    def clear(self) -> None:
        """Drop all wait queues."""
        self._wait_queues.clear()
        self.held.clear()


def _is_of(pending: PendingSend, encoding: Encoding) -> bool:
    """Return whether a pending send is to be encoded by an encoding."""
    return pending.unencoded is not None and pending.unencoded.encoding is encoding
