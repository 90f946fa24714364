"""Holds the record that `on_failed` gets."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.counting import counted
from aioproducer.errors import Persisted
from aioproducer.model import Header

__all__ = ["FailedRecord"]


class FailedRecord(NamedTuple):
    """Holds a record that was not acknowledged, as `on_failed` gets it: decoded from the bytes of its batch.

    The fields before `persisted` are the arguments of `send`, in their order. Key and value are serialized.

    Attributes:
        topic, partition: where it was to be written.
        timestamp_ms: its time, or that of its batch if the broker takes no timestamps (Kafka 0.9, `message_format_max=0`).
        persisted: `no` = it is certainly not in the log; `maybe` = an attempt may have written it.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp_ms: int
    headers: tuple[Header, ...]
    persisted: Persisted

    def __repr__(self) -> str:
        """Return a text without the key, the value and the header values."""
        return f"<FailedRecord for {self.topic}-{self.partition} of {self.timestamp_ms}, persisted={self.persisted}: {counted(len(self.headers), 'header')}>"
