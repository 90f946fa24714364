"""Metrics and health of a whole producer: the numbers match the events."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest
from whole import jumping, running

from aioproducer import Producer, Snapshot
from aioproducer.errors import BrokerError, BufferExhausted, DeliveryError
from aioproducer.testing import FakeCluster


@jumping
async def test_what_is_sent_is_counted() -> None:
    """The producer counts records, bytes, requests and connections: in total, by topic and by broker."""
    async with running() as (cluster, producer):
        for number in range(100):
            await producer.send("orders", b"." * 50, partition=number % 2)
        await producer.flush()
        taken = producer.metrics()
        sent = list(cluster.requests("Produce"))
        assert taken.number("record-send-total") == 100
        assert taken.number("record-send-total", topic="orders") == 100
        assert taken.number("records-per-request-avg") == 100 / len(sent)
        assert taken.number("record-size-max") == 50
        assert taken.number("compression-rate-avg") == 1.0
        assert taken.number("record-error-total") == taken.number("record-retry-total") == 0
        assert (
            taken.number("request-total")
            == taken.number("response-total")
            == len(cluster.requests())
        )
        assert taken.number("network-io-total") == 2 * len(cluster.requests())
        assert (
            100 * 50
            < taken.number("byte-total", topic="orders")
            < taken.number("outgoing-byte-total")
        )
        assert (
            taken.number("outgoing-byte-total")
            > taken.number("outgoing-byte-total", node_id="node-1")
            > 0
        )
        assert taken.number("brokers-known") == taken.number("brokers-up") == 1
        assert taken.number("connection-count") == 2
        assert (
            taken.number("buffer-available-bytes")
            == taken.number("buffer-total-bytes")
            == producer.config.buffer_memory
        )
        assert taken.distribution("delivery-latency-seconds").count == 100
        assert (
            taken.distribution("batch-fill-ratio").count
            == taken.distribution("partition-queue-depth").count
            >= 2
        )
        assert taken.distribution("loop-turn-seconds").count > 0
        assert taken.number("topics-known") == 1


@jumping
async def test_latencies_are_those_of_the_broker() -> None:
    """The metrics measure from the request to its response, and from the record to its acknowledgement."""
    async with running() as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        before = producer.metrics().distribution("delivery-latency-seconds")
        cluster.delay("Produce", 3.0, times=1)
        await producer.send_and_wait("orders", b"late", partition=0)
        taken = producer.metrics()
        assert taken.number("request-latency-max") == pytest.approx(3000, rel=0.01)
        assert taken.number("request-latency-max", node_id="node-1") == pytest.approx(
            3000, rel=0.01
        )
        latency = taken.distribution("delivery-latency-seconds")
        late = [
            count - earlier for count, earlier in zip(latency.counts, before.counts, strict=True)
        ]
        assert late[latency.bounds.index(5.0)] == 1
        assert sum(late) == 1


@jumping
async def test_what_is_kept_waiting_shows() -> None:
    """The metrics show queues, the oldest record and requests in flight. At level debug they show each partition's queue."""
    async with running(
        metrics_recording_level="debug", batch_size=100, max_in_flight_requests_per_connection=1
    ) as (cluster, producer):
        hang = cluster.hang("Produce")
        deliveries = [await producer.send("orders", b"." * 60, partition=1) for _ in range(10)]
        await asyncio.sleep(7)
        taken = producer.metrics()
        assert taken.number("requests-in-flight") == 1
        assert taken.number("incomplete-batches") == 10
        assert taken.number("incomplete-batches", topic="orders", partition="1") == 10
        assert taken.number("oldest-unacknowledged-seconds") == pytest.approx(7, abs=0.1)
        assert producer.health().oldest_unacknowledged_seconds == pytest.approx(7, abs=0.1)
        hang.release()
        await asyncio.gather(*deliveries)
        taken = producer.metrics()
        assert (
            taken.number("oldest-unacknowledged-seconds") == taken.number("incomplete-batches") == 0
        )
        assert not [metric for metric in taken if metric.group == "producer-partition-metrics"]
        assert taken.number("record-queue-time-max") >= 7000
        assert taken.distribution("partition-queue-depth").quantile(1.0) >= 9


