"""Handles TxnOffsetCommit 0-5: offsets that a transaction commits with its records, at the group's coordinator.

As in Kafka: the client needs `Write` on the transactional id, `Read` on the group and on each topic. The offsets become visible at the
transaction's end. A request that names a member is checked as in OffsetCommit. An unknown partition is refused alone. Up to version 4
the group has to be in the transaction (AddOffsetsToTxn); from version 5 on the request adds it (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.handlers import places
from aioproducer.testing.handlers.coordinators import check_may_read, check_may_write, coordinated, verified
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.offsets import Committed
from aioproducer.testing.transactions import Holder
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call
    from aioproducer.testing.faults import Target
    from aioproducer.testing.groups import Group

__all__ = ["HANDLER"]

_ADDS: Final = 5
_WITH_ABORTABLE: Final = 4
_LONGEST_METADATA: Final = 4096  # Kafka's offset.metadata.max.bytes
_DENIED: Final = frozenset(broker_error(name).code for name in ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"))
_MESSAGE: Final = "TxnOffsetCommit.response"


def _answer(call: Call) -> None:
    group: Group | None = None
    code = 0
    try:
        group = _group(call)
    except BrokerError as error:
        code = error.code
    topics = []
    for topic in call.request.topics:
        answers = [
            message(
                f"{_MESSAGE}.topics.partitions", partition_index=asked.partition_index, error_code=_keep(call, group, code, topic, asked)
            )
            for asked in topic.partitions
        ]
        topics.append(message(f"{_MESSAGE}.topics", name=topic.name, partitions=answers))
    call.reply(message(_MESSAGE, topics=topics))


def _group(call: Call) -> Group:
    """Return the group, if its offsets may be committed in the request's transaction."""
    request = call.request
    check_may_write(call)
    check_may_read(call)
    group = coordinated(call, request.group_id)
    holder = Holder(request.producer_id, request.producer_epoch)
    verified(
        call.cluster,
        request.transactional_id,
        holder,
        request.group_id,
        adds=call.version >= _ADDS,
        knows_abortable=call.version >= _WITH_ABORTABLE,
    )
    group.check_transactional_commit(request.member_id, request.group_instance_id, request.generation_id)
    return group


def _refusal(call: Call, target: Target, code: int, topic: str) -> int:
    """Return the scripted error, or that of an operation that is denied; 0: there is none."""
    scripted = call.code(target)
    if scripted or code in _DENIED:
        return scripted or code
    return 0 if call.may("Read", "topic", topic) else broker_error("TOPIC_AUTHORIZATION_FAILED").code


def _keep(call: Call, group: Group | None, code: int, topic: Any, asked: Any) -> int:
    """Store one partition's offset until the transaction ends. Returns an error code, or 0."""
    place = places.find(call.cluster, topic.name, asked.partition_index)
    refusal = _refusal(call, place.target, code, topic.name)
    if refusal:
        return refusal
    if place.topic is None or place.partition is None:
        return broker_error("UNKNOWN_TOPIC_OR_PARTITION").code
    if code or group is None:
        return code
    kept = Committed(asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata or "")
    if len(kept.metadata.encode()) > _LONGEST_METADATA:
        return broker_error("OFFSET_METADATA_TOO_LARGE").code
    group.pending.add(call.request.producer_id, (place.topic.topic_id, asked.partition_index), kept)
    return 0


HANDLER: Final = Handler(ApiKey.TXN_OFFSET_COMMIT, (0, 5), places.targets, _answer)
