"""Splits the payload of a batch into the payloads of smaller batches.

A record keeps its bytes from key to headers, and its time. Only its place in a batch is written again
(BAT-03..06).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioproducer.records.reader import read_varint
from aioproducer.records.varints import varint

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Piece(NamedTuple):
    """Holds a smaller batch: the indexes of its records, and its uncompressed bytes."""

    indexes: Sequence[int]
    payload: bytes
    base_timestamp: int
    max_timestamp: int


class _Record(NamedTuple):
    """Holds one record's time, and its bytes after the offset delta. `size`: its bytes in the original batch."""

    delta: int
    rest: bytes
    size: int


def in_halves(payload: bytes, base_timestamp: int, most: int) -> list[Piece]:
    """Return pieces of at most `most` bytes and at most half of `payload`, but of at least one record (KAFKA-8350)."""
    records = _read(payload)
    limit = min(most, len(payload) // 2)
    groups: list[list[int]] = []
    size = limit + 1
    for index, record in enumerate(records):
        size += record.size
        if size > limit:
            groups.append([])
            size = record.size
        groups[-1].append(index)
    return [_piece(records, group, base_timestamp) for group in groups]


def without(payload: bytes, base_timestamp: int, bad: Collection[int]) -> list[Piece]:
    """Return one piece for each bad record alone, then one for all other records, if there are any."""
    records = _read(payload)
    rest = [index for index in range(len(records)) if index not in bad]
    groups = [[index] for index in sorted(bad)] + ([rest] if rest else [])
    return [_piece(records, group, base_timestamp) for group in groups]


def _read(payload: bytes) -> list[_Record]:
    """Return the records of a payload. The client's own encoder wrote it, so it needs no checks."""
    records = []
    at = 0
    while at < len(payload):
        began = at
        length, at = read_varint(payload, at)
        end = at + length
        # Skip the attributes, which are always 0.
        delta, at = read_varint(payload, at + 1, 64)
        _, at = read_varint(payload, at)
        records.append(_Record(delta, payload[at:end], end - began))
        at = end
    return records


def _piece(records: Sequence[_Record], group: Sequence[int], base_timestamp: int) -> Piece:
    base = records[group[0]].delta
    parts: list[bytes] = []
    for place, index in enumerate(group):
        record = records[index]
        body = b"\0" + varint(record.delta - base) + varint(place) + record.rest
        parts += (varint(len(body)), body)
    latest = max(records[index].delta for index in group)
    return Piece(group, b"".join(parts), base_timestamp + base, base_timestamp + latest)
