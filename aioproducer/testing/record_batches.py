"""Reads record batches (magic 2) as a broker does, from untrusted bytes: their headers, and the control records of transactions.

`read_batches` reads the headers only. `records` decodes the records. `check` applies a broker's checks of a producer's batch. The first
two accept the batches of a log, where compaction leaves gaps in the offsets and batches without records.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioproducer.errors import ProtocolError
from aioproducer.model import Compression, TimestampType
from aioproducer.records.compression import decompress
from aioproducer.records.reader import MAX_DECOMPRESSED, read_records
from aioproducer.records.record_batch import TRANSACTIONAL, crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.interfaces import Buffer
    from aioproducer.records.reader import Record

# base offset, length | leader epoch, magic, CRC | attributes, last offset delta, base and max timestamp, producer id and epoch,
# base sequence, count. The length counts the bytes after it; the CRC covers the bytes after it.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_LENGTH_END: Final = 12
_MAGIC_AT: Final = 16
_CRC_END: Final = 21
_MAGIC: Final = 2
_CODEC: Final = 0x07
_CODECS: Final = frozenset(Compression)
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatch:
    """Holds a batch's header, and its bytes. Sizes are in bytes, timestamps in milliseconds; `crc` is unsigned."""

    raw: memoryview = field(repr=False)
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size_in_bytes(self) -> int:
        """Return the bytes of the whole batch, with its header."""
        return _LENGTH_END + self.length

    @property
    def compression(self) -> Compression:
        """Return the codec of the records."""
        return Compression(self.attributes & _CODEC)

    @property
    def timestamp_type(self) -> TimestampType:
        """Return the type of the records' timestamps."""
        return (
            TimestampType.LOG_APPEND_TIME
            if self.attributes & _LOG_APPEND_TIME
            else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        """Return True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return True if the batch holds control records, such as a transaction's end, instead of a user's records."""
        return bool(self.attributes & _CONTROL)

    def check(self, limit: int = MAX_DECOMPRESSED) -> list[Record]:
        """Check the batch as a broker checks a producer's: a valid CRC, and offsets without a gap. Returns the records.

        Args:
            limit: the most bytes that the records may decompress to.

        Raises:
            ProtocolError: the CRC is wrong, or count, offset range and records do not agree.
        """
        crc = crc32c(self.raw[_CRC_END:])
        if crc != self.crc:
            raise self._wrong(f"its CRC-32C is {crc:#010x}, its header says {self.crc:#010x}")
        if self.count < 1 or self.count != self.last_offset_delta + 1:
            raise self._wrong(
                f"a count of {self.count} with a last offset delta of {self.last_offset_delta}"
            )
        records = self.records(limit)
        for offset, record in enumerate(records, self.base_offset):
            if record.offset != offset:
                raise self._wrong(f"offset {record.offset} stands where {offset} should")
        return records

    def records(self, limit: int = MAX_DECOMPRESSED) -> list[Record]:
        """Decode the records. The CRC is not verified.

        Args:
            limit: the most bytes that the records may decompress to.

        Raises:
            ProtocolError: the records do not decompress within `limit`, or do not decode.
        """
        payload = self.raw[_HEADER.size :]
        data = (
            bytes(payload)
            if self.compression is Compression.NONE
            else decompress(self.compression, payload, limit)
        )
        try:
            records = read_records(data, self.count, self.base_timestamp, self.base_offset)
        except ProtocolError as error:
            raise self._wrong(str(error)) from error.__cause__
        for number, record in enumerate(records):
            delta = record.offset - self.base_offset
            if not 0 <= delta <= self.last_offset_delta:
                raise self._wrong(
                    f"record {number}: an offset delta of {delta} in a batch up to {self.last_offset_delta}"
                )
        if self.attributes & _LOG_APPEND_TIME:
            return [record._replace(timestamp_ms=self.max_timestamp) for record in records]
        return records

    def _wrong(self, what: str) -> ProtocolError:
        return ProtocolError(f"record batch at offset {self.base_offset}: {what}")


def read_batches(buffer: Buffer, *, allow_partial: bool = False) -> Iterator[RecordBatch]:
    """Yield the batches of `buffer` in order. They are views of the buffer, so it must not change.

    Args:
        buffer: complete batches, as in a Produce request, a Fetch response or a log segment.
        allow_partial: leave out an incomplete last batch, with which a Fetch response may end, instead of raising an error.

    Raises:
        ProtocolError: during the iteration: an invalid header, a magic other than 2, an unknown codec, or an incomplete batch.
    """
    view = memoryview(buffer)
    at = 0
    while at < len(view):
        size = _batch_size(view, at)
        if size is None:
            if allow_partial:
                return
            raise ProtocolError(
                f"the record batch at byte {at} is cut off: {len(view) - at} bytes are left"
            )
        raw = view[at : at + size]
        batch = RecordBatch(raw, *_HEADER.unpack_from(raw))
        if batch.attributes & _CODEC not in _CODECS:
            raise ProtocolError(
                f"the record batch at byte {at} has codec {batch.attributes & _CODEC}, which is none of Kafka's"
            )
        yield batch
        at += size


def _batch_size(view: memoryview, at: int) -> int | None:
    """Return the size of the batch at `at`, or None if the batch is incomplete."""
    left = len(view) - at
    if left <= _MAGIC_AT:
        return None
    magic = view[at + _MAGIC_AT]
    # this check comes first, because another magic gives the fields around it other meanings
    if magic != _MAGIC:
        raise ProtocolError(
            f"magic {magic} at byte {at}: only record batches (magic 2) can be read"
        )
    (length,) = _LENGTH.unpack_from(view, at + _LENGTH_AT)
    size: int = _LENGTH_END + length
    if size < _HEADER.size:
        raise ProtocolError(
            f"the record batch at byte {at} says that it has {size} bytes; its header alone has {_HEADER.size}"
        )
    return size if size <= left else None


# A control record ends a transaction in a log (KIP-98). Only brokers write them, and consumers never pass them to users.

# Version, type.
_KEY: Final = struct.Struct(">hh")
# Version, epoch of the transaction's coordinator.
_MARKER: Final = struct.Struct(">hi")


class ControlType(enum.IntEnum):
    """Lists the types of control records that end a transaction (Kafka's ControlRecordType)."""

    ABORT = 0
    COMMIT = 1


def control_type(record: Record) -> ControlType:
    """Return the type of a control record, which a broker has written."""
    assert record.key is not None
    return ControlType(_KEY.unpack(record.key)[1])


def end_marker(kind: ControlType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Return key and value of a transaction's end, of version 0."""
    return _KEY.pack(0, kind), _MARKER.pack(0, coordinator_epoch)
