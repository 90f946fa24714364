"""Chooses a partition when a send names none: by murmur2 of the key, or by queue lengths.

Keys are hashed as in Java (`Utils.murmur2`) and aiokafka, so a key has the same partition there. librdkafka's default hashes by CRC-32.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["murmur2", "pick", "weighed"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def _splitter(size: int) -> Callable[[bytes], tuple[bytes, int, bytes]]:
    """Return a function that splits a key of `size` bytes, 4 or more.

    The parts are all whole words but the last, that word, and the bytes after it.
    """
    rest = size & 3
    return Struct(f"<{size - rest - 4}sI{rest}s").unpack


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of `key`, unsigned. TypeError: not bytes."""
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


# Numbered keys share their heads: 10,000 consecutive keys share all but the last word. There is one cache for each size modulo 4,
# because the size enters the hash first.
_heads: Final[tuple[dict[bytes, int], ...]] = ({}, {}, {}, {})
_MOST_HEADS: Final = 4096
# Largest size of a key, in bytes, that has its head cached.
_LONGEST: Final = 64
_SPLITTERS: Final = [_splitter(max(size, 4)) for size in range(_LONGEST + 1)]
_words = Struct("<I").iter_unpack


def weighed(depths: Sequence[int]) -> list[int] | None:
    """Return the queue depths as running sums of weights, for `pick`. None: all queues have the same depth, so no choice is better.

    The weight of a queue is the largest depth plus one batch, minus its own depth (Java's BuiltInPartitioner, PAR-06). The longest
    queue has weight 1, so it is never excluded for good.
    """
    above = max(depths) + 1
    if min(depths) + 1 == above:
        return None
    return list(accumulate([above - depth for depth in depths]))


def pick(table: Sequence[int], chance: float) -> int:
    """Return the index of a weighed queue. `chance`: a random number in [0, 1)."""
    return bisect_right(table, int(chance * table[-1]))
