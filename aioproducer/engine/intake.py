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
from collections import Counter, deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.core import partitioner
from aioproducer.engine.deliveries import Deliveries
from aioproducer.engine.hot import Delivery, OpenBatch, Way, make_delivery
from aioproducer.engine.pool import BufferPool, Line, Parked
from aioproducer.engine.ready import ReadyBatch
from aioproducer.engine.result import BatchResult, Home
from aioproducer.errors import BufferExhausted, KafkaError, MetadataTimeout, RecordTooLarge, SendTimeout, UsageError, WouldBlock
from aioproducer.model import Compression
from aioproducer.records.record_batch import OVERHEAD, encode_headers, size_limit
from aioproducer.serializers import adapt, serialize

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Sequence

    from aioproducer.config import ProducerConfig
    from aioproducer.core.accumulator import Accumulator, Cell, Route
    from aioproducer.core.batch import Batch
    from aioproducer.core.metadata import TopicView
    from aioproducer.engine.alarm import Alarm
    from aioproducer.engine.deliveries import Run
    from aioproducer.engine.waiter import Waiter
    from aioproducer.records.ratios import CompressionRatios

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
_MAX_NAME: Final = 2**15 - 1  # bytes of a topic's name that a request can carry

_FOR_TOPIC: Final = "metadata of the topic"
_FOR_PARTITION: Final = "the partition to exist"
_FOR_MEMORY: Final = "buffer_memory"
_FOR_OTHERS: Final = "records before it"
_MOST_REASONS: Final = 20  # that are told of
_FOR_TURN: Final = "the next turn of the loop"
_ADVICE: Final = {
    _FOR_TOPIC: ", which is asked for now: `await producer.partitions_for(...)` first",
    _FOR_PARTITION: ", which is asked for now",
    _FOR_MEMORY: ", which is used up: send less, or raise it",
    _FOR_OTHERS: ", which wait for memory or for the next turn of the loop",
    _FOR_TURN: ": this one took its part. Let the loop go on, say by `await asyncio.sleep(0)`",
}


def check_topic(topic: object) -> None:
    """Raise UsageError unless it can name a topic."""
    if not isinstance(topic, str) or not topic:
        raise UsageError(f"a topic is a non-empty string, not {type(topic).__name__ if not isinstance(topic, str) else repr(topic)}")
    if not topic.isascii() or len(topic) > _MAX_NAME:  # brokers allow less; what no request can carry would spoil that of the others
        size = len(topic.encode(errors="surrogatepass"))
        if size > _MAX_NAME or any("\ud800" <= character <= "\udfff" for character in topic):
            raise UsageError(f"{topic[:20]!r}... names no topic: up to 249 of a-z A-Z 0-9 . _ - do")


def _shown(number: object) -> object:
    """What stands where a number belongs: not the thing itself, which may be a key or a value in the wrong place."""
    return number if isinstance(number, (int, float)) else type(number).__name__


def _check_partition(topic: str, partition: object) -> None:
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool) or partition < 0):
        raise UsageError(f"partition={_shown(partition)} for {topic!r}: it is a number from 0 on, or None")


