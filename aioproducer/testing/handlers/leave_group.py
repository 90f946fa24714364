"""Handles LeaveGroup 0-5: removes members, and the others rebalance.

From version 3 on it removes several members at once, static ones by their instance id alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError
from aioproducer.testing.handlers.coordinators import WHOLE, coordinated
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call
    from aioproducer.testing.groups import Group

__all__ = ["HANDLER"]

_SEVERAL: Final = 3
_MESSAGE: Final = "LeaveGroup.response"


def _answer(call: Call) -> None:
    request = call.request
    try:
        group = coordinated(call, request.group_id)
    except BrokerError as error:
        call.reply(message(_MESSAGE, error_code=error.code))
        return
    if call.version < _SEVERAL:
        call.reply(message(_MESSAGE, error_code=_leave(group, request.member_id, None)))
    else:
        call.reply(message(_MESSAGE, members=[_member(group, leaving) for leaving in request.members]))


def _member(group: Group, leaving: Any) -> Any:
    return message(
        f"{_MESSAGE}.members",
        member_id=leaving.member_id,
        group_instance_id=leaving.group_instance_id,
        error_code=_leave(group, leaving.member_id, leaving.group_instance_id),
    )


def _leave(group: Group, member_id: str, instance_id: str | None) -> int:
    try:
        group.leave(member_id, instance_id)
    except BrokerError as error:
        return error.code
    return 0


HANDLER: Final = Handler(ApiKey.LEAVE_GROUP, (0, 5), lambda _cluster, _request: (WHOLE,), _answer)
