"""A partition's log in memory: what a broker checks before it appends, and how it finds what was appended.

1. A batch is taken by its header: size, CRC-32C, counts. Its records are decoded when someone looks, or on append with `verify`.
2. The broker stamps base offset and leader epoch, which the CRC does not cover. Only LogAppendTime rewrites what it covers.
3. The bytes behind the stamp are those that the client sent; they are kept, not copied.
4. Message sets (magic 0 and 1) are checked whole, as brokers of their time did, and kept message by message. Only the offset before a
   message is stamped; a wrapper whose messages do not have the offsets that a log wants, as in magic 0, is made anew.

Knows no topic, broker, connection, loop or clock.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from aioproducer.errors import ProtocolError, broker_error
from aioproducer.model import Compression, TimestampType
from aioproducer.records.message_set import LOG_APPEND_TIME, message, wrapper
from aioproducer.records.message_set_reader import Message, read_messages
from aioproducer.records.reader import RecordBatch, read_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.records.reader import Record

__all__ = ["Appended", "PartitionLog", "Stamped", "message_set", "only_batch"]

_STAMP: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_CRC_END: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_LOG_APPEND_TIME: Final = 0x08
_OFFSET: Final = struct.Struct(">q")


class Appended(NamedTuple):
    """Where a batch went. `log_append_time_ms` is -1 where the producer's timestamps stand."""

    base_offset: int
    log_append_time_ms: int


class Stamped(NamedTuple):
    """A time and the offset of the record that has it."""

    timestamp_ms: int
    offset: int


class _Stored(NamedTuple):
    """A batch, or one message of a set."""

    stamp: bytes
    body: Buffer
    base_offset: int
    last_offset: int
    max_timestamp: int
    is_message: bool = False

    def batch(self) -> RecordBatch:
        return next(iter(read_batches(self.stamp + self.body)))

    def message(self) -> Message:
        return next(iter(read_messages(self.stamp + self.body)))

    def check(self) -> list[Record]:
        return self.message().check() if self.is_message else self.batch().check()

    def records(self) -> list[Record]:
        return self.message().records() if self.is_message else self.batch().records()

    @property
    def size(self) -> int:
        return len(self.stamp) + len(self.body)


def only_batch(records: Buffer | None) -> RecordBatch:
    """The one batch of a partition in a Produce request.

    Raises:
        BrokerError: INVALID_RECORD for none, more than one, or another magic than 2; CORRUPT_MESSAGE for bytes that are no batch.
    """
    if not records:
        raise broker_error("INVALID_RECORD", "Produce requests must have exactly one record batch per partition, and there is none")
    try:
        batches = list(read_batches(records))
    except ProtocolError as error:
        is_other_magic = len(records) > _MAGIC_AT and records[_MAGIC_AT] != 2
        raise broker_error("INVALID_RECORD" if is_other_magic else "CORRUPT_MESSAGE", str(error)) from error
    if len(batches) != 1:
        raise broker_error("INVALID_RECORD", f"Produce requests must have exactly one record batch per partition, not {len(batches)}")
    return batches[0]


def message_set(records: Buffer | None) -> list[Message]:
    """The messages of a partition in a Produce request of a version before 3.

    Raises:
        BrokerError: INVALID_RECORD for none, or another magic than 0 and 1; CORRUPT_MESSAGE for bytes that are no messages.
    """
    if not records:
        raise broker_error("INVALID_RECORD", "a Produce request has messages for each partition that it names, and there are none")
    try:
        return list(read_messages(records))
    except ProtocolError as error:
        is_other_magic = len(records) > _MAGIC_AT and records[_MAGIC_AT] > 1
        raise broker_error("INVALID_RECORD" if is_other_magic else "CORRUPT_MESSAGE", str(error)) from error


