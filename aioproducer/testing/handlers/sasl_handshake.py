"""Handles SaslHandshake 0-1: chooses the mechanism of an authentication, at first or again (KIP-368).

As in Kafka: a mechanism that is not enabled is answered with the list of the enabled ones after 300 ms, and ends the connection; when a
client authenticates again, it is not even answered. A listener without SASL answers ILLEGAL_SASL_STATE, and the connection stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import broker_error
from aioproducer.testing.handlers.coordinators import WHOLE
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.security.authenticator import Ending, Outcome
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER"]

_ILLEGAL: Final = broker_error("ILLEGAL_SASL_STATE").code


def _answer(call: Call) -> None:
    connection, scripted = call.connection, call.code(WHOLE)
    if scripted:
        outcome = Outcome(scripted, ending=Ending.STAYS if scripted == _ILLEGAL else Ending.REFUSED, is_end=True)
    else:
        outcome = connection.authenticator.handshake(call.request.mechanism, call.version, call.broker.loop.time())
    mechanisms = [] if outcome.code == _ILLEGAL else list(call.broker.security.listener.mechanisms)
    call.authenticate(outcome, message("SaslHandshake.response", error_code=outcome.code, mechanisms=mechanisms))


HANDLER: Final = Handler(ApiKey.SASL_HANDSHAKE, (0, 1), lambda _cluster, _request: (WHOLE,), _answer)
