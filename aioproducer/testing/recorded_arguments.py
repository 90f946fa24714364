"""Converts a send's arguments for a `RecordingProducer`: to a record, or to the error of `Producer`.

Order and text of the checks are the producer's; one contract suite (tests/contract) runs both.
"""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any, cast

from aioproducer.errors import MetadataTimeout, RecordTooLarge, UsageError
from aioproducer.number_conversion import exact_int, shown
from aioproducer.records.record_batch import encode_headers, size_limit
from aioproducer.serializers import adapt, serialize
from aioproducer.testing.recorded import RecordedSend
from aioproducer.timestamp_conversion import timestamp_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SendArguments", "read_partition"]


class SendArguments:
    """Checks and converts the arguments of a send.

    Args:
        config: a `ProducerConfig`; serializers, `partitioner` and size limits have effect.
        partitions: number of partitions of the topics that a test names.
    """

    def __init__(self, config: Any, partitions: Mapping[str, int]) -> None:
        self._config = config
        self._serialize_key = adapt(config.key_serializer)
        self._serialize_value = adapt(config.value_serializer)
        self._partitions = dict(partitions)
        self._partitioner = _function_of(config.partitioner)

    def partitions_of(self, topic: str) -> int:
        """Return a topic's number of partitions; 1 for a topic that the test does not name."""
        return self._partitions.get(topic, 1)

    def read(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> tuple[RecordedSend, int]:
        """Check the arguments as the producer does. Returns the record and its size in bytes."""
        _check(topic)
        partition = read_partition(topic, partition)
        if timestamp_ms is not None:
            timestamp_ms = timestamp_of("timestamp_ms", timestamp_ms, f" for {topic!r}")
        headers = () if headers is None else headers
        key = serialize("key", self._serialize_key, topic, headers, key)
        value = serialize("value", self._serialize_value, topic, headers, value)
        size = size_limit(key, value, encode_headers(headers))
        for limit in ("max_request_size", "buffer_memory"):
            if size > (allowed := getattr(self._config, limit)):
                raise RecordTooLarge(f"a record for {topic!r} takes {size} bytes, more than {limit}={allowed}. Raise it, or send less.")
        place = self._place(topic, key, value, partition)
        now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        return RecordedSend(topic, place, key, value, now_ms, tuple((name, part and bytes(part)) for name, part in headers)), size

    def _place(self, topic: str, key: bytes | None, value: bytes | None, partition: int | None) -> int:
        count = self._partitions.get(topic)
        if partition is not None:
            if count is not None and partition >= count:
                raise MetadataTimeout(f"partition {partition} of {topic!r} is not known: it has {count}")
            return partition
        if self._partitioner is None:
            return 0
        known = count or 1
        try:
            chosen = self._partitioner(topic, key, value, known, range(known))
        except Exception as error:
            raise UsageError(f"the partitioner raised {type(error).__name__} for {topic!r}") from error
        number = exact_int(chosen)
        if number is None or not 0 <= number < known:
            what = chosen if isinstance(chosen, bool) else type(chosen).__name__ if number is None else number
            raise UsageError(f"the partitioner chose {what} for {topic!r}, which has partitions 0 to {known - 1}")
        return number


def _function_of(partitioner: Any) -> Callable[..., Any] | None:
    """Return the `partitioner` option as a function of topic, key, value, partitions and available partitions."""
    if isinstance(partitioner, type):
        partitioner = partitioner()
    function = getattr(partitioner, "partition", partitioner)
    if function is None:
        return None
    try:
        inspect.signature(function).bind(b"key", 1)
    except TypeError:
        return cast("Callable[..., Any]", function)
    # a builtin without a signature
    except ValueError:
        pass
    return lambda _topic, key, _value, partitions, _available: function(key, partitions)


def _check(topic: Any) -> None:
    if not isinstance(topic, str) or not topic:
        raise UsageError(f"a topic is a non-empty string, not {type(topic).__name__ if not isinstance(topic, str) else repr(topic)}")


def read_partition(topic: str, given: Any) -> int | None:
    """Return a partition's number as an int, or None.

    Raises:
        UsageError: it is neither; the text is the producer's.
    """
    if given is None:
        return None
    partition = exact_int(given)
    if partition is None or partition < 0:
        raise UsageError(f"partition={shown(given)} for {topic!r}: it is a number from 0 on, or None")
    return partition
