"""FindCoordinator 0-6: the first broker that is known coordinates everything. Deviation: there are no transactions behind it."""

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
_NOT_AVAILABLE: Final = broker_error("COORDINATOR_NOT_AVAILABLE").code
_MESSAGE: Final = "FindCoordinator.response"


def _answer(call: Call) -> None:
    found_at = coordinator(call.cluster)
    code = call.code(WHOLE) or (0 if found_at else _NOT_AVAILABLE)
    node = {"error_code": code, "node_id": -1, "host": "", "port": -1}
    if found_at and not code:
        node |= {"node_id": found_at.node_id, "host": found_at.host, "port": found_at.port}
    if call.version < _SEVERAL:
        call.reply(message(_MESSAGE, **node))
    else:
        found = [message(f"{_MESSAGE}.coordinators", key=key, **node) for key in call.request.coordinator_keys]
        call.reply(message(_MESSAGE, coordinators=found))


HANDLER: Final = Handler(ApiKey.FIND_COORDINATOR, (0, 6), lambda _cluster, _request: (WHOLE,), _answer)
