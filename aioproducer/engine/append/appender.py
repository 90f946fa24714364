"""The `Appender`: chooses a record's partition, and appends the record to the batch there that has bytes left.

1. A record waits if no batch has bytes left for it. A full batch may take more before it is sent (`room`). A record with a key then goes
   into that batch; a record without a key goes to another partition first.
2. With a circuit breaker, a full partition (`shares`) gets no more records: its records alone wait for it (`PendingSend.behind`). Records
   for a muted partition go where the user's policy says.

The appender never waits. If memory is short, it returns None or False.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer import partitioners
from aioproducer.core.record_validation import BATCH_OVERHEAD
from aioproducer.core.topic_routing import murmur2
from aioproducer.engine.append.batch_sizing import MOST_OVERHEAD
from aioproducer.engine.append.column_batches import ColumnBatches
from aioproducer.engine.chosen_build import Delivery
from aioproducer.engine.memory import wait_reasons
from aioproducer.records.record_batch import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues, TopicRouting
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.append.batch_sizing import BatchSizing
    from aioproducer.engine.append.column_batches import ColumnWindow
    from aioproducer.engine.append.loop_budget import LoopBudget
    from aioproducer.engine.chosen_build import DeliveryContext, FastPath
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.delivery.deliveries import Run
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.memory.partition_quota import PartitionQuota
    from aioproducer.engine.memory.pending_send import PendingSend

# Values of circuit_breaker_keyed_policy.
STRICT: Final = "strict"
FAIL_FAST: Final = "fail_fast"
# Partitions that are compared where none is usable.
_FEW: Final = 64
# Batches of different partitions that one step makes at most: some milliseconds.
_MOST_BATCHES: Final = 256
_PLAIN_KEYS: Final = frozenset({bytes, type(None)})
# Records on the fast path that cost as much as one on the slow path.
_SLOW: Final = 4


class Appender:
    """Appends records to the batches of their partitions.

    Args:
        fast_path: gives the time of the event-loop iteration.
        loop_budget: counts the bytes that each append takes.
        pool: `buffer_memory`.
        shares: the quota of the memory that a partition may hold; None: it may hold all, as there is no circuit breaker.

    Attributes:
        fast_path, partition_queues, pool, shares: as given.
        room: as given; it takes the memory of batches.
        now_ms: returns the time for a record's timestamp.
        may_be_fast: the fast path chooses the partitions that this appender would choose.
        partitioner: the user's; None: Kafka's own.
        forget: notifies the user's partitioner of a topic that is forgotten.
    """

    def __init__(
        self,
        context: EngineContext,
        fast_path: FastPath,
        loop_budget: LoopBudget,
        partition_queues: PartitionQueues,
        pool: BufferPool,
        delivery_context: DeliveryContext,
        *,
        room: BatchSizing,
        shares: PartitionQuota | None,
    ) -> None:
        config, loop = context.config, context.loop
        # The timestamp of pending sends while they are served, else 0. A clock read for each would cost a microsecond.
        self._serving_ms = 0
        self._loop_budget = loop_budget
        self.fast_path = fast_path
        self.partition_queues = partition_queues
        self.pool = pool
        self.now_ms: Callable[[], int] = delivery_context.now_ms
        self._chance = context.chance
        self.room = room
        choose = partitioners.adapt(config.partitioner)
        self.forget: Callable[[str], object] = partitioners.forgetter(choose)
        self.partitioner: partitioners.Choose | None = (
            delivery_context.watch.over("partitioner", choose) if choose is not None else None
        )
        self._ignores_keys = config.partitioner_ignore_keys
        self._is_adaptive = config.partitioner_adaptive_partitioning_enable
        # Bytes of one share of the sticky partition.
        self._share_unit = room.limit + BATCH_OVERHEAD
        self.shares = shares
        self._policy = config.circuit_breaker_keyed_policy
        self.may_be_fast: bool = self.partitioner is not None or not self._ignores_keys
        is_told = shares is not None and self._policy == FAIL_FAST
        self._windows = ColumnBatches(
            loop,
            partition_queues,
            pool,
            shares,
            delivery_context,
            sticky=self._sticky_now,
            room=room.of_rows,
            is_told=is_told,
        )

    # One record

    def place(self, record: PendingSend, routing: TopicRouting) -> Delivery | None:
        """Append to the record's partition. Returns its delivery, or None.

        None: memory is short, the partition does not exist yet, or it must not have more (`record.behind`).

        Raises:
            UsageError: the user's partitioner failed.
            PartitionUnavailable: the record's partition is muted, and the user's policy is to fail at once.
        """
        if record.window is not None:
            return self._place_window(record, record.window, routing)
        behind, record.behind = record.behind, None
        if behind is not None and behind in routing.queues[behind.partition : behind.partition + 1]:
            return self._append_behind(behind, record)
        if record.partition is not None:
            if record.is_missing(routing):
                return None
            queue = routing.queues[record.partition]
            return self._append_to(queue, record)
        if self.partitioner is not None:
            return self._append_to(
                routing.queues[_ask_partitioner(record, routing, self.partitioner)], record
            )
        key = record.key
        return (
            self._append_sticky(routing, record)
            if key is None or self._ignores_keys
            else self._append_to(routing.by_key[key], record)
        )

    def _append_sticky(self, routing: TopicRouting, record: PendingSend) -> Delivery | None:
        """Append to the topic's sticky partition while its batch has bytes left, until its share is used; then to another (KIP-794)."""
        queue = routing.sticky
        if queue is not None and (batch := queue.current) is not None:
            delivery = self._append_open(queue, record)
            if delivery is not None or self.room.may_grow(batch, record.size):
                return delivery
            self._leave(routing, batch)
        while True:
            queue = self._sticky(routing, record.size)
            if queue.is_full:
                return self._append(_least_bad(self._chance(), routing), record)
            delivery = self._append(queue, record)
            if delivery is not None or not queue.is_full:
                return delivery
            # This partition has just become full; another one may not be.
            record.behind = None

    def _append_behind(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        """Append to the partition that the record has waited for, if that takes more by now."""
        if (
            record.partition is None
            and self.partitioner is None
            and (record.key is None or self._ignores_keys)
        ):
            delivery = self._append(queue, record)
        else:
            delivery = self._append_to(queue, record)
        if delivery is None and record.behind is None and not queue.is_full:
            # Only memory is short: the record stays with that partition all the same.
            record.behind = queue
        return delivery

    def _sticky(self, routing: TopicRouting, size: int) -> PartitionQueue:
        """Return the sticky partition while it has a batch or takes `size` more bytes; otherwise switch to another one."""
        queue = routing.sticky
        if queue is not None and (
            queue.current is not None or routing.stays(size, self.room.of(routing.topic))
        ):
            return queue
        before = routing.sticky
        queue = routing.switch(self._chance(), is_adaptive=self._is_adaptive, unit=self._share_unit)
        if not self._is_adaptive:
            # The adaptive choice may pass over a partition with a full batch, because its queue is long.
            self._resume(routing, queue, before)
        return queue

    def _resume(
        self,
        routing: TopicRouting,
        queue: PartitionQueue,
        before: PartitionQueue | None,
        *,
        at_once: int = 0,
    ) -> None:
        """Widen the sendable batch of the new sticky partition by one share; close the batch if it cannot grow.

        If `before`, the last sticky partition, is the same one, its batch grows by three times its size.
        """
        batch = queue.current
        if batch is not None and queue.is_sendable and batch.open is not None:
            # The share counts from now: the bytes that the batch has belong to earlier shares.
            routing.share = -batch.open.used
            if not self.room.widen(
                batch, 0, self.room.limit if queue is not before else None, at_once=at_once
            ):
                self.partition_queues.close(queue)

    def _leave(self, routing: TopicRouting, full: ProducerBatch, *, at_once: int = 0) -> None:
        """End the share of the sticky partition, and close its full batch if that cannot grow.

        A batch that can grow takes more when its partition is sticky again, if it has not been sent by then.
        """
        queue = full.queue
        if not self.room.beyond(full):
            self.partition_queues.close(queue)
            return
        self.partition_queues.mark_sendable(queue)
        other = routing.switch(self._chance(), is_adaptive=self._is_adaptive, unit=self._share_unit)
        self._resume(routing, other, queue, at_once=at_once)

    def _append_to(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        """Append to the key's partition or to the named one; if that is avoided, as the user's policy says."""
        if queue.is_avoided and self._policy != STRICT:
            queue = self._instead_of(queue, record)
        return self._append(queue, record)

    def _instead_of(self, queue: PartitionQueue, record: PendingSend) -> PartitionQueue:
        """Return a usable partition for a record of an avoided one, or `queue` if there is none.

        A key always gets the same partition while the same partitions are usable.
        """
        if self._policy == FAIL_FAST:
            raise wait_reasons.unavailable(queue, "The record was not queued.")
        routing = self.partition_queues.routings[queue.topic]
        if record.key is None or self._ignores_keys:
            other = self._sticky(routing, record.size)
        else:
            usable = routing.available
            other = (
                routing.queues[usable[(murmur2(record.key) & 0x7FFFFFFF) % len(usable)]]
                if usable
                else queue
            )
        if not self.partition_queues.availability.is_usable(other):
            other = _least_bad(self._chance(), routing)
        return queue if other.is_avoided else other

    def _append(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        self.fast_path.taken += _SLOW
        if (batch := queue.current) is not None:
            delivery = self._append_open(queue, record)
            if delivery is not None or self.room.may_grow(batch, record.size):
                return delivery
            if self.room.widen(batch, record.size):
                delivery = self._append_open(queue, record)
                if delivery is not None:
                    return delivery
                # A send within this one has filled it: rule 9 of `core/partition_queues.py`.
            # Closed before the send waits: a later record must not be appended ahead of it.
            self.partition_queues.close(queue)
        return self._open(queue, record)

    def _append_open(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        now_ms = self._timestamp(record)
        delivery: Delivery | None = None
        # A record without headers is mostly a plain one, and that is half the work.
        if record.headers is NO_HEADERS:
            delivery = queue.open.append(now_ms, record.key, record.value)
        if delivery is None:
            delivery = queue.open.append_record(now_ms, record.key, record.value, record.headers)
        if (
            delivery is None
            and (batch := queue.current) is not None
            and self.room.grow(batch, record.size)
        ):
            delivery = queue.open.append_record(now_ms, record.key, record.value, record.headers)
        return delivery

    def _open(self, queue: PartitionQueue, record: PendingSend) -> Delivery | None:
        now_ms = self._timestamp(record)
        delivery = self.room.open(
            queue,
            now_ms,
            record.size,
            lambda records: records.append_record(now_ms, record.key, record.value, record.headers),
        )
        if delivery is None:
            record.behind = queue if queue.is_full else None
        return delivery

    def serve_at(self, now_ms: int) -> None:
        """Set the timestamp of the pending sends that are appended from now on; 0: each gets its own time."""
        self._serving_ms = now_ms

    def _timestamp(self, record: PendingSend) -> int:
        if record.timestamp_ms is not None:
            return record.timestamp_ms
        # Not `tick`: it schedules another event-loop iteration, and each iteration would try a record that waits for memory again.
        return self.fast_path.turn_ms or self._serving_ms or self.now_ms()

    def _place_window(
        self, record: PendingSend, window: ColumnWindow, routing: TopicRouting
    ) -> Delivery | None:
        before = self.pool.available
        delivery = (
            None
            if record.is_missing(routing)
            else self._windows.place(record, window, routing, self._timestamp(record))
        )
        self._loop_budget.spend(before - self.pool.available)
        self.fast_path.taken += 1
        return delivery

    def _sticky_now(self, routing: TopicRouting, size: int) -> PartitionQueue:
        """Return the partition for `size` bytes without a key that are queued at once."""
        queue = self._sticky(routing, size)
        if self.shares is not None and self.shares.is_over(queue):
            queue = self._sticky(routing, size)
        return _least_bad(self._chance(), routing) if queue.is_full else queue

    def takes_rows(self, topic: str, *, is_named: bool, keyed: bool) -> bool:
        """Return whether rows, for a named partition or with keys, now go where Kafka's partitioner puts them, and to few partitions."""
        if self.partitioner is not None and not is_named:
            return False
        routing = self.partition_queues.routings.get(topic)
        if routing is None or not (is_named or keyed):
            return True
        if keyed and len(routing.queues) > _MOST_BATCHES:
            return False
        return (
            self.shares is None
            or self._policy == STRICT
            or not any(queue.is_avoided for queue in routing.queues)
        )

    # The fast path, and bulk appends

    def make_room(
        self,
        routing: TopicRouting | None,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
    ) -> Delivery | None:
        """Append a small plain record that did not fit, on the fast path, where there is room. Returns None: it takes the slow path.

        It goes to `queue`, or without a key perhaps to another partition of `routing`; without `routing`, its partition was chosen.
        """
        size = _plain_size(key, value)
        if size is None or size > self.room.first or self._loop_budget.must_pause():
            return None
        put = partial(_put, self.fast_path.turn_ms, key, value)
        full = queue.current
        if full is not None and (self.room.grow(full, size) or self.room.may_grow(full, size)):
            return put(queue.open)
        if key is None and routing is not None:
            queue = self._sticky_behind(routing, full, size)
            # Records with keys may have opened a batch there, which may have bytes left.
            if queue.current is not None:
                return put(queue.open)
        return self._put_in_next_batch(queue, full, size, put)

    def _sticky_behind(
        self, routing: TopicRouting, full: ProducerBatch | None, size: int
    ) -> PartitionQueue:
        """Return the sticky partition for `size` bytes, after the batch that was full for them."""
        if full is not None:
            self._leave(routing, full)
        return self._sticky(routing, size)

    def _put_in_next_batch(
        self,
        queue: PartitionQueue,
        full: ProducerBatch | None,
        size: int,
        put: Callable[[Any], Delivery | None],
    ) -> Delivery | None:
        """Widen the full batch of a partition, or open another one behind it, for a record. Returns None if neither is possible.

        A full or avoided partition gets no other batch: it is left to the slow path.
        """
        if queue.current is not None and self.room.widen(queue.current, size):
            return put(queue.open)
        if queue.is_full or (queue.is_avoided and self._policy != STRICT):
            return None
        if queue.current is not None:
            self.partition_queues.close(queue)
        return self.room.open_wide(
            queue, self.fast_path.turn_ms, size, put, behind=full is not None
        )

    def append_run(
        self,
        routing: TopicRouting,
        queue: PartitionQueue | None,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
    ) -> list[Run]:
        """Append plain records to one partition, or without `queue` to sticky partitions. Returns their runs.

        The caller has checked `room.is_there`. All records are appended. Without `queue`, only the first ones are appended if all
        partitions become full.
        """
        now_ms = self.fast_path.turn_ms or self.fast_path.tick()
        self.fast_path.taken += 1
        runs: list[Run] = []
        at = 0
        while at < len(values):
            size = MOST_OVERHEAD + len(values[at]) + (len(keys[at]) if keys is not None else 0)
            target = queue or self._sticky_for_many(routing, size)
            if target is None:
                break
            put = partial(_put_many, now_ms, keys, values, at)
            first = 0 if target.current is None else target.open.count
            is_open = target.current is not None
            count = (
                put(target.open)
                if is_open
                else self.room.open_for_many(target, now_ms, size * (len(values) - at), put)
            )
            batch = target.current
            assert batch is not None
            if count:
                runs.append([batch.result, first, count])
                at += count
            elif not self.room.grow(batch, size):
                self._outgrow(routing, queue, batch, size, size * (len(values) - at))
        return runs

    def _sticky_for_many(self, routing: TopicRouting, size: int) -> PartitionQueue | None:
        """Return the sticky partition for bulk records; None: all partitions are full.

        Other records wait for full partitions, and bulk records that were queued now would be ahead of those.
        """
        while (target := self._sticky(routing, size)).current is None and not target.is_full:
            if self.shares is None or not self.shares.is_over(target):
                return target
        return target if target.current is not None else None

    def _outgrow(
        self,
        routing: TopicRouting,
        queue: PartitionQueue | None,
        full: ProducerBatch,
        size: int,
        at_once: int,
    ) -> None:
        """Widen or close the full batch of `queue`, as `at_once` bytes follow; without `queue` switch the sticky partition."""
        if queue is None:
            self._leave(routing, full, at_once=at_once)
        elif not self.room.widen(full, size, at_once=at_once):
            self.partition_queues.close(queue)

    def takes_freely(self, routing: TopicRouting, queues: Collection[PartitionQueue]) -> bool:
        """Return whether no record for `queues` has to wait for its partition or go elsewhere; an empty one means the sticky partitions."""
        shares = self.shares
        if shares is None:
            return True
        if not queues:
            return any(
                map(
                    self.partition_queues.availability.is_usable,
                    map(routing.queues.__getitem__, routing.available[:1]),
                )
            )
        return not any(
            shares.is_over(queue) or (queue.is_avoided and self._policy != STRICT)
            for queue in queues
        )


def _plain_size(key: object, value: object) -> int | None:
    """Return the most bytes that a record takes in its batch; None: it is not plain."""
    if type(value) is not bytes or type(key) not in _PLAIN_KEYS:
        return None
    return MOST_OVERHEAD + len(value) + (len(key) if type(key) is bytes else 0)


def _put(now_ms: int, key: bytes | None, value: bytes | None, records: Any) -> Delivery | None:
    delivery: Delivery | None = records.append(now_ms, key, value)
    return delivery


def _put_many(
    now_ms: int, keys: Sequence[bytes] | None, values: Sequence[bytes], first: int, records: Any
) -> int:
    count: int = records.append_many(now_ms, keys, values, first)
    return count


def _ask_partitioner(
    record: PendingSend, routing: TopicRouting, choose: partitioners.Choose
) -> int:
    """Return the partitioner's choice. It is called once for a record and topic routing, however often memory is short.

    A partitioner that counts records would otherwise count too many.
    """
    if record.chosen is None or record.chosen[0] is not routing:
        chosen = partitioners.choose(
            choose, routing.topic, record.key, record.value, len(routing.queues), routing.available
        )
        record.chosen = routing, chosen
    return record.chosen[1]


def _least_bad(chance: float, routing: TopicRouting) -> PartitionQueue:
    """Return the best of a few partitions, since none is usable: not avoided, else not full, else with the fewest bytes."""
    choices = routing.choices
    begin = int(chance * len(choices))
    few = [
        routing.queues[choices[(begin + at) % len(choices)]]
        for at in range(min(len(choices), _FEW))
    ]
    return min(few, key=lambda queue: (queue.is_avoided, queue.is_full, queue.bytes))
