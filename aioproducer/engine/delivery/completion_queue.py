"""Notifies the callbacks and tasks that wait for ended batches, a bounded number in each event-loop iteration.

1. No user code runs inside `run`, which a connection may call from `data_received`, perhaps in a task of a dialer. Tasks are woken by
   `call_soon`, and callbacks are called from `_run`, which the loop calls.
2. The callbacks of a batch are called in the order of its records. Batches follow in the order of their ends.
3. If a callback raises a BaseException, the remaining callbacks are called in the next event-loop iteration. A callback may run the
   loop itself (`nest_asyncio`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.chosen_build import are_in_order, wake

if TYPE_CHECKING:
    from asyncio import Future, Handle
    from collections.abc import Iterator, Sequence
    from contextvars import Context

    from aioproducer.engine.delivery.produce_request_result import (
        Call,
        Calls,
        DeliveryContext,
        ProduceRequestResult,
    )
    from aioproducer.engine.sender.failed_batches import FailedBatches
    from aioproducer.engine.tasks.supervisor import GuardedLoop

# Seconds for callbacks in one event-loop iteration.
_SECONDS_PER_ITERATION: Final = 0.002
MAX_CALLBACKS_PER_ITERATION: Final = 2048
# A woken task takes as long as about eight callbacks.
MAX_WAKEUPS_PER_ITERATION: Final = 256
# A slice is called and timed at once, which costs as much as some five callbacks.
_CALLBACKS_PER_SLICE: Final = 64
_CALLBACKS_PER_LOOK_AT_THE_CLOCK: Final = 128


class _Waiters:
    """Holds the callbacks and tasks that still wait for the records of one batch, or of several that ended one after the other.

    Attributes:
        calls: the callbacks, by columns; None: the last slice of them was begun.
        rest: the callbacks left of the slice that was begun last; None: that slice has ended.
        futures: the futures of the tasks.
    """

    __slots__ = (
        "_callbacks",
        "_called",
        "_contexts",
        "_delivery_context",
        "_woken",
        "calls",
        "futures",
        "rest",
    )

    def __init__(
        self, delivery_context: DeliveryContext, calls: Calls | None, futures: list[Future[None]]
    ) -> None:
        self._delivery_context = delivery_context
        self.calls = calls
        self._called = 0
        self._contexts: Sequence[Context] = ()
        self._callbacks: Sequence[Any] = ()
        self.rest: Iterator[Call] | None = None
        self.futures = futures
        self._woken = 0

    def merge(self, calls: Calls | None, futures: list[Future[None]]) -> bool:
        """Append the callbacks and tasks of the next batch, if its callbacks can follow the callbacks here.

        Returns False if they cannot: tasks are woken last.
        """
        if self.calls is None or calls is None or self.futures:
            return False
        contexts, callbacks, deliveries = self.calls
        contexts += calls[0]
        callbacks += calls[1]
        deliveries += calls[2]
        self.futures = futures
        return True

    def call_slice(self) -> bool:
        """Call a slice of the callbacks, or what a BaseException left of one. Returns False if there is none."""
        if self.rest is None:
            if self.calls is None:
                return False
            some = slice(self._called, self._called + _CALLBACKS_PER_SLICE)
            contexts, callbacks, deliveries = self.calls
            self._contexts, self._callbacks = contexts[some], callbacks[some]
            self.rest = zip(self._contexts, self._callbacks, deliveries[some], strict=True)
            self._called += _CALLBACKS_PER_SLICE
            if self._called >= len(contexts):
                self.calls = None
        self._delivery_context.call_back(self._contexts, self._callbacks, self.rest)
        self.rest = None
        return True

    def wake(self, most: int) -> int:
        """Wake at most `most` tasks, through the loop. Returns how many."""
        some = self.futures
        if self._woken or len(some) > most:
            some = some[self._woken : self._woken + most]
        count = len(some)
        wake(some)
        self._woken += count
        return count

    @property
    def has_callbacks(self) -> bool:
        """Return whether callbacks are still to be called."""
        return self.calls is not None or self.rest is not None

    @property
    def is_over(self) -> bool:
        """Return whether no task waits any more. The callbacks have been called before."""
        return self._woken >= len(self.futures)


class CompletionQueue:
    """Holds the callbacks and tasks that wait for ended batches, in the order of the batches' ends.

    Attributes:
        failed_batches: hands the records of failed batches to the user's function; None: the user has none.
    """

    __slots__ = ("_due", "_is_held", "_loop", "_queue", "_sleeping", "failed_batches")

    def __init__(self, loop: GuardedLoop, failed_batches: FailedBatches | None = None) -> None:
        self.failed_batches: FailedBatches | None = failed_batches
        self._loop = loop
        self._queue: deque[_Waiters] = deque()
        self._due: Handle | None = None
        # Tasks that are not woken yet.
        self._sleeping = 0
        self._is_held = False

    def hold(self) -> None:
        """Schedule no loop callback for tasks that the next `run` wakes. The caller calls it, whatever happens."""
        self._is_held = True

    def add(self, result: ProduceRequestResult) -> None:
        """Queue the waiters of a batch that ended. They are notified at the next `run`, or in the next event-loop iteration."""
        if result.futures is not None or result.callbacks is not None:
            calls, futures = result.waiters(are_in_order)
            count = len(futures)
            if not self._queue or not self._queue[-1].merge(calls, futures):
                self._queue.append(_Waiters(result.delivery_context, calls, futures))
            result.futures = result.callbacks = None
            self._sleeping += count
            # Scheduled before any task is woken: the tasks that `_run` wakes then send in the same drain interval as those of `run`.
            if self._due is None and (
                not self._is_held or calls is not None or self._sleeping > MAX_WAKEUPS_PER_ITERATION
            ):
                self._schedule()

    def run(self) -> None:
        """Wake the tasks that wait, through the loop, up to the first batch with callbacks.

        Any code in the loop's thread may call this.
        """
        self._is_held = False
        left = MAX_WAKEUPS_PER_ITERATION
        while self._queue and left > 0 and not self._queue[0].has_callbacks:
            left -= self._wake_first(left)
        self._schedule()

    def restart(self) -> None:
        """Notify all that waits, because the producer ends: an exception may have broken off the call that was scheduled, or a `hold`."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self.run()

    def _run(self) -> None:
        self._due = None
        # The next event-loop iteration continues, also if a callback runs the loop itself, or ends it by a BaseException.
        self._schedule()
        until = self._loop.time() + _SECONDS_PER_ITERATION
        calls, wakeups = MAX_CALLBACKS_PER_ITERATION, MAX_WAKEUPS_PER_ITERATION
        while self._queue and wakeups > 0:
            while self._queue[0].call_slice():
                calls -= _CALLBACKS_PER_SLICE
                if calls <= 0 or (
                    not calls % _CALLBACKS_PER_LOOK_AT_THE_CLOCK and self._loop.time() > until
                ):
                    return
                # A callback that ran the loop itself may have emptied the queue.
                if not self._queue:
                    break
            else:
                wakeups -= self._wake_first(wakeups)
        self._schedule()

    def _wake_first(self, most: int) -> int:
        waiters = self._queue[0]
        count = waiters.wake(most)
        self._sleeping -= count
        if waiters.is_over:
            self._queue.popleft()
        return count

    def _schedule(self) -> None:
        """Schedule `_run` if the queue has waiters, and cancel it if not: that saves one loop callback for each answer."""
        if self._queue and self._due is None:
            self._due = self._loop.call_soon(self._run)
        elif not self._queue and self._due is not None:
            self._due.cancel()
            self._due = None
