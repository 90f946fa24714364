"""Tests of `aioproducer.engine.append.batch_builder`: the batch that a user fills, before it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.engine.append.batch_builder import ReadyBatch
from aioproducer.errors import UsageError
from aioproducer.records.record_batch import record_size
from tests.engine.append.parts import NOW_MS, Parts


def ready(limit: int = 1000, **options: Any) -> ReadyBatch:
    parts = Parts(**options)

    def checked(_topic: str, value: Any, key: Any, _partition: int, timestamp_ms: Any, headers: Any) -> Any:
        return parts.record(value, key, timestamp_ms=timestamp_ms, headers=headers)

    return ReadyBatch("orders", 0, parts.context, limit, checked)


def test_it_takes_records_until_it_is_full() -> None:
    """Their bytes are counted exactly. A record that does not fit leaves the batch as it is."""
    batch = ready(200)
    while batch.append(b"v" * 30, b"k", headers=[("a", b"b")]):
        pass
    size = record_size(0, 0, b"k", b"v" * 30, b"\2\2a\2b")
    assert len(batch) == 200 // size
    assert batch.size == size * len(batch)
    assert batch.append(b""), "a smaller one fits"
    assert batch.size == len(batch.records.close()[0])


def test_the_first_record_always_fits() -> None:
    batch = ready(10)
    assert batch.append(b"v" * 500)
    assert not batch.append(b"")


def test_timestamps_are_those_of_the_records_or_now() -> None:
    batch = ready()
    batch.append(b"v", timestamp_ms=NOW_MS + 7)
    batch.append(b"w")
    payload, base, latest = batch.records.close()
    assert (base, latest) == (NOW_MS + 7, NOW_MS + 7)
    assert len(payload) == batch.size


def test_a_closed_batch_takes_no_record_and_keeps_its_bytes() -> None:
    batch = ready()
    batch.append(b"v")
    batch.close()
    batch.close()
    assert not batch.append(b"w")
    assert not batch.records.is_closed
    closed = batch.records.close()
    assert batch.records.close() is closed
    assert not batch.records.append(NOW_MS, None, b"w", b"\0")
    assert len(batch) == 1


def test_a_sent_batch_is_refused() -> None:
    """Also if a serializer sent it while its record was checked."""
    batch = ready()
    batch.append(b"v")
    batch.is_sent = True
    with pytest.raises(UsageError, match=r"orders-0: 1 record, \d+ bytes, sent> was sent; make a new one"):
        batch.append(b"w")
    assert len(batch) == 1

    def sending(value: Any) -> bytes:
        other.is_sent = True
        return bytes(value)

    other = ready(value_serializer=sending)
    with pytest.raises(UsageError, match="was sent"):
        other.append(b"v")


def test_an_empty_batch_is_true_and_cannot_be_sent() -> None:
    batch = ready()
    assert batch
    assert len(batch) == 0
    with pytest.raises(UsageError, match="is empty"):
        _ = batch.result


def test_it_belongs_to_its_producer() -> None:
    parts = Parts()
    batch = ReadyBatch("orders", 0, parts.context, 1000, lambda *_: None)
    assert batch.is_of(parts.context)
    assert not batch.is_of(Parts().context)
