"""Tests of `aioproducer.errors`."""

from __future__ import annotations

import copy
import pickle

import aiokafka.errors
import pytest

from aioproducer import errors
from aioproducer.errors import (
    ConnectionLost,
    CredentialsRefused,
    DeliveryError,
    DeliveryTimeout,
    ErrorCode,
    KafkaError,
    Persisted,
    ProducerFenced,
    RecordTooLarge,
    RequestTimedOut,
    broker_error,
)

CODES = sorted(errors._BY_CODE.values())
# aiokafka's words for what Kafka has renamed since
RENAMED = {
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "STALE_LEADER_EPOCH_CODE": "NETWORK_EXCEPTION",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}


@pytest.mark.parametrize(
    "name",
    [
        "SendTimeout",
        "BufferExhausted",
        "MetadataTimeout",
        "RequestTimedOut",
        "TransactionTimeout",
        "DeliveryTimeout",
    ],
)
def test_what_took_too_long_is_a_timeout(name: str) -> None:
    """`except TimeoutError` means what it says."""
    assert issubclass(getattr(errors, name), TimeoutError)


def test_a_wrong_value_is_a_value_error() -> None:
    """A wrong value is a ValueError, as elsewhere in Python. A value that cannot become bytes is a TypeError."""
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.SerializationError, TypeError)
    assert issubclass(errors.WouldBlock, BlockingIOError)


# Kafka's codes


@pytest.mark.parametrize("error", CODES, ids=lambda error: error.name)
def test_a_code_is_known_by_number_and_by_name(error: ErrorCode) -> None:
    """The error is the same, by number and by name."""
    for found in (broker_error(error.code), broker_error(error.name)):
        assert (found.code, found.name, found.retriable, found.refresh) == error
        assert found.message is None


@pytest.mark.parametrize("error", CODES, ids=lambda error: error.name)
def test_stale_metadata_is_worth_another_try(error: ErrorCode) -> None:
    """In Java InvalidMetadataException is a RetriableException."""
    assert error.retriable or not error.refresh


@pytest.mark.parametrize(
    "error",
    [error for error in CODES if error.code in aiokafka.errors.kafka_errors],
    ids=lambda error: error.name,
)
def test_codes_have_the_names_that_other_clients_know(error: ErrorCode) -> None:
    """aiokafka read Kafka's table too."""
    theirs = aiokafka.errors.kafka_errors[error.code].message
    assert RENAMED.get(theirs, theirs) == error.name


def test_an_unknown_number_is_kept() -> None:
    """A newer broker's number is kept. The error is not retriable, as another try may not help."""
    error = broker_error(12_345, "says the broker")
    assert (error.code, error.name, error.retriable, error.refresh) == (
        12_345,
        "UNKNOWN_ERROR_CODE",
        False,
        False,
    )
    assert str(error) == "UNKNOWN_ERROR_CODE (12345): says the broker"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (None, "MESSAGE_TOO_LARGE (10)"),
        ("", "MESSAGE_TOO_LARGE (10)"),
        ("why", "MESSAGE_TOO_LARGE (10): why"),
    ],
)
def test_what_a_broker_error_says(message: str | None, text: str) -> None:
    """Name, number, and the broker's words if there are any."""
    assert str(broker_error(10, message)) == text


# Failed records


@pytest.mark.parametrize(
    ("persisted", "attempts", "text"),
    [
        (Persisted.NO, 0, "t-3: why (the record was not written; never sent)"),
        (Persisted.MAYBE, 1, "t-3: why (the record may have been written; sent once)"),
        (Persisted.YES, 2, "t-3: why (the record was written; sent 2 times)"),
    ],
)
def test_what_a_delivery_error_says(persisted: Persisted, attempts: int, text: str) -> None:
    """Where, why, whether it is in the log, and how often it was tried."""
    assert str(failed(persisted=persisted, attempts=attempts)) == text


def failed(persisted: Persisted = Persisted.MAYBE, attempts: int = 2) -> DeliveryError:
    return DeliveryError("why", topic="t", partition=3, persisted=persisted, attempts=attempts)


def caused(error: KafkaError, cause: KafkaError) -> KafkaError:
    error.__cause__ = cause
    return error


