"""Which partition a record goes to when its caller names none: Kafka's murmur2 of the key. Knows nothing of brokers.

Every Kafka client hashes alike (Java's `Utils.murmur2`), so one key has one partition whoever sends it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["murmur2"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def _splitter(size: int) -> Callable[[bytes], tuple[bytes, int, bytes]]:
    """Splits a key of `size` bytes, 4 or more, into all whole words but the last, that word, and the bytes after it."""
    rest = size & 3
    return Struct(f"<{size - rest - 4}sI{rest}s").unpack


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned. TypeError: not bytes."""
    size = len(key)
    if size < 4:
        hashed, tail = _SEED ^ size, key
    else:
        head, word, tail = (_SPLITTERS[size] if size <= _LONGEST else _splitter(size))(key)
        heads = _heads[size & 3]
        known = heads.get(head)
        if known is None:
            known = (_SEED ^ size) * _M
            for (each,) in _words(head):
                product = each * _M & _MASK
                known = ((known ^ (product ^ product >> 24) * _M) & _MASK) * _M
            if size <= _LONGEST:
                if len(heads) >= _MOST_HEADS:
                    heads.clear()
                heads[head] = known
        product = word * _M & _MASK
        hashed = (known ^ (product ^ product >> 24) * _M) & _MASK
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


# Numbered keys share their heads: 10,000 in a row all but the last word. By size modulo 4, for the size goes into the hash first
_heads: Final[tuple[dict[bytes, int], ...]] = ({}, {}, {}, {})
_MOST_HEADS: Final = 4096
_LONGEST: Final = 64  # bytes of a key whose head is remembered
_SPLITTERS: Final = [_splitter(max(size, 4)) for size in range(_LONGEST + 1)]
_words = Struct("<I").iter_unpack
