"""Exports metrics to OpenTelemetry (extra `otel`), with whole histograms.

    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from aioproducer.telemetry.otlp import push

    async with Producer(...) as producer, asyncio.TaskGroup() as group:
        pushing = group.create_task(push(OTLPMetricExporter(), producer, every=30))
        ...
        pushing.cancel()

OpenTelemetry's own instruments are read, or fed, one value at a time. So this module makes the SDK's data types of a snapshot, for any of
the SDK's metric exporters.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from aioproducer.build import VERSION
from aioproducer.metrics.registry import Distribution
from aioproducer.metrics.table import Group, Kind
from aioproducer.telemetry import check_client_ids, labels_of, prometheus_name, read_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.sdk.metrics.export import MetricExporter

    from aioproducer.metrics.registry import Snapshot
    from aioproducer.metrics.table import Row
    from aioproducer.telemetry import Metered

__all__ = ["export", "metrics_data", "push"]

_log = logging.getLogger(__name__)
_SCHEMA: Final = ""
# UCUM; all other units become {annotations}.
_UNITS: Final = {"s": "s", "ms": "ms", "ns": "ns", "bytes": "By", "bytes/s": "By/s", "ratio": "1"}
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
# Nanoseconds of a millisecond.
_NANOSECONDS: Final = 1_000_000
# A missing value, which OTLP allows and the SDK's types do not.
_UNKNOWN: Final[Any] = None


def metrics_data(snapshots: Iterable[Snapshot], resource: Resource | None = None) -> MetricsData:
    """Return snapshots of some producers as the SDK's data. Names are those of Prometheus, with dots.

    Args:
        snapshots: one snapshot of each producer, of one moment.
        resource: the resource of the metrics; None: that of the environment (`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`).
    """
    taken = list(snapshots)
    began = {client: int(value) * _NANOSECONDS for client, value in _starts(taken)}
    now = time.time_ns()
    metrics = []
    for row, values in read_all(taken):
        names = labels_of(row)
        points = [
            _point(value, dict(zip(names, labels, strict=True)), began.get(labels[0], now), now)
            for labels, value in values
        ]
        metrics.append(
            Metric(
                name=_name(row),
                description=row.doc,
                unit=_unit(row.unit),
                data=_data(row.kind, points),
            )
        )
    scope = InstrumentationScope("aioproducer", VERSION)
    scoped = ScopeMetrics(scope=scope, metrics=metrics, schema_url=_SCHEMA)
    return MetricsData(
        [
            ResourceMetrics(
                resource=resource or Resource.create(), scope_metrics=[scoped], schema_url=_SCHEMA
            )
        ]
    )


def _starts(snapshots: Iterable[Snapshot]) -> Iterable[tuple[str, float]]:
    for row, values in read_all(snapshots):
        if row.group is Group.APP:
            yield from (
                (labels[0], value)
                for labels, value in values
                if not isinstance(value, Distribution)
            )


def _name(row: Row) -> str:
    name = prometheus_name(row) + ("_total" if row.kind is Kind.COUNTER else "")
    for prefix in (
        "kafka_producer_node_",
        "kafka_producer_topic_",
        "kafka_producer_partition_",
        "kafka_producer_",
    ):
        if name.startswith(prefix):
            return prefix.replace("_", ".") + name.removeprefix(prefix)
    return name


def _unit(unit: str) -> str:
    amount, slash, each = unit.partition("/")
    return _UNITS.get(unit) or "{" + amount + "}" + slash + each


def _point(value: float | Distribution, attributes: dict[str, str], began: int, now: int) -> Any:
    if isinstance(value, Distribution):
        return HistogramDataPoint(
            attributes=attributes,
            start_time_unix_nano=began,
            time_unix_nano=now,
            count=value.count,
            sum=value.sum,
            bucket_counts=value.counts,
            explicit_bounds=value.bounds,
            min=_UNKNOWN,
            max=_UNKNOWN,
        )
    return NumberDataPoint(
        attributes=attributes, start_time_unix_nano=began, time_unix_nano=now, value=value
    )


def _data(kind: Kind, points: list[Any]) -> Any:
    if kind is Kind.HISTOGRAM:
        return Histogram(data_points=points, aggregation_temporality=_CUMULATIVE)
    if kind is Kind.COUNTER:
        return Sum(data_points=points, aggregation_temporality=_CUMULATIVE, is_monotonic=True)
    return Gauge(data_points=points)


def export(exporter: MetricExporter, *producers: Metered, resource: Resource | None = None) -> bool:
    """Export once, in the calling thread. Returns whether the exporter reports success.

    Exporters wait for their network, so call it in a worker thread.

    Raises:
        UsageError: two of the producers have one `client_id`.
    """
    check_client_ids(producers)
    data = metrics_data([producer.metrics() for producer in producers], resource)
    return exporter.export(data) is MetricExportResult.SUCCESS


async def push(
    exporter: MetricExporter,
    *producers: Metered,
    every: float = 60.0,
    resource: Resource | None = None,
) -> None:
    """Export again and again, in a worker thread, until the task is cancelled. A failure is logged once until an export succeeds.

    Args:
        exporter: any exporter of the SDK, such as `OTLPMetricExporter()`. The caller shuts it down.
        producers: the producers that have the metrics.
        every: seconds from one export to the next.
        resource: as for `metrics_data`.

    Raises:
        UsageError: two of the producers have one `client_id`.
    Cancellation: the exporter's own timeout ends an export that runs.
    """
    check_client_ids(producers)
    is_well = True
    while True:
        await asyncio.sleep(every)
        reason = "the exporter says that it failed"
        try:
            is_done = await asyncio.to_thread(export, exporter, *producers, resource=resource)
        except Exception as error:
            is_done, reason = False, repr(error)
        if not is_done and is_well:
            _log.warning(
                "Metrics could not be exported: %s. It is tried again every %g s.", reason, every
            )
        is_well = is_done
