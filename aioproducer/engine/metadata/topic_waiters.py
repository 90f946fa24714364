"""Those who wait for a topic: a lot for each, until metadata names it, and the partition that a record asks for.

1. In the step in which a topic has its route, those who waited for it go on: who comes next must not go ahead of them.
2. A topic that cannot be produced to is told to those who wait for it, unless that may pass.
3. Somebody who would send to a topic, and does not wait for it, has it asked for, and remembered for a while.

Knows nothing of memory, or of the line that they go on to.
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
    from aioproducer.engine.observability.metrics_recorder import Meter
    from aioproducer.errors import KafkaError

__all__ = ["TopicWaiters"]


class TopicWaiters:
    """The topics of one producer that are waited for.

    Args:
        max_block: seconds that anybody waits.
        max_idle: seconds for which a topic is remembered that somebody would send to, and does not wait for.
        want: asks for a topic's metadata.
        trouble: why nobody answers such questions now, if so.
        on_known: told of a topic when it has a route that had none.
        admit: takes those who waited, in the order of their calls.
        give_up: tells one that it waited in vain, and why.
        turn: sees to a loop turn that drains and serves who waits.
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
        meter: Meter,
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
        self._asked: dict[str, float] = {}  # topics that somebody would send to, and does not wait for: when
        self._troubles: dict[str, KafkaError] = {}  # what brokers say of those that are waited for

    def lot(self, topic: str) -> WaitQueue:
        """Where to wait for a topic, which is asked for."""
        lot = self._wait_queues.setdefault(topic, WaitQueue())
        self._want(topic)
        return lot

    def ask(self, topic: str) -> None:
        """Somebody would send to it, and does not wait."""
        self._asked[topic] = self._loop.time()
        self._want(topic)

    def trouble(self, topic: str) -> KafkaError | None:
        """Why it is not known yet, if somebody said so."""
        return self._trouble() or self._troubles.get(topic)

    def lots(self) -> Iterable[WaitQueue]:
        """All of them."""
        return self._wait_queues.values()

    def waited_for(self) -> Iterable[str]:
        """Topics that somebody waits for, or would send to."""
        return filter(self.is_waited_for, tuple(dict.fromkeys((*self._wait_queues, *self._asked))))

    def is_waited_for(self, topic: str) -> bool:
        """Whether a topic is one of those."""
        if self._wait_queues.get(topic) or self._loop.time() - self._asked.get(topic, -math.inf) < self._max_idle:
            return True
        self._forget(topic)
        self._troubles.pop(topic, None)
        return False

    def _forget(self, topic: str) -> WaitQueue | None:
        """Nobody waits for it any more; those who did."""
        self._asked.pop(topic, None)
        return self._wait_queues.pop(topic, None)

    def on_topic(self, topic: TopicView) -> Steps[None]:
        """The cluster told of a topic: those who wait for it go on, or learn why they cannot."""
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
        elif (lot := self._forget(name)) is not None:
            self._refuse(topic, lot)

    def on_leader(self, topic: TopicView, partition: int) -> None:
        """A partition has another leader."""
        elect(self._partition_queues, topic, partition)
        self._turn()

    def _let_in(self, routing: TopicRouting, parked: list[PendingSend]) -> None:
        """A topic is known: those who waited for it go on, but for those whose partition it does not have."""
        first = next((record for record in parked if record.topic is not None), None)
        if first is not None:
            now = self._loop.time()
            self._meter.topic_came(now, now + self._max_block - first.deadline)
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
        """Whether it waits on for a partition; a mark does while a record before it does."""
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
        """Records that wait for a topic or a partition."""
        return sum(record.is_record for lot in self._wait_queues.values() for record in lot)

    def clear(self) -> None:
        """Nobody waits any more."""
        self._wait_queues.clear()
