"""Holds what readers of Arrow columns return and raise: encoded rows, and a row that cannot be a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from array import array
    from typing import TypeAlias

# A number for each record, or as a varint the number that all records have in common.
Sizes: TypeAlias = "array[int] | bytes"


class BadRow(Exception):
    """Reports a row that cannot be a record.

    Attributes:
        row: the row's number in the column.
        what: the reason.
    """

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row = row
        self.what = what


BAD_OFFSETS: Final = "its offsets do not lie within the column's data: the array is damaged"
BAD_TIME: Final = "its timestamp is negative: it is milliseconds since 1970"
CHANGED: Final = "the columns were changed before send_columns returned"
NO_HEADER: Final = "a header is a pair of a string and bytes or null, not null"
NO_NAME: Final = "a header's key is a string, not null"
NO_TEXT: Final = "a header's key is a string, and its bytes are not UTF-8"


def bad_partition(number: int) -> str:
    """Return the reason for a row whose partition does not exist."""
    return (
        f"partition={number}: it is a number from 0 on and below the number of partitions, or null"
    )


class Encoded(NamedTuple):
    """Holds rows encoded as records, and the numbers that their metadata needs."""

    rows: int
    payload: bytes
    base: int
    latest: int
    key_sizes: Sizes
    value_sizes: Sizes
    moments: Sizes
