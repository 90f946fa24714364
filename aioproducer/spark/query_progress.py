"""Holds the numbers of one progress event of a streaming query.

Spark waits for a listener's callback, so `QueryProgress.of` copies fields and parses no offsets: a topic of 10,000 partitions has 100 KB of
them. The thread that commits the offsets, and the thread of a scrape, parse them.
"""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql.streaming.listener import (
        SourceProgress,
        StateOperatorProgress,
        StreamingQueryProgress,
    )

__all__ = ["QueryProgress", "SourceOffsets", "StateRows"]

# Other sources have offsets of the same form: the connector of Azure Event Hubs, for example.
_KAFKA: Final = "Kafka"
# The duration of the whole batch among the durations of its parts.
_WHOLE: Final = "triggerExecution"
_MILLISECONDS: Final = 1000.0


class SourceOffsets(NamedTuple):
    """Holds the offsets of a query's Kafka sources. If two sources read one partition, it has the offset of the slower one.

    Attributes:
        read: by partition, the offset of the next record that the query reads.
        latest: by partition, the end offset of the topic that Spark last saw. Some triggers have none.
    """

    read: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """Return the number of offsets that the query has not read, by partition."""
        return {
            partition: max(0, self.latest[partition] - offset)
            for partition, offset in self.read.items()
            if partition in self.latest
        }


class StateRows(NamedTuple):
    """Holds the rows of one operator with state.

    Attributes:
        number: the operator's position in the plan, from 0.
        operator: Spark's name of the operator.
        rows: rows in the state now.
        late: rows of this batch that the watermark dropped.
    """

    number: int
    operator: str
    rows: int
    late: int


class QueryProgress(NamedTuple):
    """Holds the numbers of one micro-batch.

    Attributes:
        input_rows_per_second, processed_rows_per_second: Spark's rates; NaN: Spark has none, as for a query's first batch.
        seconds: the duration of the batch; None: Spark did not measure it.
        part_seconds: the durations of the batch's parts, by Spark's names.
        watermark: Spark's text of the watermark; None: the query has none.
        offset_texts: the texts of the Kafka sources' end offset and latest offset.
    """

    batch_id: int
    input_rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    seconds: float | None
    part_seconds: Mapping[str, float]
    watermark: str | None
    state: tuple[StateRows, ...]
    offset_texts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> QueryProgress:
        """Return the numbers of a progress event. No text of it is parsed."""
        seconds = {part: ms / _MILLISECONDS for part, ms in progress.durationMs.items()}
        return cls(
            batch_id=progress.batchId,
            input_rows=progress.numInputRows,
            input_rows_per_second=progress.inputRowsPerSecond,
            processed_rows_per_second=progress.processedRowsPerSecond,
            seconds=seconds.pop(_WHOLE, None),
            part_seconds=seconds,
            watermark=progress.eventTime.get("watermark"),
            state=tuple(_state(progress.stateOperators)),
            offset_texts=tuple(_kafka_offsets(progress.sources)),
        )

    def offsets(self) -> SourceOffsets:
        """Parse the offsets of the Kafka sources. Offsets in an unknown form are left out."""
        read: dict[TopicPartition, int] = {}
        latest: dict[TopicPartition, int] = {}
        for end_text, latest_text in self.offset_texts:
            for offsets, text in ((read, end_text), (latest, latest_text)):
                for partition, offset in _parse(text):
                    offsets[partition] = min(offset, offsets.get(partition, offset))
        return SourceOffsets(read, latest)

    def watermark_seconds(self) -> float:
        """Return the watermark in seconds since the epoch; NaN: the query has none yet."""
        try:
            seconds = datetime.fromisoformat(self.watermark or "").timestamp()
        except ValueError:
            return math.nan
        # Spark's text before the first row is that of 1970.
        return seconds or math.nan


def _state(operators: Iterable[StateOperatorProgress]) -> Iterator[StateRows]:
    for number, operator in enumerate(operators):
        yield StateRows(
            number, operator.operatorName, operator.numRowsTotal, operator.numRowsDroppedByWatermark
        )


def _kafka_offsets(sources: Iterable[SourceProgress]) -> Iterator[tuple[str, str]]:
    for source in sources:
        if source.description.startswith(_KAFKA):
            yield source.endOffset, source.latestOffset


def _parse(text: str) -> Iterator[tuple[TopicPartition, int]]:
    """Return the offsets of `{"topic": {"0": 5}}`. A source without offsets has the text None or null."""
    try:
        topics = json.loads(text)
    except ValueError:
        return
    if not isinstance(topics, dict):
        return
    for topic, partitions in topics.items():
        if isinstance(partitions, dict):
            for number, offset in partitions.items():
                # Negative offsets stand for the start and the end of a partition.
                if number.isdecimal() and type(offset) is int and offset >= 0:
                    yield TopicPartition(topic, int(number)), offset
