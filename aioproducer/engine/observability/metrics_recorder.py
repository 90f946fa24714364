"""What happens to batches and requests, noted or recorded: one call for each batch or change of state, none for a record.

What comes with every request is noted (`metrics.notes`), what is rare is recorded at once.

A bare `Meter` stands there where `metrics_recording_level` is none. Knows nothing of who reads what is recorded.
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

_SAMPLE: Final = 1.0  # seconds between two batches whose largest record is looked for: that takes a look at each record


class Meter:
    """What may be recorded. This one records nothing."""

    def traffic(self, node_id: int) -> Traffic:  # noqa: ARG002
        """Who is told of the requests of a broker."""
        return NO_TRAFFIC

    def connected(self, now: float) -> None:
        """A connection was made."""

    def disconnected(self, now: float) -> None:
        """One that was made is lost, or closed."""

    def forget_node(self, node_id: int) -> None:
        """It is a broker of the cluster no more."""

    def forget_topic(self, topic: str) -> None:
        """Nothing is produced to it any more."""

    def turned(self, now: float, seconds: float) -> None:
        """The loop took so long to come to us again."""

    def sent(self, now: float, batches: Sequence[ProducerBatch]) -> None:
        """A request of these was written."""

    def answered(self, node_id: int, seconds: float) -> None:
        """A broker answered a Produce request after so long."""

    def throttled(self, now: float, milliseconds: int) -> None:
        """An answer asked for a pause."""

    def acknowledged(self, now: float, batch: ProducerBatch) -> None:
        """It is in the log."""

    def attempt_failed(self, error: Exception) -> None:
        """An attempt to send a batch ended so."""

    def retried(self, now: float, batch: ProducerBatch) -> None:
        """It is to be sent again."""

    def was_split(self, now: float) -> None:
        """One was cut in smaller ones."""

    def failed(self, now: float, batch: ProducerBatch, cause: BaseException) -> None:
        """Its records are not acknowledged, and will not be."""

    def given_up(self, now: float, topic: str, error: Exception) -> None:
        """A send that waited is refused."""

    def memory(self, now: float, *, is_short: bool) -> None:
        """Somebody waits for memory, or nobody any more."""

    def catch_up(self, now: float) -> None:
        """Somebody reads: what goes on counts up to now."""

    def topic_came(self, now: float, seconds: float) -> None:
        """Some sends waited so long for a topic."""

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:  # noqa: ARG002
        """Time spent in a call of the face."""
        yield


class _Noted(Traffic):
    """Notes the requests of one broker."""

    __slots__ = ("_all", "_node")

    def __init__(self, notes: Notes, node: NodeNotes) -> None:
        self._all = notes
        self._node = node

    def sent(self, now: float, size: int) -> None:
        """A request."""
        if now >= self._all.due:
            self._all.settle(now)
        self._node.requests.append(size)

    def answered(self, now: float, size: int) -> None:
        """An answer."""
        if now >= self._all.due:
            self._all.settle(now)
        self._node.answers.append(size)


class Recorder(Meter):
    """Records it.

    Args:
        clock: the loop's time.
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
        """Noted under its id."""
        return _Noted(self._notes, self._notes.nodes[node_id])

    def connected(self, now: float) -> None:
        """By number."""
        self._producer["connection-creation"].record(now)

    def disconnected(self, now: float) -> None:
        """By number."""
        self._producer["connection-close"].record(now)

    def forget_node(self, node_id: int) -> None:
        """What is recorded of it goes, too."""
        self._notes.forget_node(node_id)

    def forget_topic(self, topic: str) -> None:
        """What is recorded of it goes, too."""
        self._notes.forget_topic(topic)

    def turned(self, now: float, seconds: float) -> None:
        """Stalls of the loop are long turns."""
        notes = self._notes
        if now >= notes.due or len(notes.turns) >= MANY:
            notes.settle(now)
        notes.turns.append(seconds)

    def sent(self, now: float, batches: Sequence[ProducerBatch]) -> None:
        """Sizes, queues, and the times in them."""
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
        """Latencies, here and of the broker."""
        self._notes.nodes[node_id].latencies.append(seconds * 1000)

    def throttled(self, now: float, milliseconds: int) -> None:
        """In milliseconds, as Java has it."""
        self._producer["produce-throttle-time"].record(now, milliseconds)

    def acknowledged(self, now: float, batch: ProducerBatch) -> None:
        """The time that its first record took counts for each: the others took less."""
        self._notes.acknowledged.append((now - batch.expires_at + self._lifetime, batch.count))

    def attempt_failed(self, error: Exception) -> None:
        """By Kafka's name of the error."""
        self._metrics.count("request-errors-total", _name(error))

    def retried(self, now: float, batch: ProducerBatch) -> None:
        """Here and of the topic."""
        self._producer["record-retry"].record(now, batch.count)
        self._topic(batch.queue.topic)["record-retry"].record(now, batch.count)

    def was_split(self, now: float) -> None:
        """Once for each that was cut."""
        self._producer["batch-split"].record(now)

    def failed(self, now: float, batch: ProducerBatch, cause: BaseException) -> None:
        """Here, of the topic, and by cause."""
        self._topic(batch.queue.topic)["record-error"].record(now, batch.count)
        self._fail(now, batch.count, cause)

    def given_up(self, now: float, topic: str, error: Exception) -> None:
        """As a record that failed, of a topic that is known already: names may be anything. Those that found no memory count once more."""
        if self._notes.batches:  # perhaps its first
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
        """The time between the one and the other."""
        since, self._short_since = self._short_since, now if is_short else None
        if since is not None:
            self._producer["bufferpool-wait"].record(now, now - since)

    def catch_up(self, now: float) -> None:
        """All that is noted, and of a wait for memory."""
        self._notes.settle(now)
        if self._short_since is not None:
            self.memory(now, is_short=True)

    def topic_came(self, now: float, seconds: float) -> None:
        """Of those who waited the first waited longest; the others' time is a part of its."""
        self._producer["metadata-wait"].record(now, seconds)

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        """Until the call ends, however it does."""
        began = self._clock()
        try:
            yield
        finally:
            now = self._clock()
            self._producer[name].record(now, now - began)


def _name(error: BaseException) -> str:
    """Kafka's name of a broker's error, else its class's."""
    return error.error.name if isinstance(error, BrokerError) else type(error).__name__
