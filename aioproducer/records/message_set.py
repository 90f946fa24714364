"""Message sets of magic 0 and 1, written: the format of brokers before Kafka 0.11, which knows no headers, producer ids and zstd.

    offset, size | CRC-32, magic, attributes, [timestamp] | key length, key | value length, value

A set is such messages one after another. Compressed, it is one message, the wrapper, without a key, whose value is a whole set: with
absolute offsets in magic 0, with offsets from 0 in magic 1; the wrapper's own offset is that of the last message in it, its timestamp
the latest one (Kafka's LegacyRecord and AbstractLegacyRecordBatch; KIP-31, KIP-32). Knows nothing of when a set is full.
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
    from aioproducer.interfaces import Buffer

__all__ = ["LOG_APPEND_TIME", "LOG_OVERHEAD", "check_codec", "message", "message_size", "overhead", "wrapper"]

LOG_OVERHEAD: Final = 12  # bytes before a message: its offset and size, which the CRC does not cover
LOG_APPEND_TIME: Final = int(TimestampType.LOG_APPEND_TIME) << 3  # in the attributes

_LOG: Final = Struct(">qi")
_CRC: Final = Struct(">I")
_HEADS: Final = (Struct(">bb"), Struct(">bbq"))  # by magic: magic, attributes, and from 1 on the timestamp
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)


def check_codec(magic: int, codec: Compression) -> None:
    """Raise UsageError if `codec` came with a later format than `magic`."""
    if codec is Compression.ZSTD and magic < 2:
        raise UsageError(f"zstd needs record batches (magic 2), and these are of magic {magic}: choose another compression_type")


def overhead(magic: int) -> int:
    """Bytes of a message that are neither key nor value, without those before it in a set."""
    return _CRC.size + _HEADS[magic].size + 2 * _LENGTH.size


def message_size(magic: int, key: Buffer | None, value: Buffer | None) -> int:
    """Bytes of a message in a set."""
    return LOG_OVERHEAD + overhead(magic) + len(key or b"") + len(value or b"")


def message(magic: int, offset: int, timestamp_ms: int, key: Buffer | None, value: Buffer | None, attributes: int = 0) -> bytes:
    """One message with what stands before it in a set; magic 0 leaves the timestamp out."""
    head = _HEADS[magic].pack(magic, attributes, timestamp_ms) if magic else _HEADS[0].pack(0, attributes)
    body = b"".join((head, *_field(key), *_field(value)))
    return _LOG.pack(offset, _CRC.size + len(body)) + _CRC.pack(zlib.crc32(body)) + body


def _field(data: Buffer | None) -> tuple[Buffer, ...]:
    return (_NULL,) if data is None else (_LENGTH.pack(len(data)), data)


def wrapper(
    magic: int, codec: Compression, messages: Buffer, last_offset: int, timestamp_ms: int, *, attributes: int = 0, level: int | None = None
) -> bytes:
    """The message that holds `messages`, compressed.

    Args:
        magic: of the wrapper, and of what it holds.
        codec: any but none and zstd.
        messages: a set, with offsets as `magic` has them in a wrapper.
        last_offset: that of the last of them.
        timestamp_ms: the latest of theirs, or when a broker appended them; magic 0 leaves it out.
        attributes: `LOG_APPEND_TIME`, or nothing.
        level: of compression; None: Java's default.

    Raises:
        UsageError: zstd, or no codec at all.
        ConfigError: the codec has no such level, or its library is not installed.
    """
    check_codec(magic, codec)
    if codec is Compression.NONE:
        raise UsageError("a wrapper is for compressed messages; without a codec they stand for themselves")
    payload = compress(codec, messages, level)
    if codec is Compression.LZ4 and not magic:
        payload = spoil(payload)
    return message(magic, last_offset, timestamp_ms, None, payload, attributes | codec)
