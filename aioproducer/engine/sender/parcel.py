"""Holds `Parcel`, the payload of a batch on its way to another format or codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.model import counted
from aioproducer.records.compression import decompress

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.interfaces import Buffer
    from aioproducer.model import Compression

# The magic of record batches, from Produce 3 on.
NEWEST: Final = 2


class Parcel(NamedTuple):
    """Holds the payload of a batch, its format as `magic`, and the values that the payload does not contain."""

    payload: Buffer
    magic: int
    # True if the payload is compressed, or needs no compression.
    is_packed: bool
    raw_size: int
    record_count: int
    base_timestamp: int
    max_timestamp: int

    def __repr__(self) -> str:
        """Return a text without the records."""
        return f"<Parcel of {counted(self.record_count, 'record')}, {len(self.payload)} bytes, magic {self.magic}>"

    @classmethod
    def of(cls, batch: ProducerBatch) -> Parcel:
        """Return the parcel of a batch."""
        payload = batch.payload
        if not isinstance(payload, bytes):
            payload = bytes(payload or b"")
        return cls(
            payload,
            batch.magic,
            batch.is_encoded,
            batch.raw_size,
            batch.count,
            batch.base_timestamp,
            batch.max_timestamp,
        )

    def raw(self, codec: Compression) -> bytes:
        """Return the uncompressed records of a parcel whose format is the newest."""
        return (
            decompress(codec, self.payload, self.raw_size)
            if self.is_packed
            else bytes(self.payload)
        )
