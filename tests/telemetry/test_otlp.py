"""Tests of `aioproducer.telemetry.otlp`: what is exported is read back from OTLP's own protocol buffers."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    MetricsData,
)
from opentelemetry.sdk.resources import Resource

from aioproducer import Producer
from aioproducer.errors import UsageError
from aioproducer.telemetry.otlp import export, metrics_data, push
from aioproducer.testing import FakeCluster

pytestmark = pytest.mark.asyncio


class Collector(MetricExporter):
    """Takes what is exported through OTLP's bytes; `answers` are what it says, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers or (MetricExportResult.SUCCESS,))
        self.taken: list[dict[str, Any]] = []
        self.is_done = threading.Event()

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_options: Any
    ) -> MetricExportResult:
        sent = ExportMetricsServiceRequest.FromString(
            encode_metrics(metrics_data).SerializeToString()
        )
        self.taken.append(
            {
                metric.name: metric
                for resource in sent.resource_metrics
                for metric in resource.scope_metrics[0].metrics
            }
        )
        if len(self.answers) == 1:
            self.is_done.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        result: MetricExportResult = answer
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_options: Any) -> None:
        pass


def labels(point: Any) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in point.attributes}


async def test_numbers_and_histograms_arrive() -> None:
    """Monotonic sums since the producer's start, gauges, and histograms with all their buckets."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        began = time.time_ns()
        async with Producer(**cluster.client_options, client_id="mine") as producer:
            for number in range(10):
                await producer.send_and_wait("orders", b"%d" % number)
            collector = Collector()
            assert await asyncio.to_thread(export, collector, producer)
            told = producer.metrics()
    [taken] = collector.taken
    [sent] = taken["kafka.producer.record_send_total"].sum.data_points
    assert (sent.as_double, labels(sent)) == (10.0, {"client_id": "mine"})
    assert began - 2_000_000 <= sent.start_time_unix_nano <= sent.time_unix_nano <= time.time_ns()
    assert taken["kafka.producer.record_send_total"].sum.is_monotonic
    assert (
        taken["kafka.producer.record_send_total"].sum.aggregation_temporality
        == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    [topic] = taken["kafka.producer.topic.byte_total"].sum.data_points
    assert labels(topic) == {"client_id": "mine", "topic": "orders"}
    assert taken["kafka.producer.topic.byte_total"].unit == "By"
    assert taken["kafka.producer.record_send_rate"].unit == "{records}/s"
    assert taken["kafka.producer.brokers_up"].gauge.data_points[0].as_double == 1.0
    latency = taken["kafka.producer.delivery_latency_seconds"]
    [point] = latency.histogram.data_points
    distribution = told.distribution("delivery-latency-seconds")
    assert latency.unit == "s"
    assert (point.count, point.sum) == (10, pytest.approx(distribution.sum))
    assert not point.HasField("min")
    assert not point.HasField("max")
    assert tuple(point.explicit_bounds) == distribution.bounds
    assert tuple(point.bucket_counts) == distribution.counts
    assert "kafka.producer.produce_throttle_time_avg" not in taken  # there was none
    assert {
        labels(one)["node_id"] for one in taken["kafka.producer.node.request_total"].sum.data_points
    } >= {"node-1"}


async def test_it_belongs_to_a_resource_and_a_scope() -> None:
    """The environment's, or the one that is given."""
    async with FakeCluster(memory=True) as cluster, Producer(**cluster.client_options) as producer:
        [given] = metrics_data(
            [producer.metrics()], Resource({"service.name": "shop"})
        ).resource_metrics
        assert given.resource.attributes["service.name"] == "shop"
        assert given.scope_metrics[0].scope.name == "aioproducer"
        assert (
            metrics_data([producer.metrics()])
            .resource_metrics[0]
            .resource.attributes["telemetry.sdk.name"]
            == "opentelemetry"
        )


async def test_it_is_pushed_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """Also after a failure, which is logged once until it works again."""
    failure, success = MetricExportResult.FAILURE, MetricExportResult.SUCCESS
    collector = Collector(
        success, failure, OSError("no route"), success, OSError("no route"), success
    )

    async with FakeCluster(memory=True) as cluster, Producer(**cluster.client_options) as producer:
        pushing = asyncio.create_task(push(collector, producer, every=0.001))
        assert await asyncio.to_thread(collector.is_done.wait, 30)
        pushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pushing
    assert len(collector.taken) >= 6
    told = [record.getMessage() for record in caplog.records if record.name.endswith("otlp")]
    assert told == [
        "Metrics could not be exported: the exporter says that it failed. It is tried again every 0.001 s.",
        "Metrics could not be exported: OSError('no route'). It is tried again every 0.001 s.",
    ]


def shapes(data: MetricsData) -> dict[str, tuple[type, type]]:
    """Return the class of each kind of metric, and the class of its points."""
    metrics = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    return {
        type(metric.data).__name__: (type(metric.data), type(metric.data.data_points[0]))
        for metric in metrics
    }


async def test_the_words_are_the_sdks() -> None:
    """Our metrics have the classes of the SDK's own instruments. An upgrade that has other classes fails here."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("tests")
    meter.create_counter("a").add(1)
    meter.create_histogram("b").record(1)
    meter.create_gauge("c").set(1)
    theirs = reader.get_metrics_data()
    assert theirs is not None
    async with FakeCluster(memory=True) as cluster, Producer(**cluster.client_options) as producer:
        assert shapes(metrics_data([producer.metrics()])) == shapes(theirs)


async def test_two_producers_of_one_client_id_are_refused() -> None:
    """A backend would take the points of one for those of the other; `push` says so at once, not in its log."""
    async with (
        FakeCluster(memory=True) as cluster,
        Producer(**cluster.client_options, client_id="mine") as one,
        Producer(**cluster.client_options, client_id="mine") as two,
    ):
        with pytest.raises(UsageError, match="two producers have the client_id 'mine'"):
            export(Collector(), one, two)
        with pytest.raises(UsageError, match="two producers have the client_id 'mine'"):
            await push(Collector(), one, two)
