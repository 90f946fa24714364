"""Reads the committed offset of a consumer group from its coordinator: the position of a job (OffsetFetch, KIP-447)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.transactions.transaction_state import Coordinator
from aioproducer.engine.transactions.coordinator_calls import Exchange
from aioproducer.errors import broker_error
from aioproducer.model import Position
from aioproducer.offsets import POSITION_PARTITION
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls

__all__ = ["committed_offset"]

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
    exchange = Exchange(ApiKey.OFFSET_FETCH, lambda version: _request(version, group_id, topic, is_stable=is_stable), _read, _NEWEST)
    return await calls.ask(Coordinator(0, group_id), exchange, f"{call} of {group_id!r}")


def _request(version: int, group_id: str, topic: str, *, is_stable: bool) -> Any:
    if is_stable and version < _FIRST_STABLE:
        raise broker_error("UNSUPPORTED_VERSION", "the broker is older than Kafka 2.5 and shows offsets of open transactions")
    path = "OffsetFetch.request.groups.topics" if version >= _FIRST_WITH_GROUPS else "OffsetFetch.request.topics"
    topics = [message(path, name=topic, partition_indexes=[POSITION_PARTITION])]
    groups = [message("OffsetFetch.request.groups", group_id=group_id, topics=topics)] if version >= _FIRST_WITH_GROUPS else []
    return message("OffsetFetch.request", group_id=group_id, topics=topics, groups=groups, require_stable=is_stable)


def _read(version: int, answer: Any) -> Position | None:
    """Return the position in an answer, or raise its error."""
    group = answer
    if version >= _FIRST_WITH_GROUPS:
        group = next(iter(answer.groups), None)
    if group is None:
        raise broker_error("COORDINATOR_NOT_AVAILABLE", "the answer leaves the group out")
    if group.error_code:
        raise broker_error(group.error_code)
    found = next((each for topic in group.topics for each in topic.partitions if each.partition_index == POSITION_PARTITION), None)
    if found is None:
        raise broker_error("COORDINATOR_NOT_AVAILABLE", "the answer leaves the partition out")
    if found.error_code:
        raise broker_error(found.error_code)
    return Position(found.committed_offset, found.metadata or "") if found.committed_offset >= 0 else None
