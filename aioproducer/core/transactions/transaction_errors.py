"""Holds the table (request, error) -> course of a transaction, and makes the errors for the application.

1. An error in the table takes its course. A retriable error that is not in the table is retried. Any other error is unexpected and
   is fatal to the producer.
2. If several partitions have errors, the gravest one counts.
3. Each error that the application gets is a kind of `TransactionError` (KIP-1050). Its `hint` says how to recover.

Sources: the handlers of Kafka's TransactionManager, KIP-360, KIP-447, KIP-890, KIP-1050.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from aioproducer.errors import (
    BrokerError,
    CommitFailed,
    Persisted,
    ProducerFenced,
    TransactionAbortable,
    TransactionError,
    TransactionExpired,
    TransactionFatal,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.errors import KafkaError


class Rpc(enum.StrEnum):
    """Lists the requests of a transaction. The two verdicts of EndTxn are separate."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    COMMIT = "EndTxn (commit)"
    ABORT = "EndTxn (abort)"
    PRODUCE = "Produce"


class Course(enum.IntEnum):
    """Lists the courses of a transaction after an error, the gravest last."""

    # The same request again, very soon: the markers of the last transaction are being written.
    QUICK = 1
    RETRY = 2
    # Find the coordinator, then send the request again.
    LOOKUP = 3
    # No producer id was given, and the next transaction asks again. Beyond initialization it is fatal.
    RESET = 4
    ABORTABLE = 5
    # Abortable if the coordinator can give another epoch, otherwise fatal.
    RENEW = 6
    FATAL = 7
    # Fatal, for an unknown reason.
    UNEXPECTED = 8


_COORDINATOR: Final = {
    "COORDINATOR_NOT_AVAILABLE": Course.LOOKUP,
    "NOT_COORDINATOR": Course.LOOKUP,
    "COORDINATOR_LOAD_IN_PROGRESS": Course.RETRY,
    "CONCURRENT_TRANSACTIONS": Course.QUICK,
}
_FENCING: Final = {"PRODUCER_FENCED": Course.FATAL, "INVALID_PRODUCER_EPOCH": Course.FATAL}
_COMMON: Final = {
    **_COORDINATOR,
    **_FENCING,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": Course.FATAL,
    "TRANSACTION_ABORTABLE": Course.ABORTABLE,
    "INVALID_TXN_STATE": Course.FATAL,
    "INVALID_PRODUCER_ID_MAPPING": Course.FATAL,
}
COURSES: Final[Mapping[Rpc, Mapping[str, Course]]] = {
    Rpc.FIND_COORDINATOR: {
        "COORDINATOR_NOT_AVAILABLE": Course.RETRY,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": Course.RESET,
        "GROUP_AUTHORIZATION_FAILED": Course.ABORTABLE,
        "TRANSACTION_ABORTABLE": Course.ABORTABLE,
    },
    Rpc.INIT: {
        **_COORDINATOR,
        **_FENCING,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": Course.RESET,
        "CLUSTER_AUTHORIZATION_FAILED": Course.RESET,
        "TRANSACTION_ABORTABLE": Course.RESET,
        "INVALID_TRANSACTION_TIMEOUT": Course.FATAL,
        "INVALID_TXN_STATE": Course.FATAL,
        "INVALID_PRODUCER_ID_MAPPING": Course.FATAL,
        "UNKNOWN_PRODUCER_ID": Course.FATAL,
    },
    Rpc.ADD_PARTITIONS: {
        **_COMMON,
        "UNKNOWN_TOPIC_OR_PARTITION": Course.RETRY,
        "TOPIC_AUTHORIZATION_FAILED": Course.ABORTABLE,
        "OPERATION_NOT_ATTEMPTED": Course.ABORTABLE,
        "UNKNOWN_PRODUCER_ID": Course.RENEW,
    },
    Rpc.ADD_OFFSETS: {
        **_COMMON,
        "GROUP_AUTHORIZATION_FAILED": Course.ABORTABLE,
        "UNKNOWN_PRODUCER_ID": Course.RENEW,
    },
    Rpc.COMMIT_OFFSETS: {
        **_COMMON,
        # In version 2 also: the coordinator of transactions adds another partition at this time. The group's coordinator answers so for it.
        "COORDINATOR_LOAD_IN_PROGRESS": Course.QUICK,
        "REQUEST_TIMED_OUT": Course.LOOKUP,
        "UNKNOWN_TOPIC_OR_PARTITION": Course.RETRY,
        "GROUP_AUTHORIZATION_FAILED": Course.ABORTABLE,
        "FENCED_INSTANCE_ID": Course.ABORTABLE,
        "UNKNOWN_MEMBER_ID": Course.ABORTABLE,
        "ILLEGAL_GENERATION": Course.ABORTABLE,
        "GROUP_ID_NOT_FOUND": Course.ABORTABLE,
        "STALE_MEMBER_EPOCH": Course.ABORTABLE,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT": Course.FATAL,
        # Java's client fails for good. The coordinator has stored nothing, so an abort is enough.
        "OFFSET_METADATA_TOO_LARGE": Course.ABORTABLE,
        "TOPIC_AUTHORIZATION_FAILED": Course.ABORTABLE,
        # The client raises it before it sends a request: the broker is too old for group metadata.
        "UNSUPPORTED_VERSION": Course.ABORTABLE,
    },
    Rpc.COMMIT: {**_COMMON, "UNKNOWN_PRODUCER_ID": Course.RENEW},
    Rpc.ABORT: {
        **_COMMON,
        "TRANSACTION_ABORTABLE": Course.FATAL,
        "UNKNOWN_PRODUCER_ID": Course.RENEW,
    },
    Rpc.PRODUCE: {
        **_FENCING,
        "CLUSTER_AUTHORIZATION_FAILED": Course.FATAL,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": Course.FATAL,
        "UNSUPPORTED_VERSION": Course.FATAL,
        "INVALID_PRODUCER_ID_MAPPING": Course.FATAL,
    },
}
# The course of all other errors that are not retriable.
REST: Final[Mapping[Rpc, Course]] = {
    Rpc.ADD_PARTITIONS: Course.ABORTABLE,
    Rpc.PRODUCE: Course.ABORTABLE,
}
# A transaction that took too long gets one of these: the coordinator has aborted it, and in version 1 fenced its producer.
EXPIRED: Final = frozenset({*_FENCING, "INVALID_TXN_STATE"})
# Not PRODUCE: a failed batch was already retried.
_TRIED_AGAIN: Final = frozenset(Rpc) - {Rpc.PRODUCE}

