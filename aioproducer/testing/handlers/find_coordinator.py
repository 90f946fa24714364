"""FindCoordinator 0-6: the first broker that runs coordinates everything; for consumers that ask although they have no group.

Deviation: there are no groups and no transactions behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER"]

_TARGET: Final = Target()
_SEVERAL: Final = 4
_NOT_AVAILABLE: Final = broker_error("COORDINATOR_NOT_AVAILABLE").code
_MESSAGE: Final = "FindCoordinator.response"


def _answer(call: Call) -> None:
    known = [broker for broker in call.cluster.brokers.values() if broker.is_known]
    code = call.code(_TARGET) or (0 if known else _NOT_AVAILABLE)
    node = {"error_code": code, "node_id": -1, "host": "", "port": -1}
    if not code:
        node |= {"node_id": known[0].node_id, "host": known[0].host, "port": known[0].port}
    if call.version < _SEVERAL:
        call.reply(message(_MESSAGE, **node))
    else:
        found = [message(f"{_MESSAGE}.coordinators", key=key, **node) for key in call.request.coordinator_keys]
        call.reply(message(_MESSAGE, coordinators=found))


HANDLER: Final = Handler(ApiKey.FIND_COORDINATOR, (0, 6), lambda _cluster, _request: (_TARGET,), _answer)
