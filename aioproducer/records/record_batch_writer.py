"""The checked writer of one batch in any of Kafka's three formats (Kafka's MemoryRecordsBuilder, seeds/000).

The producer's send path does not use this writer: that path has one format, and its cost is per batch (`engine.delivery.chosen_build`).
This writer is for users of all formats or of their checks: older brokers, the brokers of tests, control records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioproducer.errors import UsageError
from aioproducer.model import Compression
from aioproducer.records import message_set, record_batch
from aioproducer.records.compression import compress
from aioproducer.records.compression_ratio_estimator import SAFETY
from aioproducer.records.control import end_marker

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer
    from aioproducer.model import Headers
    from aioproducer.records.control import ControlType

__all__ = ["NO_LIMIT", "NO_TIMESTAMP", "BatchFields", "RecordBatchWriter"]

NO_TIMESTAMP: Final = -1
NO_LIMIT: Final = 2**31 - 1
# No producer id, epoch or sequence.
_NONE: Final = -1
_MAGICS: Final = (0, 1, 2)
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20
# The position of the CRC in a message of a set.
_CRC: Final = slice(12, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFields:
    """Holds what a producer or a broker sets for a whole batch.

    Attributes:
        producer_id, producer_epoch, base_sequence: numbers of an idempotent producer; magic 2 only.
        is_transactional, is_control: flags; magic 2 only.
        leader_epoch: leader epoch of the partition in the batch of a broker; magic 2 only.
        log_append_time_ms: the time of a broker (LOG_APPEND_TIME), in milliseconds since 1970, from magic 1 on; -1: the records' own times.
    """

    producer_id: int = _NONE
    producer_epoch: int = _NONE
    base_sequence: int = _NONE
    is_transactional: bool = False
    is_control: bool = False
    leader_epoch: int = _NONE
    log_append_time_ms: int = NO_TIMESTAMP


_NO_FIELDS: Final = BatchFields()


class RecordBatchWriter:
    """Writes one batch (magic 2) or one message set (magic 0 and 1): takes its records, and then builds its bytes.

    Args:
        write_limit: the most bytes that the batch should have; the first record fits at any size.
        magic: 2; 1 or 0 for brokers before Kafka 0.11 and 0.10.
        codec: the compression codec; with magic 0 and 1 any codec except zstd.
        level: compression level; None: Java's default.
        ratio: estimated bytes after compression for each byte before (`CompressionRatios.guess`).
        base_offset: offset of the first record.
        fields: what a producer or a broker sets for the whole batch.

    Attributes:
        count: number of records so far.
        max_timestamp: the latest timestamp of the records; -1 without records, and in magic 0.

    Raises:
        UsageError: the format cannot hold the arguments.
        ConfigError: the codec has no such level, or its library is not installed; raised by `build`.
    """

    def __init__(
        self,
        write_limit: int = NO_LIMIT,
        *,
        magic: int = 2,
        codec: Compression = Compression.NONE,
        level: int | None = None,
        ratio: float = 1.0,
        base_offset: int = 0,
        fields: BatchFields = _NO_FIELDS,
    ) -> None:
        if magic not in _MAGICS:
            raise UsageError(f"there is no format of magic {magic}: it is 0, 1 or 2")
        message_set.check_codec(magic, codec)
        self._magic = magic
        self._codec = codec
        self._level = level
        self._ratio = ratio
        self._write_limit = write_limit
        self._is_appended = fields.log_append_time_ms != NO_TIMESTAMP
        self._log_append_time = fields.log_append_time_ms
        self._base_offset = base_offset
        self._producer = (fields.producer_id, fields.producer_epoch, fields.base_sequence)
        self._is_transactional = fields.is_transactional
        self._is_control = fields.is_control
        self._leader_epoch = fields.leader_epoch
        self._check_format()
        self._overhead = record_batch.OVERHEAD if magic == 2 else self._wrapper_overhead()
        self._written: list[bytes] = []
        # bytes of `_written`
        self._size = 0
        self._first_timestamp = NO_TIMESTAMP
        self._last_offset = base_offset - 1
        self._is_closed = False
        self._is_aborted = False
        self._built: bytes | None = None
        self.count: int = 0
        self.max_timestamp: int = NO_TIMESTAMP

    def _wrapper_overhead(self) -> int:
        return message_set.LOG_OVERHEAD + message_set.overhead(self._magic) if self._codec is not Compression.NONE else 0

    def _check_format(self) -> None:
        if self._is_appended and not self._magic:
            raise UsageError("messages of magic 0 have no timestamps, so none of when they were appended")
        if self._magic == 2:
            return
        for is_asked, what in (
            (self._is_transactional, "transactions"),
            (self._is_control, "control records"),
            (self._producer[0] != _NONE, "producer ids"),
        ):
            if is_asked:
                raise UsageError(f"message sets know no {what}: they need record batches (magic 2), not magic {self._magic}")

    # Appending

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
        *,
        offset: int | None = None,
        is_control: bool = False,
    ) -> int | None:
        """Append a record, even if the batch is larger than `write_limit` then.

        Args:
            timestamp_ms: milliseconds since 1970, or `NO_TIMESTAMP`.
            key: bytes, or None.
            value: bytes, or None for a tombstone.
            headers: pairs of a string and bytes or None; magic 2 only.
            offset: an offset after that of the previous record; None: the next one.
            is_control: must equal the batch's own flag.

        Returns:
            The message's CRC-32; None with magic 2, where the batch has one CRC.

        Raises:
            UsageError: the record fails the checks of the format (seeds/000), and is not appended.
            SerializationError: a header is no pair of a string and bytes or None.
        """
        offset = self._last_offset + 1 if offset is None else offset
        self._check_record(offset, timestamp_ms, headers, is_control=is_control)
        first = self._first_timestamp if self.count else timestamp_ms
        if self._magic == 2:
            encoded = record_batch.encode_headers(headers)
            written = record_batch.encode_record(offset - self._base_offset, timestamp_ms - first, key, value, encoded)
            crc = None
        else:
            timestamp_ms = self._log_append_time if self._is_appended else timestamp_ms
            attributes = message_set.LOG_APPEND_TIME if self._is_appended else 0
            written = message_set.message(self._magic, self._inner(offset), timestamp_ms, key, value, attributes)
            crc = int.from_bytes(written[_CRC])
        self._first_timestamp = first
        self._written.append(written)
        self._size += len(written)
        self._last_offset = offset
        self.count += 1
        if self._magic and timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        return crc

    def append_end_marker(self, timestamp_ms: int, kind: ControlType, coordinator_epoch: int) -> None:
        """Append the control record of a transaction's end, as a broker writes it.

        Raises:
            UsageError: the batch is no control batch of a transaction with a producer id, or the type ends no transaction.
        """
        if not self._is_transactional or self._producer[0] == _NONE:
            raise UsageError("a transaction's end needs a transactional batch with a producer id")
        key, value = end_marker(kind, coordinator_epoch)
        self.append(timestamp_ms, key, value, is_control=True)

    def _check_record(self, offset: int, timestamp_ms: int, headers: Headers, *, is_control: bool) -> None:
        if self._is_closed:
            raise UsageError("the batch is closed and takes no more records")
        if is_control != self._is_control:
            raise UsageError("control records stand in control batches, and nothing else does")
        if offset <= self._last_offset:
            raise UsageError(
                f"offset {offset} is not later than {self._last_offset}, which the record before has or the batch begins behind"
            )
        if offset - self._base_offset > NO_LIMIT:
            raise UsageError(f"offset {offset} is too far from the batch's first, {self._base_offset}")
        if timestamp_ms < 0 and timestamp_ms != NO_TIMESTAMP:
            raise UsageError(f"timestamp {timestamp_ms} is negative; {NO_TIMESTAMP} stands for none")
        if headers and self._magic < 2:
            raise UsageError(f"headers need record batches (magic 2), and this is a message set of magic {self._magic}")

    def _inner(self, offset: int) -> int:
        is_relative = self._magic and self._codec is not Compression.NONE
        return offset - self._base_offset if is_relative else offset

    # Size

    @property
    def estimated_size(self) -> int:
        """Return the bytes of the whole batch; an estimate if the batch has a codec and is not built (RCD-06)."""
        if self._built is not None:
            return len(self._built)
        if self._codec is Compression.NONE:
            return self._overhead + self._size
        return self._overhead + int(self._size * self._ratio * SAFETY)

    @property
    def uncompressed_size(self) -> int:
        """Return the bytes of the whole batch before compression."""
        return self._overhead + self._size

    @property
    def is_full(self) -> bool:
        """Return True if the batch takes no more records: it is closed, or its estimated size is at `write_limit`."""
        return self._is_closed or (self.count > 0 and self.estimated_size >= self._write_limit)

    def has_room_for(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> bool:
        """Return True if one more record, counted uncompressed, fits within `write_limit`; the first record always fits (RCD-05)."""
        if self.is_full:
            return False
        if not self.count:
            return True
        if self._magic < 2:
            size = message_set.message_size(self._magic, key, value)
        else:
            offset_delta, timestamp_delta = self._last_offset + 1 - self._base_offset, timestamp_ms - self._first_timestamp
            size = record_batch.record_size(offset_delta, timestamp_delta, key, value, record_batch.encode_headers(headers))
        return self.estimated_size + size <= self._write_limit

    # The end

    def close_for_appends(self) -> None:
        """Close the batch, so that it takes no more records."""
        self._is_closed = True

    def abort(self) -> None:
        """Abort the batch, so that no record can be appended and the batch cannot be built.

        Raises:
            UsageError: the batch was built already.
        """
        if self._built is not None:
            raise UsageError("the batch was built already")
        self._is_closed = self._is_aborted = True
        self._written.clear()

    @property
    def compression_ratio(self) -> float:
        """Return the bytes of the records after compression for each byte before, without headers; 1.0 until the batch is built."""
        return (len(self._built) - self._overhead) / self._size if self._built else 1.0

    def build(self) -> bytes:
        """Close the batch and build its bytes. Returns the same bytes each time, and no bytes without records.

        Raises:
            UsageError: the batch was aborted, is transactional without a producer id, or has an id without epoch or sequence (RCD-04).
            ConfigError: the codec has no such level, or its library is not installed.
        """
        if self._is_aborted:
            raise UsageError("the batch was aborted")
        if self._built is None:
            self._check_producer()
            self.close_for_appends()
            self._built = self._assembled() if self.count else b""
            self._written.clear()
        return self._built

    def _check_producer(self) -> None:
        producer_id, epoch, sequence = self._producer
        if self._is_transactional and producer_id == _NONE:
            raise UsageError("a transaction's batch needs a producer id")
        if producer_id != _NONE and epoch < 0:
            raise UsageError("a producer id needs an epoch")
        if producer_id != _NONE and sequence < 0 and not self._is_control:
            raise UsageError("a producer id needs a sequence, but in control batches")

    def _assembled(self) -> bytes:
        records = b"".join(self._written)
        latest = self._log_append_time if self._is_appended else self.max_timestamp
        if self._magic < 2:
            if self._codec is Compression.NONE:
                return records
            attributes = message_set.LOG_APPEND_TIME if self._is_appended else 0
            return message_set.wrapper(
                self._magic, self._codec, records, self._last_offset, latest, attributes=attributes, level=self._level
            )
        flags = ((self._is_appended, _LOG_APPEND_TIME), (self._is_transactional, record_batch.TRANSACTIONAL), (self._is_control, _CONTROL))
        payload = compress(self._codec, records, self._level)
        head = record_batch.header(
            payload,
            self.count,
            self._codec | sum(bit for is_set, bit in flags if is_set),
            self._first_timestamp,
            latest,
            self._producer[:2],
            self._producer[2],
            self._last_offset - self._base_offset,
        )
        return record_batch.placed(head, self._base_offset, self._leader_epoch) + payload
