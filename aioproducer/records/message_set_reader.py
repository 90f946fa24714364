"""The reader of message sets of magic 0 and 1, from untrusted bytes; its rules are those of `reader`.

1. The reader compares every length with the bytes left before it allocates memory for it.
2. Every error in the bytes is a `ProtocolError` that gives the position; no bytes cause another exception.
3. `read_messages` reads the heads only. `records` decodes the messages of a wrapper. `check` also verifies the checksums.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioproducer.errors import ProtocolError
from aioproducer.model import Compression, TimestampType
from aioproducer.records.compression import decompress
from aioproducer.records.lz4_header import mend
from aioproducer.records.reader import MAX_DECOMPRESSED, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.interfaces import Buffer

__all__ = ["Message", "read_messages"]

# Offset, and the size of the bytes after it.
_LOG: Final = struct.Struct(">qi")
# CRC of the bytes after it, magic, attributes.
_HEAD: Final = struct.Struct(">IBB")
# Magic 1 only.
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CRC_END: Final = 16
_MAGIC_AT: Final = 16
# Bytes of a message with neither key nor value, by magic.
_LEAST: Final = (26, 34)
_NO_TIMESTAMP: Final = -1

_CODEC: Final = 0x07
_CODECS: Final = frozenset(Compression) - {Compression.ZSTD}
_LOG_APPEND_TIME: Final = 0x08


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Holds one message of a set: one record, or the wrapper of several. `crc` is unsigned; `timestamp_ms` is -1 in magic 0."""

    raw: memoryview = field(repr=False)
    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None = field(repr=False)
    value: memoryview | None = field(repr=False)

    @property
    def size_in_bytes(self) -> int:
        """Return the bytes of the whole message, with its offset and size."""
        return len(self.raw)

    @property
    def compression(self) -> Compression:
        """Return the codec of the wrapped messages; NONE if the message is a record itself."""
        return Compression(self.attributes & _CODEC)

    @property
    def timestamp_type(self) -> TimestampType:
        """Return the type of the timestamp; CREATE_TIME for magic 0, which has no timestamps."""
        return TimestampType.LOG_APPEND_TIME if self.magic and self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME

    def check(self, limit: int = MAX_DECOMPRESSED) -> list[Record]:
        """Verify the CRCs of the message and of the messages that it wraps. Returns the records.

        Args:
            limit: the most bytes that the wrapper may decompress to.

        Raises:
            ProtocolError: a CRC is wrong, or the bytes do not decode.
        """
        self._check_crc()
        return self._decoded(limit, is_checked=True)

    def records(self, limit: int = MAX_DECOMPRESSED) -> list[Record]:
        """Decode the records of the message: itself, or the messages that it wraps. The CRCs are not verified.

        Args:
            limit: the most bytes that the wrapper may decompress to.

        Raises:
            ProtocolError: the wrapped messages do not decompress within `limit`, or do not decode.
        """
        return self._decoded(limit, is_checked=False)

    def _decoded(self, limit: int, *, is_checked: bool) -> list[Record]:
        if self.compression is Compression.NONE:
            return [self._record(self.offset, self.timestamp_ms)]
        is_appended = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        records = []
        try:
            for message in read_messages(self._unwrapped(limit)):
                if message.magic != self.magic or message.compression is not Compression.NONE:
                    raise ProtocolError(f"it wraps a message of magic {message.magic} and codec {message.compression.name.lower()}")
                if is_checked:
                    message._check_crc()
                records.append(message._record(message.offset, self.timestamp_ms if is_appended else message.timestamp_ms))
            return self._rebased(records)
        except ProtocolError as error:
            raise self._wrong(str(error)) from error

    def _unwrapped(self, limit: int) -> bytes:
        if self.value is None:
            raise ProtocolError("a wrapper without a value")
        is_spoilt = self.compression is Compression.LZ4 and not self.magic
        return decompress(self.compression, mend(self.value) if is_spoilt else self.value, limit)

    def _rebased(self, records: list[Record]) -> list[Record]:
        """Return the wrapped records with the offsets of the log.

        The offsets are relative in magic 1, and the wrapper's offset is that of the last record.
        """
        if not records:
            raise ProtocolError("a wrapper of no messages")
        # some versions of librdkafka leave the wrapper's offset at 0 when they send
        if not self.magic or not self.offset:
            return records
        base = self.offset - records[-1].offset
        if base < 0:
            raise ProtocolError(f"its last message has the relative offset {records[-1].offset}")
        return [record._replace(offset=base + record.offset) for record in records] if base else records

    def _record(self, offset: int, timestamp_ms: int) -> Record:
        return Record(offset, timestamp_ms, self.key, None if self.value is None else bytes(self.value), ())

    def _check_crc(self) -> None:
        crc = zlib.crc32(self.raw[_CRC_END:])
        if crc != self.crc:
            raise self._wrong(f"its CRC-32 is {crc:#010x}, its head says {self.crc:#010x}")

    def _wrong(self, what: str) -> ProtocolError:
        return ProtocolError(f"message at offset {self.offset}: {what}")


