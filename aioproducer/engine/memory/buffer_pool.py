"""Holds the free bytes of `buffer_memory` and the wait queue of pending sends (Java's BufferPool, seeds/003).

`BufferPool` hands out byte credits, not buffers.

1. Pending sends are served in the order of their calls, however many bytes each needs (BUF-02): a small record never overtakes a
   large one.
2. The wait queue holds the record, not its task. The code that frees memory appends the records of pending sends, so that call order
   is log order. Their tasks are woken after that.
3. A pending send leaves its wait queue once: served, cancelled, or past its deadline. A cancelled one leaves no trace.

An `asyncio.Condition` has a gap between notify and wake-up. In that gap a task can be cancelled although its record was already
appended. On cancellation, a Condition also loses notifies (CPython 3.11, 3.12): see docs/topics/memory.md.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any

from aioproducer.engine.tasks.waiter import Waiter
from aioproducer.record_validation import BATCH_OVERHEAD
from aioproducer.records.record_batch import NO_HEADERS

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from aioproducer.core.partition_queues import PartitionQueue, TopicRouting

__all__ = ["BATCH_OVERHEAD", "BufferPool", "PendingSend", "WaitQueue"]


class BufferPool:
    """Holds the free bytes of `buffer_memory`. All methods are synchronous: a send that must wait is put into a `WaitQueue`."""

    __slots__ = ("available", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.available = size

    def try_take(self, size: int) -> bool:
        """Take `size` bytes if that many are free. Returns True if they were taken."""
        if size > self.available:
            return False
        self.available -= size
        return True

    def take(self, size: int) -> None:
        """Take `size` bytes that are used already. `available` may fall below zero: overhead is known only once records are appended."""
        self.available -= size

    def release(self, size: int) -> None:
        """Give `size` bytes back."""
        self.available += size
        assert self.available <= self.size, "more was given back than taken"

    def __repr__(self) -> str:
        return f"<BufferPool {self.available} of {self.size} bytes free>"


class PendingSend:
    """Holds a record that may have to wait, and the waiter of its task. With `topic` None it is a mark, with no record.

    Attributes:
        asks: there is no record; the task waits for the topic alone.
        behind: the partition that the record stays with, because it was full. While it is full, the record waits for it alone.
        chosen: the topic routing that the user's partitioner was given, and the partition that it chose.
        whole: in place of one record, a batch that the user filled (a `batch_builder.ReadyBatch`); opaque here.
        window: in place of one record, rows of columns (a `column_batches.ColumnWindow`); opaque here.
        delivery: the result of the send, once the record is in a batch; opaque here.
        on_left: called once when the pending send leaves its wait queue, with its delivery or with the error that ended it.
    """

    __slots__ = (
        "asks",
        "behind",
        "chosen",
        "deadline",
        "delivery",
        "error",
        "headers",
        "key",
        "number",
        "on_left",
        "partition",
        "reason",
        "size",
        "timestamp_ms",
        "topic",
        "value",
        "waiter",
        "whole",
        "window",
    )

    def __init__(
        self,
        topic: str | None,
        *,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: bytes = NO_HEADERS,
        size: int = 0,
        asks: bool = False,
        whole: Any = None,
        window: Any = None,
    ) -> None:
        self.topic = topic
        self.value = value
        self.key = key
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.headers = headers
        self.size = size
        self.asks = asks
        self.whole = whole
        self.window = window
        self.behind: PartitionQueue | None = None
        self.chosen: tuple[TopicRouting, int] | None = None
        self.number = -1
        self.deadline = 0.0
        self.reason = ""
        self.delivery: Any = None
        self.error: Exception | None = None
        # Set while the pending send is in a wait queue.
        self.waiter: Waiter | None = None
        self.on_left: Callable[[Any, BaseException | None], object] | None = None

    def park(self, loop: AbstractEventLoop, number: int, reason: str, deadline: float) -> None:
        """Set the waiter, before the pending send joins a wait queue. Numbers grow in the order of the calls."""
        self.waiter = Waiter(loop)
        self.number = number
        self.reason = reason
        self.deadline = deadline

    @property
    def is_record(self) -> bool:
        """Return whether there is a record: it is no mark, and does not wait for a topic alone."""
        return self.topic is not None and not self.asks

    @property
    def is_to_hear(self) -> bool:
        """Return whether the record waits only for the next event-loop iteration, in which its task receives its cancellation."""
        return not self.reason and self.is_record

    @property
    def is_aside(self) -> bool:
        """Return whether the record waits for its full partition alone."""
        return self.behind is not None and self.behind.is_full

    @property
    def is_waiting(self) -> bool:
        """Return whether it is still to be served."""
        return self.waiter is not None and not self.waiter.done()

    async def wait(self) -> None:
        """Wait in the wait queue that it is in. Raises the error that it was given up with.

        Cancellation: the pending send leaves the wait queue at once.
        """
        try:
            # None if it was served before its task waits: a flush awaits the wait queues one after another.
            if self.waiter is not None:
                await self.waiter
        except BaseException as error:
            self._tell(None, error)
            raise
        finally:
            # A cancelled pending send may stay in the deque for a while. It releases its bytes now.
            self.waiter = self.value = self.key = self.whole = self.window = self.behind = None
        if self.error is not None:
            raise self.error

    def leave(self, delivery: Any = None, error: Exception | None = None) -> Waiter:
        """Set its result, as it has left the wait queue. Returns the waiter, which the caller must settle in the same step."""
        waiter, self.waiter, self.chosen = self.waiter, None, None
        assert waiter is not None
        self.delivery, self.error = delivery, error
        self._tell(delivery, error)
        return waiter

    def _tell(self, delivery: Any, error: BaseException | None) -> None:
        on_left, self.on_left = self.on_left, None
        if on_left is not None:
            on_left(delivery, error)


class WaitQueue:
    """Holds pending sends in the order of their calls. Its methods skip the cancelled ones."""

    __slots__ = ("_parked",)

    def __init__(self) -> None:
        self._parked: deque[PendingSend] = deque()

    def __bool__(self) -> bool:
        return bool(self._parked) and self.head() is not None

    def __len__(self) -> int:
        return sum(parked.is_waiting for parked in self._parked)

    def __iter__(self) -> Any:
        return (parked for parked in tuple(self._parked) if parked.is_waiting)

    def head(self) -> PendingSend | None:
        """Return the pending send that is served next, or None."""
        parked = self._parked
        while parked:
            if parked[0].is_waiting:
                return parked[0]
            parked.popleft()
        return None

    def push(self, parked: PendingSend) -> None:
        """Append a pending send at the end."""
        self._parked.append(parked)

    def merge(self, others: list[PendingSend]) -> None:
        """Insert the pending sends of another wait queue, each at its position in the order of the calls."""
        if not others:
            return
        if not self._parked or self._parked[-1].number < others[0].number:
            self._parked.extend(others)
            return
        # Only the later ones are merged. With many topics at once, each topic's pending sends come in the order of their calls, so the
        # earlier ones need not be touched.
        behind: list[PendingSend] = []
        while self._parked and self._parked[-1].number > others[0].number:
            behind.append(self._parked.pop())
        self._parked.extend(heapq.merge(reversed(behind), others, key=lambda parked: parked.number))

    def pop(self) -> PendingSend:
        """Remove the head and return it."""
        return self._parked.popleft()

    def take_all(self) -> list[PendingSend]:
        """Remove all pending sends and return them in order."""
        everybody = [parked for parked in self._parked if parked.is_waiting]
        self._parked.clear()
        return everybody
