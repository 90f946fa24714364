"""The requests of idempotent and transactional producers."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.handler import (
    Place,
    answers,
    check_coordinates,
    code_of,
    committed,
    coordinated,
    coordinator,
    find,
    targets,
    told_fenced,
    verified,
)
from aioproducer.testing.transactions import Holder, State
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.call import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.faults import Target
    from aioproducer.testing.transactions import Transaction


# --- InitProducerId


_NONE: Final = -1
_INIT_WITH_FENCED: Final = 4


@answers(ApiKey.INIT_PRODUCER_ID, (0, 5))
def init_producer_id(call: Call) -> None:
    """Versions 0-5: a new producer id, or the next epoch of a transactional id.

    Any broker gives a new producer id; the coordinator of a transactional id gives its next epoch.
    As in Kafka: a denied `Write` to the transactional id is answered with TRANSACTIONAL_ID_AUTHORIZATION_FAILED; a client without a transactional
    id gets CLUSTER_AUTHORIZATION_FAILED if it may neither `IdempotentWrite` on the cluster nor `Write` to any topic. Before version 4, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED. Version 6 (KIP-939) is not stable there either.
    """
    try:
        holder = _holder(call)
        call.reply(
            message(
                "InitProducerId.response",
                producer_id=holder.producer_id,
                producer_epoch=holder.epoch,
            )
        )
    except BrokerError as error:
        code = told_fenced(call, error, since=_INIT_WITH_FENCED)
        call.reply(
            message(
                "InitProducerId.response", error_code=code, producer_id=_NONE, producer_epoch=_NONE
            )
        )


def _holder(call: Call) -> Holder:
    request, transactions = call.request, call.cluster.transactions
    call.check_scripted()
    if request.transactional_id is not None:
        call.check_may("Write", "transactional_id", call.request.transactional_id)
    named = Holder(request.producer_id, request.producer_epoch)
    if (named.producer_id == _NONE) is not (named.epoch == _NONE):
        raise broker_error(
            "INVALID_REQUEST", "a producer id without an epoch, or the other way round"
        )
    if request.transactional_id is None:
        if not (
            call.may("IdempotentWrite", "cluster", "kafka-cluster")
            or call.may("Write", "topic", None)
        ):
            raise broker_error("CLUSTER_AUTHORIZATION_FAILED")
        return Holder(transactions.ids.take(), 0)
    check_coordinates(call, request.transactional_id)
    return transactions.begin(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if named.epoch == _NONE else named,
    )


# --- AddPartitionsToTxn


_OF_CLIENTS: Final = 3
_WITH_FENCED: Final = 2
_NOT_ATTEMPTED: Final = broker_error("OPERATION_NOT_ATTEMPTED").code


def _added_places(cluster: FakeCluster, request: Any) -> Iterator[Place]:
    for topic in request.topics:
        for index in topic.partitions:
            yield find(cluster, topic.name, index)


def _added_targets(cluster: FakeCluster, request: Any) -> list[Target]:
    return [place.target for place in _added_places(cluster, request)]


@answers(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), _added_targets)
def add_partitions_to_txn(call: Call) -> None:
    """Versions 0-3: adds partitions to a transaction of version 1, at its coordinator.

    As in Kafka: the client needs `Write` on the transactional id and on each topic. If one partition is refused, the others get OPERATION_NOT_ATTEMPTED; before version 2, INVALID_PRODUCER_EPOCH replaces
    PRODUCER_FENCED. Deviation: versions 4 and 5, which Kafka's brokers send each other, close the connection.
    """
    if call.version > _OF_CLIENTS:
        call.connection.violate(
            f"AddPartitionsToTxn {call.version} is for brokers; clients ask up to {_OF_CLIENTS}"
        )
        return
    codes = _added(call, list(_added_places(call.cluster, call.request)))
    topics = []
    for topic in call.request.topics:
        results = [
            message(
                "AddPartitionsToTxn.response.topics.partitions",
                partition_index=index,
                error_code=codes[Target(topic.name or None, index)],
            )
            for index in topic.partitions
        ]
        topics.append(
            message("AddPartitionsToTxn.response.topics", name=topic.name, partitions=results)
        )
    call.reply(message("AddPartitionsToTxn.response", topics=topics))


def _added(call: Call, asked: list[Place]) -> dict[Target, int]:
    """Add the partitions if none of them is refused. Returns an error code, or 0, for each."""
    request = call.request
    codes: dict[Target, int] = {place.target: 0 for place in asked}
    try:
        call.check_may("Write", "transactional_id", request.transactional_id)
        codes = {place.target: code_of(partial(_check_addable, call, place)) for place in asked}
        if any(codes.values()):
            return {target: code or _NOT_ATTEMPTED for target, code in codes.items()}
        check_coordinates(call, request.transactional_id)
        touched = [
            (place.topic.topic_id, place.partition.index)
            for place in asked
            if place.topic and place.partition
        ]
        call.cluster.transactions.add(
            request.transactional_id, Holder(request.producer_id, request.producer_epoch), touched
        )
    except BrokerError as error:
        return dict.fromkeys(codes, told_fenced(call, error, since=_WITH_FENCED))
    return codes


def _check_addable(call: Call, place: Place) -> None:
    call.check_scripted(place.target)
    call.check_may("Write", "topic", place.target.topic)
    if place.partition is None:
        raise broker_error("UNKNOWN_TOPIC_OR_PARTITION")


# --- AddOffsetsToTxn


@answers(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4))
def add_offsets_to_txn(call: Call) -> None:
    """Versions 0-4: adds a group's offsets to a transaction of version 1, at its coordinator.

    As in Kafka: the client needs `Write` on the transactional id and `Read` on the group. Before version 2, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED; the coordinator does not check that the group exists.
    """
    request = call.request
    code = 0
    try:
        call.check_scripted()
        call.check_may("Write", "transactional_id", request.transactional_id)
        call.check_may("Read", "group", request.group_id)
        check_coordinates(call, request.transactional_id)
        holder = Holder(request.producer_id, request.producer_epoch)
        call.cluster.transactions.add(request.transactional_id, holder, [request.group_id])
    except BrokerError as error:
        code = told_fenced(call, error, since=_WITH_FENCED)
    call.reply(message("AddOffsetsToTxn.response", error_code=code))


# --- TxnOffsetCommit


_COMMIT_ADDS: Final = 5
_COMMIT_WITH_ABORTABLE: Final = 4


@answers(ApiKey.TXN_OFFSET_COMMIT, (0, 5), targets)
def txn_offset_commit(call: Call) -> None:
    """Versions 0-5: offsets that a transaction commits with its records, at the group's coordinator.

    As in Kafka: the client needs `Write` on the transactional id, `Read` on the group and on each topic. The offsets become visible at the
    transaction's end. A request that names a member is checked as in OffsetCommit. An unknown partition is refused alone. Up to version 4
    the group has to be in the transaction (AddOffsetsToTxn); from version 5 on the request adds it (KIP-890).
    """
    request = call.request
    refusal: BrokerError | None = None
    try:
        call.check_may("Write", "transactional_id", request.transactional_id)
        call.check_may("Read", "group", request.group_id)
        group = coordinated(call, request.group_id)
        holder = Holder(request.producer_id, request.producer_epoch)
        adds, knows_abortable = call.version >= _COMMIT_ADDS, call.version >= _COMMIT_WITH_ABORTABLE
        verified(call, holder, request.group_id, adds=adds, knows_abortable=knows_abortable)
        group.check_transactional_commit(
            request.member_id, request.group_instance_id, request.generation_id
        )
    except BrokerError as error:
        refusal = error
    topics = []
    for topic in request.topics:
        partitions = [
            message(
                "TxnOffsetCommit.response.topics.partitions",
                partition_index=asked.partition_index,
                error_code=code_of(partial(_keep, call, refusal, topic, asked)),
            )
            for asked in topic.partitions
        ]
        topics.append(
            message("TxnOffsetCommit.response.topics", name=topic.name, partitions=partitions)
        )
    call.reply(message("TxnOffsetCommit.response", topics=topics))


def _keep(call: Call, refusal: BrokerError | None, topic: Any, asked: Any) -> None:
    """Store one partition's offset until the transaction ends."""
    place = find(call.cluster, topic.name, asked.partition_index)
    call.check_scripted(place.target)
    if refusal is not None and refusal.name.endswith("_AUTHORIZATION_FAILED"):
        raise refusal
    call.check_may("Read", "topic", topic.name)
    if place.topic is None or place.partition is None:
        raise broker_error("UNKNOWN_TOPIC_OR_PARTITION")
    if refusal is not None:
        raise refusal
    pending = call.cluster.groups[call.request.group_id].pending
    pending.add(
        call.request.producer_id, (place.topic.topic_id, asked.partition_index), committed(asked)
    )


