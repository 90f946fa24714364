"""Admission of records: each is appended at once, or waits in a wait queue until it is appended or times out.

1. `BufferPool.waiters` is the wait queue. While a send waits in it, every later send joins it. The event loop appends its records in the
   order of the calls while memory lasts (`serve`), then lets their tasks go on. It is not the task that appends, because three things exclude
   each other as soon as two tasks send in loops: log order is call order; a record that waited is appended by its own task; a task sends
   more than one record for each time that it is woken.
2. A record whose topic is not known, whose partition does not exist or whose serializers are not prepared waits in the queue of its topic
   (`topics`). Once that ends, the record joins the end of the wait queue. With a circuit breaker, a record for a full partition waits in a
   queue of that partition alone (`BufferPool.full_partitions`), and returns to the head.
3. A send whose slice of the loop budget is over appends its record, and its task pauses afterwards, as do the tasks of the sends that
   `serve` has served. A cancellation during that is too late for the record (`PendingSend`), so a pause needs no place in a queue.
4. Nothing is removed from the middle of a queue: a send that has left stays until it is first.

The `Appender` appends a record, or reports that it cannot.
"""

from __future__ import annotations

from asyncio import current_task, get_running_loop
from collections import deque
from typing import TYPE_CHECKING, Final

from aioproducer.engine.append.loop_budget import Pauses
from aioproducer.engine.append.preparations import Preparations
from aioproducer.engine.memory import wait_reasons
from aioproducer.engine.memory.pending_send import (
    FOR_CANCELLATION,
    FOR_FULL_PARTITION,
    FOR_LOOP_BUDGET,
    FOR_MEMORY,
    FOR_METADATA,
    FOR_OTHERS,
    FOR_PARTITION,
    FOR_SERIALIZER,
    FOR_TOPIC,
    PendingSend,
    first,
    sort_by_call,
)
from aioproducer.engine.metadata.topic_waiters import TopicWaiters
from aioproducer.engine.tasks.supervisor import DeadlineTimer
from aioproducer.errors import PartitionUnavailable, UsageError
from aioproducer.interfaces import USER_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized

    from aioproducer.core.metadata.metadata_schedule import MetadataSchedule, TopicExpiry
    from aioproducer.core.partition_queues import PartitionQueue
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.loop_budget import DrainSchedule, LoopBudget
    from aioproducer.engine.chosen_build import Delivery, FastPath
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.transactions.transaction_gate import TransactionGate
    from aioproducer.errors import KafkaError

# Seconds that one `serve` call spends on appending pending sends.
_SERVING_SECONDS: Final = 0.002
# Records between two reads of the clock.
_STRIDE: Final = 16
# Pending sends that are served for each record that joins the wait queue.
_SERVED_PER_JOIN: Final = 2