@jumping
async def test_errors_have_names() -> None:
    """The metrics count attempts by their error, and failed records by theirs. Retries count records."""
    async with running(retries=1, enable_idempotence=False) as (cluster, producer):
        cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=0) for number in range(3)
        ]
        await asyncio.gather(*deliveries)
        taken = producer.metrics()
        assert taken.number("request-errors-total", error="NOT_LEADER_OR_FOLLOWER") == 1
        assert (
            taken.number("record-retry-total")
            == taken.number("record-retry-total", topic="orders")
            == 3
        )
        assert taken.number("record-error-total") == 0
        cluster.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
        with pytest.raises(DeliveryError):
            await producer.send_and_wait("orders", b"x", partition=0)
        taken = producer.metrics()
        assert taken.number("failed-records-total", error="TOPIC_AUTHORIZATION_FAILED") == 1
        assert (
            taken.number("record-error-total")
            == taken.number("record-error-total", topic="orders")
            == 1
        )


@jumping
async def test_who_waits_for_memory_is_counted_and_timed() -> None:
    """The metrics measure the time in which a send waits for memory, also while it waits. They count the sends that waited in vain."""
    async with running(buffer_memory=20_000, batch_size=4000, max_block_ms=4000) as (
        cluster,
        producer,
    ):
        hang = cluster.hang("Produce")
        while producer.buffer_available > 6000:
            await producer.send("orders", b"." * 2000, partition=0)
        sends = [
            asyncio.create_task(producer.send("orders", b"." * 9000, partition=0)) for _ in range(3)
        ]
        await asyncio.sleep(3)
        taken = producer.metrics()
        assert (
            taken.number("waiting-threads")
            == taken.number("memory-waiters")
            == producer.health().waiting
            == 3
        )
        assert taken.number("bufferpool-wait-time-ns-total") == pytest.approx(3e9, rel=0.01)
        assert taken.number("bufferpool-wait-ratio") == pytest.approx(3 / 33, rel=0.05)
        assert taken.number("buffer-exhausted-total") == 0
        assert all(
            isinstance(error, BufferExhausted)
            for error in await asyncio.gather(*sends, return_exceptions=True)
        )
        assert producer.metrics().number("buffer-exhausted-total") == 3
        assert producer.metrics().number("failed-records-total", error="BufferExhausted") == 3
        hang.release()
        await producer.flush()
        at = producer.metrics().number("bufferpool-wait-time-ns-total")
        await asyncio.sleep(5)
        assert producer.metrics().number("bufferpool-wait-time-ns-total") == at


@jumping
async def test_who_waits_for_a_topic_is_counted_and_timed() -> None:
    """The metrics count a send that waits for its topic, and measure the time until the topic comes."""
    async with running() as (cluster, producer):
        hang = cluster.hang("Metadata", topic="later")
        send = asyncio.create_task(producer.send("later", b"x"))
        await asyncio.sleep(2)
        assert producer.metrics().number("metadata-waiters") == 1
        assert producer.metrics().number("memory-waiters") == 0
        cluster.create_topic("later")
        hang.release()
        await (await send)
        assert producer.metrics().number("metadata-wait-time-ns-total") >= 2e9


@jumping
async def test_a_batch_that_is_cut_is_counted() -> None:
    """The broker refuses a batch with MESSAGE_TOO_LARGE. The metrics count one split and no failed record."""
    async with running() as (cluster, producer):
        cluster.fail("Produce", "MESSAGE_TOO_LARGE", times=1)
        deliveries = [await producer.send("orders", b"." * 100, partition=0) for _ in range(4)]
        await asyncio.gather(*deliveries)
        taken = producer.metrics()
        assert taken.number("batch-split-total") == 1
        assert taken.distribution("delivery-latency-seconds").count == 4
        assert taken.number("record-error-total") == 0


