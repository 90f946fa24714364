"""A circuit breaker that holds, mutes and restores at random, and checks the producer's calls.

With any of its decisions, records keep their order and are neither lost nor duplicated.
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
"""The option value that stands for this breaker in a plan."""
_HOLDS: Final = 0.05  # probability that a batch is held
_MUTES_FAILED: Final = 0.4  # probability that a failed attempt mutes the partition
_MUTES: Final = (
    0.05  # probability that an attempt mutes: in a third of these the broker, else the partition
)
_RESTORES: Final = 0.1  # probability that an attempt restores a partition of the same topic


class Fickle:
    """The random breaker of one producer (an `interfaces.PartitionCircuitBreaker`).

    Args:
        rng: source of all random choices.
        is_open: returns whether a partition's circuit is open, by the producer's events.
        on_wrong: called with each forbidden state that the breaker sees.
    """

    def __init__(
        self,
        rng: random.Random,
        is_open: Callable[[TopicPartition], bool],
        on_wrong: Callable[[str], object],
    ) -> None:
        self._manager: CircuitBreakManager
        self._rng = rng
        self._is_open = is_open
        self._on_wrong = on_wrong

    def configure(self, options: Mapping[str, Any]) -> None:
        """Do nothing: there are no options."""

    def set_circuit_break_manager(self, manager: CircuitBreakManager) -> None:
        """Store the manager that mutes and restores."""
        self._manager = manager

    def on_send(self, context: ProducerStatusContext) -> bool:
        """Check the partition's state. Returns False at random, to hold the batch."""
        where = context.partition
        if self._is_open(where):
            self._on_wrong(
                f"muted: {where[0]}-{where[1]} is muted, and a batch of it is about to be sent"
            )
        elif self._manager.is_muted(where) and context.in_flight_batches[where]:
            self._on_wrong(
                f"muted: {where[0]}-{where[1]} is probed, and another batch of it is in flight"
            )
        return self._rng.random() >= _HOLDS

    def on_complete(
        self, context: ProducerStatusContext, partition: TopicPartition, error: Exception | None
    ) -> bool:
        """Mute, restore, or do nothing, at random. Returns whether it did something."""
        drawn = self._rng.random()
        if drawn < _MUTES / 3 and context.node_id >= 0:
            self._manager.mute(context.node_id)
        elif drawn < (_MUTES if error is None else _MUTES_FAILED):
            self._manager.mute(partition)
        elif drawn > 1 - _RESTORES and (
            muted := self._manager.muted_partitions_for_topic(partition[0])
        ):
            self._manager.unmute(self._rng.choice(muted))
        else:
            return False
        return True

    def close(self) -> None:
        """Do nothing: there is no resource."""
