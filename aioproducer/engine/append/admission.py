"""Admission of records: each is appended at once, or waits in a wait queue until it is appended or times out.

1. Records are appended in the order of their calls. A record that must wait becomes a pending send. It waits for its topic until
   metadata has it (`topics`), then in one wait queue for memory. While that wait queue holds a record, every later record joins it.
   With a circuit breaker, a record for a full partition waits in a wait queue of that partition alone (`partition_wait_queues`), and
   delays no other record. Nor does a send that waits for its next slice of the loop budget (`loop_budget_waiters`).
2. The wait queue holds the record, not its task. Once the record is appended, only the wake-up of the task is left. A send that is
   cancelled before that leaves no trace.

The `Appender` appends a record, or reports that it cannot.
"""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING, Final, Protocol

from aioproducer.engine.append.loop_budget_waiters import LoopBudgetWaiters
from aioproducer.engine.memory import wait_reasons
from aioproducer.engine.memory.buffer_pool import PendingSend, WaitQueue
from aioproducer.engine.memory.partition_wait_queues import PartitionWaitQueues
from aioproducer.engine.memory.wait_reasons import FOR_MEMORY, FOR_METADATA, FOR_OTHERS, FOR_PARTITION, FOR_SHARE, FOR_TOPIC, FOR_TURN
from aioproducer.engine.metadata.topic_waiters import TopicWaiters
from aioproducer.errors import PartitionUnavailable, UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator

    from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues, TopicRouting
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.chosen_build import FastPath
    from aioproducer.engine.append.loop_budget import LoopBudget
    from aioproducer.engine.delivery.chosen_build import Delivery
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.memory.partition_quota import PartitionQuota
    from aioproducer.engine.observability.metrics_recorder import Recorder
    from aioproducer.engine.tasks.deadline_timer import DeadlineTimer
    from aioproducer.engine.tasks.waiter import Waiter
    from aioproducer.errors import KafkaError

__all__ = ["Admission"]

# Seconds that one `serve` call spends on appending pending sends.
_TURN_SECONDS: Final = 0.002
# Records between two reads of the clock.
_STRIDE: Final = 16
# Pending sends that are served for each record that joins the memory wait queue.
_MOVED_UP: Final = 2


class SendGate(Protocol):
    """Lets records in while a transaction is open."""

    @property
    def is_open(self) -> bool:
        """Return whether records may be sent."""

    def on_refused(self, topic: str, error: BaseException | None) -> None:
        """Note that a record of the transaction was given up, and is not in it."""


