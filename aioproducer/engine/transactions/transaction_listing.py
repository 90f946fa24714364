"""Lists and describes the transactions of a cluster, as their coordinators know them (KIP-664)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.transactions.transaction import Coordinator
from aioproducer.engine.transactions.coordinator_calls import Exchange
from aioproducer.errors import ProtocolError, broker_error
from aioproducer.model import TopicPartition, TransactionDescription, TransactionListing
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls
    from aioproducer.net.cluster import BrokerNode

__all__ = ["describe_transactions", "list_transactions"]

_MAX_PATTERN_BYTES: Final = 2**15 - 1
_UNKNOWN: Final = "TRANSACTIONAL_ID_NOT_FOUND"


async def list_transactions(
    calls: CoordinatorCalls, nodes: Callable[[], Awaitable[Sequence[BrokerNode]]], prefix: str
) -> list[TransactionListing]:
    """Return the transactional ids that begin with `prefix`, by id: each broker lists those that it coordinates.

    Args:
        calls: sends the requests.
        nodes: returns the nodes of all brokers, as the cluster names them now.
        prefix: of the ids.

    Raises:
        BrokerError: a broker refuses the request, or is older than Kafka 3.0.
        TransactionTimeout: not every broker answered within `max_block_ms`.
    """
    return await calls.repeat(partial(_list, calls, nodes, prefix), "list_transactions()")


async def _list(calls: CoordinatorCalls, nodes: Callable[[], Awaitable[Sequence[BrokerNode]]], prefix: str) -> list[TransactionListing]:
    pattern = f"{re.escape(prefix)}.*" if prefix else None
    # A broker below version 2 ignores the pattern, and no broker reads a longer text.
    if pattern is not None and len(pattern.encode()) > _MAX_PATTERN_BYTES:
        pattern = None
    body = message("ListTransactions.request", transactional_id_pattern=pattern)
    exchange = Exchange(ApiKey.LIST_TRANSACTIONS, lambda _version: body, _read_list)
    # By id: while a coordinator moves, two brokers may list the same one.
    found = {one.transactional_id: one for node in await nodes() for one in await calls.send(node, exchange)}
    return [found[name] for name in sorted(found) if name.startswith(prefix)]


def _read_list(_version: int, answer: Any) -> list[TransactionListing]:
    if answer.error_code:
        raise broker_error(answer.error_code)
    return [TransactionListing(each.transactional_id, each.producer_id, each.transaction_state) for each in answer.transaction_states]


async def describe_transactions(calls: CoordinatorCalls, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
    """Return the descriptions of transactional ids, in their order. Those that no coordinator knows are left out.

    Raises:
        BrokerError: a coordinator refuses the request, or is older than Kafka 3.0.
        TransactionTimeout: not every coordinator answered within `max_block_ms`.
    """
    names = list(dict.fromkeys(transactional_ids))
    answers = await calls.ask_each([Coordinator(1, name) for name in names], _describing, "describe_transactions()")
    found = {one.transactional_id: one for answer in answers for one in answer}
    return [found[name] for name in names if name in found]


def _describing(coordinators: list[Coordinator]) -> Exchange[list[TransactionDescription]]:
    names = [at.key for at in coordinators]
    body = message("DescribeTransactions.request", transactional_ids=names)
    return Exchange(ApiKey.DESCRIBE_TRANSACTIONS, lambda _version: body, lambda _version, answer: _read_descriptions(names, answer))


def _read_descriptions(names: list[str], answer: Any) -> list[TransactionDescription]:
    """Return the descriptions in an answer, or raise its first error: one that would come again, before one that passes."""
    told = {each.transactional_id: each for each in answer.transaction_states}
    errors = [
        broker_error(told[name].error_code, name) if name in told else broker_error("COORDINATOR_NOT_AVAILABLE", f"{name} is left out")
        for name in names
        if name not in told or told[name].error_code
    ]
    errors = [error for error in errors if error.name != _UNKNOWN]
    if errors:
        raise min(errors, key=lambda error: error.retriable)
    return [_description(told[name]) for name in names if not told[name].error_code]


def _time(at_ms: int) -> datetime:
    """Return a time of an answer. Raises ProtocolError for one that no calendar has, far from all times that a clock may tell."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ProtocolError(f"a transaction began {at_ms} ms after 1970") from error


def _description(each: Any) -> TransactionDescription:
    started_ms = each.transaction_start_time_ms
    return TransactionDescription(
        each.transactional_id,
        each.producer_id,
        each.producer_epoch,
        each.transaction_state,
        _time(started_ms) if started_ms >= 0 else None,
        each.transaction_timeout_ms,
        tuple(TopicPartition(topic.topic, partition) for topic in each.topics for partition in sorted(topic.partitions)),
    )
