"""Decides when a partition is muted for a while, and when it is probed (KIP-693).

1. A circuit is open, then probing, then closed. A partition with a closed circuit has no circuit object. Only attempts that end
   while it is probing change it: attempts that were in flight when it opened are no new evidence.
2. A circuit is probed after its interval. A failed probe opens it for twice as long.
3. Transport, leader, replica and timeout errors count as failures. A refusal of the content (size, authorization, records) is an
   answer and counts neither as a failure nor as a success. If it answers a probe, it shows that the partition works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aioproducer.errors import BrokerError, TransportError
from aioproducer.interfaces import CircuitBreakManager, ProducerStatusContext
from aioproducer.model import CircuitState, TopicPartition

_LEADER: Final = frozenset(
    {
        "NOT_LEADER_OR_FOLLOWER",
        "LEADER_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
    }
)
_REPLICA: Final = frozenset(
    {
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "REPLICA_NOT_AVAILABLE",
        "BROKER_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
    }
)
_TIMEOUT: Final = frozenset({"REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"})
_COUNTED: Final = _LEADER | _REPLICA | _TIMEOUT


def counts(error: Exception) -> bool:
    """Return whether an attempt that ended with `error` counts as a failure of its partition."""
    return isinstance(error, TransportError) or (
        isinstance(error, BrokerError) and error.name in _COUNTED
    )


class PartitionCircuit:
    """Holds the circuit of a partition that is muted or probed.

    Args:
        now: the time, in seconds.
        interval: seconds that it is muted.
        cause: the error that opened it; None: the application muted it.

    Attributes:
        due: when it is to be probed.
    """

    __slots__ = ("cause", "due", "interval", "state")

    def __init__(self, now: float, interval: float, cause: Exception | None) -> None:
        self.state: CircuitState = CircuitState.OPEN
        self.interval: float = interval
        self.due: float = now + interval
        self.cause = cause

    def probe(self) -> bool:
        """Start to probe after the interval, or when another broker leads the partition. Returns False if it is probing already."""
        if self.state is CircuitState.PROBING:
            return False
        self.state = CircuitState.PROBING
        return True

    def fail(self, now: float, longest: float, cause: Exception | None) -> bool:
        """Note that an attempt failed. Returns True if the circuit is open again.

        It opens for twice as long, at most `longest` seconds, if the attempt was the probe.
        """
        if self.state is not CircuitState.PROBING:
            return False
        self.state = CircuitState.OPEN
        self.interval = min(self.interval * 2, longest)
        self.due = now + self.interval
        self.cause = cause
        return True

    def __repr__(self) -> str:
        return f"<PartitionCircuit {self.state}, {self.interval:g} s>"


class FailureRateCircuitBreaker:
    """Mutes a partition when too many of its recent records failed (KIP-693's default; an `interfaces.PartitionCircuitBreaker`).

    "Recent" is the last one to two intervals of `mute_retry_interval_ms`. Records are counted once for each attempt of their batch.
    `enable_mute_inflight_full` is for one request in flight. With it, a broker that does not answer a request for one interval has
    all its partitions muted, at any failure rate.
    """

    def __init__(self) -> None:
        self._manager: CircuitBreakManager
        self._least = 1
        self._percentage = 50
        self._window = 1.0
        self._mutes_full = False
        self._since = 0.0
        # Records, and the failed ones among them, in this interval.
        self._now: dict[TopicPartition, list[int]] = {}
        # The same for the last interval.
        self._before: dict[TopicPartition, list[int]] = {}

    def configure(self, options: Mapping[str, Any]) -> None:
        """Read `trigger_message_count`, `trigger_failure_perc`, `mute_retry_interval_ms`, `enable_mute_inflight_full`."""
        self._least = options["trigger_message_count"]
        self._percentage = options["trigger_failure_perc"]
        self._window = options["mute_retry_interval_ms"] / 1000
        self._mutes_full = options["enable_mute_inflight_full"]

    def set_circuit_break_manager(self, manager: CircuitBreakManager) -> None:
        """Set the manager that mutes partitions."""
        self._manager = manager

    def on_send(self, context: ProducerStatusContext) -> bool:
        """Return True: this breaker holds batches back only by muting."""
        return True

    def on_complete(
        self, context: ProducerStatusContext, partition: TopicPartition, error: Exception | None
    ) -> bool:
        """Count the records of an attempt. Mute the partition if its failure rate is too high, and return whether it was muted."""
        if (error is not None and not counts(error)) or self._manager.is_muted(partition):
            return False
        if error is not None and self._mutes_full and context.in_flight_requests[context.node_id]:
            self._manager.mute(context.node_id)
            return True
        total, failed = self._count(
            context.now, partition, context.records, is_failure=error is not None
        )
        if error is None or total < self._least or failed * 100 < self._percentage * total:
            return False
        self._now.pop(partition, None)
        self._before.pop(partition, None)
        self._manager.mute(partition)
        return True

    def _count(
        self, now: float, partition: TopicPartition, records: int, *, is_failure: bool
    ) -> tuple[int, int]:
        """Add `records` and return the recent records of a partition and the failed ones among them."""
        if now - self._since >= self._window:
            self._before = self._now if now - self._since < 2 * self._window else {}
            self._now, self._since = {}, now
        one = self._now.setdefault(partition, [0, 0])
        one[0] += records
        one[1] += records * is_failure
        before = self._before.get(partition, (0, 0))
        return one[0] + before[0], one[1] + before[1]

    def close(self) -> None:
        """Forget all counts."""
        self._now, self._before = {}, {}
