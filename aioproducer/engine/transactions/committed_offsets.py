"""Reads committed offsets of a consumer group from its coordinator, among them the position of a job (OffsetFetch, KIP-447)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.transactions.transaction import Coordinator
from aioproducer.engine.transactions.coordinator_calls import Exchange
from aioproducer.errors import broker_error
from aioproducer.model import OffsetAndMetadata, Position, TopicPartition
from aioproducer.offsets import POSITION_PARTITION
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls

__all__ = ["committed_offset", "committed_offsets"]

# The OffsetFetch version that can ask for all topics.
_FIRST_OF_ALL: Final = 2
# The OffsetFetch version that can leave out offsets of open transactions (KIP-447).
_FIRST_STABLE: Final = 7
# The OffsetFetch version with several groups.
_FIRST_WITH_GROUPS: Final = 8
# From version 10 on, OffsetFetch names topics by id.
_NEWEST: Final = 9


async def committed_offset(calls: CoordinatorCalls, group_id: str, topic: str, call: str, *, is_stable: bool = True) -> Position | None:
    """Return the committed offset of partition 0 of a topic, and its metadata; None: the group has committed none.

    Args:
        calls: sends the request.
        group_id: the group.
        topic: the topic.
        call: names the caller in errors.
        is_stable: wait while an open transaction holds the offset.

    Raises:
        BrokerError: the broker refuses the request, and would refuse it again.
        TransactionTimeout: there was no answer within `max_block_ms`, or the offset is part of an open transaction.
    """
    key = TopicPartition(topic, POSITION_PARTITION)
    found = (await _ask(calls, group_id, topic, call, is_stable=is_stable)).get(key)
    return None if found is None else Position(found.offset, found.metadata)


async def committed_offsets(
    calls: CoordinatorCalls, group_id: str, call: str, *, is_stable: bool = True
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return all offsets that a group has committed, but for topics that may not be described.

    Args:
        calls: sends the request.
        group_id: the group.
        call: names the caller in errors.
        is_stable: wait while an open transaction holds one of the offsets.

    Raises:
        BrokerError: the broker refuses the request, and would refuse it again.
        TransactionTimeout: there was no answer within `max_block_ms`, or an offset is part of an open transaction.
    """
    return await _ask(calls, group_id, None, call, is_stable=is_stable)


async def _ask(
    calls: CoordinatorCalls, group_id: str, topic: str | None, call: str, *, is_stable: bool
) -> dict[TopicPartition, OffsetAndMetadata]:
    exchange = Exchange(
        ApiKey.OFFSET_FETCH,
        lambda version: _request(version, group_id, topic, is_stable=is_stable),
        lambda version, answer: _read(version, answer, topic),
        _NEWEST,
    )
    return await calls.ask(Coordinator(0, group_id), exchange, f"{call} of {group_id!r}")


def _request(version: int, group_id: str, topic: str | None, *, is_stable: bool) -> Any:
    if is_stable and version < _FIRST_STABLE:
        raise broker_error("UNSUPPORTED_VERSION", "the broker is older than Kafka 2.5 and shows offsets of open transactions")
    if topic is None and version < _FIRST_OF_ALL:
        raise broker_error("UNSUPPORTED_VERSION", "the broker is older than Kafka 0.10.2 and shows offsets of named topics only")
    path = "OffsetFetch.request.groups.topics" if version >= _FIRST_WITH_GROUPS else "OffsetFetch.request.topics"
    topics = None if topic is None else [message(path, name=topic, partition_indexes=[POSITION_PARTITION])]
    groups = [message("OffsetFetch.request.groups", group_id=group_id, topics=topics)] if version >= _FIRST_WITH_GROUPS else []
    return message("OffsetFetch.request", group_id=group_id, topics=topics, groups=groups, require_stable=is_stable)


def _read(version: int, answer: Any, topic: str | None) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets in an answer, or raise its error.

    Args:
        version: of the answer.
        answer: the answer.
        topic: that was asked for; None: all were.
    """
    group = _group(version, answer)
    found = {TopicPartition(each.name, partition.partition_index): partition for each in group.topics for partition in each.partitions}
    if topic is not None:
        key = TopicPartition(topic, POSITION_PARTITION)
        if key not in found:
            raise broker_error("COORDINATOR_NOT_AVAILABLE", "the answer leaves the partition out")
        found = {key: found[key]}
    for at, partition in found.items():
        if partition.error_code:
            raise broker_error(partition.error_code, f"{at.topic}-{at.partition}")
    return {at: OffsetAndMetadata(one.committed_offset, one.metadata or "") for at, one in found.items() if one.committed_offset >= 0}


def _group(version: int, answer: Any) -> Any:
    """Return the part of an answer about the group, or raise its error."""
    group = next(iter(answer.groups), None) if version >= _FIRST_WITH_GROUPS else answer
    if group is None:
        raise broker_error("COORDINATOR_NOT_AVAILABLE", "the answer leaves the group out")
    if group.error_code:
        raise broker_error(group.error_code)
    return group
