"""Holds `PendingSend`, a send that waits with its record, and `WaitQueue`, which holds pending sends in the order of their calls.

1. A pending send is served once: its record is appended, or it is given up with an error. That is one synchronous step. Its task is
   notified in the same step or later, and runs in a later event-loop iteration.
2. CancelledError means that the record is not queued. If a task is cancelled after its pending send was served, `wait` returns. The task is
   cancelled at its next await, unless the code that requested the cancellation has withdrawn it (`uncancel`), as a time-out does.
3. The task waits on an `asyncio.Condition` of its own, for its next slice of the loop budget on a future. A task checks whether it was
   served, so a notification that is lost by a cancellation (CPython 3.11, 3.12) loses nothing.
"""

from __future__ import annotations

import heapq
from asyncio import CancelledError, Condition, Lock, current_task, get_running_loop
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal

from aioproducer.records.record_batch import NO_HEADERS

if TYPE_CHECKING:
    from asyncio import Future, Task
    from collections.abc import Callable, Iterator

    from aioproducer.core.partition_queues import PartitionQueue, TopicRouting
    from aioproducer.core.record_validation import Unencoded

# What a pending send may wait for.
FOR_TOPIC: Final = "metadata of the topic"
FOR_PARTITION: Final = "the partition to exist"
FOR_SERIALIZER: Final = "a serializer to be prepared"
# Reasons for which a send waits in the wait queue of its topic.
FOR_METADATA: Final = (FOR_TOPIC, FOR_PARTITION, FOR_SERIALIZER)
FOR_MEMORY: Final = "buffer_memory"
FOR_FULL_PARTITION: Final = "room for its partition"
FOR_OTHERS: Final = "records before it"
FOR_LOOP_BUDGET: Final = "the next turn of the loop"
# The task is being cancelled, and hears of that in the next event-loop iteration.
FOR_CANCELLATION: Final = "its cancellation"


class _HeldLock(Lock):
    """Is held at any time: pending sends change in synchronous code of one event loop, so no task has to wait for the lock."""

    def locked(self) -> bool:
        """Return True."""
        return True

    async def acquire(self) -> Literal[True]:
        """Return True, without a wait."""
        return True

    def release(self) -> None:
        """Do nothing."""


_LOCK: Final = _HeldLock()
# The pending send that each task waits for.
_waited_for: Final[dict[Task[Any] | None, PendingSend]] = {}


class PendingSend:
    """Holds a record that may have to wait, and the wait of its task. With `topic` None it is a mark, with no record.

    Attributes:
        asks: there is no record; the task waits for the topic alone.
        behind: the partition that the record stays with, because it was full. While it is full, the record waits for it alone.
        chosen: the topic routing that the user's partitioner was given, and the partition that it chose.
        unencoded: how the record is encoded (a `record_validation.Unencoded`), while its serializers are not prepared.
        window: in place of one record, rows of columns (a `column_batches.ColumnWindow`); opaque here.
        is_waiting: it is in a wait queue, not served and not cancelled.
        is_served: it has left its wait queue with a result.
        delivery: the result of the send, once the record is in a batch; opaque here.
        error: the error that it was given up with.
        on_left: called once when the pending send leaves its wait queue, with its delivery or with the error that ended it.
    """

    __slots__ = (
        "_condition",
        "_future",
        "asks",
        "behind",
        "chosen",
        "deadline",
        "delivery",
        "error",
        "headers",
        "is_served",
        "is_waiting",
        "key",
        "number",
        "on_left",
        "partition",
        "reason",
        "size",
        "timestamp_ms",
        "topic",
        "unencoded",
        "value",
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
    ) -> None:
        self.topic: str | None = topic
        self.value = value
        self.key = key
        self.partition: int | None = partition
        self.timestamp_ms: int | None = timestamp_ms
        self.headers: bytes = headers
        self.size: int = size
        self.asks: bool = asks
        self.unencoded: Unencoded | None = None
        self.window: Any = None
        self.behind: PartitionQueue | None = None
        self.chosen: tuple[TopicRouting, int] | None = None
        self.number: int = -1
        self.deadline: float = 0.0
        self.reason: str = ""
        self.is_waiting: bool = False
        self.is_served: bool = False
        self.delivery: Any = None
        self.error: Exception | None = None
        self.on_left: Callable[[Any, BaseException | None], object] | None = None
        # The condition that its task waits on, while it waits.
        self._condition: Condition | None = None
        self._future: Future[None] | None = None

    def join(self, number: int, reason: str, deadline: float) -> None:
        """Set what it waits for, before it joins a wait queue. Numbers grow in the order of the calls."""
        self.is_waiting = True
        self.number = number
        self.reason = reason
        self.deadline = deadline

    @property
    def is_record(self) -> bool:
        """Return whether there is a record: it is no mark, and does not wait for a topic alone."""
        return self.topic is not None and not self.asks

    @property
    def expects_cancellation(self) -> bool:
        """Return whether the record waits only for the next event-loop iteration, in which its task receives its cancellation."""
        return self.reason == FOR_CANCELLATION and self.is_record

    @property
    def is_aside(self) -> bool:
        """Return whether the record waits for its full partition alone."""
        return self.behind is not None and self.behind.is_full

    @property
    def waits_for_serializer(self) -> bool:
        """Return whether the serializers of the record are not prepared."""
        return self.unencoded is not None and not self.unencoded.encoding.is_prepared

    def encode(self) -> None:
        """Encode the record, whose serializers are prepared now. Raises an error of `send`."""
        if self.unencoded is not None:
            self.value, self.key, self.headers, self.size = self.unencoded.encode()
            self.unencoded = None

    def is_missing(self, routing: TopicRouting) -> bool:
        """Return whether the record names a partition that the topic does not have."""
        return self.partition is not None and self.partition >= len(routing.queues)

    async def wait(self) -> None:
        """Wait until it is served. Raises the error that it was given up with.

        Cancellation: it leaves its wait queue, unless it was served before that. In that case the task is cancelled at its next await.
        """
        task = current_task()
        before = task.cancelling() if task is not None else 0
        _waited_for[task] = self
        try:
            if not self.is_served:
                await self._notified()
        except BaseException as error:
            if not self.is_served or task is None or not isinstance(error, CancelledError):
                self.is_waiting = False
                self._report(None, error)
                raise
            get_running_loop().call_soon(_cancel_again, task, before, *error.args)
        finally:
            _waited_for.pop(task, None)
            # A cancelled pending send may stay in the deque for a while. It releases its bytes now.
            self._condition = self._future = self.value = self.key = self.window = self.behind = (
                self.unencoded
            ) = None
        if self.error is not None:
            raise self.error

    async def _notified(self) -> None:
        """Wait for the notification after it was served."""
        if self.reason == FOR_LOOP_BUDGET:
            self._future = get_running_loop().create_future()
            await self._future
        else:
            self._condition = Condition(_LOCK)
            while not self.is_served:
                await self._condition.wait()

    def complete(self, delivery: Any = None, error: Exception | None = None) -> None:
        """Serve it, as it has left its wait queue: set its result. The caller must call `notify` in the same step or later."""
        assert self.is_waiting
        self.is_waiting, self.is_served, self.chosen = False, True, None
        self.delivery, self.error = delivery, error
        self._report(delivery, error)

    def notify(self) -> None:
        """Schedule its task in the loop, if it waits."""
        if self._condition is not None:
            self._condition.notify()
        elif self._future is not None and not self._future.done():
            self._future.set_result(None)

    def _report(self, delivery: Any, error: BaseException | None) -> None:
        on_left, self.on_left = self.on_left, None
        if on_left is not None:
            on_left(delivery, error)


