"""Validation of records: topic, partition, timestamp, headers, and key and value through their serializers.

A mistake of the caller's is raised here, before metadata is requested, memory is taken or a record is queued. The error never shows the
contents of the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from aioproducer.errors import KafkaError, RecordTooLarge, SerializationError, UsageError
from aioproducer.interfaces import USER_FAILURES
from aioproducer.model import Record, exact_int, shown, timestamp_of
from aioproducer.records.record_batch import NO_HEADERS, OVERHEAD, encode_headers, size_limit
from aioproducer.serializers import BYTES, Encoding, Encodings, as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig


T = TypeVar("T")

# Bytes of a batch's objects in `buffer_memory`, beside its records.
BATCH_OVERHEAD: Final = 1024

# Bytes of a topic's name that a request can carry.
_MAX_NAME: Final = 2**15 - 1
# The largest number that a partition has in a request.
_LAST_PARTITION: Final = 2**31 - 1


def check_topic(topic: object) -> str:
    """Return the topic's name. Raises UsageError unless it can be one."""
    if isinstance(topic, str):
        # The name is kept, and compared with other topics: a subclass might compare differently.
        topic = str.__str__(topic)
    if not isinstance(topic, str) or not topic:
        raise UsageError(
            f"a topic is a non-empty string, not {type(topic).__name__ if not isinstance(topic, str) else repr(topic)}"
        )
    # Brokers allow less. A name that no request can carry would fail the request of the other topics, too.
    if not topic.isascii() or len(topic) > _MAX_NAME:
        size = len(topic.encode(errors="surrogatepass"))
        if size > _MAX_NAME or any("\ud800" <= character <= "\udfff" for character in topic):
            raise UsageError(f"{topic[:20]!r}... names no topic: up to 249 of a-z A-Z 0-9 . _ - do")
    return topic


def check_partition(topic: str, partition: object) -> int | None:
    """Return a partition's number as an int, or None. Raises UsageError if it is neither."""
    if partition is None:
        return None
    number = exact_int(partition)
    # No topic has a larger one, so the record would wait for it in vain.
    if number is None or not 0 <= number <= _LAST_PARTITION:
        raise UsageError(
            f"partition={shown(partition)} for {topic!r}: it is a number from 0 on, less than 2**31, or None"
        )
    return number


def check_columns(
    config: ProducerConfig,
    topic: str,
    *,
    partition: int | None,
    partitions: object,
    headers: object,
) -> None:
    """Raise UsageError if there is a partition of all rows and a column of them, or headers that the record format does not have."""
    if partition is not None and partitions is not None:
        raise UsageError(
            f"partition={partition} for {topic!r} is the partition of all rows, and partitions are a column: give one of them"
        )
    if headers is not None:
        _check_format(config)


def check_records(records: object) -> None:
    """Raise UsageError unless the argument of `send_many` is an iterable of records."""
    if not isinstance(records, Iterable) or isinstance(
        records, (str, bytes, bytearray, memoryview, Mapping, Record)
    ):
        raise UsageError(
            f"records are an iterable of values or of Record, not {type(records).__name__}"
        )


