"""Groups the rows of columns by partition: by a column of partitions, or by their keys."""

from __future__ import annotations

from array import array
from typing import Any, Final

from aioproducer.core.topic_routing import murmur2
from aioproducer.records import columns
from aioproducer.records.encoded_rows import BadRow, bad_partition

__all__ = ["MOST_ROWS", "assign", "plain_assign"]

# Rows per call.
MOST_ROWS: Final = 65_535


def plain_assign(keys: Any, at: int, rows: int, partitions: int, nobodys: int = -1, column: Any = None) -> tuple[array[int], list[int]]:
    """Group `rows` rows from `at` on by partition, in the order of the first row of each group.

    A row that has a partition in `column`, the column of partitions, belongs there. Rows without it and without a key belong to the
    partition `nobodys`; if that is -1, they are a group of their own. There may be no column of keys, or none of partitions.

    Returns:
        the group of each row; and the partition of each group.

    Raises:
        BadRow: a key's bytes cannot be found, or a row's partition does not exist.
        ValueError: there are no such rows, or too many at a time.
    """
    length = min((len(some) for some in (keys, column) if some is not None), default=2**63 - 1)
    if not (0 <= rows <= MOST_ROWS and 1 <= partitions < 2**31 - 1 and -1 <= nobodys < partitions and 0 <= at <= length - rows):
        raise ValueError(f"{rows} rows for {partitions} partitions")
    numbers: dict[int, int] = {}
    picks = array("H")
    for row in range(at, at + rows):
        partition = _given(column, row, partitions)
        if partition is None:
            key = None if keys is None else keys.get(row)
            partition = nobodys if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions
        picks.append(numbers.setdefault(partition, len(numbers)))
    return picks, list(numbers)


def _given(column: Any, row: int, partitions: int) -> int | None:
    """Return the partition that a row has in the column of partitions."""
    partition: int | None = None if column is None else column.get(row)
    if partition is not None and partition >= partitions:
        raise BadRow(row, bad_partition(partition))
    return partition


assign: Any = plain_assign if columns.compiled is None else columns.compiled.assign
