"""Handles EndTxn 0-5: commits or aborts, at the transaction's coordinator.

As in Kafka: from version 5 on it raises the epoch and returns the new one (KIP-890), and accepts an abort without an open transaction.
The client needs `Write` on the transactional id. Before version 2, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.handlers.coordinators import WHOLE, check_coordinates, check_may_write, told_fenced
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.transactions import Holder
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER"]

_WITH_FENCED: Final = 2
_RAISES_EPOCH: Final = 5
_MESSAGE: Final = "EndTxn.response"


def _answer(call: Call) -> None:
    request = call.request
    code = call.code(WHOLE)
    try:
        if code:
            raise broker_error(code)
        check_may_write(call)
        check_coordinates(call, request.transactional_id)
        next_holder = call.cluster.transactions.end(
            request.transactional_id,
            Holder(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            raises_epoch=call.version >= _RAISES_EPOCH,
        )
    except BrokerError as error:
        call.reply(message(_MESSAGE, error_code=told_fenced(error.code, since=_WITH_FENCED, version=call.version)))
        return
    call.reply(message(_MESSAGE, producer_id=next_holder.producer_id, producer_epoch=next_holder.epoch))


HANDLER: Final = Handler(ApiKey.END_TXN, (0, 5), lambda _cluster, _request: (WHOLE,), _answer)