def test_each_look_at_a_failure_has_its_own_error() -> None:
    """`again` returns a new instance for each caller, as one instance would collect the traceback of each of them."""
    error = failed()
    error.history = ("queued", "failed")
    error.__cause__ = ConnectionLost("gone")
    twin = error.again()
    assert twin is not error
    assert vars(twin) == vars(error)
    assert str(twin) == str(error)
    assert twin.__cause__ is error.__cause__


def test_a_delivery_error_explains_itself() -> None:
    """A delivery error explains itself by its batch's history, or without one by its text."""
    error = failed()
    assert error.explain() == str(error)
    error.history = ("queued", "failed")
    assert error.explain() == "queued\nfailed"


@pytest.mark.parametrize(
    "error",
    [
        failed(),
        DeliveryTimeout("why", "t", 3, Persisted.NO, 2),
        broker_error(3, "m"),
        broker_error(12_345),
        ConnectionLost("gone"),
        CredentialsRefused("no", "sasl", "PLAIN", 58),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_go_from_process_to_process(error: KafkaError) -> None:
    """A pool's workers send them by pickle; one that cannot be read breaks the pool."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
        assert again.args == error.args


def test_a_timeout_is_no_error_of_the_system() -> None:
    """A TimeoutError is an OSError, which would take a failure's facts for an errno and a file name."""
    error = DeliveryTimeout("why", "t", 3, Persisted.MAYBE, 2)
    assert (error.errno, error.filename) == (None, None)
    assert (type(error.again()), error.again().topic, error.again().args) == (
        DeliveryTimeout,
        "t",
        error.args,
    )


CAUSES = {
    "TIMED_OUT": [RequestTimedOut("no answer")],
    "CONNECTION_LOST": [
        ConnectionLost("gone"),
        errors.ProtocolError("?"),
        CredentialsRefused("no", "sasl", "PLAIN", 58),
    ],
    "ABORTED": [errors.TransactionAborted("aborted"), errors.ProducerClosed("stopped"), None],
    "NOT_ENOUGH_REPLICAS": [broker_error("NOT_ENOUGH_REPLICAS", "m")],
    "TOPIC_AUTHORIZATION_FAILED": [broker_error("TOPIC_AUTHORIZATION_FAILED")],
    "MESSAGE_TOO_LARGE": [
        caused(RecordTooLarge("m"), broker_error("MESSAGE_TOO_LARGE")),
        RecordTooLarge("m"),
    ],
    "INVALID_PRODUCER_EPOCH": [
        caused(errors.TransactionExpired("late"), broker_error("INVALID_PRODUCER_EPOCH"))
    ],
    "PRODUCER_FENCED": [ProducerFenced("another one")],
    "UNKNOWN_ERROR_CODE": [broker_error(12_345)],
}
WORTH_ANOTHER_TRY = {"TIMED_OUT", "CONNECTION_LOST", "ABORTED", "NOT_ENOUGH_REPLICAS"}


@pytest.mark.parametrize(
    ("code", "cause"),
    [(code, cause) for code, causes in CAUSES.items() for cause in causes],
    ids=repr,
)
def test_what_ended_a_record(code: str, cause: KafkaError | None) -> None:
    """`code` is a word for each kind of end. `retriable` is true if the record is not in the log, and the same record may get there."""
    for persisted in Persisted:
        error = failed(persisted)
        error.__cause__ = cause
        assert error.code == code
        assert error.retriable is (persisted is Persisted.NO and code in WORTH_ANOTHER_TRY)
        late = DeliveryTimeout("why", "t", 3, persisted, 2)
        late.__cause__ = cause
        assert late.code == "TIMED_OUT"


def test_a_producer_that_no_longer_works_is_not_worth_another_try() -> None:
    """What the coordinator said is its cause, and that one may be retriable."""
    error = failed(Persisted.NO)
    error.__cause__ = caused(errors.TransactionFatal("no"), broker_error("NOT_COORDINATOR"))
    assert (error.code, error.retriable) == ("NOT_COORDINATOR", False)


def test_an_error_of_a_transaction_ends_with_its_remedy() -> None:
    """Also if its reason is the text of another error, which ends with one itself."""
    for reason in ("it is too large", "it is too large."):
        assert (
            str(errors.TransactionAborted(reason))
            == "it is too large. Send it again in the next transaction."
        )
