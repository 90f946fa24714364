"""Tests of `aioproducer.core.sequence_numbers` in the partition queues that use it.

In brackets: the case of Java's TransactionManagerTest or SenderTest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from batches import install, more, partition_queues, put, sent, split, topic, whole

from aioproducer.core.produce_errors import Action
from aioproducer.core.retries import AGAIN, ProduceAttempts, over
from aioproducer.core.sequence_numbers import (
    LAST_EPOCH,
    WINDOW,
    ProducerIdAndEpoch,
)
from aioproducer.core.topic_updates import forgetting, leave_cluster
from aioproducer.errors import ConnectionLost, broker_error

if TYPE_CHECKING:
    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.errors import BrokerError, TransportError

OUT_OF_ORDER, FENCED, MOVED = (
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "INVALID_PRODUCER_EPOCH",
    "NOT_LEADER_OR_FOLLOWER",
)
LOST = "no answer"
OK = ""


def idempotent(
    count: int = 0, *, size: int = 1, partitions: int = 1, epoch: int = 0
) -> tuple[PartitionQueues, list[PartitionQueue]]:
    """Partitions of an idempotent producer, the first with closed batches."""
    rules, queues = partition_queues(*[1] * partitions)
    rules.idempotence.granted = ProducerIdAndEpoch(7, epoch)
    more(rules, queues[0], count, size=size)
    return rules, queues


def fly(rules: PartitionQueues, connection: str = "connection") -> list[ProducerBatch]:
    """Drain all batches that may be in flight at once, and return them."""
    batches: list[ProducerBatch] = []
    while drained := sent(rules, 1, connection):
        for batch in drained:
            batch.on_wire = True
            batch.attempts += 1
        batches += drained
    return batches


def told(
    rules: PartitionQueues, batch: ProducerBatch, said: str = OK, *, retries: int = 1000
) -> Action | None:
    """An attempt is over, as in the engine."""
    batch.on_wire = False
    ProduceAttempts(rules).remove_in_flight(batch)
    error: BrokerError | TransportError | None = (
        ConnectionLost("cut") if said == LOST else broker_error(said) if said else None
    )
    if batch.ended:
        if error is None:
            ProduceAttempts(rules).complete_late(batch)
        return None
    verdict = over(
        batch, error, now=0.0, retries=retries, transactional=rules.idempotence.is_transactional
    )
    if verdict.action is Action.COMPLETE:
        ProduceAttempts(rules).complete(batch)
    elif verdict.action in AGAIN:
        ProduceAttempts(rules).retry(batch, verdict.action, 0.0)
    elif verdict.action is Action.FAIL:
        ProduceAttempts(rules).fail(batch)
    return verdict.action


def arrived(rules: PartitionQueues, queue: PartitionQueue, count: int = 1) -> None:
    """So many batches have been acknowledged: several may be in flight, and the broker knows the producer."""
    more(rules, queue, count)
    assert len(delivered(rules)) == count


def known() -> tuple[PartitionQueues, PartitionQueue]:
    """An idempotent producer, and a partition whose broker knows it: several batches of it may be in flight."""
    rules, (queue,) = idempotent()
    arrived(rules, queue)
    return rules, queue


def stray(rules: PartitionQueues, queue: PartitionQueue) -> None:
    """A batch expires that may still come to the log."""
    more(rules, queue)
    (gone,) = fly(rules)
    told(rules, gone, LOST)
    ProduceAttempts(rules).fail(gone)


def delivered(rules: PartitionQueues, connection: str = "connection") -> list[ProducerBatch]:
    """Drain and acknowledge batches until none is drained. Return them."""
    batches: list[ProducerBatch] = []
    while flying := fly(rules, connection):
        batches += flying
        for batch in flying:
            told(rules, batch)
    return batches


def numbers(*batches: ProducerBatch) -> list[tuple[int, int]]:
    """The epoch and number of each."""
    return [(batch.identity.epoch, batch.sequence) for batch in batches]


# Rules 1 and 2: numbers at drain, five of them


def test_five_are_numbered_and_no_more() -> None:
    """The partition queue numbers as many batches as a broker remembers. Batches that wait for a retry count too (IDM-13)."""
    rules, queue = known()
    more(rules, queue, 8)
    batches = fly(rules)
    assert numbers(*batches) == [(0, number) for number in range(1, 1 + WINDOW)]
    told(rules, batches[0], LOST)  # waits to be sent again: it has a number still
    assert fly(rules) == []
    for batch in batches[1:]:
        told(rules, batch, LOST)
    told(rules, fly(rules)[0])
    assert len(fly(rules)) == WINDOW


def test_the_first_of_an_epoch_goes_alone() -> None:
    """A broker that knows nothing of the producer takes any number for the first."""
    rules, _ = idempotent(3)
    (first,) = fly(rules)
    told(rules, first, MOVED)
    (again,) = fly(rules)
    assert again is first
    told(rules, again)
    assert numbers(*fly(rules)) == [(0, 1), (0, 2)]


@pytest.mark.parametrize(("silence", "at_once"), [(59.0, 3), (61.0, 1)])
def test_the_first_after_a_silence_goes_alone(silence: float, at_once: int) -> None:
    """Nor does a broker that has forgotten the producer."""
    rules, queue = known()
    for record in range(3):
        put(rules, queue, record, now=silence)
        rules.close(queue)
    batches = fly(rules)
    assert len(batches) == at_once
    for batch in batches:
        told(rules, batch)
    assert len(fly(rules)) == 3 - at_once


def test_a_new_leader_gets_one_first() -> None:
    """It may know less than the old one did (KAFKA-18905)."""
    rules, (queue,) = idempotent()
    arrived(rules, queue, 2)
    more(rules, queue, 3)
    install(rules, topic(2, epoch=1))
    (first,) = sent(rules, 2)
    assert sent(rules, 2) == []
    told(rules, first)
    assert numbers(*sent(rules, 2), *sent(rules, 2)) == [(0, 3), (0, 4)]


def test_the_second_is_acknowledged_first() -> None:
    """[CorrectHandlingOfOutOfOrderResponsesWhenSecondSucceeds] What that shows of the first is for its own answer to say."""
    rules, queue = known()
    more(rules, queue, 2)
    first, second = fly(rules)
    told(rules, first, LOST)
    told(rules, second)
    (again,) = fly(rules)
    assert (again, numbers(again)) == (first, [(0, 1)])
    told(rules, again)
    more(rules, queue)
    assert numbers(*fly(rules)) == [(0, 3)]


# Rule 3: lost


def test_what_follows_a_refused_batch_is_numbered_anew() -> None:
    """Under the next epoch, in order, when nothing is in flight (IDM-08, KIP-360)."""
    rules, queue = known()
    more(rules, queue, 3)
    refused, second, third = fly(rules)
    for batch in (second, third):
        batch.header = b"of the old number"
    told(rules, refused, "INVALID_REQUEST")
    told(rules, second, OUT_OF_ORDER)
    more(rules, queue)
    assert fly(rules) == []  # the third is still in flight
    told(rules, third, LOST)
    again = fly(rules)
    assert again == [second]  # the first of an epoch goes alone
    assert (numbers(second, third), second.header, third.header) == ([(1, 0), (1, 1)], None, None)
    assert not third.may_be_written  # it needed the refused one before it
    told(rules, second)
    assert numbers(*fly(rules)) == [(1, 1), (1, 2)]


def test_what_is_lost_waits_for_those_before_it() -> None:
    """They end under their old numbers."""
    rules, queue = known()
    more(rules, queue, 3)
    first, second, third = fly(rules)
    told(rules, first, LOST)
    told(rules, second, "INVALID_REQUEST")
    told(rules, third, OUT_OF_ORDER)
    (again,) = fly(rules)
    assert (again, numbers(again)) == (first, [(0, 1)])
    told(rules, again)
    assert fly(rules) == [third]
    assert numbers(third) == [(1, 0)]


def test_a_number_below_one_that_is_in_the_log_is_never_used_again() -> None:
    """Its broker would take what comes for what it has. (Only a log that took any first number can have it so.)"""
    rules, queue = known()
    more(rules, queue, 2)
    first, second = fly(rules)
    told(rules, first, MOVED)
    told(rules, second)
    ProduceAttempts(rules).fail(first)
    more(rules, queue)
    assert numbers(*fly(rules)) == [(1, 0)]


# Rule 4: gaps


@pytest.mark.parametrize("is_expired_in_flight", [True, False])
def test_a_gap_that_closes(*, is_expired_in_flight: bool) -> None:
    """[ExpiryOfFirstBatchShouldNotCauseUnresolvedSequencesIfFutureBatchesSucceed] What follows is acknowledged, so it is there."""
    rules, queue = known()
    more(rules, queue, 2)
    first, second = fly(rules)
    if not is_expired_in_flight:
        told(rules, first, LOST)
    ProduceAttempts(rules).fail(first)
    more(rules, queue)
    assert fly(rules) == []  # nothing new before it is known
    told(rules, second)
    if is_expired_in_flight:
        told(rules, first, MOVED)
    assert numbers(*fly(rules)) == [(0, 3)]


def test_a_gap_that_stays() -> None:
    """[ExpiryOfFirstBatchShouldCauseEpochBumpIfFutureBatchesFail] What follows is refused, so it is not there: a new epoch."""
    rules, queue = known()
    more(rules, queue, 3)
    first, second, third = fly(rules)
    ProduceAttempts(rules).fail(first)
    told(rules, first, LOST)
    assert told(rules, second, OUT_OF_ORDER) is Action.RENUMBER
    assert told(rules, third, OUT_OF_ORDER) is Action.AWAIT
    assert fly(rules) == [second]
    assert numbers(second, third) == [(1, 0), (1, 1)]


def test_a_number_behind_a_gap_is_not_free() -> None:
    """The broker may have refused the second batch because of the gap. The client begins a new epoch."""
    rules, queue = known()
    more(rules, queue, 2)
    gone, refused = fly(rules)
    told(rules, gone, LOST)
    ProduceAttempts(rules).fail(gone)
    told(rules, refused, "INVALID_REQUEST")
    more(rules, queue)
    assert numbers(*fly(rules)) == [(1, 0)]


# Rule 5: epochs and ids


def test_an_epoch_is_a_partitions_own() -> None:
    """The others go on as they are (IDM-06)."""
    rules, (queue, other) = idempotent(partitions=2)
    arrived(rules, queue)
    arrived(rules, other)
    stray(rules, queue)
    more(rules, queue)
    more(rules, other)
    assert {(batch.queue, *numbers(batch)) for batch in fly(rules)} == {
        (queue, (1, 0)),
        (other, (0, 1)),
    }


def test_batches_of_the_old_id_end_first() -> None:
    """[BatchesDrainedWithOldProducerIdShouldSucceedOnSubsequentRetry] Their answers count (fault 63, IDM-10)."""
    rules, queue = known()
    more(rules, queue, 2)
    first, second = fly(rules)
    rules.idempotence.lose_identity()
    told(rules, first, LOST)
    told(rules, second, LOST)
    more(rules, queue)
    rules.identify(ProducerIdAndEpoch(8, 0))
    *old, latest = delivered(rules)
    assert (old, numbers(*old), first.identity.producer_id) == (
        [first, second],
        [(0, 1), (0, 2)],
        7,
    )
    assert (latest.identity, latest.sequence) == (ProducerIdAndEpoch(8, 0), 0)


def test_a_late_answer_to_an_old_id_changes_nothing() -> None:
    """[IDM-10]"""
    rules, (queue,) = idempotent()
    arrived(rules, queue, 3)
    assert queue.numbers is not None
    (old,) = more(rules, queue)
    fly(rules)
    ProduceAttempts(rules).fail(old)
    told(rules, old, LOST)
    more(rules, queue)
    (new,) = fly(rules)
    ProduceAttempts(rules).complete_late(old)
    assert (queue.numbers.identity.epoch, queue.numbers.acked, list(queue.numbers.outstanding)) == (
        1,
        -1,
        [new],
    )


def test_another_id_waits_until_the_old_ones_straggler_is_refused() -> None:
    """Only the old id's next epoch does that: where there is a gap, that comes before the new id."""
    rules, queue = known()
    stray(rules, queue)
    rules.identify(ProducerIdAndEpoch(8, 0))
    more(rules, queue, 2)
    (first,) = fly(rules)
    assert first.identity == ProducerIdAndEpoch(7, 1)
    told(rules, first)
    (second,) = fly(rules)
    assert (second.identity, second.sequence) == (ProducerIdAndEpoch(8, 0), 0)


