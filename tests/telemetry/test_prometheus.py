"""Tests of `aioproducer.telemetry.prometheus`: what a scrape shows is read by Prometheus's own parser."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from aioproducer import Producer, Snapshot
from aioproducer.errors import UsageError
from aioproducer.metrics.table import TABLE
from aioproducer.telemetry import labels_of, prometheus_name
from aioproducer.telemetry.prometheus import ProducerCollector
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from prometheus_client import Metric

pytestmark = pytest.mark.asyncio


def scrape(registry: CollectorRegistry) -> dict[str, Metric]:
    """The families of one scrape, by name."""
    return {
        family.name: family
        for family in text_string_to_metric_families(generate_latest(registry).decode())
    }


def samples(family: Metric) -> dict[tuple[str, ...], float]:
    return {(sample.name, *sample.labels.values()): sample.value for sample in family.samples}


async def test_a_scrape_shows_the_producers_numbers() -> None:
    """Counters, gauges, histograms, each under its labels."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, client_id="mine") as producer:
            for number in range(10):
                await producer.send_and_wait("orders", b"%d" % number)
            registry = CollectorRegistry()
            registry.register(ProducerCollector(producer))
            told = producer.metrics()
            families = scrape(registry)
    assert (
        samples(families["kafka_producer_record_send"])["kafka_producer_record_send_total", "mine"]
        == 10
    )
    topics = [
        sample
        for sample in families["kafka_producer_topic_record_send"].samples
        if sample.labels["topic"] == "orders"
    ]
    assert [
        (sample.value, sample.labels["client_id"])
        for sample in topics
        if sample.name.endswith("_total")
    ] == [(10, "mine")]
    assert samples(families["kafka_producer_brokers_up"]) == {
        ("kafka_producer_brokers_up", "mine"): 1
    }
    latency = families["kafka_producer_delivery_latency_seconds"]
    assert latency.type == "histogram"
    distribution = told.distribution("delivery-latency-seconds")
    buckets = {
        sample.labels["le"]: sample.value
        for sample in latency.samples
        if sample.name.endswith("_bucket")
    }
    assert buckets["+Inf"] == 10
    assert list(buckets.values()) == sorted(buckets.values())
    assert [float(bound) for bound in buckets][:-1] == list(distribution.bounds)
    assert buckets[repr(distribution.bounds[0])] == distribution.counts[0]
    assert "kafka_producer_produce_throttle_time_avg" not in families  # there was none
    assert samples(families["kafka_producer_up"]) == {("kafka_producer_up",): 1}


async def test_every_family_is_in_the_table_and_openmetrics_takes_it() -> None:
    """The strict parser of OpenMetrics, too."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, metrics_recording_level="debug") as producer:
            cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
            cluster.delay("Produce", 0.01, times=1)
            delivery = await producer.send("orders", b"x")
            registry = CollectorRegistry()
            registry.register(ProducerCollector(producer))
            families = list(parse_openmetrics(generate_openmetrics(registry).decode()))  # type: ignore[no-untyped-call]
            await delivery
            known = {prometheus_name(row): set(labels_of(row)) for row in TABLE.values()}
            for family in families:
                for sample in family.samples:
                    assert (
                        family.name == "kafka_producer_up"
                        or set(sample.labels) - {"le"} == known[family.name]
                    )
            assert "kafka_producer_partition_incomplete_batches" in {
                family.name for family in families
            }
            names = [prometheus_name(row) for row in TABLE.values()]
            assert len(names) == len(set(names))


async def test_several_producers_share_a_collector() -> None:
    """Each under its client_id; a second collector is refused, for its families would be there twice."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with (
            Producer(**cluster.client_options, client_id="one") as one,
            Producer(**cluster.client_options, client_id="two") as two,
        ):
            await one.send_and_wait("orders", b"x")
            registry = CollectorRegistry()
            collector = ProducerCollector(one)
            registry.register(collector)
            with pytest.raises(ValueError, match="Duplicated timeseries"):
                registry.register(ProducerCollector(two))
            collector.add(two)
            collector.add(two)
            sent = samples(scrape(registry)["kafka_producer_record_send"])
            assert {key[1]: value for key, value in sent.items() if key[0].endswith("_total")} == {
                "one": 1,
                "two": 0,
            }
            collector.remove(one)
            sent = samples(scrape(registry)["kafka_producer_record_send"])
            assert {key[1] for key in sent} == {"two"}


