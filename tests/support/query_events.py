"""The events of three runs of real queries (pyspark 4.2.0, Kafka 4.3.1), as a listener is given them.

A query with a deduplication reads a topic of two partitions in two batches, is idle and is stopped. Its next run reads one batch. A query
without a name reads from Spark's rate source, and fails.
"""

from __future__ import annotations

import copy
import json
import pathlib
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from aioproducer.spark.query_progress import QueryProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

FLIGHTS = "09c83271-bbfa-4b3a-b403-f6e6dd7106d4"
RATE = "4a85f519-9a7a-49a4-8017-810aff666b58"
_RECORDED = [
    json.loads(line)
    for line in pathlib.Path(__file__).with_name("query_events.jsonl").read_text().splitlines()
]
# Positions in the recorded events.
STARTED, FIRST, SECOND, IDLE, STOPPED, STARTED_AGAIN, THIRD, STOPPED_AGAIN = range(8)
RATE_EVENTS = range(8, 12)


def play(listener: StreamingQueryListener, *numbers: int) -> None:
    """Call a listener with some of the recorded events."""
    for number in numbers:
        kind, event = _RECORDED[number]
        send(listener, kind, event)


def send(listener: StreamingQueryListener, kind: str, event: dict[str, Any]) -> None:
    """Call a listener with one event."""
    if kind == "started":
        listener.onQueryStarted(QueryStartedEvent.fromJson(event))
    elif kind == "progress":
        listener.onQueryProgress(QueryProgressEvent.fromJson({"progress": event}))
    elif kind == "idle":
        listener.onQueryIdle(QueryIdleEvent.fromJson(event))
    else:
        listener.onQueryTerminated(QueryTerminatedEvent.fromJson(event))


def recorded(number: int, **changes: Any) -> dict[str, Any]:
    """Return a recorded event with some fields changed."""
    event: dict[str, Any] = copy.deepcopy(_RECORDED[number][1])
    return event | changes


def source(
    end: Any, latest: Any = None, description: str = "KafkaV2[Subscribe[flights]]"
) -> dict[str, Any]:
    """Return a source of a progress event, with its offsets as JSON or as a text."""
    rates = {"numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    return {
        "description": description,
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        **rates,
    }


def progress_at(offset: int) -> QueryProgress:
    """Return the numbers of a batch that read the topic "flights" up to an offset in both partitions."""
    event = recorded(FIRST, sources=[source({"flights": {"0": offset, "1": offset}})])
    return QueryProgress.of(StreamingQueryProgress.fromJson(event))