_KINDS: Final[Mapping[Course, type[TransactionError]]] = {
    Course.RESET: TransactionError,
    Course.ABORTABLE: TransactionAbortable,
    Course.FATAL: TransactionFatal,
    Course.UNEXPECTED: TransactionFatal,
}
_SPECIAL: Final[Mapping[str, type[TransactionError]]] = {
    **dict.fromkeys(_FENCING, ProducerFenced),
    **dict.fromkeys(
        (
            "FENCED_INSTANCE_ID",
            "UNKNOWN_MEMBER_ID",
            "ILLEGAL_GENERATION",
            "GROUP_ID_NOT_FOUND",
            "STALE_MEMBER_EPOCH",
        ),
        CommitFailed,
    ),
}
# What helps against a refusal, whichever request it answers.
REMEDIES: Final[Mapping[str, str]] = {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Grant Describe and Write on the transactional_id.",
    "CLUSTER_AUTHORIZATION_FAILED": (
        "Grant IdempotentWrite on the cluster (Kafka 2.8: Write on any topic is enough), or give enable_idempotence=False."
    ),
    "TOPIC_AUTHORIZATION_FAILED": "Grant Write on the topic; for offsets and positions, Read.",
    "GROUP_AUTHORIZATION_FAILED": "Grant Read on the group.",
    "OFFSET_METADATA_TOO_LARGE": (
        "The text beside an offset, or the cursor of a position, is longer than the brokers' offset.metadata.max.bytes (4,096): give a shorter one."
    ),
    "INVALID_TRANSACTION_TIMEOUT": "transaction_timeout_ms is above the brokers' transaction.max.timeout.ms: lower it, or raise theirs.",
    "INVALID_PRODUCER_ID_MAPPING": (
        "The coordinator has forgotten this transactional_id, unused for longer than the brokers' transactional.id.expiration.ms, "
        "or it belongs to another cluster than before, which a warning in the log says."
    ),
}


def course_of(rpc: Rpc, error: BrokerError) -> Course:
    """Return the course of an error of a request."""
    course = COURSES[rpc].get(error.name)
    if course is not None:
        return course
    if error.retriable and rpc in _TRIED_AGAIN:
        return Course.RETRY
    return REST.get(rpc, Course.UNEXPECTED)


def gravest(rpc: Rpc, errors: Mapping[str, BrokerError]) -> tuple[Course, BrokerError, list[str]]:
    """Return the gravest course of several errors, its error, and the places that have the same error."""
    place = max(
        errors,
        key=lambda each: (
            course_of(rpc, errors[each]),
            errors[each].name != "OPERATION_NOT_ATTEMPTED",
        ),
    )
    worst = errors[place]
    return (
        course_of(rpc, worst),
        worst,
        [each for each, error in errors.items() if error.code == worst.code],
    )


def error_of(
    rpc: Rpc,
    course: Course,
    cause: KafkaError,
    where: str = "",
    expired_ms: float | None = None,
    *,
    is_unsure: bool = False,
) -> TransactionError:
    """Return the error that the application gets.

    Args:
        rpc: the request.
        course: the course of the error; RENEW is already resolved to ABORTABLE or FATAL.
        cause: the error; a BrokerError has a name, which may have its own kind and hint.
        where: the topics, the group or the like that it concerns.
        expired_ms: the time that the transaction was allowed, if it has lasted longer.
        is_unsure: the transaction was to be committed, and an answer was lost.
    """
    name = cause.name if isinstance(cause, BrokerError) else ""
    kind = _KINDS[course]
    special = _SPECIAL.get(name, kind)
    kind = special if issubclass(special, kind) else kind
    reason, remedy = _reason(rpc, course, cause, where), REMEDIES.get(name)
    if expired_ms is not None and name in EXPIRED and issubclass(kind, TransactionFatal):
        kind = TransactionExpired
        reason = f"the transaction was timed out by the coordinator: it lasted longer than transaction_timeout_ms={expired_ms:.15g} ({cause})"
    hint = "begin_transaction() asks once more." if course is Course.RESET else kind.hint
    error = kind(
        f"{reason}; the answer to an earlier attempt was lost: it may have been committed"
        if is_unsure
        else reason,
        f"{remedy} {hint}" if remedy else hint,
    )
    error.persisted = Persisted.MAYBE if is_unsure else Persisted.NO
    error.__cause__ = cause
    return error


def _reason(rpc: Rpc, course: Course, cause: KafkaError, where: str) -> str:
    about = f" for {where}" if where else ""
    if rpc is Rpc.PRODUCE:
        return f"a record of the transaction was not sent{about}: {cause}"
    unexpected = ", which is unexpected" if course is Course.UNEXPECTED else ""
    return f"{rpc}{about} was refused: {cause}{unexpected}"
