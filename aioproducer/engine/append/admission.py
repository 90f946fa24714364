"""Admission of records: each is appended at once, or waits in a wait queue until it is appended or times out.

1. Records are appended in the order of their calls. A record that must wait becomes a pending send. It waits for its topic until
   metadata has it (`topics`), then for memory (`BufferPool.waiting`). While a send waits for memory, every later record waits behind it.
   With a circuit breaker, a record for a full partition waits in a wait queue of that partition alone, and delays no other record. Nor
   does a send that waits for its next slice of the loop budget.
2. `_obstacle` decides whether a call may append now, and where it waits otherwise. `_update_fast_path` opens the fast path if no send
   waits before a new one, and closes it otherwise. Both look at the wait queues: no other state has to agree with them.
3. A wait queue holds the record, not its task. Once the record is appended, only the wake-up of the task is left. A send that is
   cancelled before that leaves no trace.

The `Appender` appends a record, or reports that it cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.engine.append.loop_budget import LoopBudgetWaiters
from aioproducer.engine.append.pending_sends import PendingSends
from aioproducer.engine.append.preparations import Preparations
from aioproducer.engine.memory import wait_reasons
from aioproducer.engine.memory.wait_queue import (
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
)
from aioproducer.engine.metadata.topic_waiters import TopicWaiters
from aioproducer.errors import PartitionUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from aioproducer.core.metadata.metadata_schedule import MetadataSchedule, TopicExpiry
    from aioproducer.core.partition_queues import PartitionQueue, TopicRouting
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.loop_budget import DrainSchedule, LoopBudget
    from aioproducer.engine.chosen_build import Delivery, FastPath
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.memory.wait_queue import WaitQueue
    from aioproducer.engine.transactions.transaction_gate import TransactionGate

# Seconds that one `serve` call spends on appending pending sends.
_SERVING_SECONDS: Final = 0.002
# Records between two reads of the clock.
_STRIDE: Final = 16
# Pending sends that are served for each record that joins the memory wait queue.
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
        pending: all sends that wait.
        continuing: the sends whose tasks continue in one of the next event-loop iterations, memory allowing. While there are any, some
            task fills batches without pause.
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
        self._fast_path = fast_path
        self._loop_budget = loop_budget
        self._appender = appender
        self._partition_queues = appender.partition_queues
        self._pool = appender.pool
        self._drains = drains
        self._recorder = context.instruments.recorder
        self._transaction = transaction
        # Records may take the fast path while no send waits.
        self._may_be_fast = appender.may_be_fast
        # The user's partitioner, which is called for a pending send, may call `send`, too.
        self._is_placing = False
        # Memory was refused to the first pending send since `serve` was last called.
        self._is_short = False
        # The end of a `serve` call, and the records that it has served.
        self._serves_until, self._served = 0.0, 0
        self._waiters = LoopBudgetWaiters(loop_budget, self._place_unplaced)
        self.continuing: Sized = self._waiters.waiting
        self.pending: PendingSends = PendingSends(
            context, appender, self._waiters, self, drains, transaction
        )
        self.topics: TopicWaiters = TopicWaiters(
            context, self._partition_queues, metadata, expiry, drains, self
        )
        self.preparations: Preparations = Preparations(
            context, self.topics.is_waiting_for, self.topics.on_prepared
        )

    # The decision

    def submit(self, record: PendingSend) -> Delivery | PendingSend:
        """Append a validated record, or queue it. Returns its delivery, or the pending send."""
        outcome = self._try(record)
        return self.wait_for(outcome, record) if isinstance(outcome, str) else outcome

    def submit_nowait(self, record: PendingSend) -> Delivery:
        """Append a validated record. Returns its delivery, or raises WouldBlock.

        Metadata of an unknown topic is requested. The caller cannot wait, so it uses the next slice of the loop budget at once.
        """
        outcome = self._try(record)
        if (
            isinstance(outcome, str)
            and outcome == FOR_LOOP_BUDGET
            and self._loop_budget.may_go_on()
        ):
            outcome = self._try(record)
        if not isinstance(outcome, str):
            return outcome
        assert record.topic is not None
        if record.unencoded is not None:
            self.preparations.begin(record.unencoded.encoding)
        if outcome in FOR_METADATA and outcome != FOR_SERIALIZER:
            self.topics.ask(record.topic)
        elif outcome == FOR_MEMORY:
            self._flush_partial_batches()
        raise wait_reasons.would_block(record, outcome)

    def _try(self, record: PendingSend) -> Delivery | str:
        """Append a new record. Returns its delivery, or what it has to wait for."""
        assert record.topic is not None
        routing = self._partition_queues.routings.get(record.topic)
        obstacle = self._obstacle(record, routing)
        if obstacle is not None:
            return obstacle
        assert routing is not None
        # First: a record that was appended must not be without a drain, also if a signal handler raises here.
        self._drains.turn()
        delivery = self._appender.place(record, routing)
        if delivery is None:
            return FOR_FULL_PARTITION if record.is_aside else FOR_MEMORY
        return delivery

    def _obstacle(self, record: PendingSend, routing: TopicRouting | None) -> str | None:
        """Return what a new record has to wait for before memory is taken for it; None: nothing."""
        if routing is None:
            return FOR_TOPIC
        # Checked before the memory wait queue: at its head the record would delay all others.
        if record.is_missing(routing):
            return FOR_PARTITION
        if record.unencoded is not None or (self.topics.held and record.topic in self.topics.held):
            return FOR_SERIALIZER
        if self._waiters.unplaced is not None:
            self._place_unplaced()
        if self._pool.has_waiting:
            self._serve_some()
            if self._pool.has_waiting:
                return FOR_OTHERS
            self._update_fast_path()
        return FOR_LOOP_BUDGET if self._loop_budget.must_pause() else None

    def wait_for(self, obstacle: str, record: PendingSend) -> PendingSend:
        """Let a new record, or a mark, wait for its obstacle. Returns it."""
        if obstacle in FOR_METADATA:
            assert record.topic is not None
            is_held = obstacle == FOR_SERIALIZER
            self.pending.join(
                self.topics.hold(record) if is_held else self.topics.of(record.topic),
                record,
                obstacle,
            )
            if is_held:
                self._update_fast_path()
            # Last: an eager task may end within this call, and it serves only the sends that wait.
            if record.unencoded is not None:
                self.preparations.begin(record.unencoded.encoding)
            return record
        if obstacle == FOR_MEMORY:
            self._flush_partial_batches()
        self._drains.turn()
        if obstacle == FOR_FULL_PARTITION:
            assert record.behind is not None
            return self.pending.join(self._pool.full_partitions.of(record.behind), record, obstacle)
        # Were the record of a cancelled task placed meanwhile, the task would send on, and perhaps never receive its cancellation.
        if obstacle == FOR_LOOP_BUDGET and not self._loop_budget.taker_is_cancelled:
            self.pending.number(record, obstacle)
            self._waiters.add(record)
        else:
            self.pending.join(
                self._pool.waiting,
                record,
                FOR_CANCELLATION if obstacle == FOR_LOOP_BUDGET else FOR_MEMORY,
            )
        self._update_fast_path()
        return record

    def _update_fast_path(self, *, none_waits: bool = False) -> None:
        """Open the fast path if no send is to be served before a new one, else close it. Once none waits, batches may linger again.

        `none_waits`: the caller has just asked, and no send waits for memory.
        """
        has_waiting = not none_waits and self._pool.has_waiting
        if self._partition_queues.ready.memory_is_short and not has_waiting:
            self._recorder.memory(self._loop.time(), is_short=False)
            self._partition_queues.linger_again()
        # Mostly no record is unplaced, and each drain asks.
        has_unplaced = self._waiters.unplaced is not None and self._waiters.has_unplaced
        is_open = (
            self._may_be_fast and not has_waiting and not has_unplaced and not self.topics.held
        )
        if self._transaction is not None:
            is_open = is_open and self._transaction.is_open
        self._fast_path.fast = self._partition_queues.routings if is_open else {}

    def _flush_partial_batches(self) -> None:
        """Stop lingering, since memory is short: partial batches are sendable until no send waits for memory."""
        if not self._partition_queues.ready.memory_is_short:
            self._recorder.memory(self._loop.time(), is_short=True)
        self._partition_queues.flush_partial_batches()
        self._drains.turn()

    # Serving

    def serve(self) -> None:
        """Append the pending sends in order while memory lasts, and wake their tasks."""
        if not self._pool.has_waiting:
            self.on_none_waiting()
            return
        self._place_unplaced(
            at_once=False
        )  # records in the wait queue may have been sent after the unplaced one
        self._is_short = False
        self._serves_until, self._served = self._loop.time() + _SERVING_SECONDS, 0
        self._appender.serve_at(self._appender.now_ms())
        try:
            self._pool.deallocate(self._grant_in_time, self._waiters.wake)
        finally:
            self._appender.serve_at(0)
            if self._waiters.are_due:
                self._drains.turn()
        self._update_fast_path()

    def on_none_waiting(self, *, goes_on: bool = False) -> None:
        """Open the fast path, and serve the sends that wait for their next slice: no send waits for memory now.

        If `goes_on` is true, they continue now. If it is false, they continue in the next event-loop iteration, because this one has
        drained.
        """
        self._update_fast_path(none_waits=True)
        if goes_on:
            self.go_on()
        if self._waiters.are_due:
            self._drains.turn()

    def go_on(self) -> None:
        """Wake the sends that wait for their next slice, without a drain before it."""
        self._appender.serve_at(self._appender.now_ms())
        try:
            self._waiters.wake()
        finally:
            self._appender.serve_at(0)

    def _grant_in_time(self, queue: WaitQueue, record: PendingSend) -> bool:
        """Serve the first record of `queue` as `_grant` does, unless this event-loop iteration has served enough."""
        self._served += 1
        if self._loop_budget.is_spent or (
            not self._served % _STRIDE and self._loop.time() > self._serves_until
        ):
            self._drains.turn()
            return False
        return self._grant(queue, record)

    def _serve_some(self) -> None:
        """Serve two pending sends before another one joins the memory wait queue, so that it gets shorter however many join.

        Otherwise many tasks could wait forever, if their records are acknowledged as fast as an event-loop iteration serves pending
        sends. A record that waits costs ten times as much as one that does not.
        """
        for _ in range(_SERVED_PER_JOIN):
            first = self._pool.first()
            if (
                first is None
                or first[1].expects_cancellation
                or self._is_short
                or self._is_placing
                or not self._grant(*first)
            ):
                break

    def _grant(self, queue: WaitQueue, record: PendingSend) -> bool:
        """Serve the first record of `queue`, or move it on. Returns whether it no longer blocks those behind it."""
        # The topic was forgotten meanwhile: the record waits for its metadata again.
        if record.topic is not None and record.topic not in self._partition_queues.routings:
            queue.pop()
            record.reason, record.behind = FOR_TOPIC, None
            self.topics.of(record.topic).merge([record])
            return True
        if not self._serve_one(queue, record):
            return record.is_aside
        self._waiters.waiting.append(record)
        return True

    def _serve_one(self, queue: WaitQueue, record: PendingSend) -> bool:
        """Append the first record of `queue`, or give it up. Returns False if it waits on."""
        delivery: Delivery | None = None
        error: Exception | None = None
        if record.topic is not None:
            routing = self._partition_queues.routings[record.topic]
            self._is_placing = True
            try:
                record.encode()
                delivery = self._appender.place(record, routing)
            except (UsageError, PartitionUnavailable) as refused:
                error = refused
            except BaseException as raised:
                # A function of the user's raised KeyboardInterrupt or the like. If the record stayed, it would hold up every later one.
                self.pending.break_off(record, None, raised)
                raise
            finally:
                self._is_placing = False
            if delivery is None and error is None:
                error = self._refused(queue, record, routing)
                if error is None:
                    return False
        try:
            # The next event-loop iteration drains what was appended.
            self._drains.turn()
            queue.pop()
            if error is not None:
                self.pending.report(record, error)
            record.complete(delivery, error)
        except BaseException as raised:
            # Of a signal handler, perhaps. If the record stayed, it would be appended twice.
            self.pending.break_off(record, delivery, raised)
            raise
        return True

    def _refused(
        self, queue: WaitQueue, record: PendingSend, routing: TopicRouting
    ) -> Exception | None:
        """Set what a pending send that was not appended waits for now. Returns the error of one that cannot wait on, else None."""
        if record.is_aside:
            record.reason = FOR_FULL_PARTITION
            self._pool.full_partitions.move(queue, record)
        # The topic was created anew, with fewer partitions.
        elif record.is_missing(routing):
            record.reason = FOR_PARTITION
            return self.pending.overdue(record)
        else:
            record.reason = FOR_MEMORY
            self._is_short = True
            if not self._partition_queues.ready.memory_is_short:
                self._flush_partial_batches()
        return None

    def _place_unplaced(self, *, at_once: bool = True) -> None:
        """Append the unplaced record before any later one. A record that cannot be appended waits for memory, in call order.

        A later call or the continuation of its own task places it. Without `at_once` it waits as others do.
        """
        record = self._waiters.unplaced
        is_waiting = record is not None and record.is_waiting
        if record is not None and is_waiting:
            self._pool.waiting.merge([record])
        # Behind that, or a signal handler's exception would lose the record.
        self._waiters.unplaced = None
        if record is not None and is_waiting:
            first = self._pool.first()
            is_next = (
                first is not None
                and first[1] is record
                and record.topic in self._partition_queues.routings
            )
            if not (at_once and is_next and self._serve_one(self._pool.waiting, record)):
                if record.reason == FOR_LOOP_BUDGET:
                    record.reason = FOR_OTHERS
                self._waiters.remove(record)
                self.pending.watch(record)
                self._drains.turn()
        self._update_fast_path()

    # Events

    def admit(self, records: list[PendingSend]) -> None:
        """Move the pending sends of a known topic into the memory wait queue."""
        # Merged by call order: a key in the memory wait queue may belong to a partition that earlier records waited for.
        self._pool.waiting.merge(records)
        self._update_fast_path()

    def freed(self, queue: PartitionQueue | None = None) -> None:
        """Notify the wait queues of partitions that may hold more, since more is free. `queue`: the one that holds less than before."""
        if self._appender.shares is not None:
            for eased in self._appender.shares.eased(queue):
                self.notify(eased)

    def notify(self, queue: PartitionQueue) -> None:
        """Notify the wait queue of a partition: its records may be appended there or elsewhere."""
        if self._pool.full_partitions.notify(queue):
            self._update_fast_path()
            self._drains.turn()

    def gate(self) -> None:
        """Open the fast path if a transaction is open and no send waits, else close it."""
        self._update_fast_path()

    # The end

    def mark(self, number: int | None = None) -> list[PendingSend]:
        """Insert a mark into each wait queue, as `PendingSends.mark` does. Returns the marks."""
        self._place_unplaced(at_once=False)
        return self.pending.mark(number)

    def shut(self) -> None:
        """Close the fast path for good, and have every new send refused; pending sends are still served."""
        self._may_be_fast = False
        self._fast_path.here = None
        self._update_fast_path()

    def close(self, event: str) -> None:
        """Close the fast path, and give up every pending send, because the producer ends by this event."""
        self.shut()
        self._place_unplaced(at_once=False)
        self.pending.close(event)

    def drop(self, error: Callable[[], Exception]) -> None:
        """Give up the records that wait, with what `error` returns. A pending send that asks for a topic waits on."""
        self._place_unplaced(at_once=False)
        self.pending.drop(error)
        self._update_fast_path()
