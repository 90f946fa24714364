"""Tests of `aioproducer.core.transactions.transaction_errors`: its table, and the errors for users.

The test compares the table with that of Kafka's TransactionManager.
"""

from __future__ import annotations

import pytest

from aioproducer import errors
from aioproducer.core.transactions.transaction_errors import (
    COURSES,
    EXPIRED,
    REST,
    Course,
    Rpc,
    course_of,
    error_of,
    gravest,
)
from aioproducer.errors import (
    BrokerError,
    CommitFailed,
    ConnectionLost,
    ErrorCode,
    ProducerFenced,
    TransactionAbortable,
    TransactionError,
    TransactionExpired,
    TransactionFatal,
    broker_error,
)

# TransactionManager's handlers: L lookup and retry, R retry, Q quick retry, U back to no producer id, A abortable, B abortable by another
# epoch, F fatal, X unexpected and so fatal. One differs: COORDINATOR_LOAD_IN_PROGRESS of TxnOffsetCommit, which Java tries again after the
# whole backoff
KAFKAS = """
error                                 Init AddP AddO Offs Comm Abrt Find Prod
COORDINATOR_NOT_AVAILABLE             L    L    L    L    L    L    R    A
NOT_COORDINATOR                       L    L    L    L    L    L    R    A
COORDINATOR_LOAD_IN_PROGRESS          R    R    R    Q    R    R    R    A
CONCURRENT_TRANSACTIONS               Q    Q    Q    Q    Q    Q    R    A
UNKNOWN_TOPIC_OR_PARTITION            R    R    R    R    R    R    R    A
REQUEST_TIMED_OUT                     R    R    R    L    R    R    R    A
PRODUCER_FENCED                       F    F    F    F    F    F    X    F
INVALID_PRODUCER_EPOCH                F    F    F    F    F    F    X    F
TRANSACTIONAL_ID_AUTHORIZATION_FAILED U    F    F    F    F    F    U    F
CLUSTER_AUTHORIZATION_FAILED          U    A    X    X    X    X    X    F
INVALID_TXN_STATE                     F    F    F    F    F    F    X    A
INVALID_PRODUCER_ID_MAPPING           F    F    F    F    F    F    X    F
UNKNOWN_PRODUCER_ID                   F    B    B    X    B    B    X    A
TOPIC_AUTHORIZATION_FAILED            X    A    X    A    X    X    X    A
OFFSET_METADATA_TOO_LARGE             X    A    X    A    X    X    X    A
OPERATION_NOT_ATTEMPTED               X    A    X    X    X    X    X    A
GROUP_AUTHORIZATION_FAILED            X    A    A    A    X    X    A    A
FENCED_INSTANCE_ID                    X    A    X    A    X    X    X    A
UNKNOWN_MEMBER_ID                     X    A    X    A    X    X    X    A
ILLEGAL_GENERATION                    X    A    X    A    X    X    X    A
GROUP_ID_NOT_FOUND                    X    A    X    A    X    X    X    A
STALE_MEMBER_EPOCH                    X    A    X    A    X    X    X    A
UNSUPPORTED_FOR_MESSAGE_FORMAT        X    A    X    F    X    X    X    A
UNSUPPORTED_VERSION                   X    A    X    A    X    X    X    F
INVALID_TRANSACTION_TIMEOUT           F    A    X    X    X    X    X    A
TRANSACTION_ABORTABLE                 U    A    A    A    A    F    A    A
OUT_OF_ORDER_SEQUENCE_NUMBER          X    A    X    X    X    X    X    A
"""
RPCS = (
    Rpc.INIT,
    Rpc.ADD_PARTITIONS,
    Rpc.ADD_OFFSETS,
    Rpc.COMMIT_OFFSETS,
    Rpc.COMMIT,
    Rpc.ABORT,
    Rpc.FIND_COORDINATOR,
    Rpc.PRODUCE,
)
LETTERS = {
    "Q": Course.QUICK,
    "R": Course.RETRY,
    "L": Course.LOOKUP,
    "U": Course.RESET,
    "A": Course.ABORTABLE,
    "B": Course.RENEW,
    "F": Course.FATAL,
    "X": Course.UNEXPECTED,
}
ROWS = [
    (rpc, name, LETTERS[letter])
    for line in KAFKAS.strip().splitlines()[1:]
    for name, *letters in [line.split()]
    for rpc, letter in zip(RPCS, letters, strict=True)
]