def test_another_id_waits_although_the_refusing_batch_was_refused() -> None:
    """Only what is in the log keeps strays out."""
    rules, queue = known()
    stray(rules, queue)
    rules.identify(ProducerIdAndEpoch(8, 0))
    more(rules, queue, 3)
    told(rules, fly(rules)[0], "INVALID_REQUEST")
    (second,) = fly(rules)
    assert second.identity == ProducerIdAndEpoch(7, 2)
    told(rules, second)
    assert [batch.identity for batch in fly(rules)] == [ProducerIdAndEpoch(8, 0)]


def test_who_is_fenced_fears_no_strays() -> None:
    """The epoch that refused it refuses them."""
    rules, queue = known()
    stray(rules, queue)
    (next_one,) = more(rules, queue)
    fly(rules)
    told(rules, next_one, FENCED)
    rules.identify(ProducerIdAndEpoch(8, 0))
    assert fly(rules) == [next_one]
    assert next_one.identity == ProducerIdAndEpoch(8, 0)


# Wrap


# Splits


def test_a_split_keeps_numbers() -> None:
    """[SplitBatchAndSend] Its parts have those of its records, and what follows keeps its own."""
    rules, queue = known()
    more(rules, queue, 2, size=4)
    first, second = fly(rules)
    parts = split(rules, first)
    assert told(rules, second, OUT_OF_ORDER) is Action.AWAIT
    assert delivered(rules) == [*parts, second]
    assert numbers(*parts, second) == [(0, 1), (0, 3), (0, 5)]


