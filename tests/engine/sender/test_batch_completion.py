"""Tests of `aioproducer.engine.sender.batch_completion`: what an answer makes of a batch, its deliveries and its memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.core.produce_exchange import PartitionResponse
from aioproducer.core.producer_batch import State
from aioproducer.engine.chosen_build import make_delivery
from aioproducer.engine.delivery.outcome import Outcome
from aioproducer.engine.sender.batch_completion import BatchCompletion
from aioproducer.engine.sender.flush import Flush
from aioproducer.errors import ConnectionLost, DeliveryError, KafkaError, Persisted, RecordTooLarge, broker_error
from tests.engine.append.parts import Parts, engine_context

PAUSE = 0.4


class Ends:
    """The part under test, beside those that append."""

    def __init__(self, **options: Any) -> None:
        self.parts = Parts(1, **options)
        self.completed: list[Any] = []
        self.too_large: list[Any] = []
        self.failed: list[tuple[int, str]] = []
        self.freed: list[Any] = []
        parts = self.parts
        beside: Any = (
            SimpleNamespace(add=self.completed.append, failed_batches=None),
            SimpleNamespace(retract=lambda topic, _codec, _ratio: self.too_large.append(topic)),
            SimpleNamespace(node=lambda _node_id: None),
            SimpleNamespace(freed=self.freed.append),
            SimpleNamespace(on_failure=lambda batch, error: self.failed.append((batch.count, error.reason))),
        )
        context = engine_context(parts.config, parts.clock, pause=PAUSE, chance=0.5)
        self.ends = BatchCompletion(context, parts.queues, parts.pool, *beside)

    def sent(self, records: int = 4) -> Any:
        """Append records and send them. Returns their batch."""
        for number in range(records):
            self.parts.place(b"%d" % number, partition=0)
        (batch,) = self.parts.sent()
        batch.on_wire = True
        batch.attempts = 1
        return batch

    def answer(self, batch: Any, name: str | None, *, now: float = 0.0, **told: Any) -> bool:
        error = None if name is None else broker_error(name)
        return self.ends.end_attempt(batch, PartitionResponse(error, **told), now)

    @property
    def taken(self) -> int:
        return self.parts.config.buffer_memory - self.parts.pool.available


def error_of(batch: Any, index: int = 0) -> DeliveryError:
    error = make_delivery(batch.result, index).exception()
    assert isinstance(error, DeliveryError)
    return error


def test_an_acknowledged_batch_gives_all_back() -> None:
    """Its deliveries have their offsets, its flush is over, and their waiters are told afterwards."""
    ends = Ends()
    batch = ends.sent()
    woken: list[bool] = []
    flush = ends.ends.watch(Flush([batch], lambda: woken.append(True)))
    assert not ends.answer(batch, None, base_offset=7)
    assert [make_delivery(batch.result, index).result().offset for index in range(4)] == [7, 8, 9, 10]
    assert (batch.state, batch.payload, ends.taken, ends.completed) == (State.DONE, None, 0, [batch.result])
    assert (flush.acknowledged, woken) == (4, [True])


def test_the_brokers_append_time_is_the_records_timestamp() -> None:
    ends = Ends()
    batch = ends.sent(1)
    ends.answer(batch, None, base_offset=0, log_append_time_ms=99)
    assert make_delivery(batch.result, 0).result().timestamp_ms == 99


@pytest.mark.parametrize(
    ("name", "retry_at", "refresh"),
    [("NOT_LEADER_OR_FOLLOWER", PAUSE, True), ("REQUEST_TIMED_OUT", PAUSE, False), ("CONCURRENT_TRANSACTIONS", 0.02, False)],
)
def test_a_batch_that_may_go_again_is_queued_in_its_place(name: str, retry_at: float, refresh: bool) -> None:
    """After a pause, which is short while a coordinator writes markers. It keeps its memory; its deliveries are pending."""
    ends = Ends()
    batch = ends.sent()
    before = ends.taken
    assert ends.answer(batch, name) is refresh
    assert (batch.state, ends.taken, batch.result.outcome) == (State.READY, before, Outcome.PENDING)
    assert ends.parts.sent() == []
    assert ends.parts.queues.deadlines.next() == pytest.approx(retry_at)
    ends.parts.queues.wake(retry_at)
    assert ends.parts.sent() == [batch]


@pytest.mark.parametrize(
    ("error", "now", "options", "persisted", "cause"),
    [
        (broker_error("TOPIC_AUTHORIZATION_FAILED"), 0.0, {}, Persisted.NO, "TOPIC_AUTHORIZATION_FAILED"),
        (broker_error("NOT_LEADER_OR_FOLLOWER"), 0.0, {"retries": 0, "enable_idempotence": False}, Persisted.NO, "NOT_LEADER"),
        (broker_error("NOT_LEADER_OR_FOLLOWER"), 1000.0, {}, Persisted.NO, "NOT_LEADER"),
        (ConnectionLost("it is gone"), 1000.0, {}, Persisted.MAYBE, "it is gone"),
    ],
    ids=["never", "no retry is left", "no time is left", "no answer"],
)
def test_a_batch_that_may_not_go_again_fails(error: Any, now: float, options: dict[str, Any], persisted: Persisted, cause: str) -> None:
    ends = Ends(**options)
    batch = ends.sent()
    ends.ends.end_attempt(batch, PartitionResponse(error), now)
    failure = error_of(batch, 3)
    assert (failure.persisted, failure.attempts, failure.topic, failure.partition) == (persisted, 1, "orders", 0)
    assert cause in str(failure.__cause__)
    assert (batch.ended, ends.taken) == (True, 0)
    assert [count for count, _ in ends.failed] == [4]


def test_a_batch_that_is_too_large_is_split_in_halves() -> None:
    """Each delivery and flush waits for its half. The topic's batches grow no more beyond `batch_size`."""
    ends = Ends()
    batch = ends.sent()
    flush = ends.ends.watch(Flush([batch], lambda: None))
    assert not ends.answer(batch, "MESSAGE_TOO_LARGE")
    first, second = ends.parts.routing.queues[0].closed
    assert (first.count, second.count, batch.result.outcome) == (2, 2, Outcome.SPLIT)
    assert ends.parts.routing.is_narrow
    assert ends.taken == first.credit + second.credit > 0
    assert ends.too_large == ["orders"]
    for half, offset in ((first, 50), (second, 60)):
        assert ends.parts.sent() == [half], "a part goes alone"
        ends.answer(half, None, base_offset=offset)
    assert [make_delivery(batch.result, index).result().offset for index in range(4)] == [50, 51, 60, 61]
    assert (flush.acknowledged, flush.pending, ends.taken) == (4, 0, 0)


