"""Records and deliveries of a `RecordingProducer`; the test completes or fails the deliveries.

They behave as the producer's own deliveries do, and share no code with them: one contract suite (tests/contract) runs both.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import Context
from typing import Any, Final, NamedTuple, cast, overload

from aioproducer.counting import counted
from aioproducer.errors import DeliveryError, ProducerClosed, UsageError
from aioproducer.failed_record import FailedRecord
from aioproducer.model import FlushSummary, Header, HeadersLike, PartitionNumber, RecordMetadata, TimestampMs

__all__ = ["RecordedBatch", "RecordedDeliveries", "RecordedDelivery", "RecordedFromThread", "RecordedSend", "hand_out"]

_log = logging.getLogger(__name__)
_LOOP_CLOSED: Final = "the producer's loop is closed"


class RecordedSend(NamedTuple):
    """Holds a record that was sent, with the fields that the log would have: serialized, with partition and timestamp."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[Header, ...]


def hand_out(loop: asyncio.AbstractEventLoop, hook: Callable[..., object], sent: RecordedSend, error: DeliveryError) -> None:
    """Have the loop call `on_failed` with a failed record, after `on_delivery_error`, as a producer does. What it raises is logged."""
    record = FailedRecord(sent.topic, sent.value, sent.key, sent.partition, sent.timestamp_ms, sent.headers, error.persisted)

    def call() -> None:
        try:
            hook(error.again(), [record])
        except Exception as raised:
            _log.error("on_failed could not take %r: %r", record, raised, exc_info=raised)

    loop.call_soon(loop.call_soon, call)


class RecordedDelivery(asyncio.Future[RecordMetadata]):
    """Holds the outcome of one record, as `aioproducer.Delivery`: awaitable, and a future for asyncio's helpers.

    Cancellation: as for `Delivery`, cancelling a task that awaits it affects neither the record nor any other waiter. `cancel()` ends
    this handle alone: the record and the tasks that await it continue.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sent: RecordedSend, on_unseen: Callable[[DeliveryError], None]) -> None:
        super().__init__(loop=loop)
        self.sent = sent
        self._on_unseen = on_unseen
        self._is_looked_at = False
        self._outcome: RecordMetadata | DeliveryError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        self._is_looked_at = True
        if self._outcome is None and not self.done():
            # one future per waiting task: cancelling a task leaves the others waiting
            waiter: asyncio.Future[None] = self.get_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
            return self._given()
        return self.result()

    def result(self) -> RecordMetadata:
        """Return the record's metadata; raises as `Delivery.result`."""
        super().result()
        self._is_looked_at = True
        return self._given()

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """Call `fn(delivery)` once the delivery has ended, in an event-loop iteration."""
        self._is_looked_at = True
        super().add_done_callback(fn, context=context)

    def cancel(self, msg: Any | None = None) -> bool:
        """End this handle, never the record. Returns False if it had ended."""
        self._is_looked_at = True
        return super().cancel(msg)

    def __del__(self) -> None:
        if isinstance(self._outcome, DeliveryError) and not self._is_looked_at:
            self._on_unseen(self._outcome)

    def exception(self) -> DeliveryError | None:
        """Return the record's `DeliveryError`, or None once it is acknowledged; raises as `Delivery.exception`."""
        super().exception()
        self._is_looked_at = True
        return self._outcome.again() if isinstance(self._outcome, DeliveryError) else None

    @property
    def outcome(self) -> RecordMetadata | DeliveryError | None:
        """Return the record's metadata or error, without marking a failure as seen; None: the record has not ended."""
        return self._outcome

    def settle(self, outcome: RecordMetadata | DeliveryError) -> None:
        """Store the outcome and notify the waiters; callbacks run in the next event-loop iteration."""
        self._outcome = outcome
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if not self.done():
            # `result` returns the outcome; each call for a failure raises a new error
            super().set_result(None)  # type: ignore[arg-type]

    def _given(self) -> RecordMetadata:
        if isinstance(self._outcome, DeliveryError):
            raise self._outcome.again()
        assert self._outcome is not None
        return self._outcome

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "pending" if not self.done() else "acknowledged"
        if isinstance(self._outcome, DeliveryError) and not self.cancelled():
            state = "failed"
        return f"<RecordedDelivery {self.sent.topic}-{self.sent.partition} {state}>"


