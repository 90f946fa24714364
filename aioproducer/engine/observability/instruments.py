"""Holds the metrics and the events of one producer, and notifies them of changes of its connections, brokers and topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.engine.observability.certificates import Certificates
from aioproducer.engine.observability.events import Events
from aioproducer.engine.observability.metrics_recorder import Recorder, SilentRecorder
from aioproducer.metrics.registry import Metrics
from aioproducer.metrics.sensors import Windows
from aioproducer.net.observer import NO_TRAFFIC, Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch
    from aioproducer.errors import TransportError
    from aioproducer.net.observer import Traffic
    from aioproducer.net.tls import TlsFacts

__all__ = ["Instruments"]

# Of so many failures in a row to fetch a token, one is reported.
_EACH: Final = 10
# Seconds between two warnings that one broker cannot be reached: a broker may go and come again and again.
_BETWEEN: Final = 10.0


class Instruments(Observer):
    """Holds the metrics and the events of one producer, and observes its connections.

    Args:
        version: of this software.
        clock: returns the loop's time.
        began_ms: the time of day, in ms since 1970.

    Attributes:
        metrics: all recorded values; snapshots are made of them.
        events: reports changes of state.
        recorder: records batches, requests and calls.
        certificates: the ends of the certificates in use.
    """

    def __init__(self, config: ProducerConfig, version: str, clock: Callable[[], float], began_ms: int) -> None:
        self._config = config
        self._clock = clock
        self._records = config.metrics_recording_level != "none"
        windows = Windows(config.metrics_num_samples, config.metrics_sample_window_ms / 1000)
        self.metrics: Metrics = Metrics(config.client_id, windows, version=version, began_ms=began_ms, now=clock())
        self.events: Events = Events(config.client_id, self.metrics)
        self.certificates: Certificates = Certificates(began_ms / 1000 - clock(), clock, self._expires)
        # When each broker was last reported as unreachable, by its id.
        self._unreachable: dict[int, float] = {}
        self.recorder: Recorder = (Recorder if self._records else SilentRecorder)(config, self.metrics, clock)

    # Connections

    def traffic(self, node_id: int) -> Traffic:
        """Return the object that notes the requests and answers of a broker."""
        return self.recorder.node(node_id) if self._records else NO_TRAFFIC

    def connected(self, broker: Broker, label: str) -> None:
        """Count a new connection and report it as an event."""
        self.recorder.record("connection-creation", self._clock())
        self._tell("broker-connected", broker, lane=label)

    def encrypted(self, broker: Broker, facts: TlsFacts, client_certificate_ends_at: float | None) -> None:
        """Note the ends of the certificates, and report one that is near as an event."""
        where = f"{broker.host}:{broker.port}"
        self.certificates.note(broker.node_id, where, facts.certificate_ends_at, client_certificate_ends_at)

    def _expires(self, what: str, days: float) -> None:
        self.events.tell("certificate-expires", what=what, days=days)

    def lost(self, broker: Broker, label: str, cause: TransportError | None) -> None:
        """Count a lost connection and report it as an event."""
        self.recorder.record("connection-close", self._clock())
        self._tell("broker-lost", broker, lane=label, cause=str(cause))

    def failed(self, broker: Broker, label: str, cause: TransportError, failures: int) -> None:
        """Report the first of several consecutive failures to connect as an event, not too often: the others change nothing."""
        now = self._clock()
        if failures == 1 and now - self._unreachable.get(broker.node_id, -_BETWEEN) >= _BETWEEN:
            self._unreachable[broker.node_id] = now
            self._tell("broker-unreachable", broker, lane=label, cause=str(cause))

    def authenticated(self, broker: Broker, label: str, seconds: float, session_seconds: float, *, is_renewal: bool) -> None:
        """Count an authentication, or a renewal with its time, and report it as an event."""
        if is_renewal:
            self.recorder.record("reauthentication", self._clock(), seconds * 1000)
            self._tell("session-renewed", broker, lane=label, seconds=session_seconds)
        else:
            self.recorder.record("authentication", self._clock())
            self._tell("broker-authenticated", broker, lane=label, seconds=session_seconds)

    def authentication_failed(self, broker: Broker, label: str, error: TransportError, *, is_renewal: bool) -> None:
        """Count a failed authentication or renewal, and report it as an event."""
        self.recorder.record("failed-reauthentication" if is_renewal else "failed-authentication", self._clock())
        self._tell("session-not-renewed" if is_renewal else "authentication-failed", broker, lane=label, cause=str(error))

    def token_fetched(self, source: str, seconds: float) -> None:
        """Report a new bearer token as an event."""
        self.events.tell("token-fetched", source=source, seconds=seconds)

    def token_failed(self, source: str, error: TransportError, failures: int) -> None:
        """Report the first of several consecutive failures, and then each tenth: the others say the same."""
        if failures % _EACH == 1:
            self.events.tell("token-unavailable", source=source, cause=str(error), failures=failures)

    def throttled(self, broker: Broker, milliseconds: int) -> None:
        """Report a broker that throttles as an event."""
        self._tell("broker-throttles", broker, milliseconds=milliseconds)

    def forgotten(self) -> None:
        """Report as an event that the cluster dropped all its brokers."""
        self.events.tell("cluster-forgotten")

    def gone(self, broker: Broker) -> None:
        """Forget the metrics of a broker that left the cluster."""
        self.recorder.forget_node(broker.node_id)
        self.certificates.forget(broker.node_id)
        self._unreachable.pop(broker.node_id, None)

    def _tell(self, event: str, broker: Broker, **facts: object) -> None:
        self.events.tell(
            event, node_id=broker.node_id if broker.node_id >= 0 else broker.name, where=f"{broker.host}:{broker.port}", **facts
        )

    # Brokers and topics

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

    def forget_topic(self, topic: str) -> None:
        """Report a forgotten topic (KIP-526), and drop its metrics."""
        self.recorder.forget_topic(topic)
        self.events.tell("topic-forgotten", topic=topic, seconds=self._config.metadata_max_idle_ms / 1000)
