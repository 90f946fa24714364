"""The bridge from other threads: records are handed over in order, results are `concurrent.futures.Future`.

1. A thread hands its record over and continues. The event loop appends the records in the order in which threads handed them over, so
   each thread's records keep their order.
2. Records that are handed over and not in a batch yet are bounded: beyond that bound the thread waits, at most `max_block_ms`. When
   `buffer_memory` is used up, the records stay in the bridge, so the threads wait for memory, too.
3. A record that is cancelled before the event loop took it is not sent; after that it is.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from aioproducer.engine.chosen_build import Delivery
from aioproducer.engine.tasks.fork_safety import FORKED
from aioproducer.errors import BufferExhausted, ProducerClosed, UsageError
from aioproducer.model import HeadersLike, PartitionNumber, RecordMetadata, TimestampMs

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from aioproducer.engine.memory.pending_send import PendingSend

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")
LOOP_CLOSED: Final = "the producer's loop is closed"
# Bytes of records that are handed over and not in a batch yet.
_LIMIT: Final = 1_048_576
# Bytes of such a record beside its key and value, at most.
_OVERHEAD: Final = 1024
# Records that the event loop takes in one step.
_AT_ONCE: Final = 256
_ENDED: Final = frozenset({"CANCELLED", "CANCELLED_AND_NOTIFIED", "FINISHED"})
# Seconds that a thread waits for an answer of the event loop.
_ANSWER: Final = 5.0


class ThreadDelivery(Future[RecordMetadata]):
    """Holds the outcome of a record that a thread sent: a `concurrent.futures.Future` of its `RecordMetadata`.

    `cancel()` returns True if the event loop has not taken the record yet: then the record is not sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_looked_at = False
        self._delivery: Delivery | None = None
        self._pid = os.getpid()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the record's metadata. Waits at most `timeout` seconds.

        Raises:
            DeliveryError: the record was queued and not acknowledged.
            UsageError, SendTimeout: an error that `send` raises; the record was not queued.
            ProducerClosed: the record had not completed when the process forked, and this is the child.
            TimeoutError: the record has not completed yet.
        """
        self._look()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error that `result` would raise, or None."""
        self._look()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Call `fn(self)` once the record completes, in the event loop's thread: `fn` must not block."""
        self._look()
        super().add_done_callback(fn)

    def _look(self) -> None:
        # `done` would take a lock that a thread of the parent may have held.
        if self._state not in _ENDED and os.getpid() != self._pid:
            raise ProducerClosed(FORKED)
        self._is_looked_at = True
        if self._delivery is not None:
            self._delivery._result.look()

    def _follow(self, delivery: Delivery) -> None:
        """Follow the delivery of the record, which is queued now.

        The delivery is kept: its collection is the last chance to report a failure that no caller has looked at.
        """
        self._delivery = delivery
        result = delivery._result
        was_looked_at = result.looked_at or self._is_looked_at
        delivery.add_done_callback(self._on_done, context=_NO_CONTEXT)
        result.looked_at = was_looked_at

    def _on_done(self, delivery: Delivery) -> None:
        error = delivery._follow().error
        if error is None:
            self.set_result(delivery.result())
        else:
            self.set_exception(error.again())


_NO_CONTEXT: Final = Context()


class _Handed(NamedTuple):
    record: tuple[Any, ...]
    size: int
    future: ThreadDelivery


class FromThread(Generic[K, V]):
    """Sends records from any thread but the event loop's (`producer.from_thread`).

    Args:
        bridge: the producer's.
        owner: the producer. This object references it, because a producer without references is stopped.
    """

    def __init__(self, bridge: ThreadBridge, owner: object) -> None:
        self._bridge = bridge
        self._owner = owner

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: PartitionNumber | None = None,
        timestamp_ms: TimestampMs | None = None,
        headers: HeadersLike = (),
    ) -> ThreadDelivery:
        """Hand one record over; the arguments are those of `Producer.send`. Returns its future.

        The records of one thread keep their order. Serializers run in the event loop's thread. The future reports any error of the
        record.

        The call returns at once, unless about a MiB of records was handed over and not queued yet. Then the event loop is busy or
        `buffer_memory` is used up, and the thread waits, at most `max_block_ms`.

        Raises:
            ProducerClosed: the producer has stopped or failed, its loop is closed, or it belongs to the process that was forked from.
            BufferExhausted: the bridge took no record within `max_block_ms`.
            UsageError: the call is in the loop's own thread, which it could block forever: await `producer.send` there.
            In each of these cases the record was not queued.
        """
        bridge = self._bridge
        # An error that the caller keeps would keep this frame, and the frame the producer.
        del self
        return bridge.hand_over((topic, value, key, partition, timestamp_ms, headers))


