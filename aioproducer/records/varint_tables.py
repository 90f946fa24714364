"""Prepared varints and field sizes for plain Python, which looks one up more quickly than it computes one.

The tables take 3 MiB, so only modules of the plain build import this one; the compiled build computes each varint in place.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from aioproducer.records.varints import NULL, TABLE
from aioproducer.records.varints import varint as _computed

__all__ = ["FIELD", "MOMENT", "VARINT", "field_size", "varint"]

# The byte of each seven bits that more follow, and of each that none follow.
_MORE: Final = [bytes((bits | 0x80,)) for bits in range(128)]
_LAST: Final = [bytes((bits,)) for bits in range(128)]
# Zigzag doubles a number, so the lowest seven bits are even. The numbers count the lowest bits first, as `product` the last factor.
VARINT: Final[list[bytes]] = [
    *_LAST[::2],
    *(low + high for high, low in product(_LAST[1:], _MORE[::2])),
    *(low + middle + high for high, middle, low in product(_LAST[1 : TABLE >> 13], _MORE, _MORE[::2])),
]
# A record's first bytes after its length: no attributes, and the milliseconds since the first record of its batch.
MOMENT: Final = [b"\0" + delta for delta in VARINT[:4096]]
# Bytes of a field and of the length before it.
FIELD: Final = [size + length for length, sizes in ((1, range(64)), (2, range(64, 8192)), (3, range(8192, TABLE))) for size in sizes]


def varint(value: int) -> bytes:
    """Return a value of up to 64 bits as a zigzag varint."""
    return VARINT[value] if 0 <= value < TABLE else _computed(value)


def field_size(size: int) -> int:
    """Return the bytes of a field of `size` bytes (-1: null) with the length before it."""
    if size < 0:
        return len(NULL)
    return FIELD[size] if size < TABLE else len(_computed(size)) + size
