"""Tests with bytes that Kafka's own classes wrote (tests/vectors, made by kafka-clients 3.9.2).

We write and read the same bytes, and refuse the ones that Kafka's classes refuse. tests/integration/test_java_vectors.py, which needs Java,
lets Kafka's classes read our bytes.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from aioproducer.errors import UsageError
from aioproducer.model import Compression, TimestampType
from aioproducer.testing.record_batches import (
    ControlType,
    control_type,
    end_marker,
    read_batches,
)
from tests.vectors.golden import area, build, cases, entries, expected, vectors, written

if TYPE_CHECKING:
    from tests.vectors.golden import Vector

CASES = {
    "empty batch",
    "one",
    "null key",
    "null value",
    "headers",
    "negative delta",
    "many",
}  # those that there must be at least
REFUSED = sorted(
    [(magic, codec, "headers") for magic, codec in product((0, 1), Compression)]
    + [
        (magic, Compression.ZSTD, case)
        for magic, case in product((0, 1), cases())
        if case != "headers" and (magic, case) != (0, "log append time")
    ]
)  # every combination that cannot be


def refused() -> list[Vector]:
    return [vector for vector in vectors() if vector.refused is not None]


def by_name(name: str) -> bytes:
    (vector,) = [vector for vector in vectors() if vector.case == name]
    assert vector.raw is not None
    return vector.raw


def test_every_combination_is_there_or_listed_as_impossible() -> None:
    """Three formats, five codecs, every case; magic 0 has no log append time, and the large case shows what codecs do."""
    told = {(vector.magic, vector.codec, vector.case) for vector in vectors()}
    wanted = set(product((0, 1, 2), Compression, cases()))
    assert set(cases()) > CASES
    left_out = {
        one
        for one in wanted
        if (one[0] == 0 and one[2] == "log append time")
        or (one[1] is Compression.NONE and one[2] == "large")
    }
    assert wanted - told == left_out


@pytest.mark.parametrize(
    "vector", [one for one in written() if one.codec is Compression.NONE], ids=lambda one: one.id
)
def test_uncompressed_we_write_the_same_bytes(vector: Vector) -> None:
    """We write Kafka's bytes exactly, with their CRC. Kafka reads its own bytes, so this proves that it reads ours."""
    assert build(vector.magic, vector.codec, cases()[vector.case]) == vector.raw


@pytest.mark.parametrize(
    "vector",
    [one for one in written() if one.codec is not Compression.NONE],
    ids=lambda one: one.id,
)
def test_compressed_we_write_the_same_record_area(vector: Vector) -> None:
    """Compressors differ, but they were given the same input. The bytes before it are the same, except for sizes and checksum."""
    assert vector.raw is not None
    ours = build(vector.magic, vector.codec, cases()[vector.case])
    if vector.case == "empty batch":
        assert ours == vector.raw == b""
        return
    assert area(vector.magic, vector.codec, ours) == area(vector.magic, vector.codec, vector.raw)
    assert heads(vector.magic, ours) == heads(vector.magic, vector.raw)


def heads(magic: int, raw: bytes) -> bytes:
    """Return the bytes before the compressed records, without size and CRC."""
    if magic == 2:
        return raw[:8] + raw[12:17] + raw[21:61]
    return raw[:8] + raw[16 : (22, 30)[magic]]


@pytest.mark.parametrize("vector", written(), ids=lambda one: one.id)
def test_we_read_what_kafka_wrote(vector: Vector) -> None:
    """With all CRCs looked at: offsets in the log, the timestamps that count, keys, values, headers."""
    assert vector.raw is not None
    case = cases()[vector.case]
    stamp = (
        TimestampType.CREATE_TIME if case.log_append_time == -1 else TimestampType.LOG_APPEND_TIME
    )
    read = []
    for entry in entries(vector.magic, vector.raw):
        assert (entry.magic, entry.compression, entry.timestamp_type) == (
            vector.magic,
            vector.codec,
            stamp,
        )
        read += entry.check()
    assert read == expected(vector.magic, case)


def test_what_cannot_be_is_what_kafka_says_cannot_be() -> None:
    """Headers and zstd in message sets, and nothing else."""
    assert sorted((one.magic, one.codec, one.case) for one in refused()) == REFUSED


@pytest.mark.parametrize("vector", refused(), ids=lambda one: one.id)
def test_we_refuse_what_kafka_refuses(vector: Vector) -> None:
    """The builder refuses the record and says why."""
    why = (
        "zstd needs record batches"
        if vector.codec is Compression.ZSTD
        else "headers need record batches"
    )
    with pytest.raises(UsageError, match=rf"{why} \(magic 2\).*of magic {vector.magic}"):
        build(vector.magic, vector.codec, cases()[vector.case])


@pytest.mark.parametrize(
    ("name", "kind"), [("commit marker", ControlType.COMMIT), ("abort marker", ControlType.ABORT)]
)
def test_a_transactions_end_is_read(name: str, kind: ControlType) -> None:
    """Type, versions and the coordinator's epoch, out of what a broker writes into the log."""
    (batch,) = read_batches(by_name(name))
    (record,) = batch.check()
    assert (batch.is_control, batch.is_transactional, batch.leader_epoch) == (True, True, 4)
    assert (record.offset, record.timestamp_ms) == (9, 1_700_000_000_000)
    assert (record.key, record.value) == end_marker(kind, 21)
    assert control_type(record) is kind


def test_a_batch_that_compaction_emptied_is_read() -> None:
    """It keeps its offsets and its producer's last sequence, and holds nothing."""
    (batch,) = read_batches(by_name("emptied by compaction"))
    assert batch.records() == []
    assert (batch.base_offset, batch.last_offset_delta, batch.base_sequence, batch.count) == (
        500,
        9,
        12,
        0,
    )
