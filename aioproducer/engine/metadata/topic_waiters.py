"""The wait queues of topics: a pending send waits until metadata has its topic and its partition.

1. The step that sets the routing of a topic also admits its pending sends. So a later send cannot overtake them.
2. If a topic cannot be produced to, its pending sends fail, unless the error is retriable.
3. A call that would send to a topic, and does not wait for it, requests its metadata. The topic is remembered for a while.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioproducer.core.topic_updates import elect, installing, retiring
from aioproducer.engine.memory.buffer_pool import WaitQueue
from aioproducer.engine.memory.wait_reasons import FOR_PARTITION

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable

    from aioproducer.core.incremental import Steps
    from aioproducer.core.metadata.cluster_metadata import TopicView
    from aioproducer.core.partition_queues import PartitionQueues, TopicRouting
    from aioproducer.engine.memory.buffer_pool import PendingSend
    from aioproducer.engine.observability.metrics_recorder import Recorder
    from aioproducer.errors import KafkaError

__all__ = ["TopicWaiters"]


class TopicWaiters:
    """Holds the wait queues of one producer's topics.

    Args:
        max_block: seconds that a pending send waits at most.
        max_idle: seconds for which a topic is remembered after a call that would send to it and did not wait.
        want: requests the metadata of a topic.
        trouble: returns the error of the latest metadata request; None: it was answered.
        on_known: called with a topic when it gets its first routing.
        admit: admits pending sends, in the order of their calls.
        give_up: fails a pending send with an error.
        turn: schedules a drain, which also serves the pending sends.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        partition_queues: PartitionQueues,
        is_missing: Callable[[PendingSend, TopicRouting], bool],
        *,
        max_block: float,
        max_idle: float,
        want: Callable[[str], None],
        trouble: Callable[[], KafkaError | None],
        on_known: Callable[[str], object],
        admit: Callable[[list[PendingSend]], None],
        give_up: Callable[[PendingSend, Exception], None],
        turn: Callable[[], None],
        meter: Recorder,
    ) -> None:
        self._loop = loop
        self._partition_queues = partition_queues
        self._is_missing = is_missing
        self._max_block = max_block
        self._max_idle = max_idle
        self._want = want
        self._trouble = trouble
        self._on_known = on_known
        self._admit = admit
        self._give_up = give_up
        self._turn = turn
        self._meter = meter
        self._wait_queues: dict[str, WaitQueue] = {}
        # The time of the last call that would send to a topic and did not wait, by topic.
        self._asked: dict[str, float] = {}
        # The brokers' errors for topics that have a wait queue.
        self._troubles: dict[str, KafkaError] = {}

    def lot(self, topic: str) -> WaitQueue:
        """Return the wait queue of a topic, and request its metadata."""
        lot = self._wait_queues.setdefault(topic, WaitQueue())
        self._want(topic)
        return lot

    def ask(self, topic: str) -> None:
        """Request the metadata of a topic for a call that would send to it and does not wait."""
        self._asked[topic] = self._loop.time()
        self._want(topic)

    def trouble(self, topic: str) -> KafkaError | None:
        """Return the error because of which a topic is not known yet; None: there is none."""
        return self._trouble() or self._troubles.get(topic)

    def lots(self) -> Iterable[WaitQueue]:
        """Return all wait queues."""
        return self._wait_queues.values()

    def waited_for(self) -> Iterable[str]:
        """Return the topics that a call waits for, or would have sent to less than `max_idle` ago."""
        return filter(self.is_waited_for, tuple(dict.fromkeys((*self._wait_queues, *self._asked))))

    def is_waited_for(self, topic: str) -> bool:
        """Return whether a topic is one of `waited_for`. Drops its state if it is not."""
        if self._wait_queues.get(topic) or self._loop.time() - self._asked.get(topic, -math.inf) < self._max_idle:
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

    def on_topic(self, topic: TopicView) -> Steps[None]:
        """Apply the metadata of a topic, in steps. Its pending sends are admitted, or fail with the topic's error."""
        name = topic.name
        if topic.error is None and (name in self._wait_queues or name in self._asked or name in self._partition_queues.routings):
            is_new = name not in self._partition_queues.routings
            routing = yield from installing(self._partition_queues, topic)
            if is_new:
                routing.used_at = self._loop.time()
                self._on_known(name)
            lot = self._forget(name)
            self._troubles.pop(name, None)
            self._let_in(routing, lot.take_all() if lot is not None else [])
            self._turn()
            yield from retiring(self._partition_queues, topic)
            self._turn()
        elif (lot := self._forget(name)) is not None:
            self._refuse(topic, lot)

    def on_leader(self, topic: TopicView, partition: int) -> None:
        """Apply the new leader of one partition."""
        elect(self._partition_queues, topic, partition)
        self._turn()

    def _let_in(self, routing: TopicRouting, parked: list[PendingSend]) -> None:
        """Admit the pending sends of a known topic. A record for a partition that the topic does not have waits on."""
        first = next((record for record in parked if record.topic is not None), None)
        if first is not None:
            now = self._loop.time()
            # The first send waited longest: its time contains the times of the others.
            self._meter.record("metadata-wait", now, now + self._max_block - first.deadline)
        known: list[PendingSend] = []
        for record in parked:
            if record.asks:
                record.leave().wake()
            elif self._is_still_early(record, routing):
                self._wait_queues.setdefault(routing.topic, WaitQueue()).push(record)
                record.reason = FOR_PARTITION
            else:
                record.reason = ""
                known.append(record)
        self._admit(known)

    def _is_still_early(self, record: PendingSend, routing: TopicRouting) -> bool:
        """Return whether a pending send waits on for a partition. A flush mark does while a record before it does."""
        return self._is_missing(record, routing) or (record.topic is None and routing.topic in self._wait_queues)

    def _refuse(self, topic: TopicView, lot: WaitQueue) -> None:
        assert topic.error is not None
        if topic.error.retriable:
            self._wait_queues[topic.name] = lot
            self._troubles[topic.name] = topic.error
            return
        for record in lot.take_all():
            self._give_up(record, type(topic.error)(topic.error.error, f"topic {topic.name!r} cannot be produced to"))

    @property
    def waiting(self) -> int:
        """Return the number of records that wait for a topic or a partition."""
        return sum(record.is_record for lot in self._wait_queues.values() for record in lot)

    def clear(self) -> None:
        """Drop all wait queues."""
        self._wait_queues.clear()
