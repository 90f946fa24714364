"""Records the metrics of batches and requests: one call for each batch or change of state, none for a record.

The values of every request are noted and recorded later (`metrics.notes`). Rare values are recorded at once. If
`metrics_recording_level` is "none", the producer has a plain `Meter`, which records nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aioproducer.errors import BrokerError, BufferExhausted
from aioproducer.metrics.notes import MANY, Notes
from aioproducer.model import Compression
from aioproducer.net.observer import NO_TRAFFIC, Traffic
from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioproducer.config import ProducerConfig
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.metrics.notes import NodeNotes
    from aioproducer.metrics.registry import Metrics

__all__ = ["Meter", "Recorder"]

# Seconds between two searches for the largest record of a batch: a search reads the size of each record.
_SAMPLE: Final = 1.0


class Meter:
    """Defines one method for each kind of value to record. This class records nothing."""

    def traffic(self, node_id: int) -> Traffic:  # noqa: ARG002
        """Return the `Traffic` that records the requests of a broker."""
        return NO_TRAFFIC

    def connected(self, now: float) -> None:
        """Record that a connection was made."""

    def disconnected(self, now: float) -> None:
        """Record that an established connection was lost or closed."""

    def forget_node(self, node_id: int) -> None:
        """Drop the metrics of a broker that left the cluster."""

    def forget_topic(self, topic: str) -> None:
        """Drop the metrics of a topic that is forgotten."""

    def turned(self, now: float, seconds: float) -> None:
        """Record the seconds between the scheduling of a drain and the drain itself."""

    def sent(self, now: float, batches: Sequence[ProducerBatch]) -> None:
        """Record that a request of `batches` was written."""

    def answered(self, node_id: int, seconds: float) -> None:
        """Record that a broker answered a Produce request after `seconds`."""

    def throttled(self, now: float, milliseconds: int) -> None:
        """Record the throttle time of an answer."""

    def acknowledged(self, now: float, batch: ProducerBatch) -> None:
        """Record that a batch is in the log."""

    def attempt_failed(self, error: Exception) -> None:
        """Record that an attempt to send a batch ended with `error`."""

    def retried(self, now: float, batch: ProducerBatch) -> None:
        """Record that a batch is requeued for a retry."""

    def was_split(self, now: float) -> None:
        """Record that a batch was split into smaller batches."""

    def failed(self, now: float, batch: ProducerBatch, cause: BaseException) -> None:
        """Record that a batch failed."""

    def given_up(self, now: float, topic: str, error: Exception) -> None:
        """Record that a pending send was given up."""

    def memory(self, now: float, *, is_short: bool) -> None:
        """Record whether some send waits for memory."""

    def catch_up(self, now: float) -> None:
        """Record everything up to `now`, because a snapshot is taken."""

    def topic_came(self, now: float, seconds: float) -> None:
        """Record that sends waited `seconds` for a topic."""

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:  # noqa: ARG002
        """Record the time that the body takes, which is a call of the public API."""
        yield


class _Noted(Traffic):
    """Notes the requests of one broker."""

    __slots__ = ("_all", "_node")

    def __init__(self, notes: Notes, node: NodeNotes) -> None:
        self._all = notes
        self._node = node

    def sent(self, now: float, size: int) -> None:
        """Note a request."""
        if now >= self._all.due:
            self._all.settle(now)
        self._node.requests.append(size)

    def answered(self, now: float, size: int) -> None:
        """Note an answer."""
        if now >= self._all.due:
            self._all.settle(now)
        self._node.answers.append(size)


class Recorder(Meter):
    """Records the metrics of one producer.

    Args:
        clock: returns the loop's time.
    """

    def __init__(self, config: ProducerConfig, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._producer = metrics.producer
        self._topic = metrics.topic
        self._clock = clock
        self._lifetime = config.delivery_timeout_ms / 1000
        compresses = config.compression_type is not Compression.NONE
        self._notes = Notes(metrics, limit=max(config.batch_size - OVERHEAD, 1), compresses=compresses)
        self._short_since: float | None = None
        self._measure_at = 0.0

    def traffic(self, node_id: int) -> Traffic:
        """Return the object that notes the traffic of a broker."""
        return _Noted(self._notes, self._notes.nodes[node_id])

    def connected(self, now: float) -> None:
        """Count a connection that was made."""
        self._producer["connection-creation"].record(now)

    def disconnected(self, now: float) -> None:
        """Count a connection that was lost or closed."""
        self._producer["connection-close"].record(now)

    def forget_node(self, node_id: int) -> None:
        """Drop all metrics of a broker."""
        self._notes.forget_node(node_id)

    def forget_topic(self, topic: str) -> None:
        """Drop all metrics of a topic."""
        self._notes.forget_topic(topic)

    def turned(self, now: float, seconds: float) -> None:
        """Note the seconds that a drain waited: a long time shows a stall of the event loop."""
        notes = self._notes
        if now >= notes.due or len(notes.turns) >= MANY:
            notes.settle(now)
        notes.turns.append(seconds)

    def sent(self, now: float, batches: Sequence[ProducerBatch]) -> None:
        """Note the sizes of a request's batches, the depths of their partition queues, and their ages."""
        notes = self._notes
        if now >= notes.due or len(notes.batches) >= MANY:
            notes.settle(now)
        rows, ages, since = notes.batches, notes.ages, now + self._lifetime
        records = 0
        for batch in batches:
            queue, count, payload = batch.queue, batch.count, batch.payload
            assert payload is not None
            records += count
            depth = len(queue.closed) + queue.in_flight + (queue.current is not None)
            rows.append((queue.topic, count, OVERHEAD + len(payload), batch.raw_size, depth))
            if batch.attempts == 1:
                ages.append((since - batch.expires_at) * 1000)
        notes.requests.append(records)
        if now >= self._measure_at:
            self._measure_at = now + _SAMPLE
            self._producer["record-size"].record(now, batches[0].result.largest())

    def answered(self, node_id: int, seconds: float) -> None:
        """Note the latency of a Produce request, for the producer and for the broker."""
        self._notes.nodes[node_id].latencies.append(seconds * 1000)

    def throttled(self, now: float, milliseconds: int) -> None:
        """Record the throttle time in milliseconds, as Java does."""
        self._producer["produce-throttle-time"].record(now, milliseconds)

    def acknowledged(self, now: float, batch: ProducerBatch) -> None:
        """Note the time since the batch was opened, for each of its records: only the first one took as long."""
        self._notes.acknowledged.append((now - batch.expires_at + self._lifetime, batch.count))

    def attempt_failed(self, error: Exception) -> None:
        """Count the error under Kafka's name for it."""
        self._metrics.count("request-errors-total", _name(error))

    def retried(self, now: float, batch: ProducerBatch) -> None:
        """Record the retried records, for the producer and for the topic."""
        self._producer["record-retry"].record(now, batch.count)
        self._topic(batch.queue.topic)["record-retry"].record(now, batch.count)

    def was_split(self, now: float) -> None:
        """Record one split for each batch that was split."""
        self._producer["batch-split"].record(now)

    def failed(self, now: float, batch: ProducerBatch, cause: BaseException) -> None:
        """Record the failed records, for the producer, for the topic, and by cause."""
        self._topic(batch.queue.topic)["record-error"].record(now, batch.count)
        self._fail(now, batch.count, cause)

    def given_up(self, now: float, topic: str, error: Exception) -> None:
        """Record a failed record. A record that got no memory is also counted as `buffer-exhausted`.

        The topic counts it only if the topic has metrics already, because the name in a send may be anything.
        """
        # The noted batches may contain the first one of the topic.
        if self._notes.batches:
            self._notes.settle(now)
        if self._metrics.has_topic(topic):
            self._topic(topic)["record-error"].record(now)
        self._fail(now, 1, error)
        if isinstance(error, BufferExhausted):
            self._producer["buffer-exhausted"].record(now)

    def _fail(self, now: float, count: int, cause: BaseException) -> None:
        self._producer["record-error"].record(now, count)
        self._metrics.count("failed-records-total", _name(cause), count)

    def memory(self, now: float, *, is_short: bool) -> None:
        """Record the time from the first send that waits for memory until no send does."""
        since, self._short_since = self._short_since, now if is_short else None
        if since is not None:
            self._producer["bufferpool-wait"].record(now, now - since)

    def catch_up(self, now: float) -> None:
        """Record all notes, and the time so far of a wait for memory."""
        self._notes.settle(now)
        if self._short_since is not None:
            self.memory(now, is_short=True)

    def topic_came(self, now: float, seconds: float) -> None:
        """Record the time of the send that waited longest, the first one: it contains the times of the others."""
        self._producer["metadata-wait"].record(now, seconds)

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        """Record the time until the body ends, also if it raises."""
        began = self._clock()
        try:
            yield
        finally:
            now = self._clock()
            self._producer[name].record(now, now - began)


def _name(error: BaseException) -> str:
    """Return Kafka's name of a broker's error, or the class name of another error."""
    return error.error.name if isinstance(error, BrokerError) else type(error).__name__
