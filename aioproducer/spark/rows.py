"""Sends Arrow batches of Spark through a producer, and names the first row that fails: its task, number, topic and partition.

1. The rows of a batch are grouped by topic, where a column names it. The order of the rows of one topic stays.
2. A batch is counted as it is sent: its rows, and the bytes of its keys and values.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from aioproducer.errors import DeliveryError, KafkaError
from aioproducer.model import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.producer import Producer

__all__ = ["RowCount", "RowFailed", "RowSender"]


# The number of a row in one call, at the beginning of an error's text.
_ROW: Final = re.compile(r"^row \d+: ")


class RowFailed(KafkaError):
    """Reports a row that was not written. The text names the task, the row, its topic and its partition; it has nothing of the row itself.

    Attributes:
        task: the number of the partition of the DataFrame.
        row: the number of the row in it, from 0.
    """

    def __init__(self, task: int, row: int, what: str) -> None:
        # The arguments are those of `__init__`, so that the error can be pickled.
        super().__init__(task, row, what)
        self.task = task
        self.row = row
        self.what = what

    def __str__(self) -> str:
        return f"task {self.task}, row {self.row}: {self.what}"


class RowCount:
    """Counts rows: a replay of a batch has equal numbers if it has the same rows.

    Attributes:
        rows: the number of rows.
        bytes: the bytes of their keys and values.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch."""
        self.rows += batch.num_rows
        for name in ("key", "value"):
            if name in batch.schema.names:
                self.bytes += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0


class _Part(NamedTuple):
    """Holds rows of one topic. `numbers`: the numbers of the rows in their batch; None: they are all of it."""

    topic: str
    partition: int | None
    rows: pa.RecordBatch
    numbers: Any = None

    def number(self, at: int) -> int:
        return at if self.numbers is None else int(self.numbers[at].as_py())


class _Pending(NamedTuple):
    """Holds the deliveries of a part that begins at the row `first` of the task."""

    deliveries: Any
    first: int
    part: _Part


class RowSender:
    """Sends the rows of one task, in order.

    Args:
        producer: a started producer, which others may use at the same time.
        topic: the topic of all rows; None: the column `topic` names it.
        task: the number of the task, for errors.

    Attributes:
        count: counts the rows that were sent.
    """

    def __init__(self, producer: Producer[Any, Any], topic: str | None, task: int = 0) -> None:
        self.count = RowCount()
        self._producer = producer
        self._topic = topic
        self._task = task
        self._pending: deque[_Pending] = deque()

    async def send(self, batch: pa.RecordBatch) -> None:
        """Queue the rows of a batch. It waits while the producer's memory is used up.

        Raises:
            RowFailed: a row cannot be sent, or a row of an earlier batch has failed.
        Cancellation: the rows that were queued are sent.
        """
        first = self.count.rows
        for part in self._parts(batch):
            try:
                deliveries = await self._send_part(part)
            except KafkaError as error:
                # The rows before it were queued.
                raise self._failed(first, part, len(getattr(error, "queued", ())), error) from error
            self._pending.append(_Pending(deliveries, first, part))
        self.count.add(batch)
        self._drop_acknowledged()

    async def end(self) -> None:
        """Wait until every row is acknowledged.

        Raises:
            RowFailed: a row was not written; the text names the first one.
        Cancellation: the rows that were queued are sent.
        """
        await self._producer.flush()
        while self._pending:
            await self._pending[0].deliveries.wait()
            self._drop_acknowledged()

    async def _send_part(self, part: _Part) -> Any:
        rows = part.rows
        if "headers" in rows.schema.names:
            return await self._producer.send_many(part.topic, _records(rows, part.partition))
        return await self._producer.send_columns(
            part.topic,
            values=rows.column("value"),
            keys=_column(rows, "key"),
            partition=part.partition,
            timestamps_ms=_column(rows, "timestamp"),
        )

    def _parts(self, batch: pa.RecordBatch) -> Iterator[_Part]:
        """Yield the rows of each topic and partition, in their order."""
        by = [name for name in ("topic", "partition") if name in batch.schema.names and (name == "partition" or self._topic is None)]
        if not batch.num_rows:
            return
        if not by:
            yield _Part(self._topic or "", None, batch)
            return
        topics = batch.column("topic") if "topic" in by else None
        if topics is not None and topics.null_count:
            row = pc.index(topics.is_null(), True).as_py()
            raise RowFailed(self._task, self.count.rows + row, "its topic is null, and no option 'topic' is given")
        for numbers in _groups([batch.column(name) for name in by]):
            rows = batch if numbers is None else batch.take(numbers)
            head = {name: rows.column(name)[0].as_py() for name in by}
            yield _Part(head.get("topic", self._topic or ""), head.get("partition"), rows, numbers)

    def _drop_acknowledged(self) -> None:
        """Forget the parts that have ended.

        Raises:
            RowFailed: one has failed rows. The error names the first row of all that have failed by now.
        """
        while self._pending and self._pending[0].deliveries.done():
            if self._pending[0].deliveries.first_failure() is not None:
                raise self._first_failure()
            self._pending.popleft()

    def _first_failure(self) -> RowFailed:
        found = [(pending, failure) for pending in self._pending if (failure := pending.deliveries.first_failure()) is not None]
        count = sum(pending.deliveries.summary().failed for pending, _ in found)
        others = f" ({count} rows have failed by now)" if count > 1 else ""
        errors = [self._failed(pending.first, pending.part, at, error, others) for pending, (at, error) in found]
        return min(errors, key=lambda error: error.row)

    def _failed(self, first: int, part: _Part, at: int, error: KafkaError, others: str = "") -> RowFailed:
        """Return the error for the row `at` of a part."""
        partition = error.partition if isinstance(error, DeliveryError) else part.partition
        place = f"topic {part.topic}" if partition is None else f"topic {part.topic}, partition {partition}"
        made = RowFailed(self._task, first + part.number(at), f"{place}: {_ROW.sub('', str(error))}{others}")
        made.__cause__ = error
        return made


def _column(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name) if name in batch.schema.names else None


def _groups(columns: list[Any]) -> Iterator[Any]:
    """Yield the numbers of the rows that are equal in all columns, in order; None: all rows are."""
    codes = None
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        own = encoded.indices.cast(pa.int64())
        codes = own if codes is None else pc.add(pc.multiply(codes, len(encoded.dictionary)), own)
    assert codes is not None
    order = pc.array_sort_indices(codes)
    runs = pc.run_end_encode(codes.take(order))
    if len(runs.run_ends) == 1:
        yield None
        return
    begin = 0
    for end in runs.run_ends.to_pylist():
        yield order.slice(begin, end - begin)
        begin = end


def _records(rows: pa.RecordBatch, partition: int | None) -> list[Record[Any, Any]]:
    names = rows.schema.names
    values = rows.column("value").cast(pa.binary()).to_pylist()
    keys = rows.column("key").cast(pa.binary()).to_pylist() if "key" in names else [None] * len(values)
    times = [None] * len(values)
    if "timestamp" in names:
        column = rows.column("timestamp")
        times = pc.cast(column, pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64()).to_pylist()
    headers = [[(one["key"], one["value"]) for one in row or ()] for row in rows.column("headers").to_pylist()]
    return [
        Record(value, key=key, partition=partition, timestamp_ms=when, headers=some)
        for value, key, when, some in zip(values, keys, times, headers, strict=True)
    ]
