"""All sends of one producer that wait: their numbers in the order of the calls, their deadlines, and the marks of flushes."""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING

from aioproducer.engine.memory import wait_reasons
from aioproducer.engine.memory.wait_queue import PendingSend, WaitQueue
from aioproducer.engine.tasks.supervisor import DeadlineTimer
from aioproducer.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.loop_budget import DrainSchedule, LoopBudgetWaiters
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.transactions.transaction_gate import TransactionGate
    from aioproducer.errors import KafkaError


class PendingSends:
    """Numbers the sends that wait, and gives them up at their deadlines.

    Args:
        appender: its pool has the wait queues for memory.
        waiters: the sends that wait for the loop budget.
        admission: serves pending sends.
        drains: schedules the event-loop iteration that serves pending sends.
        transaction: is told of the records that are given up; None: the producer has no transactions.
    """

    def __init__(
        self,
        context: EngineContext,
        appender: Appender,
        waiters: LoopBudgetWaiters,
        admission: Admission,
        drains: DrainSchedule,
        transaction: TransactionGate | None,
    ) -> None:
        config, loop, recorder = context.config, context.loop, context.instruments.recorder
        self._loop = loop
        self._max_block_ms = config.max_block_ms
        self._transaction = transaction
        self._pool = appender.pool
        self._partition_queues = appender.partition_queues
        self._waiters = waiters
        self._recorder = recorder
        self._admission = admission
        self._drains = drains
        self._numbers = count()
        self._deadlines = WaitQueue()
        self._deadline_timer = DeadlineTimer(
            loop, self._next_deadline, self._on_deadline, is_patient=True
        )

    def number(self, pending: PendingSend, reason: str) -> None:
        """Give a send its number and its deadline, before it joins a wait queue."""
        pending.join(next(self._numbers), reason, self._loop.time() + self._max_block_ms / 1000)

    def join(self, queue: WaitQueue, pending: PendingSend, reason: str) -> PendingSend:
        """Add a send to the end of a wait queue, and return it."""
        self.number(pending, reason)
        queue.push(pending)
        self.watch(pending)
        return pending

    def watch(self, pending: PendingSend) -> None:
        """Watch the deadline of a send."""
        # `head` removes the pending sends that have left.
        self._deadlines.head()
        self._deadlines.push(pending)
        self._deadline_timer.check()

    # Ends

    def give_up(self, pending: PendingSend, error: Exception) -> None:
        """End a send that has left its wait queue, with `error`. A mark ends without it."""
        self.report(pending, error)
        pending.complete(error=error if pending.topic is not None else None)
        pending.notify()

    def break_off(self, pending: PendingSend, delivery: object, raised: BaseException) -> None:
        """End a send whose service a KeyboardInterrupt or the like has broken off. It leaves its wait queue by that."""
        if isinstance(raised, Exception):
            return
        if pending.is_waiting and delivery is None:
            self.give_up(
                pending,
                UsageError(
                    f"{type(raised).__name__} was raised while the record was queued: it may be sent"
                ),
            )
        elif pending.is_waiting:
            pending.complete(delivery)
        pending.notify()
        self._drains.turn()

    def report(self, pending: PendingSend, error: Exception) -> None:
        """Report a record that is given up with `error`."""
        if pending.topic is not None and not pending.asks:
            self._recorder.given_up(self._loop.time(), pending.topic, error)
            if self._transaction is not None:
                self._transaction.on_refused(pending.topic, error)

    def overdue(self, pending: PendingSend) -> KafkaError:
        """Return the error of a send that waited for `max_block_ms`."""
        topic = pending.topic or ""
        return wait_reasons.late(
            pending,
            self._pool,
            self._partition_queues.routings.get(topic),
            self._admission.topics.trouble(topic),
            self._max_block_ms,
        )

    def _next_deadline(self) -> float | None:
        first = self._deadlines.head()
        return first.deadline if first is not None else None

    def _on_deadline(self, now: float) -> None:
        # A record that can be appended now is not given up.
        self._admission.serve()
        while (pending := self._deadlines.head()) is not None and pending.deadline <= now:
            self._deadlines.pop()
            self.give_up(pending, self.overdue(pending))
        self.release_marks()

    def drop(self, error: Callable[[], Exception]) -> None:
        """Give up the records that wait, with what `error` returns. A send that asks for a topic waits on."""
        for queue in self._queues():
            for pending in queue.take_all():
                if pending.asks:
                    queue.push(pending)
                else:
                    self.give_up(pending, error())
        self._release_topics()

    def close(self, event: str) -> None:
        """Give up every send, because the producer ends by this event."""
        self._deadline_timer.stop()
        for queue in self._queues():
            for pending in queue.take_all():
                self.give_up(pending, wait_reasons.closed(pending, event))
        self._waiters.wake_all()
        self._admission.topics.clear()

    # Marks

    def mark(self, number: int | None = None) -> list[PendingSend]:
        """Insert a mark into each wait queue that has sends from before `number`, behind them; None: from before this call.

        Returns the marks, which have that number. Each is served once all sends before it have left its wait queue.
        """
        number = next(self._numbers) if number is None else number
        marks = []
        for queue in self._queues():
            head = queue.head()
            if head is not None and head.number < number:
                mark = PendingSend(None)
                mark.join(number, "", 0.0)
                queue.merge([mark])
                marks.append(mark)
        return marks

    def release_marks(self) -> None:
        """Serve the marks at the head of topic and partition wait queues: a flush need not wait for that topic or partition.

        Called after a send has left its wait queue, so those behind it are served in the next event-loop iteration.
        """
        for queue in (*self._pool.full_partitions.all(), *self._admission.topics.queues()):
            while (pending := queue.head()) is not None and pending.topic is None:
                queue.pop()
                pending.complete()
                pending.notify()
        self._release_topics()
        self._drains.turn()

    def _release_topics(self) -> None:
        """Admit the records that waited behind one whose serializer is not prepared, if that has left."""
        for topic in tuple(self._admission.topics.held):
            self._admission.topics.release(topic)

    # What waits

    @property
    def waiting(self) -> int:
        """Return the number of records that wait."""
        return sum(pending.is_record for pending in self._all())

    def explain(self) -> list[str]:
        """Return the reasons why records wait, and the number of records for each."""
        return wait_reasons.told(self._all())

    def _all(self) -> Iterator[PendingSend]:
        unplaced = self._waiters.unplaced
        return chain(
            [unplaced] if unplaced is not None and unplaced.is_waiting else [], *self._queues()
        )

    def _queues(self) -> tuple[WaitQueue, ...]:
        return (
            self._pool.waiting,
            *self._pool.full_partitions.all(),
            *self._admission.topics.queues(),
        )
