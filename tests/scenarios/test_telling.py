"""Structured events: one for a change of state, none for a record; and the texts of the parts in a log."""

from __future__ import annotations

import asyncio
import logging
import re
import string
from typing import Any

import pytest
from whole import jumping, running, turns

from aioproducer import BootstrapFailed, Delivery, Producer, ProducerClosed, build_info
from aioproducer.engine.observability.diagnostics import EVENTS, Events
from aioproducer.metrics.registry import Metrics, Windows
from aioproducer.testing import FakeCluster


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """Return a function that lists the events so far, by name, at every level."""
    caplog.set_level(logging.DEBUG, "aioproducer.events")
    return lambda: [
        record.event for record in caplog.records if record.name == "aioproducer.events"
    ]


@jumping
async def test_a_quiet_life_is_told_in_a_few_lines(told: Any) -> None:
    """The producer logs its start, its connections, its producer id and its end. It logs nothing for 500 records."""
    async with running(client_id="mine") as (_, producer):
        for number in range(500):
            await producer.send("orders", b"%d" % number)
        await producer.flush()
        assert sorted(told()) == ["broker-connected"] * 3 + [
            "broker-lost",
            "producer-id-granted",
            "producer-started",
        ]
        assert producer.metrics().number("events-total", event="broker-connected") == 3
    assert told().count("producer-stopped") == 1


@jumping
async def test_a_quiet_life_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    """A start, records and a stop, at INFO and above, of all loggers."""
    caplog.set_level(logging.INFO)
    async with running(client_id="mine") as (_, producer):
        await producer.send_and_wait("orders", b"v")
        await asyncio.sleep(1000)
        await producer.send_and_wait("orders", b"v")
    assert [record.getMessage() for record in caplog.records] == [
        "mine: the producer runs",
        "mine: the producer has stopped; batches that had not ended: 0",
    ]


@jumping
async def test_a_bootstrap_broker_has_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka's number of such a broker, -2, says nothing to the reader. Two addresses that do not answer are two warnings."""
    async with FakeCluster(memory=True, brokers=2) as cluster:
        for broker in cluster.brokers.values():
            await broker.stop()
        producer = Producer(**cluster.client_options, client_id="mine", max_block_ms=5_000)
        with pytest.raises(BootstrapFailed):
            await producer.start()
        warned = [
            record
            for record in caplog.records
            if record.levelno == logging.WARNING and record.name == "aioproducer.events"
        ]
        assert sorted(record.getMessage().partition(" cannot")[0] for record in warned) == [
            "mine: broker bootstrap at broker-1.memory:9092",
            "mine: broker bootstrap at broker-2.memory:9092",
        ]
        assert {record.facts["node_id"] for record in warned} == {"bootstrap"}  # type: ignore[attr-defined]
        await producer.stop()


@jumping
async def test_a_broker_that_comes_and_goes_is_a_warning_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each outage begins with a failed attempt; of ten in twenty seconds, two or three are in the log."""
    async with running(reconnect_backoff_ms=50, reconnect_backoff_max_ms=50) as (cluster, producer):
        await producer.send_and_wait("orders", b"v")
        for _ in range(10):
            await cluster.brokers[1].stop()
            delivery = await producer.send("orders", b"v")
            await asyncio.sleep(1)
            await cluster.brokers[1].start()
            await delivery
            await asyncio.sleep(1)
    warned = [
        record
        for record in caplog.records
        if record.name == "aioproducer.events" and record.levelno == logging.WARNING
    ]
    assert 2 <= len(warned) <= 3


@jumping
async def test_an_outage_is_told_once_when_it_begins_and_ends(
    told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer logs an outage once, not for each attempt. The events carry facts for handlers that write JSON."""
    async with running(brokers=2, client_id="mine", delivery_timeout_ms=600_000) as (
        cluster,
        producer,
    ):
        await asyncio.gather(
            *[await producer.send("orders", b"x", partition=at) for at in range(2)]
        )
        caplog.clear()
        await cluster.brokers[2].stop(silently=True)
        delivery = await producer.send("orders", b"y", partition=cluster_partition(cluster, 2))
        await asyncio.sleep(30)
        assert told().count("broker-unreachable") == 1
        lost = next(record for record in caplog.records if record.event == "broker-lost")
        assert lost.facts["node_id"] == 2
        assert lost.facts["client_id"] == "mine"
        assert lost.getMessage().startswith("mine: broker 2 at broker-2.memory:9092: the ")
        caplog.clear()
        await cluster.brokers[2].start()
        await delivery
        assert "broker-connected" in told()


def cluster_partition(cluster: FakeCluster, broker: int) -> int:
    return next(at for at in range(2) if cluster.leader("orders", at) == broker)


def test_a_producer_whose_asyncio_run_has_ended(told: Any) -> None:
    """It says that its tasks were cancelled, and by whom: a global producer that a second `asyncio.run` uses. It said `CancelledError()`."""
    why = "its tasks were cancelled, as asyncio.run cancels all tasks at its end: start and stop it within one asyncio.run"

    async def begin() -> tuple[FakeCluster, Producer]:
        cluster = FakeCluster(memory=True)
        cluster.create_topic("orders")
        await cluster.__aenter__()
        producer = Producer(**cluster.client_options, linger_ms=60_000, delivery_timeout_ms=120_000)
        await producer.start()
        deliveries.append(await producer.send("orders", b"v", partition=0))
        return cluster, producer

    async def go_on() -> None:
        calls = (
            lambda: producer.send("orders", b"v"),
            producer.flush,
            lambda: producer.partitions_for("orders"),
        )
        for call in calls:
            with pytest.raises(
                ProducerClosed, match=f"^the producer failed: {why}. Make a new one.$"
            ):
                await call()
        await producer.stop()

    deliveries: list[Delivery] = []
    _cluster, producer = asyncio.run(begin())
    asyncio.run(go_on())
    assert producer.health().reasons == (f"the producer failed: {why}",)
    assert f"failed: {why}" in producer.explain()
    assert why in str(deliveries[0].exception())
    assert told().count("producer-failed") == 1


