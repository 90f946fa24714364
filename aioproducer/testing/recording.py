"""A producer for unit tests with the interface of `Producer`: it records sends (Java's `MockProducer`).

    producer = RecordingProducer(auto_complete=False)
    async with producer:
        delivery = await producer.send("orders", b"v", key=b"k")
        producer.fail_next("NOT_ENOUGH_REPLICAS")            # or complete_next(); without auto_complete=False records end by themselves
        assert producer.history[0].value == b"v"

1. It takes the options of `Producer`, and refuses the same arguments with the same errors.
2. A record goes to the given partition, else to the result of the `partitioner` option, else to 0. Only a cluster, such as
   `FakeCluster`, shows the choices of Kafka's own partitioner.
3. It uses no network, and no call waits: topics exist and memory is free. `raise_on` simulates calls that fail.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Never, Self, TypeVar, Unpack, overload

from aioproducer.config.option_kinds import DEFAULT_PREFIX
from aioproducer.config.producer_config import ProducerConfig, with_client_id, without_content
from aioproducer.config.producer_options import AllRecordingArguments, RecordingArguments, SerializerOf
from aioproducer.encoding import Encoding
from aioproducer.errors import (
    BrokerError,
    DeliveryError,
    KafkaError,
    MetadataTimeout,
    Persisted,
    ProducerClosed,
    RecordTooLarge,
    UsageError,
    WouldBlock,
    broker_error,
)
from aioproducer.life_cycle import LifeCycle
from aioproducer.metrics.registry import Metrics, Snapshot, Windows
from aioproducer.model import (
    Acks,
    FlushSummary,
    HeadersLike,
    Health,
    PartitionNumber,
    Record,
    RecordMetadata,
    TimestampMs,
    TimestampType,
    seconds_of,
)
from aioproducer.record_validation import check_batch, check_columns, check_partition, check_records
from aioproducer.records.arrow import Table, check_serializers
from aioproducer.testing.recorded import RecordedBatch, RecordedDeliveries, RecordedDelivery, RecordedFromThread, RecordedSend, hand_out
from aioproducer.testing.recorded_arguments import SendArguments, records_of
from aioproducer.testing.recorded_topic import RecordedTopics
from aioproducer.testing.recorded_transactions import TRANSACTION_METHODS, RecordedTransactions

__all__ = ["RecordingProducer"]

# Without type arguments and serializers, both are bytes (PEP 696). Before Python 3.13 only type checkers know the defaults of type variables.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar

    K = DefaultingTypeVar("K", default=bytes)
    V = DefaultingTypeVar("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")

_NO_LOOP: Final = "no event loop runs here: a producer's calls belong into a coroutine, such as an `async def` test"
_NO_LOOP_YET: Final = (
    "this RecordingProducer knows no event loop yet that would take a thread's records: start it by `async with RecordingProducer()`, "
    "or call `started` in a coroutine"
)
_METHODS: Final = (
    "start",
    "send",
    "send_nowait",
    "send_many",
    "send_columns",
    "send_batch",
    "partitions_for",
    "flush",
    "stop",
    *TRANSACTION_METHODS,
)


class RecordingProducer(LifeCycle, RecordedTransactions, RecordedTopics[K, V], Generic[K, V]):
    """Replaces a `Producer` in unit tests of code that sends.

    Args:
        config: a `ProducerConfig`; None: its fields are given as options; serializers, `partitioner`, `acks` and size limits have effect.
        auto_complete: whether records are acknowledged in the next event-loop iteration; else `complete_next` and `fail_next` end them.
        partitions: number of partitions by topic: {"orders": 6}. A topic that is not named accepts every partition number,
            and has one partition for a partitioner.
        dialer: accepted and ignored, as is `resolver`: a `Producer` takes them.
        options: fields of `ProducerConfig`. With a config, they take precedence over its own.

    Attributes:
        history: the sends as `RecordedSend`, in call order, acknowledged or not; of transactions, only committed ones.
        config: the options.
        uncommitted, offsets, commits and more: see `RecordedTransactions`.
    """

    @overload
    def __init__(self: RecordingProducer[bytes, bytes], config: None = None, **options: Unpack[RecordingArguments]) -> None: ...

    @overload
    def __init__(self, config: ProducerConfig | None = None, **options: Unpack[RecordingArguments]) -> None: ...

    @overload
    def __init__(
        self: RecordingProducer[K, bytes],
        config: ProducerConfig | None = None,
        *,
        key_serializer: SerializerOf[K],
        **options: Unpack[RecordingArguments],
    ) -> None: ...

    @overload
    def __init__(
        self: RecordingProducer[bytes, V],
        config: ProducerConfig | None = None,
        *,
        value_serializer: SerializerOf[V],
        **options: Unpack[RecordingArguments],
    ) -> None: ...

    @overload
    def __init__(
        self: RecordingProducer[K, V],
        config: ProducerConfig | None = None,
        *,
        key_serializer: SerializerOf[K],
        value_serializer: SerializerOf[V],
        **options: Unpack[RecordingArguments],
    ) -> None: ...

    # Where a type is declared, mypy would take serializers of other types for the options of the next overload.
    @overload
    def __init__(
        self: RecordingProducer[Never, Never],
        config: ProducerConfig | None = None,
        *,
        key_serializer: SerializerOf[Any] = ...,
        value_serializer: SerializerOf[Any] = ...,
        **options: Unpack[RecordingArguments],
    ) -> None: ...

    # Options of a settings class or a file, whose serializers are not known: `Producer(**settings.kafka)`.
    @overload
    def __init__(
        self: RecordingProducer[Any, Any], config: ProducerConfig | None = None, **options: Unpack[AllRecordingArguments]
    ) -> None: ...

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        auto_complete: bool = True,
        partitions: Mapping[str, int] | None = None,
        dialer: object = None,
        resolver: object = None,
        **options: Any,
    ) -> None:
        super().__init__()
        config = without_content(config)
        self.config: ProducerConfig
        self.config, self._client_id_number = with_client_id(ProducerConfig.of(config, options))
        self.history: list[RecordedSend] = []
        self._arguments = SendArguments(self.config, partitions or {})
        self._auto_complete = auto_complete
        self._pending: deque[RecordedDelivery] = deque()
        self._ends: Counter[tuple[str, int]] = Counter()
        self._raising: dict[str, list[Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = "not started"
        self._from_thread: RecordedFromThread | None = None
        self._is_completing = False
        self._preparation = asyncio.Lock()

    @classmethod
    def started(cls, **options: Unpack[AllRecordingArguments]) -> RecordingProducer[Any, Any]:
        """Return a producer that already runs, for code that is given a producer in use.

        It belongs to the first loop that sends. Before that, `from_thread` uses the loop in which `started` was called.
        """
        producer = cls(**options)
        producer._state = "running"
        with suppress(RuntimeError):
            producer._from_thread = RecordedFromThread(asyncio.get_running_loop(), producer._take)
        return producer

    @classmethod
    def from_env(cls, prefix: str = DEFAULT_PREFIX, **options: Unpack[AllRecordingArguments]) -> Self:
        """Return a producer with the options of environment variables, as `Producer.from_env`."""
        return cls(ProducerConfig.from_env(prefix), **options)

    # --- called by the test

    def complete_next(self) -> bool:
        """Acknowledge the oldest pending record. Returns False if there is none."""
        if not self._pending:
            return False
        delivery = self._pending.popleft()
        sent = delivery.sent
        offset = -1 if self.config.acks is Acks.NONE else self._ends[sent.topic, sent.partition]
        self._ends[sent.topic, sent.partition] += 1
        sizes = [-1 if part is None else len(part) for part in (sent.key, sent.value)]
        delivery.settle(
            RecordMetadata(sent.topic, sent.partition, offset, sent.timestamp_ms, TimestampType.CREATE_TIME, sizes[0], sizes[1])
        )
        return True

    def fail_next(self, error: str | Exception = "UNKNOWN_SERVER_ERROR", *, persisted: Persisted = Persisted.NO) -> bool:
        """Fail the oldest pending record. Returns False if there is none.

        Args:
            error: a `DeliveryError`, or its cause: an exception, or Kafka's name of a broker's error.
            persisted: whether the record may be in the log all the same.
        """
        cause = broker_error(error) if isinstance(error, str) else error
        if not self._pending:
            return False
        delivery = self._pending.popleft()
        if isinstance(cause, DeliveryError):
            self._fail(delivery, cause)
            return True
        reason = str(cause) if isinstance(cause, BrokerError) else f"{type(cause).__name__}: {cause}"
        failure = DeliveryError(reason, delivery.sent.topic, delivery.sent.partition, persisted, 1)
        failure.__cause__ = cause
        self._fail(delivery, failure)
        return True

    def raise_on(self, method: str, error: BaseException | None, *, times: int | None = None) -> None:
        """Make a method raise `error` instead of doing its work, for its next `times` calls; with None, until `error` is None.

        `send_and_wait` sends by `send`; `send_many` raises on its own name.
        """
        if method not in _METHODS:
            raise ValueError(f"raise_on takes one of {', '.join(_METHODS)}, not {method!r}")
        self._raising.pop(method, None)
        if error is not None:
            self._raising[method] = [error, times]

    def clear(self) -> None:
        """Empty the history and undo `raise_on`. Pending records remain pending, and offsets continue."""
        self.history.clear()
        self._raising.clear()

    def values(self, topic: str, partition: int | None = None) -> list[bytes | None]:
        """Return the values in `history` of a topic, or of one partition of it."""
        return [sent.value for sent in self.history if sent.topic == topic and partition in (None, sent.partition)]

    @property
    def pending(self) -> int:
        """Return the number of records that have not ended."""
        return len(self._pending)

    @property
    def closed(self) -> bool:
        """Return whether the producer was stopped."""
        return self._state == "stopped"

    # --- the interface of `Producer`

    async def start(self, *, wait: bool = True) -> None:
        """Start the producer at once; there is no cluster to reach. A producer starts once.

        Raises:
            ProducerClosed: it was started before.
        """
        self._raise("start")
        if self._state != "not started":
            raise ProducerClosed("a producer starts once; make a new one")
        self._state = "running"
        self._join(asyncio.get_running_loop())

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordedDelivery:
        """Record one record. Returns a delivery that resolves to `RecordMetadata`. Raises for bad arguments as `Producer.send`."""
        self._raise("send")
        await self._prepare(topic, None)
        return self._take(topic, value, key, partition, timestamp_ms, headers)

    def send_nowait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordedDelivery:
        """Record one record as `send` does; here neither waits."""
        self._raise("send_nowait")
        return self._take(topic, value, key, partition, timestamp_ms, headers)

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """Record one record, then wait for its acknowledgement.

        Raises:
            DeliveryError: the record failed.
        """
        return await (await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers))

    async def send_many(self, topic: str, records: Iterable[Any] | AsyncIterable[Any]) -> RecordedDeliveries:
        """Record all records. An error carries the deliveries of the records before it as `queued`."""
        await self._prepare(topic, None)
        return await self._record_many(topic, records, None)

    async def _record_many(self, topic: str, records: Iterable[Any] | AsyncIterable[Any], encoding: Encoding | None) -> RecordedDeliveries:
        self._raise("send_many")
        deliveries = RecordedDeliveries()
        try:
            if isinstance(records, AsyncIterable):
                async for record in records:
                    deliveries.add(self._take_one(topic, record, encoding))
            else:
                check_records(records)
                for record in records:
                    deliveries.add(self._take_one(topic, record, encoding))
        except BaseException as error:
            deliveries.attach(error)
            raise
        return deliveries

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
    ) -> RecordedDeliveries:
        """Record the rows of pyarrow columns, one by one. An error carries the deliveries of the records before it as `queued`."""
        self._raise("send_columns")
        deliveries = RecordedDeliveries()
        try:
            number = check_partition(topic, partition)
            check_columns(self.config, topic, partition=number, partitions=partitions, headers=headers)
            check_serializers(value=self.config.value_serializer, key=None if keys is None else self.config.key_serializer)
            for row, record in records_of(Table(values, keys, timestamps_ms, headers, partitions), number):
                try:
                    deliveries.add(self._take_one(topic, record))
                except (MetadataTimeout, RecordTooLarge) as error:
                    raise type(error)(f"row {row}: {error}") from None
        except BaseException as error:
            deliveries.attach(error)
            raise
        return deliveries

    def create_batch(self, topic: str, partition: PartitionNumber) -> RecordedBatch:
        """Return an empty batch of one partition: `append` to it until it is full, then `await send_batch(batch)`."""
        self._check()
        topic, number = check_batch(topic, partition)
        return RecordedBatch(topic, number, self.config.batch_size, self._arguments.read)

    async def send_batch(self, batch: RecordedBatch) -> RecordedDeliveries:
        """Record the records of a batch.

        Raises:
            UsageError: the batch is empty or was sent before.
        """
        self._raise("send_batch")
        self._check()
        self._check_send()
        if batch.is_sent or not len(batch):
            raise UsageError(f"{batch!r} {'was sent' if batch.is_sent else 'is empty'}; it is sent once, with records in it")
        batch.is_sent = True
        return RecordedDeliveries(self._record(sent) for sent in batch.records)

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers by the argument `partitions`; else partition 0 alone."""
        self._raise("partitions_for")
        self._check()
        return set(range(self._arguments.partitions_of(topic)))

    @property
    def from_thread(self) -> RecordedFromThread:
        """Return the interface for other threads: `producer.from_thread.send(...)` returns a `concurrent.futures.Future`.

        Raises:
            ProducerClosed: the producer was not started; or it was made by `started` outside any event loop, and was used in none yet.
        """
        if self._from_thread is None:
            self._check(_NO_LOOP_YET)
        assert self._from_thread is not None
        return self._from_thread

    async def flush(self, timeout: float | timedelta | None = None) -> FlushSummary:
        """Acknowledge all pending records, as Java's MockProducer does. A test calls `fail_next` before for records that must fail."""
        self._raise("flush")
        self._check()
        seconds_of("timeout", timeout)
        done = len(self._pending)
        while self.complete_next():
            pass
        await asyncio.sleep(0)
        return FlushSummary(done, 0, 0)

    async def stop(self) -> None:
        """Abort an open transaction that is not prepared, acknowledge all pending records and refuse further sends. Safe twice, and before `start`."""
        self._raise("stop")
        if self._state == "running":
            if self.in_transaction and not self.is_prepared:
                await self.abort_transaction()
            while self.complete_next():
                pass
            self._state = "stopped"
            # `on_failed` is called in the second iteration from here.
            for _ in range(2):
                await asyncio.sleep(0)
        if self._client_id_number is not None:
            self._client_id_number.release()

    @property
    def buffer_available(self) -> int:
        """Return the free bytes of `buffer_memory`: all of them, as no record is buffered."""
        return int(self.config.buffer_memory)

    def metrics(self) -> Snapshot:
        """Return the metrics of a producer that only sent `history`."""
        counted = Metrics(self.config.client_id, Windows(), version="", began_ms=0)
        counted.producer["record-send"].record(0.0, len(self.history))
        return counted.snapshot(0.0, {"buffer-total-bytes": self.buffer_available, "buffer-available-bytes": self.buffer_available})

    def health(self, *, patience: float | timedelta | None = None) -> Health:
        """Return a `Health` that is ready while the producer runs."""
        seconds_of("patience", patience)
        reasons = () if self._state == "running" else (f"the producer {'has' if self._state == 'stopped' else 'is'} {self._state}",)
        return Health(not reasons, reasons, buffer_available=self.buffer_available)

    def explain(self) -> str:
        """Return readable text about the pending records, without keys or values."""
        return "\n".join([repr(self), *(f"  {delivery!r}" for delivery in self._pending)])

    def __repr__(self) -> str:
        return f"<RecordingProducer: {self._state}, {len(self.history)} sent, {len(self._pending)} pending>"

    # --- implementation

    def _raise(self, method: str) -> None:
        raising = self._raising.get(method)
        if raising is None:
            return
        error, times = raising
        if times is not None:
            raising[1] -= 1
            if raising[1] <= 0:
                del self._raising[method]
        raise error

    def _join(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._from_thread = RecordedFromThread(loop, self._take)

    def _check(self, without_loop: str = _NO_LOOP) -> None:
        if self._state == "not started":
            raise ProducerClosed("the producer was not started: use `async with`, or `await producer.start()`")
        if self._state == "stopped":
            raise ProducerClosed("the producer has stopped")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ProducerClosed(without_loop) from None
        if self._loop is None:
            self._join(loop)
        if self._loop is not loop:
            raise ProducerClosed("the producer belongs to another event loop; make one in this loop")

    def _take_one(self, topic: str, record: Any, encoding: Encoding | None = None) -> RecordedDelivery:
        given = record if isinstance(record, Record) else Record(record)
        return self._take(topic, *given, encoding)

    def _take(
        self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any, encoding: Encoding | None = None
    ) -> RecordedDelivery:
        self._check()
        self._check_send()
        try:
            return self._record(self._arguments.read(topic, value, key, partition, timestamp_ms, headers, encoding)[0])
        except WouldBlock:
            raise
        except KafkaError as error:
            self._on_refused(topic, error)
            raise

    async def _prepare(self, topic: str, encoding: Encoding | None) -> None:
        """Prepare two-phase serializers."""
        encoding = self._arguments.encoding_of(topic, encoding)
        if not encoding.is_current():
            async with self._preparation:
                if not encoding.is_current():
                    await encoding.prepare()

    def _record(self, sent: RecordedSend) -> RecordedDelivery:
        assert self._loop is not None
        delivery = RecordedDelivery(self._loop, sent, self._tell)
        (self.uncommitted if self.in_transaction else self.history).append(sent)
        self._pending.append(delivery)
        if self._auto_complete and not self._is_completing:
            self._is_completing = True
            self._loop.call_soon(self._complete)
        return delivery

    def _fail(self, delivery: RecordedDelivery, failure: DeliveryError) -> None:
        delivery.settle(failure)
        self._on_failed(failure)
        if self.config.on_failed is not None and self._loop is not None:
            hand_out(self._loop, self.config.on_failed, delivery.sent, failure)

    def _take_pending(self) -> list[RecordedDelivery]:
        pending = list(self._pending)
        self._pending.clear()
        return pending

    def _tell(self, error: DeliveryError) -> None:
        """Call `on_delivery_error` for a failed record if no code awaited or read its delivery."""
        if self.config.on_delivery_error is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.config.on_delivery_error, error, 1)

    def _complete(self) -> None:
        self._is_completing = False
        while self.complete_next():
            pass
