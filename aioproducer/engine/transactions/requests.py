"""Makes the messages of a transaction's requests, and reads the answers: errors by partition or group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.core.sequence_numbers import NO_IDENTITY, ProducerIdAndEpoch
from aioproducer.core.transactions.transaction_errors import Rpc
from aioproducer.errors import broker_error, printable
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioproducer.core.transactions.transaction import Request, Transaction
    from aioproducer.errors import BrokerError

KEYS: Final = {
    Rpc.FIND_COORDINATOR: ApiKey.FIND_COORDINATOR,
    Rpc.INIT: ApiKey.INIT_PRODUCER_ID,
    Rpc.ADD_PARTITIONS: ApiKey.ADD_PARTITIONS_TO_TXN,
    Rpc.ADD_OFFSETS: ApiKey.ADD_OFFSETS_TO_TXN,
    Rpc.COMMIT_OFFSETS: ApiKey.TXN_OFFSET_COMMIT,
    Rpc.COMMIT: ApiKey.END_TXN,
    Rpc.ABORT: ApiKey.END_TXN,
}
# The later versions are for brokers only.
_FOR_CLIENTS: Final = {Rpc.ADD_PARTITIONS: 3}
# The newest version of each request, by the version of transactions (TV2-03).
_NEWEST: Final = {
    1: {**_FOR_CLIENTS, Rpc.COMMIT_OFFSETS: 4, Rpc.COMMIT: 4, Rpc.ABORT: 4},
    2: _FOR_CLIENTS,
}
# The FindCoordinator version with key types.
_FIRST_WITH_KEY_TYPES: Final = 1
# The FindCoordinator version with several keys.
FIRST_WITH_MANY: Final = 4
# The TxnOffsetCommit version with group members.
_FIRST_WITH_MEMBERS: Final = 3
# In older versions, the broker waits itself before it answers (KIP-219). For all other requests the version is 1.
_FIRST_WITH_MUTING: Final = {ApiKey.FIND_COORDINATOR: 2}


class TransactionResponse(NamedTuple):
    """Holds the content of an answer.

    Attributes:
        errors: by the text of a partition, or by the empty text for the request itself; no errors: the request succeeded.
        identity: the producer id and epoch that it grants.
        coordinator: the coordinator that it names: node id, host, port.
        mute_ms: the throttle time of the broker.
    """

    errors: dict[str, BrokerError]
    identity: ProducerIdAndEpoch = NO_IDENTITY
    coordinator: tuple[int, str, int] | None = None
    mute_ms: int = 0


def newest(request: Request, version: int) -> int | None:
    """Return the newest version of a request for transactions of `version`; None: the newest that both sides support."""
    return _NEWEST[version].get(request.rpc)


# Requests


def bodies(request: Request, transaction: Transaction, timeout_ms: int) -> Callable[[int], Any]:
    """Return a function that makes the message of a request for a version of it."""
    identity = transaction.identity
    producer = {
        "transactional_id": transaction.transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
    }
    rpc = request.rpc
    if rpc is Rpc.FIND_COORDINATOR:
        return lambda version: find_coordinators(request.at.key_type, [request.at.key], version)
    if rpc is Rpc.INIT:
        return lambda _version: message(
            "InitProducerId.request", transaction_timeout_ms=timeout_ms, **producer
        )
    if rpc is Rpc.ADD_PARTITIONS:
        return lambda _version: message(
            "AddPartitionsToTxn.request", topics=list(_topics(request.partitions)), **producer
        )
    if rpc is Rpc.ADD_OFFSETS:
        return lambda _version: message(
            "AddOffsetsToTxn.request", group_id=request.group_id, **producer
        )
    if rpc is Rpc.COMMIT_OFFSETS:
        return lambda version: _commit_offsets(request, version, producer)
    return lambda _version: message("EndTxn.request", committed=rpc is Rpc.COMMIT, **producer)


def find_coordinators(key_type: int, keys: list[str], version: int) -> Any:
    """Return the message of FindCoordinator for the coordinators of several keys; before `FIRST_WITH_MANY`, for the first key alone."""
    if version < _FIRST_WITH_KEY_TYPES and key_type:
        raise broker_error(
            "UNSUPPORTED_VERSION", "the broker is older than Kafka 0.11 and knows no transactions"
        )
    return message("FindCoordinator.request", key=keys[0], key_type=key_type, coordinator_keys=keys)


def _topics(partitions: Iterable[tuple[str, int]]) -> Iterator[Any]:
    for topic, numbers in _by_topic(partitions).items():
        yield message("AddPartitionsToTxn.request.topics", name=topic, partitions=numbers)


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _commit_offsets(request: Request, version: int, producer: dict[str, object]) -> Any:
    assert request.offsets is not None
    group, offsets = request.offsets.group, request.offsets.offsets
    if version < _FIRST_WITH_MEMBERS and group[1:] != type(group)(group.group_id)[1:]:
        raise broker_error(
            "UNSUPPORTED_VERSION",
            "the broker is older than Kafka 2.5 and knows no group metadata: give the group id alone",
        )
    topics = [
        message(
            "TxnOffsetCommit.request.topics",
            name=topic,
            partitions=[
                message(
                    "TxnOffsetCommit.request.topics.partitions",
                    partition_index=partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    committed_metadata=each.metadata,
                )
                for (name, partition), each in offsets.items()
                if name == topic
            ],
        )
        for topic in _by_topic(offsets)
    ]
    return message("TxnOffsetCommit.request", topics=topics, **group._asdict(), **producer)


# Answers


def read(request: Request, version: int, answer: Any) -> TransactionResponse:
    """Return the content of a decoded answer to a request."""
    rpc = request.rpc
    muting = _FIRST_WITH_MUTING.get(KEYS[rpc], 1)
    response = (
        _found(version, answer, request) if rpc is Rpc.FIND_COORDINATOR else _done(request, answer)
    )
    return response._replace(mute_ms=answer.throttle_time_ms if version >= muting else 0)


def _found(version: int, answer: Any, request: Request) -> TransactionResponse:
    found = answer
    if version >= FIRST_WITH_MANY:
        found = next((each for each in answer.coordinators if each.key == request.at.key), None)
    if found is None:
        return TransactionResponse(
            {"": broker_error("COORDINATOR_NOT_AVAILABLE", "the answer leaves it out")}
        )
    if found.error_code:
        return TransactionResponse(
            {"": broker_error(found.error_code, printable(found.error_message or "") or None)}
        )
    return TransactionResponse({}, coordinator=(found.node_id, found.host, found.port))


def _done(request: Request, answer: Any) -> TransactionResponse:
    if request.rpc in (Rpc.ADD_PARTITIONS, Rpc.COMMIT_OFFSETS):
        return TransactionResponse(_of_partitions(request, answer))
    if answer.error_code:
        return TransactionResponse({"": broker_error(answer.error_code)})
    if request.rpc is Rpc.ADD_OFFSETS:
        return TransactionResponse({})
    identity = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
    if identity.is_granted:
        return TransactionResponse({}, identity)
    if request.rpc is Rpc.INIT:
        return TransactionResponse(
            {
                "": broker_error(
                    "COORDINATOR_NOT_AVAILABLE", "its answer has no producer id and epoch"
                )
            }
        )
    return TransactionResponse({})


def _of_partitions(request: Request, answer: Any) -> dict[str, BrokerError]:
    """Return the errors of the requested partitions."""
    asked = request.partitions if request.offsets is None else tuple(request.offsets.offsets)
    codes = {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }
    return {
        f"{topic}-{partition}": error
        for topic, partition in asked
        if (error := _error(codes.get((topic, partition))))
    }


def _error(code: int | None) -> BrokerError | None:
    """Return the error of one partition. A partition that the answer leaves out gets a retriable error, so it is requested again."""
    if code is None:
        return broker_error("UNKNOWN_TOPIC_OR_PARTITION", "the answer leaves it out")
    return broker_error(code) if code else None
