"""Reads the records of a batch back, and converts them to a message set, the format of brokers before Kafka 0.11, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.engine.sender.parcel import NEWEST
from aioproducer.errors import UsageError, broker_error
from aioproducer.records.message_set import NO_TIMESTAMP, encode_message_set, read_messages
from aioproducer.records.reader import read_records
from aioproducer.records.record_batch import encode_headers, encode_record

if TYPE_CHECKING:
    from aioproducer.engine.sender.parcel import Parcel
    from aioproducer.model import Compression
    from aioproducer.records.reader import Record

# Bytes of a message of magic 1 beside its key and value.
_SET_OVERHEAD: Final = 34


def to_message_set(parcel: Parcel, magic: int, codec: Compression, level: int | None) -> bytes:
    """Return the message set of a parcel's records.

    Raises:
        BrokerError: the records have headers or the codec is zstd, which message sets do not support.
    """
    try:
        return encode_message_set(magic, codec, records_of(parcel, codec), level)
    except UsageError as error:
        raise broker_error(
            "UNSUPPORTED_FOR_MESSAGE_FORMAT", f"the broker takes no newer format: {error}"
        ) from error


def from_message_set(parcel: Parcel) -> bytes:
    """Return the records of a parcel that is a message set, uncompressed, in the format of magic 2."""
    base = parcel.base_timestamp
    no_headers = encode_headers(())
    written = []
    for index, record in enumerate(_messages(parcel)):
        delta = record.timestamp_ms - base if record.timestamp_ms != NO_TIMESTAMP else 0
        written.append(encode_record(index, delta, record.key, record.value, no_headers))
    return b"".join(written)


def records_of(parcel: Parcel, codec: Compression) -> list[Record]:
    """Return the records of a parcel, read back from the bytes that this client wrote."""
    if parcel.magic != NEWEST:
        return _messages(parcel)
    return read_records(parcel.raw(codec), parcel.record_count, parcel.base_timestamp)


def _messages(parcel: Parcel) -> list[Record]:
    limit = parcel.raw_size + _SET_OVERHEAD * parcel.record_count
    return [
        record for message in read_messages(parcel.payload) for record in message.records(limit)
    ]
