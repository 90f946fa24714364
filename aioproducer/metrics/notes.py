"""Holds notes: numbers about batches and requests, which are recorded later in sensors and histograms.

A dozen sensors and histograms cover every request. To update them each time would cost a producer that sends one record at a time
a twentieth of its time. So a request appends numbers to lists. All numbers are recorded together in sensors and histograms: after a
second, or when there are many, or before a snapshot. A caller that has a clock compares `due` with the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioproducer.metrics.registry import Metrics
    from aioproducer.metrics.sensors import Sensors

__all__ = ["MANY", "NodeNotes", "Notes"]

# Batches, or waits of drains, that are recorded at once: some 0.1 ms.
MANY: Final = 256
# Seconds between a note and its recording; a tenth of a sample, if that is less.
_LONGEST: Final = 1.0

# Topic, number of records, bytes of the batch with its header as it is sent, bytes of its records before compression, and number of
# batches of its partition.
_Batch: TypeAlias = "tuple[str, int, int, int, int]"


class NodeNotes:
    """Holds the notes about one broker: bytes of requests and of answers, and latencies of Produce requests in ms."""

    __slots__ = ("answers", "latencies", "requests", "sensors")

    def __init__(self, sensors: Sensors) -> None:
        self.sensors = sensors
        self.requests: list[float] = []
        self.answers: list[float] = []
        self.latencies: list[float] = []


class _Nodes(dict[int, NodeNotes]):
    """Holds the notes about brokers, by id. A look-up makes the notes that are missing."""

    __slots__ = ("_metrics",)

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def __missing__(self, node_id: int) -> NodeNotes:
        notes = self[node_id] = NodeNotes(self._metrics.node(node_id))
        return notes


class Notes:
    """Holds the notes of one producer.

    Args:
        limit: bytes that a batch may take, before compression.
        compresses: batches are compressed.

    Attributes:
        due: the time at which the notes must be recorded: a caller compares it before it adds a note.
        batches: one row for each batch that was sent.
        ages: ms since its creation, for each batch that is sent for the first time.
        requests: the number of records in each request.
        acknowledged: for each acknowledged batch, the seconds that it took, and its number of records.
        turns: the seconds that each drain waited for the event loop.
        nodes: the notes about each broker, by its id.
    """

    def __init__(self, metrics: Metrics, *, limit: int, compresses: bool) -> None:
        self.due = 0.0
        self.batches: list[_Batch] = []
        self.ages: list[float] = []
        self.requests: list[float] = []
        self.acknowledged: list[tuple[float, int]] = []
        self.turns: list[float] = []
        self.nodes = _Nodes(metrics)
        self._metrics = metrics
        self._limit = limit
        self._compresses = compresses
        self._interval = min(_LONGEST, metrics.windows.seconds / 10)

    def forget_node(self, node_id: int) -> None:
        """Record and remove the notes about a broker that is no longer part of the cluster."""
        notes = self.nodes.pop(node_id, None)
        if notes is not None:
            self._settle_node(self.due, notes)
        self._metrics.forget_node(node_id)

    def forget_topic(self, topic: str) -> None:
        """Record the notes about batches, and forget a topic that the producer no longer produces to."""
        if self.batches:
            self._settle_batches(self.due)
        self._metrics.forget_topic(topic)

    def settle(self, now: float) -> None:
        """Record all notes, with the time `now`, or with the time `due` if that is earlier. Neither is earlier than any note."""
        at, self.due = min(now, self.due), now + self._interval
        for notes in self.nodes.values():
            self._settle_node(at, notes)
        if self.batches:
            self._settle_batches(at)
        histograms = self._metrics.histograms
        if self.acknowledged:
            histograms["delivery-latency-seconds"].observe_weighed(self.acknowledged)
            self.acknowledged.clear()
        if self.turns:
            histograms["loop-turn-seconds"].observe_all(self.turns)
            self.turns.clear()

    def _settle_node(self, at: float, notes: NodeNotes) -> None:
        for name, values in (("request", notes.requests), ("response", notes.answers), ("request-latency", notes.latencies)):
            if values:
                notes.sensors[name].record_all(at, values)
                self._metrics.producer[name].record_all(at, values)
                values.clear()

    def _settle_batches(self, at: float) -> None:
        topics, records, sizes, before, depths = zip(*self.batches, strict=True)
        producer, histograms = self._metrics.producer, self._metrics.histograms
        producer["batch-size"].record_all(at, sizes)
        producer["record-send"].record_all(at, self.requests)
        if self.ages:
            producer["record-queue-time"].record_all(at, self.ages)
        histograms["batch-fill-ratio"].observe_all([size / self._limit for size in before])
        histograms["partition-queue-depth"].observe_all(depths)
        if topics.count(topics[0]) == len(topics):
            self._settle_topic(at, topics[0], records, sizes, before)
        else:
            for topic, rows in _by_topic(self.batches):
                if len(rows) > 1:
                    self._settle_topic(at, topic, *list(zip(*rows, strict=True))[1:4])
                else:
                    self._settle_row(at, *rows[0])
        for notes in (self.batches, self.requests, self.ages):
            notes.clear()

    def _settle_row(self, at: float, topic: str, records: int, size: int, before: int, _depth: int) -> None:
        """Record the only batch of a topic, as `_settle_topic` does. With many topics, most have no second batch."""
        sensors = self._metrics.topic(topic)
        sensors["record-send"].record(at, records)
        sensors["byte"].record(at, size)
        if self._compresses:
            ratio = (size - OVERHEAD) / before
            sensors["compression-rate"].record(at, ratio)
            self._metrics.producer["compression-rate"].record(at, ratio)

    def _settle_topic(self, at: float, topic: str, records: Sequence[int], sizes: Sequence[int], before: Sequence[int]) -> None:
        sensors = self._metrics.topic(topic)
        sensors["record-send"].record_all(at, records)
        sensors["byte"].record_all(at, sizes)
        if self._compresses:
            ratios = [(size - OVERHEAD) / raw for size, raw in zip(sizes, before, strict=True)]
            sensors["compression-rate"].record_all(at, ratios)
            self._metrics.producer["compression-rate"].record_all(at, ratios)


def _by_topic(batches: list[_Batch]) -> Iterable[tuple[str, list[_Batch]]]:
    rows: dict[str, list[_Batch]] = {}
    for batch in batches:
        of_topic = rows.get(batch[0])
        if of_topic is None:
            rows[batch[0]] = [batch]
        else:
            of_topic.append(batch)
    return rows.items()
