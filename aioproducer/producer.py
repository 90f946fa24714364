"""The face: `Producer`. What it promises is here; how it is kept is below."""

from __future__ import annotations

import random
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

from aioproducer.client_ids import with_client_id
from aioproducer.config import ProducerConfig, check_hook
from aioproducer.engine.append.chosen_build import BUILD
from aioproducer.engine.append.not_started import NOT_STARTED, closed_path
from aioproducer.engine.append.thread_bridge import FromThread
from aioproducer.engine.gauges import unready
from aioproducer.engine.runtime import Runtime
from aioproducer.engine.tasks.fork_safety import FORKED
from aioproducer.engine.transactions.context import TransactionScope
from aioproducer.errors import ProducerClosed, UsageError
from aioproducer.metrics.registry import Snapshot
from aioproducer.net.addresses import DnsResolver, Verbatim
from aioproducer.net.transport import TcpDialer
from aioproducer.number_conversion import is_number
from aioproducer.offsets import read_group, read_offsets
from aioproducer.records.compression import check_available
from aioproducer.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Mapping
    from types import TracebackType

    from aioproducer.engine.append.batch_builder import ReadyBatch
    from aioproducer.engine.delivery.chosen_build import Delivery
    from aioproducer.engine.delivery.deliveries import Deliveries
    from aioproducer.interfaces import Dialer, Resolver
    from aioproducer.model import (
        Compression,
        ConsumerGroupMetadata,
        FlushSummary,
        Headers,
        Health,
        OffsetAndMetadata,
        PartitionNumber,
        Record,
        RecordMetadata,
        TimestampMs,
    )

__all__ = ["Producer"]

# Beside `send` and `send_and_wait`, which calls `send` where a subclass has its own.
_OTHER_WAYS_IN: Final = ("send_nowait", "send_many", "send_columns", "from_thread")
if TYPE_CHECKING:  # who names no types wants none checked (PEP 696): before Python 3.13 only type checkers know defaults
    from typing_extensions import TypeVar as DefaultingTypeVar

    K = DefaultingTypeVar("K", default=Any)
    V = DefaultingTypeVar("V", default=Any)
else:
    K = TypeVar("K")
    V = TypeVar("V")
P = TypeVar("P", bound="tuple[str, int]")


