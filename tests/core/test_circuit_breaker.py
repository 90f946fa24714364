"""Tests of `aioproducer.core.circuit_breaker`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.core.circuit_breaker import FailureRateCircuitBreaker, PartitionCircuit, counts
from aioproducer.errors import (
    ConnectionLost,
    KafkaError,
    ProtocolError,
    RecordTooLarge,
    RequestTimedOut,
    broker_error,
)
from aioproducer.model import CircuitState, TopicPartition

PARTITION = TopicPartition("orders", 3)
OTHER = TopicPartition("orders", 4)
FAILED = RequestTimedOut("late")


class Manager:
    """Mutes, and remembers what."""

    def __init__(self) -> None:
        self.muted: list[int | TopicPartition] = []

    def mute(self, place: int | TopicPartition) -> None:
        self.muted.append(place)

    def is_muted(self, partition: TopicPartition) -> bool:
        return partition in self.muted


def made(**options: Any) -> tuple[FailureRateCircuitBreaker, Manager]:
    """A breaker that mutes when half of 10 records or more of the last second or two failed."""
    breaker, manager = FailureRateCircuitBreaker(), Manager()
    defaults = {
        "trigger_message_count": 10,
        "trigger_failure_perc": 50,
        "mute_retry_interval_ms": 1000,
        "enable_mute_inflight_full": False,
    }
    breaker.configure({**defaults, **options})
    breaker.set_circuit_break_manager(manager)  # type: ignore[arg-type]
    return breaker, manager


def context(now: float = 0.0, records: int = 1, in_flight: int = 0) -> Any:
    return SimpleNamespace(
        now=now, records=records, node_id=7, partition=PARTITION, in_flight_requests={7: in_flight}
    )


# Counted errors


@pytest.mark.parametrize(
    ("error", "is_counted"),
    [
        (ConnectionLost("gone"), True),
        (RequestTimedOut("late"), True),
        (ProtocolError("no Kafka"), True),
        (broker_error("NOT_LEADER_OR_FOLLOWER"), True),
        (broker_error("FENCED_LEADER_EPOCH"), True),
        (broker_error("NOT_ENOUGH_REPLICAS"), True),
        (broker_error("NOT_ENOUGH_REPLICAS_AFTER_APPEND"), True),
        (broker_error("KAFKA_STORAGE_ERROR"), True),
        (broker_error("REQUEST_TIMED_OUT"), True),
        (broker_error("MESSAGE_TOO_LARGE"), False),
        (broker_error("TOPIC_AUTHORIZATION_FAILED"), False),
        (broker_error("INVALID_RECORD"), False),
        (broker_error("OUT_OF_ORDER_SEQUENCE_NUMBER"), False),
        (broker_error(12345), False),
        (RecordTooLarge("large"), False),
    ],
    ids=lambda value: str(value).partition(" ")[0],
)
def test_only_what_speaks_against_a_partition_counts(error: KafkaError, is_counted: bool) -> None:
    """Transport, leader, replica and timeout errors."""
    assert counts(error) is is_counted
    breaker, manager = made()
    assert breaker.on_complete(context(records=10), PARTITION, error) is is_counted
    assert manager.muted == ([PARTITION] if is_counted else [])


# A circuit


def test_a_circuit_opens_for_longer_with_each_probe_that_fails() -> None:
    """1, 2, 4 s, up to the longest."""
    circuit = PartitionCircuit(10.0, 1.0, FAILED)
    assert (circuit.state, circuit.due) == (CircuitState.OPEN, 11.0)
    intervals = []
    now = circuit.due
    for _ in range(4):
        assert circuit.probe()
        assert circuit.fail(now, 5.0, FAILED)
        intervals.append(circuit.due - now)
        now = circuit.due
    assert intervals == [2.0, 4.0, 5.0, 5.0]


def test_only_a_probe_moves_a_circuit() -> None:
    """An attempt that was in flight when the circuit opened leaves the circuit as it is. A probe begins only once."""
    circuit = PartitionCircuit(10.0, 1.0, None)
    assert not circuit.fail(10.5, 5.0, FAILED)
    assert (circuit.due, circuit.interval, circuit.cause) == (11.0, 1.0, None)
    assert circuit.probe()
    assert not circuit.probe()
    assert circuit.fail(11.5, 5.0, FAILED)
    assert (circuit.due, circuit.cause) == (13.5, FAILED)
    assert repr(circuit) == "<PartitionCircuit open, 2 s>"


# The failure rate


def test_a_rate_below_the_trigger_mutes_nothing() -> None:
    """Nine of nineteen; the tenth of twenty is one too many."""
    breaker, manager = made()
    assert not breaker.on_complete(context(records=10), PARTITION, None)
    assert not breaker.on_complete(context(records=9), PARTITION, FAILED)
    assert manager.muted == []
    assert breaker.on_complete(context(), PARTITION, FAILED)
    assert manager.muted == [PARTITION]


def test_a_few_records_say_nothing() -> None:
    """The breaker does not mute below `trigger_message_count` records, at any rate of failures."""
    breaker, manager = made()
    for _ in range(9):
        assert not breaker.on_complete(context(), PARTITION, FAILED)
    assert breaker.on_complete(context(), PARTITION, FAILED)
    assert manager.muted == [PARTITION]


def test_partitions_are_counted_apart() -> None:
    """Nine failures of each of two are nine."""
    breaker, manager = made()
    for partition in (PARTITION, OTHER):
        breaker.on_complete(context(records=9), partition, FAILED)
    assert manager.muted == []
    breaker.on_complete(context(), OTHER, FAILED)
    assert manager.muted == [OTHER]


@pytest.mark.parametrize(
    ("later", "is_muted"), [(0.9, True), (1.9, True), (2.0, False), (500.0, False)]
)
def test_what_failed_long_ago_is_forgotten(later: float, is_muted: bool) -> None:
    """After two intervals nothing of it counts; after one it still does, and so do the successes."""
    breaker, manager = made()
    breaker.on_complete(context(now=0.0, records=9), PARTITION, FAILED)
    assert breaker.on_complete(context(now=later), PARTITION, FAILED) is is_muted
    assert bool(manager.muted) is is_muted


def test_what_was_well_long_ago_is_forgotten_too() -> None:
    """A partition that was well for years is muted within two intervals of failures."""
    breaker, manager = made()
    for second in range(100):
        breaker.on_complete(context(now=float(second), records=1000), PARTITION, None)
    breaker.on_complete(context(now=100.0, records=10), PARTITION, FAILED)
    assert manager.muted == []
    breaker.on_complete(context(now=101.0, records=10), PARTITION, FAILED)
    assert manager.muted == [PARTITION]


def test_a_partition_that_is_restored_begins_anew() -> None:
    """Its failures of before say nothing any more, or it would be muted by the next one."""
    breaker, manager = made()
    breaker.on_complete(context(records=30), PARTITION, FAILED)
    assert not breaker.on_complete(context(records=30), PARTITION, FAILED), (
        "it is muted: its probes are the manager's"
    )
    manager.muted.clear()
    breaker.on_complete(context(records=9), PARTITION, None)
    breaker.on_complete(context(records=8), PARTITION, FAILED)
    assert manager.muted == []


@pytest.mark.parametrize(("in_flight", "muted"), [(1, [7]), (0, [])])
def test_with_one_request_in_flight_a_broker_that_is_full_is_muted(
    in_flight: int, muted: list[int]
) -> None:
    """`enable_mute_inflight_full`: what has not come back still holds the slot; what has failed does not."""
    breaker, manager = made(enable_mute_inflight_full=True)
    assert breaker.on_complete(context(in_flight=in_flight), PARTITION, FAILED) is bool(muted)
    assert manager.muted == muted


def test_nothing_is_kept_of_partitions_that_nobody_sends_to() -> None:
    """Topics come and go; what is kept is of the last two intervals."""
    breaker, _ = made()
    for number in range(1000):
        breaker.on_complete(context(now=number * 0.1), TopicPartition(f"topic-{number}", 0), None)
    assert len(breaker._now) + len(breaker._before) <= 20
    breaker.close()
    assert not breaker._now
    assert not breaker._before
