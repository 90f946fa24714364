"""Handles AddOffsetsToTxn 0-4: adds a group's offsets to a transaction of version 1, at its coordinator.

As in Kafka: the client needs `Write` on the transactional id and `Read` on the group. Before version 2, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED; the coordinator does not check that the group exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.handlers.coordinators import WHOLE, check_coordinates, check_may_read, check_may_write, told_fenced
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.transactions import Holder
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER"]

_WITH_FENCED: Final = 2


def _answer(call: Call) -> None:
    request = call.request
    code = call.code(WHOLE)
    try:
        if code:
            raise broker_error(code)
        check_may_write(call)
        check_may_read(call)
        check_coordinates(call, request.transactional_id)
        holder = Holder(request.producer_id, request.producer_epoch)
        call.cluster.transactions.add(request.transactional_id, holder, [request.group_id])
    except BrokerError as error:
        code = told_fenced(error.code, since=_WITH_FENCED, version=call.version)
    call.reply(message("AddOffsetsToTxn.response", error_code=code))


HANDLER: Final = Handler(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), lambda _cluster, _request: (WHOLE,), _answer)
