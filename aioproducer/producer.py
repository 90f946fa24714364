"""Holds `Producer`, the public interface: its contract is here, its implementation in `aioproducer.engine`."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Never, Self, TypeVar, Unpack, cast, overload

from aioproducer.config.producer_config import (
    DEFAULT_PREFIX,
    AllProducerArguments,
    ProducerArguments,
    ProducerConfig,
    SerializerOf,
    with_client_id,
)
from aioproducer.core.record_validation import check_topic
from aioproducer.engine.append.thread_bridge import FromThread
from aioproducer.engine.chosen_build import REASON, Delivery, EncodingFastPath, FastPath
from aioproducer.engine.delivery.deliveries import Deliveries
from aioproducer.engine.gauges import unready
from aioproducer.engine.runtime import Runtime
from aioproducer.engine.tasks.fork_safety import FORKED
from aioproducer.errors import (
    CommitFailed,
    DeliveryError,
    ProducerClosed,
    TransactionAbortable,
    TransactionMisuse,
    UsageError,
    may_succeed,
)
from aioproducer.interfaces import Dialer, Resolver
from aioproducer.metrics.registry import Snapshot
from aioproducer.model import (
    Compression,
    ConsumerGroupMetadata,
    FlushSummary,
    HeadersLike,
    Health,
    OffsetAndMetadata,
    PartitionNumber,
    Position,
    PreparedTransaction,
    Record,
    RecordMetadata,
    TimestampMs,
    exact_int,
    seconds_of,
)
from aioproducer.net.settings import net_settings
from aioproducer.offsets import (
    POSITION_PARTITION,
    read_group,
    read_offsets,
    read_position,
    read_position_key,
    read_transactional_id,
)
from aioproducer.records.compression import check_available
from aioproducer.topic import KindOf, Topic, encoding_of

__all__ = ["Producer"]

_NOT_STARTED: Final = (
    "the producer was not started: use `async with Producer(...)`, or `await producer.start()`"
)
# The send methods other than `send` and `send_and_wait`, which calls the `send` of a subclass that overrides it.
_OTHER_WAYS_IN: Final = ("send_nowait", "send_many", "send_columns", "from_thread", "topic")
# Codes of failed records that Kafka does not call retriable, and that end with the transaction: another one has a new epoch.
_OF_THE_TRANSACTION: Final = frozenset(
    {
        "TRANSACTION_ABORTABLE",
        "INVALID_PRODUCER_EPOCH",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "INVALID_TXN_STATE",
    }
)
# Without type arguments and serializers, both are bytes (PEP 696). Before Python 3.13 only type checkers know defaults.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar

    K = DefaultingTypeVar("K", default=bytes)
    V = DefaultingTypeVar("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")
P = TypeVar("P", bound="tuple[str, int]")
T = TypeVar("T")
U = TypeVar("U")


class Producer(Generic[K, V]):
    """Sends records to Kafka from one event loop.

    ```python
    async with Producer(bootstrap_servers="localhost:9092") as producer:
        delivery = await producer.send("orders", b"value", key=b"k")  # queued
        metadata = await delivery                                     # acknowledged
    ```

    Args:
        config: a `ProducerConfig`; None: its fields are given as `options`.
        dialer: makes connections; the `client_options` of a fake cluster contain one.
        resolver: looks host names up. Without one, the producer looks names up in DNS, but passes them unresolved to a given `dialer`.
        chance: returns a random number in [0, 1), for jitter and for the choice of sticky partitions.
        wall_clock: returns seconds since the epoch, for timestamps. Deadlines use the loop's clock.
        options: fields of `ProducerConfig`. With a config, they take precedence over its own.

    Raises:
        ConfigError: an option is unknown, bad, or in conflict with another. No connection was opened: the constructor does no I/O.
    """

    @overload
    def __init__(
        self: Producer[bytes, bytes], config: None = None, **options: Unpack[ProducerArguments]
    ) -> None: ...

    @overload
    def __init__(
        self, config: ProducerConfig | None = None, **options: Unpack[ProducerArguments]
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[K, bytes],
        config: ProducerConfig | None = None,
        *,
        key_serializer: SerializerOf[K],
        **options: Unpack[ProducerArguments],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[bytes, V],
        config: ProducerConfig | None = None,
        *,
        value_serializer: SerializerOf[V],
        **options: Unpack[ProducerArguments],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[K, V],
        config: ProducerConfig | None = None,
        *,
        key_serializer: SerializerOf[K],
        value_serializer: SerializerOf[V],
        **options: Unpack[ProducerArguments],
    ) -> None: ...

    # Where a type is declared, mypy would take serializers of other types for the options of the next overload.
    @overload
    def __init__(
        self: Producer[Never, Never],
        config: ProducerConfig | None = None,
        *,
        key_serializer: SerializerOf[Any] = ...,
        value_serializer: SerializerOf[Any] = ...,
        **options: Unpack[ProducerArguments],
    ) -> None: ...

    # Options of a settings class or a file, whose serializers are not known: `Producer(**settings.kafka)`.
    @overload
    def __init__(
        self: Producer[Any, Any],
        config: ProducerConfig | None = None,
        **options: Unpack[AllProducerArguments],
    ) -> None: ...

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        dialer: Dialer | None = None,
        resolver: Resolver | None = None,
        chance: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = lambda: time.time(),
        **options: Any,
    ) -> None:
        # The first connection needs anyio. Its import takes some 35 ms, too long for the event loop that runs then.
        self.config: ProducerConfig
        self.config, self._client_id_number = with_client_id(ProducerConfig.of(config, options))
        check_available(cast("Compression", self.config.compression_type))
        self._net_settings = partial(
            net_settings, self.config, dialer, resolver, chance, wall_clock
        )
        self._fast_path = _closed_path(self.config)
        # If False, `send_and_wait` calls the `send` of the subclass, or the one that replaced `Producer.send`.
        self._is_send_ours = type(self).send is _OURS["send"]
        if not self._is_send_ours:
            _warn_of_other_ways_in(type(self))
        self._engine: Runtime | None = None
        self._starting_engine: Runtime | None = None
        # The engine of the last start that failed.
        self._unstarted: Runtime | None = None

    @classmethod
    def from_env(
        cls, prefix: str = DEFAULT_PREFIX, **options: Unpack[AllProducerArguments]
    ) -> Self:
        """Return a producer with the options of environment variables, as `ProducerConfig.from_env` reads them.

        Args:
            prefix: the beginning of the variables' names.
            options: arguments of the constructor, which take precedence.

        Raises:
            ConfigError: an option is bad.
        """
        return cls(ProducerConfig.from_env(prefix), **options)

    async def start(self, *, wait: bool = True) -> None:
        """Start the tasks, and wait for the first metadata of any bootstrap broker, at most `max_block_ms`.

        Args:
            wait: False returns at once, so that a service starts while Kafka is down. The producer tries the brokers until one answers.
                Until then each send waits, at most `max_block_ms`.

        Raises:
            BootstrapFailed: no broker answered; each address and its reason is in the text.
            TransactionError: with a `transactional_id`: its coordinator assigns no producer id, or not in time.
            ProducerClosed: the producer runs or was stopped: make a new one; or `stop` was called while it started.
            UsageError: the loop that runs is not asyncio's, as under trio.
        Cancellation, or an error: no task is left running, and `start` may be called again.
        """
        self._check_startable()
        # The old fast path may hold the state of a start that failed.
        self._fast_path = _closed_path(self.config)
        self._starting_engine = engine = Runtime(self.config, self._fast_path, self._net_settings())
        try:
            await engine.start(wait=wait)
        # A cancellation, too: `stop` closes the interceptors.
        except BaseException:
            self._unstarted = engine
            raise
        finally:
            self._starting_engine = None
        self._engine = engine

    def _check_startable(self) -> None:
        if self._is_engine_stopped:
            raise ProducerClosed(
                "the producer was stopped, and a producer starts once; make a new one"
            )
        if (engine := self._engine or self._starting_engine) is not None:
            engine.check_place()
            raise ProducerClosed(
                "a producer starts once; make a new one"
                if engine is self._engine
                else "the producer starts already"
            )

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Queue one record. Returns its delivery, which resolves to its `RecordMetadata`.

        `send` returns once the record is queued, at once in the common case. Otherwise sends wait in call order, at most `max_block_ms`.
        A send waits while the topic is unknown, while `buffer_memory` is used up, or for one event-loop iteration after many sends in
        one. The log has the records of two sends to one partition in the order in which the calls first ran.

        Args:
            topic: the topic of the record.
            value: bytes, or a value for `value_serializer`; None is a tombstone.
            key: bytes, or a key for `key_serializer`; records of one key go to one partition (murmur2, as in Java; librdkafka's default is CRC-32).
            partition: an explicit partition; it takes precedence over the key.
            timestamp_ms: the record's time, in ms since the epoch, or a datetime with a time zone; None: now.
            headers: pairs of a string and bytes, a string (UTF-8) or None; keys may repeat, order is kept. Or a mapping of them, or None.

        Raises:
            UsageError: not bytes and no serializer, a bad partition, timestamp or header, or a closed producer.
            RecordTooLarge: key, value and headers exceed `max_request_size` bytes.
            MetadataTimeout: the topic or its partition is not known after `max_block_ms`.
            BufferExhausted: no memory was free within `max_block_ms`.
            PartitionUnavailable: the circuit breaker muted the partition. `send` raises after `max_block_ms`, or at once, depending on
                `circuit_breaker_keyed_policy`.
            BrokerError: the cluster refuses the topic: its name is invalid, or the client is not authorized to write to it.
            After each of these errors, the record was not queued.

        Cancellation: CancelledError means that the record is not queued. Where it is queued already, `send` returns, and the task is
        cancelled at its next await. Once `send` has returned, the record is sent regardless of the state of the delivery. `send` works
        like `KafkaProducer.send`, except that only the awaiting task waits (KIP-286).
        """
        delivery = self._fast_path.append(topic, value, key, partition, timestamp_ms, headers)
        if not delivery:
            delivery = await self._fast_path.slowly(
                topic, value, key, partition, timestamp_ms, headers, None, delivery
            )
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement. Returns its metadata.

        Raises:
            DeliveryError: the record was queued and not acknowledged; `persisted` says whether it may be in the log.
            The errors of `send`: the record was not queued.
        Cancellation: while `send` waits, the record is not queued. After that the record is sent all the same.
        """
        if not self._is_send_ours:
            return await (
                await self.send(
                    topic,
                    value,
                    key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                )
            )
        delivery = self._fast_path.append(topic, value, key, partition, timestamp_ms, headers)
        if not delivery:
            delivery = await self._fast_path.slowly(
                topic, value, key, partition, timestamp_ms, headers, None, delivery
            )
        return await delivery

    def send_nowait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Queue one record without waiting, from a plain function that runs in the producer's loop. Returns its delivery.

        Raises:
            WouldBlock: the record would have to wait; the reason is in the text. The producer requests the metadata of an unknown topic:
                try again later, or `await producer.partitions_for(topic)` once before.
            The other errors of `send`. After each of them, and after WouldBlock, the record was not queued.
        """
        delivery = self._fast_path.append(topic, value, key, partition, timestamp_ms, headers)
        if not delivery:
            delivery = self._fast_path.now(
                topic, value, key, partition, timestamp_ms, headers, None, delivery
            )
        return delivery

    async def send_many(
        self,
        topic: str,
        records: Iterable[V | Record[K, V] | None] | AsyncIterable[V | Record[K, V] | None],
    ) -> Deliveries:
        """Queue many records, in order, faster than as many sends. Returns their deliveries.

        ```python
        deliveries = await producer.send_many("orders", [b"a", Record(b"b", key=b"k")])
        metadata = await deliveries  # all of them, or the first one's DeliveryError
        ```

        Each record is a value, or a `Record` with a key, partition, timestamp or headers. The call waits as `send` does, at most
        `max_block_ms` for each record. So it reads an iterable as fast as the brokers accept the records. The loop runs other tasks
        between chunks, so records of other sends may come between these.

        Raises:
            The errors of `send` for a record, or the error that the iterable raises. All records before it are queued:
            `Deliveries.of(error)` returns their deliveries. The call may have read one chunk more from an iterator.
        Cancellation: the same, with CancelledError.
        """
        return await self._running_engine().send_many(
            topic, records, partial(_OURS["send"], self), None
        )

    async def send_columns(
        self,
        topic: str,
        *,
        values: Any,
        keys: Any = None,
        partition: PartitionNumber | None = None,
        timestamps_ms: Any = None,
        headers: Any = None,
        partitions: Any = None,
    ) -> Deliveries:
        """Queue the rows of Arrow columns, in order, and return their deliveries. It needs pyarrow: `pip install aioproducer[arrow]`.

        The compiled build reads the columns' buffers: no row becomes a Python object. Plain Python hands the rows to `send_many`.

        ```python
        table = pyarrow.parquet.read_table("orders.parquet")
        deliveries = await producer.send_columns("orders", values=table["json"], keys=table["customer"], timestamps_ms=table["ordered"])
        metadata = await deliveries  # all of them, or the first one's DeliveryError
        ```

        The call waits as `send` does, at most `max_block_ms` for each window of rows (2 MiB at most). The loop runs other tasks between
        windows. The caller must not change the columns before the call returns. Each column may be sliced, chunked independently, and
        dictionary-encoded. `rows_checksum` of the same columns is a checksum of their rows.

        Args:
            topic: the topic of the rows.
            values: a `pyarrow.Array` or `ChunkedArray` of binary or string, or an object that exports one (`__arrow_c_array__`,
                `__arrow_c_stream__`, as columns of polars and pandas do). A null is a tombstone.
            keys: a column of the same kinds and length; a null is no key. Records of one key go to one partition, records without a key
                to the sticky partitions.
            partition: the partition of all rows; it takes precedence over their keys.
            timestamps_ms: an array of int64, in ms since the epoch, or of timestamps; or one number or datetime for all. None, and a null: now.
            headers: an array of lists of structs with the fields `key` (string) and `value` (binary or string). A null list is none, a null
                value is a header without a value; a null key or struct is an error.
            partitions: an array of integers, the partition of each row, which takes precedence over its key; a null is no partition. It
                excludes `partition`.

        Raises:
            UsageError: the columns are no such arrays, or differ in length; a row is damaged or impossible (the text names it); or
                pyarrow is not installed. Also for a producer with a serializer, because columns already hold bytes.
            RecordTooLarge: a row exceeds `max_request_size` bytes; the text names it.
            MetadataTimeout: a row's partition did not come within `max_block_ms`; the text names the row and the partition.
            The other errors of `send`. All rows before it are queued: `Deliveries.of(error)` returns their deliveries.
        Cancellation: the same, with CancelledError.

        The log has the rows of one partition in their order, after the records that were sent to it before. Each row is sent as by
        `send`, and as slowly: with interceptors, with a partitioner of your own, with keys or `partitions` and more than 256 partitions of
        the topic, and while a circuit breaker sends keys to other partitions.
        """
        send = partial(_OURS["send"], self)
        return await self._running_engine().send_columns(
            topic, values, keys, partition, timestamps_ms, headers, partitions, send
        )

    @overload
    def topic(self, name: str) -> Topic[K, V]: ...

    @overload
    def topic(self, name: str, *, key: KindOf[T]) -> Topic[T, V]: ...

    @overload
    def topic(self, name: str, *, value: KindOf[T]) -> Topic[K, T]: ...

    @overload
    def topic(self, name: str, *, key: KindOf[T], value: KindOf[U]) -> Topic[T, U]: ...

    def topic(
        self, name: str, *, key: KindOf[Any] | None = None, value: KindOf[Any] | None = None
    ) -> Topic[Any, Any]:
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

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic (aiokafka's `partitions_for`).

        The call waits for the topic's metadata, at most `max_block_ms`. Sends to the topic need not wait for it after that.

        Raises:
            MetadataTimeout, BrokerError: as `send`.
        """
        return set(range(await self._running_engine().parts.accumulator.partitions(topic)))

    @property
    def from_thread(self) -> FromThread[K, V]:
        """Return the only interface for other threads: `producer.from_thread.send(...)` returns a `concurrent.futures.Future`."""
        return FromThread(self._running_engine().from_thread, self)

    def _running_engine(self) -> Runtime:
        if self._engine is None:
            if self._starting_engine is not None:
                self._starting_engine.check_place()
            raise ProducerClosed(_NOT_STARTED)
        return self._engine

    async def flush(self, timeout: float | timedelta | None = None) -> FlushSummary:
        """Send the queued records now, and wait until each of them is acknowledged or failed. Returns their numbers.

        A flush covers the records that were queued when `flush` was called, and those of sends that waited then. It raises for none of
        them: awaiting a delivery raises the error of its record.

        Args:
            timeout: seconds, or a timedelta; None: no limit but `delivery_timeout_ms`, which ends each record. Records are pending when it is over.

        Raises:
            ProducerClosed: the producer does not run.
            UsageError: `timeout` is no time.
        Cancellation: the producer goes on sending the records.
        """
        engine = self._running_engine()
        engine.check()
        return await engine.flush(seconds_of("timeout", timeout))

    async def stop(self) -> None:
        """Abort an open transaction that is not prepared, flush, at most `close_timeout_ms`, then fail pending records and close connections.

        `stop` is safe to call twice, after a failure, and before the first `start`. A `start` that runs ends and raises ProducerClosed.
        In a forked child `stop` does nothing. Cancellation: pending records fail at once, and every connection is closed.

        Raises:
            ProducerClosed: called in another thread or event loop than the producer's, before the producer has ended.
        """
        engine = self._engine or self._starting_engine
        if engine is None:
            if self._unstarted is not None:
                self._is_engine_stopped = True
                self._unstarted.parts.close_interception()
                self._unstarted = None
            self._release_client_id()
        elif not (
            engine.is_forked
            or (self._is_engine_stopped and engine.has_start_ended and engine.has_ended)
        ):
            await self._stop_engine(engine)

    async def _stop_engine(self, engine: Runtime) -> None:
        is_over = engine.loop.is_closed()
        if not is_over:
            engine.check_place()
        is_first, self._is_engine_stopped = not self._is_engine_stopped, True
        try:
            if is_over:
                if is_first:
                    engine.drop()
            elif engine is self._starting_engine:
                await engine.stop_starting()
            elif engine.is_stopping:
                await engine.ended()
            else:
                await engine.stop(self.config.close_timeout_ms / 1000)
        finally:
            self._release_client_id()

    def _release_client_id(self) -> None:
        if self._client_id_number is not None:
            self._client_id_number.release()

    _is_engine_stopped = False

    async def aclose(self) -> None:
        """Call `stop`: `contextlib.aclosing` and other tools of asyncio know this name."""
        await self.stop()

    @asynccontextmanager
    async def running(self, *, wait: bool = True) -> AsyncGenerator[Self]:
        """Return a context manager that calls `start(wait=wait)`, gives the producer, and calls `stop` at the end of the body.

        ```python
        async with producer.running(wait=False):  # a service starts while Kafka is down
            yield
        ```

        Args:
            wait: as `start` takes it.
        """
        await self.start(wait=wait)
        try:
            yield self
        finally:
            await self.stop()

    async def __aenter__(self) -> Self:
        """Call `start`. Returns the producer."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Call `stop`. After an exception or a cancellation it flushes too, within its limit, and keeps the original exception."""
        await self.stop()

    @property
    def buffer_available(self) -> int:
        """Return the free bytes of `buffer_memory`."""
        return (
            self._engine.pool.available
            if self._engine is not None
            else int(self.config.buffer_memory)
        )

    def metrics(self) -> Snapshot:
        """Return a snapshot of all metrics, by name (Java's `metrics()`). Any thread may call it.

        The snapshot is empty before `start`. After `stop` it has the last values. It takes some tens of microseconds for each topic: with
        thousands of topics, take it in a thread, `await asyncio.to_thread(producer.metrics)`.

        ```python
        producer.metrics().number("record-send-rate")
        producer.metrics().distribution("delivery-latency-seconds").quantile(0.99)
        ```

        Raises:
            TimeoutError: called in another thread, and the producer's loop did not answer within 5 s.
        """
        engine = self._engine
        return Snapshot() if engine is None else engine.snapshot()

    def health(self, *, patience: float | timedelta | None = None) -> Health:
        """Return whether the producer is ready, and the reasons if it is not. Any thread may call it.

        It serves readiness probes: `200 if producer.health() else 503`. A producer is ready while it runs, at least one broker can be
        reached, brokers answer metadata requests, and no record is overdue. A single failing partition, or an open circuit breaker, does
        not make it unready, because it still sends the records of other partitions.

        Args:
            patience: seconds, or a timedelta, for which a record may be unacknowledged; None: `request_timeout_ms`.

        Raises:
            UsageError: `patience` is no time.
            TimeoutError: as `metrics`.
        """
        engine = self._engine
        if engine is None:
            is_forked = self._starting_engine is not None and self._starting_engine.is_forked
            return unready(FORKED if is_forked else "the producer was not started")
        return engine.health(seconds_of("patience", patience))

    def explain(self) -> str:
        """Return a text for people about what waits now and why: memory, waiting sends, the oldest batches. It has no keys or values."""
        return "\n".join(
            [repr(self), *(self._engine.explain() if self._engine is not None else ())]
        )

    # Transactions. Each call waits at most `max_block_ms`. Then it raises TransactionTimeout, which names the cause of the wait, and the
    # operation goes on.

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager: all records that the body of `async with producer.transaction():` sends become visible, or none.

        The end of the body commits the transaction. An exception or a cancellation that leaves the body aborts it, and then propagates
        unchanged. The exit waits for the abort, at most `max_block_ms`, and no longer than until a second cancellation. A commit that
        fails is aborted too.

        Raises:
            UsageError: the producer has no `transactional_id`. All other errors are those of `begin_transaction` and
                `commit_transaction`.
        """
        # Most producers have no transactions.
        from aioproducer.engine.transactions.transaction_manager import TransactionScope

        return TransactionScope(
            lambda: self._running_engine().transaction_manager, self.config.max_block_ms / 1000
        )

    async def init_transactions(self, transactional_id: str) -> None:
        """Take a transactional id, as a new producer with it does; connections and metadata stay.

        The coordinator aborts the open transaction of the id, and fences older producers that have it. A prepared transaction of this
        producer stays open, for a `TransactionResolver`: so one producer can prepare the transactions of several ids, one after the other.
        `config` and the client id keep the first id.

        Args:
            transactional_id: the id, which may be the present one.

        Raises:
            UsageError: the producer was made without a `transactional_id`, or this is none.
            TransactionMisuse: a transaction is open that is not prepared.
            TransactionTimeout: the coordinator did not answer in time. `begin_transaction` waits for it again.
            TransactionError: the cluster assigns no producer id.
        Cancellation: the request goes on.
        """
        manager = self._running_engine().transaction_manager
        await manager.start(transactional_id=read_transactional_id(transactional_id))

    async def begin_transaction(self) -> None:
        """Begin a transaction: every later send belongs to it. Waits while the producer has no producer id.

        Raises:
            TransactionMisuse: a transaction is open.
            TransactionTimeout: the producer had no producer id in time.
            TransactionError: the cluster assigns no producer id, or the producer was fenced; `hint` says what to do.
        Cancellation: no transaction is open.
        """
        await self._running_engine().transaction_manager.begin()

    async def commit_transaction(self) -> None:
        """Send the queued records, wait for them, then commit. The transaction's records and offsets are visible once it returns.

        Raises:
            TransactionMisuse: no transaction is open.
            TransactionAbortable: a record or an offset of the transaction failed; nothing is committed. Call `abort_transaction`.
            TransactionFatal: the producer was fenced, or had a similar error; nothing is committed.
            TransactionTimeout: it is not known yet whether the transaction was committed. Call `commit_transaction` again. The
                transaction can no longer be aborted once the coordinator may have received the commit request.
        Cancellation: the commit goes on. `abort_transaction` aborts instead as long as the commit request was not sent.
        """
        await self._running_engine().transaction_manager.commit()

    async def prepare_transaction(self) -> PreparedTransaction:
        """Send the queued records, wait for them, and leave the transaction open, for a `TransactionResolver` to commit or abort.

        Several producers can thus write one result, and one process decides on it: it commits their transactions once it has recorded
        that it will. After this call the producer takes no records: it only commits or aborts the transaction itself, or is stopped.
        `stop` leaves the transaction open. Its time-out, `transaction_timeout_ms`, counts on, and the next producer with this
        transactional id aborts it.

        Returns:
            The name of the transaction, for a `TransactionResolver` in any process. Called again, the same.

        Raises:
            TransactionMisuse: no transaction is open, or no record or offset was sent in it; the transaction is still open then.
            TransactionAbortable: a record or an offset of the transaction failed. Call `abort_transaction`.
            TransactionFatal: the producer was fenced, or had a similar error.
            TransactionTimeout: the records have not ended within `max_block_ms`. Call `prepare_transaction` again.
        Cancellation: the transaction is not prepared yet: call this again, or `abort_transaction`; `stop` aborts it.
        """
        return await self._running_engine().transaction_manager.prepare()

    async def abort_transaction(self) -> None:
        """Drop the records that were not sent, wait for the batches in flight, then abort. Readers of committed records see none of it.

        Raises:
            TransactionMisuse: no transaction is open, or its commit request is in flight to the coordinator.
            TransactionFatal: the producer was fenced, or had a similar error: the transaction is aborted then too.
            TransactionTimeout: the coordinator did not answer in time. Call `abort_transaction` again.
        Cancellation: the abort goes on.
        """
        await self._running_engine().transaction_manager.abort()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata | tuple[int, str]],
        group: str | ConsumerGroupMetadata,
    ) -> None:
        """Add a consumer's offsets to the transaction: they are committed with it, or not at all (KIP-447).

        Args:
            offsets: offsets of the next record to read, by (topic, partition); aiokafka's named tuples are accepted.
            group: the consumer group. With the member's generation and id, the group refuses offsets of a member that is no longer part
                of it. A group id alone identifies no member.

        Raises:
            UsageError: `offsets` are no offsets, or `group` is no group.
            TransactionMisuse: no transaction is open.
            CommitFailed: the member is no longer part of the group.
            TransactionError, TransactionTimeout: as `commit_transaction`.
        Cancellation: the request goes on.
        """
        transaction_manager = self._running_engine().transaction_manager
        await transaction_manager.send_offsets(read_group(group), read_offsets(offsets))

    async def send_position_to_transaction(
        self, job: str, number: int, cursor: str = "", *, topic: str
    ) -> None:
        """Add the position of a job in its source to the transaction: it is committed with the records, or not at all.

        After a crash the job reads its position by `committed_position`, and continues behind it: each of its records is in Kafka once,
        for readers of committed records. Kafka keeps the position as the offset of a consumer group, whose id is the name of the job,
        and forgets it when the job has not sent one for `offsets.retention.minutes` of the brokers (7 days).

        Args:
            job: names the job. Two jobs that run at the same time need different names and transactional ids.
            number: how far the job has read its source, from 0 on; what it counts is the job's own business.
            cursor: a text beside it, such as a file name or a page token; brokers take 4,096 bytes (`offset.metadata.max.bytes`).
            topic: a topic that exists, always the same one: Kafka keeps the position with its partition 0. The producer needs the
                permission READ on it, and READ on the group.

        Raises:
            UsageError: an argument is not valid.
            TransactionMisuse: no transaction is open.
            TransactionError, TransactionTimeout: as `commit_transaction`.
        Cancellation: the request goes on.
        """
        transaction_manager = self._running_engine().transaction_manager
        group = read_position_key(job, topic)
        position = {(topic, POSITION_PARTITION): read_position(number, cursor)}
        await transaction_manager.send_offsets(group, position, "send_position_to_transaction()")

    async def committed_position(self, job: str, *, topic: str) -> Position | None:
        """Return the position that the latest committed transaction of a job sent; None: there is none.

        The producer has fenced older producers with its transactional id, and aborted what they left open. So the position is final.
        The producer needs the permission DESCRIBE on the group and on the topic.

        Args:
            job: as `send_position_to_transaction` was given it.
            topic: the same topic, too.

        Raises:
            UsageError: an argument is not valid.
            TransactionMisuse: a transaction is open. Read the position before it, or after its end.
            MetadataTimeout: the topic does not exist.
            BrokerError: the broker refuses the request, or is older than Kafka 2.5.
            TransactionTimeout: no coordinator answered within `max_block_ms`, or another producer's transaction holds the position.
        Cancellation: nothing goes on.
        """
        # Most producers have no transactions.
        from aioproducer.engine.transactions.coordinator_calls import committed_offset

        engine = self._running_engine()
        transaction_manager = engine.transaction_manager
        group = read_position_key(job, topic)
        await transaction_manager.idle("committed_position()")
        await engine.parts.accumulator.partitions(topic)
        assert engine.parts.coordinator_calls is not None
        return await committed_offset(
            engine.parts.coordinator_calls, group.group_id, topic, "committed_position()"
        )

    async def run_in_transaction(self, func: Callable[[], Awaitable[T]], attempts: int = 5) -> T:
        """Run `await func()` in a transaction, and once more in a new one if the transaction was aborted. Returns the result.

        ```python
        async def transfer() -> None:
            await producer.send("accounts", b"-5", key=b"ada")
            await producer.send("accounts", b"+5", key=b"bob")

        await producer.run_in_transaction(transfer)
        ```

        The function runs again after `TransactionAbortable`, except after `CommitFailed`, and after a `DeliveryError` that another try may
        avoid. Its earlier records were aborted. All its other effects happen again, so it has none outside the transaction. Before each further
        attempt it waits `retry_backoff_ms`, doubled each time up to `retry_backoff_max_ms`. It never runs again after `TransactionFatal`,
        such as `ProducerFenced`, nor after `TransactionTimeout`, as the transaction may be committed.

        Args:
            func: a function without arguments that returns an awaitable.
            attempts: how often it runs at most.

        Raises:
            UsageError: `attempts` is not a number from 1 on, `func` returns no awaitable, or the producer has no `transactional_id`.
            TransactionError, DeliveryError: those of the last attempt; or such that no other attempt may avoid.
            The errors of `func`: the transaction was aborted.
        Cancellation: as for `transaction`; `func` does not run again.
        """
        most = _checked(attempts)
        failed: TransactionAbortable | DeliveryError | None = None
        for attempt in range(most):
            if failed is not None:
                pause_ms = min(
                    self.config.retry_backoff_ms * 2.0 ** (attempt - 1),
                    self.config.retry_backoff_max_ms,
                )
                await asyncio.sleep(pause_ms / 1000)
            is_begun = False
            try:
                async with self.transaction():
                    is_begun = True
                    return await _started(func)
            except (TransactionAbortable, DeliveryError) as error:
                failed = error
                if not _is_worth_another(error):
                    raise
            except TransactionMisuse:
                # The abort of the last attempt has not ended within `max_block_ms`.
                if failed is None or is_begun:
                    raise
                break
        assert failed is not None
        raise failed

    def __repr__(self) -> str:
        whose = f"Producer {','.join(self.config.bootstrap_servers)} ({'plain Python' if REASON else 'compiled'})"
        engine = self._engine
        if engine is None:
            return f"<{whose}: not started>"
        if engine.is_forked:
            return f"<{whose}: of the process that was forked from>"
        if engine.failure is not None:
            return f"<{whose}: failed>"
        return f"<{whose}: {'running' if engine.is_open else 'stopped'}, {engine.pool.available} bytes free, {engine.waiting} waiting>"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a Producer can be neither pickled nor copied: it belongs to an event loop. Pass on its config, and make one in each process"
        )

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or self._is_engine_stopped or engine.is_forked:
            return
        try:
            warnings.warn(
                f"{self!r} was never stopped: use `async with`, or `await producer.stop()`",
                ResourceWarning,
                source=self,
                stacklevel=1,
            )
        finally:
            # A warnings filter may raise the warning as an error.
            engine.drop()


# The calls as they are defined above: a program may replace those of the class, as instrumentations do with `send`.
_OURS: Final[Mapping[str, Any]] = {
    name: getattr(Producer, name) for name in ("send", *_OTHER_WAYS_IN)
}


# These reference no producer, so that an engine does not keep its producer from being collected.


async def _send(*_record: Any) -> Delivery:
    raise ProducerClosed(_NOT_STARTED)


def _send_now(*_record: Any) -> Delivery:
    raise ProducerClosed(_NOT_STARTED)


def _closed_path(config: ProducerConfig) -> FastPath:
    """Return a fast path on which every send raises ProducerClosed, until an engine opens it."""
    has_hooks = config.interceptors or config.partitioner is not None
    encodes = config.key_serializer is not None or config.value_serializer is not None
    path = (EncodingFastPath if encodes and not has_hooks else FastPath)(lambda: 0, _send)
    path.now = _send_now
    return path


def _warn_of_other_ways_in(kind: type[Producer[Any, Any]]) -> None:
    """Warn about a class that overrides `send`, and not all of `_OTHER_WAYS_IN`: the records of those bypass its `send`."""
    left = [name for name in _OTHER_WAYS_IN if getattr(kind, name) is _OURS[name]]
    if left:
        did = "'s send was replaced" if kind is Producer else " overrides send"
        warnings.warn(
            f"{kind.__qualname__}{did}: records of {', '.join(left)} do not go through that. Give interceptors=, value_serializer= or "
            "key_serializer= instead, which see every record of every way in",
            UserWarning,
            stacklevel=3,
        )


def _checked(attempts: Any) -> int:
    number = exact_int(attempts)
    if number is None or number < 1:
        raise UsageError(f"attempts={attempts!r}: it is a number from 1 on")
    return number


def _started(func: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Call `func`. Returns its awaitable."""
    work: Any = func()
    if not isinstance(work, Awaitable):
        raise UsageError(
            f"run_in_transaction: func returned {type(work).__name__}, no awaitable: write `async def`. The transaction is aborted"
        )
    return work


def _is_worth_another(error: TransactionAbortable | DeliveryError) -> bool:
    """Return whether the same function may succeed in another transaction. The transaction of the error was aborted."""
    if isinstance(error, DeliveryError):
        return may_succeed(error) or error.code in _OF_THE_TRANSACTION
    return not isinstance(error, CommitFailed)