class Intake:
    """Takes records in.

    Args:
        way: what `send` looks at; closed while anybody waits.
        pool: `buffer_memory`.
        want: asks for a topic's metadata.
        trouble: why nobody answers such questions now, if so.
        turn: sees to a loop turn that drains and serves who waits.
        ratios: how far topics compress: a batch takes what should become `batch_size`.
        chance: a random number in [0, 1).
        alarm: makes one.
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
        trouble: Callable[[], KafkaError | None],
        turn: Callable[[], None],
        ratios: CompressionRatios,
        chance: Callable[[], float],
        alarm: Callable[[Callable[[], float | None], Callable[[float], None]], Alarm],
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
        self._trouble = trouble
        self._turn = turn
        self._chance = chance
        self._limit = max(config.batch_size - OVERHEAD, 1)
        self._most = max(self._limit, config.max_request_size - OVERHEAD)
        self._codec = cast("Compression", config.compression_type)
        self._ratios = ratios
        self._first = min(_STEP, self._limit, config.buffer_memory - BATCH_OVERHEAD)  # a batch's first room, unless a record needs more
        self._serialize_key = adapt(config.key_serializer)
        self._serialize_value = adapt(config.value_serializer)
        self._partitioner = partitioner.adapt(config.partitioner)
        is_kafkas = self._partitioner is None and not config.partitioner_ignore_keys
        self._is_plain = self._serialize_key is None and self._serialize_value is None and is_kafkas
        self._line = Line()
        self._serving_ms = 0  # the time of all that `serve` appends at once: a time of its own for each record costs a microsecond
        self._lots: dict[str, Line] = {}
        self._asked: set[str] = set()  # topics that somebody would send to, and does not wait for
        self._troubles: dict[str, KafkaError] = {}
        self._deadlines: deque[Parked] = deque()
        self._numbers = count()
        self._alarm = alarm(self._next_deadline, self._on_deadline)

    # In

    def new_turn(self) -> None:
        """A loop turn begins."""
        self.spent = 0
        self._taker = None

    def accept(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery | Parked:
        """Append a record, or park it: then `wait` for it. Raises what the caller did wrong."""
        return self.take_in(self._checked(topic, value, key, partition, timestamp_ms, headers))

    def accept_now(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery:
        """Append a record, or raise WouldBlock; a topic that is not known is asked for. Raises what the caller did wrong."""
        record = self._checked(topic, value, key, partition, timestamp_ms, headers)
        obstacle = self._try(record)
        if obstacle is None:
            assert record.delivery is not None
            return record.delivery
        if obstacle in (_FOR_TOPIC, _FOR_PARTITION):
            self._asked.add(topic)
            self._want(topic)
        elif obstacle is _FOR_MEMORY:
            self._hurry()
        raise WouldBlock(f"a record for {topic!r} would wait for {obstacle}{_ADVICE[obstacle]}. It was not queued.")

    def take_in(self, record: Parked) -> Delivery | Parked:
        """Append what was checked, or park it."""
        obstacle = self._try(record)
        if obstacle is None:
            assert record.delivery is not None
            return record.delivery
        if obstacle in (_FOR_TOPIC, _FOR_PARTITION):
            return self._park_for_topic(record, obstacle)
        if obstacle is _FOR_MEMORY:
            self._hurry()
        self._turn()
        return self._park(record, "" if obstacle is _FOR_TURN else _FOR_MEMORY)

    def _try(self, record: Parked) -> str | None:
        """Append; or what it would have to wait for."""
        assert record.topic is not None
        route = self._accumulator.routes.get(record.topic)
        if route is None:
            return _FOR_TOPIC
        if self._is_missing(record, route):  # before the line: at its head it would hold up everybody
            return _FOR_PARTITION
        if self._line:
            return _FOR_OTHERS
        if self.must_pause():
            return _FOR_TURN
        record.delivery = self._place(record, route)
        if record.delivery is None:
            return _FOR_MEMORY
        self._turn()
        return None

    async def wait(self, parked: Parked) -> Delivery:
        """Wait for a parked record. Cancelled: it is not queued, and who stood behind it moves up."""
        await self._wait(parked)
        assert parked.delivery is not None
        return parked.delivery

    async def _wait(self, parked: Parked) -> None:
        try:
            await parked.wait()
        except BaseException:
            self._release_marks()
            self._turn()
            raise

    def create_batch(self, topic: str, partition: int) -> ReadyBatch:
        """An empty batch for the user to fill."""
        check_topic(topic)
        _check_partition(topic, partition)
        if partition is None:
            raise UsageError(f"a batch for {topic!r} belongs to one partition: name it")
        return ReadyBatch(topic, partition, self._home, self._limit, self._checked)

    async def send_batch(self, batch: ReadyBatch) -> Deliveries:
        """Queue a batch that the user filled; waits as `wait` does."""
        if not isinstance(batch, ReadyBatch) or not batch.is_of(self._home):
            raise UsageError("send_batch takes what create_batch of this producer gave")
        if batch.is_sent or not len(batch):
            raise UsageError(f"{batch!r} {'was sent before' if batch.is_sent else 'is empty'}")
        batch.is_sent = True
        size = min(batch.size + BATCH_OVERHEAD, self._pool.size)
        record = Parked(batch.topic, partition=batch.partition, size=size, whole=batch)
        try:
            taken = self.take_in(record)
            if isinstance(taken, Parked):
                await self._wait(taken)
        except BaseException:
            batch.is_sent = False
            raise
        deliveries = Deliveries()
        deliveries.add(batch.records.count, [[[batch.result, 0, batch.records.count]]])
        return deliveries

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has. Waits for its metadata as `wait` does."""
        check_topic(topic)
        if topic not in self._accumulator.routes:
            question = Parked(topic, asks=True)
            self._park_for_topic(question, _FOR_TOPIC)
            await self._wait(question)
        return len(self._accumulator.routes[topic].cells)

    def _checked(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Parked:
        check_topic(topic)
        _check_partition(topic, partition)
        if timestamp_ms is not None and (not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= _MAX_TIMESTAMP):
            raise UsageError(f"timestamp_ms={_shown(timestamp_ms)} for {topic!r}: it is whole milliseconds since 1970, or None")
        key = serialize("key", self._serialize_key, topic, headers, key)
        value = serialize("value", self._serialize_value, topic, headers, value)
        if headers and self._config.message_format_max < 2:
            raise UsageError(
                f"headers need record format 2, and message_format_max={self._config.message_format_max}. Raise it, or send none."
            )
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
        if record.whole is not None:
            return None if self._is_missing(record, route) else self._add_whole(route.cells[record.whole.partition], record)
        if record.partition is not None:
            return None if self._is_missing(record, route) else self._append(route.cells[record.partition], record)
        if self._partitioner is not None:
            return self._append(route.cells[self._ask_partitioner(record, route, self._partitioner)], record)
        key = record.key
        if key is None or self._config.partitioner_ignore_keys:
            return self._append_sticky(route, record)
        return self._append(route.by_key[key], record)

    @staticmethod
    def _is_missing(record: Parked, route: Route) -> bool:
        return record.partition is not None and record.partition >= len(route.cells)

    @staticmethod
    def _ask_partitioner(record: Parked, route: Route, choose: partitioner.Choose) -> int:
        """Once for each record and route, however often memory is short: who counts them would count wrong."""
        if record.chosen is None or record.chosen[0] is not route:
            chosen = partitioner.choose(choose, route.topic, record.key, record.value, len(route.cells), route.available)
            record.chosen = route, chosen
        return record.chosen[1]

    def _append_sticky(self, route: Route, record: Parked) -> Delivery | None:
        """To the topic's sticky partition while its batch has room, else to another's (KIP-480)."""
        cell = route.sticky
        if cell is not None and cell.current is not None:
            delivery = self._append_open(cell, record)
            if delivery is not None:
                return delivery
            self._accumulator.close(cell)
        return self._append(self._sticky(route), record)

    def _sticky(self, route: Route) -> Cell:
        """Where records without a key go on: the sticky partition while it has a batch, else another."""
        cell = route.sticky
        if cell is not None and cell.current is not None:
            return cell
        led = [other for other in route.cells if other.leader >= 0] or route.cells
        others = [other for other in led if other is not cell] or led
        route.sticky = others[int(self._chance() * len(others))]
        return route.sticky

    def _add_whole(self, cell: Cell, record: Parked) -> Delivery | None:
        """A batch that the user filled goes behind what its partition has."""
        whole = record.whole
        assert whole is not None
        if not self._pool.try_take(record.size):
            return None
        self.spent += record.size
        self._accumulator.close(cell)
        self._accumulator.open(cell, whole.records, whole.result, credit=record.size, now=self._loop.time())
        self._accumulator.close(cell)
        return make_delivery(whole.result, 0)

    def _append(self, cell: Cell, record: Parked) -> Delivery | None:
        if cell.current is not None:
            delivery = self._append_open(cell, record)
            if delivery is not None:
                return delivery
            self._accumulator.close(cell)  # before its sender waits: who comes between must not go ahead of it
        return self._open(cell, record)

    def append_run(self, route: Route, cell: Cell | None, keys: Sequence[bytes] | None, values: Sequence[bytes]) -> list[Run]:
        """Plain records to one partition, or without one to the sticky ones, at once: who calls has seen that `has_room`."""
        now_ms = self._way.turn_ms or self._way.tick()
        runs: list[Run] = []
        at = 0
        while at < len(values):
            target = self._sticky(route) if cell is None else cell
            size = _MOST_OVERHEAD + len(values[at]) + (len(keys[at]) if keys is not None else 0)
            batch = target.current or self._new_batch(
                target, now_ms, min(self._limit, max(self._first, size * (len(values) - at))), force=True
            )
            assert batch is not None
            assert batch.open is not None
            first = batch.open.count
            count = batch.open.append_many(now_ms, keys, values, at)
            if count:
                runs.append([batch.result, first, count])
                at += count
            elif not self._grow(batch, size):
                self._accumulator.close(target)
        return runs

    def has_room(self, size: int, records: int, partitions: int) -> bool:
        """Whether there is memory for so many records, of so many bytes, in so many partitions, whatever batches are open."""
        batches = partitions + size // self._limit + 1
        return self._pool.available >= size + records * (_MOST_OVERHEAD + _RECORD_OVERHEAD) + batches * (self._first + BATCH_OVERHEAD)

    def _append_open(self, cell: Cell, record: Parked) -> Delivery | None:
        batch, now_ms = cell.current, self._timestamp(record)
        assert batch is not None
        assert batch.open is not None
        delivery: Delivery | None = None
        if record.headers is _NO_HEADERS:  # mostly a plain record, which is half the work
            delivery = batch.open.append(now_ms, record.key, record.value)
        if delivery is None:
            delivery = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        if delivery is None and self._grow(batch, record.size):
            delivery = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        return delivery

    def make_room(self, cell: Cell, key: bytes | None, value: bytes | None) -> bool:
        """Room for a small plain record on the fast way: more for the open batch, or the next batch. False: the slow way."""
        if (type(key) is not bytes and key is not None) or type(value) is not bytes or self.must_pause():
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

    def must_pause(self) -> bool:
        """Whether this turn took enough in, and the task at hand took its part of it in one go.

        A task that sends once and then waits lets the loop go on by itself: were it parked too, a crowd of those would stay parked.
        """
        task, self._taker = self._taker, current_task(self._loop)
        return self.spent > _TURN and task is self._taker

    def end_turn(self) -> None:
        """This turn took enough in, whatever its bytes: this task goes on in the next one."""
        self.spent = max(self.spent, _TURN + 1)

    async def next_turn(self) -> None:
        """Wait for the next turn, in the line in which every send stands."""
        mark = Parked(None)
        self._turn()
        await self._wait(self._park(mark, ""))

    def _grow(self, batch: Batch, size: int) -> bool:
        """More room for an open batch, up to `batch_size`; False: it is full, or memory is short."""
        assert batch.open is not None
        left = self._room(batch.cell.topic) - batch.open.granted
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

    def _room(self, topic: str) -> int:
        """Bytes of records that a batch takes before compression."""
        return self._limit if self._codec is Compression.NONE else min(self._ratios.room(topic, self._codec, self._limit), self._most)

    def _open(self, cell: Cell, record: Parked) -> Delivery | None:
        now_ms = self._timestamp(record)
        batch = self._new_batch(cell, now_ms, max(record.size, self._first))
        if batch is None:
            return None
        assert batch.open is not None
        delivery: Delivery | None = batch.open.append_record(now_ms, record.key, record.value, record.headers)
        assert delivery is not None
        return delivery

    def _new_batch(self, cell: Cell, now_ms: int, room: int, *, force: bool = False) -> Batch | None:
        credit = room + BATCH_OVERHEAD
        if force:
            self._pool.take(credit)
        elif not self._pool.try_take(credit):
            return None
        self.spent += credit
        result = BatchResult(self._home, cell.topic, cell.partition, now_ms)
        return self._accumulator.open(cell, OpenBatch(result, now_ms, room), result, credit=credit, now=self._loop.time())

    def _timestamp(self, record: Parked) -> int:
        if record.timestamp_ms is not None:
            return record.timestamp_ms
        # not `tick`: it calls for another turn, and a record that waits for memory would be tried in each, as fast as the loop turns
        return self._way.turn_ms or self._serving_ms or int(time.time() * 1000)

    def settle(self, batch: Batch) -> None:
        """A batch closed: what it took beyond its bytes goes back."""
        assert batch.payload is not None
        self.shrink(batch, len(batch.payload) + BATCH_OVERHEAD)

    def shrink(self, batch: Batch, credit: int) -> None:
        """A batch needs no more than `credit` bytes from now on; more, if an older broker's format made it grow."""
        if batch.credit > credit:
            self._pool.release(batch.credit - credit)
            batch.credit = credit
        elif batch.magic < 2:
            self._pool.take(credit - batch.credit)
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
        self._serving_ms = int(time.time() * 1000)
        try:
            self._serve()
        finally:
            self._serving_ms = 0

    def _serve(self) -> None:
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
        return {*self._lots, *self._asked}

    def on_topic(self, topic: TopicView) -> None:
        """The cluster told of a topic: those who wait for it move into the line, or learn why they cannot."""
        lot = self._lots.pop(topic.name, None)
        is_wanted = lot is not None or topic.name in self._asked or topic.name in self._accumulator.routes
        self._asked.discard(topic.name)
        if topic.error is not None:
            if lot is not None:
                self._refuse(topic, lot)
            return
        if not is_wanted:
            return
        self._troubles.pop(topic.name, None)
        route = self._accumulator.install(topic)
        known: list[Parked] = []
        for record in lot.take_all() if lot is not None else ():
            if record.asks:
                self._loop.call_soon(record.leave().wake)
            elif self._is_missing(record, route) or (record.topic is None and topic.name in self._lots):  # a mark stays behind its records
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
            trouble = self._trouble() or self._troubles.get(record.topic)
            route = self._accumulator.routes.get(record.topic)
            what = f"{record.topic!r} was not found in the cluster's metadata"
            if route is not None:
                what = f"{record.topic!r} has {len(route.cells)} partitions, and partition {record.partition} did not come"
            error: SendTimeout = MetadataTimeout(
                f"{what} within {waited}" + (f" ({trouble})" if trouble else "") + ("." if record.asks else ". The record was not queued.")
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
        return sum(record.topic is not None and not record.asks for line in (self._line, *self._lots.values()) for record in line)

    def explain(self) -> list[str]:
        """What the parked records wait for, and how many for each."""
        reasons = Counter(
            f"{record.reason or _FOR_TURN} {record.topic!r}"
            if record.reason in (_FOR_TOPIC, _FOR_PARTITION)
            else record.reason or _FOR_TURN
            for line in (self._line, *self._lots.values())
            for record in line
            if record.topic is not None
        )
        return [f"  {number} sends wait for {reason}" for reason, number in reasons.most_common(_MOST_REASONS)]

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
