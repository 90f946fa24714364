"""Record batches (magic 2) out of bytes that a stranger may have written.

1. Every length and count is held against the bytes that are left before anything is allocated for it.
2. What is wrong is a `ProtocolError` that says where; nothing else is raised, whatever the bytes.
3. `read_batches` looks at headers only; `records` decodes; `check` holds a batch to what a broker asks of a producer's.
   The first two take what a log may hold: batches with gaps or without records, which compaction leaves.

Knows nothing of how batches are written, sent or stored, nor of message sets (magic 0 and 1).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from aioproducer.errors import ProtocolError
from aioproducer.model import Compression, TimestampType
from aioproducer.records.compression import decompress
from aioproducer.records.record_batch import TRANSACTIONAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.interfaces import Buffer
    from aioproducer.model import Header

__all__ = ["MAX_DECOMPRESSED", "Record", "RecordBatch", "read_batches"]

MAX_DECOMPRESSED: Final = 64 * 1024 * 1024
"""The most bytes that a batch's records may decompress to, unless the caller says otherwise."""

# base offset, length | leader epoch, magic, CRC | attributes, last offset delta, base and max timestamp, producer id and epoch,
# base sequence, count. The length counts what follows it; the CRC covers what follows it.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_LENGTH_END: Final = 12
_MAGIC_AT: Final = 16
_CRC_END: Final = 21
_MAGIC: Final = 2
_LEAST_RECORD: Final = 7  # one byte each: length, attributes, timestamp, offset, key length, value length, header count
_LEAST_HEADER: Final = 2  # one byte each: key length, value length

_CODEC: Final = 0x07
_CODECS: Final = frozenset(Compression)
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20


class Record(NamedTuple):
    """One record as it stands in a log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatch:
    """A batch's header, and its bytes. Sizes in bytes, timestamps in milliseconds; `crc` is unsigned."""

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
        """The whole batch, header and all."""
        return _LENGTH_END + self.length

    @property
    def compression(self) -> Compression:
        """The codec of its records."""
        return Compression(self.attributes & _CODEC)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who stamped its records."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction's end rather than a user's records."""
        return bool(self.attributes & _CONTROL)

    def check(self, limit: int = MAX_DECOMPRESSED) -> list[Record]:
        """The records, once the batch is what a broker takes from a producer: sound, and its offsets without a gap.

        Args:
            limit: the most bytes that the records may decompress to.

        Raises:
            ProtocolError: the CRC is another, or count, offset range and records do not agree.
        """
        crc = crc32c(self.raw[_CRC_END:])
        if crc != self.crc:
            raise self._wrong(f"its CRC-32C is {crc:#010x}, its header says {self.crc:#010x}")
        if self.count < 1 or self.count != self.last_offset_delta + 1:
            raise self._wrong(f"a count of {self.count} with a last offset delta of {self.last_offset_delta}")
        records = self.records(limit)
        for offset, record in enumerate(records, self.base_offset):
            if record.offset != offset:
                raise self._wrong(f"offset {record.offset} stands where {offset} should")
        return records

    def records(self, limit: int = MAX_DECOMPRESSED) -> list[Record]:
        """Decode the records. The CRC is not looked at.

        Args:
            limit: the most bytes that the records may decompress to.

        Raises:
            ProtocolError: the records do not decompress within `limit`, or do not decode.
        """
        payload = self.raw[_HEADER.size :]
        data = bytes(payload) if self.compression is Compression.NONE else decompress(self.compression, payload, limit)
        if not 0 <= self.count <= len(data) // _LEAST_RECORD:
            raise self._wrong(f"{self.count} records cannot be in {len(data)} bytes")
        records: list[Record] = []
        at = 0
        try:
            while len(records) < self.count:
                record, at = _read_record(data, at, self)
                records.append(record)
        except IndexError as error:
            raise self._wrong(f"its bytes end in record {len(records)}") from error
        except (ProtocolError, UnicodeDecodeError) as error:
            raise self._wrong(f"record {len(records)}: {error}") from error
        if at != len(data):
            raise self._wrong(f"{len(data) - at} bytes follow its {self.count} records")
        return records

    def _wrong(self, what: str) -> ProtocolError:
        return ProtocolError(f"record batch at offset {self.base_offset}: {what}")