# --- EndTxn


_RAISES_EPOCH: Final = 5


@answers(ApiKey.END_TXN, (0, 5))
def end_txn(call: Call) -> None:
    """Versions 0-5: commits or aborts, at the transaction's coordinator.

    As in Kafka: from version 5 on it raises the epoch and returns the new one (KIP-890), and accepts an abort without an open transaction.
    The client needs `Write` on the transactional id. Before version 2, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED.
    """
    request = call.request
    try:
        call.check_scripted()
        call.check_may("Write", "transactional_id", request.transactional_id)
        check_coordinates(call, request.transactional_id)
        holder = call.cluster.transactions.end(
            request.transactional_id,
            Holder(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            raises_epoch=call.version >= _RAISES_EPOCH,
        )
    except BrokerError as error:
        call.reply(
            message("EndTxn.response", error_code=told_fenced(call, error, since=_WITH_FENCED))
        )
        return
    call.reply(
        message("EndTxn.response", producer_id=holder.producer_id, producer_epoch=holder.epoch)
    )


# --- DescribeTransactions


_OFFSETS: Final = "__consumer_offsets"
_OFFSETS_PARTITIONS: Final = 50  # Kafka's offsets.topic.num.partitions


@answers(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0))
def describe_transactions(call: Call) -> None:
    """Versions 0: state, time-out, start and partitions of transactions, each at its coordinator.

    As in Kafka: a denied `Describe` on an id is an error of that id; topics that the client may not `Describe` are left out; the offsets of a
    group are a partition of `__consumer_offsets`.
    """
    call.reply(
        message(
            "DescribeTransactions.response",
            transaction_states=[_described(call, name) for name in call.request.transactional_ids],
        )
    )


