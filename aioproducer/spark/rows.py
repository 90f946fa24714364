"""Sends Arrow batches of Spark through a producer, and names the first row that fails: its task, number, topic and partition.

1. The rows of a batch are grouped by topic, where a column names it. The order of the rows of one topic stays.
2. A batch is counted as it is sent: its rows, the bytes of its keys and values, and a checksum if it is asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from aioproducer import Deliveries, rows_checksum
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioproducer.producer import Producer

__all__ = ["Part", "RowCount", "RowFailed", "RowSender", "parts_of", "timed"]

# The arguments that take the sink's columns.
_ARGUMENTS: Final[Mapping[str, str]] = {
    "value": "values",
    "key": "keys",
    "partition": "partitions",
    "headers": "headers",
    "timestamp": "timestamps_ms",
}
_NO_TIME: Final = pa.scalar(-1, pa.timestamp("ms", "UTC"))
_MODULUS: Final = 2**64
_WITH_SHORT_OFFSETS: Final = (pa.binary(), pa.string())


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


class Part(NamedTuple):
    """Holds rows of one topic, with the columns of a batch.

    Attributes:
        topic: the topic.
        rows: the rows, in the order of the batch.
        numbers: the numbers of the rows in their batch; None: they are all of it.
    """

    topic: str
    rows: pa.RecordBatch
    numbers: Any = None

    @property
    def columns(self) -> dict[str, Any]:
        """Return the arguments of `send_columns` and of `rows_checksum`."""
        return {
            argument: self.rows.column(name)
            for name, argument in _ARGUMENTS.items()
            if name in self.rows.schema.names
        }


class RowCount:
    """Counts rows: a replay of a batch has equal numbers if it has the same rows, however Spark cuts them into Arrow batches.

    Args:
        topic: the topic of all rows; None: the column `topic` names it.
        is_summed: whether the checksum is made.

    Attributes:
        rows: the number of rows.
        bytes: the bytes of their keys and values.
        checksum: the sum of the rows' hashes, modulo 2**64; 0 unless `is_summed`.
    """

    def __init__(self, topic: str | None, *, is_summed: bool = False) -> None:
        self.rows: int = 0
        self.bytes: int = 0
        self.checksum: int = 0
        self._topic = topic
        self._is_summed = is_summed

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch.

        Raises:
            RowFailed: a row has no topic.
            UsageError: a row cannot be a record.
        """
        for part in parts_of(batch, self._topic):
            self.add_part(part)

    def add_part(self, part: Part) -> None:
        """Count the rows of one topic."""
        self.rows += part.rows.num_rows
        columns = part.columns
        for name in ("keys", "values"):
            if name in columns:
                self.bytes += _bytes_of(columns[name])
        if self._is_summed:
            # An odd factor for each topic: rows that changed their topics change the sum.
            factor = 1 if self._topic is not None else _factor(part.topic)
            self.checksum = (self.checksum + rows_checksum(**columns) * factor) % _MODULUS


def _bytes_of(column: Any) -> int:
    """Return the bytes of all rows of a column of strings or bytes."""
    if column.null_count or column.type not in _WITH_SHORT_OFFSETS:
        return pc.sum(pc.binary_length(column)).as_py() or 0
    # The bytes of a null may be in the buffer, too. Without nulls, the rows' bytes are all that is between two offsets.
    offsets = memoryview(column.buffers()[1]).cast("i")
    return int(offsets[column.offset + len(column)] - offsets[column.offset])


def _factor(topic: str) -> int:
    return int.from_bytes(hashlib.blake2b(topic.encode(), digest_size=8).digest()) | 1


class _Pending(NamedTuple):
    """Holds the deliveries of a part whose batch begins at the row `first` of the task.

    It does not hold the part: its rows are copied once they are queued, and the next batch may take the memory that they had.
    """

    deliveries: Any
    first: int
    topic: str
    numbers: Any


