"""Records the metrics of batches and requests: one call for each batch or change of state, none for a record.

A dozen sensors and histograms cover every request. To update them each time would cost a producer that sends one record at a time
a twentieth of its time. So a request appends numbers to lists. All numbers are recorded together in sensors and histograms: after a
second, or when there are many, or before a snapshot. Rare values are recorded at once.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from aioproducer.core.producer_batch import State
from aioproducer.engine.observability.diagnostics import Events
from aioproducer.errors import BrokerError, BufferExhausted
from aioproducer.metrics.registry import Metrics, Windows
from aioproducer.model import Compression
from aioproducer.net.observer import Observer, Traffic
from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from aioproducer.config import ProducerConfig
    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch
    from aioproducer.errors import TransportError
    from aioproducer.metrics.registry import Metrics, Sensors
    from aioproducer.net.observer import Traffic
    from aioproducer.net.tls import TlsFacts

# Batches, or waits of drains, that are recorded at once: some 0.1 ms.
MANY: Final = 256
# Seconds between a note and its recording; a tenth of a sample, if that is less.
_LONGEST: Final = 1.0
# Seconds between two searches for the largest record of a batch: a search reads the size of each record.
_SAMPLE: Final = 1.0
# On Python 3.11, to look up a member of an enum is a call of Python code.
_DONE: Final = State.DONE

# Topic, number of records, bytes of the batch with its header as it is sent, bytes of its records before compression, and number of
# batches of its partition.
_Batch: TypeAlias = "tuple[str, int, int, int, int]"


class NodeTraffic(Traffic):
    """Notes the bytes of a broker's requests and answers, and the latencies of its Produce requests in ms."""

    __slots__ = ("_recorder", "answers", "latencies", "requests", "sensors")

    def __init__(self, recorder: Recorder, sensors: Sensors) -> None:
        self._recorder = recorder
        self.sensors: Sensors = sensors
        self.requests: list[float] = []
        self.answers: list[float] = []
        self.latencies: list[float] = []

    def sent(self, now: float, size: int) -> None:
        """Note a request."""
        if now >= self._recorder.due:
            self._recorder.settle(now)
        self.requests.append(size)

    def answered(self, now: float, size: int) -> None:
        """Note an answer."""
        if now >= self._recorder.due:
            self._recorder.settle(now)
        self.answers.append(size)


