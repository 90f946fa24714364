"""A partition's log in memory: the broker's checks before an append, and the reads of appended batches.

1. The header of a batch decides whether it is appended: size, CRC-32C, counts. Its records are decoded when they are read, or on
   append with `verify`.
2. The broker stamps base offset and leader epoch, which the CRC does not cover. Only LogAppendTime rewrites bytes that it covers.
3. The bytes after the stamp are the client's own; the log keeps them without a copy.
4. Message sets (magic 0 and 1) are checked whole, as brokers of their time did, and stored message by message. Only the offset before
   a message is stamped. A wrapper is encoded anew if its messages do not have the offsets of the log, as in magic 0.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import ProtocolError, broker_error
from aioproducer.model import Compression, TimestampType
from aioproducer.records.message_set import (
    LOG_APPEND_TIME,
    Message,
    message,
    read_messages,
    wrapper,
)
from aioproducer.records.record_batch import TRANSACTIONAL, crc32c, encode_record, header, placed
from aioproducer.testing.producers import Producers
from aioproducer.testing.record_batches import ControlType, RecordBatch, end_marker, read_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.records.reader import Record

__all__ = ["Appended", "PartitionLog", "Stamped", "message_set", "only_batch"]


_STAMP: Final = struct.Struct(">qii")  # base offset, length, leader epoch
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


class Appended(NamedTuple):
    """Holds the base offset of an appended batch, and its append time.

    `log_append_time_ms` is -1 if the producer's timestamps apply; for a duplicate it is the batch's highest timestamp.
    """

    base_offset: int
    log_append_time_ms: int


class Stamped(NamedTuple):
    """Holds a timestamp and the offset of its record."""

    timestamp_ms: int
    offset: int


class _Stored(NamedTuple):
    """Holds a stored batch, or one message of a set."""

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
    """Return the one batch of a partition in a Produce request.

    Raises:
        BrokerError: INVALID_RECORD for none, more than one, or another magic than 2; CORRUPT_MESSAGE for bytes that are no batch.
    """
    if not records:
        raise broker_error(
            "INVALID_RECORD",
            "Produce requests must have exactly one record batch per partition, and there is none",
        )
    try:
        batches = list(read_batches(records))
    except ProtocolError as error:
        is_other_magic = len(records) > _MAGIC_AT and records[_MAGIC_AT] != 2
        raise broker_error(
            "INVALID_RECORD" if is_other_magic else "CORRUPT_MESSAGE", str(error)
        ) from error
    if len(batches) != 1:
        raise broker_error(
            "INVALID_RECORD",
            f"Produce requests must have exactly one record batch per partition, not {len(batches)}",
        )
    return batches[0]


def message_set(records: Buffer | None) -> list[Message]:
    """Return the messages of a partition in a Produce request of a version before 3.

    Raises:
        BrokerError: INVALID_RECORD for none, or another magic than 0 and 1; CORRUPT_MESSAGE for bytes that are no messages.
    """
    if not records:
        raise broker_error(
            "INVALID_RECORD",
            "a Produce request has messages for each partition that it names, and there are none",
        )
    try:
        return list(read_messages(records))
    except ProtocolError as error:
        is_other_magic = len(records) > _MAGIC_AT and records[_MAGIC_AT] > 1
        raise broker_error(
            "INVALID_RECORD" if is_other_magic else "CORRUPT_MESSAGE", str(error)
        ) from error


class PartitionLog:
    """Holds the batches of one partition.

    Args:
        max_message_bytes: the largest batch that is appended, in bytes with its header.
        stamps_time: whether the broker stamps records (`message.timestamp.type=LogAppendTime`).
        verify: decode every record on append, not first when it is read.

    Attributes:
        producers: the state of the producers that wrote to the partition.
    """

    def __init__(
        self, *, max_message_bytes: int, stamps_time: bool = False, verify: bool = False
    ) -> None:
        self.start_offset = 0
        self.end_offset: int = 0
        self.producers: Producers = Producers()
        self.watchers: set[Callable[[], None]] = set()
        """Callbacks after each append."""
        self.replicated: int = 0
        """The offset before which all replicas have all records: those are acknowledged with acks=all. See `truncate`."""
        self.truncations: int = 0
        """Number of truncations."""
        self._max_message_bytes = max_message_bytes
        self._stamps_time = stamps_time
        self._verify = verify
        self._stored: list[_Stored] = []
        self._base_offsets: list[int] = []

    def append(
        self,
        sent: RecordBatch | Sequence[Message],
        *,
        leader_epoch: int,
        now_ms: int,
        is_verified: bool = False,
    ) -> Appended:
        """Check a batch, or the messages of a set, and store all of it or nothing.

        Args:
            sent: the batch or set.
            leader_epoch: the partition's leader epoch.
            now_ms: the broker's time.
            is_verified: the coordinator of the batch's transaction has the partition in it.

        Raises:
            BrokerError: the error that a broker answers to such a batch or set.
        """
        base_offset = self.end_offset
        if isinstance(sent, RecordBatch):
            self._check(sent)
            if sent.producer_id >= 0:
                wrote = self.producers.duplicate(sent)
                if wrote is not None:
                    return Appended(wrote.base_offset, wrote.max_timestamp)
                self.producers.check(sent, is_verified=is_verified)
            self._append_batch(sent, leader_epoch, now_ms)
            is_stamped = self._stamps_time
        else:
            self._append_messages(sent, now_ms)
            is_stamped = self._stamps_time and sent[0].magic > 0
        self._tell()
        return Appended(base_offset, now_ms if is_stamped else -1)

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        *,
        is_abort: bool,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Append the marker of a transaction's end."""
        base_offset = self.end_offset
        raw = _marker(
            producer_id,
            epoch,
            is_abort=is_abort,
            coordinator_epoch=coordinator_epoch,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )
        self._store(_Stored(raw[:_MAGIC_AT], raw[_MAGIC_AT:], base_offset, base_offset, now_ms))
        self.producers.end(producer_id, epoch, base_offset, is_abort=is_abort)
        self.replicate(self.end_offset)  # a coordinator writes with acks=all
        self._tell()

    @property
    def last_stable_offset(self) -> int:
        """Return the offset before which no record belongs to an open transaction."""
        first_unstable = self.producers.first_unstable
        return self.end_offset if first_unstable is None else first_unstable

    def _tell(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    def _append_batch(self, batch: RecordBatch, leader_epoch: int, now_ms: int) -> None:
        base_offset = self.end_offset
        body: Buffer = batch.raw[_MAGIC_AT:]
        max_timestamp = batch.max_timestamp
        if self._stamps_time:
            body, max_timestamp = _with_append_time(batch, now_ms), now_ms
        stamp = _STAMP.pack(base_offset, batch.length, leader_epoch)
        self._store(_Stored(stamp, body, base_offset, base_offset + batch.count - 1, max_timestamp))
        if batch.producer_id >= 0:
            self.producers.add(batch, base_offset, max_timestamp)

    def _append_messages(self, messages: Sequence[Message], now_ms: int) -> None:
        checked = [(sent, self._check_message(sent)) for sent in messages]
        for sent, records in checked:
            last_offset = self.end_offset + len(records) - 1
            timestamp = now_ms if self._stamps_time and sent.magic else sent.timestamp_ms
            raw = _with_offsets(
                sent, records, self.end_offset, now_ms if self._stamps_time else None
            )
            self._store(
                _Stored(
                    bytes(raw[:_MAGIC_AT]),
                    raw[_MAGIC_AT:],
                    self.end_offset,
                    last_offset,
                    timestamp,
                    is_message=True,
                )
            )

    def _store(self, stored: _Stored) -> None:
        self._stored.append(stored)
        self._base_offsets.append(stored.base_offset)
        self.end_offset = stored.last_offset + 1

    def _check_message(self, sent: Message) -> list[Record]:
        """Check a message. Returns its records."""
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
        """Check a batch in the order of Kafka's UnifiedLog and LogValidator: base offset, size, CRC, then the header's fields."""
        if batch.base_offset:
            raise broker_error(
                "INVALID_RECORD",
                f"a batch's base offset should be 0, but it is {batch.base_offset}",
            )
        if batch.size_in_bytes > self._max_message_bytes:
            raise broker_error(
                "MESSAGE_TOO_LARGE",
                f"The record batch size {batch.size_in_bytes} exceeds the maximum configured max.message.bytes {self._max_message_bytes}",
            )
        crc = crc32c(batch.raw[_CRC_END:])
        if crc != batch.crc:
            raise broker_error(
                "CORRUPT_MESSAGE",
                f"the batch's CRC-32C is {crc:#010x}, its header says {batch.crc:#010x}",
            )
        self._check_header(batch)
        if self._verify:
            try:
                batch.check()
            except ProtocolError as error:
                raise broker_error("INVALID_RECORD", str(error)) from error

    def _check_header(self, batch: RecordBatch) -> None:
        if batch.count < 1 or batch.count != batch.last_offset_delta + 1:
            raise broker_error(
                "INVALID_RECORD",
                f"a count of {batch.count} with a last offset delta of {batch.last_offset_delta}",
            )
        if batch.is_control:
            raise broker_error("INVALID_RECORD", "clients may not write control records")
        if batch.producer_id >= 0 and batch.base_sequence < 0:
            raise broker_error(
                "INVALID_RECORD",
                f"Invalid sequence number {batch.base_sequence} in record batch with producerId",
            )
        if batch.producer_id < 0 and batch.is_transactional:
            raise broker_error("INVALID_RECORD", "a transactional batch without a producer id")
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME and not self._stamps_time:
            raise broker_error(
                "INVALID_TIMESTAMP", "a producer may not set the timestamp type to LogAppendTime"
            )

    def replicate(self, offset: int) -> None:
        """Note that all replicas have all records before `offset`."""
        self.replicated = max(self.replicated, offset)

    def truncate(self, offset: int) -> int:
        """Drop the batches from `offset` on, as an unclean leader election does. Returns the number of lost records."""
        before = self.end_offset
        while self._stored and self._stored[-1].last_offset >= offset:
            self._stored.pop()
            self._base_offsets.pop()
        self.end_offset = self._stored[-1].last_offset + 1 if self._stored else self.start_offset
        self.producers = Producers.of(self.batches())
        self.truncations += 1
        return before - self.end_offset

    def read(self, offset: int, max_bytes: int, *, below: int | None = None) -> list[Buffer]:
        """Return whole batches from the one that has `offset` on, about `max_bytes` in size, at least one if there is one.

        Args:
            offset: the first offset.
            max_bytes: the approximate size.
            below: the end offset for readers of stable records only; None: the log's end.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise broker_error(
                "OFFSET_OUT_OF_RANGE",
                f"{offset} is not in {self.start_offset} to {self.end_offset}",
            )
        chunks: list[Buffer] = []
        end = self.end_offset if below is None else below
        if offset >= end:
            return chunks
        room = max_bytes
        for index in range(bisect_right(self._base_offsets, offset) - 1, len(self._stored)):
            stored = self._stored[index]
            if stored.base_offset >= end or (chunks and stored.size > room):
                break
            chunks += (stored.stamp, stored.body)
            room -= stored.size
        return chunks

    def batches(self) -> list[RecordBatch]:
        """Return the record batches as they were stamped."""
        return [stored.batch() for stored in self._stored if not stored.is_message]

    def messages(self) -> list[Message]:
        """Return the messages of magic 0 and 1 as they were stamped; wrappers are not unwrapped."""
        return [stored.message() for stored in self._stored if stored.is_message]

    def records(self, *, only_committed: bool = False) -> list[Record]:
        """Return every record except transaction markers, or only those that `isolation.level=read_committed` shows.

        Raises:
            ProtocolError: records contradict their batch's header, a client's bug that the header check does not find.
        """
        return [
            record
            for stored in self._stored
            if self._is_shown(stored, only_committed=only_committed)
            for record in stored.check()
        ]

    def _is_shown(self, stored: _Stored, *, only_committed: bool) -> bool:
        if stored.is_message:
            return True
        batch = stored.batch()
        if batch.is_control or not only_committed:
            return not batch.is_control
        aborted = (
            self.producers.aborted_within(stored.base_offset, stored.last_offset + 1)
            if batch.is_transactional
            else ()
        )
        return stored.last_offset < self.last_stable_offset and all(
            one.producer_id != batch.producer_id for one in aborted
        )

    def first_since(self, timestamp_ms: int) -> Stamped | None:
        """Return time and offset of the first record that is not older than `timestamp_ms`; None: there is none."""
        for stored in self._stored:
            if stored.max_timestamp >= timestamp_ms:
                for record in stored.records():
                    if record.timestamp_ms >= timestamp_ms:
                        return Stamped(record.timestamp_ms, record.offset)
        return None

    def newest(self) -> Stamped | None:
        """Return time and offset of the first record that has the highest timestamp; None: the log is empty."""
        if not self._stored:
            return None
        return self.first_since(max(stored.max_timestamp for stored in self._stored))


# --- the bytes that a broker writes: offsets, append times, and transaction markers
# Record batches keep their bytes, except with LogAppendTime. A wrapper of a message set (magic 0 and 1) may be encoded anew.


def _marker(
    producer_id: int,
    epoch: int,
    *,
    is_abort: bool,
    coordinator_epoch: int,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> bytes:
    """Return a whole control batch that ends a transaction (Kafka's MemoryRecords.withEndTransactionMarker)."""
    key, value = end_marker(
        ControlType.ABORT if is_abort else ControlType.COMMIT, coordinator_epoch
    )
    payload = encode_record(0, 0, key, value, b"\0")
    attributes = TRANSACTIONAL | _CONTROL
    head = header(payload, 1, attributes, now_ms, now_ms, (producer_id, epoch))
    return placed(head, base_offset, leader_epoch) + payload


def _with_append_time(batch: RecordBatch, now_ms: int) -> bytearray:
    """Return a batch from its magic on, with the broker's time and a new CRC (Kafka's DefaultRecordBatch.setMaxTimestamp)."""
    raw = bytearray(batch.raw)
    _ATTRIBUTES.pack_into(raw, _CRC_END, batch.attributes | _LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(raw, _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(raw, _CRC_AT, crc32c(memoryview(raw)[_CRC_END:]))
    del raw[:_MAGIC_AT]
    return raw


def _with_offsets(
    sent: Message, records: Sequence[Record], base_offset: int, append_time_ms: int | None
) -> Buffer:
    """Return a message with its offset in the log, and with the broker's time if one is given (Kafka's LogValidator)."""
    last_offset = base_offset + len(records) - 1
    stamps = append_time_ms is not None and sent.magic > 0
    if not stamps and _keeps_its_bytes(sent, records):
        return _OFFSET.pack(last_offset) + bytes(sent.raw[_OFFSET.size :])
    timestamp, attributes = (
        (append_time_ms or 0, LOG_APPEND_TIME) if stamps else (sent.timestamp_ms, 0)
    )
    if sent.compression is Compression.NONE:
        [record] = records
        return message(sent.magic, last_offset, timestamp, record.key, record.value, attributes)
    first = 0 if sent.magic else base_offset
    inner = b"".join(
        message(sent.magic, first + number, record.timestamp_ms, record.key, record.value)
        for number, record in enumerate(records)
    )
    return wrapper(
        sent.magic, sent.compression, inner, last_offset, timestamp, attributes=attributes
    )


def _keeps_its_bytes(sent: Message, records: Sequence[Record]) -> bool:
    """Return whether only the message's own offset depends on its place in the log.

    A wrapper of magic 1 has relative offsets; it keeps its bytes if they have no gaps.
    """
    if sent.compression is Compression.NONE:
        return True
    return sent.magic > 0 and [record.offset - records[0].offset for record in records] == list(
        range(len(records))
    )