def read_batches(buffer: Buffer, *, allow_partial: bool = False) -> Iterator[RecordBatch]:
    """The batches of `buffer`, one after another; they look into it, so it must not change.

    Args:
        buffer: whole batches, as in a Produce request, a Fetch response or a log segment.
        allow_partial: a last batch that is cut off is left out (a Fetch response may end so) instead of being an error.

    Raises:
        ProtocolError: while iterating: a header that cannot be, a magic other than 2, an unknown codec, or a cut-off batch.
    """
    view = memoryview(buffer)
    at = 0
    while at < len(view):
        size = _batch_size(view, at)
        if size is None:
            if allow_partial:
                return
            raise ProtocolError(f"the record batch at byte {at} is cut off: {len(view) - at} bytes are left")
        raw = view[at : at + size]
        batch = RecordBatch(raw, *_HEADER.unpack_from(raw))
        if batch.attributes & _CODEC not in _CODECS:
            raise ProtocolError(f"the record batch at byte {at} has codec {batch.attributes & _CODEC}, which is none of Kafka's")
        yield batch
        at += size


def _batch_size(view: memoryview, at: int) -> int | None:
    """The size of the batch at `at`, or None: not all of it is there."""
    left = len(view) - at
    if left <= _MAGIC_AT:
        return None
    magic = view[at + _MAGIC_AT]
    if magic != _MAGIC:  # first: in another magic the fields around it mean other things
        raise ProtocolError(f"magic {magic} at byte {at}: only record batches (magic 2) can be read")
    (length,) = _LENGTH.unpack_from(view, at + _LENGTH_AT)
    size: int = _LENGTH_END + length
    if size < _HEADER.size:
        raise ProtocolError(f"the record batch at byte {at} says that it has {size} bytes; its header alone has {_HEADER.size}")
    return size if size <= left else None


def _read_record(data: bytes, at: int, batch: RecordBatch) -> tuple[Record, int]:
    """The record at `at`, and where the next begins. IndexError: `data` ends before the record does."""
    length, at = _varint(data, at)
    end = at + length
    if not at < end <= len(data):
        raise ProtocolError(f"a length of {length} where {len(data) - at} bytes are left")
    timestamp_delta, at = _varint(data, at + 1, 64)  # after the attributes, which have no meaning yet
    offset_delta, at = _varint(data, at)
    key, at = _read_field(data, at, end)
    value, at = _read_field(data, at, end)
    count, at = _varint(data, at)
    headers: tuple[Header, ...] = ()
    if count:
        headers, at = _read_headers(data, at, end, count)
    if at != end:
        raise ProtocolError(f"its length says that it ends at byte {end}, its fields at {at}")
    if not 0 <= offset_delta <= batch.last_offset_delta:
        raise ProtocolError(f"an offset delta of {offset_delta} in a batch up to {batch.last_offset_delta}")
    timestamp = batch.max_timestamp if batch.attributes & _LOG_APPEND_TIME else batch.base_timestamp + timestamp_delta
    return Record(batch.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_headers(data: bytes, at: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    if not 0 <= count <= (end - at) // _LEAST_HEADER:
        raise ProtocolError(f"{count} headers cannot be in {end - at} bytes")
    headers = []
    for _ in range(count):
        name, at = _read_field(data, at, end)
        if name is None:
            raise ProtocolError("a header without a name")
        value, at = _read_field(data, at, end)
        headers.append((name.decode(), value))
    return tuple(headers), at


def _read_field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Bytes behind their length, None for -1, which must end by `end`."""
    length, at = _varint(data, at)
    if length < 0:
        if length < -1:
            raise ProtocolError(f"a length of {length}")
        return None, at
    stop = at + length
    if stop > end:
        raise ProtocolError(f"a field of {length} bytes where {max(end - at, 0)} are left")
    return data[at:stop], stop


def _varint(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """The zig-zag varint at `at`, and where it ends. Nearly all have one byte or two."""
    value = data[at]
    at += 1
    if value >= 0x80:
        byte = data[at]
        at += 1
        value += (byte << 7) - 0x80
        if byte >= 0x80:
            value, at = _varint_rest(data, at, value - 0x4000, bits)
    return (value >> 1) ^ -(value & 1), at


def _varint_rest(data: bytes, at: int, value: int, bits: int) -> tuple[int, int]:
    """`value` and what continues it from its third byte on, still zig-zag."""
    for shift in range(14, bits, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise ProtocolError(f"a varint longer than {bits} bits")
    if value >> bits:
        raise ProtocolError(f"a varint longer than {bits} bits")
    return value, at
