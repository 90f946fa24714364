"""A batch that the user fills: what `create_batch` gives and `send_batch` sends. Knows nothing of memory or brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.hot import BatchResult, MemoryRecordsBuilder
from aioproducer.errors import UsageError
from aioproducer.records.record_batch import record_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.engine.hot import Home
    from aioproducer.model import Headers

__all__ = ["ReadyBatch"]

_LEAST_ROOM: Final = 1


class ReadyBatch:
    """Records of one partition that are sent together, or not at all.

    Made by `Producer.create_batch`. `append` until it says no, then `await producer.send_batch(batch)`. Nothing of it is counted in
    `buffer_memory` before.

    Args:
        checked: a record as `send` would have it, encoded; raises what `send` raises.
    """

    __slots__ = ("_checked", "_home", "_limit", "_records", "is_sent", "partition", "size", "topic")

    def __init__(self, topic: str, partition: int, home: Home, limit: int, checked: Callable[..., Any]) -> None:
        self.topic = topic
        self.partition = partition
        self.size = 0
        self.is_sent = False
        self._home = home
        self._limit = max(limit, _LEAST_ROOM)
        self._checked = checked
        self._records: MemoryRecordsBuilder | None = None

    def append(self, value: Any = None, key: Any = None, *, timestamp_ms: int | None = None, headers: Headers = ()) -> bool:
        """Put a record behind the others. False: it does not fit into `batch_size` any more; the first one always does.

        Raises:
            UsageError: what `send` raises for such a record, or the batch was sent. The batch is as it was.
        """
        if self.is_sent:
            raise UsageError(f"{self!r} was sent; make a new one")
        record = self._checked(self.topic, value, key, self.partition, timestamp_ms, headers)
        now_ms = self._home.now_ms() if record.timestamp_ms is None else record.timestamp_ms
        if self._records is None:
            room = max(self._limit, record_size(0, 0, record.key, record.value, record.headers))
            self._records = MemoryRecordsBuilder(BatchResult(self._home, self.topic, self.partition, now_ms), now_ms, room)
        index, base = self._records.count, self._records.result.base_timestamp
        if self._records.append_record(now_ms, record.key, record.value, record.headers) is None:
            return False
        self.size += record_size(index, now_ms - base, record.key, record.value, record.headers)
        return True

    @property
    def records(self) -> MemoryRecordsBuilder:
        """What it holds; for those who send it."""
        assert self._records is not None
        return self._records

    @property
    def result(self) -> BatchResult:
        """What the deliveries of its records share."""
        return self.records.result

    def is_of(self, home: Home) -> bool:
        """Whether it was made by the producer of that home."""
        return self._home is home

    def __len__(self) -> int:
        """Records in it."""
        return 0 if self._records is None else self._records.count

    def __bool__(self) -> bool:
        """Always: an empty one is a batch, too."""
        return True

    def __repr__(self) -> str:
        return f"<ReadyBatch for {self.topic}-{self.partition}: {len(self)} records, {self.size} bytes{', sent' if self.is_sent else ''}>"
