"""The loop budget: bounds the records, bytes and time of sends, and schedules the drains between which it counts them.

1. A slice is the work of one task until it must wait: `SLICE_RECORDS` records or `_SECONDS`, or less where several tasks wait for a slice.
   So a tight loop of sends blocks no other task. A task that computes between its sends lets the event loop write its records to brokers.
   The clock is read after at most 16 records, then after as many more as the pace so far allows, but no more than were sent so far.
2. A send whose slice is over appends its record, and its task pauses until its next slice. Such tasks go on in order, a few in each
   event-loop iteration (`Pauses`). So several tight loops of sends share the event loop, and leave time for other tasks.
3. While requests wait behind the one that the BatchCompressor encodes, it holds the loop budget: no send is woken. So a task that sends more
   than is compressed waits in `send`, as in Java: there `send` itself compresses.
4. A drain interval contains all that is appended before the event loop makes requests of it: one slice, or several
   (`core/drain_policy.py`). The first send of an event-loop iteration schedules the drain that ends it (`DrainSchedule`).
"""

from __future__ import annotations

from asyncio import current_task, get_running_loop
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.chosen_build import SLICE_BYTES, SLICE_RECORDS, FastPath, here

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable

    from aioproducer.engine.memory.pending_send import PendingSend
    from aioproducer.engine.sender.sender import Sender
    from aioproducer.engine.tasks.supervisor import GuardedLoop
    from aioproducer.net.cluster import BrokerNode

# Records of a whole slice.
MAX_SLICE_RECORDS: Final = SLICE_RECORDS
# Slices after which a drain interval is full.
_SLICES: Final = 4
# Seconds of a slice, with the work of the task between its sends. A record waits for the end of its slice, and its answer for the end of the
# next one. With 2 ms, a loop that computes 10 us a record has 2.5 times the p50 and twice the p99, and sends 7 % more.
_SECONDS: Final = 0.001
# Records on the fast path before the first read of the clock; fewer if the last slice had fewer.
_FIRST: Final = 16
# Records of a part of a slice, where several tasks wait: a wait costs as much as some ten records.
_LEAST: Final = 128
# Tasks woken in one event-loop iteration: each runs user code.
MAX_WAKEUPS_PER_ITERATION: Final = 16


