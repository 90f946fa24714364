"""What a user's interceptor may do (KIP-42): change records before they are queued, and learn how each ended.

Interceptors are called in the order in which they are given, on the producer's loop: they must not wait, and what takes long in one
holds up every send. What one raises is logged once for each kind and counted; the record, and the next interceptor, are not touched.
Knows nothing of who calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.model import Headers, ProducerRecord, RecordMetadata

__all__ = ["METHODS", "Interceptor"]

METHODS = ("on_send", "on_acknowledgement", "on_error", "close")


class Interceptor:
    """Does nothing: derive from it, or give any object that has some of its methods.

    For each record `on_send` is called once, and after it either `on_acknowledgement` or `on_error`, once; of a record that was queued
    before the tasks that wait for it and its callbacks run. Records of `create_batch` are not intercepted.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """A record as the caller gave it, before serializers and partitioner; the record to go on with, None: as it is.

        `record._replace(headers=(*record.headers, ("source", b"web")))` makes another one.
        """

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """It is acknowledged; `headers` as they were sent (KIP-512)."""

    def on_error(self, error: BaseException, topic: str, partition: int, headers: Headers) -> None:
        """It was refused, or not acknowledged, or its sender was cancelled before it was queued.

        Args:
            error: what `send` raises, or the delivery's `DeliveryError`.
            topic: where it was to go.
            partition: likewise; -1 if none was chosen yet.
            headers: as they would have been sent.
        """

    def close(self) -> None:
        """The producer has stopped; nothing is called any more."""
