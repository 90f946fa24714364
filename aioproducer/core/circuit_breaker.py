"""When a partition is left alone for a while, and when it is tried again (KIP-693).

1. A circuit is open, then probing, then closed; a partition whose circuit is closed has none. Only what ends while it is probing moves
   it: what was on its way when it opened says nothing that is new.
2. What is open for so long is probed; a probe that fails opens it for twice as long.
3. Transport, leader, replica and timeout errors count as failures. What a broker refuses for its content (size, rights, records) is an
   answer: it counts neither way, and as a probe's it shows that the partition is well.

Knows nothing of clocks, loops, or how a partition is muted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, TransportError
from aioproducer.model import CircuitState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.interfaces import CircuitBreakManager, ProducerStatusContext
    from aioproducer.model import TopicPartition

__all__ = ["FailureRateCircuitBreaker", "PartitionCircuit", "counts"]

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
    """Whether an attempt that ended so speaks against its partition."""
    return isinstance(error, TransportError) or (isinstance(error, BrokerError) and error.name in _COUNTED)


class PartitionCircuit:
    """Of a partition that is muted or on probation.

    Args:
        now: the time, in seconds.
        interval: seconds that it is left alone.
        cause: why; None: somebody muted it by hand.

    Attributes:
        due: when it is to be probed.
    """

    __slots__ = ("cause", "due", "interval", "state")

    def __init__(self, now: float, interval: float, cause: Exception | None) -> None:
        self.state = CircuitState.OPEN
        self.interval = interval
        self.due = now + interval
        self.cause = cause

    def probe(self) -> bool:
        """Its time is over, or another broker leads it. False: it is probing already."""
        if self.state is CircuitState.PROBING:
            return False
        self.state = CircuitState.PROBING
        return True

    def fail(self, now: float, longest: float, cause: Exception | None) -> bool:
        """An attempt failed. True: it was the probe, and the circuit is open for twice as long, at most `longest` seconds."""
        if self.state is not CircuitState.PROBING:
            return False
        self.state = CircuitState.OPEN
        self.interval = min(self.interval * 2, longest)
        self.due = now + self.interval
        self.cause = cause
        return True

    def __repr__(self) -> str:
        return f"<Circuit {self.state}, {self.interval:g} s>"


class FailureRateCircuitBreaker:
    """Mutes a partition of whose records too many failed lately (KIP-693's default; an `interfaces.PartitionCircuitBreaker`).

    "Lately" is the last one to two of `mute_retry_interval_ms`. Records are counted once for each attempt of their batch. With
    `enable_mute_inflight_full`, which is for one request in flight, a broker whose request does not come back for one such interval has
    all its partitions muted, whatever the rate.
    """

    def __init__(self) -> None:
        self._manager: CircuitBreakManager
        self._least = 1
        self._percentage = 50
        self._window = 1.0
        self._mutes_full = False
        self._since = 0.0
        self._now: dict[TopicPartition, list[int]] = {}  # records, and those of them that failed, in this interval
        self._before: dict[TopicPartition, list[int]] = {}  # and in the last one

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take `trigger_message_count`, `trigger_failure_perc`, `mute_retry_interval_ms`, `enable_mute_inflight_full`."""
        self._least = options["trigger_message_count"]
        self._percentage = options["trigger_failure_perc"]
        self._window = options["mute_retry_interval_ms"] / 1000
        self._mutes_full = options["enable_mute_inflight_full"]

    def set_circuit_break_manager(self, manager: CircuitBreakManager) -> None:
        """What it mutes with."""
        self._manager = manager

    def on_send(self, context: ProducerStatusContext) -> bool:  # noqa: ARG002  (KIP-693's signature)
        """Nothing is held but by muting."""
        return True

    def on_complete(self, context: ProducerStatusContext, partition: TopicPartition, error: Exception | None) -> bool:
        """Count, and mute if the rate says so."""
        if (error is not None and not counts(error)) or self._manager.is_muted(partition):
            return False
        if error is not None and self._mutes_full and context.in_flight_requests[context.node_id]:
            self._manager.mute(context.node_id)
            return True
        total, failed = self._count(context.now, partition, context.records, is_failure=error is not None)
        if error is None or total < self._least or failed * 100 < self._percentage * total:
            return False
        self._now.pop(partition, None)
        self._before.pop(partition, None)
        self._manager.mute(partition)
        return True

    def _count(self, now: float, partition: TopicPartition, records: int, *, is_failure: bool) -> tuple[int, int]:
        """The records of a partition, and those that failed, of late."""
        if now - self._since >= self._window:
            self._before = self._now if now - self._since < 2 * self._window else {}
            self._now, self._since = {}, now
        one = self._now.setdefault(partition, [0, 0])
        one[0] += records
        one[1] += records * is_failure
        before = self._before.get(partition, (0, 0))
        return one[0] + before[0], one[1] + before[1]

    def close(self) -> None:
        """Forget everything."""
        self._now, self._before = {}, {}