@pytest.mark.parametrize(
    ("rpc", "name", "course"), ROWS, ids=lambda value: getattr(value, "name", value)
)
def test_the_table_is_kafkas(rpc: Rpc, name: str, course: Course) -> None:
    """The course of each error equals the entry of Kafka's table, and of the client's own: a refused offset is not fatal."""
    assert course_of(rpc, broker_error(name)) is course


def test_every_row_is_tested() -> None:
    """Nothing is in the table that the one above does not have."""
    tested = {(rpc, name) for rpc, name, _ in ROWS}
    assert {(rpc, name) for rpc, row in COURSES.items() for name in row} <= tested
    assert COURSES.keys() == set(Rpc)
    assert REST.keys() <= COURSES.keys()


@pytest.mark.parametrize("rpc", [rpc for rpc in Rpc if rpc is not Rpc.PRODUCE])
def test_what_passes_is_tried_again(rpc: Rpc) -> None:
    """The client retries every error that the broker calls retriable, unless the table has another course.

    It does not retry an unknown error code.
    """
    retriable = [
        error
        for error in errors._BY_CODE.values()
        if error.retriable and error.name not in COURSES[rpc]
    ]
    assert retriable
    assert {course_of(rpc, BrokerError(error)) for error in retriable} == {Course.RETRY}
    assert course_of(rpc, broker_error(12_345)) in {Course.UNEXPECTED, Course.ABORTABLE}


# Several places


def test_the_gravest_counts() -> None:
    """The transaction takes the gravest error of an answer's partitions, in any order.

    A partition that was not attempted is not the reason.
    """
    told = {
        "a-0": broker_error("OPERATION_NOT_ATTEMPTED"),
        "b-0": broker_error("TOPIC_AUTHORIZATION_FAILED"),
        "c-0": broker_error("UNKNOWN_TOPIC_OR_PARTITION"),
        "b-1": broker_error("TOPIC_AUTHORIZATION_FAILED"),
    }
    for places in (list(told), list(reversed(told))):
        course, error, where = gravest(Rpc.ADD_PARTITIONS, {place: told[place] for place in places})
        assert (course, error.name, sorted(where)) == (
            Course.ABORTABLE,
            "TOPIC_AUTHORIZATION_FAILED",
            ["b-0", "b-1"],
        )


def test_a_lookup_outweighs_another_try() -> None:
    """The client looks the coordinator up before it asks again, as that broker is not the coordinator."""
    course, *_ = gravest(
        Rpc.COMMIT_OFFSETS,
        {
            "a-0": broker_error("COORDINATOR_LOAD_IN_PROGRESS"),
            "a-1": broker_error("NOT_COORDINATOR"),
        },
    )
    assert course is Course.LOOKUP


# Errors for users

KINDS = [
    (
        Rpc.COMMIT,
        Course.ABORTABLE,
        "TRANSACTION_ABORTABLE",
        TransactionAbortable,
        "abort_transaction",
    ),
    (
        Rpc.ADD_PARTITIONS,
        Course.ABORTABLE,
        "TOPIC_AUTHORIZATION_FAILED",
        TransactionAbortable,
        "Grant Write",
    ),
    (
        Rpc.ADD_OFFSETS,
        Course.ABORTABLE,
        "GROUP_AUTHORIZATION_FAILED",
        TransactionAbortable,
        "Grant Read",
    ),
    (
        Rpc.COMMIT_OFFSETS,
        Course.ABORTABLE,
        "ILLEGAL_GENERATION",
        CommitFailed,
        "join its group again",
    ),
    (
        Rpc.COMMIT_OFFSETS,
        Course.ABORTABLE,
        "FENCED_INSTANCE_ID",
        CommitFailed,
        "join its group again",
    ),
    (Rpc.PRODUCE, Course.ABORTABLE, "INVALID_TXN_STATE", TransactionAbortable, "abort_transaction"),
    (
        Rpc.PRODUCE,
        Course.FATAL,
        "PRODUCER_FENCED",
        ProducerFenced,
        "who else uses its transactional_id",
    ),
    (Rpc.COMMIT, Course.FATAL, "INVALID_PRODUCER_EPOCH", ProducerFenced, "who else"),
    (
        Rpc.COMMIT,
        Course.FATAL,
        "INVALID_PRODUCER_ID_MAPPING",
        TransactionFatal,
        "transactional.id.expiration.ms",
    ),
    (
        Rpc.ADD_OFFSETS,
        Course.FATAL,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        TransactionFatal,
        "Grant Describe and Write",
    ),
    (
        Rpc.INIT,
        Course.RESET,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        TransactionError,
        "Grant Describe and Write",
    ),
    (Rpc.INIT, Course.RESET, "TRANSACTION_ABORTABLE", TransactionError, "asks once more"),
    (
        Rpc.INIT,
        Course.FATAL,
        "INVALID_TRANSACTION_TIMEOUT",
        TransactionFatal,
        "transaction.max.timeout.ms",
    ),
    (Rpc.ABORT, Course.UNEXPECTED, "POLICY_VIOLATION", TransactionFatal, "start a new one"),
]