def test_a_single_record_that_is_too_large_fails_with_its_size() -> None:
    ends = Ends()
    batch = ends.sent(1)
    ends.answer(batch, "MESSAGE_TOO_LARGE")
    cause = error_of(batch).__cause__
    assert isinstance(cause, RecordTooLarge)
    assert "Raise max.message.bytes of 'orders'" in str(cause)
    assert isinstance(cause.__cause__, KafkaError)


@pytest.mark.parametrize(("refused", "left"), [({1: "no key", 3: None}, [1, 3]), ({0: "bad"}, [0])])
def test_records_that_a_broker_names_fail_and_the_others_go_again(refused: dict[int, str | None], left: list[int]) -> None:
    """Each with the broker's words for it (KIP-467); the others are in one batch or several, in their order."""
    ends = Ends()
    batch = ends.sent()
    ends.answer(batch, "INVALID_RECORD", refused=refused)
    for index in left:
        assert (refused[index] or "INVALID_RECORD") in error_of(batch, index).reason
    assert [count for count, _ in ends.failed] == [1] * len(left)
    waiting = ends.parts.routing.queues[0].closed
    assert sum(each.count for each in waiting) == 4 - len(left)
    while again := ends.parts.sent():
        ends.answer(again[0], None, base_offset=5)
    assert {index for index in range(4) if make_delivery(batch.result, index).exception() is None} == {0, 1, 2, 3} - set(left)
    assert ends.taken == 0


def test_all_records_of_a_refused_batch_fail_each_with_its_own_words() -> None:
    ends = Ends()
    batch = ends.sent(2)
    ends.answer(batch, "INVALID_RECORD", refused={0: "first", 1: "second"})
    assert "first" in error_of(batch, 0).reason
    assert "second" in error_of(batch, 1).reason


@pytest.mark.parametrize("name", [None, "NOT_LEADER_OR_FOLLOWER"])
def test_a_late_answer_changes_no_outcome_and_frees_the_bytes(name: str | None) -> None:
    """A batch that expired on its way keeps its bytes until its connection is done with them."""
    ends = Ends()
    batch = ends.sent()
    ends.ends.fail(batch, ConnectionLost("too late"))
    assert ends.taken > 0
    assert not ends.answer(batch, name, base_offset=3)
    assert error_of(batch).reason == "too late"
    assert (ends.taken, ends.freed) == (0, [batch.queue])


def test_a_flush_that_was_given_up_is_no_longer_updated() -> None:
    ends = Ends()
    batch = ends.sent()
    flush = ends.ends.watch(Flush([batch], lambda: None))
    ends.ends.unwatch(flush)
    ends.ends.unwatch(flush)
    ends.answer(batch, None, base_offset=0)
    assert flush.pending == 4
