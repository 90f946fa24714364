"""Makes the metrics, the events and the observers of one producer, and reads its gauges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproducer.engine.observability.connection_observer import ConnectionObserver
from aioproducer.engine.observability.events import Events
from aioproducer.engine.observability.metrics_recorder import Meter, Recorder
from aioproducer.metrics.registry import Metrics
from aioproducer.metrics.sensors import Windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch

__all__ = ["Instruments"]


class GaugeReader(Protocol):
    """Reads gauges from the producer's parts when a snapshot is taken."""

    def read(self) -> dict[str, float]:
        """Return all gauges by name."""

    def depths(self) -> dict[tuple[str, int], int]:
        """Return the batches that have not ended, by topic and partition."""


class Instruments:
    """Holds the metrics and the events of one producer.

    Args:
        version: of this software.
        clock: returns the loop's time.
        began_ms: the time of day, in ms since 1970.

    Attributes:
        events: reports changes of state.
        meter: records batches and calls.
        observer: records connections.
    """

    def __init__(self, config: ProducerConfig, version: str, clock: Callable[[], float], began_ms: int) -> None:
        self._config = config
        self._clock = clock
        records = config.metrics_recording_level != "none"
        windows = Windows(config.metrics_num_samples, config.metrics_sample_window_ms / 1000)
        self.metrics = Metrics(config.client_id, windows, version=version, began_ms=began_ms, now=clock())
        self.events = Events(config.client_id, self.metrics)
        self.meter = Recorder(config, self.metrics, clock) if records else Meter()
        self.observer = ConnectionObserver(self.meter, self.events, clock)

    def read(self, gauges: GaugeReader) -> tuple[float, dict[str, float], dict[tuple[str, int], int] | None]:
        """Return the values of a snapshot that only the loop's thread may read, as the arguments of `Metrics.snapshot`."""
        now = self._clock()
        self.meter.catch_up(now)
        is_fine = self._config.metrics_recording_level in {"debug", "trace"}
        return now, gauges.read(), gauges.depths() if is_fine else None

    def identity(self, identity: ProducerIdAndEpoch | None) -> None:
        """Report a granted producer id; None: the producer has none."""
        if identity is not None:
            self.events.tell("producer-id-granted", producer_id=identity.producer_id, epoch=identity.epoch)

    def late(self, node_id: int, *, is_late: bool) -> None:
        """Report a broker that became late, or that is no longer avoided for that (KIP-794)."""
        if is_late:
            self.events.tell("broker-late", node_id=node_id, seconds=self._config.partitioner_availability_timeout_ms / 1000)
        else:
            self.events.tell("broker-in-time", node_id=node_id)

    def forgotten(self, topic: str) -> None:
        """Report a forgotten topic (KIP-526), and drop its metrics."""
        self.meter.forget_topic(topic)
        self.events.tell("topic-forgotten", topic=topic, seconds=self._config.metadata_max_idle_ms / 1000)
