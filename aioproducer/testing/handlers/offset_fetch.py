"""Handles OffsetFetch 1-10: the committed offsets of one group, from version 8 on of several.

As in Kafka:

- -1 means no committed offset; null requests all partitions that have an offset; from version 10 on, topics are named by id.
- The client needs `Describe` on the group and on each topic; topics that it may not describe are left out where it asked for all.
- With `require_stable`, a partition with an offset in an open transaction gets UNSTABLE_OFFSET_COMMIT.

Deviation: a member's id and epoch are not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.handlers.coordinators import WHOLE, coordinated
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.offsets import Committed
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.broker import Call
    from aioproducer.testing.groups import Group
    from aioproducer.testing.topics import Topic

__all__ = ["HANDLER"]

_SEVERAL: Final = 8
_BY_ID: Final = 10
_NOTHING: Final = Committed(-1)
_UNSTABLE: Final = broker_error(88).code  # UNSTABLE_OFFSET_COMMIT
_MESSAGE: Final = "OffsetFetch.response"


def _answer(call: Call) -> None:
    request = call.request
    if call.version < _SEVERAL:
        code, topics = _group(call, request.group_id, request.topics, _MESSAGE)
        call.reply(message(_MESSAGE, error_code=code, topics=topics))
        return
    answers = []
    for asked in request.groups:
        code, topics = _group(call, asked.group_id, asked.topics, f"{_MESSAGE}.groups")
        answers.append(message(f"{_MESSAGE}.groups", group_id=asked.group_id, error_code=code, topics=topics))
    call.reply(message(_MESSAGE, groups=answers))


def _group(call: Call, group_id: str, asked: Any, path: str) -> tuple[int, list[Any]]:
    """Return a group's error code, and the offsets of its topics; `path` is the message that holds the topics."""
    try:
        if not call.may("Describe", "group", group_id):
            raise broker_error("GROUP_AUTHORIZATION_FAILED")
        group = coordinated(call, group_id, may_be_nameless=True)
    except BrokerError as error:
        return error.code, []
    if asked is None:
        return 0, [_topic(call, group, topic, topic.name, topic.topic_id, indexes, path) for topic, indexes in _all(call, group)]
    topics = []
    for wanted in asked:
        if call.version >= _BY_ID:
            topic = call.cluster.topics.identified(wanted.topic_id)
            topics.append(_topic(call, group, topic, "", wanted.topic_id, wanted.partition_indexes, path))
        else:
            topic = call.cluster.topics.named(wanted.name)
            topics.append(_topic(call, group, topic, wanted.name, bytes(16), wanted.partition_indexes, path))
    return 0, topics


def _all(call: Call, group: Group) -> Iterator[tuple[Topic, list[int]]]:
    for topic in call.cluster.topics:
        if not call.may("Describe", "topic", topic.name):
            continue
        pending = group.pending if call.request.require_stable else ()
        indexes = {index for topic_id, index in (*group.offsets, *pending) if topic_id == topic.topic_id}
        if indexes:
            yield topic, sorted(indexes)


def _topic(call: Call, group: Group, topic: Topic | None, name: str, topic_id: bytes, indexes: Any, path: str) -> Any:
    refused = broker_error("UNKNOWN_TOPIC_ID").code if topic is None and not name else 0
    if topic is not None and not call.may("Describe", "topic", topic.name):
        topic, refused = None, broker_error("TOPIC_AUTHORIZATION_FAILED").code
    partitions = []
    for index in indexes:
        place = (b"" if topic is None else topic.topic_id, index)
        is_unstable = call.request.require_stable and place in group.pending
        code = _UNSTABLE if is_unstable else refused
        found = _NOTHING if is_unstable else group.offsets.get(place, _NOTHING)
        partitions.append(
            message(
                f"{path}.topics.partitions",
                partition_index=index,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=code,
            )
        )
    fields: dict[str, object] = {"name": name, "partitions": partitions}
    # the topics of the answer for a single group have no id
    if path != _MESSAGE:
        fields["topic_id"] = topic_id
    return message(f"{path}.topics", **fields)


HANDLER: Final = Handler(ApiKey.OFFSET_FETCH, (1, 10), lambda _cluster, _request: (WHOLE,), _answer)
