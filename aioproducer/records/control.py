"""Control records, which brokers write into logs for transactions and the quorum (KIP-98, KIP-595).

Consumers never pass control records to users. The key of a control record holds a version and a type; its value holds the fields of that
type. Later versions may add fields: this module reads the known fields of a newer version, and keeps an unknown type as its number.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from aioproducer.records.reader import Record

__all__ = ["ControlRecord", "ControlType", "control_record", "end_marker"]

# Version, type.
_KEY: Final = struct.Struct(">hh")
# Version, epoch of the transaction's coordinator.
_MARKER: Final = struct.Struct(">hi")
# The version of both in the records that this module writes.
_VERSION: Final = 0


class ControlType(enum.IntEnum):
    """Holds the types of control records (Kafka's ControlRecordType)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


class ControlRecord(NamedTuple):
    """Holds the fields of a control record.

    `type` is a `ControlType`, or the number of an unknown type. The last two fields are None except for a transaction's end.
    """

    offset: int
    timestamp_ms: int
    version: int
    type: int
    marker_version: int | None = None
    coordinator_epoch: int | None = None


def control_record(record: Record) -> ControlRecord:
    """Decode a record of a control batch. Returns its fields.

    Raises:
        ProtocolError: the key or the value is too short, or has a negative version.
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
    """Return the fields at the beginning of a key or value."""
    data = data or b""
    if len(data) < shape.size:
        raise _wrong(record, f"{name} has {len(data)} bytes, not {shape.size}")
    return shape.unpack_from(data)


def end_marker(kind: ControlType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Return key and value of a transaction's end.

    Raises:
        UsageError: the type ends no transaction.
    """
    if kind not in _ENDS:
        raise UsageError(f"{kind.name} ends no transaction: it is COMMIT or ABORT")
    return _KEY.pack(_VERSION, kind), _MARKER.pack(_VERSION, coordinator_epoch)


def _wrong(record: Record, what: str) -> ProtocolError:
    return ProtocolError(f"control record at offset {record.offset}: {what}")