@pytest.mark.parametrize(
    ("rpc", "course", "name", "kind", "hint"), KINDS, ids=lambda value: getattr(value, "name", None)
)
def test_what_the_application_is_told(
    rpc: Rpc, course: Course, name: str, kind: type[TransactionError], hint: str
) -> None:
    """The kind says how bad it is, the hint what helps, the text what happened; the broker's error is the cause."""
    cause = broker_error(name)
    error = error_of(rpc, course, cause, "orders-1")
    assert type(error) is kind
    assert hint in error.hint
    assert str(error) == f"{error.reason}. {error.hint}"
    assert {name, "orders-1"} <= set(
        error.reason.replace(":", " ").replace("(", " ").replace(",", " ").split()
    )
    assert ("unexpected" in error.reason) is (course is Course.UNEXPECTED)
    assert error.__cause__ is cause


@pytest.mark.parametrize("name", sorted(EXPIRED))
def test_a_time_out_is_no_newer_producer(name: str) -> None:
    """Row 67: the error of a producer that was fenced after its time-out names the time-out and the option to change."""
    error = error_of(Rpc.COMMIT, Course.FATAL, broker_error(name), expired_ms=60_000)
    assert type(error) is TransactionExpired
    assert "timed out by the coordinator" in error.reason
    assert "transaction_timeout_ms=60000" in error.reason
    assert "newer" not in str(error)
    assert "raise transaction_timeout_ms" in error.hint


def test_other_errors_do_not_become_a_time_out() -> None:
    """However long it took."""
    error = error_of(
        Rpc.COMMIT, Course.FATAL, broker_error("INVALID_PRODUCER_ID_MAPPING"), expired_ms=60_000
    )
    assert type(error) is TransactionFatal
    error = error_of(
        Rpc.PRODUCE, Course.ABORTABLE, broker_error("INVALID_TXN_STATE"), expired_ms=60_000
    )
    assert type(error) is TransactionAbortable


def test_a_record_that_found_no_broker() -> None:
    """It has no code, and its transaction can be aborted."""
    error = error_of(
        Rpc.PRODUCE, Course.ABORTABLE, ConnectionLost("b:1 closed the connection"), "orders-0"
    )
    assert type(error) is TransactionAbortable
    assert "orders-0: b:1 closed the connection" in error.reason


def test_each_look_at_an_error_is_its_own() -> None:
    """Equal in all but its traceback; a hint of its own is kept."""
    error = error_of(Rpc.COMMIT, Course.FATAL, broker_error("INVALID_PRODUCER_ID_MAPPING"))
    again = error.again()
    assert again is not error
    assert (type(again), again.reason, again.hint, again.__cause__) == (
        type(error),
        error.reason,
        error.hint,
        error.__cause__,
    )


@pytest.mark.parametrize("code", [ErrorCode(12_345, "UNKNOWN_ERROR_CODE")])
def test_a_number_that_nobody_knows_is_shown(code: ErrorCode) -> None:
    """Row 46."""
    error = error_of(Rpc.COMMIT, Course.UNEXPECTED, BrokerError(code))
    assert "12345" in str(error)
