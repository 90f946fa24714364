"""The requests of consumer groups: membership, and committed offsets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.groups import Committed, Joined, Synced, Wish
from aioproducer.testing.handlers.handler import (
    NO_ID,
    answers,
    code_of,
    committed,
    coordinated,
    find,
    targets,
)
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.call import Call
    from aioproducer.testing.groups import Group
    from aioproducer.testing.topics import Topic


# --- JoinGroup


_JOIN_WITH_ID_FIRST: Final = 4
_JOIN_WITHOUT_PROTOCOL: Final = 7


@answers(ApiKey.JOIN_GROUP, (0, 9))
def join_group(call: Call) -> None:
    """Versions 0-9: answers when every member has joined, or the rebalance time-out has passed.

    As in Kafka: from version 4 on, a member without an id first gets one, and joins with it (KIP-394).
    """
    try:
        coordinated(call, call.request.group_id).join(
            _wish(call), lambda joined: call.reply(_joined(call, joined))
        )
    except BrokerError as error:
        call.reply(_joined(call, Joined(call.request.member_id, error.code)))


def _wish(call: Call) -> Wish:
    request = call.request
    rebalance_ms = (
        request.session_timeout_ms
        if request.rebalance_timeout_ms < 0
        else request.rebalance_timeout_ms
    )
    return Wish(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.header.client_id or "",
        protocol_type=request.protocol_type,
        protocols={protocol.name: protocol.metadata for protocol in request.protocols},
        session_seconds=request.session_timeout_ms / 1000,
        rebalance_seconds=rebalance_ms / 1000,
        names_first=call.version >= _JOIN_WITH_ID_FIRST and request.group_instance_id is None,
    )


def _joined(call: Call, joined: Joined) -> Any:
    protocol = joined.protocol or ""
    members = [
        message(
            "JoinGroup.response.members",
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.protocols.get(protocol, b""),
        )
        for member in joined.members
    ]
    return message(
        "JoinGroup.response",
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol if call.version >= _JOIN_WITHOUT_PROTOCOL else protocol,
        leader=joined.leader,
        member_id=joined.member_id,
        members=members,
    )


# --- SyncGroup


_SYNC_NAMES_PROTOCOL: Final = 5


@answers(ApiKey.SYNC_GROUP, (0, 5))
def sync_group(call: Call) -> None:
    """Versions 0-5: the leader sends the assignments, the other members wait for theirs.

    From version 5 on, all members name the protocol (KIP-559). Deviation: the members wait without limit for a leader that is alive and
    never sends the assignments.
    """
    request = call.request
    assignments = {assigned.member_id: assigned.assignment for assigned in request.assignments}
    try:
        group = coordinated(call, request.group_id)
        member = group.member(request.member_id, request.group_instance_id)
        if call.version >= _SYNC_NAMES_PROTOCOL:
            group.check_protocol(request.protocol_type, request.protocol_name)
        group.sync(
            member, request.generation_id, assignments, lambda synced: call.reply(_synced(synced))
        )
    except BrokerError as error:
        call.reply(_synced(Synced(error.code)))


def _synced(synced: Synced) -> Any:
    return message(
        "SyncGroup.response",
        error_code=synced.code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


# --- Heartbeat


@answers(ApiKey.HEARTBEAT, (0, 4))
def heartbeat(call: Call) -> None:
    """Versions 0-4: keeps a member alive, and reports a rebalance to it."""
    request = call.request

    def beat() -> None:
        group = coordinated(call, request.group_id)
        group.heartbeat(
            group.member(request.member_id, request.group_instance_id), request.generation_id
        )

    call.reply(message("Heartbeat.response", error_code=code_of(beat)))


# --- LeaveGroup


_LEAVE_SEVERAL: Final = 3


@answers(ApiKey.LEAVE_GROUP, (0, 5))
def leave_group(call: Call) -> None:
    """Versions 0-5: removes members, and the others rebalance.

    From version 3 on it removes several members at once, static ones by their instance id alone.
    """
    request = call.request
    try:
        group = coordinated(call, request.group_id)
    except BrokerError as error:
        call.reply(message("LeaveGroup.response", error_code=error.code))
        return
    if call.version < _LEAVE_SEVERAL:
        call.reply(
            message(
                "LeaveGroup.response",
                error_code=code_of(partial(group.leave, request.member_id, None)),
            )
        )
        return
    members = [
        message(
            "LeaveGroup.response.members",
            member_id=leaving.member_id,
            group_instance_id=leaving.group_instance_id,
            error_code=code_of(partial(group.leave, leaving.member_id, leaving.group_instance_id)),
        )
        for leaving in request.members
    ]
    call.reply(message("LeaveGroup.response", members=members))


# --- OffsetCommit


_OFFSETS_BY_ID: Final = 10


@answers(ApiKey.OFFSET_COMMIT, (2, 10), targets)
def offset_commit(call: Call) -> None:
    """Versions 2-10: from members of the current generation, or any client of an empty group.

    As in Kafka: from version 10 on, topics are named by id; the client needs `Read` on the group and on each topic. Deviations: offsets never expire, at any `retention_time_ms`;
    a member of a group that never existed gets UNKNOWN_MEMBER_ID.
    """
    request = call.request

    def check() -> None:
        call.check_may("Read", "group", request.group_id)
        group = coordinated(call, request.group_id, may_be_nameless=True)
        group.check_commit(
            request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        )

    code = code_of(check)
    topics = []
    for topic in request.topics:
        partitions = [
            message(
                "OffsetCommit.response.topics.partitions",
                partition_index=asked.partition_index,
                error_code=code or code_of(partial(_commit, call, topic, asked)),
            )
            for asked in topic.partitions
        ]
        topics.append(
            message(
                "OffsetCommit.response.topics",
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=partitions,
            )
        )
    call.reply(message("OffsetCommit.response", topics=topics))


def _commit(call: Call, topic: Any, asked: Any) -> None:
    """Store one partition's offset."""
    place = find(call.cluster, topic.name, asked.partition_index, topic.topic_id)
    call.check_scripted(place.target)
    if place.topic is None:
        raise broker_error(
            "UNKNOWN_TOPIC_ID" if call.version >= _OFFSETS_BY_ID else "UNKNOWN_TOPIC_OR_PARTITION"
        )
    call.check_may("Read", "topic", place.topic.name)
    if place.partition is None:
        raise broker_error("UNKNOWN_TOPIC_OR_PARTITION")
    call.cluster.groups[call.request.group_id].offsets[
        place.topic.topic_id, asked.partition_index
    ] = committed(asked)


