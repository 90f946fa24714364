"""What happens to a record before it is in a batch: checked, placed, appended, or parked in order.

1. Who comes first is appended first. A record that must wait parks: for its topic until metadata names it, then in one line for
   memory and for the next loop turn. While anybody stands in that line, everybody stands in it.
2. What parks is the record; its task wakes in the step in which it is appended or given up. Cancelled, it leaves no trace.
3. Memory is taken by need: the first record's, then steps. What a batch cannot get closes it, and the rest waits.
4. After a bounded number of bytes in one loop turn the next send waits for the next turn, before its append: a tight loop of sends
   starves nobody.

Knows nothing of brokers, requests or answers.
"""

from __future__ import annotations

import time
from asyncio import current_task
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.alarm import Alarm
from aioproducer.engine.hot import Delivery, OpenBatch, Way
from aioproducer.engine.pool import BufferPool, Line, Parked
from aioproducer.engine.result import BatchResult, Home
from aioproducer.errors import BufferExhausted, KafkaError, MetadataTimeout, RecordTooLarge, SendTimeout, UsageError
from aioproducer.records.record_batch import OVERHEAD, encode_headers, size_limit
from aioproducer.serializers import adapt, serialize

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.core.accumulator import Accumulator, Cell, Route
    from aioproducer.core.batch import Batch
    from aioproducer.core.metadata import TopicView
    from aioproducer.engine.waiter import Waiter

__all__ = ["BATCH_OVERHEAD", "Intake"]

BATCH_OVERHEAD: Final = 1024  # bytes of a batch's objects, beside its records
_RECORD_OVERHEAD: Final = 130  # bytes of an unjoined record: eight list slots and two bytes objects
_STEP: Final = 4096  # bytes by which a batch's room grows: 16 KiB up front would let 2,048 quiet partitions hold 32 MiB
_TURN: Final = 65_536  # bytes taken in one loop turn before the next send waits for the next: below a millisecond of appending
_TURN_SECONDS: Final = 0.002  # of appending for those who wait, and of what their tasks then do
_STRIDE: Final = 16  # records between two looks at the clock
_MOST_OVERHEAD: Final = 24  # of a small plain record
_NO_HEADERS: Final = b"\0"
_MAX_TIMESTAMP: Final = 2**63 - 1

_FOR_TOPIC: Final = "metadata of the topic"
_FOR_PARTITION: Final = "the partition to exist"
_FOR_MEMORY: Final = "buffer_memory"