# A topic that is made anew


@pytest.mark.parametrize(
    "ids", [(b"B" * 16,), (b"B" * 16, b"A" * 16, b"B" * 16)], ids=["once", "an old answer between"]
)
def test_a_new_log_begins_a_new_epoch(ids: tuple[bytes, ...]) -> None:
    """Never an earlier number again: if the log is an old one after all, it would know it."""
    rules, (queue,) = idempotent()
    install(rules, topic(1, topic_id=b"A" * 16))
    arrived(rules, queue)
    for epoch, topic_id in enumerate(ids, 1):
        install(rules, topic(1, topic_id=topic_id))
        more(rules, queue)
        (batch,) = fly(rules)
        assert numbers(batch) == [(epoch, 0)]
        told(rules, batch)


def test_what_is_numbered_goes_on_in_a_new_log() -> None:
    """It takes any first number."""
    rules, (queue,) = idempotent()
    install(rules, topic(1, topic_id=b"A" * 16))
    arrived(rules, queue)
    (batch,) = more(rules, queue)
    fly(rules)
    told(rules, batch, "UNKNOWN_TOPIC_ID")
    install(rules, topic(1, topic_id=b"B" * 16))
    assert fly(rules) == [batch]
    assert numbers(batch) == [(0, 1)]


def test_a_new_log_in_the_last_epoch() -> None:
    """Another id is asked for."""
    asked: list[str] = []
    rules, (queue,) = idempotent(epoch=LAST_EPOCH)
    rules.idempotence.on_identity_lost = lambda: asked.append("id")
    install(rules, topic(1, topic_id=b"A" * 16))
    arrived(rules, queue)
    install(rules, topic(1, topic_id=b"B" * 16))
    assert asked == ["id"]


