"""Holds the protocols between the package's layers, and between the package and parts that the user provides."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from aioproducer.model import USER_FAILURES, Headers, ProducerRecord, RecordMetadata, TopicPartition

__all__ = [
    "METHODS",
    "USER_FAILURES",
    "Buffer",
    "CircuitBreakManager",
    "Dialer",
    "Encoder",
    "Interceptor",
    "OpenBatch",
    "PartitionCircuitBreaker",
    "Partitioner",
    "ProducerStatusContext",
    "Receiver",
    "Resolver",
    "Serializer",
    "Stream",
    "is_cancelled",
    "is_coroutine_function",
]

Buffer: TypeAlias = "bytes | bytearray | memoryview"
T_contra = TypeVar("T_contra", contravariant=True)


class Receiver(Protocol):
    """Receives a connection's bytes and events; the shape of `asyncio.Protocol`."""

    def connection_made(self, transport: Stream, /) -> None:
        """Note that the connection is established; `transport` writes to it."""

    def data_received(self, data: bytes, /) -> None:
        """Process bytes that the connection received."""

    def eof_received(self) -> bool | None:
        """Note that the peer will send no more bytes."""

    def connection_lost(self, exc: Exception | None, /) -> None:
        """Note that the connection has ended. The transport no longer reads its buffers."""

    def pause_writing(self) -> None:
        """Note that the write buffer is full."""

    def resume_writing(self) -> None:
        """Note that the write buffer accepts bytes again."""


class Stream(Protocol):
    """Writes to one connection; the shape of `asyncio.Transport`."""

    def write(self, data: Buffer, /) -> None:
        """Queue bytes. The caller must not change them until they are sent."""

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        """Queue several buffers."""

    def get_write_buffer_size(self) -> int:
        """Return the number of queued bytes that the kernel does not have yet."""

    def is_closing(self) -> bool:
        """Return whether the connection is closed or closing."""

    def close(self) -> None:
        """Close the connection once the queued bytes are sent."""

    def abort(self) -> None:
        """Close the connection at once."""


class Dialer(Protocol):
    """Makes connections: sockets, or the memory streams of a fake cluster."""

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Connect, or raise OSError. `host` is an answer of a resolver. Cancelled: no connection stays open."""


class Resolver(Protocol):
    """Resolves host names, by DNS or by the table of a test."""

    async def resolve(self, host: str) -> Sequence[str]:
        """Return the addresses of a name, in the order in which to try them, or raise OSError."""

    async def canonical_name(self, address: str) -> str:
        """Return the name of an address (a reverse look-up), or the address itself if it has none; or raise OSError."""


class Encoder(Protocol[T_contra]):
    """Makes bytes of the keys, or the values, of one topic. A `Serializer` prepares it.

    The producer calls its methods on the loop, between two of its steps: they must not wait.
    """

    def encode(self, value: T_contra, headers: Headers, /) -> bytes | tuple[bytes, Headers]:
        """Return the bytes, or a pair of them and the headers that the record is to have.

        The producer never calls it with None, which is a null key or a tombstone. If it raises, the caller of `send` gets a
        `SerializationError`.
        """

    def is_stale(self) -> bool:
        """Return whether the serializer is to be prepared again before the next record. The producer asks for each record.

        If it raises, the caller of `send` gets a `SerializationError`.
        """


@runtime_checkable
class Serializer(Protocol[T_contra]):
    """Makes bytes of keys or values in two phases: it is prepared for a topic, and then encodes each record of the topic.

    Preparation may wait, for the id of a schema for example. Until it has ended, the sends to the topic wait in the order of their
    calls, at most `max_block_ms`.
    """

    async def prepare(self, topic: str, /) -> Encoder[T_contra]:
        """Return the encoder of a topic. The producer awaits it once for each topic, and again once that encoder is stale.

        If it raises, the sends that wait for it raise `SerializationError`, and the next send to the topic prepares again. It is
        cancelled after `max_block_ms`, and when the producer stops.
        """


@runtime_checkable
class Partitioner(Protocol):
    """Chooses the partition of a record that has no explicit partition."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: int,
        available: Sequence[int],
        /,
    ) -> int:
        """Return a number from 0 to `partitions` - 1; `available` are the partitions that have a leader now.

        Key and value are the results of the serializers. If `partition` raises, or returns a number that is no partition, the caller of
        `send` gets a `UsageError`, and no other record is affected. The producer calls it once for each record, on its loop: it must not
        wait.

        If the object also has a method `forget(topic)`, the producer calls it for a topic that it forgets (`metadata_max_idle_ms`).
        """


