"""The seams, as protocols: what the floors above and the user's own parts agree on. Knows nothing of what stands behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioproducer.model import Headers, TopicPartition

__all__ = [
    "Buffer",
    "CircuitBreakManager",
    "Dialer",
    "OpenBatch",
    "PartitionCircuitBreaker",
    "Partitioner",
    "ProducerStatusContext",
    "Receiver",
    "Resolver",
    "Serializer",
    "Stream",
]

Buffer: TypeAlias = "bytes | bytearray | memoryview"


class Receiver(Protocol):
    """What a connection's bytes are given to; the shape of `asyncio.Protocol`."""

    def connection_made(self, transport: Stream, /) -> None:
        """The connection stands; `transport` writes to it."""

    def data_received(self, data: bytes, /) -> None:
        """Bytes came in."""

    def eof_received(self) -> bool | None:
        """The peer will send no more."""

    def connection_lost(self, exc: Exception | None, /) -> None:
        """The connection is gone, and nothing reads its buffers any more."""

    def pause_writing(self) -> None:
        """The write buffer is full."""

    def resume_writing(self) -> None:
        """The write buffer has room again."""


class Stream(Protocol):
    """One connection's writing side; the shape of `asyncio.Transport`."""

    def write(self, data: Buffer, /) -> None:
        """Queue bytes. They must not change until they are sent."""

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        """Queue several buffers."""

    def get_write_buffer_size(self) -> int:
        """Bytes that are queued and not with the kernel yet."""

    def is_closing(self) -> bool:
        """Whether it is closed or closing."""

    def close(self) -> None:
        """Close once what is queued was sent."""

    def abort(self) -> None:
        """Close at once."""


class Dialer(Protocol):
    """Makes connections: sockets, or the memory streams of a fake cluster."""

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Connect, or raise OSError. `host` is what a resolver answered. Cancelled: nothing stays open."""


class Resolver(Protocol):
    """Knows host names: DNS, or a test's own table."""

    async def resolve(self, host: str) -> Sequence[str]:
        """The addresses behind a name, in the order in which to try them, or raise OSError."""

    async def canonical_name(self, address: str) -> str:
        """The name of an address (a reverse look-up), or the address itself if it has none; or raise OSError."""


@runtime_checkable
class Serializer(Protocol):
    """Makes bytes of a key or a value. None never comes here: it is a null key or a tombstone."""

    def __call__(self, topic: str, headers: Headers, value: object, /) -> bytes:
        """The bytes. What it raises reaches the caller of `send` as `SerializationError`."""


@runtime_checkable
class Partitioner(Protocol):
    """Chooses the partition of a record whose caller names none."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int], /) -> int:
        """A number from 0 to `partitions` - 1; `available` are those that have a leader now.

        Key and value are what the serializers made. What it raises, or a number that is no partition, reaches the caller of `send` as
        `UsageError`, and touches no other record. Asked once for each record, on the producer's loop: it must not wait.

        If the object has a method `forget(topic)` too, it is called for a topic that the producer forgets (`metadata_max_idle_ms`).
        """


class ProducerStatusContext(Protocol):
    """How a producer stands, for its circuit breaker (KIP-693). What is looked up costs as it is looked up; valid during the call alone."""

    @property
    def now(self) -> float:
        """The loop's time, in seconds."""

    @property
    def partition(self) -> TopicPartition:
        """Which the call is about."""

    @property
    def node_id(self) -> int:
        """Its leader, -1 while it has none."""

    @property
    def records(self) -> int:
        """How many the batch has, and in `on_complete` of one that failed those that wait behind it."""

    @property
    def in_flight_requests(self) -> Mapping[int, int]:
        """Unanswered produce requests by broker."""

    @property
    def in_flight_batches(self) -> Mapping[TopicPartition, int]:
        """Batches on their way, by partition."""

    @property
    def queued_bytes(self) -> Mapping[TopicPartition, int]:
        """What each partition holds of `buffer_memory`."""

    @property
    def throttled(self) -> Mapping[int, bool]:
        """Whether each broker wants to be left alone for now (KIP-219)."""


class CircuitBreakManager(Protocol):
    """What a circuit breaker works with (KIP-693).

    A muted partition is left out twice: partitioners avoid it, and nothing is drained to it. After
    `circuit_breaker_mute_retry_interval_ms` one of its batches is tried: success restores it, a failure that counts mutes it for twice as
    long, up to `circuit_breaker_mute_retry_max_interval_ms`. All methods are for the producer's loop. UsageError: no such partition.
    """

    def mute(self, place: int | TopicPartition, /) -> None:
        """Mute a partition, or all that a broker leads now."""

    def unmute(self, place: int | TopicPartition, /) -> None:
        """Restore a partition, or all that a broker leads now, without a probe."""

    def is_muted(self, partition: TopicPartition, /) -> bool:
        """Whether it is muted, or on probation."""

    def available_partitions_for_topic(self, topic: str, /) -> list[TopicPartition]:
        """Those that have a leader and are not muted."""

    def muted_partitions_for_topic(self, topic: str, /) -> list[TopicPartition]:
        """Those that are muted, or on probation."""

    def available_partitions_for_node(self, node_id: int, /) -> dict[str, list[TopicPartition]]:
        """Those that a broker leads and that are not muted, by topic."""

    def muted_partitions_for_node(self, node_id: int, /) -> dict[str, list[TopicPartition]]:
        """Those that a broker leads and that are muted, or on probation, by topic."""


class PartitionCircuitBreaker(Protocol):
    """Decides which partitions are left alone for a while (KIP-693): `circuit_breaker_class`.

    Called in the producer's loop, for batches, never for records: it must not wait, nor send. What it raises is logged once, and counts
    as True from `on_send` and False from `on_complete`.
    """

    def configure(self, options: Mapping[str, Any], /) -> None:
        """First: `circuit_breaker_options`, and the producer's own options of circuit breakers without that prefix."""

    def set_circuit_break_manager(self, manager: CircuitBreakManager, /) -> None:
        """Second: what it works with."""

    def on_send(self, context: ProducerStatusContext, /) -> bool:
        """A batch is about to be sent. False: hold it; it is asked for again a little later."""

    def on_complete(self, context: ProducerStatusContext, partition: TopicPartition, error: Exception | None, /) -> bool:
        """An attempt ended; None: well. True: it muted or unmuted something.

        It is told as well, once for each attempt, of one that has not come back for `circuit_breaker_mute_retry_interval_ms`
        (RequestTimedOut), and of a broker that could not be reached (ConnectionLost). Where it failed, `context.records` has those that
        wait behind it, too.
        """

    def close(self) -> None:
        """Last: the producer stops."""


class OpenBatch(Protocol):
    """A batch that takes records; plain Python or compiled (`engine.delivery.records_builder`), the rules do not see which."""

    count: int
    granted: int

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, /) -> Any:
        """The record's delivery, or None: it does not fit, or is no plain record. Never raises for want of room."""

    def append_many(self, timestamp_ms: int, keys: Sequence[bytes] | None, values: Sequence[bytes], first: int, /) -> int:
        """`append` for those from `first` on; the number of those that were, 0: no room."""

    def append_record(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes, /) -> Any:
        """`append` for a record with encoded headers, an own timestamp or any size."""

    @property
    def used(self) -> int:
        """Bytes of `granted` that records take."""

    def grow(self, room: int, /) -> None:
        """Give it room for so many more encoded bytes."""

    def close(self) -> tuple[bytes, int, int]:
        """Its payload, base and max timestamp; it takes no more."""
