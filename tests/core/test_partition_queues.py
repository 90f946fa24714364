"""Tests of `aioproducer.core.partition_queues`: one rule each.

The module `test_partition_queues_machine` tries the rules in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from batches import answered, install, more, partition_queues, put, sent, topic

from aioproducer.core import topic_routing as module
from aioproducer.core.drain_policy import DrainPolicy, Linger
from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.partition_queues import (
    NO_LEADER,
    PartitionQueue,
    PartitionQueues,
    ReadyPartitions,
)
from aioproducer.core.producer_batch import ProducerBatch, State
from aioproducer.core.retries import ProduceAttempts
from aioproducer.core.sequence_numbers import Idempotence
from aioproducer.core.topic_routing import TopicRouting, murmur2

if TYPE_CHECKING:
    from aioproducer.core.metadata.cluster_metadata import TopicView


@pytest.mark.parametrize("options", [{"linger": 5}, {"by_load": True}])
def test_hurry_leaves_open_what_stands_behind_others(options: dict[str, Any]) -> None:
    """The queue leaves a batch behind others open, since an early close would not send it sooner.

    It is drained without linger while memory is short.
    """
    rules, (queue,) = partition_queues(1, **options)
    ahead = [put(rules, queue), put(rules, queue)]
    rules.close(queue)
    batch = put(rules, queue)
    rules.ready.memory_is_short = True
    rules.flush_partial_batches()
    assert batch.state is State.OPEN
    assert [sent(rules, 1), sent(rules, 1)] == [ahead[:1], [batch]]


def test_a_request_is_full() -> None:
    """A batch that does not fit into the request stays at the head of its queue."""
    rules, queues = partition_queues(1, 1, 1)
    for queue in queues:
        put(rules, queue)
    assert [batch.queue.partition for batch in sent(rules, 1, limit=20)] == [0, 1]
    assert [batch.queue.partition for batch in sent(rules, 1, limit=20)] == [2]


def test_a_partition_that_waits_holds_up_no_other() -> None:
    """Its batch is in flight on another connection."""
    rules, (first, second) = partition_queues(1, 1)
    put(rules, first)
    sent(rules, 1, "another lane")
    put(rules, first)
    batch = put(rules, second)
    assert sent(rules, 1) == [batch]


def test_after_a_failure_one_goes_at_a_time_until_one_succeeds() -> None:
    """So that a partition's records keep their order while its broker has trouble."""
    rules, (queue,) = partition_queues(1)
    batches = more(rules, queue, 4)
    sent(rules, 1)
    answered(rules, batches[0], retry_at=0.0)
    assert sent(rules, 1) == [batches[0]]
    assert sent(rules, 1) == []
    answered(rules, batches[0])
    assert [sent(rules, 1) for _ in range(3)] == [[batches[1]], [batches[2]], [batches[3]]]


def test_the_success_of_one_that_was_in_flight_beside_a_failed_one_proves_nothing() -> None:
    """Only the retried one's does: else it would go with those behind it, and could be refused once more between them."""
    rules, (queue,) = partition_queues(1)
    batches = more(rules, queue, 4)
    for _ in range(3):
        sent(rules, 1)
    answered(rules, batches[0], retry_at=0.0)
    answered(rules, batches[1])
    assert sent(rules, 1) == [], "the third is still in flight"
    answered(rules, batches[2])
    assert sent(rules, 1) == [batches[0]]
    assert sent(rules, 1) == []
    answered(rules, batches[0])
    assert sent(rules, 1) == [batches[3]]


def test_eager_batches_do_not_linger() -> None:
    """While memory is short."""
    rules, (queue,) = partition_queues(1, linger=5)
    rules.ready.memory_is_short = True
    batch = put(rules, queue)
    assert sent(rules, 1) == [batch]


@pytest.mark.parametrize("moved", [False, True], ids=["passed over", "leader moved"])
def test_an_eager_batch_that_lost_its_place_goes_after_linger(*, moved: bool) -> None:
    """It was opened while memory was short, could not go then, and memory is no longer short: it must not lie there for ever."""
    rules, (queue,) = partition_queues(1, linger=5)
    rules.ready.memory_is_short = True
    first = put(rules, queue, now=100)
    sent(rules, 1)
    second = put(rules, queue, now=100)
    if moved:
        rules.ready.memory_is_short = False
        install(rules, topic(2))
        answered(rules, first)
    else:
        assert sent(rules, 1, "another lane") == []
        rules.ready.memory_is_short = False
        answered(rules, first)
    moment = rules.deadlines.next()
    assert moment == 105
    rules.wake(moment)
    assert sent(rules, queue.leader) == [second]