class ProducerStatusContext(Protocol):
    """Gives a circuit breaker the state of its producer (KIP-693). Valid only during the call.

    Each property is computed when the breaker reads it, so a property that is not read costs nothing.
    """

    @property
    def now(self) -> float:
        """Return the loop's time, in seconds."""

    @property
    def partition(self) -> TopicPartition:
        """Return the partition that the call is about."""

    @property
    def node_id(self) -> int:
        """Return the leader of the partition, -1 while it has none."""

    @property
    def records(self) -> int:
        """Return the number of the batch's records. In `on_complete` of a failed batch, the records that wait behind it are included."""

    @property
    def in_flight_requests(self) -> Mapping[int, int]:
        """Return the numbers of unanswered produce requests, by broker."""

    @property
    def in_flight_batches(self) -> Mapping[TopicPartition, int]:
        """Return the numbers of batches in flight, by partition."""

    @property
    def queued_bytes(self) -> Mapping[TopicPartition, int]:
        """Return the bytes of `buffer_memory` that each partition holds."""

    @property
    def throttled(self) -> Mapping[int, bool]:
        """Return whether each broker throttles the client now (KIP-219)."""


class CircuitBreakManager(Protocol):
    """Mutes and unmutes partitions for a circuit breaker (KIP-693).

    Muting a partition has two effects: partitioners avoid it, and the Sender drains no batch of it. After
    `circuit_breaker_mute_retry_interval_ms` one of its batches is tried. Success restores the partition. A failure that counts mutes it for
    twice as long, up to `circuit_breaker_mute_retry_max_interval_ms`. All methods are for the producer's loop. UsageError: no such
    partition.
    """

    def mute(self, place: int | TopicPartition, /) -> None:
        """Mute a partition, or all partitions that a broker leads now."""

    def unmute(self, place: int | TopicPartition, /) -> None:
        """Restore a partition, or all partitions that a broker leads now, without a probe."""

    def is_muted(self, partition: TopicPartition, /) -> bool:
        """Return whether a partition is muted, or on probation."""

    def available_partitions_for_topic(self, topic: str, /) -> list[TopicPartition]:
        """Return the partitions of a topic that have a leader and are not muted."""

    def muted_partitions_for_topic(self, topic: str, /) -> list[TopicPartition]:
        """Return the partitions of a topic that are muted, or on probation."""

    def available_partitions_for_node(self, node_id: int, /) -> dict[str, list[TopicPartition]]:
        """Return the partitions that a broker leads and that are not muted, by topic."""

    def muted_partitions_for_node(self, node_id: int, /) -> dict[str, list[TopicPartition]]:
        """Return the partitions that a broker leads and that are muted, or on probation, by topic."""


