"""The hashes of rows of columns in plain Python, for installations without `_columns`, whose numbers are the same."""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from aioproducer.records import plain_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["hash_rows"]

# XXH64: the factors of its round.
_LANE_FACTOR: Final = 0x9E3779B185EBCA87
_WORD_FACTOR: Final = 0xC2B2AE3D27D4EB4F
# SplitMix64: the factors of its finalizer.
_FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9
_SECOND_FACTOR: Final = 0x94D049BB133111EB
# Bytes of a word.
_WORD: Final = 8
_64_BITS: Final = 2**64 - 1
# The words before the headers (with their number), the time and the partition of a row: they begin with other bits.
_HEADERS_FOLLOW: Final = 1
_TIME_FOLLOWS: Final = 2
_PARTITION_FOLLOWS: Final = 3


def hash_rows(
    values: plain_columns.Strings,
    keys: plain_columns.Strings | None,
    moments: plain_columns.Moments | None,
    headers: plain_columns.Headers | None,
    partitions: plain_columns.Partitions | None,
    moment: int,
    at: int,
    rows: int,
) -> int:
    """Return the sum modulo 2**64 of the hashes of `rows` rows from `at` on. Without `moments`, `moment` is the time of all; -1: none.

    The words of a row go to two lanes in turn, which its hash mixes. They are the size and the bytes of the value, those of the key, and
    those of the headers, time and partition that the row has. A last word of bytes overlaps the one before it.

    Raises:
        BadRow: a row cannot be a record.
        ValueError: there are no such rows.
    """
    columns: tuple[Any, ...] = (values, keys, headers, moments, partitions)
    plain_columns.check_rows(columns, at, at + rows)
    total = 0
    for row in range(at, at + rows):
        value, key, pairs, time, partition = (None if column is None else column.get(row) for column in columns)
        if moments is None and moment >= 0:
            time = moment
        first, second = 0, _LANE_FACTOR
        for word in chain(_words(value), _words(key), _extra_words(pairs, time, partition)):
            lane = first + word * _WORD_FACTOR & _64_BITS
            first, second = second, (lane << 31 & _64_BITS | lane >> 33) * _LANE_FACTOR & _64_BITS
        total += _mixed(_mixed(first) + second)
    return total & _64_BITS


def _extra_words(pairs: Sequence[tuple[str, bytes | None]] | None, time: int | None, partition: int | None) -> Iterator[int]:
    """Yield the words of the headers, the time and the partition that a row has."""
    if pairs:
        yield len(pairs) << 2 | _HEADERS_FOLLOW
        for name, content in pairs:
            yield from _words(name.encode("utf-8", "surrogatepass"))
            yield from _words(content)
    if time is not None:
        yield from (_TIME_FOLLOWS, time)
    if partition is not None:
        yield from (_PARTITION_FOLLOWS, partition)


def _words(field: bytes | None) -> Iterator[int]:
    """Yield the size of a field, 0 for null and else one more, and its bytes as words."""
    if field is None:
        yield 0
        return
    size = len(field)
    yield size + 1
    if size >= _WORD:
        yield from struct.unpack_from(f"<{size // _WORD}Q", field)
    if size % _WORD:
        yield int.from_bytes(field[-_WORD:], "little")


def _mixed(word: int) -> int:
    """Return a word with each of its bits spread over all bits."""
    word &= _64_BITS
    word = (word ^ word >> 30) * _FIRST_FACTOR & _64_BITS
    word = (word ^ word >> 27) * _SECOND_FACTOR & _64_BITS
    return word ^ word >> 31
