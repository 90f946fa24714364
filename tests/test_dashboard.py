"""The dashboard for Grafana asks for what is exported, and is what its maker makes now."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aioproducer import Producer
from aioproducer.metrics.table import TABLE, Kind
from aioproducer.telemetry import labels_of, prometheus_name
from aioproducer.telemetry.prometheus import ProducerCollector
from aioproducer.testing import FakeCluster

ROOT = pathlib.Path(__file__).parents[1]
DASHBOARD = json.loads((ROOT / "docs/topics/dashboard.json").read_text(encoding="utf-8"))
GRAPHS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in GRAPHS for target in panel["targets"]]
SUFFIXES = {
    Kind.COUNTER: ("_total",),
    Kind.GAUGE: ("",),
    Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}
EXPORTED = {
    prometheus_name(row) + suffix: row for row in TABLE.values() for suffix in SUFFIXES[row.kind]
}


def names(query: str) -> list[str]:
    return re.findall(r"kafka_producer_\w+", query)


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_asks_for_what_is_exported(query: str) -> None:
    """Names as a scrape has them, counters and buckets as rates, and only labels that they have."""
    assert names(query)
    for name in names(query):
        row = EXPORTED[name]
        assert (f"rate({name}" in query) == (row.kind is not Kind.GAUGE)
        by = re.search(r"sum by \((\w+)\)", query)
        assert by is None or by[1] in (*labels_of(row), "le")
        assert "client_id" in labels_of(row)


@pytest.mark.asyncio
async def test_a_busy_producer_has_data_for_it() -> None:
    """Each name of the dashboard is in a scrape of a producer to which everything has happened."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(
            **cluster.client_options, retries=0, enable_idempotence=False
        ) as producer:
            await producer.send_and_wait("orders", b"x")
            cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
            await (await producer.send_many("orders", [b"y"])).wait()
            registry = CollectorRegistry()
            registry.register(ProducerCollector(producer))
            families = text_string_to_metric_families(generate_latest(registry).decode())
            found = {sample.name for family in families for sample in family.samples}
    assert sorted({name for query in QUERIES for name in names(query)} - found) == []
