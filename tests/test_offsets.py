"""Tests of `aioproducer.offsets`: accepted forms of offsets and groups. Refused ones: tests/scenarios/test_transactions.py."""

from __future__ import annotations

from typing import Any

import aiokafka
import confluent_kafka
import pytest

from aioproducer import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, UsageError
from aioproducer.offsets import read_group, read_offsets


@pytest.mark.parametrize("partition", [("orders", 1), TopicPartition("orders", 1), aiokafka.TopicPartition("orders", 1)])
@pytest.mark.parametrize(
    ("offset", "read"),
    [
        (5, OffsetAndMetadata(5)),
        (0, OffsetAndMetadata(0)),
        (2**63 - 1, OffsetAndMetadata(2**63 - 1)),
        ((5,), OffsetAndMetadata(5)),
        ((5, "note"), OffsetAndMetadata(5, "note")),
        ((5, None), OffsetAndMetadata(5)),
        ((5, "note", 3), OffsetAndMetadata(5, "note", 3)),
        ((5, "note", None), OffsetAndMetadata(5, "note")),
        (OffsetAndMetadata(5, "note", 3), OffsetAndMetadata(5, "note", 3)),
        (aiokafka.structs.OffsetAndMetadata(5, "note"), OffsetAndMetadata(5, "note")),
    ],
)
def test_what_stands_for_offsets(partition: Any, offset: Any, read: OffsetAndMetadata) -> None:
    """Ours, aiokafka's, plain tuples and numbers."""
    assert read_offsets({partition: offset}) == {("orders", 1): read}


def test_no_offsets() -> None:
    assert read_offsets({}) == {}


@pytest.mark.parametrize("offset", [2**63, (), (1, "", 1, 1), (None, ""), 1.0])
def test_what_does_not(offset: Any) -> None:
    with pytest.raises(UsageError, match="no offset"):
        read_offsets({("orders", 1): offset})


def test_confluents_are_objects() -> None:
    """They are no tuples; the error says what is."""
    with pytest.raises(UsageError, match=r"\(topic, number from 0 on\)"):
        read_offsets({confluent_kafka.TopicPartition("orders", 1, 5): 5})


def test_what_stands_for_a_group() -> None:
    assert read_group("g") == ConsumerGroupMetadata("g", -1, "", None)
    whole = ConsumerGroupMetadata("g", 3, "m", "i")
    assert read_group(whole) is whole