def test_by_load_nothing_waits_while_memory_is_short() -> None:
    """Neither what waited already, nor what comes; and nothing that came then is left behind when memory is no longer short."""
    rules, (queue, other) = partition_queues(1, 1, by_load=True)
    first, elsewhere = put(rules, queue), put(rules, other)
    sent(rules, 1)
    waits = put(rules, queue)
    rules.ready.memory_is_short = True
    rules.flush_partial_batches()
    comes = put(rules, other)
    assert sent(rules, 1) == [waits, comes]
    late = put(rules, other)
    assert sent(rules, 1, "another lane") == []
    rules.ready.memory_is_short = False
    for batch in (first, elsewhere, waits, comes):
        answered(rules, batch)
    assert sent(rules, 1, "another lane") == [late]


def test_by_load_hurry_leaves_open_what_waits_for_nothing_in_flight() -> None:
    """It is ready anyway, and fills until its connection stands."""
    rules, (queue,) = partition_queues(1, by_load=True)
    batch = put(rules, queue)
    rules.flush_partial_batches()
    assert batch.state is State.OPEN
    assert sent(rules, 1) == [batch]


def test_by_load_a_broker_that_does_not_answer_is_late() -> None:
    """As something waits for it, though it could take that: otherwise a trickle without keys would fill that batch for minutes."""
    rules, (queue,) = partition_queues(1, by_load=True)
    rules.availability.timeout = 5.0
    put(rules, queue, now=0.0)
    sent(rules, 1)
    put(rules, queue, now=1.0)
    rules.availability.look(6.0, rules.ready)
    assert rules.availability.late == 0
    rules.availability.look(6.1, rules.ready)
    assert rules.availability.late == 1


def test_a_batch_that_is_opened_within_an_opening_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log handler sends to the partition while its batch is made (rule 9): both batches have their own place."""
    rules, (queue,) = partition_queues(1)
    inner = []

    def made(*arguments: Any, **options: Any) -> ProducerBatch:
        batch = ProducerBatch(*arguments, **options)
        if not inner:
            inner.append(batch)
            inner[0] = put(rules, queue, 1)
        return batch

    monkeypatch.setattr("aioproducer.core.partition_queues.ProducerBatch", made)
    outer = put(rules, queue, 2)
    assert inner[0].place < outer.place
    assert [sent(rules, 1), sent(rules, 1)] == [inner, [outer]]


def test_partitions_take_turns() -> None:
    """A drained partition moves to the end of the ready queue, so that no partition starves in small requests."""
    rules, queues = partition_queues(1, 1, 1)
    for record in range(2):
        for queue in queues:
            put(rules, queue, record)
            rules.close(queue)
    order = [batch.queue.partition for _ in range(6) for batch in sent(rules, 1, limit=10)]
    assert order == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("options", [{"linger": 5}, {"by_load": True}])
def test_a_ripe_batch_takes_more_until_its_turn_comes(options: dict[str, Any]) -> None:
    """KIP-782: a sendable batch takes more records until it is drained.

    It waits for nothing else. The open batch behind it is not sendable yet.
    """
    rules, (queue,) = partition_queues(1, **options)
    put(rules, queue)
    rules.close(queue)
    (flying,) = sent(rules, 1)
    batch = put(rules, queue)
    rules.mark_sendable(queue)
    assert put(rules, queue, 1) is batch
    assert sent(rules, 1) == [batch]
    assert batch.count == 2
    later = put(rules, queue)
    assert sent(rules, 1) == []
    assert (flying.state, later.state) == (State.IN_FLIGHT, State.OPEN)


def to_send_again(rules: PartitionQueues, queue: PartitionQueue) -> ProducerBatch:
    """A batch that stands before all others until the time 100."""
    batch = put(rules, queue)
    rules.close(queue)
    sent(rules, 1)
    answered(rules, batch, retry_at=100)
    return batch


def test_what_lingered_takes_more_until_its_turn_comes() -> None:
    """A batch that has lingered takes more records until it is drained.

    Otherwise small batches would queue up when a round trip is longer than the linger.
    """
    rules, (queue,) = partition_queues(1, linger=5)
    batch = to_send_again(rules, queue)
    second = put(rules, queue)
    rules.wake(50)
    assert put(rules, queue) is second
    rules.wake(100)
    assert sent(rules, 1) == [batch]
    answered(rules, batch)
    assert sent(rules, 1) == [second]
    assert second.count == 2


def test_a_key_has_one_partition() -> None:
    """Java's: the positive murmur2 modulo all partitions, also those without a leader (MET-16)."""
    rules, queues = partition_queues(*[NO_LEADER] * 7)
    routing = rules.routings["t"]
    for number in range(100):
        key = b"key %d" % number
        assert routing.by_key[key] is queues[(murmur2(key) & 0x7FFFFFFF) % 7]
        assert key in routing.by_key