class RowSender:
    """Sends the rows of one task, in order.

    Args:
        producer: a started producer, which others may use at the same time.
        topic: the topic of all rows; None: the column `topic` names it.
        task: the number of the task, for errors.
        is_summed: whether the checksum of the rows is made.

    Attributes:
        count: counts the rows that were sent.
        has_acknowledged: whether rows were acknowledged, as far as was looked.
    """

    def __init__(
        self,
        producer: Producer[Any, Any],
        topic: str | None,
        task: int = 0,
        *,
        is_summed: bool = False,
    ) -> None:
        self.count: RowCount = RowCount(topic, is_summed=is_summed)
        self.has_acknowledged: bool = False
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
        for part in parts_of(batch, self._topic, self._task, first):
            columns = part.columns
            try:
                deliveries = await self._producer.send_columns(part.topic, **columns)
            except KafkaError as error:
                # The rows before it were queued.
                at = len(Deliveries.of(error))
                partitions = columns.get("partitions")
                partition = None if partitions is None else partitions[at].as_py()
                raise self._failed(
                    _Pending(None, first, part.topic, part.numbers), at, error, partition
                ) from error
            self._pending.append(_Pending(deliveries, first, part.topic, part.numbers))
            self.count.add_part(part)
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

    def _drop_acknowledged(self) -> None:
        """Forget the parts that have ended.

        Raises:
            RowFailed: one has failed rows. The error names the first row of all that have failed by now.
        """
        while self._pending and self._pending[0].deliveries.done():
            if self._pending[0].deliveries.first_failure() is not None:
                raise self._first_failure()
            self.has_acknowledged = True
            self._pending.popleft()

    def _first_failure(self) -> RowFailed:
        found = [
            (pending, failure)
            for pending in self._pending
            if (failure := pending.deliveries.first_failure()) is not None
        ]
        count = sum(pending.deliveries.summary().failed for pending, _ in found)
        others = f" ({count} rows have failed by now)" if count > 1 else ""
        errors = [
            self._failed(pending, at, error, error.partition, others)
            for pending, (at, error) in found
        ]
        return min(errors, key=lambda error: error.row)

    def _failed(
        self, pending: _Pending, at: int, error: KafkaError, partition: int | None, others: str = ""
    ) -> RowFailed:
        """Return the error for the row `at` of a part."""
        place = (
            f"topic {pending.topic}"
            if partition is None
            else f"topic {pending.topic}, partition {partition}"
        )
        number = at if pending.numbers is None else int(pending.numbers[at].as_py())
        made = RowFailed(
            self._task, pending.first + number, f"{place}: {_ROW.sub('', str(error))}{others}"
        )
        made.__cause__ = error
        return made


def timed(batch: pa.RecordBatch, column: str | None) -> pa.RecordBatch:
    """Return a batch whose column `timestamp` has the records' times, null for now; without it: all are written now.

    Args:
        batch: the rows.
        column: has the times; None: there are none.
    """
    columns = {name: batch.column(name) for name in batch.schema.names if name != "timestamp"}
    if column is not None:
        times = batch.column(column)
        # Spark's source gives -1 ms where a record has no time.
        columns["timestamp"] = pc.if_else(pc.equal(times, _NO_TIME.cast(times.type)), None, times)
    return pa.RecordBatch.from_pydict(columns)


def parts_of(
    batch: pa.RecordBatch, topic: str | None, task: int = 0, first: int = 0
) -> Iterator[Part]:
    """Yield the rows of each topic, in their order.

    Args:
        batch: the rows.
        topic: the topic of all of them; None: the column `topic` names it.
        task: the number of the task, for errors.
        first: the number of the batch's first row in the task, for errors.

    Raises:
        RowFailed: a row has no topic.
    """
    if not batch.num_rows:
        return
    if topic is not None:
        yield Part(topic, batch)
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise RowFailed(
            task,
            first + pc.index(topics.is_null(), value=True).as_py(),
            "its topic is null, and no option 'topic' is given",
        )
    encoded = topics.dictionary_encode()
    if len(encoded.dictionary) == 1:
        yield Part(topics[0].as_py(), batch)
        return
    # The sort is stable, so the numbers of each topic's rows ascend.
    order = pc.array_sort_indices(encoded.indices)
    ends = pc.run_end_encode(encoded.indices.take(order)).run_ends.to_pylist()
    for begin, end in pairwise((0, *ends)):
        numbers = order.slice(begin, end - begin)
        yield Part(topics[numbers[0].as_py()].as_py(), batch.take(numbers), numbers)
