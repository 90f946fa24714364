"""A span for each record, from `send` to its acknowledgement, and its context in the record's headers (extra `otel`).

    Producer(..., interceptors=[TracingInterceptor()])

A consumer goes on where the headers say (W3C Trace Context, or whatever propagator OpenTelemetry is set to). Names and attributes are
OpenTelemetry's semantic conventions for messaging and Kafka; keys, values and header values are never among them.
Without a tracer provider that records, a record costs a few microseconds more and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from aioproducer.errors import BrokerError
from aioproducer.interceptors import Interceptor
from aioproducer.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider

    from aioproducer.model import Headers, ProducerRecord, RecordMetadata

__all__ = ["TracingInterceptor"]


class TracingInterceptor(Interceptor):
    """Traces the records of one producer. The span's parent is the span in which `send` is called.

    Args:
        tracer_provider: OpenTelemetry's own by default.
        propagator: writes headers; OpenTelemetry's global one by default.
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
        self._spans: dict[Headers, Span] = {}  # of records on their way, by what was written into their headers

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Begin a span, and write its context into the headers, in the place of one that was there."""
        kept = self._kept(record.headers)
        # what `send` refuses
        if not isinstance(record.topic, str) or kept is None:
            return None
        attributes = {**self._common, "messaging.destination.name": record.topic}
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        span = self._tracer.start_span(f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, trace.set_span_in_context(span))
        changed = record._replace(headers=(*kept, *((name, text.encode()) for name, text in carrier.items())))
        if span.is_recording():
            self._spans[self._written(changed.headers)] = span
        return changed

    def _kept(self, headers: Any) -> Headers | None:
        """The headers of a record that no propagator wrote, in any form that `send` takes; None: it takes none of this form."""
        fields = self._propagator.fields
        given = () if headers is None else headers
        if isinstance(given, Mapping):
            return None
        try:
            # `send` takes no iterator, which could be gone through once only
            len(given)
            return tuple((name, value) for name, value in given if name not in fields)
        except (TypeError, ValueError):
            return None

    def _written(self, headers: Any) -> Headers:
        """What was written into them: no other record has the same."""
        fields = self._propagator.fields
        try:
            return tuple((name, bytes(value)) for name, value in headers or () if name in fields)
        except (TypeError, ValueError):
            return ()

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """End its span."""
        span = self._spans.pop(self._written(headers), None)
        if span is None:
            return
        span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
        if metadata.offset >= 0:
            span.set_attribute("messaging.kafka.offset", metadata.offset)
        if metadata.serialized_value_size >= 0:
            span.set_attribute("messaging.message.body.size", metadata.serialized_value_size)
        span.end()

    def on_error(self, error: BaseException, topic: str, partition: int, headers: Headers) -> None:  # noqa: ARG002
        """End its span with the error."""
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
        """Spans of records that have not ended."""
        return len(self._spans)
