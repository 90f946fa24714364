"""Handles ListTransactions 0-2: the transactional ids that this broker coordinates, filtered by state, producer id, duration and pattern.

As in Kafka: ids that the client may not `Describe` are left out, and a pattern matches whole ids. Deviation: a pattern is Python's, not RE2's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aioproducer.errors import broker_error
from aioproducer.testing.handlers.coordinators import WHOLE, coordinator
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.transactions import State
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call
    from aioproducer.testing.transactions import Transaction

__all__ = ["HANDLER"]

_WITH_DURATION: Final = 1
_WITH_PATTERN: Final = 2
_MESSAGE: Final = "ListTransactions.response"
_STATES: Final = frozenset({*(state.value for state in State), "Dead", "PrepareEpochFence"})


def _answer(call: Call) -> None:
    code = call.code(WHOLE)
    request = call.request
    try:
        pattern = re.compile(request.transactional_id_pattern or ".*" if call.version >= _WITH_PATTERN else ".*", re.DOTALL)
    except re.error:
        code = code or broker_error("INVALID_REGULAR_EXPRESSION").code
    if code:
        call.reply(message(_MESSAGE, error_code=code))
        return
    listed = [
        message(
            f"{_MESSAGE}.transaction_states",
            transactional_id=name,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.value,
        )
        for name, transaction in call.cluster.transactions.items()
        if coordinator(call.cluster, name) is call.broker
        and call.may("Describe", "transactional_id", name)
        and pattern.fullmatch(name)
        and _is_asked(call, transaction)
    ]
    unknown = [state for state in request.state_filters if state not in _STATES]
    call.reply(message(_MESSAGE, unknown_state_filters=unknown, transaction_states=listed))


def _is_asked(call: Call, transaction: Transaction) -> bool:
    request = call.request
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and transaction.state.value not in request.state_filters:
        return False
    longest = request.duration_filter if call.version >= _WITH_DURATION else -1
    return longest < 0 or call.cluster.now_ms() - transaction.started_ms > longest


HANDLER: Final = Handler(ApiKey.LIST_TRANSACTIONS, (0, 2), lambda _cluster, _request: (WHOLE,), _answer)
