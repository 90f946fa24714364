"""Traces and metrics on a real Kafka: another client's consumer goes on with the producer's trace, and the broker's numbers are ours."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aioproducer import Producer
from aioproducer.telemetry.tracing import TracingInterceptor

if TYPE_CHECKING:
    from aioproducer.testing.kafka_server import ServerThread

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

RECORDS = 50


async def test_a_consumer_goes_on_with_the_trace(kafka_server: ServerThread) -> None:
    """Each record's header is the context of its own span, which has the record's offset."""
    topic = f"traced-{uuid.uuid4().hex[:8]}"
    await asyncio.to_thread(kafka_server.create_topic, topic, 1)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    interceptors = [TracingInterceptor(provider)]
    async with Producer(
        bootstrap_servers=kafka_server.bootstrap_servers,
        interceptors=interceptors,
        compression_type="zstd",
    ) as producer:
        with provider.get_tracer("tests").start_as_current_span("request") as request:
            for number in range(RECORDS):
                await producer.send(topic, b"%d" % number * 20)
            await producer.flush()
        taken, health = producer.metrics(), producer.health()
    spans = {span.context.span_id: span for span in exporter.get_finished_spans()}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka_server.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        for offset in range(RECORDS):
            record = await asyncio.wait_for(consumer.getone(), 30)
            context = trace.get_current_span(
                propagate.extract({name: value.decode() for name, value in record.headers})
            ).get_span_context()
            span = spans[context.span_id]
            assert span.context.trace_id == context.trace_id == request.get_span_context().trace_id
            assert (span.attributes or {})["messaging.kafka.offset"] == record.offset == offset
    finally:
        await consumer.stop()
    assert health
    assert (
        taken.number("record-send-total", topic=topic)
        == taken.distribution("delivery-latency-seconds").count
        == RECORDS
    )
    assert taken.number("compression-rate-avg") < 1
    assert taken.number("request-total") == taken.number("response-total")
