"""Converts the records of a batch to its broker's format: record batches, or message sets before Kafka 0.11.

A batch holds its records in the format of record batches (magic 2). For an older broker, or for a lower `message_format_max`, the encoder
writes them again in an older format. It writes them once more if the next leader of the partition needs yet another format. That costs
microseconds a record, only for the batches that need it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from aioproducer.core.sequence_numbers import on_wire
from aioproducer.errors import ConfigError, UsageError, broker_error
from aioproducer.model import Compression
from aioproducer.records.compression import compress, decompress
from aioproducer.records.message_set_reader import read_messages
from aioproducer.records.reader import read_batches
from aioproducer.records.record_batch import TRANSACTIONAL, encode_headers, encode_record, header
from aioproducer.records.record_batch_writer import NO_TIMESTAMP, RecordBatchWriter
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.config import ProducerConfig
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.interfaces import Buffer
    from aioproducer.net.connection import Connection
    from aioproducer.records.reader import Record

__all__ = [
    "NEWEST",
    "Parcel",
    "attributes_of",
    "check_brokers",
    "head",
    "level_of",
    "magic_of",
    "pack",
    "produce_version",
    "records_of",
    "unpack",
]

# The magic of record batches, from Produce 3 on.
NEWEST: Final = 2
# The magic by Produce version.
_MAGICS: Final = (0, 0, 1)
_LAST_FOR_MESSAGE_SETS: Final = len(_MAGICS) - 1
# Kafka 4.0 still announces Produce 0, for old clients, but does not accept it (KAFKA-18659).
_FIRST_WITHOUT_MESSAGE_SETS: Final = 12
# Bytes of a message of magic 1 beside its key and value.
_SET_OVERHEAD: Final = 34

_LEVELS: Final = {
    Compression.GZIP: "compression_gzip_level",
    Compression.LZ4: "compression_lz4_level",
    Compression.ZSTD: "compression_zstd_level",
}


def level_of(config: ProducerConfig) -> int | None:
    """Return the compression level of the configured codec (KIP-390); None: the codec has no levels."""
    name = _LEVELS.get(cast("Compression", config.compression_type))
    return None if name is None else int(getattr(config, name))


# Brokers


def magic_of(connection: Connection, newest: int) -> int:
    """Return the newest format that a connection's broker takes, but none newer than `newest` (`message_format_max`)."""
    highest = _highest(connection)
    return min(newest, _MAGICS[highest] if highest <= _LAST_FOR_MESSAGE_SETS else NEWEST)


def produce_version(connection: Connection, magic: int) -> int:
    """Return the newest Produce version that both sides support and that carries `magic`.

    Raises:
        ProtocolError: the two sides have no Produce version in common.
        BrokerError: the broker is too new for `magic`.
    """
    version = connection.version_of(ApiKey.PRODUCE)
    if magic == NEWEST:
        return version
    if _highest(connection) >= _FIRST_WITHOUT_MESSAGE_SETS:
        raise broker_error("UNSUPPORTED_FOR_MESSAGE_FORMAT", _too_new(connection, magic))
    return min(version, _LAST_FOR_MESSAGE_SETS)


def check_brokers(connections: Iterable[Connection], newest: int) -> None:
    """Check that all connected brokers take the format `newest` (`message_format_max`).

    Raises:
        ConfigError: a broker takes no format that is so old.
    """
    for connection in connections:
        if newest < NEWEST and _highest(connection) >= _FIRST_WITHOUT_MESSAGE_SETS:
            raise ConfigError(_too_new(connection, newest))


def _highest(connection: Connection) -> int:
    return connection.versions.get(ApiKey.PRODUCE, (0, _LAST_FOR_MESSAGE_SETS + 1))[1]


def _too_new(connection: Connection, magic: int) -> str:
    return f"{connection.where} is Kafka 4.0 or newer and takes no records of format {magic}, only record batches (2). Leave message_format_max at 2."


# Batches


@dataclass(frozen=True, slots=True)
class Parcel:
    """Holds the payload of a batch, its format as `magic`, and the values that the payload does not contain."""

    payload: Buffer = field(repr=False)
    magic: int
    # True if the payload is compressed, or needs no compression.
    is_packed: bool
    raw_size: int
    record_count: int
    base_timestamp: int
    max_timestamp: int

    @classmethod
    def of(cls, batch: ProducerBatch) -> Parcel:
        """Return the parcel of a batch."""
        payload = batch.payload
        if not isinstance(payload, bytes):
            payload = bytes(payload or b"")
        return cls(payload, batch.magic, batch.is_encoded, batch.raw_size, batch.count, batch.base_timestamp, batch.max_timestamp)


def pack(parcel: Parcel, magic: int, codec: Compression, level: int | None) -> bytes:
    """Return the bytes that follow `head` in the request: compressed records, or a message set.

    Raises:
        BrokerError: the records have headers or the codec is zstd, which message sets do not support.
    """
    if magic == NEWEST:
        return compress(codec, unpack(parcel, codec), level)
    try:
        builder = RecordBatchWriter(magic=magic, codec=codec, level=level)
        for record in records_of(parcel, codec):
            builder.append(record.timestamp_ms, record.key, record.value, record.headers)
        return builder.build()
    except UsageError as error:
        raise broker_error("UNSUPPORTED_FOR_MESSAGE_FORMAT", f"the broker takes no newer format: {error}") from error


def unpack(parcel: Parcel, codec: Compression) -> bytes:
    """Return the uncompressed records in the format of magic 2.

    Magic 0 has no timestamps: each of its records gets the batch's first one.
    """
    if parcel.magic == NEWEST:
        return decompress(codec, parcel.payload, parcel.raw_size) if parcel.is_packed else bytes(parcel.payload)
    base = parcel.base_timestamp
    no_headers = encode_headers(())
    written = []
    for index, record in enumerate(records_of(parcel, codec)):
        delta = record.timestamp_ms - base if record.timestamp_ms != NO_TIMESTAMP else 0
        written.append(encode_record(index, delta, record.key, record.value, no_headers))
    return b"".join(written)


def records_of(parcel: Parcel, codec: Compression) -> list[Record]:
    """Return the records of a parcel, read back from the bytes that this client wrote."""
    if parcel.magic == NEWEST:
        raw = unpack(parcel, codec)
        stamp = header(raw, parcel.record_count, int(Compression.NONE), parcel.base_timestamp, parcel.max_timestamp)
        return [record for batch in read_batches(stamp + raw) for record in batch.records()]
    limit = parcel.raw_size + _SET_OVERHEAD * parcel.record_count
    return [record for message in read_messages(parcel.payload) for record in message.records(limit)]


def attributes_of(codec: Compression, *, is_transactional: bool) -> int:
    """Return the attributes in the header of a batch."""
    return int(codec) | (TRANSACTIONAL if is_transactional else 0)


def head(batch: ProducerBatch, attributes: int) -> bytes:
    """Return the header of an encoded batch, with its sequence number if it has one.

    A message set has no header: the result is empty then.
    """
    payload = batch.payload
    assert payload is not None
    if batch.magic < NEWEST:
        return b""
    if batch.sequence < 0:
        return header(payload, batch.count, attributes, batch.base_timestamp, batch.max_timestamp)
    return header(payload, batch.count, attributes, batch.base_timestamp, batch.max_timestamp, batch.identity, on_wire(batch.sequence))