class Admission:
    """Holds the pending sends of one producer: wait queues for topics, for memory and for full partitions.

    Args:
        way: the fast path of `send`; it is closed while the memory wait queue holds a record.
        loop_budget: bounds what sends append between two drains.
        pool, shares: `buffer_memory`, which error texts report, and the quota of it that a partition may hold.
        max_block_ms: milliseconds that a send waits at most.
        max_idle, want, trouble, on_known: passed on to `TopicWaiters`.
        is_plain: records take the fast path while no send waits.
        next_turn: schedules the event-loop iteration that drains batches and serves pending sends.
        alarm: makes a `DeadlineTimer`.
        meter: records the sends that waited.
        transaction: lets records in; None: the producer has no transactions.

    Attributes:
        topics: the wait queues of topics.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        way: FastPath,
        loop_budget: LoopBudget,
        partition_queues: PartitionQueues,
        pool: BufferPool,
        appender: Appender,
        shares: PartitionQuota,
        *,
        max_block_ms: float,
        max_idle: float,
        is_plain: bool,
        want: Callable[[str], None],
        trouble: Callable[[], KafkaError | None],
        on_known: Callable[[str], object],
        next_turn: Callable[[], None],
        alarm: Callable[[Callable[[], float | None], Callable[[float], None]], DeadlineTimer],
        meter: Recorder,
        transaction: SendGate | None,
    ) -> None:
        self._loop = loop
        self._meter = meter
        self._fast_path = way
        self._partition_queues = partition_queues
        self._pool = pool
        self._appender = appender
        self._shares = shares
        self._max_block_ms = max_block_ms
        self._is_plain = is_plain
        self._is_serving = False
        self._transaction = transaction
        # Memory was refused to the first pending send since `serve` was last called.
        self._is_short = False
        self._loop_budget = loop_budget
        self._next_turn = next_turn
        self._resting = LoopBudgetWaiters(loop, loop_budget, self._place_unplaced)
        self._line = WaitQueue()
        self._aside = PartitionWaitQueues()
        self.topics = TopicWaiters(
            loop,
            partition_queues,
            appender.is_missing,
            max_block=max_block_ms / 1000,
            max_idle=max_idle,
            want=want,
            trouble=trouble,
            on_known=on_known,
            admit=self._admit,
            give_up=self._give_up,
            turn=next_turn,
            meter=meter,
        )
        self._deadlines = WaitQueue()
        self._numbers = count()
        self._deadline_timer = alarm(self._next_deadline, self._on_deadline)

    # Submit

    def submit(self, record: PendingSend) -> Delivery | PendingSend:
        """Append a validated record, or queue it. Returns its delivery, or the pending send."""
        obstacle = self._try(record)
        if obstacle is None:
            assert record.delivery is not None
            delivery: Delivery = record.delivery
            return delivery
        if obstacle in FOR_METADATA:
            assert record.topic is not None
            return self._stand(self.topics.lot(record.topic), record, obstacle)
        if obstacle == FOR_TURN:
            return self._rest(record)
        if obstacle == FOR_MEMORY:
            self._flush_partial_batches()
        self._next_turn()
        if obstacle == FOR_SHARE:
            assert record.behind is not None
            return self._stand(self._aside.line(record.behind), record, obstacle)
        return self._park(record, FOR_MEMORY)

    def submit_nowait(self, record: PendingSend) -> Delivery:
        """Append a validated record. Returns its delivery, or raises WouldBlock.

        Metadata of an unknown topic is requested. The caller cannot wait, so it uses the next slice of the loop budget at once.
        """
        obstacle = self._try(record)
        if obstacle == FOR_TURN and self._loop_budget.may_go_on():
            obstacle = self._try(record)
        if obstacle is None:
            assert record.delivery is not None
            delivery: Delivery = record.delivery
            return delivery
        assert record.topic is not None
        if obstacle in FOR_METADATA:
            self.topics.ask(record.topic)
        elif obstacle == FOR_MEMORY:
            self._flush_partial_batches()
        raise wait_reasons.would_block(record.topic, obstacle)

    def _try(self, record: PendingSend) -> str | None:
        """Append `record`. Returns None, or the reason why it must wait."""
        assert record.topic is not None
        routing = self._partition_queues.routings.get(record.topic)
        if routing is None:
            return FOR_TOPIC
        # Checked before the memory wait queue: at its head the record would delay all others.
        if self._appender.is_missing(record, routing):
            return FOR_PARTITION
        record.behind = None
        if self._resting.unplaced is not None:
            self._place_unplaced()
        if self.has_line:
            self._move_up()
            if self.has_line:
                return FOR_OTHERS
        if self._loop_budget.must_pause():
            return FOR_TURN
        record.delivery = self._appender.place(record, routing)
        if record.delivery is None:
            return FOR_SHARE if record.is_aside else FOR_MEMORY
        self._next_turn()
        return None

    async def wait(self, parked: PendingSend) -> None:
        """Wait for a pending send. Raises the error that it is given up with.

        Cancellation: the record is not queued, and the pending sends behind it move up.
        """
        try:
            await parked.wait()
        except BaseException:
            self._release_marks()
            self._next_turn()
            raise

    async def rest(self) -> None:
        """Wait for the next slice of the loop budget."""
        await self.wait(self._rest(PendingSend(None)))

    async def routing(self, topic: str) -> TopicRouting:
        """Return the routing of `topic` once metadata has it. Waits as `wait` does."""
        if topic not in self._partition_queues.routings:
            await self.wait(self._stand(self.topics.lot(topic), PendingSend(topic, asks=True), FOR_TOPIC))
        routing = self._partition_queues.routings[topic]
        routing.used_at = self._loop.time()
        return routing

    # Wait queues

    def _rest(self, record: PendingSend) -> PendingSend:
        self._next_turn()
        # Were its record placed meanwhile, the task would send on, and perhaps never receive its cancellation.
        if self._loop_budget.taker_is_cancelled:
            return self._park(record, "")
        if record.topic is not None:
            self._fast_path.fast = {}
        self._number(record, "")
        self._resting.rest(record)
        return record

    def _place_unplaced(self) -> None:
        """Append the unplaced record before any later one. A record that cannot be appended joins the memory wait queue.

        A later call or the continuation of its own task places it.
        """
        record = self._resting.take()
        if record is not None:
            self._line.merge([record])
            first = self._aside.first(self._line)
            waiter = (
                self._serve_one(*first)
                if first is not None and first[1] is record and record.topic in self._partition_queues.routings
                else None
            )
            if waiter is not None:
                waiter.settle()
            else:
                self._wait_in_line(record)
        self._reopen()

    def _line_up(self) -> None:
        """Move the unplaced record into the memory wait queue, in call order."""
        record = self._resting.take()
        if record is not None:
            self._line.merge([record])
            self._wait_in_line(record)

    def _wait_in_line(self, record: PendingSend) -> None:
        assert record.waiter is not None
        self._resting.give_up(record.waiter)
        self._deadlines.push(record)
        self._deadline_timer.check()
        self._next_turn()

    def _park(self, record: PendingSend, reason: str) -> PendingSend:
        self._fast_path.fast = {}
        return self._stand(self._line, record, reason)

    def _stand(self, line: WaitQueue, record: PendingSend, reason: str) -> PendingSend:
        self._number(record, reason)
        line.push(record)
        # `head` removes the pending sends that have left.
        self._deadlines.head()
        self._deadlines.push(record)
        self._deadline_timer.check()
        return record

    def _number(self, record: PendingSend, reason: str) -> None:
        record.park(self._loop, next(self._numbers), reason, self._loop.time() + self._max_block_ms / 1000)

    def _flush_partial_batches(self) -> None:
        """Stop lingering, since memory is short: partial batches are sendable until no send waits for memory."""
        if not self._partition_queues.eager:
            self._meter.memory(self._loop.time(), is_short=True)
        self._partition_queues.eager = True
        self._partition_queues.flush_partial_batches()
        self._next_turn()

    def serve(self, *, goes_on: bool = False) -> None:
        """Append the pending sends in the memory wait queue in order, and wake their tasks.

        If that wait queue is empty and `goes_on` is true, the sends that wait for their next slice continue now. If `goes_on` is false,
        they continue in the next event-loop iteration, because this one has drained.
        """
        if not self.has_line:
            self._open()
            if goes_on:
                self.go_on()
            if self._resting.waiters:
                self._next_turn()
            return
        self._line_up()  # records in the wait queue may have been sent after the unplaced one
        self._is_short = False
        self._appender.serving_ms = self._appender.now_ms()
        try:
            self._serve()
            self._reopen()
            self._resting.go()
        finally:
            self._appender.serving_ms = 0
            if self._resting.waiters:
                self._next_turn()

    def go_on(self) -> None:
        """Wake the sends that wait for their next slice, without a drain before it."""
        self._appender.serving_ms = self._appender.now_ms()
        try:
            self._resting.go()
        finally:
            self._appender.serving_ms = 0

    def _serve(self) -> None:
        until, served = self._loop.time() + _TURN_SECONDS, 0
        while (first := self._aside.first(self._line)) is not None:
            line, record = first
            served += 1
            if self._loop_budget.is_spent or (not served % _STRIDE and self._loop.time() > until):
                self._next_turn()
                return
            if not self._serve_first(line, record):
                return

    def _move_up(self) -> None:
        """Serve two pending sends before another one joins the memory wait queue, so that it gets shorter however many join.

        Otherwise many tasks could wait forever, if their records are acknowledged as fast as an event-loop iteration serves pending
        sends. A record that waits costs ten times as much as one that does not.
        """
        for _ in range(_MOVED_UP):
            first = self._aside.first(self._line)
            if first is None or first[1].is_to_hear or self._is_short or self._is_serving or not self._serve_first(*first):
                break
        self._reopen()

    def _serve_first(self, line: WaitQueue, record: PendingSend) -> bool:
        """Serve the first pending send of `line`. Returns whether it no longer blocks those behind it."""
        # The topic was forgotten meanwhile: the record waits for its metadata again.
        if record.topic is not None and record.topic not in self._partition_queues.routings:
            line.pop()
            record.reason, record.behind = FOR_TOPIC, None
            self.topics.lot(record.topic).merge([record])
            return True
        waiter = self._serve_one(line, record)
        if waiter is None:
            return record.is_aside
        waiter.settle()
        self._resting.add(waiter)
        return True

    def _serve_one(self, line: WaitQueue, record: PendingSend) -> Waiter | None:
        """Append the first record of `line`, or give it up. Returns its waiter; None: it stays, or waits for its partition alone."""
        delivery: Delivery | None = None
        error: Exception | None = None
        if record.topic is not None:
            routing = self._partition_queues.routings[record.topic]
            # The user's partitioner may call `send`, too.
            self._is_serving = True
            try:
                delivery = self._appender.place(record, routing)
            except (UsageError, PartitionUnavailable) as refused:
                error = refused
            finally:
                self._is_serving = False
            if delivery is None and error is None and record.is_aside:
                record.reason = FOR_SHARE
                self._aside.step_aside(line, record)
                return None
            # The topic was created anew, with fewer partitions.
            if delivery is None and self._appender.is_missing(record, routing):
                record.reason = FOR_PARTITION
                error = self._overdue(record)
            if delivery is None and error is None:
                record.reason = FOR_MEMORY
                self._is_short = True
                if not self._partition_queues.eager:
                    self._flush_partial_batches()
                return None
        # The next event-loop iteration drains what was appended.
        self._next_turn()
        line.pop()
        if error is not None:
            self._tell_given_up(record, error)
        return record.leave(delivery, error)

    def _reopen(self) -> None:
        if not self.has_line:
            self._open()

    def _open(self) -> None:
        """Open the fast path, since no send waits for memory; sends may wait for a full partition alone, or for their next slice."""
        if self._partition_queues.eager:
            self._meter.memory(self._loop.time(), is_short=False)
            self._partition_queues.eager = False
        if self._is_plain and not self._resting.holds and (self._transaction is None or self._transaction.is_open):
            self._fast_path.fast = self._partition_queues.routings

    def gate(self) -> None:
        """Open the fast path if a transaction is open and no send waits, else close it."""
        self._fast_path.fast = {}
        self._reopen()

    # Partitions that hold as much as they may

    def freed(self, queue: PartitionQueue) -> None:
        """Notify the wait queues of partitions that may hold more, since `queue` holds less memory than before."""
        for eased in self._shares.eased(queue):
            self.rouse(eased)

    def rouse(self, queue: PartitionQueue) -> None:
        """Notify the wait queue of a partition: its records may be appended there or elsewhere."""
        if self._aside.rouse(queue):
            self._fast_path.fast = {}
            self._next_turn()

    def _admit(self, parked: list[PendingSend]) -> None:
        """Move the pending sends of a known topic into the memory wait queue."""
        # Merged by call order: a key in the memory wait queue may belong to a partition that earlier records waited for.
        self._line.merge(parked)
        if self.has_line:
            self._fast_path.fast = {}
        self._reopen()

    def _give_up(self, record: PendingSend, error: Exception) -> None:
        self._tell_given_up(record, error)
        record.leave(error=error if record.topic is not None else None).wake()

    def _tell_given_up(self, record: PendingSend, error: Exception) -> None:
        if record.topic is not None and not record.asks:
            self._meter.given_up(self._loop.time(), record.topic, error)
            if self._transaction is not None:
                self._transaction.on_refused(record.topic, error)

    # Deadlines and closing

    def _next_deadline(self) -> float | None:
        first = self._deadlines.head()
        return first.deadline if first is not None else None

    def _on_deadline(self, now: float) -> None:
        # A record that can be appended now is not given up.
        self.serve()
        while (record := self._deadlines.head()) is not None and record.deadline <= now:
            self._deadlines.pop()
            self._give_up(record, self._overdue(record))
        self._release_marks()
        self._next_turn()

    def _overdue(self, record: PendingSend) -> KafkaError:
        routing = self._partition_queues.routings.get(record.topic or "")
        return wait_reasons.late(record, self._pool, routing, self.topics.trouble(record.topic or ""), self._max_block_ms)

    def mark(self) -> list[PendingSend]:
        """Append a mark to every wait queue. Returns the marks; each is served once all records before it are."""
        self._line_up()
        marks = []
        for line in filter(None, self._lines()):
            mark = PendingSend(None)
            mark.park(self._loop, next(self._numbers), "", 0.0)
            line.push(mark)
            marks.append(mark)
        return marks

    def _release_marks(self) -> None:
        """Release the marks at the head of topic and partition wait queues: a flush need not wait for that topic or partition."""
        for lot in (*self._aside.lines(), *self.topics.lots()):
            while (record := lot.head()) is not None and record.topic is None:
                lot.pop().leave().wake()

    @property
    def is_bursting(self) -> bool:
        """Return whether a task that fills batches without pause continues in the next event-loop iteration, memory allowing."""
        return bool(self._resting.waiters)

    @property
    def has_line(self) -> bool:
        """Return whether a send waits for memory. Sends that wait for a slice, a topic or a partition alone do not count."""
        return bool(self._line) or self._aside.is_roused

    @property
    def waiting(self) -> int:
        """Return the number of records that wait."""
        return sum(record.is_record for record in self._everybody())

    def explain(self) -> list[str]:
        """Return the reasons why records wait, and the number of records for each."""
        return wait_reasons.told(self._everybody())

    def _everybody(self) -> Iterator[PendingSend]:
        resting = [self._resting.unplaced] if self._resting.unplaced is not None and self._resting.holds else []
        return chain(resting, *self._lines())

    def _lines(self) -> tuple[WaitQueue, ...]:
        return (self._line, *self._aside.lines(), *self.topics.lots())

    def shut(self) -> None:
        """Close the fast path for good; pending sends are still served."""
        self._fast_path.fast = {}
        self._is_plain = False

    def close(self, error: Callable[[], Exception]) -> None:
        """Close the fast path, and give up every pending send with what `error` returns."""
        self.shut()
        self._line_up()
        self._deadline_timer.stop()
        for line in self._lines():
            for record in line.take_all():
                self._give_up(record, error())
        self._resting.end()
        self.topics.clear()

    def drop(self, error: Callable[[], Exception]) -> None:
        """Give up the records that wait, with what `error` returns. A pending send that asks for a topic waits on."""
        self._line_up()
        for line in self._lines():
            for record in line.take_all():
                if record.asks:
                    line.push(record)
                else:
                    self._give_up(record, error())
        self._reopen()
