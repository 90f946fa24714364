"""Handles InitProducerId 0-5: a new producer id, or the next epoch of a transactional id.

Any broker gives a new producer id; the coordinator of a transactional id gives its next epoch.
As in Kafka: a denied `Write` to the transactional id is answered with TRANSACTIONAL_ID_AUTHORIZATION_FAILED; a client without a transactional
id gets CLUSTER_AUTHORIZATION_FAILED if it may neither `IdempotentWrite` on the cluster nor `Write` to any topic. Before version 4, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED. Version 6 (KIP-939) is not stable there either.
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

_NONE: Final = -1
_WITH_FENCED: Final = 4
_MESSAGE: Final = "InitProducerId.response"


def _answer(call: Call) -> None:
    try:
        holder = _holder(call)
        call.reply(message(_MESSAGE, producer_id=holder.producer_id, producer_epoch=holder.epoch))
    except BrokerError as error:
        code = told_fenced(error.code, since=_WITH_FENCED, version=call.version)
        call.reply(message(_MESSAGE, error_code=code, producer_id=_NONE, producer_epoch=_NONE))


def _holder(call: Call) -> Holder:
    request, transactions = call.request, call.cluster.transactions
    code = call.code(WHOLE)
    if code:
        raise broker_error(code)
    if request.transactional_id is not None:
        check_may_write(call)
    named = Holder(request.producer_id, request.producer_epoch)
    if (named.producer_id == _NONE) is not (named.epoch == _NONE):
        raise broker_error("INVALID_REQUEST", "a producer id without an epoch, or the other way round")
    if request.transactional_id is None:
        if not (call.may("IdempotentWrite", "cluster", "kafka-cluster") or call.may("Write", "topic", None)):
            raise broker_error("CLUSTER_AUTHORIZATION_FAILED")
        return Holder(transactions.ids.take(), 0)
    check_coordinates(call, request.transactional_id)
    return transactions.begin(request.transactional_id, request.transaction_timeout_ms, None if named.epoch == _NONE else named)


HANDLER: Final = Handler(ApiKey.INIT_PRODUCER_ID, (0, 5), lambda _cluster, _request: (WHOLE,), _answer)
