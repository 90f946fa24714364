"""Tests of `aioproducer.core.record_validation`: what is taken for a record, and which error the rest ends in."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Any

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.core.record_validation import RecordValidation
from aioproducer.engine.memory.pending_send import PendingSend
from aioproducer.errors import RecordTooLarge


class Topics(str, enum.Enum):  # noqa: UP042  (as users of 3.10 wrote it)
    ORDERS = "orders"


def validated(
    topic: Any = "orders", value: Any = b"v", options: dict[str, Any] | None = None, **given: Any
) -> Any:
    validation = RecordValidation(
        ProducerConfig(bootstrap_servers="here:1", **(options or {})),
        PendingSend,
        lambda _what, function, *given: function(*given),
    )
    fields = {"key": None, "partition": None, "timestamp_ms": None, "headers": (), **given}
    return validation.record(topic, value, *fields.values())


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"topic": Topics.ORDERS}, "topic", "orders"),
        ({"topic": "ü" * 16_383}, "topic", "ü" * 16_383),
        ({"value": None}, "value", None),
        ({"value": bytearray(b"w")}, "value", b"w"),
        ({"key": b""}, "key", b""),
        ({"partition": 0}, "partition", 0),
        ({"timestamp_ms": 0}, "timestamp_ms", 0),
        ({"timestamp_ms": datetime(1970, 1, 2, tzinfo=UTC)}, "timestamp_ms", 86_400_000),
        ({"headers": None}, "headers", b"\0"),
        ({"headers": [("a", b"b")]}, "headers", b"\2\2a\2b"),
        ({"options": {"value_serializer": str.encode}, "value": "x"}, "value", b"x"),
        ({"options": {"key_serializer": str.encode}, "key": "x"}, "key", b"x"),
        ({"options": {"value_serializer": str.encode}, "value": None}, "value", None),
    ],
)
def test_what_is_taken(given: dict[str, Any], field: str, expected: Any) -> None:
    record = validated(**given)
    assert getattr(record, field) == expected
    assert type(record.topic) is str


def test_the_largest_record_is_taken() -> None:
    """The size is what the record takes alone in a batch: with one byte less allowed, it is refused."""
    size = validated(value=b"v" * 1000).size + 61
    assert validated(value=b"v" * 1000, options={"max_request_size": size}).size == size - 61
    with pytest.raises(RecordTooLarge):
        validated(value=b"v" * 1000, options={"max_request_size": size - 1})
