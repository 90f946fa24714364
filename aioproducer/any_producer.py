"""Holds `AnyProducer`, the type of what sends: `Producer`, `RecordingProducer`, and doubles of your own.

Code that is given a producer names this type, and so a test may give it a `RecordingProducer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from aioproducer.config import ProducerConfig
from aioproducer.errors import DeliveryError
from aioproducer.model import (
    ConsumerGroupMetadata,
    FlushSummary,
    HeadersLike,
    Health,
    OffsetAndMetadata,
    PartitionNumber,
    Record,
    RecordMetadata,
    TimestampMs,
)
from aioproducer.value_types import KindOf

__all__ = ["AnyDeliveries", "AnyProducer", "AnyTopic"]

T = TypeVar("T")
U = TypeVar("U")
P = TypeVar("P", bound="tuple[str, int]")
# Without type arguments, both are bytes (PEP 696). Before Python 3.13 only type checkers know the defaults of type variables.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar

    K_contra = DefaultingTypeVar("K_contra", default=bytes, contravariant=True)
    V_contra = DefaultingTypeVar("V_contra", default=bytes, contravariant=True)
else:
    K_contra = TypeVar("K_contra", contravariant=True)
    V_contra = TypeVar("V_contra", contravariant=True)


class AnyDeliveries(Protocol):
    """Has the deliveries of `send_many`, as `Deliveries` has them."""

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        """Wait for all records. Returns their metadata."""

    def __len__(self) -> int:
        """Return the number of records."""

    async def wait(self) -> FlushSummary:
        """Wait until every record has ended."""

    def summary(self) -> FlushSummary:
        """Return the numbers of records that are acknowledged, failed and pending now."""

    def failures(self) -> Iterator[tuple[int, DeliveryError]]:
        """Yield index and error of each record that has failed by now."""

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return first and last offset of the records acknowledged by now, by partition."""


class AnyTopic(Protocol[K_contra, V_contra]):
    """Has the calls of a `Topic`, which documents them. A `RecordingProducer` makes others of this type."""

    async def send(
        self,
        value: V_contra | None = None,
        key: K_contra | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record. Returns its delivery."""

    async def send_and_wait(
        self,
        value: V_contra | None = None,
        key: K_contra | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement. Returns its metadata."""

    def send_nowait(
        self,
        value: V_contra | None = None,
        key: K_contra | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record without waiting. Returns its delivery."""

    async def send_many(
        self, records: Iterable[V_contra | Record[K_contra, V_contra] | None] | AsyncIterable[V_contra | Record[K_contra, V_contra] | None]
    ) -> AnyDeliveries:
        """Queue many records. Returns their deliveries."""

    async def partitions(self) -> set[int]:
        """Return the partitions of the topic."""

    async def ready(self) -> None:
        """Wait until the topic is known and its serializers are prepared."""


class AnyProducer(Protocol[K_contra, V_contra]):
    """Has the calls of a `Producer` that programs make. Their contracts are those of `Producer`."""

    @property
    def config(self) -> ProducerConfig:
        """Return the options."""

    async def start(self, *, wait: bool = True) -> None:
        """Start the producer."""

    async def stop(self) -> None:
        """Stop the producer."""

    async def aclose(self) -> None:
        """Stop the producer."""

    async def send(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record. Returns its delivery."""

    async def send_and_wait(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement. Returns its metadata."""

    def send_nowait(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record without waiting. Returns its delivery."""

    async def send_many(
        self,
        topic: str,
        records: Iterable[V_contra | Record[K_contra, V_contra] | None] | AsyncIterable[V_contra | Record[K_contra, V_contra] | None],
    ) -> AnyDeliveries:
        """Queue many records. Returns their deliveries."""

    @overload
    def topic(self, name: str) -> AnyTopic[K_contra, V_contra]: ...

    @overload
    def topic(self, name: str, *, key: KindOf[T]) -> AnyTopic[T, V_contra]: ...

    @overload
    def topic(self, name: str, *, value: KindOf[U]) -> AnyTopic[K_contra, U]: ...

    @overload
    def topic(self, name: str, *, key: KindOf[T], value: KindOf[U]) -> AnyTopic[T, U]: ...

    def topic(self, name: str, *, key: KindOf[Any] | None = None, value: KindOf[Any] | None = None) -> AnyTopic[Any, Any]:
        """Return a handle of a topic."""

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic."""

    async def flush(self, timeout: float | timedelta | None = None) -> FlushSummary:
        """Send the queued records now, and wait until each of them has ended."""

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager of one transaction."""

    async def run_in_transaction(self, func: Callable[[], Awaitable[T]], attempts: int = 5) -> T:
        """Run a function in a transaction, and again if that was aborted. Returns its result."""

    async def begin_transaction(self) -> None:
        """Begin a transaction."""

    async def commit_transaction(self) -> None:
        """Commit the transaction."""

    async def abort_transaction(self) -> None:
        """Abort the transaction."""

    async def send_offsets_to_transaction(
        self, offsets: Mapping[P, int | OffsetAndMetadata | tuple[int, str]], group: str | ConsumerGroupMetadata
    ) -> None:
        """Add a consumer's offsets to the transaction."""

    @property
    def buffer_available(self) -> int:
        """Return the free bytes of `buffer_memory`."""

    def health(self, *, patience: float | timedelta | None = None) -> Health:
        """Return whether the producer is ready."""

    def explain(self) -> str:
        """Return a text for people about what waits now and why."""
