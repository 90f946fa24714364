"""The door for other threads: records handed over in order, results as `concurrent.futures.Future`.

1. A thread hands its record over and goes on; the loop takes what was handed over into the batches, in the order in which it came, so
   each thread's records keep theirs.
2. What is handed over and not in a batch yet is bounded: beyond that the thread waits, at most `max_block_ms`. When `buffer_memory` is
   used up, the records stay on this side of it, and so the threads wait for memory, too.
3. Cancelled before the loop took it, a record is not sent; after that it is.

Knows nothing of batches or brokers.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from aioproducer.engine.delivery.chosen_build import Delivery
from aioproducer.engine.tasks.fork_safety import FORKED
from aioproducer.errors import BufferExhausted, ProducerClosed, UsageError
from aioproducer.model import RecordMetadata

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from aioproducer.engine.memory.buffer_pool import PendingSend
    from aioproducer.model import Headers, PartitionNumber, TimestampMs

__all__ = ["FromThread", "ThreadBridge", "ThreadDelivery", "running_loop"]

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")
_LIMIT: Final = 1_048_576  # bytes of records that are handed over and not in a batch yet
_OVERHEAD: Final = 1024  # bytes of one of them beside its key and value, at most
_AT_ONCE: Final = 256  # records that are taken in one step of the loop
_ENDED: Final = frozenset({"CANCELLED", "CANCELLED_AND_NOTIFIED", "FINISHED"})
_ANSWER: Final = 5.0  # seconds that a thread waits for what the loop knows


class ThreadDelivery(Future[RecordMetadata]):
    """What became of a record that a thread sent: a `concurrent.futures.Future` of its `RecordMetadata`.

    `cancel()` is true if the record was not taken by the loop yet: then it is not sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_looked_at = False
        self._delivery: Delivery | None = None
        self._pid = os.getpid()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Its metadata, waiting at most `timeout` seconds.

        Raises:
            DeliveryError: the record was queued and not acknowledged.
            UsageError, SendTimeout: what `send` raises; the record was not queued.
            ProducerClosed: it had not ended when the process forked, and this is the child.
            TimeoutError: it has not ended yet.
        """
        self._look()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result` would raise, or None."""
        self._look()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Call `fn(self)` once it ended, in the loop's thread: it must not block."""
        self._look()
        super().add_done_callback(fn)

    def _look(self) -> None:
        if self._state not in _ENDED and os.getpid() != self._pid:  # `done` would take a lock that a thread of the parent may have held
            raise ProducerClosed(FORKED)
        self._is_looked_at = True
        if self._delivery is not None:
            self._delivery._result.look()  # noqa: SLF001

    def _follow(self, delivery: Delivery) -> None:
        """The record is queued. The delivery is kept: with it goes the last chance to say that nobody looked at a failure."""
        self._delivery = delivery
        result = delivery._result  # noqa: SLF001
        was_looked_at = result.looked_at or self._is_looked_at
        delivery.add_done_callback(self._on_done, context=_NO_CONTEXT)
        result.looked_at = was_looked_at

    def _on_done(self, delivery: Delivery) -> None:
        error = delivery._follow().error  # noqa: SLF001
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
    """`producer.from_thread`: sends from any thread but the loop's.

    Args:
        bridge: the producer's.
        owner: the producer, which is referenced as long as this object is: a producer that nobody references is stopped.
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
        headers: Headers = (),
    ) -> ThreadDelivery:
        """Hand one record over; the arguments are those of `Producer.send`. The records of one thread keep their order.

        Returns at once, unless about a MiB of records was handed over and not queued yet (the loop is busy, or `buffer_memory` is
        used up): then the thread waits, at most `max_block_ms`. Serializers run in the loop's thread. Whatever is wrong with the
        record, the future tells.

        Raises:
            ProducerClosed: the producer has stopped or failed, its loop is closed, or it belongs to the process that was forked from.
            BufferExhausted: there was no room within `max_block_ms`.
            UsageError: it is called in the loop's own thread, which it could block for ever: await `producer.send` there.
            None of these records was queued.
        """
        bridge = self._bridge
        del self  # an error that the caller keeps would keep this frame, and with it the producer
        return bridge.hand_over((topic, value, key, partition, timestamp_ms, headers))


class ThreadBridge:
    """Takes records and questions from other threads to the loop.

    Args:
        accept: on the loop: the arguments of `send`; a delivery, or the parked record.
        max_block: seconds that a thread may wait.
    """

    def __init__(self, loop: AbstractEventLoop, accept: Callable[..., Delivery | PendingSend], max_block: float) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._accept = accept
        self._max_block = max_block
        self._condition = threading.Condition()
        self._queue: deque[_Handed] = deque()
        self._held = 0
        self._is_due = False
        self._is_forked = False
        self._error: Callable[[], Exception] | None = None

    def hand_over(self, record: tuple[Any, ...]) -> ThreadDelivery:
        """What `FromThread.send` does; `record` is all arguments of `Producer.send`, in order."""
        if self._is_forked:
            raise ProducerClosed(FORKED)
        if threading.get_ident() == self._thread:
            raise UsageError("from_thread is for other threads; this one runs the producer's loop: `await producer.send(...)`")
        size = _OVERHEAD + sum(len(part) for part in record[1:3] if isinstance(part, (bytes, bytearray, memoryview)))
        handed = _Handed(record, size, ThreadDelivery())
        with self._condition:
            if not self._condition.wait_for(self._has_room, self._max_block):
                raise BufferExhausted(
                    f"the loop took no record from this thread within max_block_ms={self._max_block * 1000:g}: it is busy or has ended, "
                    "or buffer_memory is used up. The record was not queued."
                )
            if self._error is not None:
                raise self._error()
            self._wake()
            self._held += size
            self._queue.append(handed)
        return handed.future

    def _has_room(self) -> bool:
        return self._error is not None or self._held < _LIMIT

    def _wake(self) -> None:
        if self._is_due:
            return
        try:
            self._loop.call_soon_threadsafe(self._take)
        except RuntimeError as error:
            raise ProducerClosed("the producer's loop is closed") from error
        self._is_due = True

    def ask(self, question: Callable[[], T]) -> T:
        """What the loop answers between two of its steps; in the loop itself, when it runs no more, or in a forked child, at once.

        Raises:
            TimeoutError: it did not come to it within some seconds: something holds it.
        """
        is_here = threading.get_ident() == self._thread or running_loop() is self._loop
        if self._is_forked or is_here or not self._loop.is_running():
            return question()
        answer: Future[T] = Future()
        try:
            self._loop.call_soon_threadsafe(_answer, answer, question)
        except RuntimeError:  # closed just now
            return question()
        try:
            return answer.result(_ANSWER)
        except TimeoutError:
            raise TimeoutError(f"the producer's loop did not come to answer within {_ANSWER:g} s: something holds it") from None

    def is_elsewhere(self) -> bool:
        """Whether the thread at hand is not the one that runs the loop, or ran it when the producer started."""
        return self._loop.is_running() or threading.get_ident() != self._thread

    def forget_fork(self) -> None:
        """In a forked child: a thread of the parent may have held the lock, and the loop's wake-up pipe is the parent's, too."""
        self._is_forked = True

    @property
    def queued(self) -> int:
        """Records that were handed over and that the loop has not taken."""
        return len(self._queue)

    # In the loop's thread

    def _take(self) -> None:
        """Some of what was handed over; the rest in the next turn."""
        self._take_some(_AT_ONCE)
        with self._condition:
            self._is_due = bool(self._queue)
            if self._is_due:
                self._loop.call_soon(self._take)

    def _take_some(self, most: int) -> None:
        with self._condition:
            some = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        for handed in some:
            self._take_one(handed)

    def _take_one(self, handed: _Handed) -> None:
        if not handed.future.set_running_or_notify_cancel():
            self._left(handed)
            return
        try:
            taken = self._accept(*handed.record)
        except Exception as error:  # noqa: BLE001  (the caller's mistake, or its serializer's)
            self._left(handed)
            handed.future.set_exception(error)
            return
        if isinstance(taken, Delivery):
            self._left(handed)
            handed.future._follow(taken)  # noqa: SLF001
            return
        assert taken.waiter is not None
        taken.waiter.add_done_callback(partial(self._on_served, handed, taken), context=_NO_CONTEXT.copy())

    def _on_served(self, handed: _Handed, parked: PendingSend, _waiter: object) -> None:
        self._left(handed)
        if parked.delivery is not None:
            handed.future._follow(parked.delivery)  # noqa: SLF001
        else:
            handed.future.set_exception(parked.error or ProducerClosed("the producer has stopped"))

    def _left(self, handed: _Handed) -> None:
        with self._condition:
            self._held -= handed.size
            self._condition.notify()

    def shut(self, error: Callable[[], Exception]) -> None:
        """No new record is taken; those that were handed over before go their way."""
        with self._condition:
            self._error = self._error or error
            self._condition.notify_all()
        self._take_some(len(self._queue))


def running_loop() -> AbstractEventLoop | None:
    """The event loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _answer(answer: Future[T], question: Callable[[], T]) -> None:
    try:
        answer.set_result(question())
    except Exception as error:  # noqa: BLE001  (who asked is told)
        answer.set_exception(error)
