"""Batches of column rows: a window is queued as whole batches, all of it in one step, or not at all.

1. A window waits as one record does: for its topic, for memory, for the next event-loop iteration, in the wait queue. Its rows are
   encoded only once there is memory for them, so the queued rows are always the first ones.
2. Its batches are queued behind those of their partitions, whereby the open batches there are closed. Rows without a key go where records
   without a key go, batch by batch. In a window that also has rows with keys, they all go to one partition and keep their order there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.build import COLUMNS, extension
from aioproducer.core.record_validation import BATCH_OVERHEAD
from aioproducer.engine.chosen_build import ProduceRequestResult, make_delivery
from aioproducer.engine.memory import wait_reasons
from aioproducer.records.encoded_rows import BadRow

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues, TopicRouting
    from aioproducer.engine.chosen_build import Delivery, DeliveryContext
    from aioproducer.engine.delivery.deliveries import Deliveries, Run
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.memory.partition_quota import PartitionQuota
    from aioproducer.engine.memory.pending_send import PendingSend
    from aioproducer.engine.tasks.supervisor import GuardedLoop
    from aioproducer.records.arrow import Piece
    from aioproducer.records.encoded_rows import Encoded

# In plain Python there are no windows: rows are sent one by one.
_columns: Any = extension(COLUMNS).module


# Bytes of records in a batch.
_LARGEST: Final = 2**31 - 1


class ColumnWindow:
    """Holds some rows of a piece of columns.

    Args:
        at, rows: the first row, and the number of rows.
        size: bytes that the rows take as records, at most.
        partition: the partition of all rows. None: by their keys if `keyed`, else the sticky partitions. In a piece that has partitions, the
            highest one of the rows: the window waits until that exists.
        moment: the timestamp of rows that have none of their own. None: the time when they are queued.
    """

    __slots__ = (
        "_moment",
        "_picks",
        "_queues",
        "_routing",
        "_runs",
        "at",
        "keyed",
        "partition",
        "piece",
        "rows",
        "size",
    )

    def __init__(
        self,
        piece: Piece,
        at: int,
        rows: int,
        size: int,
        *,
        partition: int | None,
        keyed: bool,
        moment: int | None,
    ) -> None:
        self.piece: Piece = piece
        self.at: int = at
        self.rows: int = rows
        self.size: int = size
        self.partition: int | None = partition
        self.keyed: bool = keyed
        self._moment = moment
        self._routing: TopicRouting | None = None
        # The group of each row, and the partition of each group.
        self._picks: array[int] | None = None
        self._queues: Sequence[PartitionQueue | None] = ()
        self._runs: list[list[Run]] = []

    def queues(
        self, routing: TopicRouting, sticky: Callable[[TopicRouting, int], PartitionQueue]
    ) -> Sequence[PartitionQueue | None]:
        """Return the partition of each group of rows; None: the sticky partitions at the time when the rows are queued."""
        if self._routing is not routing:
            self._routing = routing
            self._picks, self._queues = self._grouped(routing, sticky)
        return self._queues

    def _grouped(
        self, routing: TopicRouting, sticky: Callable[[TopicRouting, int], PartitionQueue]
    ) -> tuple[array[int] | None, Sequence[PartitionQueue | None]]:
        if self.partition is not None and self.piece.partitions is None:
            return None, [routing.queues[self.partition]]
        if not self.keyed and self.piece.partitions is None:
            return None, [None]
        try:
            picks, partitions = self._assigned(len(routing.queues), -1)
            # All rows without a key go to one sticky partition: beside rows with keys they keep their order.
            if -1 in partitions and len(partitions) > 1:
                nobodys = sticky(routing, self.size // len(partitions)).partition
                picks, partitions = self._assigned(len(routing.queues), nobodys)
        except BadRow as error:
            raise self.piece.bad(error) from None
        return picks, [
            None if partition < 0 else routing.queues[partition] for partition in partitions
        ]

    def _assigned(self, partitions: int, nobodys: int) -> Any:
        return _columns.assign(
            self.piece.keys if self.keyed else None,
            self.at,
            self.rows,
            partitions,
            nobodys,
            self.piece.partitions,
        )

    def need(self, room: int) -> int:
        """Return the most bytes of memory that the window takes, in batches of `room` bytes, once its partition queues are known."""
        return self.size + (self.size // room + len(self._queues)) * BATCH_OVERHEAD

    def encode(self, now_ms: int, room: int) -> list[list[Encoded]]:
        """Encode the rows as batches of `room` bytes. Returns those of each group.

        Raises:
            UsageError: a row cannot be a record.
        """
        piece, now_ms = self.piece, now_ms if self._moment is None else self._moment
        # The rows fitted into `size` bytes when they were measured.
        most = min(self.size, _LARGEST)
        columns = piece.values, piece.keys, piece.moments
        try:
            batches: list[list[Encoded]] = _columns.encode(
                *columns,
                now_ms,
                self.at,
                self.rows,
                self._picks,
                len(self._queues),
                room,
                most,
                piece.headers,
            )
        except BadRow as error:
            raise piece.bad(error) from None
        return batches

    def queue(
        self,
        batches: Sequence[Sequence[Encoded]],
        add: Callable[[PartitionQueue | None, Encoded], ProduceRequestResult],
    ) -> Delivery:
        """Queue the batches of each group by calling `add`. Returns the delivery of the first record."""
        self._runs = [
            [[add(queue, encoded), 0, encoded.rows] for encoded in some]
            for queue, some in zip(self._queues, batches, strict=True)
        ]
        return make_delivery(self._runs[0][0][0], 0)

    @property
    def is_queued(self) -> bool:
        """Return whether the rows are in batches."""
        return bool(self._runs)

    def tell(self, deliveries: Deliveries) -> None:
        """Add the deliveries of the queued rows to `deliveries`."""
        deliveries.add(self.rows, self._runs, self._picks if len(self._runs) > 1 else None)


class _Sealed:
    """Holds a batch that is encoded before it is opened (an `interfaces.OpenBatch`)."""

    __slots__ = ("_encoded", "_result", "count")

    def __init__(self, encoded: Encoded, result: ProduceRequestResult) -> None:
        self._encoded = encoded
        self._result = result
        self.count = encoded.rows

    def close(self) -> tuple[bytes, int, int]:
        encoded, result = self._encoded, self._result
        result.count = encoded.rows
        result.record_sizes = (encoded.key_sizes, encoded.value_sizes, encoded.moments)
        return encoded.payload, encoded.base, encoded.latest


class ColumnBatches:
    """Queues the windows of one producer in its partition queues.

    Args:
        shares: the quota of the memory that a partition may hold; None: it may hold all.
        sticky: returns the partition for so many bytes without a key, of a topic routing.
        room: returns the bytes of records in a batch of a topic.
        is_told: a window for an avoided partition fails at once.
    """

    def __init__(
        self,
        loop: GuardedLoop,
        partition_queues: PartitionQueues,
        pool: BufferPool,
        shares: PartitionQuota | None,
        delivery_context: DeliveryContext,
        *,
        sticky: Callable[[TopicRouting, int], PartitionQueue],
        room: Callable[[TopicRouting], int],
        is_told: bool,
    ) -> None:
        self._loop = loop
        self._partition_queues = partition_queues
        self._pool = pool
        self._shares = shares
        self._delivery_context = delivery_context
        self._sticky = sticky
        self._room = room
        self._is_told = is_told

    def place(
        self, record: PendingSend, window: ColumnWindow, routing: TopicRouting, now_ms: int
    ) -> Delivery | None:
        """Queue `window`. Returns the delivery of its first row, or None.

        None: memory is short, or one of its partitions must not have more (`record.behind`).

        Raises:
            UsageError: a row cannot be a record. No row is queued.
            PartitionUnavailable: a partition of the rows is muted, and the user's policy is to fail at once. No row is queued.
        """
        groups = window.queues(routing, self._sticky)
        queues = [queue for queue in groups if queue is not None]
        for queue in queues:
            if queue.is_avoided and self._is_told:
                raise wait_reasons.unavailable(queue, "Its rows were not queued.")
        room = self._room(routing)
        record.behind = spare = None
        if self._shares is not None:
            if None in groups:
                spare = self._sticky(routing, min(window.size, room))
                queues.append(spare)
            record.behind = next(filter(self._shares.is_over, queues), None)
        if (
            record.behind is not None
            or min(window.need(room), self._pool.size) > self._pool.available
        ):
            return None
        return window.queue(window.encode(now_ms, room), partial(self._add, routing, spare))

    def _add(
        self,
        routing: TopicRouting,
        spare: PartitionQueue | None,
        queue: PartitionQueue | None,
        encoded: Encoded,
    ) -> ProduceRequestResult:
        size = len(encoded.payload)
        if queue is None:
            queue = self._sticky(routing, size)
            # Records may wait for a full partition. The spare one had room, so that none waits for it.
            queue = spare if spare is not None and queue.is_full else queue
        result = ProduceRequestResult(
            self._delivery_context, queue.topic, queue.partition, encoded.base
        )
        batch = self._partition_queues.open(
            queue, _Sealed(encoded, result), result, now=self._loop.time()
        )
        self._pool.hold(batch, size + BATCH_OVERHEAD)
        self._partition_queues.close(queue)
        return result
