"""Handles OffsetCommit 2-10: from members of the current generation, or any client of an empty group.

As in Kafka: from version 10 on, topics are named by id; the client needs `Read` on the group and on each topic. Deviations: offsets never expire, at any `retention_time_ms`;
a member of a group that never existed gets UNKNOWN_MEMBER_ID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.handlers import places
from aioproducer.testing.handlers.coordinators import check_may_read, coordinated
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.offsets import Committed
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call
    from aioproducer.testing.groups import Group

__all__ = ["HANDLER"]

_BY_ID: Final = 10
_LONGEST_METADATA: Final = 4096  # Kafka's offset.metadata.max.bytes
_MESSAGE: Final = "OffsetCommit.response"


def _answer(call: Call) -> None:
    request = call.request
    group: Group | None = None
    code = 0
    try:
        check_may_read(call)
        group = coordinated(call, request.group_id, may_be_nameless=True)
        group.check_commit(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    except BrokerError as error:
        code = error.code
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = message(f"{_MESSAGE}.topics.partitions", partition_index=asked.partition_index, error_code=code)
            if group is not None and not code:
                answer.error_code = _commit(call, group, topic, asked)
            answers.append(answer)
        topics.append(message(f"{_MESSAGE}.topics", name=topic.name, topic_id=topic.topic_id, partitions=answers))
    call.reply(message(_MESSAGE, topics=topics))


def _commit(call: Call, group: Group, topic: Any, asked: Any) -> int:
    """Store one partition's offset. Returns an error code, or 0."""
    by_id = call.version >= _BY_ID
    place = places.find(call.cluster, topic.name, asked.partition_index, topic.topic_id)
    code = call.code(place.target)
    if code:
        return code
    if place.topic is not None and not call.may("Read", "topic", place.topic.name):
        return broker_error("TOPIC_AUTHORIZATION_FAILED").code
    if place.topic is None or place.partition is None:
        return broker_error("UNKNOWN_TOPIC_ID" if by_id and place.topic is None else "UNKNOWN_TOPIC_OR_PARTITION").code
    if len((asked.committed_metadata or "").encode()) > _LONGEST_METADATA:
        return broker_error("OFFSET_METADATA_TOO_LARGE").code
    kept = Committed(asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata or "")
    group.offsets[place.topic.topic_id, asked.partition_index] = kept
    return 0


HANDLER: Final = Handler(ApiKey.OFFSET_COMMIT, (2, 10), places.targets, _answer)