class Recorder:
    """Records the metrics of one producer.

    Attributes:
        due: the time at which the notes must be recorded: it is compared before a note is added.
        batches: one row for each batch that was sent.
        ages: ms since its creation, for each batch that is sent for the first time.
        requests: the number of records in each request.
        latencies: for each acknowledged batch, the seconds that it took, and its number of records.
        turns: the seconds that each drain waited for the event loop.
        shortages: the seconds of each shortage of memory.
    """

    def __init__(self, config: ProducerConfig, metrics: Metrics, loop: AbstractEventLoop) -> None:
        self.due: float = 0.0
        self.batches: list[_Batch] = []
        self.ages: list[float] = []
        self.requests: list[float] = []
        self.latencies: list[tuple[float, int]] = []
        self.turns: list[float] = []
        self.shortages: list[float] = []
        self._nodes: dict[int, NodeTraffic] = {}
        self._metrics = metrics
        self._producer = metrics.producer
        self._loop = loop
        self._lifetime = config.delivery_timeout_ms / 1000
        self._limit = max(config.batch_size - OVERHEAD, 1)
        self._compresses = config.compression_type is not Compression.NONE
        self._interval = min(_LONGEST, metrics.windows.seconds / 10)
        self._short_since: float | None = None
        self._measure_at = 0.0

    def node(self, node_id: int) -> NodeTraffic:
        """Return the notes about a broker."""
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = NodeTraffic(self, self._metrics.nodes[node_id])
        return node

    def forget_node(self, node_id: int) -> None:
        """Record the notes about a broker that left the cluster, and drop its metrics."""
        node = self._nodes.pop(node_id, None)
        if node is not None:
            self._settle_node(self.due, node)
        self._metrics.nodes.pop(node_id, None)

    def forget_topic(self, topic: str) -> None:
        """Record the notes about batches, and drop the metrics of a topic that is forgotten."""
        if self.batches:
            self._settle_batches(self.due)
        self._metrics.topics.pop(topic, None)

    def turned(self, now: float, seconds: float) -> None:
        """Note the seconds that a drain waited: a long time shows a stall of the event loop."""
        if now >= self.due or len(self.turns) >= MANY:
            self.settle(now)
        self.turns.append(seconds)

    def sent(self, now: float, batches: Sequence[ProducerBatch]) -> None:
        """Note the sizes of a request's batches, the depths of their partition queues, and their ages."""
        if now >= self.due or len(self.batches) >= MANY:
            self.settle(now)
        rows, ages, since = self.batches, self.ages, now + self._lifetime
        records = 0
        for batch in batches:
            queue, count, payload = batch.queue, batch.count, batch.payload
            assert payload is not None
            records += count
            depth = len(queue.closed) + queue.in_flight + (queue.current is not None)
            rows.append((queue.topic, count, OVERHEAD + len(payload), batch.raw_size, depth))
            if batch.attempts == 1:
                ages.append((since - batch.expires_at) * 1000)
        self.requests.append(records)
        if now >= self._measure_at:
            self._measure_at = now + _SAMPLE
            self._producer["record-size"].record(now, batches[0].result.largest())

    def answered(
        self, node_id: int, sent_at: float, now: float, batches: Iterable[ProducerBatch]
    ) -> None:
        """Note the latency of a Produce request, for the producer and for the broker, and its acknowledged batches."""
        (self._nodes.get(node_id) or self.node(node_id)).latencies.append((now - sent_at) * 1000)
        self.acknowledged(now, batches)

    def acknowledged(self, now: float, batches: Iterable[ProducerBatch]) -> None:
        """Note, for each record of the batches that are acknowledged, the time since its batch was opened: the first one took as long."""
        for batch in batches:
            if batch.state is _DONE:
                self.latencies.append((now - batch.expires_at + self._lifetime, batch.count))

    def attempt_failed(self, error: Exception) -> None:
        """Count the error under Kafka's name for it."""
        self._metrics.count("request-errors-total", _name(error))

    def retried(self, now: float, batch: ProducerBatch) -> None:
        """Record the retried records, for the producer and for the topic."""
        self._producer["record-retry"].record(now, batch.count)
        self._metrics.topics[batch.queue.topic]["record-retry"].record(now, batch.count)

    def failed(self, now: float, batch: ProducerBatch, cause: BaseException) -> None:
        """Record the failed records, for the producer, for the topic, and by cause."""
        self._metrics.topics[batch.queue.topic]["record-error"].record(now, batch.count)
        self._fail(now, batch.count, cause)

    def given_up(self, now: float, topic: str, error: Exception) -> None:
        """Record a failed record. A record that got no memory is also counted as `buffer-exhausted`.

        The topic counts it only if the topic has metrics already, because the name in a send may be anything.
        """
        # The noted batches may contain the first one of the topic.
        if self.batches:
            self.settle(now)
        if topic in self._metrics.topics:
            self._metrics.topics[topic]["record-error"].record(now)
        self._fail(now, 1, error)
        if isinstance(error, BufferExhausted):
            self._producer["buffer-exhausted"].record(now)

    def _fail(self, now: float, count: int, cause: BaseException) -> None:
        self._producer["record-error"].record(now, count)
        self._metrics.count("failed-records-total", _name(cause), count)

    def memory(self, now: float, *, is_short: bool) -> None:
        """Note the time from the first send that waits for memory until no send does."""
        if now >= self.due:
            self.settle(now)
        since, self._short_since = self._short_since, now if is_short else None
        if since is not None:
            self.shortages.append(now - since)

    def record(self, name: str, now: float, value: float = 1.0) -> None:
        """Record one rare value in a sensor of the producer as a whole, at once."""
        self._producer[name].record(now, value)

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        """Record the time until the body ends, also if it raises."""
        began = self._loop.time()
        try:
            yield
        finally:
            now = self._loop.time()
            self.record(name, now, now - began)

    def catch_up(self, now: float) -> None:
        """Record all notes, and the time so far of a wait for memory: a snapshot is taken."""
        if self._short_since is not None:
            self.memory(now, is_short=True)
        self.settle(now)

    def settle(self, now: float) -> None:
        """Record all notes, with the time `now`, or with the time `due` if that is earlier. Neither is earlier than any note."""
        at, self.due = min(now, self.due), now + self._interval
        for node in self._nodes.values():
            self._settle_node(at, node)
        if self.batches:
            self._settle_batches(at)
        if self.shortages:
            self._producer["bufferpool-wait"].record_all(at, self.shortages)
            self.shortages.clear()
        histograms = self._metrics.histograms
        if self.latencies:
            histograms["delivery-latency-seconds"].observe_weighed(self.latencies)
            self.latencies.clear()
        if self.turns:
            histograms["loop-turn-seconds"].observe_all(self.turns)
            self.turns.clear()

    def _settle_node(self, at: float, node: NodeTraffic) -> None:
        for name, values in (
            ("request", node.requests),
            ("response", node.answers),
            ("request-latency", node.latencies),
        ):
            if values:
                node.sensors[name].record_all(at, values)
                self._producer[name].record_all(at, values)
                values.clear()

    def _settle_batches(self, at: float) -> None:
        topics, records, sizes, before, depths = zip(*self.batches, strict=True)
        producer, histograms = self._producer, self._metrics.histograms
        producer["batch-size"].record_all(at, sizes)
        producer["record-send"].record_all(at, self.requests)
        if self.ages:
            producer["record-queue-time"].record_all(at, self.ages)
        histograms["batch-fill-ratio"].observe_all([size / self._limit for size in before])
        histograms["partition-queue-depth"].observe_all(depths)
        if topics.count(topics[0]) == len(topics):
            self._settle_topic(at, topics[0], records, sizes, before)
        else:
            for row in self.batches:
                self._settle_row(at, *row)
        for notes in (self.batches, self.requests, self.ages):
            notes.clear()

    def _settle_row(
        self, at: float, topic: str, records: int, size: int, before: int, _depth: int
    ) -> None:
        """Record one batch, as `_settle_topic` does: with many topics, most have no second one."""
        sensors = self._metrics.topics[topic]
        sensors["record-send"].record(at, records)
        sensors["byte"].record(at, size)
        if self._compresses:
            ratio = (size - OVERHEAD) / before
            sensors["compression-rate"].record(at, ratio)
            self._producer["compression-rate"].record(at, ratio)

    def _settle_topic(
        self,
        at: float,
        topic: str,
        records: Sequence[int],
        sizes: Sequence[int],
        before: Sequence[int],
    ) -> None:
        sensors = self._metrics.topics[topic]
        sensors["record-send"].record_all(at, records)
        sensors["byte"].record_all(at, sizes)
        if self._compresses:
            ratios = [(size - OVERHEAD) / raw for size, raw in zip(sizes, before, strict=True)]
            sensors["compression-rate"].record_all(at, ratios)
            self._producer["compression-rate"].record_all(at, ratios)