class LoopBudget:
    """Holds the budget of the current drain interval and slice.

    Args:
        fast_path: counts the records.

    Attributes:
        spent: bytes that batches took in this drain interval.
        slices: slices of this drain interval that are over.
        is_held: True while no task gets its next slice.
    """

    __slots__ = (
        "_asked_at",
        "_before",
        "_began_at",
        "_count",
        "_fast_path",
        "_first",
        "_looked_at",
        "_loop",
        "_most",
        "_pauses",
        "_seconds",
        "_spent_before",
        "_taker",
        "is_held",
        "slices",
        "spent",
    )

    def __init__(self, loop: AbstractEventLoop, fast_path: FastPath) -> None:
        self._loop = loop
        self._fast_path = fast_path
        # The answer to the task that asked last.
        self._pauses = False
        # The count of records at that time.
        self._asked_at = -1
        self.spent: int = 0
        self.slices: int = 0
        self.is_held: bool = False
        self._before = 0
        self._first = _FIRST
        self.share(1)

    def new(self, now: float) -> None:
        """Begin a drain interval."""
        self.spent = self.slices = self._before = self._spent_before = 0
        self._begin(None, now)

    def spend(self, size: int) -> None:
        """Count the bytes that a batch took."""
        self.spent += size

    def end_slice(self) -> None:
        """Count a slice that is over."""
        self.slices += 1

    def hold(self, *, is_held: bool) -> bool:
        """Give no task its next slice while `is_held` is True. Returns True if this call ended a hold."""
        was_held, self.is_held = self.is_held, is_held
        return was_held and not is_held

    def share(self, tasks: int) -> None:
        """Divide a slice among tasks that waited and continue at the same time: each gets its part."""
        self._most = max(MAX_SLICE_RECORDS // tasks, min(_LEAST, MAX_SLICE_RECORDS))
        self._seconds = _SECONDS / tasks
        self._spent_before = self.spent
        self._begin(None, self._loop.time())

    def _begin(self, task: Task[Any] | None, now: float) -> None:
        self._taker, self._pauses = task, False
        self._count = 0
        self._began_at = now
        # The fast path asks when it has taken `SLICE_RECORDS`.
        self._looked_at = self._asked_at = self._fast_path.taken = SLICE_RECORDS - min(
            self._first, self._most
        )

    def end(self) -> None:
        """End this drain interval, regardless of its bytes: the task continues in the next one."""
        self.spent = max(self.spent, self._spent_before + SLICE_BYTES + 1)

    @property
    def is_full(self) -> bool:
        """Return whether the bytes or slices of this drain interval suffice for a drain, where records linger."""
        return self.spent > SLICE_BYTES or self.slices >= _SLICES

    @property
    def is_spent(self) -> bool:
        """Return whether this slice has appended enough, by bytes, by records or by time."""
        if self.spent - self._spent_before > SLICE_BYTES:
            return True
        if self._fast_path.taken <= SLICE_RECORDS:
            return False
        self._count += self._fast_path.taken - self._looked_at
        seconds = self._loop.time() - self._began_at
        more = min(self._most - self._count, self._count)
        if seconds > 0:
            more = min(more, int(self._count * (self._seconds / seconds - 1)))
        if more <= 0:
            self._looked_at = self._fast_path.taken
            self._first = (
                max(min(_FIRST, int(self._count * self._seconds / seconds)), 1)
                if seconds > 0
                else _FIRST
            )
            return True
        self._looked_at = self._asked_at = self._fast_path.taken = SLICE_RECORDS - more
        return False

    def may_go_on(self) -> bool:
        """Begin another slice at once, if the drain interval has one left. Returns whether it did.

        Callers that cannot wait use it, whatever time their slices take.
        """
        self._before += self._count + self._fast_path.taken - self._looked_at
        if self.spent > SLICE_BYTES or self._before >= _SLICES * MAX_SLICE_RECORDS:
            return False
        self._begin(None, self._loop.time())
        return True

    def must_pause(self) -> bool:
        """Return whether the current task has sent a whole slice without a wait.

        A task that sends once and then awaits lets the event loop run, so it need not wait for a slice as well.
        One send asks up to three times, and gets the same answer, because it has appended nothing in between.
        """
        task = current_task(self._loop)
        if task is not self._taker:
            self._begin(task, self._loop.time())
        elif self._fast_path.taken != self._asked_at:
            self._pauses = self.is_spent
            self._asked_at = self._fast_path.taken
        return self._pauses

    def goes_on(self) -> bool:
        """Return whether the fast path takes more than `SLICE_RECORDS` in this slice. It does not from a task that must pause."""
        return not self.must_pause()


class DrainSchedule:
    """Holds whether a drain is scheduled. The parts that schedule drains are made before the Sender, which needs them.

    Args:
        fast_path: the fast path of `send`, which asks for the time once in each drain interval.
        loop_budget: bounds what sends append in a drain interval.
        now_ms: returns the time for a record's timestamp.
        find_fault: raises the error that forbids any call now.

    Attributes:
        fast_path, loop_budget: as given.
        is_due: a drain is scheduled.
        due_since: the time at which it was scheduled, before it was put off.
    """

    __slots__ = (
        "_find_fault",
        "_loop",
        "_now_ms",
        "_running",
        "_sender",
        "due_since",
        "fast_path",
        "is_due",
        "loop_budget",
    )
    _sender: Sender

    def __init__(
        self,
        loop: GuardedLoop,
        fast_path: FastPath,
        loop_budget: LoopBudget,
        now_ms: Callable[[], int],
        find_fault: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._running = get_running_loop()
        self.fast_path: FastPath = fast_path
        self._now_ms = now_ms
        self._find_fault = find_fault
        self.loop_budget: LoopBudget = loop_budget
        self.is_due: bool = False
        self.due_since: float = 0.0

    def drain_by(self, sender: Sender) -> None:
        """Have the Sender called from now on."""
        self._sender = sender

    def tick(self) -> int:
        """Schedule a drain at the first send of an event-loop iteration. Returns the time of that iteration in ms.

        Raises:
            ProducerClosed: as `check` does.
        """
        self.check()
        self.turn()
        now_ms = self.fast_path.turn_ms = self._now_ms()
        return now_ms

    def check(self) -> None:
        """Raise ProducerClosed unless the producer runs, and in this event loop: `fast_path.here` may be the thread alone.

        The loop itself is looked at once an iteration: CPython 3.11 takes 250 ns for that, and with interceptors every send comes here.
        """
        fast_path = self.fast_path
        try:
            is_here = here() == fast_path.here and (
                fast_path.turn_ms > 0 or get_running_loop() is self._running
            )
        # No loop runs in this thread.
        except RuntimeError:
            is_here = False
        if not is_here:
            self._find_fault()

    def turn(self) -> None:
        """Schedule a drain for the next event-loop iteration, which also serves the pending sends."""
        if not self.is_due:
            self.due_since = self._loop.time()
            # The flag last, as a signal handler may raise here, in a step of the user's: two drains are harmless, none is not.
            self._loop.call_soon(self._sender.on_turn)
            self.is_due = True

    def put_off(self) -> None:
        """Put the drain of this event-loop iteration off until the next one."""
        self._loop.call_soon(self._sender.on_turn)

    def hold(self, *, is_held: bool) -> None:
        """Give no task its next slice while `is_held` is True. At the end of a hold, schedule the drain that wakes the tasks."""
        if self.loop_budget.hold(is_held=is_held):
            self.turn()

    def begin(self, now: float) -> None:
        """Begin a drain interval."""
        self.is_due = False
        self.fast_path.turn_ms = 0
        self.loop_budget.new(now)

    def on_node(self, node: BrokerNode) -> None:
        """Drain for a broker after its connections changed."""
        self._sender.on_node(node)


class Pauses:
    """Holds the sends whose tasks go on in one of the next event-loop iterations, in order: at most 16 in one, which share one slice.

    They have used up their slice, or have waited in the wait queue of the pool. Their records are queued: if a task were woken before the
    next record of that queue is appended, its next send would wait behind that record.

    Attributes:
        waiting: the sends.
    """

    __slots__ = ("_loop_budget", "waiting")

    def __init__(self, loop_budget: LoopBudget) -> None:
        self._loop_budget = loop_budget
        self.waiting: deque[PendingSend] = deque()

    @property
    def are_due(self) -> bool:
        """Return whether `wake` has tasks to wake."""
        return bool(self.waiting) and not self._loop_budget.is_held

    def wake(self) -> None:
        """Wake the next tasks. Each gets its part of a slice, which begins when the task runs."""
        if self.are_due:
            self._loop_budget.end_slice()
            count = min(len(self.waiting), MAX_WAKEUPS_PER_ITERATION)
            self._loop_budget.share(count)
            self._wake(count)

    def wake_all(self) -> None:
        """Wake all tasks, regardless of the loop budget."""
        self._wake(len(self.waiting))

    def _wake(self, count: int) -> None:
        for _ in range(count):
            self.waiting[0].go_on()
            del self.waiting[0]
