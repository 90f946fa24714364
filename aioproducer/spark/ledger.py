"""Holds the names, values and texts of the ledger: committed offsets of consumer groups say what is decided and what is committed.

1. The *mark* of a task: the offset N + 1 of the task's group. It is part of the task's transaction, so it is there if and only if the rows
   of batch N are.
2. The *decision* of a batch: the offset N + 1 of the driver's group, with the transactions of all tasks as metadata. A broker takes 4,096
   bytes of metadata, so a long decision is a chain of groups. One transaction writes all groups of a chain.

All groups use partition 0 of one topic. Nothing here does I/O.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import KafkaError
from aioproducer.model import Position, PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Decision",
    "Entry",
    "LedgerError",
    "Mark",
    "QueryName",
    "TornDecision",
    "decode_decision",
    "decode_mark",
    "decode_parts",
    "encode_decision",
    "encode_mark",
]

# Brokers' `offset.metadata.max.bytes`, by default.
MAX_METADATA_BYTES: Final = 4096
_DECISION: Final = "d1 "
_MARK: Final = "m1"
# Part, parts and checksum of all: two varints of at most 5 bytes, and 4 bytes.
_MAX_HEADER_BYTES: Final = 14
# Base85 makes 5 characters of 4 bytes.
_CHUNK_BYTES: Final = (MAX_METADATA_BYTES - len(_DECISION)) // 5 * 4 - _MAX_HEADER_BYTES
_MAX_VARINT_BITS: Final = 63
_CHECKSUM_BYTES: Final = 8


class LedgerError(KafkaError):
    """Reports offsets of the ledger's groups that are not the sink's, or not whole."""


class TornDecision(LedgerError):
    """Reports groups of a decision that were read while a driver wrote them: reading them again helps."""


class QueryName(NamedTuple):
    """Holds the name of a query or of a batch write, from which all its ids are made.

    The decision has the driver's group. With the bare name, the decision of the write `orders-1` would be the mark of task 1 of `orders`.

    Attributes:
        text: the prefix and the query's id, or the prefix and the write's own name.
    """

    text: str

    def transactional_id(self, task: int) -> str:
        """Return the transactional id of a task."""
        return f"{self.text}-{task}"

    def mark_group(self, task: int) -> str:
        """Return the group that has the mark of a task as its offset."""
        return self.transactional_id(task)

    def driver_id(self) -> str:
        """Return the transactional id of the driver."""
        return f"{self.text}-driver"

    def decision_group(self, part: int = 0) -> str:
        """Return the group that has one part of the decision."""
        return f"{self.driver_id()}.{part}" if part else self.driver_id()


class Entry(NamedTuple):
    """Holds the transaction of one task, and its rows: their number, their bytes and the sum of their checksums."""

    prepared: PreparedTransaction
    rows: int
    bytes: int
    checksum: int


class Decision(NamedTuple):
    """Holds the transactions of a batch that its driver decided to commit. The entry of a task without rows is None."""

    batch: int
    entries: tuple[Entry | None, ...]

    def entry(self, task: int) -> Entry | None:
        """Return the entry of a task; None: it has none."""
        return self.entries[task] if task < len(self.entries) else None


class Mark(NamedTuple):
    """Holds the latest batch that a task committed, with the number, bytes and checksum of its rows."""

    batch: int
    rows: int
    bytes: int
    checksum: int


def encode_mark(mark: Mark) -> Position:
    """Return a mark as the position that a transaction commits."""
    return Position(mark.batch + 1, f"{_MARK} {mark.rows} {mark.bytes} {mark.checksum:016x}")


def decode_mark(group: str, position: Position) -> Mark:
    """Return the mark of a position.

    Raises:
        LedgerError: the position is not a mark.
    """
    words = position.cursor.split(" ")
    try:
        kind, rows, size, checksum = words
        mark = Mark(position.number - 1, int(rows), int(size), int(checksum, 16))
    except ValueError:
        raise _foreign(group, position, "mark of a task") from None
    if kind != _MARK or mark.batch < 0:
        raise _foreign(group, position, "mark of a task")
    return mark


def encode_decision(decision: Decision) -> list[Position]:
    """Return a decision as the positions of its groups, the first one first."""
    parts = [_varint(len(decision.entries))]
    parts.extend(itertools.chain.from_iterable(_entry_bytes(entry) for entry in decision.entries))
    packed = b"".join(parts)
    chunks = [packed[at : at + _CHUNK_BYTES] for at in range(0, len(packed), _CHUNK_BYTES)]
    digest = zlib.crc32(packed).to_bytes(4)
    return [
        Position(
            decision.batch + 1,
            _DECISION
            + base64.b85encode(_varint(part) + _varint(len(chunks)) + digest + chunk).decode(),
        )
        for part, chunk in enumerate(chunks)
    ]


def decode_parts(group: str, head: Position) -> int:
    """Return the number of groups that the decision has.

    Args:
        group: the first group; errors name it.
        head: its position.

    Raises:
        LedgerError: the position is no decision.
    """
    return _Part.of(group, head).parts


def decode_decision(name: QueryName, positions: Sequence[Position | None]) -> Decision:
    """Return the decision of the positions of its groups.

    Raises:
        TornDecision: the positions are parts of different decisions, or some are missing.
        LedgerError: a position is no part of a decision.
    """
    parts = [
        None if position is None else _Part.of(name.decision_group(at), position)
        for at, position in enumerate(positions)
    ]
    first = parts[0]
    if first is None:
        raise TornDecision(f"the decision of {name.text!r} has no first part")
    whole = [first._replace(part=at, chunk=b"") for at in range(first.parts)]
    found = [part and part._replace(chunk=b"") for part in parts]
    if found != whole:
        raise TornDecision(
            f"the decision of {name.text!r} is not whole: its {len(parts)} groups do not have the {first.parts} parts of one batch"
        )
    packed = b"".join(part.chunk for part in parts if part is not None)
    if zlib.crc32(packed).to_bytes(4) != first.digest:
        raise LedgerError(
            f"the decision of {name.text!r} is damaged: its checksum does not match. {_REMEDY}"
        )
    return Decision(first.batch, _entries(name, packed))


_REMEDY: Final = (
    "Another program may have written offsets of this consumer group: remove it from the group, and start the query with another "
    "transactionalIdPrefix."
)


def _foreign(group: str, position: Position, kind: str) -> LedgerError:
    text = position.cursor if len(position.cursor) <= 40 else position.cursor[:40] + "..."
    return LedgerError(
        f"consumer group {group!r} has offset {position.number} with metadata {text!r}, which is no {kind}. {_REMEDY}"
    )


class _Part(NamedTuple):
    """Holds one part of a decision. `digest` is the checksum of all chunks, so that parts of two decisions of one batch differ."""

    batch: int
    part: int
    parts: int
    digest: bytes
    chunk: bytes

    @classmethod
    def of(cls, group: str, position: Position) -> _Part:
        """Return the part that a position has.

        Raises:
            LedgerError: it has none.
        """
        try:
            if not position.cursor.startswith(_DECISION) or position.number < 1:
                raise ValueError(position)
            packed = base64.b85decode(position.cursor[len(_DECISION) :])
            part, at = _read_varint(packed, 0)
            parts, at = _read_varint(packed, at)
        except (ValueError, binascii.Error):
            raise _foreign(group, position, "decision of a batch") from None
        digest, chunk = packed[at : at + 4], packed[at + 4 :]
        if not chunk or part >= parts:
            raise _foreign(group, position, "decision of a batch")
        return cls(position.number - 1, part, parts, digest, chunk)


def _entry_bytes(entry: Entry | None) -> tuple[bytes, ...]:
    if entry is None:
        return (b"\0",)
    prepared = entry.prepared
    # The version is 1 or 2, so the first byte is not that of a task without rows.
    numbers = (prepared.version, prepared.producer_id, prepared.epoch, entry.rows, entry.bytes)
    return (*map(_varint, numbers), entry.checksum.to_bytes(_CHECKSUM_BYTES))


def _entries(name: QueryName, packed: bytes) -> tuple[Entry | None, ...]:
    try:
        count, at = _read_varint(packed, 0)
        entries: list[Entry | None] = []
        while at < len(packed):
            entry, at = _read_entry(name.transactional_id(len(entries)), packed, at)
            entries.append(entry)
    except ValueError:
        count, entries = -1, []
    if len(entries) != count:
        raise LedgerError(
            f"the decision of {name.text!r} is of a version that this release does not know: run the release that wrote it"
        )
    return tuple(entries)


def _read_entry(transactional_id: str, packed: bytes, at: int) -> tuple[Entry | None, int]:
    version, at = _read_varint(packed, at)
    if not version:
        return None, at
    producer_id, at = _read_varint(packed, at)
    epoch, at = _read_varint(packed, at)
    rows, at = _read_varint(packed, at)
    size, at = _read_varint(packed, at)
    checksum = packed[at : at + _CHECKSUM_BYTES]
    if len(checksum) < _CHECKSUM_BYTES:
        raise ValueError(packed)
    prepared = PreparedTransaction(transactional_id, producer_id, epoch, version)
    return Entry(prepared, rows, size, int.from_bytes(checksum)), at + _CHECKSUM_BYTES


def _varint(number: int) -> bytes:
    """Return a number from 0 on as 7 bits a byte, the lowest first."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _read_varint(packed: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it.

    Raises:
        ValueError: the bytes end, or the number has more than 63 bits.
    """
    number = 0
    for bits in range(0, _MAX_VARINT_BITS, 7):
        if at >= len(packed):
            break
        byte = packed[at]
        at += 1
        number |= (byte & 0x7F) << bits
        if byte <= 0x7F:
            return number, at
    raise ValueError(packed)
