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
        turn: is told of the bytes that each takes.
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
        turn: LoopBudget,
        accumulator: PartitionQueues,
        pool: BufferPool,
        home: DeliveryContext,
        *,
        room: BatchSizing,
        shares: PartitionQuota,
        chance: Callable[[], float],
    ) -> None:
        self.serving_ms = 0
        self._loop = loop
        self._turn = turn
        self._way = way
        self._accumulator = accumulator
        self._pool = pool
        self._home = home
        self._chance = chance
        self.room = room
        choose = partitioner.adapt(config.partitioner)
        self.forget = partitioner.forgetter(choose)
        self._partitioner = home.watch.over("partitioner", choose) if choose is not None else None
        self._ignores_keys = config.partitioner_ignore_keys
        self._is_adaptive = config.partitioner_adaptive_partitioning_enable
        self._shares = shares
        self._has_breaker = config.circuit_breaker_class is not None
        self._policy = config.circuit_breaker_keyed_policy
        self.is_kafkas = self._partitioner is None and not self._ignores_keys
        is_told = self._has_breaker and self._policy == FAIL_FAST
        self._windows = ColumnBatches(loop, accumulator, pool, shares, home, sticky=self._sticky_now, room=room.of_rows, is_told=is_told)

    def now_ms(self) -> int:
        """The time for a record's timestamp."""
        return self._home.now_ms()

    # One record

    def place(self, record: PendingSend, route: TopicRouting) -> Delivery | None:
        """Append to the partition it belongs to; None: no memory, no such partition yet, or that one must not have more (`record.behind`).

        Raises:
            UsageError: the user's partitioner failed.
            PartitionUnavailable: its partition is muted, and the user wants to know at once.
        """
        if record.window is not None:
            return self._place_window(record, record.window, route)
        behind, record.behind = record.behind, None
        if behind is not None and behind in route.cells[behind.partition : behind.partition + 1]:
            return self._append_behind(behind, record)
        if record.partition is not None:
            if self.is_missing(record, route):
                return None
            cell = route.cells[record.partition]
            return self._append_to(cell, record) if record.whole is None else self._add_whole(cell, record)
        if self._partitioner is not None:
            return self._append_to(route.cells[self._ask_partitioner(record, route, self._partitioner)], record)
        key = record.key
        return self._append_sticky(route, record) if key is None or self._ignores_keys else self._append_to(route.by_key[key], record)

    @staticmethod
    def is_missing(record: PendingSend, route: TopicRouting) -> bool:
        """Whether it names a partition that the topic does not have."""
        return record.partition is not None and record.partition >= len(route.cells)

    @staticmethod
    def _ask_partitioner(record: PendingSend, route: TopicRouting, choose: partitioner.Choose) -> int:
        """Once for each record and route, however often memory is short: who counts them would count wrong."""
        if record.chosen is None or record.chosen[0] is not route:
            chosen = partitioner.choose(choose, route.topic, record.key, record.value, len(route.cells), route.available)
            record.chosen = route, chosen
        return record.chosen[1]

    def _append_sticky(self, route: TopicRouting, record: PendingSend) -> Delivery | None:
        """To the topic's sticky partition while its batch has room, and until it has had its share; then to another's (KIP-794)."""
        cell = route.sticky
        if cell is not None and (batch := cell.current) is not None:
            delivery = self._append_open(cell, record)
            if delivery is not None or self.room.may_grow(cell, record.size):
                return delivery
            self._leave(route, batch)
        while True:
            cell = self._sticky(route, record.size)
            if cell.is_full:
                return self._append(self._least_bad(route), record)
            delivery = self._append(cell, record)
            if delivery is not None or not cell.is_full:
                return delivery
            record.behind = None  # it has just been found to be full; another one may not be

    def _least_bad(self, route: TopicRouting) -> PartitionQueue:
        """Nothing is usable: of a few partitions one that is not muted, else one that is not full."""
        choices = route.choices
        begin = int(self._chance() * len(choices))
        few = [route.cells[choices[(begin + at) % len(choices)]] for at in range(min(len(choices), _FEW))]
        return min(few, key=lambda cell: (cell.is_avoided, cell.is_full, cell.bytes))

    def _append_behind(self, cell: PartitionQueue, record: PendingSend) -> Delivery | None:
        """To the partition that it has waited for, if it takes more by now."""
        if record.whole is not None:
            delivery = self._add_whole(cell, record)
        elif record.partition is None and self._partitioner is None and (record.key is None or self._ignores_keys):
            delivery = self._append(cell, record)
        else:
            delivery = self._append_to(cell, record)
        if delivery is None and record.behind is None and not cell.is_full:
            record.behind = cell  # it was for want of memory: it stays with that partition all the same
        return delivery

    def _sticky(self, route: TopicRouting, size: int) -> PartitionQueue:
        """Where records without a key go on: the sticky partition while it has a batch, or takes `size` bytes more, else another."""
        cell = route.sticky
        if cell is not None and (cell.current is not None or route.stays(size, self.room.of(route.topic))):
            return cell
        before, cell = route.sticky, self._switch(route)
        if not self._is_adaptive:
            # adaptive choice may pass by a batch that is full: the partition's queue is long
            self._resume(route, cell, before)
        return cell

    def _switch(self, route: TopicRouting) -> PartitionQueue:
        return route.switch(self._chance(), is_adaptive=self._is_adaptive, unit=self.room.limit + BATCH_OVERHEAD)

    def _resume(self, route: TopicRouting, cell: PartitionQueue, before: PartitionQueue | None, *, at_once: bool = False) -> None:
        """Let the batch of the new sticky partition take one share more, if it waits to be sent; close it if it cannot.

        `before`: the last sticky partition; if it is the same one, its batch takes three times what it has more.
        """
        batch = cell.current
        if batch is not None and cell.is_ripe:
            assert batch.open is not None
            # the share counts from now: what the batch has is of shares before
            route.share = -batch.open.used
            if not self.room.widen(batch, 0, self.room.limit if cell is not before else None, at_once=at_once):
                self._accumulator.close(cell)

    def _leave(self, route: TopicRouting, full: ProducerBatch, *, at_once: bool = False) -> None:
        """The sticky partition has had its share. Its batch takes more when it is its turn again, if it has not been sent by then."""
        cell = full.cell
        if not self.room.beyond(full):
            self._accumulator.close(cell)
            return
        self._accumulator.ripen(cell)
        self._resume(route, self._switch(route), cell, at_once=at_once)

    def _append_to(self, cell: PartitionQueue, record: PendingSend) -> Delivery | None:
        """To its key's partition, or the named one; what becomes of it while that is muted is the user's choice."""
        if cell.is_avoided and self._policy != STRICT:
            cell = self._instead_of(cell, record)
        return self._append(cell, record)

    def _instead_of(self, cell: PartitionQueue, record: PendingSend) -> PartitionQueue:
        """A usable partition for a record of a muted one, for a key always the same while the same are usable; if there is none, that one."""
        if self._policy == FAIL_FAST:
            raise wait_reasons.unavailable(cell, "The record was not queued.")
        route = cell.route
        if record.key is None or self._ignores_keys:
            other = self._sticky(route, record.size)
        else:
            usable = route.available
            other = route.cells[usable[(partitioner.murmur2(record.key) & 0x7FFFFFFF) % len(usable)]] if usable else cell
        if not self._accumulator.availability.is_usable(other):
            other = self._least_bad(route)
        return cell if other.is_avoided else other

    def _append(self, cell: PartitionQueue, record: PendingSend) -> Delivery | None:
        self._way.taken += _SLOW
        if (batch := cell.current) is not None:
            delivery = self._append_open(cell, record)
            if delivery is not None or self.room.may_grow(cell, record.size):
                return delivery
            if self.room.widen(batch, record.size):
                return self._append_open(cell, record)
            self._accumulator.close(cell)  # before its sender waits: who comes between must not go ahead of it
        return self._open(cell, record)

    def _append_open(self, cell: PartitionQueue, record: PendingSend) -> Delivery | None:
        batch, now_ms = cell.current, self._timestamp(record)
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

    def _open(self, cell: PartitionQueue, record: PendingSend) -> Delivery | None:
        now_ms = self._timestamp(record)
        batch = self.room.open(cell, now_ms, record.size)
        if batch is None:
            record.behind = cell if cell.is_full else None
            return None
        assert batch.open is not None
        delivery: Delivery | None = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        assert delivery is not None
        return delivery

    def _timestamp(self, record: PendingSend) -> int:
        if record.timestamp_ms is not None:
            return record.timestamp_ms
        # not `tick`: it calls for another turn, and a record that waits for memory would be tried in each, as fast as the loop turns
        return self._way.turn_ms or self.serving_ms or self.now_ms()

    def _add_whole(self, cell: PartitionQueue, record: PendingSend) -> Delivery | None:
        """A batch that the user filled goes behind what its partition has."""
        whole = record.whole
        assert whole is not None
        if cell.is_avoided and self._policy == FAIL_FAST:
            raise wait_reasons.unavailable(cell, "The batch was not queued.")
        if self._shares.is_over(cell):
            record.behind = cell
            return None
        if not self._pool.try_take(record.size):
            return None
        self._turn.spent += record.size
        self._way.taken += 1
        self._accumulator.close(cell)
        self._accumulator.open(cell, whole.records, whole.result, credit=record.size, now=self._loop.time())
        self._accumulator.close(cell)
        return make_delivery(whole.result, 0)

    def _place_window(self, record: PendingSend, window: ColumnWindow, route: TopicRouting) -> Delivery | None:
        before = self._pool.available
        delivery = None if self.is_missing(record, route) else self._windows.place(record, window, route, self._timestamp(record))
        self._turn.spent += before - self._pool.available
        self._way.taken += 1
        return delivery

    def _sticky_now(self, route: TopicRouting, size: int) -> PartitionQueue:
        """Where so many bytes without a key go at once."""
        cell = self._sticky(route, size)
        if self._shares.is_over(cell):
            cell = self._sticky(route, size)
        return self._least_bad(route) if cell.is_full else cell

    def takes_rows(self, topic: str, *, is_named: bool, keyed: bool) -> bool:
        """Whether rows, for a named partition or with keys, go where Kafka's own partitioner has them, now, and to few partitions."""
        if self._partitioner is not None and not is_named:
            return False
        route = self._accumulator.routes.get(topic)
        if route is None or not (is_named or keyed):
            return True
        if keyed and len(route.cells) > _MOST_BATCHES:
            return False
        return not self._has_breaker or self._policy == STRICT or not any(cell.is_avoided for cell in route.cells)

    # The fast way, and many at once

    def make_room(self, route: TopicRouting, cell: PartitionQueue | None, key: bytes | None, value: bytes | None) -> PartitionQueue | None:
        """The partition that has room for a small plain record on the fast way: `cell`, or without a key perhaps another. None: the slow way."""
        if type(value) is not bytes or type(key) not in _PLAIN_KEYS or self._turn.must_pause():
            return None
        size = MOST_OVERHEAD + len(key or b"") + len(value)
        if size > self.room.first:
            return None
        full = cell.current if cell is not None else None
        if full is not None and (self.room.grow(full, size) or self.room.may_grow(full.cell, size)):
            return cell
        if key is None:
            return self._next_sticky(route, full, size)
        if full is not None and self.room.widen(full, size):
            return cell
        return self._next_batch(cell, full, size) if cell is not None else None

    def _next_sticky(self, route: TopicRouting, full: ProducerBatch | None, size: int) -> PartitionQueue | None:
        if full is not None:
            self._leave(route, full)
        cell = self._sticky(route, size)
        return cell if cell.current is not None else self._next_batch(cell, full, size)  # it is open for records of keys; it may have room

    def _next_batch(self, cell: PartitionQueue, full: ProducerBatch | None, size: int) -> PartitionQueue | None:
        """The partition with another batch, behind one that is full; one that is muted or holds too much is asked about on the slow way."""
        if cell.is_full or (cell.is_avoided and self._policy != STRICT):
            return None
        if cell.current is not None:
            self._accumulator.close(cell)
        return cell if self.room.open_wide(cell, self._way.turn_ms, size, behind=full is not None) is not None else None

    def append_run(
        self, route: TopicRouting, cell: PartitionQueue | None, keys: Sequence[bytes] | None, values: Sequence[bytes]
    ) -> list[Run]:
        """Plain records to one partition, or without one to the sticky ones, at once: who calls has seen that `room.is_there`.

        All of them, or without a partition the first ones, if all partitions come to hold as much as they may.
        """
        now_ms = self._way.turn_ms or self._way.tick()
        self._way.taken += 1
        runs: list[Run] = []
        at = 0
        while at < len(values):
            size = MOST_OVERHEAD + len(values[at]) + (len(keys[at]) if keys is not None else 0)
            target = cell or self._sticky_for_many(route, size)
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
                self._outgrow(route, cell, batch, size)
        return runs

    def _sticky_for_many(self, route: TopicRouting, size: int) -> PartitionQueue | None:
        """None: all partitions hold as much as they may. Others wait for them, and what were queued now would go ahead of those."""
        while (target := self._sticky(route, size)).current is None and not target.is_full:
            if not self._shares.is_over(target):
                return target
        return target if target.current is not None else None

    def _outgrow(self, route: TopicRouting, cell: PartitionQueue | None, full: ProducerBatch, size: int) -> None:
        """A batch is full, and there are more records at once: for that partition, or for the sticky ones."""
        if cell is None:
            self._leave(route, full, at_once=True)
        elif not self.room.widen(full, size, at_once=True):
            self._accumulator.close(cell)

    def takes_freely(self, route: TopicRouting, cells: Collection[PartitionQueue]) -> bool:
        """Whether no record for these partitions, without any for the sticky ones, has to wait for one of them or go elsewhere."""
        if not self._has_breaker:
            return True
        if not cells:
            return any(map(self._accumulator.availability.is_usable, map(route.cells.__getitem__, route.available[:1])))
        return not any(self._shares.is_over(cell) or (cell.is_avoided and self._policy != STRICT) for cell in cells)
