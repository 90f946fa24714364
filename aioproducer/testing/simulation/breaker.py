"""A user's own circuit breaker, as none should be: it holds, mutes and restores by chance, and sees to it that breakers are told the truth.

Whatever it does, records keep their order and are neither lost nor doubled. Knows no fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from aioproducer.interfaces import CircuitBreakManager, ProducerStatusContext
    from aioproducer.model import TopicPartition

__all__ = ["FICKLE", "Fickle"]

FICKLE: Final = "fickle"
"""What stands for one in a plan."""
_HOLDS: Final = 0.05  # of the batches
_MUTES_FAILED: Final = 0.4  # of the attempts that failed
_MUTES: Final = 0.05  # of all: the partition, or in a third of these its broker
_RESTORES: Final = 0.1  # a partition of the same topic


class Fickle:
    """Of one producer (an `interfaces.PartitionCircuitBreaker`).

    Args:
        is_open: whether a partition's circuit is open, by what the producer has told.
        on_wrong: told of what a breaker must never see.
    """

    def __init__(self, rng: random.Random, is_open: Callable[[TopicPartition], bool], on_wrong: Callable[[str], object]) -> None:
        self._manager: CircuitBreakManager
        self._rng = rng
        self._is_open = is_open
        self._on_wrong = on_wrong

    def configure(self, options: Mapping[str, Any]) -> None:
        """Nothing to configure."""

    def set_circuit_break_manager(self, manager: CircuitBreakManager) -> None:
        """What it mutes with."""
        self._manager = manager

    def on_send(self, context: ProducerStatusContext) -> bool:
        """Mostly."""
        where = context.partition
        if self._is_open(where):
            self._on_wrong(f"muted: {where[0]}-{where[1]} is muted, and a batch of it is about to be sent")
        elif self._manager.is_muted(where) and context.in_flight_batches[where]:
            self._on_wrong(f"muted: {where[0]}-{where[1]} is probed, and another batch of it is in flight")
        return self._rng.random() >= _HOLDS

    def on_complete(self, context: ProducerStatusContext, partition: TopicPartition, error: Exception | None) -> bool:
        """Mute, restore, or nothing."""
        drawn = self._rng.random()
        if drawn < _MUTES / 3 and context.node_id >= 0:
            self._manager.mute(context.node_id)
        elif drawn < (_MUTES if error is None else _MUTES_FAILED):
            self._manager.mute(partition)
        elif drawn > 1 - _RESTORES and (muted := self._manager.muted_partitions_for_topic(partition[0])):
            self._manager.unmute(self._rng.choice(muted))
        else:
            return False
        return True

    def close(self) -> None:
        """Nothing to close."""
