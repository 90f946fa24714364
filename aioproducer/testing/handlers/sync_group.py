"""Handles SyncGroup 0-5: the leader sends the assignments, the other members wait for theirs.

From version 5 on, all members name the protocol (KIP-559). Deviation: the members wait without limit for a leader that is alive and
never sends the assignments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError
from aioproducer.testing.groups import Synced
from aioproducer.testing.handlers.coordinators import WHOLE, coordinated
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER"]

_NAMES_PROTOCOL: Final = 5


def _answer(call: Call) -> None:
    request = call.request
    assignments = {assigned.member_id: assigned.assignment for assigned in request.assignments}
    try:
        group = coordinated(call, request.group_id)
        member = group.member(request.member_id, request.group_instance_id)
        if call.version >= _NAMES_PROTOCOL:
            group.check_protocol(request.protocol_type, request.protocol_name)
        group.sync(member, request.generation_id, assignments, lambda synced: call.reply(_response(synced)))
    except BrokerError as error:
        call.reply(_response(Synced(error.code)))


def _response(synced: Synced) -> Any:
    return message(
        "SyncGroup.response",
        error_code=synced.code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


HANDLER: Final = Handler(ApiKey.SYNC_GROUP, (0, 5), lambda _cluster, _request: (WHOLE,), _answer)