@pytest.mark.parametrize(
    "key",
    ["text", bytearray(b"bytes"), memoryview(b"bytes"), 1],
    ids=lambda key: type(key).__name__,
)
def test_a_key_is_bytes(key: object) -> None:
    """The topic routing refuses a key that equals bytes but is mutable, since it cannot be a key of a dictionary."""
    rules, _ = partition_queues(1)
    with pytest.raises(TypeError):
        _ = rules.routings["t"].by_key[key]  # type: ignore[index]


def test_remembered_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic with a key for each record does not fill memory; nor are keys of long ago kept for ever in the place of today's."""
    monkeypatch.setattr(module, "_KEYS", 10)
    monkeypatch.setattr(module, "_STRANGERS", 50)
    routing = partition_queues(1, 1)[0].routings["t"]
    for number in range(200):
        _ = routing.by_key[b"%d" % number]
        assert len(routing.by_key) <= 10
    assert b"0" not in routing.by_key
    for number in range(200, 260):
        _ = routing.by_key[b"%d" % number]
    assert any(int(key) >= 200 for key in routing.by_key)


def test_the_same_partitions_told_again() -> None:
    """Nothing is forgotten."""
    rules, (queue, _) = partition_queues(1, 1)
    routing = rules.routings["t"]
    _ = routing.by_key[b"key"]
    routing.sticky = queue
    install(rules, topic(2, 1))
    assert b"key" in routing.by_key
    assert routing.sticky is queue


def known(*leaders: int) -> TopicView:
    return topic(*leaders, topic_id=b"sixteen bytes id")


def test_a_partition_that_is_no_more_is_forgotten_with_its_last_batch() -> None:
    """Nothing waits for it."""
    rules, (_, gone) = partition_queues(1, 1)
    install(rules, known(1, 1))
    batch = put(rules, gone)
    install(rules, topic(1, topic_id=b"another topic id"))
    ProduceAttempts(rules).fail(batch)
    assert install(rules, topic(1, 1, 1, topic_id=b"another topic id")).queues[1] is gone
    install(rules, topic(1, topic_id=b"the third one id"))
    assert not rules.routings["t"].gone


def test_a_topic_id_stays_known() -> None:
    """An older broker tells none; that does not make it unknown, nor is it another topic when the first broker tells one."""
    rules, _ = partition_queues(1)
    before = rules.routings["t"]
    assert install(rules, topic(1, topic_id=b"sixteen bytes id")) is before
    assert install(rules, topic(1, topic_id=b"sixteen bytes id")).topic_id == b"sixteen bytes id"
    assert install(rules, topic(1)).topic_id == b"sixteen bytes id"
    assert (
        install(rules, topic(1, 1)).topic_id == b"sixteen bytes id"
    )  # as a broker that knows no ids tells of a new partition
    assert install(rules, topic(1, topic_id=b"another topic id")).topic_id == b"another topic id"


def test_turns_are_taken_in_order_and_by_broker() -> None:
    """A partition that is ready already keeps its position. A second removal of a partition has no effect."""
    routing = TopicRouting("orders", NO_ID)
    queues = [
        PartitionQueue(routing, partition, leader, None)
        for partition, leader in enumerate((1, 2, 1, NO_LEADER))
    ]
    ready = ReadyPartitions(DrainPolicy(Linger.NONE), Idempotence())
    for queue in (*queues, queues[0]):
        ready[queue.leader][queue] = None
    assert ready.queues(1) == (queues[0], queues[2])
    assert set(ready.nodes()) == {1, 2, NO_LEADER}
    assert ready.topics(NO_LEADER) == {"orders"}
    ready.remove(queues[1])
    ready.remove(queues[1])
    assert set(ready.nodes()) == {1, NO_LEADER}
    assert (ready.queues(2), ready.queues(7), ready.topics(7)) == ((), (), set())
    assert not ready.get(2)
