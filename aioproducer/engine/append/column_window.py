"""Holds `ColumnWindow`, some rows of columns: their partitions, and their encoding as batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.core import key_grouping
from aioproducer.engine.chosen_build import make_delivery
from aioproducer.engine.memory.buffer_pool import BATCH_OVERHEAD
from aioproducer.records.columns import BadRow, encode

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from aioproducer.core.partition_queues import PartitionQueue, TopicRouting
    from aioproducer.engine.chosen_build import Delivery, ProduceRequestResult
    from aioproducer.engine.delivery.deliveries import Deliveries, Run
    from aioproducer.records.arrow import Piece
    from aioproducer.records.columns import Encoded

__all__ = ["ColumnWindow"]

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

    __slots__ = ("_moment", "_picks", "_queues", "_routing", "_runs", "at", "keyed", "partition", "piece", "rows", "size")

    def __init__(self, piece: Piece, at: int, rows: int, size: int, *, partition: int | None, keyed: bool, moment: int | None) -> None:
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

    def queues(self, routing: TopicRouting, sticky: Callable[[TopicRouting, int], PartitionQueue]) -> Sequence[PartitionQueue | None]:
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
        return picks, [None if partition < 0 else routing.queues[partition] for partition in partitions]

    def _assigned(self, partitions: int, nobodys: int) -> Any:
        return key_grouping.assign(self.piece.keys if self.keyed else None, self.at, self.rows, partitions, nobodys, self.piece.partitions)

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
            batches: list[list[Encoded]] = encode(
                *columns, now_ms, self.at, self.rows, self._picks, len(self._queues), room, most, piece.headers
            )
        except BadRow as error:
            raise piece.bad(error) from None
        return batches

    def queue(
        self, batches: Sequence[Sequence[Encoded]], add: Callable[[PartitionQueue | None, Encoded], ProduceRequestResult]
    ) -> Delivery:
        """Queue the batches of each group by calling `add`. Returns the delivery of the first record."""
        self._runs = [
            [[add(queue, encoded), 0, encoded.rows] for encoded in some] for queue, some in zip(self._queues, batches, strict=True)
        ]
        return make_delivery(self._runs[0][0][0], 0)

    @property
    def is_queued(self) -> bool:
        """Return whether the rows are in batches."""
        return bool(self._runs)

    def tell(self, deliveries: Deliveries) -> None:
        """Add the deliveries of the queued rows to `deliveries`."""
        deliveries.add(self.rows, self._runs, self._picks if len(self._runs) > 1 else None)
