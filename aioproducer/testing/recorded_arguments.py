"""Converts a send's arguments for a `RecordingProducer`: to a record, or to the error of `Producer`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from aioproducer.encoding import BYTES
from aioproducer.errors import MetadataTimeout, WouldBlock
from aioproducer.model import Record
from aioproducer.partitioners import adapt, choose
from aioproducer.record_validation import RecordValidation
from aioproducer.records.reader import decode_headers
from aioproducer.records.record_batch import OVERHEAD
from aioproducer.testing.recorded import RecordedSend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioproducer.encoding import Encoding
    from aioproducer.records.arrow import Table

__all__ = ["SendArguments", "records_of"]


class _Checked(NamedTuple):
    """Holds the arguments of a send that `RecordValidation` accepted."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp_ms: int | None
    headers: bytes
    size: int


class SendArguments:
    """Checks and converts the arguments of a send.

    Args:
        config: a `ProducerConfig`; serializers, `partitioner` and size limits have effect.
        partitions: number of partitions of the topics that a test names.
    """

    def __init__(self, config: Any, partitions: Mapping[str, int]) -> None:
        validation = RecordValidation(config, _Checked)
        self._checked = validation.record
        self._encodings = validation.encodings
        self._partitions = dict(partitions)
        self._partitioner = adapt(config.partitioner)

    def partitions_of(self, topic: str) -> int:
        """Return a topic's number of partitions; 1 for a topic that the test does not name."""
        return self._partitions.get(topic, 1)

    def encoding_of(self, topic: Any, encoding: Encoding | None) -> Encoding:
        """Return `encoding`, or if it is None how the options encode the records of a topic."""
        return encoding or (BYTES if self._encodings.is_plain or not isinstance(topic, str) else self._encodings.of(topic))

    def read(
        self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any, encoding: Encoding | None = None
    ) -> tuple[RecordedSend, int]:
        """Check the arguments as the producer does. Returns the record and its size in bytes.

        Raises:
            WouldBlock: the serializers are not prepared.
            The errors of `send`.
        """
        encoding = self.encoding_of(topic, encoding)
        if not encoding.is_current():
            raise WouldBlock(f"a record for {topic!r} would wait for {encoding.name}: `await topic.ready()` first. It was not queued.")
        record = self._checked(topic, value, key, partition, timestamp_ms, headers, encoding)
        place = self._place(record)
        now_ms = int(time.time() * 1000) if record.timestamp_ms is None else record.timestamp_ms
        kept = decode_headers(record.headers)
        return RecordedSend(record.topic, place, record.key, record.value, now_ms, kept), OVERHEAD + record.size

    def _place(self, record: _Checked) -> int:
        topic, partition = record.topic, record.partition
        if partition is not None:
            count = self._partitions.get(topic)
            if count is not None and partition >= count:
                raise MetadataTimeout(f"partition {partition} of {topic!r} is not known: it has {count}")
            return partition
        if self._partitioner is None:
            return 0
        known = self.partitions_of(topic) or 1
        return choose(self._partitioner, topic, record.key, record.value, known, range(known))


def records_of(table: Table, partition: int | None) -> Iterator[tuple[int, Record[bytes, bytes]]]:
    """Yield each row of columns, and the record that `send_columns` makes of it; `partition` is the partition of rows without their own."""
    for piece in table.pieces():
        for row in range(piece.rows):
            value, key, moment, headers, number = piece.row(row)
            when = table.moment if moment is None else moment
            yield piece.first + row, Record(value, key, partition if number is None else number, when, headers or ())
