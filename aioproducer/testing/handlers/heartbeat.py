"""Handles Heartbeat 0-4: keeps a member alive, and reports a rebalance to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import BrokerError
from aioproducer.testing.handlers.coordinators import WHOLE, coordinated
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER"]


def _answer(call: Call) -> None:
    request = call.request
    code = 0
    try:
        group = coordinated(call, request.group_id)
        group.heartbeat(group.member(request.member_id, request.group_instance_id), request.generation_id)
    except BrokerError as error:
        code = error.code
    call.reply(message("Heartbeat.response", error_code=code))


HANDLER: Final = Handler(ApiKey.HEARTBEAT, (0, 4), lambda _cluster, _request: (WHOLE,), _answer)