class RecordedDeliveries(Sequence[RecordedDelivery]):
    """Holds the deliveries of `send_many`: a sequence, and awaitable as a whole, as the producer's own.

    Cancellation: ends only the waiting.
    """

    def __init__(self, deliveries: Iterable[RecordedDelivery] = ()) -> None:
        self._deliveries = list(deliveries)

    def attach(self, error: BaseException) -> None:
        """Set `queued` on an error: these deliveries, of the records before it."""
        # no plain assignment: an error class of the caller's may refuse it
        vars(error)["queued"] = self

    def __copy__(self) -> RecordedDeliveries:
        return self

    def __deepcopy__(self, memo: object) -> RecordedDeliveries:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the outcomes known by now, for another process."""
        return _restored, ([(delivery.sent, delivery.outcome) for delivery in self._deliveries],)

    def add(self, delivery: RecordedDelivery) -> None:
        """Add one delivery."""
        self._deliveries.append(delivery)

    def __len__(self) -> int:
        return len(self._deliveries)

    @overload
    def __getitem__(self, index: int) -> RecordedDelivery: ...

    @overload
    def __getitem__(self, index: slice) -> list[RecordedDelivery]: ...

    def __getitem__(self, index: int | slice) -> RecordedDelivery | list[RecordedDelivery]:
        return self._deliveries[index]

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        return self._metadata().__await__()

    async def _metadata(self) -> list[RecordMetadata]:
        await self.wait()
        return [delivery.result() for delivery in self._deliveries]

    async def wait(self) -> FlushSummary:
        """Wait until every record has ended; no record's failure is raised."""
        for delivery in self._deliveries:
            try:
                await delivery
            except DeliveryError:
                continue
        return self.summary()

    def summary(self) -> FlushSummary:
        """Return the numbers of records that are acknowledged, failed and pending now."""
        ended = [delivery for delivery in self._deliveries if delivery.done()]
        failed = sum(delivery.exception() is not None for delivery in ended)
        return FlushSummary(len(ended) - failed, failed, len(self._deliveries) - len(ended))

    def done(self) -> bool:
        """Return whether every record has ended."""
        return not self.summary().pending

    def failures(self) -> Iterator[tuple[int, DeliveryError]]:
        """Yield index and error of each record that has failed by now, in order."""
        for index, delivery in enumerate(self._deliveries):
            if delivery.done() and (error := delivery.exception()) is not None:
                yield index, error

    def first_failure(self) -> tuple[int, DeliveryError] | None:
        """Return index and error of the first record that has failed by now; None: no record has."""
        return next(self.failures(), None)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return first and last offset of the records acknowledged by now, by partition; empty with acks=0."""
        found: dict[int, list[int]] = {}
        for delivery in self._deliveries:
            if delivery.done() and delivery.exception() is None and (metadata := delivery.result()).offset >= 0:
                found.setdefault(metadata.partition, []).append(metadata.offset)
        return {partition: (min(offsets), max(offsets)) for partition, offsets in found.items()}

    def __repr__(self) -> str:
        acknowledged, failed, pending = self.summary()
        return f"<RecordedDeliveries of {counted(len(self), 'record')}: {acknowledged} acknowledged, {failed} failed, {pending} pending>"


class _Elsewhere:
    """Replaces the event loop of a producer that is in another process."""

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> Any:
        raise ProducerClosed("these deliveries are a copy: only the process that sent the records learns how the pending ones end")

    def call_soon(self, callback: Callable[..., object], *given: Any, context: Context | None = None) -> Any:
        return asyncio.get_running_loop().call_soon(callback, *given, context=context)


def _restored(ended: Iterable[tuple[RecordedSend, RecordMetadata | DeliveryError | None]]) -> RecordedDeliveries:
    deliveries = RecordedDeliveries()
    for sent, outcome in ended:
        delivery = RecordedDelivery(cast("asyncio.AbstractEventLoop", _Elsewhere()), sent, lambda _error: None)
        if outcome is not None:
            delivery.settle(outcome)
        deliveries.add(delivery)
    return deliveries


class RecordedBatch:
    """Holds records of one partition that are sent together, or not at all; the result of `create_batch`.

    Args:
        topic: the topic's name.
        partition: the partition's number.
        limit: bytes that the batch holds; the first record always fits.
        check: returns the record of the arguments, and its size in bytes; raises the errors of `send`.
    """

    def __init__(self, topic: str, partition: int, limit: int, check: Callable[..., tuple[RecordedSend, int]]) -> None:
        self.topic = topic
        self.partition = partition
        self.size: int = 0
        self.is_sent = False
        self.records: list[RecordedSend] = []
        self._is_closed = False
        self._limit = limit
        self._check = check

    def append(self, value: Any = None, key: Any = None, *, timestamp_ms: TimestampMs | None = None, headers: HeadersLike = ()) -> bool:
        """Append a record. Returns False if the batch is closed or the record does not fit.

        Raises:
            UsageError: the batch was sent, or the error that `send` raises for these arguments.
        """
        if self.is_sent:
            raise UsageError(f"{self!r} was sent; make a new one")
        record, size = self._check(self.topic, value, key, self.partition, timestamp_ms, headers)
        if self._is_closed or (self.records and self.size + size > self._limit):
            return False
        self.records.append(record)
        self.size += size
        return True

    def close(self) -> None:
        """Refuse further records; safe twice."""
        self._is_closed = True

    def __len__(self) -> int:
        return len(self.records)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        sent = ", sent" if self.is_sent else ""
        return f"<RecordedBatch for {self.topic}-{self.partition}: {counted(len(self), 'record')}, {self.size} bytes{sent}>"


class RecordedFromThread:
    """Sends records from any thread except the loop's; the value of `producer.from_thread`.

    Args:
        loop: the producer's event loop.
        take: takes the arguments of `send` and returns the delivery; called on the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[..., RecordedDelivery]) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._take = take

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> Future[RecordMetadata]:
        """Send one record; the future carries every error of the send. Each thread's records keep their order.

        Raises:
            UsageError: it is called in the loop's own thread.
            ProducerClosed: the loop is closed.
        """
        if self._loop.is_closed():
            raise ProducerClosed(_LOOP_CLOSED)
        if threading.get_ident() == self._thread:
            raise UsageError("from_thread is for other threads; this one runs the producer's loop: `await producer.send(...)`")
        future: Future[RecordMetadata] = Future()
        try:
            self._loop.call_soon_threadsafe(self._hand_over, future, (topic, value, key, partition, timestamp_ms, headers))
        except RuntimeError as error:
            raise ProducerClosed(_LOOP_CLOSED) from error
        return future

    def _hand_over(self, future: Future[RecordMetadata], record: tuple[Any, ...]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            delivery = self._take(*record)
        except Exception as error:
            future.set_exception(error)
            return
        delivery.add_done_callback(lambda ended: _end(future, ended))


def _end(future: Future[RecordMetadata], delivery: RecordedDelivery) -> None:
    error = delivery.exception()
    if error is None:
        future.set_result(delivery.result())
    else:
        future.set_exception(error)
