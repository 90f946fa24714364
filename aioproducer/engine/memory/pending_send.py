"""Holds `PendingSend`: a send whose record is not in a batch yet, or whose task pauses.

1. The future `done` is the state: while it is not done, the send waits, or its task pauses. Cancelled, the send has left. Else its task may
   go on; its result is the delivery, or None after an error.
2. CancelledError means that the record is not queued. A cancellation that comes after the record was queued is too late: `wait` returns, and
   the task is cancelled at its next await, unless the code that requested the cancellation has withdrawn it (`uncancel`), as a time-out does.
3. The event loop appends the record, not the task (`Admission`), so nothing that a task does delays the sends behind it.
"""

from __future__ import annotations

from asyncio import CancelledError, current_task, get_running_loop
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from aioproducer.records.record_batch import NO_HEADERS

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Condition, Future, Task
    from collections import deque

    from aioproducer.core.partition_queues import PartitionQueue, TopicRouting
    from aioproducer.core.record_validation import Unencoded
    from aioproducer.engine.memory.buffer_pool import BufferPool

# What a send may wait for.
FOR_TOPIC: Final = "metadata of the topic"
FOR_PARTITION: Final = "the partition to exist"
FOR_SERIALIZER: Final = "a serializer to be prepared"
# Reasons for which a send waits in the queue of its topic.
FOR_METADATA: Final = (FOR_TOPIC, FOR_PARTITION, FOR_SERIALIZER)
FOR_MEMORY: Final = "buffer_memory"
FOR_FULL_PARTITION: Final = "room for its partition"
FOR_OTHERS: Final = "records before it"
FOR_LOOP_BUDGET: Final = "the next turn of the loop"
# The task is being cancelled, and hears of that in the next event-loop iteration.
FOR_CANCELLATION: Final = "its cancellation"

_numbers: Final = count()


class PendingSend:
    """Holds a record that may have to wait, and the wait of its task. Without a topic, its task only pauses until its next slice.

    Attributes:
        asks: there is no record; the task waits for the topic alone.
        behind: the partition that the record stays with, because it was full. While it is full, the record waits for it alone.
        chosen: the topic routing that the user's partitioner was given, and the partition that it chose.
        unencoded: how the record is encoded (a `record_validation.Unencoded`), while its serializers are not prepared.
        window: in place of one record, rows of columns (a `column_batches.ColumnWindow`); opaque here.
        delivery: the result of the send, once the record is in a batch; opaque here.
        error: the error that it was given up with.
        done: see the module; None: it does not wait, or its task has gone on.
        placed: is done once the record is in a batch, or will never be; made by a flush that covers the record.
        pool: where its task sleeps, if it joined the wait queue for memory; None: on `done`.
        condition: what its task sleeps on in `pool`.
    """

    __slots__ = (
        "asks",
        "behind",
        "chosen",
        "condition",
        "deadline",
        "delivery",
        "done",
        "error",
        "headers",
        "key",
        "number",
        "partition",
        "placed",
        "pool",
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
        topic: str,
        *,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: bytes = NO_HEADERS,
        size: int = 0,
        asks: bool = False,
    ) -> None:
        self.topic: str = topic
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
        self.delivery: Any = None
        self.error: Exception | None = None
        self.done: Future[Any] | None = None
        self.placed: Future[None] | None = None
        self.pool: BufferPool | None = None
        self.condition: Condition | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether the record is not in a batch, and the send is neither cancelled nor given up."""
        return self.delivery is None and self.done is not None and not self.done.done()

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

    def begin(self, loop: AbstractEventLoop, reason: str, deadline: float = 0.0) -> None:
        """Begin to wait. Numbers grow in the order of the calls."""
        self.number = next(_numbers)
        self.reason, self.deadline = reason, deadline
        self.done = loop.create_future()

    def settle(self, delivery: Any = None, error: Exception | None = None) -> None:
        """Set its result: the record is in a batch, or is given up. `go_on` follows, in the same step or later."""
        self.delivery, self.error = delivery, error
        self._on_placed()

    def go_on(self) -> None:
        """Let its task go on."""
        if self.done is not None and not self.done.done():
            self.done.set_result(self.delivery)
        if self.condition is not None:
            self.condition.notify()

    async def wait(self) -> Any:
        """Wait until the task may go on. Returns the delivery; raises the error that the send was given up with.

        Cancellation: the record is not queued. If it was queued or given up before that, the task is cancelled at its next await instead.
        """
        assert self.done is not None
        task = current_task()
        before = task.cancelling() if task is not None else 0
        try:
            await (self.done if self.pool is None else self.pool.wait(self))
        except BaseException as error:
            # Not `done`: it is not done yet if the record was queued, and may be cancelled although it was.
            is_over = self.delivery is not None or self.error is not None
            if not is_over or task is None or not isinstance(error, CancelledError):
                self.done.cancel()
                self._on_placed()
                raise
            # Without a new request it is one that came too late before.
            before = max(min(before, task.cancelling() - 1), 0)
            get_running_loop().call_soon(_cancel_again, task, before, *error.args)
            if not self.done.done():
                self.done.set_result(self.delivery)
            # It stays: `done` may be cancelled, and what follows that asks for it.
            delivery = self.delivery
        else:
            delivery, self.delivery = self.delivery, None
        finally:
            # A send that has left may stay in its queue for a while, and in that of deadlines. It releases its bytes now.
            self.value = self.key = self.window = self.behind = self.unencoded = None
            self.chosen = self.condition = self.done = None
        if self.error is not None:
            raise self.error
        return delivery

    def _on_placed(self) -> None:
        if self.placed is not None and not self.placed.done():
            self.placed.set_result(None)


def _cancel_again(task: Task[Any], before: int, *message: object) -> None:
    """Deliver a cancellation that came too late, unless it was withdrawn: then the task has no more requests than `before` its wait."""
    if not task.done() and task.cancelling() > before:
        task.cancel(*message)
        # It was requested once, and `cancel` has counted it again.
        task.uncancel()


def first(queue: deque[PendingSend]) -> PendingSend | None:
    """Return the first send of a wait queue that still waits; those before it are removed."""
    while queue:
        head = queue[0]
        # As `is_waiting`; each send asks several times.
        if head.delivery is None and (done := head.done) is not None and not done.done():
            return head
        del queue[0]
    return None


def sort_by_call(queue: deque[PendingSend]) -> None:
    """Sort a wait queue, after a send was added whose call was before those of others in it."""
    in_order = sorted(queue, key=attrgetter("number"))
    queue.clear()
    queue.extend(in_order)