# Rule 6: forgotten topics


def forget(rules: PartitionQueues, name: str) -> bool:
    return whole(forgetting(rules, rules.routings[name], lambda _: False, lambda _: None))


def forgotten(rules: PartitionQueues) -> bool:
    return forget(rules, "t")


def again(rules: PartitionQueues) -> PartitionQueue:
    """The topic, as it comes back."""
    return install(rules, topic(1)).queues[0]


def goes(rules: PartitionQueues, queue: PartitionQueue) -> list[ProducerBatch]:
    """One more batch is acknowledged."""
    batches = more(rules, queue)
    assert delivered(rules) == batches
    return batches


def test_one_epoch_serves_all_that_were_forgotten() -> None:
    """The partitions that were kept go on in their epoch. The epoch grows when a partition is forgotten that was in the newest epoch."""
    rules, queues = idempotent(partitions=2)
    for queue in queues:
        arrived(rules, queue)
    other = install(rules, topic(1, name="u")).queues[0]
    arrived(rules, other)
    assert forgotten(rules)
    first = again(rules)
    assert numbers(*goes(rules, other), *goes(rules, first)) == [(0, 1), (1, 0)]
    assert forget(rules, "u")
    assert numbers(*goes(rules, install(rules, topic(1, name="u")).queues[0])) == [(1, 0)]
    assert forgotten(rules)
    assert numbers(*goes(rules, again(rules))) == [(2, 0)]


