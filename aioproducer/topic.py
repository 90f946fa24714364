"""Holds `Topic`, a handle of one topic with the types of its keys and values: `producer.topic("orders", key=str, value=Order)`."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import AsyncIterable, Callable, Iterable
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import PurePath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    NewType,
    TypeAlias,
    TypeVar,
    get_origin,
)
from uuid import UUID

from aioproducer.engine.chosen_build import Delivery
from aioproducer.engine.delivery.deliveries import Deliveries
from aioproducer.errors import ConfigError
from aioproducer.interfaces import Serializer
from aioproducer.model import (
    Headers,
    HeadersLike,
    PartitionNumber,
    Record,
    RecordMetadata,
    TimestampMs,
)
from aioproducer.serializers import AS_BYTES, BYTES, OF_VALUE, Encoding, Step, adapt, is_two_phase

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.producer import Producer

__all__ = ["KindOf", "Topic", "encoding_of", "step_of"]

K = TypeVar("K")
T = TypeVar("T")
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

    def __init__(self, producer: Any, name: str, encoding: Encoding | None) -> None:
        self._producer: Producer[Any, Any] = producer
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
        delivery = fast_path.append_encoded(
            self.name, value, key, partition, timestamp_ms, headers, self._encoding
        )
        if not delivery:
            delivery = await fast_path.slowly(
                self.name, value, key, partition, timestamp_ms, headers, self._encoding, delivery
            )
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
        delivery = fast_path.append_encoded(
            self.name, value, key, partition, timestamp_ms, headers, self._encoding
        )
        if not delivery:
            delivery = await fast_path.slowly(
                self.name, value, key, partition, timestamp_ms, headers, self._encoding, delivery
            )
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
        delivery = fast_path.append_encoded(
            self.name, value, key, partition, timestamp_ms, headers, self._encoding
        )
        if not delivery:
            delivery = fast_path.now(
                self.name, value, key, partition, timestamp_ms, headers, self._encoding, delivery
            )
        return delivery

    async def send_many(
        self, records: Iterable[V | Record[K, V] | None] | AsyncIterable[V | Record[K, V] | None]
    ) -> Deliveries:
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
        return set(
            range(await self._producer._running_engine().parts.accumulator.partitions(self.name))
        )

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


async def _send(
    topic: Topic[Any, Any], _name: str, value: Any, key: Any, **options: Any
) -> Delivery:
    """Send a record of `send_many`, with the arguments of `Producer.send`."""
    return await topic.send(value, key, **options)


# Makes serializers of the types that a topic's keys and values have: bytes, str, models, structs, data classes and typed dicts.
#
# pydantic and msgspec are known by the attributes of their classes, and are imported by the program whose class it is.


# How keys or values become bytes: their type, a function of one, or of topic, headers and one, or a two-phase serializer.
KindOf: TypeAlias = (
    type[T] | Callable[[T], bytes] | Callable[[str, Headers, T], bytes] | Serializer[T]
)

_KINDS: Final = "bytes, str, a pydantic model, a msgspec Struct, a dataclass, a TypedDict, a function of the value that returns bytes, or a Serializer"
# What pydantic's own `BaseModel.model_dump_json` has as its module.
_PYDANTIC: Final = "pydantic."


def encoding_of(
    config: ProducerConfig, topic: str, key: KindOf[Any] | None, value: KindOf[Any] | None
) -> Encoding | None:
    """Return how the records of a topic handle are encoded. None: as the options say, because neither a key nor a value type is given.

    Raises:
        ConfigError: as `step_of`.
    """
    if key is None and value is None:
        return None
    return Encoding(
        topic,
        adapt(config.key_serializer) if key is None else step_of("key", key),
        adapt(config.value_serializer) if value is None else step_of("value", value),
    )


def step_of(what: str, given: KindOf[Any]) -> Step:
    """Return how keys or values become bytes.

    Args:
        what: "key" or "value", for texts.
        given: their type, a function of one of them or of (topic, headers, value), or a two-phase serializer.

    Raises:
        ConfigError: it is none of these.
    """
    given = _made_of(given)
    origin = get_origin(given)
    kind = given if origin is None else origin
    if isinstance(kind, type):
        return _step_of_type(what, kind)
    if origin is None and (is_two_phase(given) or callable(given)):
        return adapt(given, f"`topic({what}=...)`")
    raise ConfigError(f"{what}={given!r} is none of: {_KINDS}")


def _made_of(given: Any) -> Any:
    """Return the type that a `NewType` or an `Annotated` is made of, else `given`. A NewType is callable, and is no serializer."""
    while isinstance(given, NewType) or get_origin(given) is Annotated:
        given = given.__supertype__ if isinstance(given, NewType) else given.__origin__
    return given


def _step_of_type(what: str, kind: type[Any]) -> Step:
    if kind is bytes:
        return AS_BYTES
    if kind is str:
        return Step(str.encode, OF_VALUE, str)
    if hasattr(kind, "__pydantic_serializer__"):
        return Step(_pydantic_serializer(kind), OF_VALUE, kind)
    if hasattr(kind, "__struct_fields__"):
        return Step(_msgspec_serializer(), OF_VALUE, kind)
    if dataclasses.is_dataclass(kind):
        return Step(_dataclass_json, OF_VALUE, kind)
    if issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
        return Step(_json, OF_VALUE, dict)
    # A class that has the method of a two-phase serializer is not an object of it.
    advice = ": give an object of it" if callable(getattr(kind, "prepare", None)) else ""
    raise ConfigError(f"{what}={kind.__name__} is none of: {_KINDS}{advice}")


def _pydantic_serializer(kind: Any) -> Callable[[Any], bytes]:
    """Return a function with the result of `model_dump_json`, and the method itself if the program has changed it."""
    method = getattr(kind, "model_dump_json", None)
    if method is not None and not method.__module__.startswith(_PYDANTIC):
        return _by_method
    return _by_serializer


def _by_method(value: Any) -> bytes:
    encoded: str = value.model_dump_json()
    return encoded.encode()


def _by_serializer(value: Any) -> bytes:
    # The serializer of the value's own class, which may be derived from the topic's: as `model_dump_json` does.
    encoded: bytes = type(value).__pydantic_serializer__.to_json(value)
    return encoded


def _msgspec_serializer() -> Callable[[Any], bytes]:
    import msgspec

    encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
    return encode


def _dataclass_json(value: Any) -> bytes:
    return _json(dataclasses.asdict(value))


def _json(value: object) -> bytes:
    return json.dumps(
        value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
    ).encode()


def _plain(value: object) -> object:
    """Return what JSON has in place of a value of a common type."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal, PurePath)):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"JSON has no {type(value).__name__}")
