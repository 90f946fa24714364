"""Control records: known ends, unknown types and newer versions are read; what is too short is a `ProtocolError`."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings, strategies as st

from aioproducer.errors import ProtocolError, UsageError
from aioproducer.records.reader import Record
from aioproducer.testing.record_batches import (
    ControlRecord,
    ControlType,
    control_record,
    end_marker,
)


def record(key: bytes | None, value: bytes | None = None) -> Record:
    return Record(9, 1000, key, value, ())


def key(version: int, kind: int) -> bytes:
    return struct.pack(">hh", version, kind)


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_an_end_comes_back(kind: ControlType) -> None:
    """Versions 0, and the coordinator's epoch."""
    assert control_record(record(*end_marker(kind, 5))) == ControlRecord(9, 1000, 0, kind, 0, 5)


def test_a_marker_is_of_a_type_that_ends_a_transaction() -> None:
    """Commit or abort."""
    with pytest.raises(UsageError, match="LEADER_CHANGE ends no transaction"):
        end_marker(ControlType.LEADER_CHANGE, 1)


@pytest.mark.parametrize("kind", [kind for kind in ControlType if kind > 1])
def test_the_quorums_own_are_known_by_type(kind: ControlType) -> None:
    """The reader knows the quorum's control records by type, and does not read their values."""
    assert control_record(record(key(0, kind), b"anything")) == ControlRecord(9, 1000, 0, kind)


@pytest.mark.parametrize("kind", [7, 99, -1, 32767])
def test_an_unknown_type_is_kept_as_its_number(kind: int) -> None:
    """A reader passes over it, as over any other."""
    read = control_record(record(key(0, kind)))
    assert (read.type, type(read.type), read.coordinator_epoch) == (kind, int, None)


def test_newer_versions_are_read_as_far_as_they_are_known() -> None:
    """With more behind key and value (Kafka's `forwardDeserializeCompatibility`)."""
    value = struct.pack(">hi", 3, 77) + b"more"
    assert control_record(record(key(2, 1) + b"more", value)) == ControlRecord(
        9, 1000, 2, ControlType.COMMIT, 3, 77
    )


@pytest.mark.parametrize(("bad", "said"), [
    (record(None), "its key has 0 bytes, not 4"),
    (record(b"\0\0\0"), "its key has 3 bytes, not 4"),
    (record(key(-1, 1), bytes(6)), "version -1"),
    (record(key(0, 1), None), "has 0 bytes, not 6"),
    (record(key(0, 0), bytes(5)), "has 5 bytes, not 6"),
    (record(key(0, 0), struct.pack(">hi", -1, 0)), "a transaction's end of version -1"),
])  # fmt: skip
def test_what_cannot_be_is_told(bad: Record, said: str) -> None:
    """The error says the fault and its offset."""
    with pytest.raises(ProtocolError, match=f"control record at offset 9: .*{said}"):
        control_record(bad)


@settings(deadline=None)
@given(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8))
def test_any_bytes_are_read_or_a_protocol_error(
    some_key: bytes | None, value: bytes | None
) -> None:
    """Nothing else."""
    try:
        read = control_record(record(some_key, value))
    except ProtocolError:
        return
    assert (read.offset, read.version >= 0) == (9, True)