class Admission:
    """Admits the records of one producer: decides whether each is appended now or where it waits, and serves those that wait.

    Args:
        fast_path: the fast path of `send`.
        loop_budget: bounds what sends append between two drains.
        appender: appends records; its pool is `buffer_memory`.
        metadata: is asked for the metadata of topics.
        expiry: learns of each topic that is known.
        drains: schedules the event-loop iteration that drains batches and serves pending sends.
        transaction: lets records in; None: the producer has no transactions.

    Attributes:
        topics: the wait queues of topics.
        continuing: the sends whose tasks continue in one of the next event-loop iterations. While there are any, some task fills batches
            without pause.
        preparations: prepares the serializers that sends wait for.
    """

    def __init__(
        self,
        context: EngineContext,
        fast_path: FastPath,
        loop_budget: LoopBudget,
        appender: Appender,
        metadata: MetadataSchedule,
        expiry: TopicExpiry,
        drains: DrainSchedule,
        transaction: TransactionGate | None,
    ) -> None:
        self._loop = context.loop
        # Futures and tasks are of the loop itself; to ask for it each time takes 250 ns on CPython 3.11.
        self._running = get_running_loop()
        self._fast_path = fast_path
        self._loop_budget = loop_budget
        self._appender = appender
        self._partition_queues = appender.partition_queues
        self._pool = appender.pool
        self._waiters = appender.pool.waiters
        self._drains = drains
        self._recorder = context.instruments.recorder
        self._transaction = transaction
        self._max_block_ms = context.config.max_block_ms
        # Records may take the fast path while no send waits.
        self._may_be_fast = appender.may_be_fast
        # The user's partitioner, which is called for a pending send, may call `send`, too.
        self._is_placing = False
        # Memory was refused to the first pending send since `serve` was last called.
        self._is_short = False
        self._pauses = Pauses(loop_budget)
        self.continuing: Sized = self._pauses.waiting
        # All pending sends in the order of their deadlines, as all wait equally long. Some may have left.
        self._deadlines: deque[PendingSend] = deque()
        self._timer = DeadlineTimer(
            context.loop, self._next_deadline, self._on_deadline, is_patient=True
        )
        self.topics: TopicWaiters = TopicWaiters(
            context, self._partition_queues, metadata, expiry, drains, self
        )
        self.preparations: Preparations = Preparations(
            context, self.topics.is_waiting_for, self.topics.on_prepared
        )

    # A new record

    def submit(self, pending: PendingSend) -> Delivery | PendingSend:
        """Append a validated record, or let it wait. Returns its delivery, or the send that waits or whose task pauses."""
        # As `step` does. Its call would cost a twentieth of a send that waits.
        try:
            obstacle = self._obstacle(pending)
            if obstacle is None:
                must_pause = self._loop_budget.must_pause()
                # Were the record of a cancelled task appended, the task would send on, and perhaps never receive its cancellation.
                if must_pause and self._is_cancelled():
                    return self.wait_for(FOR_CANCELLATION, pending)
                delivery = self._place(pending)
                if delivery is not None:
                    return self._paused(pending, delivery) if must_pause else delivery
                obstacle = FOR_FULL_PARTITION if pending.is_aside else FOR_MEMORY
            return self.wait_for(obstacle, pending)
        except USER_FAILURES:
            raise
        except BaseException as error:
            self._loop.fail(error)
            raise

    def submit_nowait(self, pending: PendingSend) -> Delivery:
        """Append a validated record. Returns its delivery, or raises WouldBlock.

        Metadata of an unknown topic is requested. The caller cannot wait, so it uses the next slice of the loop budget at once.
        """
        delivery: Delivery = self._loop.step(self._submit_nowait, pending)
        return delivery

    def _submit_nowait(self, pending: PendingSend) -> Delivery:
        obstacle = self._obstacle(pending)
        if (
            obstacle is None
            and self._loop_budget.must_pause()
            and not self._loop_budget.may_go_on()
        ):
            obstacle = FOR_LOOP_BUDGET
        if obstacle is None:
            delivery = self._place(pending)
            if delivery is not None:
                return delivery
            obstacle = FOR_FULL_PARTITION if pending.is_aside else FOR_MEMORY
        if pending.unencoded is not None:
            self.preparations.begin(pending.unencoded.encoding)
        if obstacle in (FOR_TOPIC, FOR_PARTITION):
            self.topics.ask(pending.topic)
        elif obstacle == FOR_MEMORY:
            self._flush_partial_batches()
        raise wait_reasons.would_block(pending, obstacle)

    def _obstacle(self, pending: PendingSend) -> str | None:
        """Return what a new record has to wait for before memory is taken for it; None: nothing."""
        routing = self._partition_queues.routings.get(pending.topic)
        if routing is None:
            return FOR_TOPIC
        # Checked before the wait queue: at its head the record would delay all others.
        if pending.is_missing(routing):
            return FOR_PARTITION
        if pending.unencoded is not None or (
            self.topics.held and pending.topic in self.topics.held
        ):
            return FOR_SERIALIZER
        if self._pool.has_waiting:
            self._serve_some()
            if self._pool.has_waiting:
                return FOR_OTHERS
            self._update_fast_path()
        return None

    def _place(self, pending: PendingSend) -> Delivery | None:
        # First: a record that was appended must not be without a drain.
        self._drains.turn()
        return self._appender.place(pending, self._partition_queues.routings[pending.topic])

    def _paused(self, pending: PendingSend, delivery: Delivery | None) -> PendingSend:
        """Let the task of a send pause until its next slice."""
        pending.begin(self._running, FOR_LOOP_BUDGET)
        pending.delivery = delivery
        self._pauses.waiting.append(pending)
        self._drains.turn()
        return pending

    def next_slice(self) -> PendingSend:
        """Return a send without a record, whose task pauses until its next slice."""
        return self._paused(PendingSend(""), None)

    def _is_cancelled(self) -> bool:
        task = current_task(self._running)
        return task is not None and task.cancelling() > 0

    def wait_for(self, obstacle: str, pending: PendingSend) -> PendingSend:
        """Let a new record wait for its obstacle. Returns it."""
        deadline = self._loop.time() + self._max_block_ms / 1000
        pending.begin(self._running, obstacle, deadline)
        if obstacle in FOR_METADATA:
            if obstacle == FOR_SERIALIZER:
                self.topics.hold(pending)
                self._update_fast_path()
            else:
                self.topics.join(pending)
        elif obstacle == FOR_FULL_PARTITION:
            self._wait_aside(pending)
            self._drains.turn()
        else:
            # Where its task sleeps: a cancellation takes effect on a future at once, on a condition in the next event-loop iteration.
            if self._is_cancelled():
                pending.reason = FOR_CANCELLATION
            else:
                pending.reason, pending.pool = FOR_MEMORY, self._pool
            self._waiters.append(pending)
            self._update_fast_path()
            if obstacle == FOR_MEMORY:
                self._flush_partial_batches()
            self._drains.turn()
        # Removes those that have left.
        first(self._deadlines)
        self._deadlines.append(pending)
        self._timer.check()
        # Last: an eager task may end within this call, and it serves only the sends that wait.
        if pending.unencoded is not None:
            self.preparations.begin(pending.unencoded.encoding)
        return pending

    def _wait_aside(self, pending: PendingSend) -> None:
        """Let a record wait for its full partition alone."""
        assert pending.behind is not None
        aside = self._pool.full_partitions.setdefault(pending.behind, deque())
        is_late = bool(aside) and aside[-1].number > pending.number
        aside.append(pending)
        # One without a key may have waited for another partition before.
        if is_late:
            sort_by_call(aside)

    async def wait(self, pending: PendingSend) -> Delivery:
        """Wait for a send. Returns its delivery. Cancellation: the record is not queued, and the sends behind it move up."""
        try:
            delivery: Delivery = await pending.wait()
        # It has left, mostly by a cancellation: the sends behind it go on.
        except BaseException:
            self.topics.on_left(pending)
            self._drains.turn()
            raise
        return delivery

    # The fast path

    def _update_fast_path(self, *, none_waits: bool = False) -> None:
        """Open the fast path if no send is to be served before a new one, else close it. Once none waits, batches may linger again.

        `none_waits`: the caller has just asked, and no send waits for memory.
        """
        has_waiting = not none_waits and self._pool.has_waiting
        if self._partition_queues.ready.memory_is_short and not has_waiting:
            self._recorder.memory(self._loop.time(), is_short=False)
            self._partition_queues.linger_again()
        is_open = self._may_be_fast and not has_waiting and not self.topics.held
        if self._transaction is not None:
            is_open = is_open and self._transaction.is_open
        self._fast_path.fast = self._partition_queues.routings if is_open else {}

    def gate(self) -> None:
        """Open the fast path if a transaction is open and no send waits, else close it."""
        self._update_fast_path()

    def _flush_partial_batches(self) -> None:
        """Stop lingering, since memory is short: partial batches are sendable until no send waits for memory."""
        if not self._partition_queues.ready.memory_is_short:
            self._recorder.memory(self._loop.time(), is_short=True)
        self._partition_queues.flush_partial_batches()
        self._drains.turn()

    # Serving

    def serve(self) -> None:
        """Append the pending sends in order while memory lasts, and let their tasks go on."""
        if not self._pool.has_waiting:
            self.on_none_waiting()
            return
        self._is_short = False
        until, served = self._loop.time() + _SERVING_SECONDS, 0
        self._appender.serve_at(self._appender.now_ms())
        try:
            while (pending := first(self._waiters)) is not None:
                served += 1
                # This event-loop iteration has served enough.
                if self._loop_budget.is_spent or (
                    not served % _STRIDE and self._loop.time() > until
                ):
                    self._drains.turn()
                    break
                if not self._serve_first(pending):
                    break
            self._pauses.wake()
        finally:
            self._appender.serve_at(0)
        if self._pauses.are_due:
            self._drains.turn()
        self._update_fast_path()

    def on_none_waiting(self, *, goes_on: bool = False) -> None:
        """Open the fast path, and let the tasks that pause go on: no send waits for memory now.

        If `goes_on` is true, they continue now. If it is false, they continue in the next event-loop iteration, because this one has
        drained.
        """
        self._update_fast_path(none_waits=True)
        if goes_on:
            self.go_on()
        if self._pauses.are_due:
            self._drains.turn()

    def go_on(self) -> None:
        """Let the tasks that pause go on, without a drain before it."""
        self._pauses.wake()

    def _serve_some(self) -> None:
        """Serve two pending sends before another one joins the wait queue, so that it gets shorter however many join.

        Otherwise many tasks could wait forever, if their records are acknowledged as fast as an event-loop iteration serves pending
        sends. A record that waits costs ten times as much as one that does not.
        """
        for _ in range(_SERVED_PER_JOIN):
            pending = first(self._waiters)
            if (
                pending is None
                or pending.reason == FOR_CANCELLATION
                or self._is_short
                or self._is_placing
                or not self._serve_first(pending)
            ):
                break

    def _serve_first(self, pending: PendingSend) -> bool:
        """Append the record at the head of the wait queue, or move it to another queue, or give it up. Returns False if it waits on."""
        if pending.reason == FOR_CANCELLATION:
            # Once: in the next event-loop iteration its task has received its cancellation, or has withdrawn it.
            pending.reason = FOR_OTHERS
            self._drains.turn()
            return False
        routing = self._partition_queues.routings.get(pending.topic)
        if routing is None:
            self._ask_again(pending.topic)
            return True
        self._is_placing = True
        try:
            pending.encode()
            delivery = self._appender.place(pending, routing)
        except (UsageError, PartitionUnavailable) as refused:
            self.give_up(pending, refused)
            return True
        finally:
            self._is_placing = False
        if delivery is not None:
            pending.settle(delivery)
            self._pauses.waiting.append(pending)
            # Not before: each event-loop iteration would try a record again that waits for memory.
            self._drains.turn()
        elif pending.is_aside:
            self._waiters.popleft()
            pending.reason = FOR_FULL_PARTITION
            self._wait_aside(pending)
        # The topic was created anew, with fewer partitions.
        elif pending.is_missing(routing):
            pending.reason = FOR_PARTITION
            self.give_up(pending, self._overdue(pending))
        else:
            pending.reason = FOR_MEMORY
            self._is_short = True
            if not self._partition_queues.ready.memory_is_short:
                self._flush_partial_batches()
            return False
        return True

    def _ask_again(self, topic: str) -> None:
        """Let the sends to a topic that was forgotten meanwhile wait for its metadata again: all, as they join the end after that."""
        waiters = list(self._waiters)
        again = [pending for pending in waiters if pending.topic == topic]
        for pending in again:
            pending.reason, pending.behind = FOR_TOPIC, None
        self.topics.join_again(topic, again)
        self._waiters.clear()
        self._waiters.extend(pending for pending in waiters if pending.topic != topic)

    # Events

    def admit(self, pending: list[PendingSend], *, grows: bool) -> None:
        """Move sends that no longer wait for their topic to the end of the wait queue.

        `grows`: they waited for a partition of a known topic. A record behind them may have a key of that partition, and a later call.
        """
        self._waiters.extend(pending)
        if grows and pending:
            sort_by_call(self._waiters)
        self._update_fast_path()

    def freed(self, queue: PartitionQueue | None = None) -> None:
        """Serve the sends for partitions that may hold more, since more is free. `queue`: the one that holds less than before."""
        if self._appender.shares is not None:
            for eased in self._appender.shares.eased(queue):
                self.notify(eased)

    def notify(self, queue: PartitionQueue) -> None:
        """Move the sends for a full partition to the head of the wait queue: they may be appended there or elsewhere."""
        aside = self._pool.full_partitions.pop(queue, None)
        if aside is not None and first(aside) is not None:
            is_mixed = bool(self._waiters) and self._waiters[0].number < aside[-1].number
            self._waiters.extendleft(reversed(aside))
            # The head is of another partition, and what has no key may go to this one.
            if is_mixed:
                sort_by_call(self._waiters)
            self._update_fast_path()
            self._drains.turn()

    # Deadlines, and the end

    def _next_deadline(self) -> float | None:
        pending = first(self._deadlines)
        return pending.deadline if pending is not None else None

    def _on_deadline(self, now: float) -> None:
        # A record that can be appended now is not given up.
        self.serve()
        while (pending := first(self._deadlines)) is not None and pending.deadline <= now:
            self.give_up(pending, self._overdue(pending))
            self.topics.on_left(pending)
        self._drains.turn()

    def _overdue(self, pending: PendingSend) -> KafkaError:
        """Return the error of a send that waited for `max_block_ms`."""
        return wait_reasons.late(
            pending,
            self._pool,
            self._partition_queues.routings.get(pending.topic),
            self.topics.trouble(pending.topic),
            self._max_block_ms,
        )

    def give_up(self, pending: PendingSend, error: Exception) -> None:
        """End a send that waits, with `error`."""
        if not pending.asks:
            self._recorder.given_up(self._loop.time(), pending.topic, error)
            if self._transaction is not None:
                self._transaction.on_refused(pending.topic, error)
        pending.settle(error=error)
        pending.go_on()

    def shut(self) -> None:
        """Close the fast path for good, and have every new send refused; pending sends are still served."""
        self._may_be_fast = False
        self._fast_path.here = None
        self._update_fast_path()

    def close(self, event: str) -> None:
        """Close the fast path, and give up every pending send, because the producer ends by this event."""
        # Before `first` drops one that was appended just before KeyboardInterrupt, and is not among those that pause. What was on its way from
        # one queue to another then has a deadline.
        sends = [*self._sends(), *self._deadlines]
        self.shut()
        self._timer.stop()
        for pending in sends:
            if pending.is_waiting:
                self.give_up(pending, wait_reasons.closed(pending, event))
            pending.go_on()
        self._pauses.wake_all()
        self.topics.clear()

    def drop(self, error: Callable[[], Exception]) -> None:
        """Give up the records that wait, with what `error` returns. A pending send that asks for a topic waits on."""
        for pending in self.waiting_sends():
            if not pending.asks:
                self.give_up(pending, error())
        self.topics.release_all()
        self._update_fast_path()

    # What waits

    def waiting_sends(self) -> list[PendingSend]:
        """Return the sends that wait."""
        return [pending for pending in self._sends() if pending.is_waiting]

    def _sends(self) -> Iterable[PendingSend]:
        """Return the sends in all wait queues, with those that have left."""
        queues = (self._waiters, *self._pool.full_partitions.values(), *self.topics.queues())
        return (pending for queue in queues for pending in queue)

    @property
    def waiting(self) -> int:
        """Return the number of records that wait."""
        return sum(not pending.asks for pending in self.waiting_sends())

    def explain(self) -> list[str]:
        """Return the reasons why records wait, and the number of records for each."""
        return wait_reasons.told(self.waiting_sends())