def _described(call: Call, name: str) -> Any:
    path = "DescribeTransactions.response.transaction_states"
    try:
        transaction = _transaction(call, name)
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


def _transaction(call: Call, name: str) -> Transaction:
    """Return a transaction.

    Raises:
        BrokerError: a scripted error; INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND.
    """
    call.check_scripted()
    call.check_may("Describe", "transactional_id", name)
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
        message(
            "DescribeTransactions.response.transaction_states.topics",
            topic=topic,
            partitions=sorted(set(numbers)),
        )
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


# --- ListTransactions


_LIST_WITH_DURATION: Final = 1
_LIST_WITH_PATTERN: Final = 2
_STATES: Final = frozenset({*(state.value for state in State), "Dead", "PrepareEpochFence"})


@answers(ApiKey.LIST_TRANSACTIONS, (0, 2))
def list_transactions(call: Call) -> None:
    """Versions 0-2: the transactional ids that this broker coordinates, filtered by state, producer id, duration and pattern.

    As in Kafka: ids that the client may not `Describe` are left out, and a pattern matches whole ids. Deviation: a pattern is Python's, not RE2's.
    """
    code = call.code()
    request = call.request
    try:
        pattern = re.compile(
            request.transactional_id_pattern or ".*"
            if call.version >= _LIST_WITH_PATTERN
            else ".*",
            re.DOTALL,
        )
    except re.error:
        code = code or broker_error("INVALID_REGULAR_EXPRESSION").code
    if code:
        call.reply(message("ListTransactions.response", error_code=code))
        return
    listed = [
        message(
            "ListTransactions.response.transaction_states",
            transactional_id=name,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.value,
        )
        for name, transaction in call.cluster.transactions.items()
        if coordinator(call.cluster, name) is call.broker
        and call.may("Describe", "transactional_id", name)
        and pattern.fullmatch(name)
        and _is_listed(call, transaction)
    ]
    unknown = [state for state in request.state_filters if state not in _STATES]
    call.reply(
        message(
            "ListTransactions.response", unknown_state_filters=unknown, transaction_states=listed
        )
    )


def _is_listed(call: Call, transaction: Transaction) -> bool:
    request = call.request
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and transaction.state.value not in request.state_filters:
        return False
    longest = request.duration_filter if call.version >= _LIST_WITH_DURATION else -1
    return longest < 0 or call.cluster.now_ms() - transaction.started_ms > longest
