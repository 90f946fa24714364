"""Commits the offsets of a consumer group at its coordinator, outside transactions (OffsetCommit)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.transactions.transaction import Coordinator
from aioproducer.engine.transactions.coordinator_calls import Exchange
from aioproducer.errors import BrokerError, broker_error
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls
    from aioproducer.model import ConsumerGroupMetadata, OffsetAndMetadata

__all__ = ["commit_offsets"]

# From version 10 on, OffsetCommit names topics by id.
_NEWEST: Final = 9
_PATH: Final = "OffsetCommit.request.topics"


async def commit_offsets(
    calls: CoordinatorCalls, group: ConsumerGroupMetadata, offsets: Mapping[tuple[str, int], OffsetAndMetadata]
) -> None:
    """Commit the offsets of a group.

    Raises:
        BrokerError: the coordinator refuses an offset, and would refuse it again. Other offsets may be committed.
        TransactionTimeout: there was no answer within `max_block_ms`. The offsets may be committed.
    """
    body = _request(group, offsets)
    exchange = Exchange(ApiKey.OFFSET_COMMIT, lambda _version: body, lambda _version, answer: _check(offsets, answer), _NEWEST)
    await calls.ask(Coordinator(0, group.group_id), exchange, f"commit_offsets() of {group.group_id!r}")


def _request(group: ConsumerGroupMetadata, offsets: Mapping[tuple[str, int], OffsetAndMetadata]) -> Any:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), each in offsets.items():
        asked = message(
            f"{_PATH}.partitions",
            partition_index=partition,
            committed_offset=each.offset,
            committed_leader_epoch=each.leader_epoch,
            committed_metadata=each.metadata,
        )
        topics.setdefault(topic, []).append(asked)
    return message(
        "OffsetCommit.request",
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[message(_PATH, name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _check(offsets: Mapping[tuple[str, int], OffsetAndMetadata], answer: Any) -> None:
    """Raise the error of an answer, if it has one: one that would come again, before one that passes."""
    codes = {(topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions}
    errors = [error for topic, partition in offsets if (error := _error(codes.get((topic, partition)), f"{topic}-{partition}"))]
    if errors:
        raise min(errors, key=lambda error: error.retriable)


def _error(code: int | None, where: str) -> BrokerError | None:
    if code is None:
        return broker_error("COORDINATOR_NOT_AVAILABLE", f"the answer leaves {where} out")
    return broker_error(code, where) if code else None
