"""Converts the records of a batch to its broker's format: record batches, or message sets before Kafka 0.11.

A batch holds its records in the format of record batches (magic 2). For an older broker, or for a lower `message_format_max`, the encoder
writes them again in an older format. It writes them once more if the next leader of the partition needs yet another format. That costs
microseconds a record, only for the batches that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from aioproducer.engine.sender.parcel import NEWEST, Parcel
from aioproducer.errors import BootstrapFailed, ConfigError, broker_error
from aioproducer.model import Compression
from aioproducer.records.compression import compress
from aioproducer.records.record_batch import TRANSACTIONAL
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.config import ProducerConfig
    from aioproducer.net.connection import Connection

# The magic by Produce version.
_MAGICS: Final = (0, 0, 1)
_LAST_FOR_MESSAGE_SETS: Final = len(_MAGICS) - 1
FIRST_WITH_RECORD_BATCHES: Final = len(_MAGICS)
# Kafka 4.0 still announces Produce 0, for old clients, but does not accept it (KAFKA-18659).
_FIRST_WITHOUT_MESSAGE_SETS: Final = 12

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
    """Return the newest Produce version that both sides support and that carries message sets of format `magic`.

    Raises:
        BrokerError: the broker offers no Produce, or is too new for `magic`.
    """
    version = connection.version_of(ApiKey.PRODUCE)
    if _highest(connection) >= _FIRST_WITHOUT_MESSAGE_SETS:
        raise broker_error("UNSUPPORTED_FOR_MESSAGE_FORMAT", _too_new(connection, magic))
    return min(version, _LAST_FOR_MESSAGE_SETS)


def check_brokers(connections: Iterable[Connection], newest: int) -> None:
    """Check that all connected brokers take the format `newest` (`message_format_max`).

    Raises:
        ConfigError: a broker takes no format that is so old.
        BootstrapFailed: none of them offers Produce.
    """
    connections = list(connections)
    if connections and all(ApiKey.PRODUCE not in each.versions for each in connections):
        raise BootstrapFailed(f"{connections[0].where} offers no Produce")
    for connection in connections:
        if newest < NEWEST and _highest(connection) >= _FIRST_WITHOUT_MESSAGE_SETS:
            raise ConfigError(_too_new(connection, newest))


def _highest(connection: Connection) -> int:
    return connection.versions.get(ApiKey.PRODUCE, (0, _LAST_FOR_MESSAGE_SETS + 1))[1]


def _too_new(connection: Connection, magic: int) -> str:
    return f"{connection.where} is Kafka 4.0 or newer and takes no records of format {magic}, only record batches (2). Leave message_format_max at 2."


# Batches


def pack(parcel: Parcel, magic: int, codec: Compression, level: int | None) -> bytes:
    """Return the bytes of a batch behind its header, if it has one: compressed records, or a message set.

    Raises:
        BrokerError: the records have headers or the codec is zstd, which message sets do not support.
    """
    if magic == NEWEST:
        return compress(codec, unpack(parcel, codec), level)
    # Only brokers before Kafka 0.11 need it.
    from aioproducer.engine.sender.older_formats import to_message_set

    return to_message_set(parcel, magic, codec, level)


def unpack(parcel: Parcel, codec: Compression) -> bytes:
    """Return the uncompressed records in the format of magic 2.

    Magic 0 has no timestamps: each of its records gets the batch's first one.
    """
    if parcel.magic == NEWEST:
        return parcel.raw(codec)
    # Only batches that were on their way to a broker before Kafka 0.11 have it.
    from aioproducer.engine.sender.older_formats import from_message_set

    return from_message_set(parcel)


def attributes_of(codec: Compression, *, is_transactional: bool) -> int:
    """Return the attributes in the header of a batch."""
    return int(codec) | (TRANSACTIONAL if is_transactional else 0)