def header_pairs(headers: Any) -> Any:
    """Return headers as pairs of a string and bytes or None, from a mapping too. What `send` refuses is returned as it is."""
    pairs = tuple(headers.items()) if isinstance(headers, Mapping) else headers
    if not isinstance(pairs, Sequence):
        return headers
    try:
        if any(isinstance(value, str) for _, value in pairs) and not any(
            isinstance(pair, str) for pair in pairs
        ):
            return tuple(
                (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
            )
    # A member is no pair, or text that UTF-8 does not have; or a sequence of the caller's class raises.
    except USER_FAILURES:
        return headers
    return pairs


def _check_format(config: ProducerConfig) -> None:
    """Raise UsageError unless the record format of this producer has headers."""
    if config.message_format_max < 2:
        raise UsageError(
            f"headers need record format 2, and message_format_max={config.message_format_max}. Raise it, or send none."
        )


class Unencoded(NamedTuple):
    """Holds what a record lacks whose serializers are not prepared yet.

    Attributes:
        encoding: has the serializers.
        encode: returns the bytes of value, key and headers, and the most bytes that the record takes; raises the errors of `send`.
    """

    encoding: Encoding
    encode: Callable[[], tuple[bytes | None, bytes | None, bytes, int]]


class RecordValidation(Generic[T]):
    """Validates the records of one producer.

    Args:
        make: `PendingSend`, which `record` makes of a topic, its validated parts, and the most bytes that they take in a batch.
        call: calls a serializer, given its name, the function and the arguments.

    Attributes:
        encodings: how keys and values become bytes by the options.
    """

    def __init__(
        self, config: ProducerConfig, make: Callable[..., T], call: Callable[..., Any]
    ) -> None:
        self._config = config
        self._make = make
        self._call = call
        self.encodings: Encodings = Encodings(config.key_serializer, config.value_serializer)
        self._is_plain = self.encodings.is_plain

    def record(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None = None,
    ) -> T:
        """Return the record that `make` makes of the validated arguments.

        `encoding` says how key and value become bytes; None: as the options do. If its serializers are not prepared, the record is
        `unencoded`, and is complete once the caller has called `Unencoded.encode`.

        Raises:
            UsageError: the caller made a mistake, or a serializer failed.
            RecordTooLarge: the record takes more than `max_request_size` or `buffer_memory`.
        """
        topic = check_topic(topic)
        partition = check_partition(topic, partition)
        if timestamp_ms is not None:
            timestamp_ms = timestamp_of("timestamp_ms", timestamp_ms, f" for {topic!r}")
        headers = () if headers is None else headers
        if encoding is None:
            encoding = BYTES if self._is_plain else self.encodings.of(topic)
        if encoding is not BYTES:
            if headers:
                headers = header_pairs(headers)
            if not encoding.is_current():
                record = self._make(
                    topic,
                    value=None,
                    key=None,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=NO_HEADERS,
                    size=0,
                )
                record.unencoded = Unencoded(  # type: ignore[attr-defined]
                    encoding, partial(self._encoded, topic, value, key, headers, encoding)
                )
                return record
        value, key, encoded, size = self._encoded(topic, value, key, headers, encoding)
        return self._make(
            topic,
            value=value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=encoded,
            size=size,
        )

    def _encoded(
        self, topic: str, value: Any, key: Any, headers: Any, encoding: Encoding
    ) -> tuple[bytes | None, bytes | None, bytes, int]:
        """Return the bytes of value, key and headers, and the most bytes that the record takes in a batch."""
        try:
            if encoding is not BYTES:
                value, key, headers = encoding.encode(topic, value, key, headers, self._call)
            else:
                if key is not None and type(key) is not bytes:
                    key = as_bytes("key", topic, key)
                if value is not None and type(value) is not bytes:
                    value = as_bytes("value", topic, value)
            if headers:
                _check_format(self._config)
            encoded = encode_headers(headers) if headers else NO_HEADERS
        except KafkaError:
            raise
        # The values are the user's, of any class. Where a record waited, the loop calls this: another error would fail the producer.
        except USER_FAILURES as error:
            raise SerializationError(
                f"the value, key or headers for {topic!r} raised {type(error).__name__} when they were read"
            ) from error
        size = size_limit(key, value, encoded)
        self.size(topic, size)
        return value, key, encoded, size - OVERHEAD

    def size(self, topic: str, size: int) -> None:
        """Raise RecordTooLarge if a record, alone in a batch of so many bytes, is too large."""
        config = self._config
        if size > config.max_request_size:
            raise RecordTooLarge(
                f"a record for {topic!r} takes {size} bytes, more than max_request_size={config.max_request_size}. "
                "Raise it (and the topic's max.message.bytes), or send less."
            )
        if size + BATCH_OVERHEAD > config.buffer_memory:
            raise RecordTooLarge(
                f"a record for {topic!r} takes {size} bytes, more than buffer_memory={config.buffer_memory} holds. Raise it."
            )
