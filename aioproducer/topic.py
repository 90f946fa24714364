"""Holds `Topic`, a handle of one topic with the types of its keys and values: `producer.topic("orders", key=str, value=Order)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from aioproducer.config import ProducerConfig
from aioproducer.encoding import BYTES, Encoding
from aioproducer.engine.chosen_build import Delivery, FastPath
from aioproducer.engine.delivery.deliveries import Deliveries
from aioproducer.model import HeadersLike, PartitionNumber, Record, RecordMetadata, TimestampMs
from aioproducer.record_validation import check_topic
from aioproducer.value_types import KindOf, encoding_of

if TYPE_CHECKING:
    from aioproducer.engine.runtime import Runtime

__all__ = ["Topic", "TopicCalls"]

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


class Topic(Generic[K, V]):
    """Sends records to one topic, whose keys and values have a type. `Producer.topic` makes it; make it once, and keep it.

    ```python
    orders = producer.topic("orders", key=str, value=Order)
    delivery = await orders.send(Order(1, 9.5), key="ada")
    metadata = await delivery
    ```

    Its records keep their order with each other, and with those that the producer's own `send` sends to the topic.

    Attributes:
        name: the topic's name.
    """

    __slots__ = ("_encoding", "_producer", "name")

    def __init__(self, producer: TopicCalls[Any, Any], name: str, encoding: Encoding | None) -> None:
        self._producer = producer
        self.name: str = name
        self._encoding = BYTES if encoding is not None and encoding.is_plain else encoding

    async def send(
        self,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Queue one record. Returns its delivery, as `Producer.send` does, with its arguments, errors and cancellation.

        None as value is a tombstone, None as key no key: a serializer gets neither.

        Raises:
            SerializationError: the value or the key has another type, or its serializer failed.
            MetadataTimeout: also if a serializer was not prepared within `max_block_ms`.
        Cancellation: while `send` waits, the record is not queued.
        """
        fast_path = self._producer._fast_path
        delivery = fast_path.append_encoded(self.name, value, key, partition, timestamp_ms, headers, self._encoding)
        if delivery is None:
            delivery = await fast_path.slowly(self.name, value, key, partition, timestamp_ms, headers, self._encoding)
        return delivery

    async def send_and_wait(
        self,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement, as `Producer.send_and_wait` does. Returns its metadata.

        Raises:
            DeliveryError: the record was queued and not acknowledged; `persisted` says whether it may be in the log.
            The errors of `send`: the record was not queued.
        Cancellation: while `send` waits, the record is not queued. After that the record is sent all the same.
        """
        fast_path = self._producer._fast_path
        delivery = fast_path.append_encoded(self.name, value, key, partition, timestamp_ms, headers, self._encoding)
        if delivery is None:
            delivery = await fast_path.slowly(self.name, value, key, partition, timestamp_ms, headers, self._encoding)
        return await delivery

    def send_nowait(
        self,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Queue one record without waiting, as `Producer.send_nowait` does. Returns its delivery.

        Raises:
            WouldBlock: the record would have to wait; the text says for what: a serializer that is not prepared, for example. The producer
                requests metadata and prepares serializers: try again later, or `await topic.ready()` once before.
            The other errors of `send`. After each of them, and after WouldBlock, the record was not queued.
        """
        fast_path = self._producer._fast_path
        delivery = fast_path.append_encoded(self.name, value, key, partition, timestamp_ms, headers, self._encoding)
        return delivery if delivery is not None else fast_path.now(self.name, value, key, partition, timestamp_ms, headers, self._encoding)

    async def send_many(self, records: Iterable[V | Record[K, V] | None] | AsyncIterable[V | Record[K, V] | None]) -> Deliveries:
        """Queue many records, in order, as `Producer.send_many` does. Returns their deliveries.

        Raises:
            The errors of `send` for a record, or the error that the iterable raises. All records before it are queued:
            `Deliveries.of(error)` returns their deliveries.
        Cancellation: the same, with CancelledError.
        """
        engine = self._producer._running_engine()
        return await engine.send_many(self.name, records, partial(_send, self), self._encoding)

    async def partitions(self) -> set[int]:
        """Return the partitions of the topic, as `Producer.partitions_for` does.

        Raises:
            MetadataTimeout, BrokerError: as `send`.
        """
        return set(range(await self._producer._running_engine().parts.accumulator.partitions(self.name)))

    async def ready(self) -> None:
        """Wait until the topic is known and its serializers are prepared, at most `max_block_ms` for each. Later sends wait for neither.

        Raises:
            SerializationError: a serializer could not be prepared. The next call tries again.
            MetadataTimeout, BrokerError: as `send`.
        Cancellation: a preparation that has begun goes on.
        """
        await self._producer._running_engine().parts.accumulator.ready(self.name, self._encoding)

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}>"


class TopicCalls(ABC, Generic[K, V]):
    """Adds `topic` to a producer."""

    config: ProducerConfig
    _fast_path: FastPath

    @abstractmethod
    def _running_engine(self) -> Runtime:
        """Return the running engine, or raise ProducerClosed."""

    @overload
    def topic(self, name: str) -> Topic[K, V]: ...

    @overload
    def topic(self, name: str, *, key: KindOf[T]) -> Topic[T, V]: ...

    @overload
    def topic(self, name: str, *, value: KindOf[T]) -> Topic[K, T]: ...

    @overload
    def topic(self, name: str, *, key: KindOf[T], value: KindOf[U]) -> Topic[T, U]: ...

    def topic(self, name: str, *, key: KindOf[Any] | None = None, value: KindOf[Any] | None = None) -> Topic[Any, Any]:
        """Return a handle of a topic, which encodes keys and values of one type each. It may be made before `start`.

        ```python
        orders = producer.topic("orders", key=str, value=Order)
        await orders.send(Order(1, 9.5), key="ada")
        ```

        Make a handle once and keep it: each handle prepares its two-phase serializers itself.

        Args:
            name: the topic's name.
            key: how keys become bytes; None: as the option `key_serializer` says. It is one of: bytes; str (UTF-8); a pydantic model, a
                msgspec Struct, a dataclass or a TypedDict (JSON); a plain function of the key, or of (topic, headers, key); or a two-phase
                `Serializer`.
            value: how values become bytes; None: as `value_serializer` says.

        Raises:
            UsageError: it is no name of a topic.
            ConfigError: a type that has no serializer here, or a coroutine function.
        """
        name = check_topic(name)
        return Topic(self, name, encoding_of(self.config, name, key, value))


async def _send(topic: Topic[Any, Any], _name: str, value: Any, key: Any, **options: Any) -> Delivery:
    """Send a record of `send_many`, with the arguments of `Producer.send`."""
    return await topic.send(value, key, **options)
