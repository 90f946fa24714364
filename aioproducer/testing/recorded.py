"""What a `RecordingProducer` gives out: records as they were sent, and deliveries that end when the test says so.

They behave as the producer's own deliveries do, and share no code with them: one contract suite (tests/contract) runs both.
Knows nothing of topics' partitions or of what a record may be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

from aioproducer.errors import DeliveryError, ProducerClosed, UsageError
from aioproducer.model import FlushSummary, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from contextvars import Context

    from aioproducer.model import Header, Headers, PartitionNumber, TimestampMs

__all__ = ["RecordedBatch", "RecordedDeliveries", "RecordedDelivery", "RecordedFromThread", "RecordedSend"]


class RecordedSend(NamedTuple):
    """A record that was sent, as it would stand in the log: serialized, placed, stamped."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[Header, ...]


class RecordedDelivery(asyncio.Future[RecordMetadata]):
    """What became of one record, as `aioproducer.Delivery`: awaitable, and a future for asyncio's helpers.

    Cancellation: as there, cancelling a task that awaits it touches neither the record nor any other waiter, and `cancel()` ends this
    handle alone: the record goes on, and so does who awaits it.
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
            waiter: asyncio.Future[None] = self.get_loop().create_future()  # each task its own: cancelling it touches no other
            self._waiters.append(waiter)
            yield from waiter
            return self._given()
        return self.result()

    def result(self) -> RecordMetadata:
        """Its metadata; raises as `Delivery.result`."""
        super().result()
        self._is_looked_at = True
        return self._given()

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """Call `fn(delivery)` once it ended, in a turn of the loop."""
        self._is_looked_at = True
        super().add_done_callback(fn, context=context)

    def cancel(self, msg: Any | None = None) -> bool:
        """End this handle, never the record. False if it had ended."""
        self._is_looked_at = True
        return super().cancel(msg)

    def __del__(self) -> None:
        if isinstance(self._outcome, DeliveryError) and not self._is_looked_at:
            self._on_unseen(self._outcome)

    def exception(self) -> DeliveryError | None:
        """Its `DeliveryError`, or None once acknowledged; raises as `Delivery.exception`."""
        super().exception()
        self._is_looked_at = True
        return self._outcome.again() if isinstance(self._outcome, DeliveryError) else None

    @property
    def outcome(self) -> RecordMetadata | DeliveryError | None:
        """How the record ended, whoever looked at it; None: it has not."""
        return self._outcome

    def settle(self, outcome: RecordMetadata | DeliveryError) -> None:
        """The record ended so: whoever waits goes on, callbacks run in the next turn."""
        self._outcome = outcome
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if not self.done():
            super().set_result(None)  # type: ignore[arg-type]  # `result` gives the outcome; each look at a failure is an error of its own

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
    """The deliveries of `send_many`: a sequence, and awaitable as a whole, as the producer's own.

    Cancellation: ends only the waiting.
    """

    def __init__(self, deliveries: Iterable[RecordedDelivery] = ()) -> None:
        self._deliveries = list(deliveries)

    def attach(self, error: BaseException) -> None:
        """Let an error tell what was taken before it, as `queued`."""
        vars(error)["queued"] = self  # not by assignment: an error of the caller's may refuse that

    def __copy__(self) -> RecordedDeliveries:
        return self

    def __deepcopy__(self, memo: object) -> RecordedDeliveries:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """What is known of the records now, for another process."""
        return _restored, ([(delivery.sent, delivery.outcome) for delivery in self._deliveries],)

    def add(self, delivery: RecordedDelivery) -> None:
        """One more."""
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
        """Until every record has ended; raises for none of them."""
        for delivery in self._deliveries:
            try:
                await delivery
            except DeliveryError:
                continue
        return self.summary()

    def summary(self) -> FlushSummary:
        """How many are acknowledged, failed and pending, now."""
        ended = [delivery for delivery in self._deliveries if delivery.done()]
        failed = sum(delivery.exception() is not None for delivery in ended)
        return FlushSummary(len(ended) - failed, failed, len(self._deliveries) - len(ended))

    def done(self) -> bool:
        """Whether every record has ended."""
        return not self.summary().pending

    def failures(self) -> Iterator[tuple[int, DeliveryError]]:
        """Index and error of each record that has failed by now, in order."""
        for index, delivery in enumerate(self._deliveries):
            if delivery.done() and (error := delivery.exception()) is not None:
                yield index, error

    def first_failure(self) -> tuple[int, DeliveryError] | None:
        """Index and error of the first record that has failed by now; None: none has."""
        return next(self.failures(), None)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """First and last offset of the records acknowledged by now, by partition; none with acks=0."""
        found: dict[int, list[int]] = {}
        for delivery in self._deliveries:
            if delivery.done() and delivery.exception() is None and (metadata := delivery.result()).offset >= 0:
                found.setdefault(metadata.partition, []).append(metadata.offset)
        return {partition: (min(offsets), max(offsets)) for partition, offsets in found.items()}

    def __repr__(self) -> str:
        acknowledged, failed, pending = self.summary()
        return f"<RecordedDeliveries of {len(self)} records: {acknowledged} acknowledged, {failed} failed, {pending} pending>"


class _Elsewhere:
    """Stands for the loop of a producer that is in another process."""

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
    """What `create_batch` gives: records of one partition that are sent together, or not at all.

    Args:
        limit: bytes that it holds; the first record always fits.
        check: the record of the arguments, and its size in bytes; raises what `send` raises.
    """

    def __init__(self, topic: str, partition: int, limit: int, check: Callable[..., tuple[RecordedSend, int]]) -> None:
        self.topic = topic
        self.partition = partition
        self.size = 0
        self.is_sent = False
        self.records: list[RecordedSend] = []
        self._is_closed = False
        self._limit = limit
        self._check = check

    def append(self, value: Any = None, key: Any = None, *, timestamp_ms: TimestampMs | None = None, headers: Headers = ()) -> bool:
        """Put a record behind the others. False: closed, or it does not fit. UsageError: what `send` raises for it, or it was sent."""
        if self.is_sent:
            raise UsageError(f"{self!r} was sent; make a new one")
        record, size = self._check(self.topic, value, key, self.partition, timestamp_ms, headers)
        if self._is_closed or (self.records and self.size + size > self._limit):
            return False
        self.records.append(record)
        self.size += size
        return True

    def close(self) -> None:
        """Take no more records; safe twice."""
        self._is_closed = True

    def __len__(self) -> int:
        return len(self.records)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        sent = ", sent" if self.is_sent else ""
        return f"<RecordedBatch for {self.topic}-{self.partition}: {len(self)} records, {self.size} bytes{sent}>"


class RecordedFromThread:
    """`producer.from_thread`: sends from any thread but the loop's.

    Args:
        loop: of the producer.
        take: on the loop: the arguments of `send`; the delivery.
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
        headers: Headers = (),
    ) -> Future[RecordMetadata]:
        """Hand one record over; whatever is wrong with it, the future tells. Each thread's records keep their order.

        Raises:
            UsageError: it is called in the loop's own thread.
            ProducerClosed: the loop is closed.
        """
        if threading.get_ident() == self._thread:
            raise UsageError("from_thread is for other threads; this one runs the producer's loop: `await producer.send(...)`")
        future: Future[RecordMetadata] = Future()
        try:
            self._loop.call_soon_threadsafe(self._hand_over, future, (topic, value, key, partition, timestamp_ms, headers))
        except RuntimeError as error:
            raise ProducerClosed("the producer's loop is closed") from error
        return future

    def _hand_over(self, future: Future[RecordMetadata], record: tuple[Any, ...]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            delivery = self._take(*record)
        except Exception as error:  # noqa: BLE001  (the caller's mistake, or its serializer's)
            future.set_exception(error)
            return
        delivery.add_done_callback(lambda ended: _end(future, ended))


def _end(future: Future[RecordMetadata], delivery: RecordedDelivery) -> None:
    error = delivery.exception()
    if error is None:
        future.set_result(delivery.result())
    else:
        future.set_exception(error)
