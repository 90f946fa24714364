"""Holds the base of interceptors (KIP-42), which change records before they are queued, and get each outcome.

The producer calls interceptors in the order in which they are given, on its loop. They must not wait, and slow code in one delays every
send. If an interceptor raises, the error is logged once for each kind and counted. It does not affect the record or the next interceptor.
"""

from __future__ import annotations

from aioproducer.model import Headers, ProducerRecord, RecordMetadata

__all__ = ["METHODS", "Interceptor"]

METHODS = ("on_send", "on_acknowledgement", "on_error", "close")


class Interceptor:
    """Does nothing: derive from it, or give any object that has some of its methods.

    For each record the producer calls `on_send` once, and then either `on_acknowledgement` or `on_error`, once. For a record that was
    queued, it does so before the record's waiting tasks and callbacks run.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record to send instead of `record`, None: `record` unchanged.

        `record` is as the caller gave it, before serializers and partitioner.
        `record._replace(headers=(*record.headers, ("source", b"web")))` makes another one.
        """

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """Note that a record is acknowledged; `headers` as they were sent (KIP-512)."""

    def on_error(self, error: BaseException, topic: str, partition: int, headers: Headers) -> None:
        """Note that a record was refused, or not acknowledged, or that its send was cancelled before it was queued.

        Args:
            error: the error that `send` raises, or the delivery's `DeliveryError`.
            topic: the topic of the record.
            partition: the partition of the record; -1 if none was chosen yet.
            headers: as they would have been sent.
        """

    def close(self) -> None:
        """Release resources: the producer has stopped, and calls no other method any more."""
