"""Tests of `aioproducer.telemetry.tracing`: a record's span and its header are one trace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from aioproducer import Producer, Record
from aioproducer.errors import DeliveryError, SerializationError
from aioproducer.telemetry.tracing import TracingInterceptor
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

pytestmark = pytest.mark.asyncio


class Traced:
    """A provider that keeps its spans, and an interceptor of it."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")
        self.interceptor = TracingInterceptor(self.provider, client_id="mine")

    def sends(self) -> list[ReadableSpan]:
        return [
            span for span in self.exporter.get_finished_spans() if span.kind is SpanKind.PRODUCER
        ]


def context_of(headers: Any) -> Any:
    """Return the span context that a consumer reads from a record's headers."""
    carrier = {name: value.decode() for name, value in headers}
    return trace.get_current_span(propagate.extract(carrier)).get_span_context()


async def test_span_and_header_are_one_trace() -> None:
    """Below the span in which `send` was called; attributes by the semantic conventions, no key, no value."""
    traced = Traced()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        async with Producer(
            **cluster.client_options, interceptors=[traced.interceptor]
        ) as producer:
            with traced.tracer.start_as_current_span("request") as parent:
                metadata = await producer.send_and_wait(
                    "orders", b"canary", key=b"canary", headers=[("a", b"canary")]
                )
        [record] = cluster.records("orders", metadata.partition)
    [span] = traced.sends()
    seen = context_of(record.headers)
    assert (seen.trace_id, seen.span_id) == (span.context.trace_id, span.context.span_id)
    assert span.parent is not None
    assert span.parent.span_id == parent.get_span_context().span_id
    assert span.name == "send orders"
    assert record.headers[0] == ("a", b"canary")
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "mine",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": str(metadata.partition),
        "messaging.kafka.offset": 0,
        "messaging.message.body.size": 6,
    }
    assert span.status.status_code is StatusCode.UNSET
    assert traced.interceptor.pending == 0


async def test_each_record_has_a_span_of_its_own() -> None:
    """Also many at once; each ends with its own record, and headers of a record that is passed on are replaced."""
    traced = Traced()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(
            **cluster.client_options, interceptors=[traced.interceptor]
        ) as producer:
            await (await producer.send_many("orders", [b"%d" % number for number in range(50)]))
            first = cluster.records("orders", 0)[0]
            await producer.send_and_wait("orders", b"again", headers=first.headers)
            await producer.send_and_wait("orders", None)
        records = cluster.records("orders", 0)
    spans = {span.context.span_id: span for span in traced.sends()}
    assert len(spans) == len(records) == 52
    for offset, record in enumerate(records):
        assert [name for name, _ in record.headers] == ["traceparent"]
        attributes = spans[context_of(record.headers).span_id].attributes or {}
        assert attributes["messaging.kafka.offset"] == offset
        assert attributes.get("messaging.kafka.message.tombstone", False) is (record.value is None)


async def test_a_failure_ends_its_span_with_the_error() -> None:
    """The span has the error's name in Kafka. A record that was refused before it was queued has a span, too."""
    traced = Traced()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(
            **cluster.client_options, interceptors=[traced.interceptor]
        ) as producer:
            cluster.fail("Produce", "INVALID_RECORD")
            with pytest.raises(DeliveryError):
                await producer.send_and_wait("orders", b"x")
            with pytest.raises(SerializationError):
                await producer.send("orders", "canary")
            waiting = asyncio.create_task(producer.send("unknown", b"x", partition=7))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
    errors = [(span.attributes or {})["error.type"] for span in traced.sends()]
    assert errors == ["INVALID_RECORD", "SerializationError", "CancelledError"]
    assert {span.status.status_code for span in traced.sends()} == {StatusCode.ERROR}
    assert "canary" not in str(
        [(span.attributes, span.status.description) for span in traced.sends()]
    )
    assert traced.interceptor.pending == 0


async def test_what_is_not_sampled_is_passed_on_and_not_kept() -> None:
    """The header says so; and what is no header at all is `send`'s to refuse."""
    traced = Traced(sampler=ALWAYS_OFF)
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(
            **cluster.client_options, interceptors=[traced.interceptor]
        ) as producer:
            await producer.send("orders", b"x")
            assert traced.interceptor.pending == 0
            await producer.flush()
            with pytest.raises(SerializationError):
                await producer.send("orders", b"x", headers=5)  # type: ignore[arg-type]
        [record] = cluster.records("orders", 0)
        assert context_of(record.headers).is_valid
        assert not context_of(record.headers).trace_flags.sampled
    assert traced.sends() == []


@pytest.mark.parametrize(
    "headers",
    [
        None,
        (),
        [],
        [["a", b"b"]],
        [("a", None)],
        [("a", bytearray(b"b"))],
        (["traceparent", bytearray(b"old")],),
        {"a": b"b"},
        [("a", "b")],
    ],
    ids=repr,
)
async def test_headers_in_every_form_that_send_takes(headers: Any) -> None:
    """The record has its span, and the interceptor raised nothing."""
    traced = Traced()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(
            **cluster.client_options, interceptors=[traced.interceptor]
        ) as producer:
            await producer.send_and_wait("orders", b"x", headers=headers)
            (await producer.send_nowait("orders", b"x", headers=headers))
            await (await producer.send_many("orders", [Record(b"x", headers=headers)]))
            assert "interceptor-errors-total" not in {
                metric.name for metric, value in producer.metrics().items() if value
            }
        records = cluster.records("orders", 0)
    pairs = headers.items() if isinstance(headers, dict) else headers or ()
    kept = tuple(
        (name, value.encode() if isinstance(value, str) else value and bytes(value))
        for name, value in pairs
        if name != "traceparent"
    )
    assert [record.headers[:-1] for record in records] == [kept] * 3
    assert [context_of(record.headers[-1:]).span_id for record in records] == [
        span.context.span_id for span in traced.sends()
    ]
    assert traced.interceptor.pending == 0


@pytest.mark.parametrize(
    "headers",
    [5, {"ab": 3}, [1], [("a",)], ["a"], iter([("a", b"b")]), [({}, b"b")], "ab"],
    ids=repr,
)
async def test_headers_that_send_refuses(headers: Any) -> None:
    """With the words of `send`; the mistake is not the interceptor's."""
    traced = Traced()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(
            **cluster.client_options, interceptors=[traced.interceptor]
        ) as producer:
            with pytest.raises(SerializationError, match="header"):
                await producer.send("orders", b"x", headers=headers)
            assert not [
                value
                for metric, value in producer.metrics().items()
                if metric.name == "interceptor-errors-total"
            ]
    assert traced.interceptor.pending == 0