def test_a_topic_is_not_forgotten_while_a_late_answer_may_come() -> None:
    """The topic stays while an expired batch is in flight."""
    rules, queue = known()
    (batch,) = more(rules, queue)
    fly(rules)
    ProduceAttempts(rules).fail(batch)
    assert not forgotten(rules)
    told(rules, batch, LOST)
    assert forgotten(rules)


def test_another_id_knows_nothing_of_what_was_forgotten_before() -> None:
    """Its partitions begin at its own epoch; when they are forgotten, theirs counts."""
    rules, _ = known()
    assert forgotten(rules)
    rules.identify(ProducerIdAndEpoch(8, 0))
    assert numbers(*goes(rules, again(rules))) == [(0, 0)]
    assert forgotten(rules)
    assert numbers(*goes(rules, again(rules))) == [(1, 0)]


def test_strays_of_a_forgotten_topic_are_refused_when_it_comes_back() -> None:
    """By the next epoch of their own id, though the producer has another by then."""
    rules, queue = known()
    (batch,) = more(rules, queue)
    fly(rules)
    ProduceAttempts(rules).fail(batch)
    told(rules, batch, LOST)
    assert forgotten(rules)
    rules.identify(ProducerIdAndEpoch(8, 0))
    first, second = more(rules, again(rules), 2)
    delivered(rules)
    assert (first.identity, second.identity) == (ProducerIdAndEpoch(7, 1), ProducerIdAndEpoch(8, 0))


# Transactions


def test_a_transaction_never_begins_an_epoch() -> None:
    """Its coordinator does: until then what has a number keeps it, and nothing new is sent."""
    rules, (queue,) = idempotent()
    rules.idempotence.is_transactional = True
    arrived(rules, queue)
    more(rules, queue, 2)
    refused, second = fly(rules)
    told(rules, refused, "INVALID_REQUEST")
    told(rules, second, LOST)
    more(rules, queue)
    assert fly(rules) == [second]
    assert numbers(second) == [(0, 2)]
    assert told(rules, second, OUT_OF_ORDER) is Action.FAIL
    assert fly(rules) == []
    rules.identify(ProducerIdAndEpoch(7, 1))
    assert numbers(*fly(rules)) == [(1, 0)]


def test_a_transaction_asks_for_no_id() -> None:
    """In the last epoch too."""
    asked: list[str] = []
    rules, (queue,) = idempotent(epoch=LAST_EPOCH)
    rules.idempotence.on_identity_lost = lambda: asked.append("id")
    rules.idempotence.is_transactional = True
    more(rules, queue)
    (gone,) = fly(rules)
    ProduceAttempts(rules).fail(gone)
    assert asked == []


def test_in_another_cluster_a_forgotten_past_does_not_count() -> None:
    """Nor does it ask for an epoch of the old id."""
    rules, (queue,) = idempotent()
    arrived(rules, queue)
    rules.idempotence.forget(queue)
    leave_cluster(rules)
    rules.identify(ProducerIdAndEpoch(8, 0))
    queue.numbers = None
    more(rules, queue)
    (batch,) = delivered(rules)
    assert (batch.identity, batch.sequence) == (ProducerIdAndEpoch(8, 0), 0)


def test_without_numbers_another_cluster_changes_nothing() -> None:
    """Nor with transactions: their coordinator grants ids."""
    rules, _ = idempotent(1)
    rules.idempotence.is_transactional = True
    leave_cluster(rules)
    assert rules.idempotence.granted == ProducerIdAndEpoch(7, 0)
    rules.idempotence.granted = None
    leave_cluster(rules)
    assert rules.idempotence.granted is None
