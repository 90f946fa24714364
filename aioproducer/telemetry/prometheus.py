"""Holds the collector that shows metrics to Prometheus (extra `prometheus`).

    from prometheus_client import REGISTRY
    from aioproducer.telemetry.prometheus import ProducerCollector

    REGISTRY.register(ProducerCollector(producer))

A scrape takes one snapshot of each producer, in the thread that scrapes. The event loop supplies only a few numbers. While other code
blocks the loop, a scrape shows the values of the scrape before, and `kafka_producer_up` is 0.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from aioproducer.metrics.registry import Distribution, Snapshot
from aioproducer.metrics.table import TABLE, Kind
from aioproducer.telemetry import (
    check_client_ids,
    client_id_of,
    labels_of,
    prometheus_name,
    read_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from aioproducer.metrics.table import Row
    from aioproducer.telemetry import Metered

__all__ = ["ProducerCollector"]

_STOPPED: Final = "the producer has stopped"
_FAMILIES: Final[dict[Kind, Any]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


class ProducerCollector(Collector):
    """Shows the metrics of some producers. Register it once, and `add` producers that are made later.

    The `client_id` distinguishes the metrics of the producers, so each producer needs its own. A producer without one chooses its own.
    """

    def __init__(self, *producers: Metered) -> None:
        self._last: dict[Metered, Snapshot] = {}
        for producer in producers:
            self.add(producer)

    def add(self, producer: Metered) -> None:
        """Show the metrics of `producer` too, and remove those of a stopped producer with the same client id.

        Raises:
            UsageError: a producer of the same `client_id` that has not stopped is shown.
        """
        for other in tuple(self._last):
            if (
                other is not producer
                and client_id_of(other) == client_id_of(producer)
                and _has_stopped(other)
            ):
                self.remove(other)
        check_client_ids((*self._last, producer))
        self._last.setdefault(producer, Snapshot())

    def remove(self, producer: Metered) -> None:
        """Stop showing the metrics of `producer`."""
        self._last.pop(producer, None)

    def describe(self) -> Iterator[Metric]:
        """Return all metrics that there may be, so that a registry refuses a second collector. No producer is read."""
        yield GaugeMetricFamily("kafka_producer_up", "producers that told their metrics")
        for row in TABLE.values():
            yield _family(row)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics that a scrape shows."""
        up = 0
        for producer in tuple(self._last):
            try:
                self._last[producer] = producer.metrics()
                up += 1
            # Other code blocks the producer's loop.
            except TimeoutError:
                pass
        yield GaugeMetricFamily("kafka_producer_up", "producers that told their metrics", value=up)
        for row, values in read_all(tuple(self._last.values())):
            family = _family(row)
            for labels, value in values:
                if isinstance(value, Distribution):
                    family.add_metric(labels, _buckets(value), value.sum)
                else:
                    family.add_metric(labels, value)
            yield family


def _has_stopped(producer: Any) -> bool:
    health = getattr(producer, "health", None)
    try:
        return health is not None and _STOPPED in health().reasons
    # A producer with a blocked loop has not stopped.
    except TimeoutError:
        return False


def _family(row: Row) -> Any:
    return _FAMILIES[row.kind](prometheus_name(row), f"{row.unit} {row.doc}", labels=labels_of(row))


def _buckets(value: Distribution) -> list[tuple[str, float]]:
    """Return the buckets as cumulative counts, which Prometheus expects."""
    bounds = (*(repr(bound) for bound in value.bounds), "+Inf")
    return list(zip(bounds, map(float, accumulate(value.counts)), strict=True))
