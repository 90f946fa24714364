"""What is noted of batches and requests in a few steps, and recorded later, all together.

A dozen sensors and histograms are about every request. To go through them each time would cost a producer that sends one record at a time
a twentieth of its time. So a request leaves numbers in lists; after a second, or when they are many, or before somebody reads, these
go into sensors and histograms at once. Knows nothing of batches, or of clocks: `due` is compared by who has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioproducer.metrics.registry import Metrics
    from aioproducer.metrics.sensors import Sensors

__all__ = ["MANY", "NodeNotes", "Notes"]

MANY: Final = 256  # batches, or turns, that are recorded at once: some 0.1 ms
_LONGEST: Final = 1.0  # seconds between a note and its record; a tenth of a sample, if that is less

# topic, records, bytes with its header as it is sent, and of its records before compression, batches of its partition
_Batch: TypeAlias = "tuple[str, int, int, int, int]"


class NodeNotes:
    """What is noted of one broker: bytes of requests and of answers, and latencies of Produce requests in ms."""

    __slots__ = ("answers", "latencies", "requests", "sensors")

    def __init__(self, sensors: Sensors) -> None:
        self.sensors = sensors
        self.requests: list[float] = []
        self.answers: list[float] = []
        self.latencies: list[float] = []


class _Nodes(dict[int, NodeNotes]):
    """Each is there when it is first asked for."""

    __slots__ = ("_metrics",)

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def __missing__(self, node_id: int) -> NodeNotes:
        notes = self[node_id] = NodeNotes(self._metrics.node(node_id))
        return notes


class Notes:
    """Of one producer.

    Args:
        limit: bytes that a batch may take, before compression.
        compresses: batches are compressed.

    Attributes:
        due: when what is noted by then is to be recorded: who notes looks at it first.
        batches: that were sent, a row each.
        ages: ms since each was made that is sent for the first time.
        requests: records in each.
        acknowledged: seconds that a batch took, and its records.
        turns: seconds of each.
        nodes: what is noted of each broker, by its id.
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
        """It is a broker of the cluster no more."""
        notes = self.nodes.pop(node_id, None)
        if notes is not None:
            self._settle_node(self.due, notes)
        self._metrics.forget_node(node_id)

    def forget_topic(self, topic: str) -> None:
        """Nothing is produced to it any more."""
        if self.batches:
            self._settle_batches(self.due)
        self._metrics.forget_topic(topic)

    def settle(self, now: float) -> None:
        """Record what is noted: as of now, or of when it was due, as that is later than any of it."""
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
        """`_settle_topic` for the only batch of one: where topics are many, most have no second."""
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
