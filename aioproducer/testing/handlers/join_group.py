"""Handles JoinGroup 0-9: answers when every member has joined, or the rebalance time-out has passed.

As in Kafka: from version 4 on, a member without an id first gets one, and joins with it (KIP-394).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError
from aioproducer.testing.groups import Joined, Wish
from aioproducer.testing.handlers.coordinators import WHOLE, coordinated
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER"]

_ID_FIRST: Final = 4
_MAY_BE_NULL: Final = 7
_MESSAGE: Final = "JoinGroup.response"


def _answer(call: Call) -> None:
    try:
        coordinated(call, call.request.group_id).join(_wish(call), lambda joined: call.reply(_response(call, joined)))
    except BrokerError as error:
        call.reply(_response(call, Joined(call.request.member_id, error.code)))


def _wish(call: Call) -> Wish:
    request = call.request
    rebalance_ms = request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
    return Wish(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.header.client_id or "",
        protocol_type=request.protocol_type,
        protocols={protocol.name: protocol.metadata for protocol in request.protocols},
        session_seconds=request.session_timeout_ms / 1000,
        rebalance_seconds=rebalance_ms / 1000,
        names_first=call.version >= _ID_FIRST and request.group_instance_id is None,
    )


def _response(call: Call, joined: Joined) -> Any:
    protocol = joined.protocol or ""
    members = [
        message(
            f"{_MESSAGE}.members",
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.protocols.get(protocol, b""),
        )
        for member in joined.members
    ]
    return message(
        _MESSAGE,
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol if call.version >= _MAY_BE_NULL else protocol,
        leader=joined.leader,
        member_id=joined.member_id,
        members=members,
    )


HANDLER: Final = Handler(ApiKey.JOIN_GROUP, (0, 9), lambda _cluster, _request: (WHOLE,), _answer)