class ThreadBridge:
    """Passes records and questions from other threads to the event loop.

    Args:
        accept: called in the loop with the arguments of `send`. Returns a delivery, or the pending send.
        max_block: seconds that a thread may wait.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        accept: Callable[..., Delivery | PendingSend],
        max_block: float,
    ) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._accept = accept
        self._max_block = max_block
        self._condition = threading.Condition()
        self._queue: deque[_Handed] = deque()
        self._held = 0
        self._is_due = False
        self._pid = os.getpid()
        self._error: Callable[[], Exception] | None = None

    def hand_over(self, record: tuple[Any, ...]) -> ThreadDelivery:
        """Hand over a record for `FromThread.send`. Returns its future; `record` is all arguments of `Producer.send`, in order."""
        # A thread of the parent may have held the lock, and the loop's wake-up pipe is the parent's, too.
        if os.getpid() != self._pid:
            raise ProducerClosed(FORKED)
        if self._loop.is_closed():
            raise ProducerClosed(LOOP_CLOSED)
        if threading.get_ident() == self._thread:
            raise UsageError(
                "from_thread is for other threads; this one runs the producer's loop: `await producer.send(...)`"
            )
        size = _OVERHEAD + sum(
            len(part) for part in record[1:3] if isinstance(part, (bytes, bytearray, memoryview))
        )
        handed = _Handed(record, size, ThreadDelivery())
        with self._condition:
            if not self._condition.wait_for(self._has_room, self._max_block):
                raise BufferExhausted(
                    f"the loop took no record from this thread within max_block_ms={self._max_block * 1000:.15g}: it is busy or has ended, "
                    "or buffer_memory is used up. The record was not queued."
                )
            if self._error is not None:
                raise self._error()
            if not self._is_due:
                try:
                    self._loop.call_soon_threadsafe(self._take)
                except RuntimeError as error:
                    raise ProducerClosed(LOOP_CLOSED) from error
                self._is_due = True
            self._held += size
            self._queue.append(handed)
        return handed.future

    def _has_room(self) -> bool:
        return self._error is not None or self._held < _LIMIT

    def ask(self, question: Callable[[], T]) -> T:
        """Return the answer of the event loop, given between two of its steps.

        In the loop itself, when the loop runs no more, or in a forked child, the question is answered at once.

        Raises:
            TimeoutError: the loop did not answer within some seconds: something holds it.
        """
        if (
            os.getpid() != self._pid
            or asyncio._get_running_loop() is self._loop
            or not self._loop.is_running()
        ):
            return question()
        answer: Future[T] = Future()
        try:
            self._loop.call_soon_threadsafe(_answer, answer, question)
        except RuntimeError:
            # The loop has just been closed.
            return question()
        try:
            return answer.result(_ANSWER)
        except TimeoutError:
            raise TimeoutError(
                f"the producer's loop did not come to answer within {_ANSWER:g} s: something holds it"
            ) from None

    def is_elsewhere(self) -> bool:
        """Return whether this thread is not the one that runs the loop, or ran it when the producer started."""
        return self._loop.is_running() or threading.get_ident() != self._thread

    # In the loop's thread

    def _take(self) -> None:
        """Take some of the records that were handed over. The next event-loop iteration takes the others."""
        self._take_some(_AT_ONCE)
        with self._condition:
            self._is_due = bool(self._queue)
            if self._is_due:
                self._loop.call_soon(self._take)

    def _take_some(self, most: int) -> None:
        for _ in range(min(most, len(self._queue))):
            with self._condition:
                handed = self._queue.popleft() if self._queue else None
            if handed is not None:
                self._take_one(handed)

    def _take_one(self, handed: _Handed) -> None:
        if not handed.future.set_running_or_notify_cancel():
            self._left(handed)
            return
        try:
            taken = self._accept(*handed.record)
        # Hands the error to the thread. What is no Exception also ends the loop.
        except BaseException as error:
            self._left(handed)
            handed.future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        if isinstance(taken, Delivery):
            self._left(handed)
            handed.future._follow(taken)
            return
        assert taken.done is not None
        taken.done.add_done_callback(partial(self._on_done, handed, taken))

    def _on_done(self, handed: _Handed, pending: PendingSend, done: asyncio.Future[Any]) -> None:
        """Handle a send that waited, and that is queued or given up now."""
        self._left(handed)
        delivery = pending.delivery if done.cancelled() else done.result()
        if delivery is not None:
            handed.future._follow(delivery)
        else:
            handed.future.set_exception(pending.error or ProducerClosed("the producer has stopped"))

    def _left(self, handed: _Handed) -> None:
        with self._condition:
            self._held -= handed.size
            self._condition.notify()

    def shut(self, error: Callable[[], Exception]) -> None:
        """Take no new record; records that were handed over before are still submitted."""
        with self._condition:
            self._error = self._error or error
            self._condition.notify_all()
        self._take_some(len(self._queue))


def _answer(answer: Future[T], question: Callable[[], T]) -> None:
    try:
        answer.set_result(question())
    except Exception as error:
        answer.set_exception(error)
