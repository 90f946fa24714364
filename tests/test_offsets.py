"""Tests of `aioproducer.offsets`: accepted forms of offsets and groups. Refused ones: tests/scenarios/test_transactions.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka
import pytest

from aioproducer import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, UsageError
from aioproducer.offsets import (
    read_group,
    read_offsets,
    read_position,
    read_position_key,
    read_prepared,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "partition", [("orders", 1), TopicPartition("orders", 1), aiokafka.TopicPartition("orders", 1)]
)
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


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (
            lambda: read_offsets({("orders", 2**31): 1}),
            r"\('orders', 2147483648\) names no partition",
        ),
        (lambda: read_offsets({("orders", 0): (1, "", 2**31)}), "number of a leader's epoch"),
        (lambda: read_offsets({("orders", 0): (1, "", -2)}), "number of a leader's epoch"),
        (
            lambda: read_group(ConsumerGroupMetadata("g", 2**31, "m")),
            "generation_id=2147483648 is no number of a generation",
        ),
        (
            lambda: read_group(ConsumerGroupMetadata("g", -2)),
            "generation_id=-2 is no number of a generation",
        ),
        (lambda: read_group(5), "a group is its id, or ConsumerGroupMetadata, not int"),
        (lambda: read_group(ConsumerGroupMetadata("g", 1)), "generation_id=1 is one of a member's"),
        (lambda: read_group(ConsumerGroupMetadata("g", 1, 5)), "member_id=5: it is a text"),  # type: ignore[arg-type]
        (lambda: read_group(ConsumerGroupMetadata("g", -1, None)), "member_id=None: it is a text"),  # type: ignore[arg-type]
        (
            lambda: read_group(ConsumerGroupMetadata("g", 1, "m", b"i")),
            "group_instance_id=b'i': it is a text",
        ),  # type: ignore[arg-type]
    ],
)
def test_what_a_request_cannot_hold(read: Callable[[], Any], text: str) -> None:
    """A producer that is to send it within its transaction would fail for good."""
    with pytest.raises(UsageError, match=text):
        read()


def test_confluents_are_objects() -> None:
    """They are no tuples; the error says what is."""
    with pytest.raises(UsageError, match=r"\(topic, number from 0 on\)"):
        read_offsets({confluent_kafka.TopicPartition("orders", 1, 5): 5})


@pytest.mark.parametrize(
    ("read", "named"),
    [
        (read_group, "group_id"),
        (lambda text: read_group(ConsumerGroupMetadata("g", 1, text)), "member_id"),
        (lambda text: read_group(ConsumerGroupMetadata("g", 1, "m", text)), "group_instance_id"),
        (lambda text: read_offsets({(text, 0): 1}), "a topic"),
        (
            lambda text: read_offsets({("orders", 0): (1, text)}),
            r"the text beside the offset of \('orders', 0\)",
        ),
        (lambda text: read_position_key(text, "orders"), "job"),
        (lambda text: read_position_key("job", text), "topic"),
        (lambda text: read_position(1, text), "cursor"),
        (lambda text: read_prepared((text, 1, 1, 1)), "transactional_id"),
    ],
)
def test_a_text_that_brokers_do_not_read(read: Callable[[str], Any], named: str) -> None:
    """They close the connection, whatever the format of the request has room for. Bytes count, not characters."""
    read("x" * 32_767)
    for text in ("x" * 32_768, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 16_384):
        with pytest.raises(UsageError, match=rf"^{named} takes 32768 bytes: it is at most 32767$"):
            read(text)
    with pytest.raises(UsageError, match=rf"^{named} has characters that UTF-8 does not$"):
        read("\ud800")


def test_what_stands_for_a_group() -> None:
    assert read_group("g") == ConsumerGroupMetadata("g", -1, "", None)
    whole = ConsumerGroupMetadata("g", 3, "m", "i")
    assert read_group(whole) is whole