def read_messages(buffer: Buffer, *, allow_partial: bool = False) -> Iterator[Message]:
    """Yield the messages of `buffer` in order. They are views of the buffer, so it must not change.

    Args:
        buffer: complete messages, as in a Produce request, a Fetch response or a log segment.
        allow_partial: leave out an incomplete last message, with which a Fetch response may end, instead of raising an error.

    Raises:
        ProtocolError: during the iteration: an invalid head, a magic other than 0 and 1, an unknown codec, or an incomplete message.
    """
    view = memoryview(buffer)
    at = 0
    while at < len(view):
        size = _message_size(view, at)
        if size is None:
            if allow_partial:
                return
            raise ProtocolError(f"the message at byte {at} is cut off: {len(view) - at} bytes are left")
        try:
            message = _read_message(view[at : at + size])
        except ProtocolError as error:
            raise ProtocolError(f"the message at byte {at}: {error}") from error
        yield message
        at += size


def _message_size(view: memoryview, at: int) -> int | None:
    """Return the size of the message at `at`, or None if the message is incomplete."""
    left = len(view) - at
    if left <= _MAGIC_AT:
        return None
    magic = view[at + _MAGIC_AT]
    # this check comes first, because another magic gives the fields around it other meanings
    if magic > 1:
        raise ProtocolError(f"magic {magic} at byte {at}: only message sets (magic 0 and 1) can be read")
    (size,) = _LENGTH.unpack_from(view, at + _LOG.size - _LENGTH.size)
    whole: int = _LOG.size + size
    if whole < _LEAST[magic]:
        raise ProtocolError(f"the message at byte {at} says that it has {whole} bytes; without key and value it has {_LEAST[magic]}")
    return whole if whole <= left else None


def _read_message(raw: memoryview) -> Message:
    offset, _ = _LOG.unpack_from(raw)
    crc, magic, attributes = _HEAD.unpack_from(raw, _LOG.size)
    if attributes & _CODEC not in _CODECS:
        raise ProtocolError(f"codec {attributes & _CODEC} is none of message sets'")
    at = _LOG.size + _HEAD.size
    timestamp = _NO_TIMESTAMP
    if magic:
        (timestamp,) = _TIMESTAMP.unpack_from(raw, at)
        at += _TIMESTAMP.size
    key, at = _read_field(raw, at)
    value, at = _read_field(raw, at)
    if at != len(raw):
        raise ProtocolError(f"{len(raw) - at} bytes follow its value")
    return Message(raw, offset, crc, magic, attributes, timestamp, None if key is None else bytes(key), value)


def _read_field(raw: memoryview, at: int) -> tuple[memoryview | None, int]:
    """Return the bytes after the length at `at`, None for a length of -1, and the offset of their end."""
    start = at + _LENGTH.size
    if start > len(raw):
        raise ProtocolError("a length ends early")
    (length,) = _LENGTH.unpack_from(raw, at)
    if length < 0:
        if length < -1:
            raise ProtocolError(f"a length of {length}")
        return None, start
    if length > len(raw) - start:
        raise ProtocolError(f"a field of {length} bytes where {len(raw) - start} are left")
    return raw[start : start + length], start + length
