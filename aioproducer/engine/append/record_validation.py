"""Validation of records: topic, partition, timestamp, headers, and key and value through their serializers.

A mistake of the caller's is raised here, before metadata is requested, memory is taken or a record is queued. The error never shows the
contents of the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.memory.buffer_pool import BATCH_OVERHEAD
from aioproducer.engine.memory.wait_queue import NO_HEADERS, PendingSend
from aioproducer.errors import RecordTooLarge, UsageError
from aioproducer.number_conversion import exact_int, shown
from aioproducer.records.record_batch import OVERHEAD, encode_headers, size_limit
from aioproducer.serializers import adapt, serialize
from aioproducer.timestamp_conversion import timestamp_of

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.engine.observability.slow_callbacks import SlowCallbacks

__all__ = ["RecordValidation", "check_partition", "check_topic"]

# Bytes of a topic's name that a request can carry.
_MAX_NAME: Final = 2**15 - 1


def check_topic(topic: object) -> str:
    """Return the topic's name. Raises UsageError unless it can be one."""
    if isinstance(topic, str):
        # The name is kept, and compared with other topics: a subclass might compare differently.
        topic = str.__str__(topic)
    if not isinstance(topic, str) or not topic:
        raise UsageError(f"a topic is a non-empty string, not {type(topic).__name__ if not isinstance(topic, str) else repr(topic)}")
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
    if number is None or number < 0:
        raise UsageError(f"partition={shown(partition)} for {topic!r}: it is a number from 0 on, or None")
    return number


def check_timestamp(topic: str, timestamp_ms: object) -> int | None:
    """Return a record's timestamp as an int, or None. Raises UsageError if it is neither."""
    return None if timestamp_ms is None else timestamp_of("timestamp_ms", timestamp_ms, f" for {topic!r}")


class RecordValidation:
    """Validates the records of one producer.

    Args:
        watch: times the serializers.
    """

    def __init__(self, config: ProducerConfig, watch: SlowCallbacks) -> None:
        self._config = config
        self._serialize_key, self._serialize_value = (
            watch.over(name, serializer) if (serializer := adapt(getattr(config, name))) is not None else None
            for name in ("key_serializer", "value_serializer")
        )

    def record(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> PendingSend:
        """Return the record, ready to be appended.

        Raises:
            UsageError: the caller made a mistake, or a serializer failed.
            RecordTooLarge: the record takes more than `max_request_size` or `buffer_memory`.
        """
        topic = check_topic(topic)
        partition = check_partition(topic, partition)
        timestamp_ms = check_timestamp(topic, timestamp_ms)
        headers = () if headers is None else headers
        key = serialize("key", self._serialize_key, topic, headers, key)
        value = serialize("value", self._serialize_value, topic, headers, value)
        if headers and self._config.message_format_max < 2:
            raise UsageError(
                f"headers need record format 2, and message_format_max={self._config.message_format_max}. Raise it, or send none."
            )
        encoded = encode_headers(headers) if headers else NO_HEADERS
        size = size_limit(key, value, encoded)
        self.size(topic, size)
        return PendingSend(
            topic, value=value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=encoded, size=size - OVERHEAD
        )

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
