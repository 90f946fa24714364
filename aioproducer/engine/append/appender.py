"""Where a record goes, and into which batch: its partition, the room that the batch there has.

1. What finds no room waits. Where a batch is full, and takes more before it is sent (`room`), so it does with keys; without a key it is
   another partition's turn first.
2. With a circuit breaker a partition that is full (`shares`) gets no more: its records alone wait for it (`PendingSend.behind`). Those for a
   muted one go where the user's policy says.

Knows nothing of who waits, or of where records come from: no memory is an answer here (None, False), and nothing is waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.core import partitioner
from aioproducer.engine.append.batch_sizing import MOST_OVERHEAD
from aioproducer.engine.append.column_batches import ColumnBatches
from aioproducer.engine.delivery.chosen_build import Delivery, make_delivery
from aioproducer.engine.memory import wait_reasons
from aioproducer.engine.memory.buffer_pool import BATCH_OVERHEAD, NO_HEADERS

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Collection, Sequence

    from aioproducer.config import ProducerConfig
    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues, TopicRouting
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.append.batch_sizing import BatchSizing
    from aioproducer.engine.append.chosen_build import FastPath
    from aioproducer.engine.append.column_batches import ColumnWindow
    from aioproducer.engine.append.loop_budget import LoopBudget
    from aioproducer.engine.delivery.chosen_build import DeliveryContext
    from aioproducer.engine.delivery.deliveries import Run
    from aioproducer.engine.memory.buffer_pool import BufferPool, PendingSend
    from aioproducer.engine.memory.partition_quota import PartitionQuota

__all__ = ["FAIL_FAST", "STRICT", "Appender"]

STRICT: Final = "strict"  # of circuit_breaker_keyed_policy
FAIL_FAST: Final = "fail_fast"
_FEW: Final = 64  # partitions that are looked at where none is usable
_MOST_BATCHES: Final = 256  # of different partitions that are made in one step: some milliseconds
_PLAIN_KEYS: Final = frozenset({bytes, type(None)})
_SLOW: Final = 4  # records on the fast way that one on the slow way costs


class Appender:
    """Appends records to the batches of their partitions.

    Args:
        way: tells the turn's time.
        loop_budget: is told of the bytes that each takes.
        pool: `buffer_memory`.
        shares: how much of the memory a partition may hold.
        chance: a random number in [0, 1).

    Attributes:
        room: as given; batches have their part of the memory from it.
        is_kafkas: keys decide as Kafka's own partitioner has it.
        forget: tells the user's partitioner of a topic that is forgotten.
        serving_ms: the time of those who waited and are served now, 0 while nobody is: one of its own for each costs a microsecond.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: AbstractEventLoop,
        way: FastPath,
        loop_budget: LoopBudget,
        partition_queues: PartitionQueues,
        pool: BufferPool,
        delivery_context: DeliveryContext,
        *,
        room: BatchSizing,
        shares: PartitionQuota,
        chance: Callable[[], float],
    ) -> None:
        self.serving_ms = 0
        self._loop = loop
        self._loop_budget = loop_budget
        self._fast_path = way
        self._partition_queues = partition_queues
        self._pool = pool
        self._delivery_context = delivery_context
        self._chance = chance
        self.room = room
        choose = partitioner.adapt(config.partitioner)
        self.forget = partitioner.forgetter(choose)
        self._partitioner = delivery_context.watch.over("partitioner", choose) if choose is not None else None
        self._ignores_keys = config.partitioner_ignore_keys
        self._is_adaptive = config.partitioner_adaptive_partitioning_enable
        self._shares = shares
        self._has_breaker = config.circuit_breaker_class is not None
        self._policy = config.circuit_breaker_keyed_policy
        self.is_kafkas = self._partitioner is None and not self._ignores_keys
        is_told = self._has_breaker and self._policy == FAIL_FAST
        self._windows = ColumnBatches(
            loop, partition_queues, pool, shares, delivery_context, sticky=self._sticky_now, room=room.of_rows, is_told=is_told
        )

    def now_ms(self) -> int:
        """The time for a record's timestamp."""
        return self._delivery_context.now_ms()

    # One record

    def place(self, record: PendingSend, routing: TopicRouting) -> Delivery | None:
        """Append to the partition it belongs to; None: no memory, no such partition yet, or that one must not have more (`record.behind`).

        Raises:
            UsageError: the user's partitioner failed.
            PartitionUnavailable: its partition is muted, and the user wants to know at once.
        """
        if record.window is not None:
            return self._place_window(record, record.window, routing)
        behind, record.behind = record.behind, None
        if behind is not None and behind in routing.queues[behind.partition : behind.partition + 1]:
            return self._append_behind(behind, record)
        if record.partition is not None:
            if self.is_missing(record, routing):
                return None
            queue = routing.queues[record.partition]
            return self._append_to(queue, record) if record.whole is None else self._add_whole(queue, record)
        if self._partitioner is not None:
            return self._append_to(routing.queues[self._ask_partitioner(record, routing, self._partitioner)], record)
        key = record.key
        return self._append_sticky(routing, record) if key is None or self._ignores_keys else self._append_to(routing.by_key[key], record)

    @staticmethod
    def is_missing(record: PendingSend, routing: TopicRouting) -> bool:
        """Whether it names a partition that the topic does not have."""
        return record.partition is not None and record.partition >= len(routing.queues)

    @staticmethod
    def _ask_partitioner(record: PendingSend, routing: TopicRouting, choose: partitioner.Choose) -> int:
        """Once for each record and route, however often memory is short: who counts them would count wrong."""
        if record.chosen is None or record.chosen[0] is not routing:
            chosen = partitioner.choose(choose, routing.topic, record.key, record.value, len(routing.queues), routing.available)
            record.chosen = routing, chosen
        return record.chosen[1]

    def _append_sticky(self, routing: TopicRouting, record: PendingSend) -> Delivery | None:
        """To the topic's sticky partition while its batch has room, and until it has had its share; then to another's (KIP-794)."""
        queue = routing.sticky
        if queue is not None and (batch := queue.current) is not None:
            delivery = self._append_open(queue, record)
            if delivery is not None or self.room.may_grow(queue, record.size):
                return delivery
            self._leave(routing, batch)
        while True:
            queue = self._sticky(routing, record.size)
            if queue.is_full:
                return self._append(self._least_bad(routing), record)
            delivery = self._append(queue, record)
            if delivery is not None or not queue.is_full:
                return delivery
            record.behind = None  # it has just been found to be full; another one may not be

    def _least_bad(self, routing: TopicRouting) -> PartitionQueue:
        """Nothing is usable: of a few partitions one that is not muted, else one that is not full."""
        choices = routing.choices
        begin = int(self._chance() * len(choices))
        few = [routing.queues[choices[(begin + at) % len(choices)]] for at in range(min(len(choices), _FEW))]
        return min(few, key=lambda queue: (queue.is_avoided, queue.is_full, queue.bytes))

    def _append_behind(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        """To the partition that it has waited for, if it takes more by now."""
        if record.whole is not None:
            delivery = self._add_whole(queue, record)
        elif record.partition is None and self._partitioner is None and (record.key is None or self._ignores_keys):
            delivery = self._append(queue, record)
        else:
            delivery = self._append_to(queue, record)
        if delivery is None and record.behind is None and not queue.is_full:
            record.behind = queue  # it was for want of memory: it stays with that partition all the same
        return delivery

    def _sticky(self, routing: TopicRouting, size: int) -> PartitionQueue:
        """Where records without a key go on: the sticky partition while it has a batch, or takes `size` bytes more, else another."""
        queue = routing.sticky
        if queue is not None and (queue.current is not None or routing.stays(size, self.room.of(routing.topic))):
            return queue
        before, queue = routing.sticky, self._switch(routing)
        if not self._is_adaptive:
            # adaptive choice may pass by a batch that is full: the partition's queue is long
            self._resume(routing, queue, before)
        return queue

    def _switch(self, routing: TopicRouting) -> PartitionQueue:
        return routing.switch(self._chance(), is_adaptive=self._is_adaptive, unit=self.room.limit + BATCH_OVERHEAD)

    def _resume(self, routing: TopicRouting, queue: PartitionQueue, before: PartitionQueue | None, *, at_once: bool = False) -> None:
        """Let the batch of the new sticky partition take one share more, if it waits to be sent; close it if it cannot.

        `before`: the last sticky partition; if it is the same one, its batch takes three times what it has more.
        """
        batch = queue.current
        if batch is not None and queue.is_sendable:
            assert batch.open is not None
            # the share counts from now: what the batch has is of shares before
            routing.share = -batch.open.used
            if not self.room.widen(batch, 0, self.room.limit if queue is not before else None, at_once=at_once):
                self._partition_queues.close(queue)

    def _leave(self, routing: TopicRouting, full: ProducerBatch, *, at_once: bool = False) -> None:
        """The sticky partition has had its share. Its batch takes more when it is its turn again, if it has not been sent by then."""
        queue = full.queue
        if not self.room.beyond(full):
            self._partition_queues.close(queue)
            return
        self._partition_queues.mark_sendable(queue)
        self._resume(routing, self._switch(routing), queue, at_once=at_once)

    def _append_to(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        """To its key's partition, or the named one; what becomes of it while that is muted is the user's choice."""
        if queue.is_avoided and self._policy != STRICT:
            queue = self._instead_of(queue, record)
        return self._append(queue, record)

    def _instead_of(self, queue: PartitionQueue, record: PendingSend) -> PartitionQueue:
        """A usable partition for a record of a muted one, for a key always the same while the same are usable; if there is none, that one."""
        if self._policy == FAIL_FAST:
            raise wait_reasons.unavailable(queue, "The record was not queued.")
        routing = queue.routing
        if record.key is None or self._ignores_keys:
            other = self._sticky(routing, record.size)
        else:
            usable = routing.available
            other = routing.queues[usable[(partitioner.murmur2(record.key) & 0x7FFFFFFF) % len(usable)]] if usable else queue
        if not self._partition_queues.availability.is_usable(other):
            other = self._least_bad(routing)
        return queue if other.is_avoided else other

    def _append(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        self._fast_path.taken += _SLOW
        if (batch := queue.current) is not None:
            delivery = self._append_open(queue, record)
            if delivery is not None or self.room.may_grow(queue, record.size):
                return delivery
            if self.room.widen(batch, record.size):
                return self._append_open(queue, record)
            self._partition_queues.close(queue)  # before its sender waits: who comes between must not go ahead of it
        return self._open(queue, record)

    def _append_open(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        batch, now_ms = queue.current, self._timestamp(record)
        assert batch is not None
        assert batch.open is not None
        delivery: Delivery | None = None
        if record.headers is NO_HEADERS:  # mostly a plain record, which is half the work
            delivery = batch.open.append(now_ms, record.key, record.value)
        if delivery is None:
            delivery = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        if delivery is None and self.room.grow(batch, record.size):
            delivery = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        return delivery

    def _open(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        now_ms = self._timestamp(record)
        batch = self.room.open(queue, now_ms, record.size)
        if batch is None:
            record.behind = queue if queue.is_full else None
            return None
        assert batch.open is not None
        delivery: Delivery | None = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        assert delivery is not None
        return delivery

    def _timestamp(self, record: PendingSend) -> int:
        if record.timestamp_ms is not None:
            return record.timestamp_ms
        # not `tick`: it calls for another turn, and a record that waits for memory would be tried in each, as fast as the loop turns
        return self._fast_path.turn_ms or self.serving_ms or self.now_ms()

    def _add_whole(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        """A batch that the user filled goes behind what its partition has."""
        whole = record.whole
        assert whole is not None
        if queue.is_avoided and self._policy == FAIL_FAST:
            raise wait_reasons.unavailable(queue, "The batch was not queued.")
        if self._shares.is_over(queue):
            record.behind = queue
            return None
        if not self._pool.try_take(record.size):
            return None
        self._loop_budget.spent += record.size
        self._fast_path.taken += 1
        self._partition_queues.close(queue)
        self._partition_queues.open(queue, whole.records, whole.result, credit=record.size, now=self._loop.time())
        self._partition_queues.close(queue)
        return make_delivery(whole.result, 0)

    def _place_window(self, record: PendingSend, window: ColumnWindow, routing: TopicRouting) -> Delivery | None:
        before = self._pool.available
        delivery = None if self.is_missing(record, routing) else self._windows.place(record, window, routing, self._timestamp(record))
        self._loop_budget.spent += before - self._pool.available
        self._fast_path.taken += 1
        return delivery

    def _sticky_now(self, routing: TopicRouting, size: int) -> PartitionQueue:
        """Where so many bytes without a key go at once."""
        queue = self._sticky(routing, size)
        if self._shares.is_over(queue):
            queue = self._sticky(routing, size)
        return self._least_bad(routing) if queue.is_full else queue

    def takes_rows(self, topic: str, *, is_named: bool, keyed: bool) -> bool:
        """Whether rows, for a named partition or with keys, go where Kafka's own partitioner has them, now, and to few partitions."""
        if self._partitioner is not None and not is_named:
            return False
        routing = self._partition_queues.routings.get(topic)
        if routing is None or not (is_named or keyed):
            return True
        if keyed and len(routing.queues) > _MOST_BATCHES:
            return False
        return not self._has_breaker or self._policy == STRICT or not any(queue.is_avoided for queue in routing.queues)

    # The fast way, and many at once

    def make_room(
        self, routing: TopicRouting, queue: PartitionQueue | None, key: bytes | None, value: bytes | None
    ) -> PartitionQueue | None:
        """The partition that has room for a small plain record on the fast way: `queue`, or without a key perhaps another. None: the slow way."""
        if type(value) is not bytes or type(key) not in _PLAIN_KEYS or self._loop_budget.must_pause():
            return None
        size = MOST_OVERHEAD + len(key or b"") + len(value)
        if size > self.room.first:
            return None
        full = queue.current if queue is not None else None
        if full is not None and (self.room.grow(full, size) or self.room.may_grow(full.queue, size)):
            return queue
        if key is None:
            return self._next_sticky(routing, full, size)
        if full is not None and self.room.widen(full, size):
            return queue
        return self._next_batch(queue, full, size) if queue is not None else None

    def _next_sticky(self, routing: TopicRouting, full: ProducerBatch | None, size: int) -> PartitionQueue | None:
        if full is not None:
            self._leave(routing, full)
        queue = self._sticky(routing, size)
        # an open batch is there for records with keys, and may have room
        return queue if queue.current is not None else self._next_batch(queue, full, size)

    def _next_batch(self, queue: PartitionQueue, full: ProducerBatch | None, size: int) -> PartitionQueue | None:
        """The partition with another batch, behind one that is full; one that is muted or holds too much is asked about on the slow way."""
        if queue.is_full or (queue.is_avoided and self._policy != STRICT):
            return None
        if queue.current is not None:
            self._partition_queues.close(queue)
        return queue if self.room.open_wide(queue, self._fast_path.turn_ms, size, behind=full is not None) is not None else None

    def append_run(
        self, routing: TopicRouting, queue: PartitionQueue | None, keys: Sequence[bytes] | None, values: Sequence[bytes]
    ) -> list[Run]:
        """Plain records to one partition, or without one to the sticky ones, at once: who calls has seen that `room.is_there`.

        All of them, or without a partition the first ones, if all partitions come to hold as much as they may.
        """
        now_ms = self._fast_path.turn_ms or self._fast_path.tick()
        self._fast_path.taken += 1
        runs: list[Run] = []
        at = 0
        while at < len(values):
            size = MOST_OVERHEAD + len(values[at]) + (len(keys[at]) if keys is not None else 0)
            target = queue or self._sticky_for_many(routing, size)
            if target is None:
                break
            batch = target.current or self.room.open_for_many(target, now_ms, size * (len(values) - at))
            assert batch.open is not None
            first = batch.open.count
            count = batch.open.append_many(now_ms, keys, values, at)
            if count:
                runs.append([batch.result, first, count])
                at += count
            elif not self.room.grow(batch, size):
                self._outgrow(routing, queue, batch, size)
        return runs

    def _sticky_for_many(self, routing: TopicRouting, size: int) -> PartitionQueue | None:
        """None: all partitions hold as much as they may. Others wait for them, and what were queued now would go ahead of those."""
        while (target := self._sticky(routing, size)).current is None and not target.is_full:
            if not self._shares.is_over(target):
                return target
        return target if target.current is not None else None

    def _outgrow(self, routing: TopicRouting, queue: PartitionQueue | None, full: ProducerBatch, size: int) -> None:
        """A batch is full, and there are more records at once: for that partition, or for the sticky ones."""
        if queue is None:
            self._leave(routing, full, at_once=True)
        elif not self.room.widen(full, size, at_once=True):
            self._partition_queues.close(queue)

    def takes_freely(self, routing: TopicRouting, queues: Collection[PartitionQueue]) -> bool:
        """Whether no record for these partitions, without any for the sticky ones, has to wait for one of them or go elsewhere."""
        if not self._has_breaker:
            return True
        if not queues:
            return any(map(self._partition_queues.availability.is_usable, map(routing.queues.__getitem__, routing.available[:1])))
        return not any(self._shares.is_over(queue) or (queue.is_avoided and self._policy != STRICT) for queue in queues)
