"""Reads the records behind the header of a record batch (magic 2), from untrusted bytes.

1. The reader compares every length and count with the bytes left before it allocates memory for it.
2. Every error in the bytes is a `ProtocolError` that gives the position; no bytes cause another exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import ProtocolError
from aioproducer.model import counted

if TYPE_CHECKING:
    from aioproducer.model import Header

MAX_DECOMPRESSED: Final = 64 * 1024 * 1024
"""The most bytes that a batch's records may decompress to, unless the caller says otherwise."""

# One byte each: length, attributes, timestamp, offset, key length, value length, header count.
_LEAST_RECORD: Final = 7
# One byte each: key length, value length.
_LEAST_HEADER: Final = 2


class Record(NamedTuple):
    """Holds one record of a log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def read_records(
    data: bytes, count: int, base_timestamp: int, base_offset: int = 0
) -> list[Record]:
    """Return the records of a batch.

    Args:
        data: the uncompressed records, all of them.
        count: their number.
        base_timestamp: the timestamp that those in `data` are relative to, in milliseconds.
        base_offset: the offset that those in `data` are relative to.

    Raises:
        ProtocolError: the records do not decode, or `data` holds fewer or more.
    """
    if not 0 <= count <= len(data) // _LEAST_RECORD:
        raise ProtocolError(f"{counted(count, 'record')} cannot be in {len(data)} bytes")
    records: list[Record] = []
    at = 0
    try:
        while len(records) < count:
            record, at = _read_record(data, at, base_timestamp, base_offset)
            records.append(record)
    except IndexError as error:
        raise ProtocolError(f"its bytes end in record {len(records)}") from error
    except (ProtocolError, UnicodeDecodeError) as error:
        raise ProtocolError(f"record {len(records)}: {error}") from error
    if at != len(data):
        raise ProtocolError(f"{len(data) - at} bytes follow its {counted(count, 'record')}")
    return records


def _read_record(data: bytes, at: int, base_timestamp: int, base_offset: int) -> tuple[Record, int]:
    """Return the record at `at`, and the offset of the next record.

    Raises:
        IndexError: `data` ends before the record does.
        ProtocolError: the record's lengths or counts are wrong.
        UnicodeDecodeError: the name of a header is not UTF-8.
    """
    length, at = read_varint(data, at)
    end = at + length
    if not at < end <= len(data):
        raise ProtocolError(f"a length of {length} where {len(data) - at} bytes are left")
    # skips the attributes, which have no meaning yet
    timestamp_delta, at = read_varint(data, at + 1, 64)
    offset_delta, at = read_varint(data, at)
    key, at = _read_field(data, at, end)
    value, at = _read_field(data, at, end)
    count, at = read_varint(data, at)
    headers: tuple[Header, ...] = ()
    if count:
        headers, at = _read_headers(data, at, end, count)
    if at != end:
        raise ProtocolError(f"its length says that it ends at byte {end}, its fields at {at}")
    return Record(
        base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, headers
    ), end


def _read_headers(data: bytes, at: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    if not 0 <= count <= (end - at) // _LEAST_HEADER:
        raise ProtocolError(f"{counted(count, 'header')} cannot be in {end - at} bytes")
    headers = []
    for _ in range(count):
        name, at = _read_field(data, at, end)
        if name is None:
            raise ProtocolError("a header without a name")
        value, at = _read_field(data, at, end)
        # Other clients may have written lone surrogates.
        headers.append((name.decode(errors="surrogatepass"), value))
    return tuple(headers), at


def _read_field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Return the bytes after the length at `at`, None for a length of -1, and the offset of their end, which `end` bounds."""
    length, at = read_varint(data, at)
    if length < 0:
        if length < -1:
            raise ProtocolError(f"a length of {length}")
        return None, at
    stop = at + length
    if stop > end:
        raise ProtocolError(f"a field of {length} bytes where {max(end - at, 0)} are left")
    return data[at:stop], stop


def read_varint(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Return the value of the zig-zag varint at `at`, and the offset of its end. Nearly all varints have one byte or two."""
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
    """Return `value` with the bits of the third and later bytes, still zig-zag, and the offset of the varint's end."""
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