# --- OffsetFetch


_FETCH_SEVERAL: Final = 8
_NOTHING: Final = Committed(-1)
_UNSTABLE: Final = broker_error(88).code  # UNSTABLE_OFFSET_COMMIT


@answers(ApiKey.OFFSET_FETCH, (1, 10))
def offset_fetch(call: Call) -> None:
    """Versions 1-10: the committed offsets of one group, from version 8 on of several.

    As in Kafka:

    - -1 means no committed offset; null requests all partitions that have an offset; from version 10 on, topics are named by id.
    - The client needs `Describe` on the group and on each topic; topics that it may not describe are left out where it asked for all.
    - With `require_stable`, a partition with an offset in an open transaction gets UNSTABLE_OFFSET_COMMIT.

    Deviation: a member's id and epoch are not checked.
    """
    request = call.request
    if call.version < _FETCH_SEVERAL:
        code, topics = _offsets(call, request.group_id, request.topics, "OffsetFetch.response")
        call.reply(message("OffsetFetch.response", error_code=code, topics=topics))
        return
    groups = []
    for asked in request.groups:
        code, topics = _offsets(call, asked.group_id, asked.topics, "OffsetFetch.response.groups")
        groups.append(
            message(
                "OffsetFetch.response.groups",
                group_id=asked.group_id,
                error_code=code,
                topics=topics,
            )
        )
    call.reply(message("OffsetFetch.response", groups=groups))


def _offsets(call: Call, group_id: str, asked: Any, path: str) -> tuple[int, list[Any]]:
    """Return a group's error code, and the offsets of its topics; `path` is the message that holds the topics."""
    try:
        call.check_may("Describe", "group", group_id)
        group = coordinated(call, group_id, may_be_nameless=True)
    except BrokerError as error:
        return error.code, []
    if asked is None:
        return 0, [
            _offsets_of_topic(call, group, topic, topic.name, topic.topic_id, indexes, path)
            for topic, indexes in _with_offsets(call, group)
        ]
    topics = []
    for wanted in asked:
        name, topic_id = (
            ("", wanted.topic_id) if call.version >= _OFFSETS_BY_ID else (wanted.name, NO_ID)
        )
        topic = find(call.cluster, name, 0, topic_id).topic
        topics.append(
            _offsets_of_topic(call, group, topic, name, topic_id, wanted.partition_indexes, path)
        )
    return 0, topics


def _with_offsets(call: Call, group: Group) -> Iterator[tuple[Topic, list[int]]]:
    for topic in call.cluster.topics:
        if not call.may("Describe", "topic", topic.name):
            continue
        pending = group.pending if call.request.require_stable else ()
        indexes = {
            index for topic_id, index in (*group.offsets, *pending) if topic_id == topic.topic_id
        }
        if indexes:
            yield topic, sorted(indexes)


def _offsets_of_topic(
    call: Call,
    group: Group,
    topic: Topic | None,
    name: str,
    topic_id: bytes,
    indexes: Any,
    path: str,
) -> Any:
    refused = _unreadable(call, topic, name)
    if refused:
        topic = None
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
    if path != "OffsetFetch.response":
        fields["topic_id"] = topic_id
    return message(f"{path}.topics", **fields)


def _unreadable(call: Call, topic: Topic | None, name: str) -> int:
    """Return the error code of a topic whose id is unknown, or that may not be described; 0: neither."""
    if topic is None:
        return 0 if name else broker_error("UNKNOWN_TOPIC_ID").code
    return (
        0
        if call.may("Describe", "topic", topic.name)
        else broker_error("TOPIC_AUTHORIZATION_FAILED").code
    )
