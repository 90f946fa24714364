"""Chooses a partition when a send names none: by murmur2 of the key, queue lengths, or the user's partitioner.

Every Kafka client hashes keys in the same manner (Java's `Utils.murmur2`), so a key has the same partition in every client.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import UsageError
from aioproducer.number_conversion import exact_int

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from aioproducer.interfaces import Partitioner

__all__ = ["Choose", "adapt", "choose", "forgetter", "murmur2", "pick", "weighed"]

Choose: TypeAlias = "Callable[[str, bytes | None, bytes | None, int, Sequence[int]], Any]"
# Number of parameters of (key, partitions).
_OF_KEY: Final = 2

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


def adapt(partitioner: Partitioner | Callable[..., Any] | type[Any] | None) -> Choose | None:
    """Return the user's partitioner as a function of all five arguments.

    Args:
        partitioner: an object with a method `partition`, its class, a function of (topic, key, value, partitions, available), or
            one of (key, partitions); None stays None.

    Raises:
        UsageError: it is none of these, or its class cannot be called without arguments.
    """
    if partitioner is None:
        return None
    if isinstance(partitioner, type):
        kind = partitioner
        try:
            partitioner = kind()
        except TypeError as error:
            raise UsageError(f"the partitioner class {kind.__name__} cannot be made without arguments: give an object of it") from error
    function: Any = getattr(partitioner, "partition", partitioner)
    if not callable(function):
        raise UsageError(f"a partitioner is a function, or an object with a method `partition`, not {type(partitioner).__name__}")
    if _takes(function, _OF_KEY):
        return lambda _topic, key, _value, partitions, _available: function(key, partitions)
    return function  # type: ignore[no-any-return]


def forgetter(partitioner: Choose | None) -> Callable[[str], object]:
    """Return a function that passes a forgotten topic to the partitioner's method `forget`. Without that method it does nothing."""
    forget: Callable[[str], object] | None = getattr(getattr(partitioner, "__self__", None), "forget", None)
    return forget if callable(forget) else lambda _topic: None


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether `function` accepts `count` positional arguments. True for built-in functions without a signature."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def choose(function: Choose, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]) -> int:
    """Return the partition that the user's partitioner chooses.

    Raises:
        UsageError: it raised, or did not choose a partition of the topic. The text has neither key nor value.
    """
    try:
        chosen = function(topic, key, value, partitions, available)
    except Exception as error:
        raise UsageError(f"the partitioner raised {type(error).__name__} for {topic!r}") from error
    partition = exact_int(chosen)
    if partition is None or not 0 <= partition < partitions:
        if inspect.iscoroutine(chosen):
            chosen.close()
        what = chosen if isinstance(chosen, bool) else type(chosen).__name__ if partition is None else partition
        raise UsageError(f"the partitioner chose {what} for {topic!r}, which has partitions 0 to {partitions - 1}")
    return partition
