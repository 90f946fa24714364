"""Which partition a record goes to when its caller names none: Kafka's murmur2 of the key. Knows nothing of brokers.

Every Kafka client hashes alike (Java's `Utils.murmur2`), so one key has one partition whoever sends it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

__all__ = ["murmur2"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_WORDS: Final = tuple(Struct(f"<{count}I") for count in range(65))


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned. TypeError: not bytes."""
    size = len(key)
    count = size >> 2
    hashed = _SEED ^ size
    words = (_WORDS[count] if count < len(_WORDS) else Struct(f"<{count}I")).unpack_from(key)
    if key.isascii():
        known = _mixed
        for word in words:
            mixed = known.get(word)
            if mixed is None:
                product = word * _M & _MASK
                mixed = (product ^ product >> 24) * _M
                if len(known) < _MOST_MIXED:
                    known[word] = mixed
            hashed = (hashed * _M ^ mixed) & _MASK
    else:
        for word in words:
            product = word * _M & _MASK
            hashed = (hashed * _M ^ (product ^ product >> 24) * _M) & _MASK
    if rest := size & 3:
        hashed = (hashed ^ int.from_bytes(key[size - rest :], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


# The words of text repeat: decimal digits make 10,000. Remembered, they are a quarter of the whole faster; other bytes hardly repeat
_mixed: Final[dict[int, int]] = {}
_MOST_MIXED: Final = 16_384
