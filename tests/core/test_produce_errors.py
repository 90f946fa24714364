"""Tests of `aioproducer.core.produce_errors`: the effect of an answer on its batch, a row for each verdict.

Source: Kafka's Errors and Sender.
"""

from __future__ import annotations

import pytest
from batches import answered, partition_queues, put, sent

from aioproducer.core.produce_errors import Action, Standing, Verdict, fate, judge, standing
from aioproducer.core.sequence_numbers import ProducerIdAndEpoch
from aioproducer.errors import (
    ConnectionLost,
    Persisted,
    ProtocolError,
    RequestTimedOut,
    broker_error,
)

RETRY, FAIL, SPLIT, EXCLUDE, COMPLETE, AWAIT = (
    Action.RETRY,
    Action.FAIL,
    Action.SPLIT,
    Action.EXCLUDE,
    Action.COMPLETE,
    Action.AWAIT,
)
RENUMBER, NEW_ID = Action.RENUMBER, Action.NEW_ID
STANDINGS = (Standing.PLAIN, Standing.FIRST, Standing.UNSURE, Standing.BEHIND)

# An error of each verdict: action, is metadata stale, may that attempt have been written. Unlike Java: an error that may follow an append is
# uncertain. Any other error fails its batch, which is certainly not written.
ROWS = {
    "CORRUPT_MESSAGE": (RETRY, False, False),
    "NOT_LEADER_OR_FOLLOWER": (RETRY, True, False),
    "NOT_ENOUGH_REPLICAS": (RETRY, False, False),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (RETRY, False, True),
    "REQUEST_TIMED_OUT": (RETRY, False, True),
    "KAFKA_STORAGE_ERROR": (RETRY, True, True),
    "UNKNOWN_TOPIC_ID": (RETRY, True, False),
    "UNKNOWN_SERVER_ERROR": (FAIL, False, True),
}
REFUSALS = ["MESSAGE_TOO_LARGE", "INVALID_RECORD", "TOPIC_AUTHORIZATION_FAILED"]
# Errors about numbers, in the order of STANDINGS. Other than Java: what may be in the log is never numbered anew (it would be there twice);
# INVALID_PRODUCER_EPOCH and its like do not end the producer, nor fail a batch that can have another id.
NUMBERED = {
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (FAIL, RENUMBER, FAIL, AWAIT),
    "UNKNOWN_PRODUCER_ID": (FAIL, RENUMBER, FAIL, AWAIT),
    "INVALID_PRODUCER_EPOCH": (FAIL, NEW_ID, FAIL, AWAIT),
    "PRODUCER_FENCED": (FAIL, NEW_ID, FAIL, AWAIT),
    "INVALID_PRODUCER_ID_MAPPING": (FAIL, NEW_ID, FAIL, AWAIT),
    "DUPLICATE_SEQUENCE_NUMBER": (FAIL, COMPLETE, COMPLETE, COMPLETE),
}
IN_A_TRANSACTION = {RENUMBER: FAIL, NEW_ID: FAIL}  # epochs are the coordinator's


def _expected(name: str, at: int, *, transactional: bool) -> Verdict:
    if name in ROWS:
        return Verdict(*ROWS[name])
    action = NUMBERED[name][at] if name in NUMBERED else FAIL
    return Verdict(IN_A_TRANSACTION.get(action, action) if transactional else action)


@pytest.mark.parametrize("transactional", [False, True], ids=["", "transactional"])
@pytest.mark.parametrize("stands", STANDINGS, ids=lambda stands: stands.name.lower())
@pytest.mark.parametrize("name", [*ROWS, *REFUSALS, *NUMBERED])
def test_a_brokers_error(name: str, stands: Standing, *, transactional: bool) -> None:
    """A batch of one record meets it."""
    verdict = judge(broker_error(name), stands=stands, transactional=transactional)
    assert verdict == _expected(name, STANDINGS.index(stands), transactional=transactional)


@pytest.mark.parametrize(
    "name",
    [
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_RECORD",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
    ],
)
def test_an_error_with_an_offset(name: str) -> None:
    """A leader appended the batch, and lost the partition while it waited for followers (DelayedProduce). The log may have the batch.

    The offset has no meaning with errors that no broker gives after an append.
    """
    for stands in STANDINGS:
        verdict = judge(broker_error(name), stands=stands)
        uncertain = name in {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"}
        assert judge(broker_error(name), stands=stands, appended=True) == verdict._replace(
            uncertain=uncertain
        )


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
def test_what_fewer_records_may_not_meet(
    name: str, records: int, named: int, action: Action
) -> None:
    """Too large a batch is cut; where the broker names some of its records (KIP-467), the others go without them."""
    assert judge(broker_error(name), records=records, named=named).action is action


def test_an_error_that_nobody_knows() -> None:
    """It is not sent again: Java does neither."""
    assert judge(broker_error(9999)) == Verdict(FAIL, refresh=False, uncertain=False)


def test_an_acknowledgement() -> None:
    """No error is success."""
    assert judge(None) == Verdict(Action.COMPLETE, refresh=False, uncertain=False)


@pytest.mark.parametrize(
    "kind", [ConnectionLost, RequestTimedOut, ProtocolError], ids=lambda kind: kind.__name__
)
def test_no_answer_is_never_certain(kind: type[Exception]) -> None:
    """The client sends the batch again, to the leader of that moment. The unanswered attempt may have been written."""
    assert judge(kind("gone")) == Verdict(RETRY, refresh=True, uncertain=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("may_be_written", "on_wire", "persisted"),
    [
        (False, False, Persisted.NO),
        (True, False, Persisted.MAYBE),
        (False, True, Persisted.MAYBE),
        (True, True, Persisted.MAYBE),
    ],
)
def test_whether_a_failed_batch_is_in_the_log(
    *, may_be_written: bool, on_wire: bool, persisted: Persisted
) -> None:
    """A failed batch is certainly absent from the log only if no attempt was uncertain and none is in flight."""
    rules, (queue,) = partition_queues(1)
    batch = put(rules, queue)
    batch.may_be_written, batch.on_wire = may_be_written, on_wire
    assert fate(batch) is persisted


def test_how_a_batch_stands() -> None:
    """Among those of its partition that were numbered and have not ended."""
    rules, (queue,) = partition_queues(1)
    rules.idempotence.granted = ProducerIdAndEpoch(7, 0)
    for _ in range(3):
        batch = put(rules, queue)
        rules.close(queue)
    assert standing(batch) is Standing.PLAIN
    for batch in sent(rules, 1):
        answered(rules, batch)  # several may be in flight from now on
    (first,), (second,) = sent(rules, 1), sent(rules, 1)
    assert (standing(first), standing(second)) == (Standing.FIRST, Standing.BEHIND)
    first.may_be_written = second.may_be_written = True
    assert (standing(first), standing(second)) == (Standing.UNSURE, Standing.BEHIND)
    answered(rules, first)
    assert standing(second) is Standing.UNSURE
