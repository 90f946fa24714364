"""Traces each record with a span, from `send` to its acknowledgement, and context in its headers (extra `otel`).

    Producer(..., interceptors=[TracingInterceptor()])

A consumer continues the trace of the headers (W3C Trace Context, or the propagator that OpenTelemetry is set to). Names and attributes
follow OpenTelemetry's semantic conventions for messaging and Kafka. Keys, values and header values are never among them.
Without a tracer provider that records, a record costs a few microseconds more, and no span is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from aioproducer.build import VERSION
from aioproducer.errors import BrokerError
from aioproducer.interfaces import Interceptor

if TYPE_CHECKING:
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider

    from aioproducer.model import Headers, ProducerRecord, RecordMetadata

__all__ = ["TracingInterceptor"]


class TracingInterceptor(Interceptor):
    """Traces the records of one producer. The span's parent is the span in which `send` is called.

    Args:
        tracer_provider: the provider of the tracer; OpenTelemetry's global one by default.
        propagator: writes the headers; OpenTelemetry's global one by default.
        client_id: an attribute of the spans, if given.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        propagator: TextMapPropagator | None = None,
        client_id: str | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("aioproducer", VERSION, tracer_provider)
        self._propagator = propagator or propagate.get_global_textmap()
        self._common: dict[str, Any] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            **({} if client_id is None else {"messaging.client.id": client_id}),
        }
        # The spans of records that have not ended, by the headers that the propagator wrote.
        self._spans: dict[Headers, Span] = {}

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Begin a span, and write its context into the headers, in place of an earlier context."""
        kept = self._kept(record.headers)
        # `send` refuses this record.
        if not isinstance(record.topic, str) or kept is None:
            return None
        attributes = {**self._common, "messaging.destination.name": record.topic}
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        span = self._tracer.start_span(
            f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, trace.set_span_in_context(span))
        changed = record._replace(
            headers=(*kept, *((name, text.encode()) for name, text in carrier.items()))
        )
        if span.is_recording():
            self._spans[self._written(changed.headers)] = span
        return changed

    def _kept(self, headers: Any) -> Headers | None:
        """Return the headers that no propagator wrote, in any form that `send` accepts; None: `send` does not accept this form."""
        fields = self._propagator.fields
        given = (
            ()
            if headers is None
            else tuple(headers.items())
            if isinstance(headers, Mapping)
            else headers
        )
        try:
            # `send` accepts no iterator, because an iterator can be read only once.
            len(given)
            return tuple((name, value) for name, value in given if name not in fields)
        except (TypeError, ValueError):
            return None

    def _written(self, headers: Any) -> Headers:
        """Return the headers that the propagator wrote. They differ for each record."""
        fields = self._propagator.fields
        try:
            return tuple((name, bytes(value)) for name, value in headers or () if name in fields)
        except (TypeError, ValueError):
            return ()

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """End the span of an acknowledged record."""
        span = self._spans.pop(self._written(headers), None)
        if span is None:
            return
        span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
        if metadata.offset >= 0:
            span.set_attribute("messaging.kafka.offset", metadata.offset)
        if metadata.serialized_value_size >= 0:
            span.set_attribute("messaging.message.body.size", metadata.serialized_value_size)
        span.end()

    def on_error(self, error: BaseException, topic: str, partition: int, headers: Headers) -> None:
        """End the span of a failed record with its error."""
        span = self._spans.pop(self._written(headers), None)
        if span is None:
            return
        cause = error.__cause__ if isinstance(error.__cause__, BrokerError) else error
        kind = cause.error.name if isinstance(cause, BrokerError) else type(error).__name__
        if partition >= 0:
            span.set_attribute("messaging.destination.partition.id", str(partition))
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()

    @property
    def pending(self) -> int:
        """Return the number of spans of records that have not ended."""
        return len(self._spans)