class PartitionCircuitBreaker(Protocol):
    """Decides which partitions are muted for a while (KIP-693): `circuit_breaker_class`.

    The producer calls it in its loop, for batches, never for records. The breaker must not wait, nor send. If a method raises, the error is
    logged once. It counts as True from `on_send` and as False from `on_complete`.
    """

    def configure(self, options: Mapping[str, Any], /) -> None:
        """Read the options, as the first call.

        They are `circuit_breaker_options`, and the producer's own options of circuit breakers without that prefix.
        """

    def set_circuit_break_manager(self, manager: CircuitBreakManager, /) -> None:
        """Keep the manager that mutes and unmutes partitions, as the second call."""

    def on_send(self, context: ProducerStatusContext, /) -> bool:
        """Return whether a batch may be sent now. False: the producer holds it, and asks again a little later."""

    def on_complete(
        self, context: ProducerStatusContext, partition: TopicPartition, error: Exception | None, /
    ) -> bool:
        """Note that an attempt ended; `error` is None after a success. Returns True if the breaker muted or unmuted a partition.

        The producer also calls it, once for each attempt, when an answer has not come for `circuit_breaker_mute_retry_interval_ms`
        (RequestTimedOut), and when a broker could not be reached (ConnectionLost). After a failure, `context.records` includes the
        records that wait behind the batch.
        """

    def close(self) -> None:
        """Release resources, as the last call: the producer stops."""


class OpenBatch(Protocol):
    """Accepts records of one batch, in plain Python or compiled (`engine.delivery.records_builder`). The rules do not see which."""

    count: int
    granted: int

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, /) -> Any:
        """Append a record. Returns its delivery, or None: it does not fit, or is no plain record. Never raises if bytes are lacking."""

    def append_many(
        self,
        timestamp_ms: int,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
        first: int,
        /,
    ) -> int:
        """Append the records from index `first` on. Returns the number of appended records, 0: none fits."""

    def append_record(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes, /
    ) -> Any:
        """Append a record with encoded headers, its own timestamp or any size. Returns its delivery, or None: it does not fit."""

    @property
    def used(self) -> int:
        """Return the bytes of `granted` that records take."""

    def grow(self, room: int, /) -> None:
        """Grant `room` more encoded bytes."""

    def close(self) -> tuple[bytes, int, int]:
        """Close the batch. Returns its payload, base timestamp and max timestamp, the same each time. It accepts no more records."""


# Holds the base of interceptors (KIP-42), which change records before they are queued, and get each outcome.
#
# The producer calls interceptors in the order in which they are given, on its loop. They must not wait, and slow code in one delays every
# send. If an interceptor raises, the error is logged once for each kind and counted. It does not affect the record or the next interceptor.


METHODS = ("on_send", "on_acknowledgement", "on_error", "close")


class Interceptor:
    """Does nothing: derive from it, or give any object that has some of its methods.

    For each record the producer calls `on_send` once, and then either `on_acknowledgement` or `on_error`, once. For a record that was
    queued, it does so before the record's waiting tasks and callbacks run.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record to send instead of `record`, None: `record` unchanged.

        `record` is as the caller gave it, before serializers and partitioner.
        `record._replace(headers=(*record.headers, ("source", b"web")))` makes another one.
        """

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """Note that a record is acknowledged; `headers` as they were sent (KIP-512)."""

    def on_error(self, error: BaseException, topic: str, partition: int, headers: Headers) -> None:
        """Note that a record was refused, or not acknowledged, or that its send was cancelled before it was queued.

        Args:
            error: the error that `send` raises, or the delivery's `DeliveryError`.
            topic: the topic of the record.
            partition: the partition of the record; -1 if none was chosen yet.
            headers: as they would have been sent.
        """

    def close(self) -> None:
        """Release resources: the producer has stopped, and calls no other method any more."""


def is_coroutine_function(function: object) -> bool:
    """Return whether a call must be awaited: of a coroutine function, of an object with such a `__call__`, or of a `partial` of these."""
    while isinstance(function, functools.partial):
        function = function.func
    # An object that can be called has the function in its class.
    called = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def is_cancelled() -> bool:
    """Return whether the current task was cancelled. If it was not, a CancelledError in it is that of something that it awaits.

    The user's coroutines raise such an error when they await a task or a future that other code cancelled: it is their failure.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