class PartitionLog:
    """The batches of one partition.

    Args:
        max_message_bytes: the largest batch that is taken, in bytes with its header.
        stamps_time: whether the broker stamps records (`message.timestamp.type=LogAppendTime`).
        verify: decode every record on append instead of when someone looks.
    """

    def __init__(self, *, max_message_bytes: int, stamps_time: bool = False, verify: bool = False) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.watchers: set[Callable[[], None]] = set()
        """Called after each append."""
        self._max_message_bytes = max_message_bytes
        self._stamps_time = stamps_time
        self._verify = verify
        self._stored: list[_Stored] = []
        self._base_offsets: list[int] = []

    def append(self, sent: RecordBatch | Sequence[Message], *, leader_epoch: int, now_ms: int) -> Appended:
        """Check a batch, or the messages of a set, and store it, or store nothing.

        Raises:
            BrokerError: what a broker answers to such a batch or set.
        """
        base_offset = self.end_offset
        if isinstance(sent, RecordBatch):
            self._append_batch(sent, leader_epoch, now_ms)
            is_stamped = self._stamps_time
        else:
            self._append_messages(sent, now_ms)
            is_stamped = self._stamps_time and sent[0].magic > 0
        for watcher in tuple(self.watchers):
            watcher()
        return Appended(base_offset, now_ms if is_stamped else -1)

    def _append_batch(self, batch: RecordBatch, leader_epoch: int, now_ms: int) -> None:
        self._check(batch)
        base_offset = self.end_offset
        body: Buffer = batch.raw[_MAGIC_AT:]
        max_timestamp = batch.max_timestamp
        if self._stamps_time:
            body, max_timestamp = _with_append_time(batch, now_ms), now_ms
        stamp = _STAMP.pack(base_offset, batch.length, leader_epoch)
        self._store(_Stored(stamp, body, base_offset, base_offset + batch.count - 1, max_timestamp))

    def _append_messages(self, messages: Sequence[Message], now_ms: int) -> None:
        checked = [(sent, self._check_message(sent)) for sent in messages]
        for sent, records in checked:
            last_offset = self.end_offset + len(records) - 1
            timestamp = now_ms if self._stamps_time and sent.magic else sent.timestamp_ms
            raw = _stamped_message(sent, records, self.end_offset, now_ms if self._stamps_time else None)
            self._store(_Stored(bytes(raw[:_MAGIC_AT]), raw[_MAGIC_AT:], self.end_offset, last_offset, timestamp, is_message=True))

    def _store(self, stored: _Stored) -> None:
        self._stored.append(stored)
        self._base_offsets.append(stored.base_offset)
        self.end_offset = stored.last_offset + 1

    def _check_message(self, sent: Message) -> list[Record]:
        """The records of a message that a broker takes."""
        if sent.size_in_bytes > self._max_message_bytes:
            raise broker_error(
                "MESSAGE_TOO_LARGE",
                f"The message size {sent.size_in_bytes} exceeds the maximum configured max.message.bytes {self._max_message_bytes}",
            )
        try:
            return sent.check()
        except ProtocolError as error:
            raise broker_error("CORRUPT_MESSAGE", str(error)) from error

    def _check(self, batch: RecordBatch) -> None:
        """In the order of Kafka's UnifiedLog and LogValidator: size, CRC, then what the header says."""
        if batch.size_in_bytes > self._max_message_bytes:
            raise broker_error(
                "MESSAGE_TOO_LARGE",
                f"The record batch size {batch.size_in_bytes} exceeds the maximum configured max.message.bytes {self._max_message_bytes}",
            )
        crc = crc32c(batch.raw[_CRC_END:])
        if crc != batch.crc:
            raise broker_error("CORRUPT_MESSAGE", f"the batch's CRC-32C is {crc:#010x}, its header says {batch.crc:#010x}")
        if batch.count < 1 or batch.count != batch.last_offset_delta + 1:
            raise broker_error("INVALID_RECORD", f"a count of {batch.count} with a last offset delta of {batch.last_offset_delta}")
        if batch.is_control:
            raise broker_error("INVALID_RECORD", "clients may not write control records")
        if batch.producer_id >= 0 or batch.is_transactional:
            raise broker_error(
                "INVALID_RECORD", "this fake offers no producer ids (it does not advertise InitProducerId), the batch has one"
            )
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME and not self._stamps_time:
            raise broker_error("INVALID_TIMESTAMP", "a producer may not set the timestamp type to LogAppendTime")
        if self._verify:
            try:
                batch.check()
            except ProtocolError as error:
                raise broker_error("INVALID_RECORD", str(error)) from error

    def read(self, offset: int, max_bytes: int) -> list[Buffer]:
        """Whole batches from the one that has `offset` on, about `max_bytes` of them, at least one if there is one.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise broker_error("OFFSET_OUT_OF_RANGE", f"{offset} is not in {self.start_offset} to {self.end_offset}")
        chunks: list[Buffer] = []
        if offset == self.end_offset:
            return chunks
        room = max_bytes
        for index in range(bisect_right(self._base_offsets, offset) - 1, len(self._stored)):
            stored = self._stored[index]
            if chunks and stored.size > room:
                break
            chunks += (stored.stamp, stored.body)
            room -= stored.size
        return chunks

    def batches(self) -> list[RecordBatch]:
        """The record batches, as they were stamped."""
        return [stored.batch() for stored in self._stored if not stored.is_message]

    def messages(self) -> list[Message]:
        """The messages of magic 0 and 1, as they were stamped; wrappers are not unwrapped."""
        return [stored.message() for stored in self._stored if stored.is_message]

    def records(self) -> list[Record]:
        """Every record.

        Raises:
            ProtocolError: records that do not agree with their batch's header: a client's bug that the header check let pass.
        """
        return [record for stored in self._stored for record in stored.check()]

    def first_since(self, timestamp_ms: int) -> Stamped | None:
        """The first record that is not older than `timestamp_ms`."""
        for stored in self._stored:
            if stored.max_timestamp >= timestamp_ms:
                for record in stored.records():
                    if record.timestamp_ms >= timestamp_ms:
                        return Stamped(record.timestamp_ms, record.offset)
        return None

    def newest(self) -> Stamped | None:
        """The first record that has the highest timestamp."""
        if not self._stored:
            return None
        return self.first_since(max(stored.max_timestamp for stored in self._stored))


def _with_append_time(batch: RecordBatch, now_ms: int) -> bytearray:
    """A batch from its magic on, with the broker's time and the CRC made anew (Kafka's DefaultRecordBatch.setMaxTimestamp)."""
    raw = bytearray(batch.raw)
    _ATTRIBUTES.pack_into(raw, _CRC_END, batch.attributes | _LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(raw, _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(raw, _CRC_AT, crc32c(memoryview(raw)[_CRC_END:]))
    del raw[:_MAGIC_AT]
    return raw


def _stamped_message(sent: Message, records: Sequence[Record], base_offset: int, append_time_ms: int | None) -> Buffer:
    """A message with the offset that it has in the log, and the broker's time if it has one (Kafka's LogValidator)."""
    last_offset = base_offset + len(records) - 1
    stamps = append_time_ms is not None and sent.magic > 0
    timestamp, attributes = (append_time_ms or 0, LOG_APPEND_TIME) if stamps else (sent.timestamp_ms, 0)
    if sent.compression is Compression.NONE:
        if not stamps:
            return _OFFSET.pack(last_offset) + bytes(sent.raw[_OFFSET.size :])
        [record] = records
        return message(sent.magic, last_offset, timestamp, record.key, record.value, attributes)
    if sent.magic and not stamps and [record.offset - records[0].offset for record in records] == list(range(len(records))):
        return _OFFSET.pack(last_offset) + bytes(sent.raw[_OFFSET.size :])
    first = 0 if sent.magic else base_offset
    inner = b"".join(
        message(sent.magic, first + number, record.timestamp_ms, record.key, record.value) for number, record in enumerate(records)
    )
    return wrapper(sent.magic, sent.compression, inner, last_offset, timestamp, attributes=attributes)
