"""Handles SaslAuthenticate 0-2: one token of a SASL exchange (KIP-152), and from version 1 on the session's lifetime (KIP-368).

As in Kafka: a refusal is answered after 300 ms, and ends the connection; its text does not tell whether the user exists. On a connection
that is authenticated, or needs no SASL, the request is answered with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.testing.handlers.coordinators import WHOLE
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.security.authenticator import Ending, Outcome
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER"]


def _answer(call: Call) -> None:
    rule = call.verdict.errors.get(WHOLE)
    if rule is not None:
        outcome = Outcome(rule.code, rule.message, ending=Ending.REFUSED, is_end=True)
    else:
        outcome = call.connection.authenticator.authenticate(bytes(call.request.auth_bytes), call.broker.loop.time())
    answer = message(
        "SaslAuthenticate.response",
        error_code=outcome.code,
        error_message=outcome.text,
        auth_bytes=outcome.token,
        session_lifetime_ms=outcome.lifetime_ms,
    )
    call.authenticate(outcome, answer)


HANDLER: Final = Handler(ApiKey.SASL_AUTHENTICATE, (0, 2), lambda _cluster, _request: (WHOLE,), _answer)