@jumping
async def test_a_throttle_is_recorded() -> None:
    """The metrics hold the throttle time in ms, and whether the broker throttles now."""
    async with running() as (cluster, producer):
        cluster.throttle("Produce", 2.0)
        await producer.send_and_wait("orders", b"x", partition=0)
        taken = producer.metrics()
        assert taken.number("produce-throttle-time-max") == 2000
        assert taken.number("brokers-throttling") == 1
        await asyncio.sleep(3)
        assert producer.metrics().number("brokers-throttling") == 0


@jumping
async def test_times_of_transactions_are_recorded() -> None:
    """The metrics measure the time of each transaction call, and of `flush`."""
    async with running(transactional_id="tx") as (cluster, producer):
        cluster.delay("EndTxn", 1.5, times=1)
        async with producer.transaction():
            await producer.send("orders", b"x")
            await producer.send_offsets_to_transaction({("orders", 0): 1}, "group")
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"z")
        cluster.delay("EndTxn", 2.5, times=1)
        await producer.abort_transaction()
        cluster.delay("Produce", 0.5, times=1)
        async with producer.transaction():
            await producer.send("orders", b"y")
            await producer.flush()
        taken = producer.metrics()
        assert taken.number("txn-commit-time-ns-total") >= 1.5e9
        assert taken.number("txn-abort-time-ns-total") >= 2.5e9
        assert taken.number("flush-time-ns-total") >= 0.5e9
        assert taken.number("txn-init-time-ns-total") >= 0
        assert cluster.committed("group")


@jumping
async def test_records_without_an_answer_have_latencies_too() -> None:
    """With acks=0, a record has ended when its request is written."""
    async with running(acks=0) as (_, producer):
        for _ in range(3):
            await producer.send_and_wait("orders", b"x")
        taken = producer.metrics()
        assert taken.distribution("delivery-latency-seconds").count == 3
        assert math.isnan(taken.number("request-latency-avg"))


@jumping
async def test_level_none_counts_nothing() -> None:
    """Gauges and events are still there, because they cost nothing between two snapshots."""
    async with running(metrics_recording_level="none") as (_, producer):
        await producer.send_and_wait("orders", b"x")
        taken = producer.metrics()
        assert taken.number("record-send-total") == taken.number("request-total") == 0
        assert taken.distribution("delivery-latency-seconds").count == 0
        assert not [metric for metric in taken if metric.group == "producer-topic-metrics"]
        assert taken.number("brokers-up") == 1
        assert taken.number("events-total", event="producer-started") == 1


@jumping
async def test_a_loop_that_is_held_shows() -> None:
    """The test blocks the loop for 0.7 s while records are to be sent. The metrics show one event-loop iteration of that length."""
    async with running() as (_, producer):
        await producer.send_and_wait("orders", b"x")
        before = producer.metrics().distribution("loop-turn-seconds")
        delivery = await producer.send("orders", b"y")
        loop: Any = asyncio.get_running_loop()
        loop.advance(0.7)
        await delivery
        after = producer.metrics().distribution("loop-turn-seconds")
        grown = [
            count - earlier for count, earlier in zip(after.counts, before.counts, strict=True)
        ]
        assert grown[after.bounds.index(1.0)] == 1
        assert sum(grown[after.bounds.index(0.5) + 1 :]) == 1


