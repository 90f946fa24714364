"""Zigzag varints, in which a record has its lengths and deltas."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

# Lengths and indices below it have a prepared varint in plain Python (`records_builder`), and take the fast path of the compiled build.
TABLE: Final = 32_768


def _encode(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def unvarint(encoded: bytes) -> int:
    """Return the value of one complete zigzag varint."""
    rest = 0
    for byte in reversed(encoded):
        rest = rest << 7 | byte & 0x7F
    return rest >> 1 ^ -(rest & 1)


# Most lengths and counts that are encoded one by one.
SHORT: Final = [_encode(value) for value in range(256)]
# Cached, because the values of a topic have similar sizes.
_encode_long: Final = lru_cache(maxsize=1024)(_encode)
# A record's first bytes after its length: no attributes, and the time of the first record of its batch.
NO_DELTA: Final = b"\0\0"
# The length of null, -1.
NULL: Final = b"\x01"


def varint(value: int) -> bytes:
    """Return a value of up to 64 bits as a zigzag varint."""
    return SHORT[value] if 0 <= value < 256 else _encode_long(value)


def field_size(size: int) -> int:
    """Return the bytes of a field of `size` bytes (-1: null) with the length before it."""
    if size < 0:
        return len(NULL)
    # A varint's first byte has six bits of a length, the second one seven more.
    return size + (1 if size < 64 else 2 if size < 8192 else len(_encode(size)))
