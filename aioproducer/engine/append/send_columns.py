"""`send_columns`: queues rows of Arrow columns, window by window, or each row as a record by `send` itself.

1. A window contains the rows that one step of the event loop may queue; other tasks run before the next one. With keys, it is also the
   unit that fills the batches of many partitions.
2. Each row is a record of its own if the producer has interceptors or a user's partitioner. The same holds if a circuit breaker avoids
   partitions and keys may go elsewhere. It also holds for keys of hundreds of partitions, because each would have a batch of few rows.
   That is as slow as `send`.
3. With a column of partitions, a window ends before a row whose partition does not exist. That row is a window of its own: it waits until
   the partition exists, as `send` does, and no row behind it is queued before that.
4. Plain Python has no windows: `send_many` takes all rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.build import COLUMNS, extension
from aioproducer.core.record_validation import (
    BATCH_OVERHEAD,
    check_columns,
    check_partition,
    check_topic,
)
from aioproducer.engine.append.column_batches import ColumnWindow
from aioproducer.engine.delivery.deliveries import Deliveries
from aioproducer.errors import MetadataTimeout, RecordTooLarge
from aioproducer.model import Record
from aioproducer.records.arrow import Table, check_serializers
from aioproducer.records.encoded_rows import BadRow
from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aioproducer.config import ProducerConfig
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.record_accumulator import RecordAccumulator
    from aioproducer.engine.append.send_many import SendMany
    from aioproducer.engine.chosen_build import Delivery
    from aioproducer.errors import KafkaError
    from aioproducer.model import PartitionNumber
    from aioproducer.records.arrow import Piece

_columns: Any = extension(COLUMNS).module
# Bytes of records in one window: a millisecond or two.
_WINDOW: Final = 2_097_152
# Full batches that a window makes at most, beside one for each partition.
_BATCHES: Final = 32
# Bytes of such a batch, at least: a user that sets smaller batches wants more of them.
_LEAST: Final = 2048
# Rows of a window, at most.
_ROWS: Final = 16_384
# A window takes at most `buffer_memory` divided by this, so that others wait for less.
_PART: Final = 4


class SendColumns:
    """Sends columns, for one producer.

    Args:
        accumulator: appends windows.
        send_many: sends the rows of plain Python.
        send: the producer's `send`, for one record.
    """

    def __init__(
        self,
        config: ProducerConfig,
        appender: Appender,
        accumulator: RecordAccumulator,
        send_many: SendMany,
        send: Callable[..., Awaitable[Delivery]],
    ) -> None:
        self._config = config
        self._appender = appender
        self._accumulator = accumulator
        self._send_many = send_many
        self._send = send
        self._longest = min(
            int(config.max_request_size) - OVERHEAD,
            config.buffer_memory - BATCH_OVERHEAD - OVERHEAD,
        )
        self._most = min(
            _WINDOW,
            _BATCHES * max(int(config.batch_size), int(config.batch_max_size), _LEAST),
            config.buffer_memory // _PART,
        )

    async def send(
        self,
        topic: str,
        values: Any,
        keys: Any,
        partition: PartitionNumber | None,
        timestamps_ms: Any,
        headers: Any = None,
        partitions: Any = None,
    ) -> Deliveries:
        """Queue all rows. Returns their deliveries. An error that it raises carries the deliveries of the queued rows."""
        deliveries = Deliveries()
        try:
            topic = check_topic(topic)
            number = check_partition(topic, partition)
            check_columns(
                self._config, topic, partition=number, partitions=partitions, headers=headers
            )
            check_serializers(
                value=self._config.value_serializer,
                key=None if keys is None else self._config.key_serializer,
            )
            table = Table(values, keys, timestamps_ms, headers, partitions)
            keyed = table.has_keys and number is None
            if _columns is None:
                await self._send_plain(topic, table, number, deliveries)
                return deliveries
            for piece in table.pieces():
                if self._config.interceptors:
                    await self._send_rows(
                        topic, piece, number, table.moment, range(piece.rows), deliveries
                    )
                else:
                    await self._send_piece(
                        topic, piece, number, table.moment, deliveries, keyed=keyed
                    )
        # As in `SendMany.send`.
        except BaseException as error:
            deliveries.attach(error, "send_columns")
            raise
        return deliveries

    async def _send_plain(
        self, topic: str, table: Table, partition: int | None, deliveries: Deliveries
    ) -> None:
        try:
            await self._send_many.send_chunks(
                topic, _records(table, partition), deliveries, singly=self._accumulator.has_hooks
            )
        except (MetadataTimeout, RecordTooLarge) as error:
            raise _of_row(len(deliveries), error) from error.__cause__

    async def _send_piece(
        self,
        topic: str,
        piece: Piece,
        partition: int | None,
        moment: int | None,
        deliveries: Deliveries,
        *,
        keyed: bool,
    ) -> None:
        keyed = keyed and not self._config.partitioner_ignore_keys
        is_named, is_spread = partition is not None, keyed or piece.partitions is not None
        highest = partition
        at = 0
        while at < piece.rows:
            rows, size = self._measure(piece, at, piece.rows - at)
            if piece.partitions is not None:
                exist, highest = self._known(topic, piece, at, rows)
                if exist < rows:
                    rows, size = self._measure(piece, at, exist)
            if self._appender.takes_rows(topic, is_named=is_named, keyed=is_spread):
                window = ColumnWindow(
                    piece, at, rows, size, partition=highest, keyed=keyed, moment=moment
                )
                await self._send_window(topic, window, deliveries)
            else:
                await self._send_rows(
                    topic, piece, partition, moment, range(at, at + rows), deliveries
                )
            at += rows

    def _measure(self, piece: Piece, at: int, rows: int) -> tuple[int, int]:
        """Return the rows and the bytes of the next window, of at most so many rows.

        Raises:
            UsageError: its first row cannot be a record.
        """
        columns = piece.values, piece.keys, piece.moments
        try:
            return _columns.measure(  # type: ignore[no-any-return]
                *columns, at, min(rows, _ROWS), self._most, self._longest, piece.headers
            )
        except BadRow as error:
            raise piece.bad(error) from None

    def _known(self, topic: str, piece: Piece, at: int, rows: int) -> tuple[int, int | None]:
        """Return how many of the rows have partitions that exist, and their highest partition, or None if they have none.

        That is the first row alone if its partition does not exist, or if the topic is not known yet.

        Raises:
            UsageError: the first row's partition is negative.
        """
        routing = self._appender.partition_queues.routings.get(topic)
        # 0: the topic is not known yet.
        count = 0 if routing is None else len(routing.queues)
        try:
            exist, highest = _columns.known(piece.partitions, at, rows if count else 1, count)
        except BadRow as error:
            raise piece.bad(error) from None
        return exist, None if highest < 0 else highest

    async def _send_window(self, topic: str, window: ColumnWindow, deliveries: Deliveries) -> None:
        try:
            await self._accumulator.append_window(topic, window)
        except MetadataTimeout as error:
            if window.piece.partitions is None:
                raise
            raise _of_row(window.piece.first + window.at, error) from error.__cause__
        finally:
            if window.is_queued:
                window.tell(deliveries)

    async def _send_rows(
        self,
        topic: str,
        piece: Piece,
        partition: int | None,
        moment: int | None,
        rows: range,
        deliveries: Deliveries,
    ) -> None:
        for row in rows:
            value, key, when, headers, number = piece.row(row)
            place = partition if piece.partitions is None else number
            when = moment if when is None else when
            try:
                delivery = await self._send(
                    topic, value, key, partition=place, timestamp_ms=when, headers=headers or ()
                )
            except (MetadataTimeout, RecordTooLarge) as error:
                raise _of_row(piece.first + row, error) from error.__cause__
            deliveries.add_one(delivery._result, delivery.index)


def _records(table: Table, partition: int | None) -> Iterator[Record[bytes, bytes]]:
    for piece in table.pieces():
        for row in range(piece.rows):
            value, key, when, headers, number = piece.row(row)
            place = partition if piece.partitions is None else number
            yield Record(
                value, key, place, table.moment if when is None else when, tuple(headers or ())
            )


def _of_row(row: int, error: KafkaError) -> KafkaError:
    """Return the error with the row in its text."""
    return type(error)(f"row {row}: {error}")
