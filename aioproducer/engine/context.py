"""Holds what the parts of one producer share: its options, event loop, tasks, randomness and instruments."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.core.retries import Backoff
    from aioproducer.engine.observability.metrics_recorder import Instruments
    from aioproducer.engine.tasks.supervisor import GuardedLoop, Supervisor


class EngineContext(NamedTuple):
    """Holds what a part needs of the producer that it belongs to, whatever it does.

    Attributes:
        config: the options.
        loop: schedules the callbacks of the parts.
        supervisor: owns all tasks of the producer.
        backoff: the pause before a retry (`retry_backoff_ms`).
        chance: returns a random number in [0, 1).
        instruments: the metrics and the events.
    """

    config: ProducerConfig
    loop: GuardedLoop
    supervisor: Supervisor
    backoff: Backoff
    chance: Callable[[], float]
    instruments: Instruments
