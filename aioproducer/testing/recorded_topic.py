"""Holds `RecordedTopic`, the handle of a topic that `RecordingProducer.topic` makes: it records sends, as the producer does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from aioproducer.config import ProducerConfig
from aioproducer.model import HeadersLike, PartitionNumber, Record, RecordMetadata, TimestampMs
from aioproducer.record_validation import check_topic
from aioproducer.testing.recorded import RecordedDeliveries, RecordedDelivery
from aioproducer.value_types import KindOf, encoding_of

if TYPE_CHECKING:
    from aioproducer.encoding import Encoding

__all__ = ["RecordedTopic", "RecordedTopics"]

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


class RecordedTopic(Generic[K, V]):
    """Replaces a `Topic` in unit tests: its sends are in the `history` of the producer, encoded as `Topic` encodes them."""

    def __init__(self, producer: RecordedTopics[Any, Any], name: str, encoding: Encoding | None) -> None:
        self._producer = producer
        self.name: str = name
        self._encoding = encoding

    async def send(
        self,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordedDelivery:
        """Record one record, as `RecordingProducer.send`. The first send prepares a two-phase serializer."""
        self._producer._raise("send")
        await self.ready()
        return self._producer._take(self.name, value, key, partition, timestamp_ms, headers, self._encoding)

    async def send_and_wait(
        self,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """Record one record, then wait for its acknowledgement."""
        return await (await self.send(value, key, partition, timestamp_ms, headers))

    def send_nowait(
        self,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordedDelivery:
        """Record one record as `send` does. Raises WouldBlock while a two-phase serializer is not prepared."""
        self._producer._raise("send_nowait")
        return self._producer._take(self.name, value, key, partition, timestamp_ms, headers, self._encoding)

    async def send_many(self, records: Iterable[V | Record[K, V] | None] | AsyncIterable[V | Record[K, V] | None]) -> RecordedDeliveries:
        """Record all records. An error carries the deliveries of the records before it as `queued`."""
        await self.ready()
        return await self._producer._record_many(self.name, records, self._encoding)

    async def partitions(self) -> set[int]:
        """Return the partition numbers by the argument `partitions` of the producer; else partition 0 alone."""
        return await self._producer.partitions_for(self.name)

    async def ready(self) -> None:
        """Prepare two-phase serializers."""
        await self._producer._prepare(self.name, self._encoding)

    def __repr__(self) -> str:
        return f"<RecordedTopic {self.name!r}>"


class RecordedTopics(ABC, Generic[K, V]):
    """Adds `topic` to a recording producer."""

    config: ProducerConfig

    @abstractmethod
    def _raise(self, method: str) -> None:
        """Raise the error that `raise_on` was given for a method, if any."""

    @abstractmethod
    def _take(
        self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any, encoding: Encoding | None = None
    ) -> RecordedDelivery:
        """Check and record one record."""

    @abstractmethod
    async def _record_many(self, topic: str, records: Iterable[Any] | AsyncIterable[Any], encoding: Encoding | None) -> RecordedDeliveries:
        """Record all records; an error carries the deliveries of those before it."""

    @abstractmethod
    async def _prepare(self, topic: str, encoding: Encoding | None) -> None:
        """Prepare two-phase serializers."""

    @abstractmethod
    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic."""

    @overload
    def topic(self, name: str) -> RecordedTopic[K, V]: ...

    @overload
    def topic(self, name: str, *, key: KindOf[T]) -> RecordedTopic[T, V]: ...

    @overload
    def topic(self, name: str, *, value: KindOf[T]) -> RecordedTopic[K, T]: ...

    @overload
    def topic(self, name: str, *, key: KindOf[T], value: KindOf[U]) -> RecordedTopic[T, U]: ...

    def topic(self, name: str, *, key: KindOf[Any] | None = None, value: KindOf[Any] | None = None) -> RecordedTopic[Any, Any]:
        """Return a handle of a topic, as `Producer.topic`."""
        return RecordedTopic(self, check_topic(name), encoding_of(self.config, name, key, value))
