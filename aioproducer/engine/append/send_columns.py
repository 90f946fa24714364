"""`send_columns`: queues rows of Arrow columns, window by window, or each row as a record by `send` itself.

1. A window contains the rows that one step of the event loop may queue; other tasks run before the next one. With keys, it is also the
   unit that fills the batches of many partitions.
2. Each row is a record of its own if the producer has interceptors or a user's partitioner. The same holds if a circuit breaker avoids
   partitions and keys may go elsewhere. It also holds for keys of hundreds of partitions, because each would have a batch of few rows.
   That is as slow as `send`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.key_grouping import MOST_ROWS
from aioproducer.engine.append.column_batches import ColumnWindow
from aioproducer.engine.delivery.deliveries import Deliveries
from aioproducer.engine.memory.buffer_pool import BATCH_OVERHEAD
from aioproducer.record_validation import check_partition, check_topic
from aioproducer.records.arrow import Table, check_serializers
from aioproducer.records.columns import BadRow, compiled, measure
from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.record_accumulator import RecordAccumulator
    from aioproducer.engine.delivery.chosen_build import Delivery
    from aioproducer.model import PartitionNumber
    from aioproducer.records.arrow import Piece

__all__ = ["SendColumns"]

# Bytes of records in one window: a millisecond or two.
_WINDOW: Final = 1_048_576
# Batches that a window makes at most, beside one for each partition.
_BATCHES: Final = 32
# Bytes of such a batch, at least: a user that sets smaller batches wants more of them.
_LEAST: Final = 2048
# Rows of a window, at most.
_ROWS: Final = 256 if compiled is None else 16_384
# A window takes at most `buffer_memory` divided by this, so that others wait for less.
_PART: Final = 4


class SendColumns:
    """Sends columns, for one producer.

    Args:
        accumulator: appends windows.
        send: the producer's `send`, for one record.
    """

    def __init__(
        self,
        config: ProducerConfig,
        appender: Appender,
        accumulator: RecordAccumulator,
        send: Callable[..., Awaitable[Delivery]],
    ) -> None:
        self._config = config
        self._appender = appender
        self._accumulator = accumulator
        self._send = send
        self._longest = min(int(config.max_request_size) - OVERHEAD, config.buffer_memory - BATCH_OVERHEAD - OVERHEAD)
        self._most = min(_WINDOW, _BATCHES * max(int(config.batch_size), _LEAST), config.buffer_memory // _PART)

    async def send(self, topic: str, values: Any, keys: Any, partition: PartitionNumber | None, timestamps_ms: Any) -> Deliveries:
        """Queue all rows. Returns their deliveries. An error that it raises carries the deliveries of the queued rows."""
        deliveries = Deliveries()
        try:
            topic = check_topic(topic)
            number = check_partition(topic, partition)
            check_serializers(value=self._config.value_serializer, key=None if keys is None else self._config.key_serializer)
            table = Table(values, keys, timestamps_ms)
            keyed = table.has_keys and number is None
            for piece in table.pieces():
                if self._config.interceptors:
                    await self._send_rows(topic, piece, number, table.moment, range(piece.rows), deliveries)
                else:
                    await self._send_piece(topic, piece, number, table.moment, deliveries, keyed=keyed)
        except BaseException as error:
            deliveries.attach(error, "send_columns")
            raise
        return deliveries

    async def _send_piece(
        self, topic: str, piece: Piece, partition: int | None, moment: int | None, deliveries: Deliveries, *, keyed: bool
    ) -> None:
        keyed = keyed and not self._config.partitioner_ignore_keys
        at = 0
        while at < piece.rows:
            rows, size = self._measure(piece, at)
            if self._appender.takes_rows(topic, is_named=partition is not None, keyed=keyed):
                window = ColumnWindow(piece, at, rows, size, partition=partition, keyed=keyed, moment=moment)
                await self._send_window(topic, window, deliveries)
            else:
                await self._send_rows(topic, piece, partition, moment, range(at, at + rows), deliveries)
            at += rows

    def _measure(self, piece: Piece, at: int) -> tuple[int, int]:
        """Return the rows and the bytes of the next window.

        Raises:
            UsageError: its first row cannot be a record.
        """
        try:
            return measure(piece.values, piece.keys, piece.moments, at, min(piece.rows - at, _ROWS), self._most, self._longest)  # type: ignore[no-any-return]
        except BadRow as error:
            raise piece.bad(error) from None

    async def _send_window(self, topic: str, window: ColumnWindow, deliveries: Deliveries) -> None:
        try:
            await self._accumulator.append_window(topic, window)
        finally:
            if window.is_queued:
                window.tell(deliveries)

    async def _send_rows(
        self, topic: str, piece: Piece, partition: int | None, moment: int | None, rows: range, deliveries: Deliveries
    ) -> None:
        for row in rows:
            value, key, when = piece.row(row)
            delivery = await self._send(topic, value, key, partition=partition, timestamp_ms=moment if when is None else when)
            deliveries.add_one(delivery._result, delivery.index)  # noqa: SLF001


assert _ROWS <= MOST_ROWS
