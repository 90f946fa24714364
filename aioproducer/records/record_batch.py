"""The encoding of record batches of magic 2: the eight parts of a record, the header, its checksum.

A record is eight parts in a list, always in this order, so that its metadata can be read back from the list:

    length | attributes, timestamp delta | offset delta | key length | key | value length | value | headers

A batch is 61 bytes of header and the joined parts, compressed or not (Kafka's DefaultRecordBatch; RCD-01..03).
`crc32c(data, value=0)` returns the CRC-32C of `data` behind bytes whose checksum is `value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from aioproducer.build import COLUMNS, extension
from aioproducer.errors import SerializationError
from aioproducer.records.varints import NULL, field_size, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer


_compiled: Final = extension(COLUMNS).module
if _compiled is not None and _compiled.HAS_CRC:
    # The package takes tens of milliseconds to import, and half a microsecond more for each batch.
    crc32c: Any = _compiled.crc32c
else:
    # The line that the documents name: any module of this name may take its place.
    from crc32c import crc32c

# Bytes of a batch's header.
OVERHEAD: Final = 61
# A bit of a batch's attributes.
TRANSACTIONAL: Final = 0x10
# List entries of one record.
PARTS: Final = 8
# Java's DefaultRecord.MAX_RECORD_OVERHEAD.
MAX_RECORD_OVERHEAD: Final = 21
# An empty header list, encoded.
NO_HEADERS: Final = b"\0"

_LAST_SEQUENCE: Final = 0x7FFF_FFFF

# Base offset, length, leader epoch, magic, CRC.
_HEAD = Struct(">qiibI")
# Attributes, last delta, base and max timestamp, producer id, epoch, sequence, count.
_TAIL = Struct(">hiqqqhii")
_NO_PAIR: Final = "a header is a pair of a string and bytes, a string or None"


def encode_headers(
    headers: Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None],
) -> bytes:
    """Encode the last part of a record: the number of headers, and the headers. A value that is a string is encoded as UTF-8.

    Raises:
        SerializationError: a key is no string, a value is neither bytes, a string nor None, or a string has a lone surrogate. The error's
            text contains neither.
    """
    if not isinstance(headers, (tuple, list)) and isinstance(headers, Mapping):
        headers = tuple(headers.items())
    try:
        # the real count replaces it below
        parts = [varint(len(headers))]
    except TypeError as error:
        raise SerializationError(
            f"headers are a mapping or a sequence of pairs, not {type(headers).__name__}"
        ) from error
    count = 0
    for count, header_ in enumerate(headers, 1):  # noqa: B007  (a sequence of its own kind may give more or less than it said)
        try:
            key, value = header_
        except (TypeError, ValueError) as error:
            raise SerializationError(_NO_PAIR) from error
        # Java writes "?" for a lone surrogate. Python's consumers could not go on behind a record whose key is not UTF-8.
        name = _encode_text("key", "a string", key)
        parts += (varint(len(name)), name)
        if value is None:
            parts.append(NULL)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            value = bytes(memoryview(value))
            parts += (varint(len(value)), value)
        else:
            # A string of two characters is no pair, although it can be unpacked.
            if isinstance(header_, str):
                raise SerializationError(_NO_PAIR)
            text = _encode_text("value", "bytes, a string or None", value)
            parts += (varint(len(text)), text)
    parts[0] = varint(count)
    return b"".join(parts)


def _encode_text(part: str, kinds: str, text: object) -> bytes:
    """Return the `part` of a header, which may be of `kinds`, as UTF-8 if it is a string."""
    if not isinstance(text, str):
        raise SerializationError(f"a header's {part} is {kinds}, not {type(text).__name__}")
    try:
        return str.encode(text)
    except UnicodeEncodeError:
        # The cause would hold the text.
        said = f"a header's {part} has characters that UTF-8 does not"
    raise SerializationError(said)


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: bytes,
) -> bytes:
    """Encode one complete record of a batch; `headers` are encoded."""
    parts: list[Buffer] = [b"\0", varint(timestamp_delta), varint(offset_delta)]
    for data in (key, value):
        parts += (NULL,) if data is None else (varint(len(data)), data)
    body = b"".join((*parts, headers))
    return varint(len(body)) + body


def size_limit(key: bytes | None, value: bytes | None, headers: bytes) -> int:
    """Return the most bytes that an uncompressed batch of this one record can have (Java's `estimateSizeInBytesUpperBound`)."""
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    return (
        OVERHEAD
        + MAX_RECORD_OVERHEAD
        + field_size(key_size)
        + field_size(value_size)
        + len(headers)
    )


def header(
    payload: Buffer,
    count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    identity: tuple[int, int] = (-1, -1),
    sequence: int = -1,
) -> bytes:
    """Return the 61 bytes before `payload`, with the CRC-32C. A rewrite for an epoch bump makes a new header.

    `identity` is the producer id and epoch. `sequence` is -1 if the batch has no number. On the wire, 0 follows 2**31 - 1. The offsets of
    the records have no gaps.
    """
    if sequence > _LAST_SEQUENCE:
        sequence &= _LAST_SEQUENCE
    tail = _TAIL.pack(
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        identity[0],
        identity[1],
        sequence,
        count,
    )
    crc = crc32c(payload, crc32c(tail))
    return _HEAD.pack(0, OVERHEAD - 12 + len(payload), -1, 2, crc) + tail


def placed(head: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Return a header with the fields that a broker sets when it appends a batch. The CRC does not cover them."""
    _, size, _, magic, crc = _HEAD.unpack_from(head)
    return _HEAD.pack(base_offset, size, leader_epoch, magic, crc) + head[_HEAD.size :]
