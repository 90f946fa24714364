"""Tests of `aioproducer.core.outcome`: what each answer means for its batch, a row each. Source: Kafka's Errors and Sender."""

from __future__ import annotations

import pytest
from batches import accumulator, put

from aioproducer.core.outcome import Action, Verdict, fate, judge
from aioproducer.errors import ConnectionLost, Persisted, ProtocolError, RequestTimedOut, broker_error

RETRY, FAIL, SPLIT, EXCLUDE = Action.RETRY, Action.FAIL, Action.SPLIT, Action.EXCLUDE
# every error of the Java producer's table, and others that a broker may give; name: action, is metadata stale, may it have been written
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
    "COORDINATOR_LOAD_IN_PROGRESS": (RETRY, False, False),
    "COORDINATOR_NOT_AVAILABLE": (RETRY, False, False),
    "NOT_COORDINATOR": (RETRY, False, False),
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
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (FAIL, False, False),
    "DUPLICATE_SEQUENCE_NUMBER": (FAIL, False, False),
    "INVALID_PRODUCER_EPOCH": (FAIL, False, False),
    "INVALID_TXN_STATE": (FAIL, False, False),
    "INVALID_PRODUCER_ID_MAPPING": (FAIL, False, False),
    "CONCURRENT_TRANSACTIONS": (RETRY, False, False),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (FAIL, False, False),
    "KAFKA_STORAGE_ERROR": (RETRY, True, True),
    "UNKNOWN_PRODUCER_ID": (FAIL, False, False),
    "LISTENER_NOT_FOUND": (RETRY, True, False),
    "FENCED_LEADER_EPOCH": (RETRY, True, False),
    "UNKNOWN_LEADER_EPOCH": (RETRY, False, False),
    "UNSUPPORTED_COMPRESSION_TYPE": (FAIL, False, False),
    "INVALID_RECORD": (FAIL, False, False),
    "THROTTLING_QUOTA_EXCEEDED": (RETRY, False, False),
    "PRODUCER_FENCED": (FAIL, False, False),
    "UNKNOWN_TOPIC_ID": (RETRY, True, False),
    "INCONSISTENT_TOPIC_ID": (RETRY, True, False),
    "TRANSACTION_ABORTABLE": (FAIL, False, False),
}
# codes of java-producer.md 2.10
JAVA = (
    2,
    3,
    5,
    6,
    7,
    9,
    10,
    13,
    14,
    15,
    16,
    17,
    18,
    19,
    20,
    21,
    29,
    31,
    32,
    35,
    43,
    44,
    45,
    46,
    47,
    48,
    49,
    51,
    53,
    56,
    59,
    72,
    74,
    75,
    76,
)
JAVA += (87, 89, 90, 100, 103, 120)


def test_the_table_has_every_error_of_javas() -> None:
    """None of them is met for the first time in production."""
    assert {broker_error(name).code for name in ROWS} >= set(JAVA)


@pytest.mark.parametrize(("name", "row"), ROWS.items(), ids=ROWS)
def test_a_brokers_error(name: str, row: tuple[Action, bool, bool]) -> None:
    """A refusal is certain, unless the append came first."""
    action, refresh, uncertain = row
    assert judge(broker_error(name)) == Verdict(action, refresh=refresh, uncertain=uncertain)


@pytest.mark.parametrize(
    ("name", "records", "named", "action"),
    [
        ("MESSAGE_TOO_LARGE", 2, 0, SPLIT),
        ("MESSAGE_TOO_LARGE", 1, 0, FAIL),
        ("RECORD_LIST_TOO_LARGE", 100, 0, SPLIT),
        ("RECORD_LIST_TOO_LARGE", 1, 0, FAIL),
        ("INVALID_RECORD", 5, 2, EXCLUDE),
        ("INVALID_RECORD", 5, 5, FAIL),
        ("INVALID_RECORD", 5, 0, FAIL),
        ("INVALID_RECORD", 1, 1, FAIL),
        ("INVALID_TIMESTAMP", 5, 1, EXCLUDE),
        ("POLICY_VIOLATION", 5, 1, FAIL),
        ("NOT_LEADER_OR_FOLLOWER", 5, 1, RETRY),
    ],
)
def test_what_fewer_records_may_not_meet(name: str, records: int, named: int, action: Action) -> None:
    """Too large a batch is cut; where the broker names some of its records (KIP-467), the others go without them."""
    assert judge(broker_error(name), records=records, named=named).action is action


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
