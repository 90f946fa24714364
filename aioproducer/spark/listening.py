"""Holds `QueryMetrics`, a listener that shows streaming queries to Prometheus and to tools that read the lag of consumer groups.

    metrics = QueryMetrics(bootstrap_servers="localhost:9092")
    spark.streams.addListener(metrics)
    prometheus_client.REGISTRY.register(metrics)

Spark commits no offsets of a query to Kafka, so tools such as `kafka-consumer-groups` do not know the query. With `bootstrap_servers`, this
listener commits them after each batch, to a consumer group that has the query's id as its name. The group's offsets are a copy: Spark starts
a query from its checkpoint alone.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError, UsageError
from aioproducer.offsets import read_group
from aioproducer.transaction_resolver import TransactionResolver

from .offset_commits import OffsetCommits
from .query_progress import QueryProgress, SourceOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from uuid import UUID

    from prometheus_client.metrics_core import Metric
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["QueryMetrics"]

# The number of ended queries with counts in the metrics.
_MAX_ENDED: Final = 100
# Milliseconds that one commit may take.
_MAX_BLOCK_MS: Final = 10_000
# Seconds that `close` waits for the last commits.
_CLOSE_SECONDS: Final = 5.0


def _check_group(group: Any) -> None:
    """Raise ConfigError for a group that no commit could have: a listener that fails later only warns."""
    names = group.values() if isinstance(group, Mapping) else () if group is None else (group,)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(
            "group: it is the name of a consumer group, or the groups by the names of queries"
        )
    try:
        for name in names:
            read_group(name)
    except UsageError as error:
        raise ConfigError(f"group: {error}") from None


class QueryMetrics(StreamingQueryListener):
    """Shows the progress of streaming queries as metrics, and commits the offsets of their Kafka sources to consumer groups.

    `spark.streams.addListener` makes Spark call it. `register` of a registry of `prometheus_client` (extra `prometheus`) makes a scrape show
    its metrics, named `spark_query_...`. A daemon thread commits the offsets: Spark waits neither for Kafka nor for a scrape. A commit that
    fails costs a warning, at most one in five minutes, and the query goes on.

    Args:
        config: a `ProducerConfig`; without one, the caller gives its fields as `options`. Without both, no offsets are committed. All
            queries with a group read from this cluster.
        group: the name of the consumer group; or the groups of some queries, by the query's name. Other queries have their id as group. Two
            queries that read one topic need two groups.
        options: fields of `ProducerConfig`.

    Raises:
        ConfigError: an option is unknown or bad, a group has no name that Kafka takes, or there is a group without a cluster.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        group: str | Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        _check_group(group)
        self._group = group
        self._commits: OffsetCommits | None = None
        if config is not None or options:
            made = ProducerConfig.of(config, options)
            # A group that does not answer holds up the groups of the other queries.
            made = made.replace(max_block_ms=min(made.max_block_ms, _MAX_BLOCK_MS))
            # It refuses now what it would refuse in the thread.
            TransactionResolver(made)
            self._commits = OffsetCommits(partial(TransactionResolver, made))
        elif group is not None:
            raise ConfigError(
                "a group needs the cluster of its offsets: give bootstrap_servers, or a config"
            )
        # Spark's listener thread changes the queries, and a scrape reads them.
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}

    def close(self) -> None:
        """Commit the last offsets, and end the thread, at most after some seconds. Later events change metrics only.

        At the end of the interpreter this is done without a call, within two seconds.
        """
        if self._commits is not None:
            self._commits.close(_CLOSE_SECONDS)

    # --- Spark's names

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Begin to show a query. Spark calls it in the thread that starts the query."""
        with self._lock:
            query = self._query(event.id, event.name)
            query.run_id, query.is_running, query.progress = event.runId, True, None

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take the numbers of a batch. They are parsed in other threads."""
        progress = QueryProgress.of(event.progress)
        with self._lock:
            query = self._query(event.progress.id, event.progress.name)
            # The listener was added while the query ran.
            if query.run_id is None:
                query.run_id, query.is_running = event.progress.runId, True
            # A run that has ended; its last events come after the start of the next run.
            if query.run_id != event.progress.runId:
                return
            query.add(progress)
        if self._commits is not None and progress.offset_texts:
            self._commits.put(query.query_id, self._group_of(query), progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the numbers of the last batch are still true."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Show that a query ended. Its gauges are not shown any more."""
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is None:
                return
            query.failures += event.exception is not None
            # The next run has started already.
            if query.run_id not in {None, event.runId}:
                return
            query.run_id, query.is_running, query.progress = None, False, None
            self._forget_ended()
        if self._commits is not None:
            self._commits.end(query.query_id)

    # --- prometheus_client's names

    def describe(self) -> Iterator[Metric]:
        """Return all metrics that there may be, so that a registry refuses a second listener."""
        for row in _TABLE:
            yield _family(row)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics that a scrape shows."""
        shown = self._shown()
        for row in _TABLE:
            family = _family(row)
            for query in shown:
                for labels, value in row.read(query):
                    if not math.isnan(value):
                        family.add_metric((query.name, query.query_id, *labels), value)
            yield family

    # --- queries

    def _query(self, query_id: UUID, name: str | None) -> _Query:
        """Return the numbers of a query. The caller holds the lock."""
        key = str(query_id)
        # The newest query is the last one.
        query = self._queries.pop(key, None) or _Query(key)
        query.name = name or key
        self._queries[key] = query
        return query

    def _forget_ended(self) -> None:
        ended = [key for key, query in self._queries.items() if not query.is_running]
        for key in ended[:-_MAX_ENDED]:
            del self._queries[key]

    def _group_of(self, query: _Query) -> str:
        if isinstance(self._group, str):
            return self._group
        return (self._group or {}).get(query.name, query.query_id)

    def _shown(self) -> list[_Shown]:
        with self._lock:
            queries = [
                (
                    query,
                    query.progress,
                    (
                        query.is_running,
                        query.failures,
                        query.batches,
                        query.input_rows,
                        query.late_rows,
                    ),
                )
                for query in self._queries.values()
            ]
        done, failed = (
            ({}, {}) if self._commits is None else (self._commits.done, self._commits.failed)
        )
        return [
            _Shown(
                query.name,
                query.query_id,
                *counts,
                commits=done.get(query.query_id, 0),
                commit_failures=failed.get(query.query_id, 0),
                progress=progress,
                offsets=SourceOffsets({}, {}) if progress is None else progress.offsets(),
            )
            for query, progress, counts in queries
        ]


class _Query:
    """Counts what a query did since the listener was added; `run_id` is that of its current run."""

    def __init__(self, query_id: str) -> None:
        self.query_id = query_id
        self.name = query_id
        self.run_id: UUID | None = None
        self.is_running = False
        self.failures = 0
        self.batches = 0
        self.input_rows = 0
        self.late_rows = 0
        self.progress: QueryProgress | None = None

    def add(self, progress: QueryProgress) -> None:
        """Count a batch, and keep its numbers."""
        self.batches += 1
        self.input_rows += progress.input_rows
        self.late_rows += sum(operator.late for operator in progress.state)
        self.progress = progress


class _Shown(NamedTuple):
    """Holds the numbers of one query that a scrape shows."""

    name: str
    query_id: str
    is_running: bool
    failures: int
    batches: int
    input_rows: int
    late_rows: int
    commits: int
    commit_failures: int
    progress: QueryProgress | None
    offsets: SourceOffsets


class _Row(NamedTuple):
    """Holds one metric. Its labels come after the name and the id of the query."""

    name: str
    doc: str
    read: Callable[[_Shown], Iterable[tuple[tuple[str, ...], float]]]
    labels: tuple[str, ...] = ()
    is_counter: bool = False


def _count(name: str, doc: str, field: str) -> _Row:
    return _Row(name, doc, lambda query: [((), getattr(query, field))], is_counter=True)


def _gauge(name: str, doc: str, read: Callable[[QueryProgress], float | None]) -> _Row:
    def values(query: _Shown) -> Iterator[tuple[tuple[str, ...], float]]:
        if query.progress is not None and (value := read(query.progress)) is not None:
            yield (), value

    return _Row(name, doc, values)


def _offsets(name: str, doc: str, field: str) -> _Row:
    def values(query: _Shown) -> Iterator[tuple[tuple[str, ...], float]]:
        for (topic, partition), offset in getattr(query.offsets, field).items():
            yield (topic, str(partition)), offset

    return _Row(name, doc, values, ("topic", "partition"))


def _parts(query: _Shown) -> Iterator[tuple[tuple[str, ...], float]]:
    if query.progress is not None:
        for part, seconds in query.progress.part_seconds.items():
            yield (part,), seconds


def _state_rows(query: _Shown) -> Iterator[tuple[tuple[str, ...], float]]:
    if query.progress is not None:
        for operator in query.progress.state:
            yield (str(operator.number), operator.operator), operator.rows


_TABLE: Final = (
    _Row("running", "1: the query runs; 0: it has ended", lambda query: [((), query.is_running)]),
    _count("failures", "runs that ended with an error", "failures"),
    _count("batches", "micro-batches that were done", "batches"),
    _count("input_rows", "rows that were read", "input_rows"),
    _count("late_rows", "rows that the watermark dropped", "late_rows"),
    _gauge("batch_id", "number of the last micro-batch", lambda progress: progress.batch_id),
    _gauge(
        "input_rows_per_second",
        "rows/s that arrived",
        lambda progress: progress.input_rows_per_second,
    ),
    _gauge(
        "processed_rows_per_second",
        "rows/s that were processed",
        lambda progress: progress.processed_rows_per_second,
    ),
    _gauge(
        "batch_seconds", "seconds that the last micro-batch took", lambda progress: progress.seconds
    ),
    _Row(
        "batch_part_seconds",
        "seconds that a part of the last micro-batch took, by Spark's names",
        _parts,
        ("part",),
    ),
    _gauge(
        "watermark_timestamp_seconds",
        "watermark, in seconds since the epoch",
        QueryProgress.watermark_seconds,
    ),
    _Row("state_rows", "rows in the state of an operator", _state_rows, ("number", "operator")),
    _offsets("source_offset", "offset of the next record to read", "read"),
    _offsets("latest_offset", "end offset of the partition", "latest"),
    _offsets("lag", "offsets of the partition that are not read", "lag"),
    _count("offset_commits", "commits of offsets to the consumer group", "commits"),
    _count("offset_commit_failures", "commits of offsets that failed", "commit_failures"),
)


def _family(row: _Row) -> Any:
    # Without Prometheus, the listener only commits offsets.
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family = CounterMetricFamily if row.is_counter else GaugeMetricFamily
    return family(f"spark_query_{row.name}", row.doc, labels=("query", "query_id", *row.labels))
