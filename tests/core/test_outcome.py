"""Tests of `aioproducer.core.outcome`: what each answer means for its batch, a row each. Source: Kafka's Errors and Sender."""

from __future__ import annotations

import pytest
from batches import accumulator, put

from aioproducer.core.outcome import Action, Verdict, fate, judge
from aioproducer.errors import ConnectionLost, Persisted, ProtocolError, RequestTimedOut, broker_error

RETRY, FAIL = Action.RETRY, Action.FAIL
# name: action, is metadata stale, may this attempt have been written
ROWS = {
    "UNKNOWN_SERVER_ERROR": (FAIL, False, True),
    "CORRUPT_MESSAGE": (RETRY, False, False),
    "UNKNOWN_TOPIC_OR_PARTITION": (RETRY, True, False),
    "LEADER_NOT_AVAILABLE": (RETRY, True, False),
    "NOT_LEADER_OR_FOLLOWER": (RETRY, True, False),
    "REQUEST_TIMED_OUT": (RETRY, False, True),
    "REPLICA_NOT_AVAILABLE": (RETRY, True, False),
    "MESSAGE_TOO_LARGE": (FAIL, False, False),
    "NETWORK_EXCEPTION": (RETRY, True, False),
    "INVALID_TOPIC_EXCEPTION": (FAIL, False, False),
    "RECORD_LIST_TOO_LARGE": (FAIL, False, False),
    "NOT_ENOUGH_REPLICAS": (RETRY, False, False),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (RETRY, False, True),
    "INVALID_REQUIRED_ACKS": (FAIL, False, False),
    "TOPIC_AUTHORIZATION_FAILED": (FAIL, False, False),
    "CLUSTER_AUTHORIZATION_FAILED": (FAIL, False, False),
    "INVALID_TIMESTAMP": (FAIL, False, False),
    "UNSUPPORTED_VERSION": (FAIL, False, False),
    "INVALID_REQUEST": (FAIL, False, False),
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": (FAIL, False, False),
    "POLICY_VIOLATION": (FAIL, False, False),
    "KAFKA_STORAGE_ERROR": (RETRY, True, True),
    "FENCED_LEADER_EPOCH": (RETRY, True, False),
    "UNKNOWN_LEADER_EPOCH": (RETRY, False, False),
    "UNSUPPORTED_COMPRESSION_TYPE": (FAIL, False, False),
    "INVALID_RECORD": (FAIL, False, False),
    "THROTTLING_QUOTA_EXCEEDED": (RETRY, False, False),
    "UNKNOWN_TOPIC_ID": (RETRY, True, False),
    "INCONSISTENT_TOPIC_ID": (RETRY, True, False),
}


@pytest.mark.parametrize(("name", "row"), ROWS.items(), ids=ROWS)
def test_a_brokers_error(name: str, row: tuple[Action, bool, bool]) -> None:
    """A refusal is certain, unless the append came first."""
    action, refresh, uncertain = row
    assert judge(broker_error(name)) == Verdict(action, refresh=refresh, uncertain=uncertain)


def test_an_error_that_nobody_knows() -> None:
    """It is not sent again: Java does neither."""
    assert judge(broker_error(9999)) == Verdict(FAIL, refresh=False, uncertain=False)


def test_an_acknowledgement() -> None:
    """No error is success."""
    assert judge(None) == Verdict(Action.COMPLETE, refresh=False, uncertain=False)


@pytest.mark.parametrize("kind", [ConnectionLost, RequestTimedOut, ProtocolError], ids=lambda kind: kind.__name__)
def test_no_answer_is_never_certain(kind: type[Exception]) -> None:
    """It is sent again, to whoever leads then; unless no byte of it left, it may have been written."""
    assert judge(kind("gone")) == Verdict(RETRY, refresh=True, uncertain=True)  # type: ignore[arg-type]
    assert judge(kind("gone"), sent=False) == Verdict(RETRY, refresh=True, uncertain=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("may_be_written", "on_wire", "persisted"),
    [
        (False, False, Persisted.NO),
        (True, False, Persisted.MAYBE),
        (False, True, Persisted.MAYBE),
        (True, True, Persisted.MAYBE),
    ],
)
def test_whether_a_failed_batch_is_in_the_log(*, may_be_written: bool, on_wire: bool, persisted: Persisted) -> None:
    """Certainly not only if no attempt was uncertain and none is under way."""
    rules, (cell,) = accumulator(1)
    batch = put(rules, cell)
    batch.may_be_written, batch.on_wire = may_be_written, on_wire
    assert fate(batch) is persisted
