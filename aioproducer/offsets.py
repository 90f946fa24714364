"""Checks the offsets, groups, positions and prepared transactions that the user gives, and converts them to types of `aioproducer.model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aioproducer.config.option_kinds import utf8_size
from aioproducer.errors import UsageError
from aioproducer.model import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
    exact_int,
)

__all__ = [
    "POSITION_PARTITION",
    "check_text",
    "read_group",
    "read_offsets",
    "read_position",
    "read_position_key",
    "read_prepared",
    "read_transactional_id",
]


_MAX_OFFSET: Final = 2**63 - 1
_MAX_EPOCH: Final = 2**15 - 1
_MAX_INT32: Final = 2**31 - 1
# Brokers close the connection at a longer text, also where the format of the request has room for it.
_MAX_BYTES: Final = 2**15 - 1
# The partition of the topic with which Kafka keeps the position of a job: every topic has it.
POSITION_PARTITION: Final = 0


def check_text(name: str, text: str) -> None:
    """Check that a text can be part of a request.

    Raises:
        UsageError: UTF-8 has not all of its characters, or it is longer than brokers read.
    """
    utf8_size(name, text, _MAX_BYTES, UsageError)


def read_transactional_id(name: Any) -> str:
    """Return a transactional id that the user gives. Raises UsageError: it is none."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"transactional_id={name!r}: it is a name, a text that is not empty")
    check_text("transactional_id", name)
    return name


def read_offsets(offsets: Any) -> dict[tuple[str, int], OffsetAndMetadata]:
    """Return offsets by partition, from a mapping of (topic, partition) to an offset, or to (offset, metadata[, leader epoch]).

    Named tuples of any client are accepted: aiokafka's `TopicPartition` and `OffsetAndMetadata`, and those of `aioproducer.model`.

    Raises:
        UsageError: `offsets` is no such mapping.
    """
    if not isinstance(offsets, Mapping):
        raise UsageError(
            f"offsets are a mapping of (topic, partition) to an offset, not {type(offsets).__name__}"
        )
    return {
        _partition(partition): _offset(partition, offset) for partition, offset in offsets.items()
    }


def _partition(partition: Any) -> TopicPartition:
    if isinstance(partition, tuple) and len(partition) == 2:
        topic, number = partition
        number = exact_int(number)
        if isinstance(topic, str) and topic and number is not None and 0 <= number <= _MAX_INT32:
            check_text("a topic", topic)
            return TopicPartition(topic, number)
    raise UsageError(f"{partition!r} names no partition: it is (topic, number from 0 on)")


def _offset(partition: Any, given: Any) -> OffsetAndMetadata:
    # Each part but the offset may be left out, or None.
    parts = given if isinstance(given, tuple) and 0 < len(given) <= 3 else (given,)
    offset, metadata, leader_epoch = (*parts, None, None)[:3]
    offset, metadata, leader_epoch = (
        exact_int(offset),
        metadata or "",
        -1 if leader_epoch is None else exact_int(leader_epoch),
    )
    if offset is None or not 0 <= offset <= _MAX_OFFSET:
        raise UsageError(
            f"{given!r} for {partition!r} is no offset: it is a number from 0 on, the next record to read"
        )
    if (
        not isinstance(metadata, str)
        or leader_epoch is None
        or not -1 <= leader_epoch <= _MAX_INT32
    ):
        raise UsageError(
            f"{given!r} for {partition!r}: beside the offset it has a text and, perhaps, the number of a leader's epoch"
        )
    check_text(f"the text beside the offset of {partition!r}", metadata)
    return OffsetAndMetadata(offset, metadata, leader_epoch)


def read_group(group: Any) -> ConsumerGroupMetadata:
    """Return group metadata, also from a group id alone.

    Raises:
        UsageError: `group` is neither, or has a member's generation without the member (TXN-12).
    """
    if isinstance(group, str):
        group = ConsumerGroupMetadata(group)
    if not isinstance(group, ConsumerGroupMetadata):
        raise UsageError(f"a group is its id, or ConsumerGroupMetadata, not {type(group).__name__}")
    _check_names(group)
    generation_id = exact_int(group.generation_id)
    if generation_id is None or not -1 <= generation_id <= _MAX_INT32:
        raise UsageError(f"generation_id={group.generation_id!r} is no number of a generation")
    if generation_id > 0 and not group.member_id:
        raise UsageError(
            f"generation_id={generation_id} is one of a member's: give its member_id too, or neither"
        )
    return (
        group if type(group.generation_id) is int else group._replace(generation_id=generation_id)
    )


def _check_names(group: ConsumerGroupMetadata) -> None:
    if not isinstance(group.group_id, str) or not group.group_id:
        raise UsageError(f"group_id={group.group_id!r} names no consumer group")
    for name, text in (
        ("group_id", group.group_id),
        ("member_id", group.member_id),
        ("group_instance_id", group.group_instance_id or ""),
    ):
        if not isinstance(text, str):
            raise UsageError(f"{name}={text!r}: it is a text")
        check_text(name, text)


def read_position_key(job: Any, topic: Any) -> ConsumerGroupMetadata:
    """Return the group that has the position of a job, after a check of the topic.

    Raises:
        UsageError: the job or the topic has no name.
    """
    for name, value in (("job", job), ("topic", topic)):
        if not isinstance(value, str) or not value:
            raise UsageError(f"{name}={value!r}: it is a name, and not empty")
        check_text(name, value)
    return ConsumerGroupMetadata(job)


def read_position(number: Any, cursor: Any) -> OffsetAndMetadata:
    """Return a position as the offset that Kafka keeps.

    Raises:
        UsageError: the number is none from 0 on, or the cursor is no text that can be part of a request.
    """
    exact = exact_int(number)
    if exact is None or not 0 <= exact <= _MAX_OFFSET:
        raise UsageError(f"number={number!r}: a position is a whole number from 0 on, below 2^63")
    if not isinstance(cursor, str):
        raise UsageError(f"cursor must be a string, not {type(cursor).__name__}")
    check_text("cursor", cursor)
    return OffsetAndMetadata(exact, cursor)


def read_prepared(prepared: Any) -> PreparedTransaction:
    """Return a prepared transaction, also from a tuple or list of its four fields, as JSON gives it back.

    Raises:
        UsageError: it is none.
    """
    if isinstance(prepared, (tuple, list)) and len(prepared) == len(PreparedTransaction._fields):
        transactional_id, *numbers = prepared
        producer_id, epoch, version = map(exact_int, numbers)
        if (
            isinstance(transactional_id, str)
            and transactional_id
            and (producer_id is not None and 0 <= producer_id <= _MAX_OFFSET)
            and (epoch is not None and 0 <= epoch <= _MAX_EPOCH)
            and version in (1, 2)
        ):
            check_text("transactional_id", transactional_id)
            return PreparedTransaction(transactional_id, producer_id, epoch, version)
    raise UsageError(
        f"{prepared!r} is no prepared transaction: give what prepare_transaction() returned"
    )
