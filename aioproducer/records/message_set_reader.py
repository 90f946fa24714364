"""Message sets of magic 0 and 1 out of bytes that a stranger may have written; the rules are those of `reader`.

1. Every length is held against the bytes that are left before anything is allocated for it.
2. What is wrong is a `ProtocolError` that says where; nothing else is raised, whatever the bytes.
3. `read_messages` looks at heads only; `records` decodes what a wrapper holds; `check` also holds the checksums to their bytes.

Knows nothing of how sets are written, sent or stored, nor of record batches (magic 2).
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

_LOG: Final = struct.Struct(">qi")  # offset, and the size of what follows
_HEAD: Final = struct.Struct(">IBB")  # CRC of what follows it, magic, attributes
_TIMESTAMP: Final = struct.Struct(">q")  # from magic 1 on
_LENGTH: Final = struct.Struct(">i")
_CRC_END: Final = 16
_MAGIC_AT: Final = 16
_LEAST: Final = (26, 34)  # bytes of a message with neither key nor value, by magic
_NO_TIMESTAMP: Final = -1

_CODEC: Final = 0x07
_CODECS: Final = frozenset(Compression) - {Compression.ZSTD}
_LOG_APPEND_TIME: Final = 0x08


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A message that stands in a set: one record, or the wrapper of several. `crc` is unsigned; `timestamp_ms` is -1 in magic 0."""

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
        """The whole message, with its offset and size before it."""
        return len(self.raw)

    @property
    def compression(self) -> Compression:
        """The codec of what it wraps; NONE: it is a record itself."""
        return Compression(self.attributes & _CODEC)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who stamped it; magic 0 has no stamps."""
        return TimestampType.LOG_APPEND_TIME if self.magic and self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME

    def check(self, limit: int = MAX_DECOMPRESSED) -> list[Record]:
        """The records, once every CRC is found true, its own and those of what it wraps.

        Args:
            limit: the most bytes that it may decompress to.

        Raises:
            ProtocolError: a CRC is another, or it does not decode.
        """
        self._check_crc()
        return self._decoded(limit, is_checked=True)

    def records(self, limit: int = MAX_DECOMPRESSED) -> list[Record]:
        """The record that it is, or those that it wraps. CRCs are not looked at.

        Args:
            limit: the most bytes that it may decompress to.

        Raises:
            ProtocolError: what it wraps does not decompress within `limit`, or does not decode.
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
                    message._check_crc()  # noqa: SLF001  of its own kind
                records.append(message._record(message.offset, self.timestamp_ms if is_appended else message.timestamp_ms))  # noqa: SLF001
            return self._rebased(records)
        except ProtocolError as error:
            raise self._wrong(str(error)) from error

    def _unwrapped(self, limit: int) -> bytes:
        if self.value is None:
            raise ProtocolError("a wrapper without a value")
        is_spoilt = self.compression is Compression.LZ4 and not self.magic
        return decompress(self.compression, mend(self.value) if is_spoilt else self.value, limit)

    def _rebased(self, records: list[Record]) -> list[Record]:
        """What it wraps, with the offsets of the log: in magic 1 they are relative, and the last one's is the wrapper's."""
        if not records:
            raise ProtocolError("a wrapper of no messages")
        if not self.magic or not self.offset:  # some versions of librdkafka leave the wrapper's at 0 when they send
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
    """The messages of `buffer`, one after another; they look into it, so it must not change.

    Args:
        buffer: whole messages, as in a Produce request, a Fetch response or a log segment.
        allow_partial: a last message that is cut off is left out (a Fetch response may end so) instead of being an error.

    Raises:
        ProtocolError: while iterating: a head that cannot be, a magic other than 0 and 1, an unknown codec, or a cut-off message.
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
    """The size of the message at `at`, or None: not all of it is there."""
    left = len(view) - at
    if left <= _MAGIC_AT:
        return None
    magic = view[at + _MAGIC_AT]
    if magic > 1:  # first: in another magic the fields around it mean other things
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
    """Bytes behind their length, None for -1."""
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
