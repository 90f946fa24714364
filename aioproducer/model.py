"""The words: frozen values that pass between the floors and to the user. Knows nothing above itself."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, SupportsIndex, TypeAlias, TypeVar

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "Acks",
    "CircuitEvent",
    "CircuitState",
    "Compression",
    "ConsumerGroupMetadata",
    "FlushSummary",
    "Header",
    "Headers",
    "Health",
    "OffsetAndMetadata",
    "PartitionNumber",
    "ProducerRecord",
    "Record",
    "RecordMetadata",
    "TimestampMs",
    "TimestampType",
    "TopicPartition",
]

# integers of any type, numpy's among them; a datetime needs a time zone
PartitionNumber: TypeAlias = SupportsIndex
TimestampMs: TypeAlias = "SupportsIndex | datetime"
Header: TypeAlias = "tuple[str, bytes | None]"
Headers: TypeAlias = Sequence[Header]
K = TypeVar("K")
V = TypeVar("V")


class TimestampType(enum.IntEnum):
    """Who stamped a record: its producer or, on append, its broker."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Acks(enum.IntEnum):
    """How many replicas must have a record before its broker answers."""

    ALL = -1
    NONE = 0
    LEADER = 1


class Compression(enum.IntEnum):
    """A record batch's codec; the number stands in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TopicPartition(NamedTuple):
    """One partition."""

    topic: str
    partition: int


class CircuitState(enum.StrEnum):
    """How a partition's circuit stands (KIP-693)."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class CircuitEvent(NamedTuple):
    """A partition's circuit changed its state; what `on_circuit_event` is told.

    Attributes:
        interval_ms: open: how long it is left alone now; probing: how long it was; closed: 0.
        cause: of an open one, why; None: somebody muted it by hand.
    """

    partition: TopicPartition
    state: CircuitState
    interval_ms: float
    cause: Exception | None = None


class OffsetAndMetadata(NamedTuple):
    """An offset to commit: of the next record to read, with a note, and the epoch of the leader that the last one was read from."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """Who commits offsets in a transaction (Java's `ConsumerGroupMetadata`).

    With the generation and member id of a consumer its group refuses the offsets of one that it has gone on without (KIP-447); with the
    group id alone nobody is refused.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Record(NamedTuple, Generic[K, V]):
    """A record for `send_many` that is more than a value (Java's `ProducerRecord`); the fields are what `send` takes."""

    value: V | None = None
    key: K | None = None
    partition: PartitionNumber | None = None
    timestamp_ms: TimestampMs | None = None
    headers: Headers = ()

    def __repr__(self) -> str:
        """Never its key, value or header values."""
        where = "" if self.partition is None else f" for partition {self.partition}"
        when = "" if self.timestamp_ms is None else f" of {self.timestamp_ms}"
        return f"<Record{where}{when}: {len(self.headers)} headers>"


class ProducerRecord(NamedTuple):
    """A record on its way in, as an interceptor sees it (Java's `ProducerRecord`); the fields are what `send` takes."""

    topic: str
    value: Any = None
    key: Any = None
    partition: PartitionNumber | None = None
    timestamp_ms: TimestampMs | None = None
    headers: Headers = ()

    def __repr__(self) -> str:
        """Never its key, value or header values."""
        where = "" if self.partition is None else f", partition {self.partition}"
        return f"<ProducerRecord for {self.topic}{where}: {len(self.headers)} headers>"


class RecordMetadata(NamedTuple):
    """Where a record is, and what the broker made of it (Java's `RecordMetadata`).

    `offset` is -1 with acks=0. `timestamp_ms` is the broker's on topics with LogAppendTime. Sizes in bytes, -1 for null.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    serialized_key_size: int
    serialized_value_size: int


class Health(NamedTuple):
    """Whether a producer can do its work now, for readiness probes: true if it is ready.

    Attributes:
        is_ready: it runs, reaches its cluster, and no record is overdue.
        reasons: why it is not.
        brokers_known: brokers of the cluster.
        brokers_up: of them, to which a connection stands: one is made when there is something to send.
        brokers_down: of them, of which the latest attempt to connect failed.
        oldest_unacknowledged_seconds: age of the oldest record that has not ended, 0 if there is none.
        open_breakers: brokers and partitions that a circuit breaker holds back; the others' records go their way.
        buffer_available: bytes of `buffer_memory` that are free.
        waiting: sends that wait.
    """

    is_ready: bool
    reasons: tuple[str, ...] = ()
    brokers_known: int = 0
    brokers_up: int = 0
    brokers_down: int = 0
    oldest_unacknowledged_seconds: float = 0.0
    open_breakers: tuple[str, ...] = ()
    buffer_available: int = 0
    waiting: int = 0

    def __bool__(self) -> bool:
        """Whether it is ready."""
        return self.is_ready


class FlushSummary(NamedTuple):
    """What became of the records that a flush covered, in records."""

    acknowledged: int
    failed: int
    pending: int
