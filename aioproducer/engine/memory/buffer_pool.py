"""`buffer_memory`, and the line of those who wait (Java's BufferPool, seeds/003; here it hands out byte credits, not buffers).

1. Who comes first is served first, however much it needs (BUF-02): a small record never overtakes a large one.
2. What is parked is a record, not a task. Whoever frees memory appends for those who wait, so that call order is log order, and their
   tasks are woken after that.
3. A record leaves its line once: served, cancelled, or past its deadline. Cancelled, it leaves nothing behind.

Knows nothing of topics, batches or the network. An `asyncio.Condition` does this with a gap between notify and wake-up, in which a
task can be cancelled whose record was already appended, and loses notifies on cancellation (CPython 3.11, 3.12): see docs/topics/memory.md.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.tasks.waiter import Waiter

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from aioproducer.core.partition_queues import PartitionQueue, TopicRouting

__all__ = ["BATCH_OVERHEAD", "NO_HEADERS", "BufferPool", "PendingSend", "WaitQueue"]

BATCH_OVERHEAD: Final = 1024  # bytes of a batch's objects, beside its records
NO_HEADERS: Final = b"\0"  # encoded


class BufferPool:
    """Bytes of `buffer_memory` that nobody holds. All synchronous: who must wait parks its record in a `WaitQueue`."""

    __slots__ = ("available", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.available = size

    def try_take(self, size: int) -> bool:
        """Take `size` bytes if there are that many."""
        if size > self.available:
            return False
        self.available -= size
        return True

    def take(self, size: int) -> None:
        """Take `size` bytes that are used already, below zero if need be: overhead is known only once records are there."""
        self.available -= size

    def release(self, size: int) -> None:
        """Give back."""
        self.available += size
        assert self.available <= self.size, "more was given back than taken"

    def __repr__(self) -> str:
        return f"<BufferPool {self.available} of {self.size} bytes free>"


class PendingSend:
    """A record that may have to wait, and the task that waits with it. `topic` None: a mark in a line, with no record.

    Attributes:
        asks: there is no record; somebody wants to know the topic.
        behind: the partition that it stays with, as that was full; while it is, it waits for that one alone.
        chosen: the partition that the user's partitioner chose, on that route.
        whole: in the place of one record, a batch that the user filled (a `batch_builder.ReadyBatch`); opaque here.
        window: likewise, rows of columns (a `column_batches.ColumnWindow`).
        delivery: what the send gives back, once the record is in a batch; opaque here.
        on_left: told once when it leaves the line, of its delivery or of what it was given up for.
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
        self.waiter: Waiter | None = None  # while it stands in a line
        self.on_left: Callable[[Any, BaseException | None], object] | None = None

    def park(self, loop: AbstractEventLoop, number: int, reason: str, deadline: float) -> None:
        """It is about to stand in a line; numbers grow in the order of the calls."""
        self.waiter = Waiter(loop)
        self.number = number
        self.reason = reason
        self.deadline = deadline

    @property
    def is_record(self) -> bool:
        """Whether it is one: no mark, and no question."""
        return self.topic is not None and not self.asks

    @property
    def is_to_hear(self) -> bool:
        """Whether it waits for nothing but the next turn, in which its task is told that it was cancelled."""
        return not self.reason and self.is_record

    @property
    def is_aside(self) -> bool:
        """Whether it waits for room in its partition alone."""
        return self.behind is not None and self.behind.is_full

    @property
    def is_waiting(self) -> bool:
        """Whether it is still to be served."""
        return self.waiter is not None and not self.waiter.done()

    async def wait(self) -> None:
        """Wait in the line that it was put into; raises the error it was given. Cancelled: it is out of the line at once."""
        try:
            if self.waiter is not None:  # else it was served before anybody waited: a flush awaits the lines one after another
                await self.waiter
        except BaseException as error:
            self._tell(None, error)
            raise
        finally:
            # what was cancelled may stand in the line for a while: without its bytes
            self.waiter = self.value = self.key = self.whole = self.window = self.behind = None
        if self.error is not None:
            raise self.error

    def leave(self, delivery: Any = None, error: Exception | None = None) -> Waiter:
        """It is out of the line; the waiter is to be woken, in this step."""
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
    """Parked records in the order of their calls. Those that were cancelled are passed over."""

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
        """Who is next, if anybody is."""
        parked = self._parked
        while parked:
            if parked[0].is_waiting:
                return parked[0]
            parked.popleft()
        return None

    def push(self, parked: PendingSend) -> None:
        """Stand at the end."""
        self._parked.append(parked)

    def merge(self, others: list[PendingSend]) -> None:
        """Take in those of another line, each in its place among the calls."""
        if not others:
            return
        if not self._parked or self._parked[-1].number < others[0].number:
            self._parked.extend(others)
            return
        behind: list[PendingSend] = []  # the rest need not be touched: with many topics at once, theirs come in the order of their calls
        while self._parked and self._parked[-1].number > others[0].number:
            behind.append(self._parked.pop())
        self._parked.extend(heapq.merge(reversed(behind), others, key=lambda parked: parked.number))

    def pop(self) -> PendingSend:
        """The head leaves."""
        return self._parked.popleft()

    def take_all(self) -> list[PendingSend]:
        """Everybody leaves, in order."""
        everybody = [parked for parked in self._parked if parked.is_waiting]
        self._parked.clear()
        return everybody