class Intake:
    """Takes records in.

    Args:
        way: what `send` looks at; closed while anybody waits.
        pool: `buffer_memory`.
        want: asks for a topic's metadata.
        turn: sees to a loop turn that drains and serves who waits.
        chance: a random number in [0, 1).
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: AbstractEventLoop,
        way: Way,
        accumulator: Accumulator,
        pool: BufferPool,
        home: Home,
        *,
        want: Callable[[str], None],
        turn: Callable[[], None],
        chance: Callable[[], float],
    ) -> None:
        self.spent = 0
        self._taker: Task[Any] | None = None
        self._config = config
        self._loop = loop
        self._way = way
        self._accumulator = accumulator
        self._pool = pool
        self._home = home
        self._want = want
        self._turn = turn
        self._chance = chance
        self._limit = max(config.batch_size - OVERHEAD, 1)
        self._first = min(_STEP, self._limit, config.buffer_memory - BATCH_OVERHEAD)  # a batch's first room, unless a record needs more
        self._serialize_key = adapt(config.key_serializer)
        self._serialize_value = adapt(config.value_serializer)
        self._is_plain = self._serialize_key is None and self._serialize_value is None and config.partitioner is None
        self._line = Line()
        self._lots: dict[str, Line] = {}
        self._troubles: dict[str, KafkaError] = {}
        self._deadlines: deque[Parked] = deque()
        self._numbers = count()
        self._alarm = Alarm(loop, self._next_deadline, self._on_deadline)

    # In

    def new_turn(self) -> None:
        """A loop turn begins."""
        self.spent = 0
        self._taker = None

    def accept(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery | Parked:
        """Append a record, or park it: then `wait` for it. Raises what the caller did wrong."""
        record = self._checked(topic, value, key, partition, timestamp_ms, headers)
        route = self._accumulator.routes.get(topic)
        if route is None:
            return self._park_for_topic(record, _FOR_TOPIC)
        if self._is_missing(record, route):  # before the line: at its head it would hold up everybody
            return self._park_for_topic(record, _FOR_PARTITION)
        if self._line:
            return self._park(record, _FOR_MEMORY)
        if self._must_pause():
            self._turn()
            return self._park(record, "")
        delivery = self._place(record, route)
        if delivery is not None:
            self._turn()
            return delivery
        self._hurry()
        return self._park(record, _FOR_MEMORY)

    async def wait(self, parked: Parked) -> Delivery:
        """Wait for a parked record. Cancelled: it is not queued, and who stood behind it moves up."""
        try:
            await parked.wait()
        except BaseException:
            self._release_marks()
            self._turn()
            raise
        assert parked.delivery is not None
        return parked.delivery

    def _checked(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Parked:
        if not isinstance(topic, str) or not topic:
            raise UsageError(f"a topic is a non-empty string, not {type(topic).__name__ if not isinstance(topic, str) else repr(topic)}")
        if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool) or partition < 0):
            raise UsageError(f"partition={partition!r} for {topic!r}: it is a number from 0 on, or None")
        if timestamp_ms is not None and (not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= _MAX_TIMESTAMP):
            raise UsageError(f"timestamp_ms={timestamp_ms!r} for {topic!r}: it is whole milliseconds since 1970, or None")
        key = serialize("key", self._serialize_key, topic, headers, key)
        value = serialize("value", self._serialize_value, topic, headers, value)
        encoded = encode_headers(headers) if headers else _NO_HEADERS
        size = size_limit(key, value, encoded)
        self._check_size(topic, size)
        return Parked(topic, value=value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=encoded, size=size - OVERHEAD)

    def _check_size(self, topic: str, size: int) -> None:
        config = self._config
        if size > config.max_request_size:
            raise RecordTooLarge(
                f"a record for {topic!r} takes {size} bytes, more than max_request_size={config.max_request_size}. "
                "Raise it (and the topic's max.message.bytes), or send less."
            )
        if size + BATCH_OVERHEAD > config.buffer_memory:
            raise RecordTooLarge(
                f"a record for {topic!r} takes {size} bytes, more than buffer_memory={config.buffer_memory} holds. Raise it."
            )

    # Placing and appending

    def _place(self, record: Parked, route: Route) -> Delivery | None:
        """Append to the partition it belongs to; None: no memory, or no such partition yet."""
        if record.partition is not None:
            return None if self._is_missing(record, route) else self._append(route.cells[record.partition], record)
        if self._config.partitioner is not None:
            return self._append(route.cells[self._ask_partitioner(record, len(route.cells))], record)
        key = record.key
        if key is None:
            return self._append_sticky(route, record)
        return self._append(route.by_key[key], record)

    @staticmethod
    def _is_missing(record: Parked, route: Route) -> bool:
        return record.partition is not None and record.partition >= len(route.cells)

    def _ask_partitioner(self, record: Parked, partitions: int) -> int:
        assert self._config.partitioner is not None
        try:
            partition = self._config.partitioner(record.key, partitions)
        except Exception as error:
            raise UsageError(f"the partitioner raised {type(error).__name__} for {record.topic!r}") from error
        if not isinstance(partition, int) or not 0 <= partition < partitions:
            raise UsageError(f"the partitioner chose {partition!r} for {record.topic!r}, which has {partitions} partitions")
        return partition

    def _append_sticky(self, route: Route, record: Parked) -> Delivery | None:
        """To the topic's sticky partition while its batch has room, else to another's (KIP-480)."""
        cell = route.sticky
        if cell is not None and cell.current is not None:
            delivery = self._append_open(cell, record)
            if delivery is not None:
                return delivery
            self._accumulator.close(cell)
        led = [other for other in route.cells if other.leader >= 0] or route.cells
        others = [other for other in led if other is not cell] or led
        route.sticky = others[int(self._chance() * len(others))]
        return self._append(route.sticky, record)

    def _append(self, cell: Cell, record: Parked) -> Delivery | None:
        if cell.current is not None:
            delivery = self._append_open(cell, record)
            if delivery is not None:
                return delivery
            self._accumulator.close(cell)  # before its sender waits: who comes between must not go ahead of it
        return self._open(cell, record)

    def _append_open(self, cell: Cell, record: Parked) -> Delivery | None:
        batch, now_ms = cell.current, self._timestamp(record)
        assert batch is not None
        assert batch.open is not None
        delivery: Delivery | None = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        if delivery is None and self._grow(batch, record.size):
            delivery = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        return delivery

    def make_room(self, cell: Cell, key: bytes | None, value: bytes | None) -> bool:
        """Room for a small plain record on the fast way: more for the open batch, or the next batch. False: the slow way."""
        if (type(key) is not bytes and key is not None) or type(value) is not bytes or self._must_pause():
            return False
        size = _MOST_OVERHEAD + (len(key) if key is not None else 0) + len(value)
        if size > self._first or (key is None and cell.current is None):  # without a key the next batch is another partition's
            return False
        if cell.current is not None:
            if self._grow(cell.current, size):
                return True
            if key is None:
                return False
            self._accumulator.close(cell)
        return self._new_batch(cell, self._way.turn_ms, self._first) is not None

    def _must_pause(self) -> bool:
        """Whether this turn took enough in, and the task at hand took its part of it in one go.

        A task that sends once and then waits lets the loop go on by itself: were it parked too, a crowd of those would stay parked.
        """
        task, self._taker = self._taker, current_task(self._loop)
        return self.spent > _TURN and task is self._taker

    def _grow(self, batch: Batch, size: int) -> bool:
        """More room for an open batch, up to `batch_size`; False: it is full, or memory is short."""
        assert batch.open is not None
        left = self._limit - batch.open.granted
        if size > left:
            return False
        step = min(max(size, _STEP, batch.open.granted), left)
        if not self._pool.try_take(step):
            return False
        overhead = (batch.open.count - batch.settled) * _RECORD_OVERHEAD
        self._pool.take(overhead)
        batch.settled = batch.open.count
        batch.credit += step + overhead
        self.spent += step + overhead
        batch.open.grow(step)
        return True

    def _open(self, cell: Cell, record: Parked) -> Delivery | None:
        now_ms = self._timestamp(record)
        batch = self._new_batch(cell, now_ms, max(record.size, self._first))
        if batch is None:
            return None
        assert batch.open is not None
        delivery: Delivery | None = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        assert delivery is not None
        return delivery

    def _new_batch(self, cell: Cell, now_ms: int, room: int) -> Batch | None:
        credit = room + BATCH_OVERHEAD
        if not self._pool.try_take(credit):
            return None
        self.spent += credit
        result = BatchResult(self._home, cell.topic, cell.partition, now_ms)
        return self._accumulator.open(cell, OpenBatch(result, now_ms, room), result, credit=credit, now=self._loop.time())

    def _timestamp(self, record: Parked) -> int:
        if record.timestamp_ms is not None:
            return record.timestamp_ms
        # not `tick`: it calls for another turn, and a record that waits for memory would be tried in each, as fast as the loop turns
        return self._way.turn_ms or int(time.time() * 1000)

    def settle(self, batch: Batch) -> None:
        """A batch closed: what it took beyond its bytes goes back."""
        assert batch.payload is not None
        self.shrink(batch, len(batch.payload) + BATCH_OVERHEAD)

    def shrink(self, batch: Batch, credit: int) -> None:
        """A batch needs no more than `credit` bytes from now on."""
        if batch.credit > credit:
            self._pool.release(batch.credit - credit)
            batch.credit = credit

    # Parking

    def _park(self, record: Parked, reason: str) -> Parked:
        self._stand(self._line, record, reason)
        self._way.fast = {}
        return record

    def _park_for_topic(self, record: Parked, reason: str) -> Parked:
        assert record.topic is not None
        lot = self._lots.setdefault(record.topic, Line())
        self._want(record.topic)
        self._stand(lot, record, reason)
        return record

    def _stand(self, line: Line, record: Parked, reason: str) -> None:
        max_block = self._config.max_block_ms / 1000
        record.park(self._loop, next(self._numbers), reason, self._loop.time() + max_block)
        line.push(record)
        while self._deadlines and not self._deadlines[0].is_waiting:
            self._deadlines.popleft()
        self._deadlines.append(record)
        self._alarm.check()

    def _hurry(self) -> None:
        """Memory is short: nothing lingers until nobody waits."""
        self._accumulator.eager = True
        self._accumulator.hurry()
        self._turn()

    def serve(self) -> None:
        """Append for those in the line, in order, and wake each in its step. Only from a callback of the loop."""
        until, served = self._loop.time() + _TURN_SECONDS, 0
        while (record := self._line.head()) is not None:
            served += 1
            if self.spent > _TURN or (not served % _STRIDE and self._loop.time() > until):
                self._turn()
                return
            waiter = self._serve_one(record)
            if waiter is None:
                record.reason = _FOR_MEMORY
                self._hurry_once()
                return
            self._turn()  # what was appended is drained in the next turn
            self._reopen()
            waiter.wake()
        self._reopen()

    def _hurry_once(self) -> None:
        if not self._accumulator.eager:
            self._hurry()

    def _serve_one(self, record: Parked) -> Waiter | None:
        """Take the head out of the line, appended or given up; None: it must stay."""
        delivery: Delivery | None = None
        error: Exception | None = None
        if record.topic is not None:
            route = self._accumulator.routes[record.topic]
            try:
                delivery = self._place(record, route)
            except UsageError as refused:
                error = refused
            if delivery is None and self._is_missing(record, route):  # the topic was made anew, with fewer partitions
                record.reason = _FOR_PARTITION
                error = self._overdue(record)
            if delivery is None and error is None:
                return None
        self._line.pop()
        return record.leave(delivery, error)

    def _reopen(self) -> None:
        """Nobody waits any more: the way is open."""
        if not self._line:
            self._accumulator.eager = False
            if self._is_plain:
                self._way.fast = self._accumulator.routes

    # Topics

    def waited_for(self) -> set[str]:
        """Topics that somebody waits for."""
        for topic in [topic for topic, lot in self._lots.items() if not lot]:
            del self._lots[topic]
            self._troubles.pop(topic, None)
        return set(self._lots)

    def on_topic(self, topic: TopicView) -> None:
        """The cluster told of a topic: those who wait for it move into the line, or learn why they cannot."""
        lot = self._lots.pop(topic.name, None)
        if topic.error is not None:
            if lot is not None:
                self._refuse(topic, lot)
            return
        if lot is None and topic.name not in self._accumulator.routes:
            return
        self._troubles.pop(topic.name, None)
        route = self._accumulator.install(topic)
        known: list[Parked] = []
        for record in lot.take_all() if lot is not None else ():
            if self._is_missing(record, route) or (record.topic is None and topic.name in self._lots):  # a mark stays behind its records
                self._lots.setdefault(topic.name, Line()).push(record)
                record.reason = _FOR_PARTITION
            else:
                record.reason = ""
                known.append(record)
        self._line.merge(known)  # a key in the line may belong to a partition that others waited for since before
        if self._line:
            self._way.fast = {}
        self._reopen()
        self._turn()

    def _refuse(self, topic: TopicView, lot: Line) -> None:
        assert topic.error is not None
        if topic.error.retriable:
            self._lots[topic.name] = lot
            self._troubles[topic.name] = topic.error
            return
        for record in lot.take_all():
            self._give_up(record, type(topic.error)(topic.error.error, f"topic {topic.name!r} cannot be produced to"))

    def _give_up(self, record: Parked, error: Exception) -> None:
        mark = record.topic is None
        self._loop.call_soon(record.leave(error=None if mark else error).wake)

    # Deadlines and the end

    def _next_deadline(self) -> float | None:
        deadlines = self._deadlines
        while deadlines and not deadlines[0].is_waiting:
            deadlines.popleft()
        return deadlines[0].deadline if deadlines else None

    def _on_deadline(self, now: float) -> None:
        self.serve()  # who can be served at the last moment is
        while (when := self._next_deadline()) is not None and when <= now:
            record = self._deadlines.popleft()
            self._give_up(record, self._overdue(record))
        self._release_marks()
        self._turn()

    def _overdue(self, record: Parked) -> SendTimeout:
        waited = f"max_block_ms={self._config.max_block_ms:g}"
        if record.reason in (_FOR_TOPIC, _FOR_PARTITION):
            assert record.topic is not None
            trouble = self._troubles.get(record.topic)
            route = self._accumulator.routes.get(record.topic)
            what = f"{record.topic!r} was not found in the cluster's metadata"
            if route is not None:
                what = f"{record.topic!r} has {len(route.cells)} partitions, and partition {record.partition} did not come"
            error: SendTimeout = MetadataTimeout(
                f"{what} within {waited}" + (f" ({trouble})" if trouble else "") + ". The record was not queued."
            )
            error.__cause__ = trouble
            return error
        return BufferExhausted(
            f"no memory for {record.size} bytes within {waited}: {self._pool.available} of {self._pool.size} bytes of buffer_memory are free. "
            "The record was not queued. Brokers are slower than the sends: send less, or raise buffer_memory."
        )

    def mark(self) -> list[Parked]:
        """Marks at the end of every line; each is served once all before it have been."""
        marks = []
        for line in (self._line, *self._lots.values()):
            if line:
                mark = Parked(None)
                mark.park(self._loop, next(self._numbers), "", 0.0)
                line.push(mark)
                marks.append(mark)
        return marks

    def _release_marks(self) -> None:
        """Nobody stands before the marks at the head of a topic's lot: who waits for them need not wait for the topic."""
        for lot in self._lots.values():
            while (record := lot.head()) is not None and record.topic is None:
                self._loop.call_soon(lot.pop().leave().wake)

    @property
    def is_bursting(self) -> bool:
        """Whether a task that fills batches without pause goes on in the next turn, memory allowing."""
        head = self._line.head()
        return head is not None and not head.reason

    @property
    def has_line(self) -> bool:
        """Whether anybody waits for memory or for the next turn."""
        return bool(self._line)

    @property
    def waiting(self) -> int:
        """Records that are parked."""
        return sum(record.topic is not None for line in (self._line, *self._lots.values()) for record in line)

    def shut(self) -> None:
        """No new record is taken in; those that wait are still served."""
        self._way.fast = {}
        self._is_plain = False

    def close(self, error: Callable[[], Exception]) -> None:
        """Nothing is taken in any more; who waits is told why."""
        self.shut()
        self._alarm.stop()
        for line in (self._line, *self._lots.values()):
            for record in line.take_all():
                self._give_up(record, error())
        self._lots.clear()
