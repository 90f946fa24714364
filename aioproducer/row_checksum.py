"""`rows_checksum`: a checksum of the rows of Arrow columns that does not depend on their order."""

from __future__ import annotations

from typing import Any, Final

from aioproducer.records.arrow import Table
from aioproducer.records.columns import BadRow, hash_rows

__all__ = ["rows_checksum"]

# Rows of one call, during which no other thread gets the GIL: a fraction of a millisecond.
_ROWS: Final = 8192
_MODULUS: Final = 2**64


def rows_checksum(*, values: Any, keys: Any = None, timestamps_ms: Any = None, headers: Any = None, partitions: Any = None) -> int:
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
    moment = -1 if table.moment is None else table.moment
    total = 0
    for piece in table.pieces():
        columns = piece.values, piece.keys, piece.moments, piece.headers, piece.partitions
        try:
            for at in range(0, piece.rows, _ROWS):
                total += hash_rows(*columns, moment, at, min(_ROWS, piece.rows - at))
        except BadRow as error:
            raise piece.bad(error) from None
    return total % _MODULUS
