"""Ends a prepared transaction, by its producer id and epoch (EndTxn), whether its producer still runs or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer.core.transactions.transaction import Coordinator, Request
from aioproducer.core.transactions.transaction_errors import Rpc
from aioproducer.engine.transactions import requests
from aioproducer.engine.transactions.coordinator_calls import Exchange
from aioproducer.errors import broker_error
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls
    from aioproducer.model import PreparedTransaction

__all__ = ["end_transaction"]


async def end_transaction(calls: CoordinatorCalls, prepared: PreparedTransaction, *, is_commit: bool) -> None:
    """Commit or abort a prepared transaction; once more, if it has ended so.

    Raises:
        BrokerError: the coordinator refuses, and would refuse again.
        TransactionTimeout: there was no answer within `max_block_ms`. The transaction may have ended.
    """
    at = Coordinator(1, prepared.transactional_id)
    newest = requests.newest(Request(Rpc.COMMIT if is_commit else Rpc.ABORT, at), prepared.version)
    body = message(
        "EndTxn.request",
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.epoch,
        committed=is_commit,
    )
    call = f"{'commit' if is_commit else 'abort'}() of {prepared.transactional_id!r}"
    await calls.ask(at, Exchange(ApiKey.END_TXN, lambda _version: body, _read, newest), call)


def _read(_version: int, answer: Any) -> None:
    """Raise the error of an answer, if it has one."""
    if answer.error_code:
        raise broker_error(answer.error_code)
