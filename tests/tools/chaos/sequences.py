"""Parses and checks the sequence numbers of a log, as Kafka's `DumpLogSegments` prints them. Pure functions.

For each producer id and epoch a partition has one unbroken row of sequences: no batch twice, no batch missing, no other batch in between.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Batch", "batches", "broken_rows"]

_WRAP: Final = 2**31  # 0 follows 2^31-1
_FACT: Final = re.compile(r"(\w+): (\S+)")


class Batch(NamedTuple):
    """Holds the header of a batch."""

    base_offset: int
    size: int
    producer_id: int
    epoch: int
    first: int
    last: int
    is_transactional: bool
    is_control: bool
    is_valid: bool


def batches(lines: Iterable[str]) -> dict[str, list[Batch]]:
    """Return the batches that the tool prints, by partition, in the order of its segments."""
    found: dict[str, list[Batch]] = {}
    mine: list[Batch] = []
    for line in lines:
        if line.startswith("Dumping "):
            mine = found.setdefault(line.split("/")[-2], [])
        elif line.startswith("baseOffset:"):
            mine.append(_batch(dict(_FACT.findall(line))))
    return found


def _batch(facts: dict[str, str]) -> Batch:
    return Batch(
        int(facts["baseOffset"]),
        int(facts["count"]),
        int(facts["producerId"]),
        int(facts["producerEpoch"]),
        int(facts["baseSequence"]),
        int(facts["lastSequence"]),
        facts["isTransactional"] == "true",
        facts["isControl"] == "true",
        facts["isvalid"] == "true",
    )


def broken_rows(found: Iterable[Batch]) -> Iterator[str]:
    """Return the errors of one partition's sequences, in words."""
    newest: dict[int, int] = {}
    expected: dict[tuple[int, int], int] = {}
    for batch in found:
        where = f"offset {batch.base_offset}, producer {batch.producer_id}, epoch {batch.epoch}"
        if not batch.is_valid:
            yield f"{where}: its checksum is wrong"
        if batch.producer_id < 0:
            yield f"{where}: it has no producer id"
            continue
        if batch.epoch < newest.get(batch.producer_id, 0):
            yield f"{where}: behind epoch {newest[batch.producer_id]}"
        newest[batch.producer_id] = max(batch.epoch, newest.get(batch.producer_id, 0))
        if batch.is_control:
            continue
        mine = (batch.producer_id, batch.epoch)
        if batch.first != expected.get(mine, 0):
            yield f"{where}: sequence {batch.first} where {expected.get(mine, 0)} was due"
        if batch.last != (batch.first + batch.size - 1) % _WRAP:
            yield f"{where}: {batch.size} records from sequence {batch.first} to {batch.last}"
        expected[mine] = (batch.last + 1) % _WRAP
