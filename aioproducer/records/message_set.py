"""The writer of message sets of magic 0 and 1, the format of brokers before Kafka 0.11.

    offset, size | CRC-32, magic, attributes, [timestamp] | key length, key | value length, value

A message has no headers and no producer id, and the format has no zstd. A set is a sequence of such messages. A compressed set is one
message without a key, the wrapper, and its value is a whole set. The inner offsets are absolute in magic 0, and start at 0 in magic 1.
The wrapper's own offset is that of its last message; its timestamp is the latest one.

The model is Kafka's LegacyRecord and AbstractLegacyRecordBatch (KIP-31, KIP-32).
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING, Final

from aioproducer.errors import UsageError
from aioproducer.model import Compression, TimestampType
from aioproducer.records.compression import compress
from aioproducer.records.lz4_header import spoil

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.interfaces import Buffer
    from aioproducer.records.reader import Record

__all__ = ["LOG_APPEND_TIME", "NO_TIMESTAMP", "encode_message_set", "message", "wrapper"]

# The timestamp of a record without one.
NO_TIMESTAMP: Final = -1
# A bit of the attributes.
LOG_APPEND_TIME: Final = int(TimestampType.LOG_APPEND_TIME) << 3

_LOG: Final = Struct(">qi")
_CRC: Final = Struct(">I")
# By magic: magic, attributes, and in magic 1 the timestamp.
_HEADS: Final = (Struct(">bb"), Struct(">bbq"))
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)


def encode_message_set(magic: int, codec: Compression, records: Iterable[Record], level: int | None = None) -> bytes:
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
            raise UsageError(f"headers need record batches (magic 2), and this is a message set of magic {magic}")
        messages.append(message(magic, offset, record.timestamp_ms, record.key, record.value))
        latest = max(latest, record.timestamp_ms)
    encoded = b"".join(messages)
    if not messages or codec is Compression.NONE:
        return encoded
    return wrapper(magic, codec, encoded, len(messages) - 1, latest, level=level)


def _check_codec(magic: int, codec: Compression) -> None:
    if codec is Compression.ZSTD:
        raise UsageError(f"zstd needs record batches (magic 2), and these are of magic {magic}: choose another compression_type")


def message(magic: int, offset: int, timestamp_ms: int, key: Buffer | None, value: Buffer | None, attributes: int = 0) -> bytes:
    """Encode one message, with its offset and size. Magic 0 leaves the timestamp out."""
    head = _HEADS[magic].pack(magic, attributes, timestamp_ms) if magic else _HEADS[0].pack(0, attributes)
    body = b"".join((head, *_field(key), *_field(value)))
    return _LOG.pack(offset, _CRC.size + len(body)) + _CRC.pack(zlib.crc32(body)) + body


def _field(data: Buffer | None) -> tuple[Buffer, ...]:
    return (_NULL,) if data is None else (_LENGTH.pack(len(data)), data)


def wrapper(
    magic: int, codec: Compression, messages: Buffer, last_offset: int, timestamp_ms: int, *, attributes: int = 0, level: int | None = None
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
        raise UsageError("a wrapper is for compressed messages; without a codec they stand for themselves")
    payload = compress(codec, messages, level)
    if codec is Compression.LZ4 and not magic:
        payload = spoil(payload)
    return message(magic, last_offset, timestamp_ms, None, payload, attributes | codec)
