"""Handles FindCoordinator 0-6 for groups and transactional ids.

As in Kafka: a denied `Describe` is answered with GROUP_AUTHORIZATION_FAILED or TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
The coordinator is the first known broker, or the one that `move_coordinator` set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import broker_error
from aioproducer.testing.handlers.coordinators import WHOLE, coordinator
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER"]

_SEVERAL: Final = 4
_GROUP: Final = 0
_GROUP_DENIED: Final = broker_error("GROUP_AUTHORIZATION_FAILED").code
_ID_DENIED: Final = broker_error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED").code
_NOT_AVAILABLE: Final = broker_error("COORDINATOR_NOT_AVAILABLE").code
_MESSAGE: Final = "FindCoordinator.response"


def _answer(call: Call) -> None:
    code = call.code(WHOLE)
    if call.version < _SEVERAL:
        call.reply(message(_MESSAGE, **_node(call, call.request.key, code)))
    else:
        found = [message(f"{_MESSAGE}.coordinators", key=key, **_node(call, key, code)) for key in call.request.coordinator_keys]
        call.reply(message(_MESSAGE, coordinators=found))


def _node(call: Call, key: str, code: int) -> dict[str, object]:
    is_group = call.request.key_type == _GROUP
    if not code and not call.may("Describe", "group" if is_group else "transactional_id", key):
        code = _GROUP_DENIED if is_group else _ID_DENIED
    found = coordinator(call.cluster, key)
    if code or found is None:
        return {"error_code": code or _NOT_AVAILABLE, "node_id": -1, "host": "", "port": -1}
    return {"error_code": 0, "node_id": found.node_id, "host": found.host, "port": found.port}


HANDLER: Final = Handler(ApiKey.FIND_COORDINATOR, (0, 6), lambda _cluster, _request: (WHOLE,), _answer)