def _cancel_again(task: Task[Any], before: int, *message: object) -> None:
    """Deliver a cancellation that came after a pending send of `task` was served.

    Nothing happens if the task is done, or has no more cancellation requests than `before` its wait.
    """
    if task.done() or task.cancelling() <= before:
        return
    pending = _waited_for.get(task)
    if pending is not None:
        # It is too late for that one, too.
        if pending.is_served:
            get_running_loop().call_soon(_cancel_again, task, before, *message)
            return
        # It is not served any more before its task runs.
        pending.is_waiting = False
    task.cancel(*message)
    # The cancellation was requested once, and `cancel` has counted it again.
    task.uncancel()


class WaitQueue:
    """Holds pending sends in the order of their calls. Its methods skip the cancelled ones.

    Attributes:
        entries: the pending sends, with cancelled ones: if it is empty, none waits.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: deque[PendingSend] = deque()

    def __bool__(self) -> bool:
        return bool(self.entries) and self.head() is not None

    def __len__(self) -> int:
        return sum(pending.is_waiting for pending in self.entries)

    def __iter__(self) -> Iterator[PendingSend]:
        return (pending for pending in tuple(self.entries) if pending.is_waiting)

    def head(self) -> PendingSend | None:
        """Return the pending send that is served next, or None."""
        queue = self.entries
        while queue:
            if queue[0].is_waiting:
                return queue[0]
            queue.popleft()
        return None

    def push(self, pending: PendingSend) -> None:
        """Append a pending send at the end."""
        self.entries.append(pending)

    def merge(self, others: list[PendingSend]) -> None:
        """Insert the pending sends of another wait queue, each at its position in the order of the calls."""
        if not others:
            return
        if not self.entries or self.entries[-1].number < others[0].number:
            self.entries.extend(others)
            return
        # Only the later ones are merged. With many topics at once, each topic's pending sends come in the order of their calls, so the
        # earlier ones need not be touched.
        later: list[PendingSend] = []
        while self.entries and self.entries[-1].number > others[0].number:
            later.append(self.entries.pop())
        self.entries.extend(
            heapq.merge(reversed(later), others, key=lambda pending: pending.number)
        )

    def pop(self) -> PendingSend:
        """Remove the head and return it."""
        return self.entries.popleft()

    def take_all(self) -> list[PendingSend]:
        """Remove all pending sends and return them in order."""
        waiting = [pending for pending in self.entries if pending.is_waiting]
        self.entries.clear()
        return waiting