@jumping
async def test_before_and_after() -> None:
    """The metrics are empty before the start, and hold the last numbers after the end."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        producer = Producer(**cluster.client_options)
        assert producer.metrics() == Snapshot()
        assert producer.health().reasons == ("the producer was not started",)
        async with producer:
            await producer.send("orders", b"x")
        assert producer.metrics().number("record-send-total") == 1
        assert producer.metrics().number("connection-close-total") == producer.metrics().number(
            "connection-creation-total"
        )
        assert producer.health().reasons == ("the producer has stopped",)
        assert not producer.health()


@jumping
async def test_health_follows_the_brokers() -> None:
    """The producer is ready while it can reach a broker, not ready while it can reach none, and ready again when they return."""
    async with running(brokers=2, delivery_timeout_ms=600_000) as (cluster, producer):
        await asyncio.gather(
            *[await producer.send("orders", b"x", partition=at) for at in range(2)]
        )
        health = producer.health()
        assert health
        assert (health.brokers_known, health.brokers_up, health.brokers_down, health.reasons) == (
            2,
            2,
            0,
            (),
        )
        await cluster.brokers[1].stop(silently=True)
        kept = [await producer.send("orders", b"y", partition=at) for at in range(2)]
        await asyncio.sleep(5)
        assert (producer.health().is_ready, producer.health().brokers_down) == (True, 1)
        await cluster.brokers[2].stop(silently=True)
        kept += [await producer.send("orders", b"z", partition=at) for at in range(2)]
        await asyncio.sleep(20)
        health = producer.health()
        assert not health
        assert (health.brokers_down, health.brokers_up) == (2, 0)
        assert "no broker of 2 can be reached" in health.reasons[0]
        for broker in cluster.brokers.values():
            await broker.start()
        await asyncio.gather(*kept)
        await asyncio.sleep(600)
        assert producer.health()


@jumping
async def test_a_record_that_is_overdue_is_no_health() -> None:
    """The producer is unhealthy when a record is older than `patience` or request_timeout_ms."""
    async with running(request_timeout_ms=10_000) as (cluster, producer):
        hang = cluster.hang("Produce", times=1)
        delivery = await producer.send("orders", b"x", partition=0)
        await asyncio.sleep(6)
        assert producer.health()
        health = producer.health(patience=5)
        assert not health.is_ready
        assert health.reasons == ("the oldest record is not acknowledged after 6.0 s",)
        hang.release()
        await delivery


@jumping
async def test_start_without_waiting_is_not_ready_until_a_broker_answers() -> None:
    """A web service starts while Kafka is down. The producer is not ready until a broker responds."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        await cluster.brokers[1].stop(silently=True)
        producer = Producer(**cluster.client_options)
        await producer.start(wait=False)
        await asyncio.sleep(1)
        assert not producer.health()
        assert producer.health().reasons[0].startswith("no broker has been reached yet: ")
        await cluster.brokers[1].start()
        await producer.send_and_wait("orders", b"x")
        assert producer.health()
        await producer.stop()


@pytest.mark.asyncio
async def test_a_thread_that_asks_a_loop_that_is_held_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread gets an error when the loop is held, and does not wait for ever."""
    monkeypatch.setattr("aioproducer.engine.append.thread_bridge._ANSWER", 0.05)
    async with FakeCluster(memory=True) as cluster, Producer(**cluster.client_options) as producer:
        told: list[Any] = []

        def ask() -> None:
            try:
                producer.metrics()
            except TimeoutError as error:
                told.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()  # the call that holds the loop
        assert "something holds it" in str(told[0])
        assert not math.isnan(producer.metrics().number("metadata-age"))


@jumping
async def test_a_topic_that_is_forgotten_takes_its_metrics_along() -> None:
    """KIP-526: the producer removes the metrics of a topic that expired."""
    async with running(metadata_max_idle_ms=5000) as (_, producer):
        await producer.send_and_wait("orders", b"x")
        assert producer.metrics().number("record-send-total", topic="orders") == 1
        await asyncio.sleep(30)
        assert not [metric for metric in producer.metrics() if ("topic", "orders") in metric.tags]
        assert producer.metrics().number("topics-known") == 0
        assert producer.metrics().number("events-total", event="topic-forgotten") == 1
        assert producer.metrics().number("record-send-total") == 1


@jumping
async def test_a_refusal_after_waiting_counts_as_a_failed_record() -> None:
    """The brokers refuse access to a topic after the send waited for it. The metrics count one failed record."""
    async with running() as (cluster, producer):
        cluster.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="secret", times=1)
        with pytest.raises(BrokerError):
            await producer.send("secret", b"x")
        taken = producer.metrics()
        assert (
            taken.number("failed-records-total", error="TOPIC_AUTHORIZATION_FAILED")
            == taken.number("record-error-total")
            == 1
        )
        assert not [
            metric for metric in taken if metric.group == "producer-topic-metrics"
        ]  # names of missing topics would accumulate