def _ignore(*_: object, **__: object) -> None:
    pass


class SilentRecorder(Recorder):
    """Records nothing: the recorder of a producer whose `metrics_recording_level` is "none"."""

    turned: Callable[..., None] = _ignore
    sent: Callable[..., None] = _ignore
    answered: Callable[..., None] = _ignore
    acknowledged: Callable[..., None] = _ignore
    attempt_failed: Callable[..., None] = _ignore
    retried: Callable[..., None] = _ignore
    failed: Callable[..., None] = _ignore
    given_up: Callable[..., None] = _ignore
    memory: Callable[..., None] = _ignore
    record: Callable[..., None] = _ignore


def _name(error: BaseException) -> str:
    """Return Kafka's name of a broker's error, or the class name of another error."""
    return error.error.name if isinstance(error, BrokerError) else type(error).__name__


# Of so many failures in a row to fetch a token, one is reported.
_EACH: Final = 10
_DAY: Final = 86_400.0
# Days before its end from which on a certificate is reported.
_NEAR: Final = 30.0
# Seconds between two warnings that one broker cannot be reached: a broker may go and come again and again.
_BETWEEN: Final = 10.0


class Instruments(Observer):
    """Holds the metrics and the events of one producer, and observes its connections.

    Args:
        version: of this software.
        loop: has the clock.
        began_ms: the time of day, in ms since 1970.

    Attributes:
        metrics: all recorded values; snapshots are made of them.
        events: reports changes of state.
        recorder: records batches, requests and calls.
        client_certificate_ends_at: in seconds since 1970; None: there is none.
        brokers_certificates_end_at: the end of the certificate of each broker that was connected to, by its number.
    """

    def __init__(
        self, config: ProducerConfig, version: str, loop: AbstractEventLoop, began_ms: int
    ) -> None:
        self._config = config
        self._loop = loop
        self._records = config.metrics_recording_level != "none"
        windows = Windows(config.metrics_num_samples, config.metrics_sample_window_ms / 1000)
        self.metrics: Metrics = Metrics(
            config.client_id, windows, version=version, began_ms=began_ms, now=loop.time()
        )
        self.events: Events = Events(config.client_id, self.metrics)
        self.client_certificate_ends_at: float | None = None
        self.brokers_certificates_end_at: dict[int, float] = {}
        # The ends that were reported as near, by the certificate's owner; and the time of day at the loop's zero, in seconds since 1970.
        self._near: dict[str, float] = {}
        self._epoch = began_ms / 1000 - loop.time()
        # When each broker was last reported as unreachable, by its id.
        self._unreachable: dict[int, float] = {}
        self.recorder: Recorder = (Recorder if self._records else SilentRecorder)(
            config, self.metrics, loop
        )

    # Connections

    def traffic(self, node_id: int) -> Traffic | None:
        """Return the object that notes the requests and answers of a broker; None: metrics are off."""
        return self.recorder.node(node_id) if self._records else None

    def connected(self, broker: Broker, label: str) -> None:
        """Count a new connection and report it as an event."""
        self.recorder.record("connection-creation", self._loop.time())
        self._tell("broker-connected", broker, lane=label)

    def encrypted(
        self, broker: Broker, facts: TlsFacts, client_certificate_ends_at: float | None
    ) -> None:
        """Note the ends of the certificates, and report one that is near as an event."""
        self.client_certificate_ends_at = client_certificate_ends_at
        if client_certificate_ends_at is not None:
            self._ends("this client", client_certificate_ends_at)
        if facts.certificate_ends_at is not None:
            self.brokers_certificates_end_at[broker.node_id] = facts.certificate_ends_at
            self._ends(f"the broker at {broker.host}:{broker.port}", facts.certificate_ends_at)

    def _ends(self, owner: str, ends_at: float) -> None:
        days = (ends_at - self._epoch - self._loop.time()) / _DAY
        if days < _NEAR and self._near.get(owner) != ends_at:
            self._near[owner] = ends_at
            self.events.tell("certificate-expires", what=owner, days=days)

    def lost(self, broker: Broker, label: str, cause: TransportError | None) -> None:
        """Count a lost connection and report it as an event."""
        self.recorder.record("connection-close", self._loop.time())
        self._tell("broker-lost", broker, lane=label, cause=str(cause))

    def failed(self, broker: Broker, label: str, cause: TransportError, failures: int) -> None:
        """Report the first of several consecutive failures to connect as an event, not too often: the others change nothing."""
        now = self._loop.time()
        if failures == 1 and now - self._unreachable.get(broker.node_id, -_BETWEEN) >= _BETWEEN:
            self._unreachable[broker.node_id] = now
            self._tell("broker-unreachable", broker, lane=label, cause=str(cause))

    def authenticated(
        self,
        broker: Broker,
        label: str,
        seconds: float,
        session_seconds: float,
        *,
        is_renewal: bool,
    ) -> None:
        """Count an authentication, or a renewal with its time, and report it as an event."""
        if is_renewal:
            self.recorder.record("reauthentication", self._loop.time(), seconds * 1000)
            self._tell("session-renewed", broker, lane=label, seconds=session_seconds)
        else:
            self.recorder.record("authentication", self._loop.time())
            self._tell("broker-authenticated", broker, lane=label, seconds=session_seconds)

    def authentication_failed(
        self, broker: Broker, label: str, error: TransportError, *, is_renewal: bool
    ) -> None:
        """Count a failed authentication or renewal, and report it as an event."""
        self.recorder.record(
            "failed-reauthentication" if is_renewal else "failed-authentication", self._loop.time()
        )
        self._tell(
            "session-not-renewed" if is_renewal else "authentication-failed",
            broker,
            lane=label,
            cause=str(error),
        )

    def token_fetched(self, source: str, seconds: float) -> None:
        """Report a new bearer token as an event."""
        self.events.tell("token-fetched", source=source, seconds=seconds)

    def token_failed(self, source: str, error: TransportError, failures: int) -> None:
        """Report the first of several consecutive failures, and then each tenth: the others say the same."""
        if failures % _EACH == 1:
            self.events.tell(
                "token-unavailable", source=source, cause=str(error), failures=failures
            )

    def throttled(self, broker: Broker, milliseconds: int) -> None:
        """Report a broker that throttles as an event."""
        self._tell("broker-throttles", broker, milliseconds=milliseconds)

    def forgotten(self) -> None:
        """Report as an event that the cluster dropped all its brokers."""
        self.events.tell("cluster-forgotten")

    def gone(self, broker: Broker) -> None:
        """Forget the metrics of a broker that left the cluster."""
        self.recorder.forget_node(broker.node_id)
        self.brokers_certificates_end_at.pop(broker.node_id, None)
        self._unreachable.pop(broker.node_id, None)

    def _tell(self, event: str, broker: Broker, **facts: object) -> None:
        self.events.tell(
            event,
            node_id=broker.node_id if broker.node_id >= 0 else broker.name,
            where=f"{broker.host}:{broker.port}",
            **facts,
        )

    # Brokers and topics

    def identity(self, identity: ProducerIdAndEpoch | None) -> None:
        """Report a granted producer id; None: the producer has none."""
        if identity is not None:
            self.events.tell(
                "producer-id-granted", producer_id=identity.producer_id, epoch=identity.epoch
            )

    def late(self, node_id: int, *, is_late: bool) -> None:
        """Report a broker that became late, or that is no longer avoided for that (KIP-794)."""
        if is_late:
            self.events.tell(
                "broker-late",
                node_id=node_id,
                seconds=self._config.partitioner_availability_timeout_ms / 1000,
            )
        else:
            self.events.tell("broker-in-time", node_id=node_id)

    def forget_topic(self, topic: str) -> None:
        """Report a forgotten topic (KIP-526), and drop its metrics."""
        self.recorder.forget_topic(topic)
        self.events.tell(
            "topic-forgotten", topic=topic, seconds=self._config.metadata_max_idle_ms / 1000
        )
