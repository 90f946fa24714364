"""Tests of `aioproducer.core.retries`: an attempt is judged within its batch's time and retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from batches import partition_queues, put, sent

from aioproducer.core.produce_errors import Action
from aioproducer.core.producer_batch import State
from aioproducer.core.retries import ProduceAttempts, failures, over
from aioproducer.core.sequence_numbers import NO_IDENTITY, ProducerIdAndEpoch
from aioproducer.errors import ConnectionLost, broker_error

if TYPE_CHECKING:
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.producer_batch import ProducerBatch

LIFETIME = 100.0


def landed(attempts: int = 1) -> tuple[PartitionQueues, ProducerBatch]:
    """Return partition queues, and one of their batches after its latest attempt has ended."""
    rules, (queue,) = partition_queues(1, lifetime=LIFETIME)
    rules.idempotence.granted = ProducerIdAndEpoch(7, 0)
    put(rules, queue)
    put(rules, queue)
    rules.close(queue)
    (batch,) = sent(rules, 1)
    ProduceAttempts(rules).remove_in_flight(batch)
    batch.attempts = attempts
    return rules, batch


@pytest.mark.parametrize(
    ("error", "attempts", "now", "action"),
    [
        ("NOT_LEADER_OR_FOLLOWER", 3, 0.0, Action.RETRY),
        ("NOT_LEADER_OR_FOLLOWER", 4, 0.0, Action.FAIL),
        ("NOT_LEADER_OR_FOLLOWER", 1, LIFETIME, Action.FAIL),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", 3, 0.0, Action.RENUMBER),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", 4, 0.0, Action.FAIL),
        ("DUPLICATE_SEQUENCE_NUMBER", 4, LIFETIME, Action.COMPLETE),
        ("MESSAGE_TOO_LARGE", 4, 0.0, Action.SPLIT),
        ("MESSAGE_TOO_LARGE", 1, LIFETIME, Action.FAIL),
    ],
)
def test_time_and_retries(error: str, attempts: int, now: float, action: Action) -> None:
    """The batch has three retries and LIFETIME seconds. After that it is not sent again."""
    _, batch = landed(attempts)
    assert (
        over(batch, broker_error(error), now=now, retries=3, transactional=False).action is action
    )
    assert batch.error is not None


def test_an_acknowledgement_counts_whenever_it_comes() -> None:
    """An acknowledged batch is in the log, so it completes even after its lifetime."""
    _, batch = landed(9)
    assert (
        over(batch, None, now=2 * LIFETIME, retries=3, transactional=False).action
        is Action.COMPLETE
    )


def test_doubt_stays() -> None:
    """An uncertain attempt leaves the batch uncertain, even if a later attempt is refused."""
    _, batch = landed()
    over(batch, ConnectionLost("cut"), now=0.0, retries=3, transactional=False)
    assert batch.may_be_written
    over(batch, broker_error("NOT_ENOUGH_REPLICAS"), now=0.0, retries=3, transactional=False)
    assert batch.may_be_written


@pytest.mark.parametrize("appended", [True, False])
def test_an_offset_with_an_error_is_doubt(*, appended: bool) -> None:
    """Its leader appended before it was followed."""
    _, batch = landed()
    over(
        batch,
        broker_error("NOT_LEADER_OR_FOLLOWER"),
        now=0.0,
        retries=3,
        transactional=False,
        appended=appended,
    )
    assert batch.may_be_written is appended


def test_waiting_for_another_is_no_failure() -> None:
    """So it uses up no retry."""
    rules, first = landed()
    ProduceAttempts(rules).complete(first)
    for _ in range(2):
        put(rules, first.queue)
        rules.close(first.queue)
    sent(rules, 1)
    (second,) = sent(rules, 1)
    ProduceAttempts(rules).remove_in_flight(second)
    second.attempts = 1
    assert (
        over(
            second,
            broker_error("OUT_OF_ORDER_SEQUENCE_NUMBER"),
            now=0.0,
            retries=0,
            transactional=False,
        ).action
        is Action.AWAIT
    )
    assert failures(second) == 0


@pytest.mark.parametrize(
    ("action", "renumbers", "asks"),
    [
        (Action.RETRY, False, False),
        (Action.AWAIT, False, False),
        (Action.RENUMBER, True, False),
        (Action.NEW_ID, True, True),
    ],
)
def test_the_way_back(action: Action, *, renumbers: bool, asks: bool) -> None:
    """A batch goes back to its place, with what its action does to numbers and the producer's id."""
    rules, batch = landed()
    ProduceAttempts(rules).retry(batch, action, 5.0)
    assert (batch.state, batch.queue.retry_at) == (State.READY, 5.0)
    assert batch.queue.numbers is not None
    assert (batch.queue.numbers.lost == batch.sequence) is renumbers
    assert (rules.idempotence.granted == NO_IDENTITY) is asks
