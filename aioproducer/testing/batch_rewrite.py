"""Encodes the parts of a log that a broker writes: offsets, append times, and transaction markers.

Record batches keep their bytes, except with LogAppendTime. A wrapper of a message set (magic 0 and 1) may be encoded anew.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from aioproducer.model import Compression
from aioproducer.records.message_set import LOG_APPEND_TIME, message, wrapper
from aioproducer.records.reader import ControlType, end_marker
from aioproducer.records.record_batch import TRANSACTIONAL, crc32c, encode_record, header, placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.records.message_set import Message
    from aioproducer.records.reader import Record, RecordBatch

__all__ = ["marker", "with_append_time", "with_offsets"]

_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">q")
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_CRC_END: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20


def marker(
    producer_id: int, epoch: int, *, is_abort: bool, coordinator_epoch: int, base_offset: int, leader_epoch: int, now_ms: int
) -> bytes:
    """Return a whole control batch that ends a transaction (Kafka's MemoryRecords.withEndTransactionMarker)."""
    key, value = end_marker(ControlType.ABORT if is_abort else ControlType.COMMIT, coordinator_epoch)
    payload = encode_record(0, 0, key, value, b"\0")
    attributes = TRANSACTIONAL | _CONTROL
    head = header(payload, 1, attributes, now_ms, now_ms, (producer_id, epoch))
    return placed(head, base_offset, leader_epoch) + payload


def with_append_time(batch: RecordBatch, now_ms: int) -> bytearray:
    """Return a batch from its magic on, with the broker's time and a new CRC (Kafka's DefaultRecordBatch.setMaxTimestamp)."""
    raw = bytearray(batch.raw)
    _ATTRIBUTES.pack_into(raw, _CRC_END, batch.attributes | _LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(raw, _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(raw, _CRC_AT, crc32c(memoryview(raw)[_CRC_END:]))
    del raw[:_MAGIC_AT]
    return raw


def with_offsets(sent: Message, records: Sequence[Record], base_offset: int, append_time_ms: int | None) -> Buffer:
    """Return a message with its offset in the log, and with the broker's time if one is given (Kafka's LogValidator)."""
    last_offset = base_offset + len(records) - 1
    stamps = append_time_ms is not None and sent.magic > 0
    if not stamps and _keeps_its_bytes(sent, records):
        return _OFFSET.pack(last_offset) + bytes(sent.raw[_OFFSET.size :])
    timestamp, attributes = (append_time_ms or 0, LOG_APPEND_TIME) if stamps else (sent.timestamp_ms, 0)
    if sent.compression is Compression.NONE:
        [record] = records
        return message(sent.magic, last_offset, timestamp, record.key, record.value, attributes)
    first = 0 if sent.magic else base_offset
    inner = b"".join(
        message(sent.magic, first + number, record.timestamp_ms, record.key, record.value) for number, record in enumerate(records)
    )
    return wrapper(sent.magic, sent.compression, inner, last_offset, timestamp, attributes=attributes)


def _keeps_its_bytes(sent: Message, records: Sequence[Record]) -> bool:
    """Return whether only the message's own offset depends on its place in the log.

    A wrapper of magic 1 has relative offsets; it keeps its bytes if they have no gaps.
    """
    if sent.compression is Compression.NONE:
        return True
    return sent.magic > 0 and [record.offset - records[0].offset for record in records] == list(range(len(records)))
