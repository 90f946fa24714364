"""Message sets of magic 0 and 1, the format of brokers before Kafka 0.11.

    offset, size | CRC-32, magic, attributes, [timestamp] | key length, key | value length, value

A message has no headers and no producer id, and the format has no zstd. A set is a sequence of such messages. A compressed set is one
message without a key, the wrapper, and its value is a whole set. The inner offsets are absolute in magic 0, and start at 0 in magic 1.
The wrapper's own offset is that of its last message; its timestamp is the latest one.

The model is Kafka's LegacyRecord and AbstractLegacyRecordBatch (KIP-31, KIP-32).

What is read comes from the network. As in `reader`, every length is compared with the bytes left before memory is allocated for it, and
every error in the bytes is a `ProtocolError` that gives the position.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from struct import Struct, iter_unpack
from typing import TYPE_CHECKING, Final

from aioproducer.errors import ProtocolError, UsageError
from aioproducer.model import Compression, TimestampType
from aioproducer.records.compression import compress, decompress
from aioproducer.records.reader import MAX_DECOMPRESSED, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioproducer.interfaces import Buffer


# The timestamp of a record without one.
NO_TIMESTAMP: Final = -1
# A bit of the attributes.
LOG_APPEND_TIME: Final = int(TimestampType.LOG_APPEND_TIME) << 3
_CODEC: Final = 0x07
_CODECS: Final = frozenset(Compression) - {Compression.ZSTD}

# Offset, and the size of the bytes after it.
_LOG: Final = Struct(">qi")
# CRC of the bytes after it; then, by magic: magic, attributes, and in magic 1 the timestamp.
_CRC: Final = Struct(">I")
_HEADS: Final = (Struct(">BB"), Struct(">BBq"))
_CRC_END: Final = 16
_MAGIC_AT: Final = 16
# Bytes of a message with neither key nor value, by magic.
_LEAST: Final = (26, 34)
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)


def encode_message_set(
    magic: int, codec: Compression, records: Iterable[Record], level: int | None = None
) -> bytes:
    """Encode the set of a producer's records, with offsets from 0; no records are no bytes.

    Args:
        magic: 0 or 1.
        codec: any codec except zstd.
        records: their offsets are not read.
        level: compression level; None: Java's default.

    Raises:
        UsageError: the codec is zstd, or a record has headers.
        ConfigError: the codec has no such level, or its library is not installed.
    """
    _check_codec(magic, codec)
    messages = []
    latest = NO_TIMESTAMP
    for offset, record in enumerate(records):
        if record.headers:
            raise UsageError(
                f"headers need record batches (magic 2), and this is a message set of magic {magic}"
            )
        messages.append(message(magic, offset, record.timestamp_ms, record.key, record.value))
        latest = max(latest, record.timestamp_ms)
    encoded = b"".join(messages)
    if not messages or codec is Compression.NONE:
        return encoded
    return wrapper(magic, codec, encoded, len(messages) - 1, latest, level=level)


def _check_codec(magic: int, codec: Compression) -> None:
    if codec is Compression.ZSTD:
        raise UsageError(
            f"zstd needs record batches (magic 2), and these are of magic {magic}: choose another compression_type"
        )


def message(
    magic: int,
    offset: int,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    attributes: int = 0,
) -> bytes:
    """Encode one message, with its offset and size. Magic 0 leaves the timestamp out."""
    head = (
        _HEADS[magic].pack(magic, attributes, timestamp_ms)
        if magic
        else _HEADS[0].pack(0, attributes)
    )
    body = b"".join((head, *_field(key), *_field(value)))
    return _LOG.pack(offset, _CRC.size + len(body)) + _CRC.pack(zlib.crc32(body)) + body


def _field(data: Buffer | None) -> tuple[Buffer, ...]:
    return (_NULL,) if data is None else (_LENGTH.pack(len(data)), data)


def wrapper(
    magic: int,
    codec: Compression,
    messages: Buffer,
    last_offset: int,
    timestamp_ms: int,
    *,
    attributes: int = 0,
    level: int | None = None,
) -> bytes:
    """Encode the wrapper: the message that holds `messages`, compressed.

    Args:
        magic: the magic of the wrapper and of its messages.
        codec: any codec except none and zstd.
        messages: a set, with the offsets that `magic` requires in a wrapper.
        last_offset: offset of the last message.
        timestamp_ms: latest timestamp of the messages, or the broker's log append time; magic 0 leaves it out.
        attributes: `LOG_APPEND_TIME`, or 0.
        level: compression level; None: Java's default.

    Raises:
        UsageError: the codec is zstd or none.
        ConfigError: the codec has no such level, or its library is not installed.
    """
    _check_codec(magic, codec)
    if codec is Compression.NONE:
        raise UsageError(
            "a wrapper is for compressed messages; without a codec they stand for themselves"
        )
    payload = compress(codec, messages, level)
    if codec is Compression.LZ4 and not magic:
        payload = spoil(payload)
    return message(magic, last_offset, timestamp_ms, None, payload, attributes | codec)


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
        return (
            TimestampType.LOG_APPEND_TIME
            if self.magic and self.attributes & LOG_APPEND_TIME
            else TimestampType.CREATE_TIME
        )

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
                    raise ProtocolError(
                        f"it wraps a message of magic {message.magic} and codec {message.compression.name.lower()}"
                    )
                if is_checked:
                    message._check_crc()
                records.append(
                    message._record(
                        message.offset, self.timestamp_ms if is_appended else message.timestamp_ms
                    )
                )
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
        return (
            [record._replace(offset=base + record.offset) for record in records]
            if base
            else records
        )

    def _record(self, offset: int, timestamp_ms: int) -> Record:
        return Record(
            offset, timestamp_ms, self.key, None if self.value is None else bytes(self.value), ()
        )

    def _check_crc(self) -> None:
        crc = zlib.crc32(self.raw[_CRC_END:])
        if crc != self.crc:
            raise self._wrong(f"its CRC-32 is {crc:#010x}, its head says {self.crc:#010x}")

    def _wrong(self, what: str) -> ProtocolError:
        return ProtocolError(f"message at offset {self.offset}: {what}")


def read_messages(buffer: Buffer) -> Iterator[Message]:
    """Yield the messages of `buffer` in order. They are views of the buffer, so it must not change.

    Args:
        buffer: complete messages, as in a Produce request, a Fetch response or a log segment.

    Raises:
        ProtocolError: during the iteration: an invalid head, a magic other than 0 and 1, an unknown codec, or an incomplete message.
    """
    view = memoryview(buffer)
    at = 0
    while at < len(view):
        size = _message_size(view, at)
        if size is None:
            raise ProtocolError(
                f"the message at byte {at} is cut off: {len(view) - at} bytes are left"
            )
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
        raise ProtocolError(
            f"magic {magic} at byte {at}: only message sets (magic 0 and 1) can be read"
        )
    (size,) = _LENGTH.unpack_from(view, at + _LOG.size - _LENGTH.size)
    whole: int = _LOG.size + size
    if whole < _LEAST[magic]:
        raise ProtocolError(
            f"the message at byte {at} says that it has {whole} bytes; without key and value it has {_LEAST[magic]}"
        )
    return whole if whole <= left else None


def _read_message(raw: memoryview) -> Message:
    offset, _ = _LOG.unpack_from(raw)
    (crc,) = _CRC.unpack_from(raw, _LOG.size)
    head = _HEADS[raw[_MAGIC_AT]]
    magic, attributes, *timestamps = head.unpack_from(raw, _CRC_END)
    if attributes & _CODEC not in _CODECS:
        raise ProtocolError(f"codec {attributes & _CODEC} is none of message sets'")
    key, at = _read_field(raw, _CRC_END + head.size)
    value, at = _read_field(raw, at)
    if at != len(raw):
        raise ProtocolError(f"{len(raw) - at} bytes follow its value")
    timestamp = timestamps[0] if timestamps else NO_TIMESTAMP
    return Message(
        raw, offset, crc, magic, attributes, timestamp, None if key is None else bytes(key), value
    )


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


# The LZ4 frame header of message sets of magic 0: its checksum also covers the frame's magic number (KAFKA-3160). Kafka's first LZ4 writer
# made that mistake, and the brokers and clients of that format accept no other checksum.

_MAGIC_END: Final = 4
# Bytes of magic number, flags and block descriptor. Content size and dictionary id follow if the flags have their bits.
_LEAST_END: Final = 6
_CONTENT_SIZE: Final = 0x08
_DICTIONARY_ID: Final = 0x01

# XXH32's primes; its specification numbers them from 1.
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_WORD: Final = 0xFFFFFFFF


def spoil(frame: Buffer) -> bytes:
    """Return a valid frame with the checksum of magic 0."""
    return _with_checksum(frame, 0)


def mend(frame: Buffer) -> bytes:
    """Return a frame of magic 0 with the valid checksum.

    The frame's own checksum is not verified, as in Java. A frame that is too short is returned unchanged.
    """
    return _with_checksum(frame, _MAGIC_END)


def _with_checksum(frame: Buffer, start: int) -> bytes:
    if len(frame) <= _LEAST_END:
        return bytes(frame)
    flags = frame[_MAGIC_END]
    end = _LEAST_END + (8 if flags & _CONTENT_SIZE else 0) + (4 if flags & _DICTIONARY_ID else 0)
    if len(frame) <= end:
        return bytes(frame)
    return b"".join((frame[:end], bytes((_xxh32(frame[start:end]) >> 8 & 0xFF,)), frame[end + 1 :]))


def _xxh32(data: Buffer) -> int:
    """Return XXH32 with seed 0 of fewer than 16 bytes.

    A header for `mend` has at most 14 bytes. The frames that this library writes have 6 with their magic number.
    """
    one, two, three, four, five = _PRIMES
    value = five + len(data)
    words = len(data) // 4
    for (word,) in iter_unpack("<I", data[: words * 4]):
        value = _rotated(value + word * three, 17) * four
    for byte in data[words * 4 :]:
        value = _rotated(value + byte * five, 11) * one
    value &= _WORD
    value = (value ^ value >> 15) * two & _WORD
    value = (value ^ value >> 13) * three & _WORD
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _WORD
    return (value << bits | value >> 32 - bits) & _WORD
