"""Control records: what a broker writes into a log about its transactions and its quorum, never for users (KIP-98, KIP-595).

A control record's key holds a version and a type, its value what belongs to the type. Both may grow: a newer version is read as far as
it is known here, an unknown type is kept as its number. Knows nothing of batches, or of what a reader does about an end.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from aioproducer.records.reader import Record

__all__ = ["ControlRecord", "ControlType", "control_record", "end_marker"]

_KEY: Final = struct.Struct(">hh")  # version, type
_MARKER: Final = struct.Struct(">hi")  # version, epoch of the transaction's coordinator
_VERSION: Final = 0  # of both, as we write them


class ControlType(enum.IntEnum):
    """What a control record tells (Kafka's ControlRecordType)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


class ControlRecord(NamedTuple):
    """A control record, read. `type` is a ControlType where it is known here; the last two are those of a transaction's end, else None."""

    offset: int
    timestamp_ms: int
    version: int
    type: int
    marker_version: int | None = None
    coordinator_epoch: int | None = None


def control_record(record: Record) -> ControlRecord:
    """A record of a control batch, read.

    Raises:
        ProtocolError: its key or value is too short, or has a version that cannot be.
    """
    version, kind = _unpacked(record, "its key", record.key, _KEY)
    if version < 0:
        raise _wrong(record, f"version {version}")
    if kind not in _ENDS:
        known = ControlType(kind) if kind in ControlType.__members__.values() else kind
        return ControlRecord(record.offset, record.timestamp_ms, version, known)
    marker_version, epoch = _unpacked(record, "the value of a transaction's end", record.value, _MARKER)
    if marker_version < 0:
        raise _wrong(record, f"a transaction's end of version {marker_version}")
    return ControlRecord(record.offset, record.timestamp_ms, version, ControlType(kind), marker_version, epoch)


def _unpacked(record: Record, name: str, data: bytes | None, shape: struct.Struct) -> tuple[Any, ...]:
    """What a key or value begins with."""
    data = data or b""
    if len(data) < shape.size:
        raise _wrong(record, f"{name} has {len(data)} bytes, not {shape.size}")
    return shape.unpack_from(data)


def end_marker(kind: ControlType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value of a transaction's end.

    Raises:
        UsageError: that type ends no transaction.
    """
    if kind not in _ENDS:
        raise UsageError(f"{kind.name} ends no transaction: it is COMMIT or ABORT")
    return _KEY.pack(_VERSION, kind), _MARKER.pack(_VERSION, coordinator_epoch)


def _wrong(record: Record, what: str) -> ProtocolError:
    return ProtocolError(f"control record at offset {record.offset}: {what}")
