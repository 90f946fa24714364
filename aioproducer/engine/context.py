"""Holds what the parts of one producer share: its options, event loop, tasks, randomness and instruments."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.core.retries import Backoff
    from aioproducer.engine.observability.metrics_recorder import Instruments
    from aioproducer.engine.tasks.supervisor import GuardedLoop, Supervisor


def random_number() -> float:
    """Return a random number in [0, 1) of the operating system, as `random.SystemRandom` does.

    The import of `random` would take 160 KiB of each process.
    """
    return (int.from_bytes(urandom(7), "big") >> 3) * 2.0**-53


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
