"""Handles DescribeTransactions 0: state, time-out, start and partitions of transactions, each at its coordinator.

As in Kafka: a denied `Describe` on an id is an error of that id; topics that the client may not `Describe` are left out; the offsets of a
group are a partition of `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.handlers.coordinators import WHOLE, check_coordinates
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call
    from aioproducer.testing.transactions import Transaction

__all__ = ["HANDLER"]

_OFFSETS: Final = "__consumer_offsets"
_OFFSETS_PARTITIONS: Final = 50  # Kafka's offsets.topic.num.partitions
_MESSAGE: Final = "DescribeTransactions.response"


def _answer(call: Call) -> None:
    call.reply(message(_MESSAGE, transaction_states=[_described(call, name) for name in call.request.transactional_ids]))


def _described(call: Call, name: str) -> Any:
    path = f"{_MESSAGE}.transaction_states"
    try:
        transaction = _found(call, name)
    except BrokerError as error:
        return message(path, transactional_id=name, error_code=error.code)
    return message(
        path,
        transactional_id=name,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=int(transaction.timeout * 1000),
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=_topics(call, transaction),
    )


def _found(call: Call, name: str) -> Transaction:
    """Return a transaction.

    Raises:
        BrokerError: a scripted error; INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND.
    """
    code = call.code(WHOLE)
    if code:
        raise broker_error(code)
    if not call.may("Describe", "transactional_id", name):
        raise broker_error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    if not name:
        raise broker_error("INVALID_REQUEST", "the transactional id is empty")
    check_coordinates(call, name)
    if name not in call.cluster.transactions:
        raise broker_error("TRANSACTIONAL_ID_NOT_FOUND")
    return call.cluster.transactions[name]


def _topics(call: Call, transaction: Transaction) -> list[Any]:
    partitions: dict[str, list[int]] = {}
    for touched in transaction.touched:
        if isinstance(touched, str):
            partitions.setdefault(_OFFSETS, []).append(_java_hash(touched) % _OFFSETS_PARTITIONS)
        elif (topic := call.cluster.topics.identified(touched[0])) is not None:
            partitions.setdefault(topic.name, []).append(touched[1])
    return [
        message(f"{_MESSAGE}.transaction_states.topics", topic=topic, partitions=sorted(set(numbers)))
        for topic, numbers in partitions.items()
        if call.may("Describe", "topic", topic)
    ]


def _java_hash(text: str) -> int:
    """Return Java's `String.hashCode` without its sign, as Kafka's Utils.abs: it chooses the partition of a group."""
    units = text.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else abs(signed)


HANDLER: Final = Handler(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), lambda _cluster, _request: (WHOLE,), _answer)