class Producer(Generic[K, V]):
    """Sends records to Kafka from one event loop.

    ```python
    async with Producer(bootstrap_servers="localhost:9092") as producer:
        delivery = await producer.send("orders", b"value", key=b"k")  # queued
        metadata = await delivery                                     # acknowledged
    ```

    Args:
        config: a `ProducerConfig`, or give its fields as options.
        dialer: makes connections; a fake cluster's `client_options` bring one.
        resolver: looks host names up. Without one, names are looked up in DNS, and a dialer of your own is given them as they are.
        chance: a random number in [0, 1): for jitter, and for the choice of sticky partitions.
        wall_clock: seconds since the epoch, for timestamps. Deadlines go by the loop's clock.
        options: fields of `ProducerConfig`.

    Raises:
        ConfigError: an option is unknown, bad, or in conflict with another. Nothing was opened: the constructor does no I/O.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        dialer: Dialer | None = None,
        resolver: Resolver | None = None,
        chance: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        self.config, self._client_id_number = with_client_id(ProducerConfig.of(config, options))
        check_hook(self.config.on_delivery_error)
        check_available(cast("Compression", self.config.compression_type))
        self._dialer = dialer or TcpDialer(self.config.send_buffer_bytes, self.config.receive_buffer_bytes)
        self._resolver = resolver or (DnsResolver() if dialer is None else Verbatim())
        self._chance = chance or random.Random().random
        self._wall_clock = wall_clock
        self._fast_path = closed_path()
        self._is_send_ours = type(self).send is Producer.send  # else `send_and_wait` goes by the subclass's
        if not self._is_send_ours:
            _warn_of_other_ways_in(type(self))
        self._engine: Runtime | None = None
        self._starting: Runtime | None = None
        self._unstarted: Runtime | None = None  # whose start failed

    async def start(self, *, wait: bool = True) -> None:
        """Start the tasks, and wait for the first metadata of any bootstrap broker, at most `max_block_ms`.

        Args:
            wait: False returns at once, so that a service boots while Kafka is down: the brokers are tried until one answers, and
                meanwhile each send waits, at most `max_block_ms`.

        Raises:
            BootstrapFailed: no broker answered; each address and its reason is in the text.
            TransactionError: with a `transactional_id`: its coordinator gives no producer id, or not in time.
            ProducerClosed: it runs or was stopped: make a new one; or `stop` was called while it started.
        Cancellation, or an error: nothing is left running, and it may be called again.
        """
        self._check_startable()
        self._fast_path = closed_path()  # what a start that failed has left in the old one is of no meaning
        self._starting = engine = Runtime(
            self.config, self._fast_path, self._dialer, self._resolver, VERSION, chance=self._chance, wall_clock=self._wall_clock
        )
        try:
            await engine.start(wait=wait)
        except BaseException:
            self._unstarted = engine
            raise
        finally:
            self._starting = None
        self._engine = engine

    def _check_startable(self) -> None:
        if self._is_stopped:
            raise ProducerClosed("the producer was stopped, and a producer starts once; make a new one")
        if (engine := self._engine or self._starting) is not None:
            engine.check_place()
            raise ProducerClosed("a producer starts once; make a new one" if engine is self._engine else "the producer starts already")

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Queue one record; the delivery it gives back resolves to its `RecordMetadata`.

        Returns once the record is queued, at once in the common case. Waits, in call order, while the topic is unknown, while
        `buffer_memory` is used up, or for one loop turn after many sends in one; at most `max_block_ms`. Two sends to one
        partition are logged in the order in which their calls first ran.

        Args:
            topic: where to.
            value: bytes, or what `value_serializer` takes; None is a tombstone.
            key: bytes, or what `key_serializer` takes; records of one key go to one partition (murmur2, as every Kafka client).
            partition: an explicit partition, whatever the key.
            timestamp_ms: the record's time, in ms since the epoch; None: now.
            headers: pairs of a string and bytes or None; keys may repeat, order is kept.

        Raises:
            UsageError: not bytes and no serializer, a bad partition, timestamp or header, or a closed producer.
            RecordTooLarge: key, value and headers exceed `max_request_size` bytes.
            MetadataTimeout: the topic or its partition is not known after `max_block_ms`.
            BufferExhausted: no memory after `max_block_ms`.
            PartitionUnavailable: its partition is muted, with a circuit breaker: after `max_block_ms`, or at once, as its policy has it.
            BrokerError: the cluster refuses the topic (its name, or who may write to it).
            None of these records was queued.

        Cancellation: while it waits, the record is not queued. Once it has returned, the record is sent whatever happens to the
        delivery. Like `KafkaProducer.send`, except that only the awaiting task waits (KIP-286).
        """
        delivery = self._fast_path.append(topic, value, key, partition, timestamp_ms, headers)
        if delivery is None:
            delivery = await self._fast_path.slowly(topic, value, key, partition, timestamp_ms, headers)
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """`send`, then wait for the acknowledgement.

        Raises:
            DeliveryError: the record was queued and not acknowledged; `persisted` says whether it may be in the log.
            What `send` raises: it was not queued.
        Cancellation: while `send` waits, the record is not queued; after that it is sent all the same.
        """
        delivery = self._fast_path.append(topic, value, key, partition, timestamp_ms, headers) if self._is_send_ours else None
        if delivery is None:
            delivery = await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return await delivery

    def send_nowait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """`send` without waiting: for plain functions that run in the producer's loop.

        Raises:
            WouldBlock: the record would have to wait; why is in the text. A topic that is not known is asked for: try later, or
                `await producer.partitions_for(topic)` once before.
            What `send` raises else. The record was not queued.
        """
        delivery = self._fast_path.append(topic, value, key, partition, timestamp_ms, headers)
        return delivery if delivery is not None else self._fast_path.now(topic, value, key, partition, timestamp_ms, headers)

    async def send_many(
        self, topic: str, records: Iterable[V | Record[K, V] | None] | AsyncIterable[V | Record[K, V] | None]
    ) -> Deliveries:
        """Queue many records, in order; faster than as many sends.

        ```python
        deliveries = await producer.send_many("orders", [b"a", Record(b"b", key=b"k")])
        metadata = await deliveries  # all of them, or the first one's DeliveryError
        ```

        Each record is a value, or a `Record` with a key, partition, timestamp or headers. Waits as `send` does, each record at most
        `max_block_ms`: an iterable is taken from as fast as the brokers take the records. The loop goes on between chunks, so other
        sends' records may come between these.

        Raises:
            What `send` raises for a record, or what the iterable raises. `Deliveries.of(error)` gives what was queued before, always the
            first so many records: these are sent. An iterator may have been taken a chunk further.
        Cancellation: the same, with CancelledError.
        """
        return await self._running().send_many(topic, records, partial(Producer.send, self))

    async def send_columns(
        self, topic: str, *, values: Any, keys: Any = None, partition: PartitionNumber | None = None, timestamps_ms: Any = None
    ) -> Deliveries:
        """Queue the rows of pyarrow columns, in order, from the buffers where they lie: no Python object for any row.

        ```python
        table = pyarrow.parquet.read_table("orders.parquet")
        deliveries = await producer.send_columns("orders", values=table["json"], keys=table["customer"], timestamps_ms=table["ordered"])
        metadata = await deliveries  # all of them, or the first one's DeliveryError
        ```

        Waits as `send` does, each window of rows (a MiB at most) at most `max_block_ms`; the loop goes on between windows. The columns
        must not be changed before it returns. They may be sliced, chunked, each in its own way, and dictionary-encoded; there is no column
        of headers: `send_many` sends those.

        Args:
            topic: where to.
            values: a `pyarrow.Array` or `ChunkedArray` of binary or string, or what gives one (`__arrow_c_array__`, `__arrow_c_stream__`,
                as polars' and pandas' columns do). A null is a tombstone.
            keys: likewise, as many; a null is no key. Records of one key go to one partition, those without one to the sticky partitions.
            partition: one for all rows, whatever their keys.
            timestamps_ms: an array of int64, in ms since the epoch, or of timestamps; or one number for all. None, and a null: now.

        Raises:
            UsageError: not such arrays, or not of one length; a damaged or impossible row, which is named; a producer with a serializer,
                for columns hold bytes already; or pyarrow is not installed.
            RecordTooLarge: a row exceeds `max_request_size` bytes; it is named.
            What `send` raises else. `Deliveries.of(error)` gives what was queued before, always the first so many rows: these are sent.
        Cancellation: the same, with CancelledError.

        Rows of one partition are logged in their order, behind what was sent there before. With interceptors, a partitioner of your own,
        keys and more than 256 partitions, or a circuit breaker that sends keys elsewhere just now, each row is sent as a record of its
        own, as slowly as by `send`.
        """
        return await self._running().send_columns(topic, values, keys, partition, timestamps_ms, partial(Producer.send, self))

    def create_batch(self, topic: str, partition: PartitionNumber) -> ReadyBatch:
        """An empty batch of one partition: `append` to it until it is full, then `await send_batch(batch)`.

        Its records travel in one batch, whatever else is sent meanwhile; nothing of it is counted in `buffer_memory` before it is sent.
        """
        return self._running().create_batch(topic, partition)

    async def send_batch(self, batch: ReadyBatch) -> Deliveries:
        """Queue a batch that `create_batch` gave, behind what its partition has. Waits as `send` does.

        Raises:
            UsageError: it is empty, was sent before, or belongs to another producer.
            What `send` raises else. It was not queued, and may be sent again.
        Cancellation: while it waits, it is not queued.
        """
        return await self._running().send_batch(batch)

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic (aiokafka's `partitions_for`). Waits for its metadata, at most `max_block_ms`; then sends need not.

        Raises:
            MetadataTimeout, BrokerError: as `send`.
        """
        return set(range(await self._running().partitions(topic)))

    @property
    def from_thread(self) -> FromThread[K, V]:
        """The one door for other threads: `producer.from_thread.send(...)` gives a `concurrent.futures.Future`."""
        return FromThread(self._running().from_thread, self)

    def _running(self) -> Runtime:
        if self._engine is None:
            if self._starting is not None:
                self._starting.check_place()
            raise ProducerClosed(NOT_STARTED)
        return self._engine

    async def flush(self, timeout: float | None = None) -> FlushSummary:
        """Send everything now, and wait until all that was queued, or waited to be, when it was called has ended.

        Args:
            timeout: seconds; None: as long as `delivery_timeout_ms` lets records live.

        Returns:
            Records acknowledged, failed, and pending when the time was over. It raises for none of them: their deliveries tell.

        Raises:
            ProducerClosed: the producer does not run.
            UsageError: `timeout` is no time.
        Cancellation: the records go on.
        """
        engine = self._running()
        engine.check()
        if timeout is not None and not (is_number(timeout) and timeout >= 0):
            raise UsageError(f"timeout={timeout!r}: it is seconds, from 0 on, or None")
        return await engine.flush(None if timeout is None else float(timeout))

    # Transactions: each call waits `max_block_ms` at most, then TransactionTimeout says for what; what it does goes on

    def transaction(self) -> TransactionScope:
        """`async with producer.transaction():` all records that its body sends become visible together, or none.

        The end of the body commits. Whatever leaves it, an exception or a cancellation, aborts, and goes on as it was: the abort is
        waited for, at most `max_block_ms`, and no longer than until a second cancellation. A commit that fails is aborted too.

        Raises:
            UsageError: the producer has no `transactional_id`. Else as `begin_transaction` and `commit_transaction`.
        """
        return TransactionScope(lambda: self._running().transaction_manager, self.config.max_block_ms / 1000)

    async def begin_transaction(self) -> None:
        """Open a transaction: what is sent from now on belongs to it. Waits while the producer has no id yet.

        Raises:
            TransactionMisuse: one is open.
            TransactionTimeout: there was no producer id in time.
            TransactionError: the cluster gives none, or the producer was fenced; `hint` says what to do.
        Cancellation: none is open.
        """
        await self._running().transaction_manager.begin()

    async def commit_transaction(self) -> None:
        """Send what is queued, wait for it, then commit. Its records, and the offsets, are visible once it returns.

        Raises:
            TransactionMisuse: none is open.
            TransactionAbortable: a record or an offset of it failed; nothing is committed. `abort_transaction` is what helps.
            TransactionFatal: the producer was fenced, or the like; nothing is committed.
            TransactionTimeout: it is not known yet whether it was committed. Call it again; it cannot be aborted any more once the
                coordinator may have been told.
        Cancellation: it goes on; `abort_transaction` ends it differently as long as the coordinator was not told.
        """
        await self._running().transaction_manager.commit()

    async def abort_transaction(self) -> None:
        """Drop what was not sent, wait for what is on its way, then abort: nobody who reads committed records sees any of it.

        Raises:
            TransactionMisuse: none is open, or its commit is on its way to the coordinator.
            TransactionFatal: the producer was fenced, or the like: then it is aborted too.
            TransactionTimeout: the coordinator did not answer in time. Call it again.
        Cancellation: it goes on.
        """
        await self._running().transaction_manager.abort()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata | tuple[int, str]],
        group: str | ConsumerGroupMetadata,
    ) -> None:
        """Make a consumer's offsets part of the transaction: they are committed with it, or not at all (KIP-447).

        Args:
            offsets: of the next record to read, by (topic, partition); aiokafka's named tuples will do.
            group: the consumer group. With the member's generation and id, those of a member that its group has gone on without are
                refused; an id alone names nobody.

        Raises:
            UsageError: these are no offsets, or no group.
            TransactionMisuse: no transaction is open.
            CommitFailed: the group has gone on without this member.
            TransactionError, TransactionTimeout: as `commit_transaction`.
        Cancellation: it goes on.
        """
        transaction_manager = self._running().transaction_manager
        await transaction_manager.send_offsets(read_group(group), read_offsets(offsets))

    async def stop(self) -> None:
        """Abort an open transaction and flush, at most `close_timeout_ms`, then fail what is left and close every connection.

        Safe twice, after a failure, and before the first `start`. A `start` that runs is ended: it raises ProducerClosed. In a forked child
        it does nothing. Cancellation: what is left fails at once, and everything is closed.

        Raises:
            ProducerClosed: called in another thread or event loop than the producer's, before it has ended.
        """
        engine = self._engine or self._starting
        if engine is None:
            if self._unstarted is not None:
                self._is_stopped = True
                self._unstarted.close_interceptors()
                self._unstarted = None
            self._release_client_id()
        elif not (engine.is_forked or (self._is_stopped and engine.has_ended)):
            await self._stop(engine)

    async def _stop(self, engine: Runtime) -> None:
        is_over = engine.loop.is_closed()
        if not is_over:
            engine.check_place()
        is_first, self._is_stopped = not self._is_stopped, True
        try:
            if is_over:
                if is_first:
                    engine.drop(0.0)
            elif engine is self._starting:
                await engine.stop_start()
            elif is_first:
                await engine.stop(self.config.close_timeout_ms / 1000)
            else:
                await engine.ended()
        finally:
            self._release_client_id()

    def _release_client_id(self) -> None:
        if self._client_id_number is not None:
            self._client_id_number.release()

    _is_stopped = False

    async def __aenter__(self) -> Self:
        """`start`."""
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """`stop`: also after an exception or a cancellation it flushes, bounded, and keeps the original exception."""
        await self.stop()

    @property
    def buffer_available(self) -> int:
        """Bytes of `buffer_memory` that are free."""
        return self._engine.pool.available if self._engine is not None else int(self.config.buffer_memory)

    def metrics(self) -> Snapshot:
        """All metrics as they stand, by name (Java's `metrics()`); from any thread. Empty before `start`, the last ones after `stop`.

        A snapshot takes some tens of microseconds for each topic: of thousands take it in a thread, `await asyncio.to_thread(producer.metrics)`.

        ```python
        producer.metrics().number("record-send-rate")
        producer.metrics().distribution("delivery-latency-seconds").quantile(0.99)
        ```

        Raises:
            TimeoutError: called in another thread, and the producer's loop did not come to answer within 5 s.
        """
        engine = self._engine
        return Snapshot() if engine is None else engine.snapshot()

    def health(self, *, patience: float | None = None) -> Health:
        """Whether it can do its work now, and why not; from any thread. For readiness probes: `200 if producer.health() else 503`.

        It can while it runs, some broker can be reached, questions for metadata are answered, and no record is overdue. A partition that
        fails alone, or an open circuit breaker, does not make it unready: the others' records go their way.

        Args:
            patience: seconds that a record may be unacknowledged; None: `request_timeout_ms`.

        Raises:
            TimeoutError: as `metrics`.
        """
        engine = self._engine
        if engine is None:
            is_forked = self._starting is not None and self._starting.is_forked
            return unready(FORKED if is_forked else "the producer was not started")
        return engine.health(patience)

    def explain(self) -> str:
        """What waits now, and for what, for a person to read: memory, sends that wait, the oldest batches. Never keys or values."""
        return "\n".join([repr(self), *(self._engine.explain() if self._engine is not None else ())])

    def __repr__(self) -> str:
        whose = f"Producer {','.join(self.config.bootstrap_servers)} ({BUILD})"
        engine = self._engine
        if engine is None:
            return f"<{whose}: not started>"
        if engine.is_forked:
            return f"<{whose}: of the process that was forked from>"
        if engine.failure is not None:
            return f"<{whose}: failed>"
        return f"<{whose}: {'running' if engine.is_open else 'stopped'}, {engine.pool.available} bytes free, {engine.waiting} waiting>"

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or self._is_stopped or engine.is_forked:
            return
        try:
            warnings.warn(
                f"{self!r} was never stopped: use `async with`, or `await producer.stop()`", ResourceWarning, source=self, stacklevel=1
            )
        finally:  # a filter may make an error of it
            engine.drop(self.config.close_timeout_ms / 1000)


def _warn_of_other_ways_in(kind: type[Producer[Any, Any]]) -> None:
    """Warn of a subclass with a `send` of its own, past which records go by the ways in that it leaves as they are."""
    left = [name for name in _OTHER_WAYS_IN if getattr(kind, name) is getattr(Producer, name)]
    if left:
        warnings.warn(
            f"{kind.__qualname__} overrides send: records of {', '.join(left)} do not go through that. Give interceptors=, value_serializer= or "
            "key_serializer= instead, which see every record of every way in",
            UserWarning,
            stacklevel=3,
        )