async def test_two_producers_of_one_client_id_are_refused() -> None:
    """Each series would be there twice, which a scrape refuses as a whole. Both are named, and the first is shown on."""
    async with (
        FakeCluster(memory=True) as cluster,
        Producer(**cluster.client_options, client_id="mine") as one,
        Producer(**cluster.client_options, client_id="mine") as two,
    ):
        collector = ProducerCollector(one)
        with pytest.raises(UsageError, match="two producers have the client_id 'mine'") as caught:
            collector.add(two)
        assert str(caught.value).count("<Producer ") == 2
        with pytest.raises(UsageError, match="'mine'"):
            ProducerCollector(one, two)
        collector.add(one)
        registry = CollectorRegistry()
        registry.register(collector)
        assert len(series(registry)) == len(set(series(registry)))
        collector.remove(one)
        collector.add(two)


async def test_a_producer_takes_the_place_of_one_that_has_stopped() -> None:
    """A default client id is used again: the series go on, from 0 as after a restart."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        collector = ProducerCollector()
        registry = CollectorRegistry()
        registry.register(collector)
        for _ in range(3):
            async with (
                Producer(**cluster.client_options) as producer,
                Producer(**cluster.client_options) as other,
            ):
                await producer.send_and_wait("orders", b"v")
                collector.add(producer)
                collector.add(other)
            assert len(series(registry)) == len(set(series(registry)))
            sent = samples(scrape(registry)["kafka_producer_record_send"])
            assert sorted(value for key, value in sent.items() if key[0].endswith("_total")) == [
                0,
                1,
            ]


def series(registry: CollectorRegistry) -> list[tuple[Any, ...]]:
    """Every series that a scrape shows."""
    return [
        (sample.name, *sorted(sample.labels.items()))
        for family in registry.collect()
        for sample in family.samples
    ]


async def test_a_thread_scrapes_while_the_loop_runs() -> None:
    """A thread scrapes the collector, as `start_http_server` does, while the loop sends."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options) as producer:
            registry = CollectorRegistry()
            registry.register(ProducerCollector(producer))
            async with asyncio.TaskGroup() as group:
                scraping = group.create_task(
                    asyncio.to_thread(lambda: [scrape(registry) for _ in range(20)])
                )
                for number in range(2000):
                    await producer.send("orders", b"%d" % number)
            families = scraping.result()[-1]
            assert samples(families["kafka_producer_up"]) == {("kafka_producer_up",): 1}


class Held:
    """A producer that answers the first time, and then times out as if its loop were held."""

    def __init__(self, first: Snapshot) -> None:
        self._answers: list[Any] = [first]

    def metrics(self) -> Snapshot:
        if not self._answers:
            raise TimeoutError
        answer: Snapshot = self._answers.pop()
        return answer


async def test_while_the_loop_is_held_the_last_numbers_are_shown() -> None:
    """The collector shows the last numbers and says that they are old."""
    async with (
        FakeCluster(memory=True) as cluster,
        Producer(**cluster.client_options, client_id="aioproducer") as producer,
    ):
        registry = CollectorRegistry()
        registry.register(ProducerCollector(Held(producer.metrics())))
    assert samples(scrape(registry)["kafka_producer_up"]) == {("kafka_producer_up",): 1}
    families = scrape(registry)
    assert samples(families["kafka_producer_up"]) == {("kafka_producer_up",): 0}
    assert samples(families["kafka_producer_brokers_known"]) == {
        ("kafka_producer_brokers_known", "aioproducer"): 1
    }
