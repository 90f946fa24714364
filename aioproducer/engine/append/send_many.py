"""`send_many`: queues records in bulk, column by column, if none must wait; else one at a time by `send` itself.

1. A chunk of plain records goes into its partitions' batches in one step of the event loop; each partition's records keep their order.
2. A record that is not plain (headers, a timestamp, a serializer, a large value) is sent alone. So is a record that must wait (metadata,
   memory, the next event-loop iteration). The queued records are thereby always the first ones.
3. A chunk is as much as one event-loop iteration may append. Then the task waits for the next slice, as every send does.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterable, Iterable
from itertools import islice
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.core.record_validation import check_records
from aioproducer.engine.chosen_build import measured
from aioproducer.engine.delivery.deliveries import Deliveries
from aioproducer.interfaces import USER_FAILURES
from aioproducer.model import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioproducer.config import ProducerConfig
    from aioproducer.core.partition_queues import PartitionQueue, TopicRouting
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.loop_budget import LoopBudget
    from aioproducer.engine.append.record_accumulator import RecordAccumulator
    from aioproducer.engine.chosen_build import Delivery, FastPath
    from aioproducer.engine.tasks.supervisor import GuardedLoop

# Bytes of records in one chunk: a fraction of a millisecond.
_CHUNK: Final = 131_072
# Records in a chunk, at least, and in the first chunk, because the size of the records is not known yet.
_FEWEST: Final = 32
# Records in a chunk, at most.
_MOST: Final = 2048
# Seconds that the caller's iterable may hold the event loop; then less is taken from it at a time.
_SECONDS: Final = 0.002
# Bytes of a key and value that are sent in bulk; above it a record costs little beside its bytes.
_LONGEST: Final = 8192
# Bytes of a batch's and a record's overhead, at most.
_ROOM: Final = 128
# The number of records in a run.
_count: Final = itemgetter(2)


class _Columns(NamedTuple):
    """Holds a chunk of plain records by column. A column is None if no record has it."""

    values: Sequence[bytes]
    keys: Sequence[bytes] | None
    partitions: Sequence[int] | None
    # Bytes of a whole chunk, and of its longest record at most.
    used: int
    longest: int

    def after(self, at: int) -> _Columns:
        """Return the columns of the records from `at` on."""
        if not at:
            return self
        values, keys, partitions, *sizes = self
        return _Columns(
            values[at:],
            None if keys is None else keys[at:],
            None if partitions is None else partitions[at:],
            *sizes,
        )

    def queues(self, routing: TopicRouting) -> Sequence[PartitionQueue] | None:
        """Return the partition of each record. Empty: the sticky partitions. None: a record names a partition that does not exist."""
        if self.partitions is not None:
            if not 0 <= min(self.partitions) <= max(self.partitions) < len(routing.queues):
                return None
            return [routing.queues[partition] for partition in self.partitions]
        return () if self.keys is None else list(map(routing.by_key.__getitem__, self.keys))


class SendMany:
    """Sends many records, for one producer.

    Args:
        send: the producer's `send`, for one record.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: GuardedLoop,
        fast_path: FastPath,
        loop_budget: LoopBudget,
        appender: Appender,
        accumulator: RecordAccumulator,
        send: Callable[..., Awaitable[Delivery]],
    ) -> None:
        self._loop = loop
        self._singly = False
        self._fast_path = fast_path
        self._loop_budget = loop_budget
        self._appender = appender
        self._accumulator = accumulator
        self._send = send
        self._longest = min(
            _LONGEST, int(config.max_request_size) - _ROOM, int(config.batch_size) - _ROOM
        )

    async def send(
        self, topic: str, records: Iterable[Any] | AsyncIterable[Any], *, singly: bool
    ) -> Deliveries:
        """Queue all records. Returns their deliveries. An error that it raises carries the deliveries of the queued records.

        `singly`: functions of the user's are called for each record, which is therefore sent alone.
        """
        deliveries = Deliveries()
        try:
            if isinstance(records, AsyncIterable):
                async for record in records:
                    await self._send_one(topic, record, deliveries)
            else:
                check_records(records)
                await self.send_chunks(topic, records, deliveries, singly=singly)
        # A cancellation, too: the caller gets the deliveries of what is queued.
        except BaseException as error:
            deliveries.attach(error)
            raise
        return deliveries

    async def send_chunks(
        self, topic: str, records: Iterable[Any], deliveries: Deliveries, *, singly: bool
    ) -> None:
        """Queue all records and add their deliveries to `deliveries`."""
        self._singly = singly
        iterator = iter(records)
        size = _FEWEST
        while True:
            chunk: list[Any] = []
            trouble: BaseException | None = None
            began = self._loop.time()
            try:
                chunk.extend(islice(iterator, size))
            # The caller's own, raised below: what came before it is sent.
            except USER_FAILURES as error:
                trouble = error
            is_slow = self._loop.time() - began > _SECONDS
            used = await self._send_chunk(topic, chunk, deliveries)
            if trouble is not None:
                raise trouble
            if len(chunk) < size:
                return
            if is_slow:
                self._loop_budget.end()
                size = max(size // 2, 1)
            else:
                size = min(max(_CHUNK // (used // len(chunk) + 1), _FEWEST), _MOST, size * 4)

    async def _send_chunk(self, topic: str, chunk: list[Any], deliveries: Deliveries) -> int:
        """Queue a chunk. Returns its bytes, 0 if that is not known."""
        columns = _columns(chunk)
        used = columns.used if columns is not None else 0
        if columns is not None and (
            columns.longest > self._longest or self._singly or not isinstance(topic, str)
        ):
            columns = None
        at = 0
        while at < len(chunk):
            if self._loop_budget.must_pause():
                await self._accumulator.next_slice()
            sent: int = (
                self._loop.step(self._send_bulk, topic, columns.after(at), deliveries)
                if columns is not None
                else 0
            )
            if not sent:
                await self._send_one(topic, chunk[at], deliveries)
            at += sent or 1
        return used

    async def _send_one(self, topic: str, record: Any, deliveries: Deliveries) -> None:
        value, key, partition, timestamp_ms, headers = (
            record if type(record) is Record else (record, None, None, None, ())
        )
        delivery = await self._send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        deliveries.add_one(delivery._result, delivery.index)

    def _send_bulk(self, topic: str, columns: _Columns, deliveries: Deliveries) -> int:
        """Queue all records or the first ones. Returns how many, 0 if one would have to wait, or its partition does not exist."""
        routing: TopicRouting | None = self._fast_path.fast.get(topic)
        queues = columns.queues(routing) if routing is not None else None
        if routing is None or queues is None:
            return 0
        numbers = {queue: number for number, queue in enumerate(dict.fromkeys(queues))}
        count = len(columns.values)
        if not self._appender.takes_freely(routing, numbers) or not self._appender.room.is_there(
            columns.used, count, max(len(numbers), 1)
        ):
            return 0
        if len(numbers) <= 1:
            runs = self._appender.append_run(
                routing, queues[0] if queues else None, columns.keys, columns.values
            )
            count = sum(map(_count, runs))
            if count:
                deliveries.add(count, [runs])
        else:
            picks = list(map(numbers.__getitem__, queues))
            deliveries.add(
                count,
                self._append_groups(routing, list(numbers), picks, columns),
                array("H", picks),
            )
        return count

    def _append_groups(
        self,
        routing: TopicRouting,
        queues: Sequence[PartitionQueue],
        picks: Sequence[int],
        columns: _Columns,
    ) -> list[list[Any]]:
        """Append the records of each partition in their order. Returns the runs of each partition."""
        places: list[list[int]] = [[] for _ in queues]
        put = [some.append for some in places]
        for at, number in enumerate(picks):
            put[number](at)
        keys = columns.keys
        return [
            self._appender.append_run(
                routing,
                queue,
                None if keys is None else _some(some, keys),
                _some(some, columns.values),
            )
            for queue, some in zip(queues, places, strict=True)
        ]


def _some(places: Sequence[int], column: Sequence[bytes]) -> Sequence[bytes]:
    return itemgetter(*places)(column) if len(places) > 1 else [column[places[0]]]


def _columns(chunk: list[Any]) -> _Columns | None:
    """Return the columns of plain records. None: not all records are plain, or not all have the same columns."""
    if not chunk or type(chunk[0]) is not Record:
        sizes = measured(chunk)
        return None if sizes is None else _Columns(chunk, None, None, *sizes)
    if set(map(type, chunk)) != {Record}:
        return None
    values, *others, headers = zip(*chunk, strict=True)
    keys, partitions, timestamps = map(_present, others)
    sizes, key_sizes = measured(values), (0, 0) if keys is None else measured(keys)
    is_plain = timestamps is None and set(map(type, headers)) == {tuple} and not any(headers)
    if (
        not is_plain
        or sizes is None
        or key_sizes is None
        or (partitions is not None and set(map(type, partitions)) != {int})
    ):
        return None
    used, longest = map(sum, zip(sizes, key_sizes, strict=True))
    return _Columns(values, keys, partitions, used, longest)


def _present(column: Sequence[Any]) -> Sequence[Any] | None:
    """Return the column, or None if no record has it."""
    # Not `count(None)`: it compares each item with None by `==`, which user code may define.
    return None if set(map(type, column)) == {NoneType} else column
