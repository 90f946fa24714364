"""The batch that a user fills: `create_batch` returns it, and `send_batch` sends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aioproducer.counting import counted
from aioproducer.engine.chosen_build import DeliveryContext, MemoryRecordsBuilder, ProduceRequestResult
from aioproducer.errors import UsageError, WouldBlock
from aioproducer.model import HeadersLike, TimestampMs
from aioproducer.records.record_batch import record_size

__all__ = ["Filled", "ReadyBatch"]

_LEAST_ROOM: Final = 1


class Filled:
    """Holds the records of a batch that the user fills (an `interfaces.OpenBatch`). They are closed once, and keep their bytes.

    Attributes:
        count: records in the batch.
        result: the outcome that their deliveries share.
    """

    __slots__ = ("_closed", "_open", "count", "result")

    def __init__(self, records: MemoryRecordsBuilder) -> None:
        self._open = records
        self._closed: tuple[bytes, int, int] | None = None
        self.count: int = 0
        self.result: ProduceRequestResult = records.result

    @property
    def is_closed(self) -> bool:
        """Return whether the batch takes no more records."""
        return self._closed is not None

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes) -> bool:
        """Append an encoded record. Returns False if the batch has too few bytes left, or is closed."""
        if self._closed is not None or self._open.append_record(timestamp_ms, key, value, headers) is None:
            return False
        self.count = self._open.count
        return True

    def close(self) -> tuple[bytes, int, int]:
        """Return the payload, base timestamp and max timestamp: the same each time."""
        if self._closed is None:
            self._closed = self._open.close()
        return self._closed


class ReadyBatch:
    """Holds records of one partition that are sent together, or not at all.

    `Producer.create_batch` makes it. The user calls `append` until it returns False, then `await producer.send_batch(batch)`, which
    closes it. Before that, nothing of the batch counts in `buffer_memory`.

    Args:
        checked: returns a record as `send` encodes it; raises the errors of `send`.
    """

    __slots__ = ("_checked", "_delivery_context", "_is_closed", "_limit", "_records", "is_sent", "partition", "size", "topic")

    def __init__(self, topic: str, partition: int, delivery_context: DeliveryContext, limit: int, checked: Callable[..., Any]) -> None:
        self.topic: str = topic
        self.partition: int = partition
        self.size: int = 0
        self.is_sent: bool = False
        self._delivery_context = delivery_context
        self._limit = max(limit, _LEAST_ROOM)
        self._checked = checked
        self._records: Filled | None = None
        self._is_closed = False

    def append(self, value: Any = None, key: Any = None, *, timestamp_ms: TimestampMs | None = None, headers: HeadersLike = ()) -> bool:
        """Append a record. Returns False: the batch is closed, or the record does not fit into `batch_size`; the first one always does.

        Raises:
            UsageError: `send` raises it for such a record, or the batch was sent. The batch is unchanged.
        """
        self._check_unsent()
        record = self._checked(self.topic, value, key, self.partition, timestamp_ms, headers)
        if record.unencoded is not None:
            raise WouldBlock(
                f"a batch for {self.topic!r} cannot wait for {record.unencoded.encoding.name} to be prepared: `await producer.topic(...).ready()` first"
            )
        # A serializer may have sent the batch.
        self._check_unsent()
        now_ms = self._delivery_context.now_ms() if record.timestamp_ms is None else record.timestamp_ms
        if self._is_closed:
            return False
        if self._records is None:
            room = max(self._limit, record_size(0, 0, record.key, record.value, record.headers))
            self._records = Filled(
                MemoryRecordsBuilder(ProduceRequestResult(self._delivery_context, self.topic, self.partition, now_ms), now_ms, room)
            )
        records = self._records
        index, base = records.count, records.result.base_timestamp
        if not records.append(now_ms, record.key, record.value, record.headers):
            return False
        self.size += record_size(index, now_ms - base, record.key, record.value, record.headers)
        return True

    def _check_unsent(self) -> None:
        if self.is_sent:
            raise UsageError(f"{self!r} was sent; make a new one")

    def close(self) -> None:
        """Close the batch for more records, as aiokafka does. A second call is safe. `send_batch` closes the batch, too."""
        self._is_closed = True

    @property
    def records(self) -> Filled:
        """Return the records of the batch, for its sending."""
        if self._records is None:
            raise UsageError(f"{self!r} is empty")
        return self._records

    @property
    def result(self) -> ProduceRequestResult:
        """Return the outcome that the deliveries of its records share."""
        return self.records.result

    def is_of(self, delivery_context: DeliveryContext) -> bool:
        """Return whether the producer of that `delivery_context` made the batch."""
        return self._delivery_context is delivery_context

    def __len__(self) -> int:
        """Return the number of records in the batch."""
        return 0 if self._records is None else self._records.count

    def __bool__(self) -> bool:
        """Return True always: an empty batch is a batch, too."""
        return True

    def __repr__(self) -> str:
        return f"<ReadyBatch for {self.topic}-{self.partition}: {counted(len(self), 'record')}, {self.size} bytes{', sent' if self.is_sent else ''}>"
