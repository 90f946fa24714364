"""`rows_checksum`: a checksum of the rows of Arrow columns that does not depend on their order.

The words of a row go to two lanes in turn by XXH64's round, and SplitMix64's finalizer mixes the lanes. The words are the size and the bytes of
the value, those of the key, and those of the headers, time and partition that the row has. Both builds give the same number: processes
of either compare them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.build import COLUMNS, extension
from aioproducer.records.arrow import Table
from aioproducer.records.encoded_rows import BadRow

if TYPE_CHECKING:
    from collections.abc import Iterator

_compiled: Any = extension(COLUMNS).module
# Rows of one call, during which no other thread gets the GIL: a fraction of a millisecond.
_ROWS: Final = 8192
_64_BITS: Final = 2**64 - 1
_LANE_FACTOR: Final = 0x9E3779B185EBCA87
# The words before the headers (with their number), the time and the partition of a row: they begin with other bits.
_HEADERS_FOLLOW: Final = 1
_TIME_FOLLOWS: Final = 2
_PARTITION_FOLLOWS: Final = 3


def rows_checksum(
    *,
    values: Any,
    keys: Any = None,
    timestamps_ms: Any = None,
    headers: Any = None,
    partitions: Any = None,
) -> int:
    """Return the sum of the 64-bit hashes of all rows, modulo 2**64; the arguments are those of `send_columns`.

    ```python
    whole = rows_checksum(values=table["json"], keys=table["customer"])
    parts = [rows_checksum(values=part["json"], keys=part["customer"]) for part in (table[:500], table[500:])]
    assert sum(parts) % 2**64 == whole
    ```

    So rows have one checksum in any order and however they are split into calls. It changes with a byte, with the boundary between key and
    value, and where a null becomes empty. A missing column counts as a column of nulls, a null list of headers as an empty one. The types of
    columns do not matter: a string, its bytes and a dictionary of them are equal. The checksum is no protection against an attacker.

    Raises:
        UsageError: `send_columns` would raise it for the columns or for a row.
    """
    table = Table(values, keys, timestamps_ms, headers, partitions)
    total = 0
    for piece in table.pieces():
        if _compiled is None:
            total += sum(_hash(*piece.row(at), table.moment) for at in range(piece.rows))
            continue
        columns = piece.values, piece.keys, piece.moments, piece.headers, piece.partitions
        moment = -1 if table.moment is None else table.moment
        try:
            for at in range(0, piece.rows, _ROWS):
                total += _compiled.hash_rows(*columns, moment, at, min(_ROWS, piece.rows - at))
        except BadRow as error:
            raise piece.bad(error) from None
    return total & _64_BITS


def _hash(
    value: bytes | None,
    key: bytes | None,
    time: int | None,
    headers: list[tuple[str, bytes | None]] | None,
    partition: int | None,
    moment: int | None,
) -> int:
    words = [*_words(value), *_words(key)]
    if headers:
        words.append(len(headers) << 2 | _HEADERS_FOLLOW)
        for name, content in headers:
            words += (*_words(name.encode()), *_words(content))
    if (time := moment if time is None else time) is not None:
        words += (_TIME_FOLLOWS, time)
    if partition is not None:
        words += (_PARTITION_FOLLOWS, partition)
    lane, other = 0, _LANE_FACTOR
    for word in words:
        turned = lane + word * 0xC2B2AE3D27D4EB4F & _64_BITS
        lane, other = other, (turned << 31 | turned >> 33) * _LANE_FACTOR & _64_BITS
    return _mixed(_mixed(lane) + other)


def _words(field: bytes | None) -> Iterator[int]:
    """Yield the size of a field, 0 for null and else one more, and its bytes as words. A last word overlaps the one before it."""
    if field is None:
        yield 0
        return
    yield len(field) + 1
    for at in range(0, len(field) - 7, 8):
        yield int.from_bytes(field[at : at + 8], "little")
    if len(field) % 8:
        yield int.from_bytes(field[-8:], "little")


def _mixed(word: int) -> int:
    """Return a word with each of its bits spread over all bits."""
    word &= _64_BITS
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _64_BITS
    return word ^ word >> 31