@jumping
async def test_throttles_and_forgotten_clusters_are_told(told: Any) -> None:
    """The producer logs once that a broker throttles it. It also logs when it forgets all brokers."""
    async with running(
        partitions=1, metadata_recovery_rebootstrap_trigger_ms=3000, metadata_max_age_ms=1000
    ) as (cluster, producer):
        cluster.throttle("Produce", 2.0)
        await producer.send_and_wait("orders", b"x")
        assert told().count("broker-throttles") == 1
        await asyncio.sleep(3)
        await cluster.brokers[1].stop(silently=True)
        await asyncio.sleep(20)
        assert "cluster-forgotten" in told()
        await cluster.brokers[1].start()
        await producer.send_and_wait("orders", b"x")


@jumping
async def test_a_broker_that_is_late_is_told_of(told: Any) -> None:
    """The producer logs when records without a key begin to avoid a late broker, and when they stop that."""
    options = {
        "partitioner_availability_timeout_ms": 200,
        "max_in_flight_requests_per_connection": 1,
    }
    async with running(brokers=2, **options) as (cluster, producer):
        hang = cluster.hang("Produce", broker=2)
        deliveries = []
        for _ in range(100):
            deliveries.append(await producer.send("orders", b"." * 5000))
            await asyncio.sleep(0.01)
        assert told().count("broker-late") == 1
        assert producer.metrics().number("brokers-late") == 1
        hang.release()
        await asyncio.gather(*deliveries)
        await producer.send_and_wait("orders", b"x")
        assert producer.metrics().number("brokers-late") == 0
        assert told().count("broker-in-time") == 1


@jumping
async def test_a_circuit_breaker_is_told_of(told: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The breaker logs when it opens, tries and closes. While it is open, metrics and health name the partition, and
    the producer is ready.
    """
    async with running(
        circuit_breaker_class="failure_rate", circuit_breaker_trigger_message_count=1
    ) as (cluster, producer):
        await producer.send_and_wait("orders", b"x", partition=0)
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", partition=0, times=2)
        delivery = await producer.send("orders", b"y", partition=0)
        while not producer.metrics().number("breakers-open"):
            await asyncio.sleep(0.01)
        health = producer.health()
        assert health.is_ready
        assert health.open_breakers == ("orders-0 open",)
        await delivery
        taken = producer.metrics()
        assert taken.number("breakers-open") == 0
        assert [event for event in told() if event.startswith("breaker")] == [
            *["breaker-opened", "breaker-probing"] * 2,
            "breaker-closed",
        ]
        assert taken.number("events-total", event="breaker-opened") == 2
        opened = next(
            record for record in caplog.records if getattr(record, "event", "") == "breaker-opened"
        )
        assert opened.facts == {
            "client_id": producer.config.client_id,
            "what": "orders-0",
            "seconds": 1.0,
        }  # type: ignore[attr-defined]


def test_every_text_is_made_of_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    """Names are words with hyphens, and each field in braces is a fact. A disabled level formats no text but counts the event."""
    metrics = Metrics("mine", Windows(), version="", began_ms=0)
    events = Events("mine", metrics)
    for name, (level, text) in EVENTS.items():
        facts = {field: 7 for _, field, _, _ in string.Formatter().parse(text) if field}
        with caplog.at_level(level, "aioproducer.events"):
            events.tell(name, **facts)
        assert caplog.records[-1].event == name  # type: ignore[attr-defined]
        assert caplog.records[-1].facts == {"client_id": "mine", **facts}  # type: ignore[attr-defined]
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", name)
    before = len(caplog.records)
    with caplog.at_level(logging.ERROR, "aioproducer.events"):
        events.tell("producer-started")
    assert len(caplog.records) == before
    assert metrics.snapshot(0.0, {}).number("events-total", event="producer-started") == 2


@jumping
async def test_what_the_parts_look_like() -> None:
    """The texts in logs and debuggers have place, size and state, and never keys or values."""
    async with running(circuit_breaker_class="failure_rate") as (cluster, producer):
        assert (
            repr(producer)
            == f"<Producer broker-1.memory:9092 ({build_info().build}): running, 33554432 bytes free, 0 waiting>"
        )
        hang = cluster.hang("Produce")
        delivery = await producer.send("orders", b"canary", key=b"canary", partition=1)
        await turns(10)
        engine = producer._engine
        assert engine is not None
        [batch] = engine.parts.partition_queues.incomplete
        assert repr(batch) == "<ProducerBatch 1 of orders-1: 1 record, in flight, sent 1 time>"
        assert repr(batch.queue) == "<PartitionQueue orders-1 leader 1: 0 closed, 1 in flight>"
        [node] = engine.parts.cluster.nodes
        assert repr(node) == "<BrokerNode 1 broker-1.memory:9092: produce, control, 0 failures>"
        assert repr(delivery) == "<Delivery orders-1 pending>"
        assert repr(engine.pool).endswith(" of 33554432 bytes free>")
        assert (
            repr(engine.parts.circuit_break_manager)
            == "<ProducerCircuitBreakManager of FailureRateCircuitBreaker: 0 open circuits>"
        )
        assert "canary" not in producer.explain()
        hang.release()
        await delivery
        assert repr(delivery) == "<Delivery orders-1 done>"
