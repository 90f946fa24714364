"""Who waits, and in which order: a record is appended at once, or parked until it can be, or until its time is over.

1. Who comes first is appended first. A record that must wait parks: for its topic until metadata names it (`topics`), then in one line
   for memory. While anybody stands in that line, everybody stands in it. Only who waits for one partition, which holds as much as it may
   (with a circuit breaker), stands aside, in the lot of that partition (`lots`), and holds nobody else up. Nor does who rests (`resting`).
2. What parks is the record; once it is appended, its task has but to be woken. Cancelled before that, it leaves no trace.

Knows nothing of how a record is checked, where it goes or what it takes: `appender` appends it, or says that it cannot.
"""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING, Final

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
    from aioproducer.engine.observability.metrics_recorder import Meter
    from aioproducer.engine.tasks.deadline_timer import DeadlineTimer
    from aioproducer.engine.tasks.waiter import Waiter
    from aioproducer.errors import KafkaError

__all__ = ["Admission"]

_TURN_SECONDS: Final = 0.002  # of appending for those who wait
_STRIDE: Final = 16  # records between two looks at the clock
_MOVED_UP: Final = 2  # of the line, for each that joins it


class Admission:
    """Those who wait: for each topic, and in the line.

    Args:
        way: what `send` looks at; closed while anybody stands in the line.
        loop_budget: what one turn of the loop takes in.
        pool, shares: `buffer_memory` and each partition's part, to tell of.
        max_block_ms: how long anybody waits.
        max_idle, want, trouble, on_known: as `topics` takes them.
        is_plain: records go the fast way, where nobody waits.
        next_turn: sees to a loop turn that drains and serves who waits.
        alarm: makes one.
        meter: records who waited.

    Attributes:
        topics: those who wait for one.
        on_given_up: told of each record that waited in vain: its topic, and why.
    """

    on_given_up: Callable[[str, Exception], object] | None = None

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
        meter: Meter,
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
        self._is_gated = self._is_serving = False
        self._is_short = False  # the line's first was refused in this turn
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

    # In

    def submit(self, record: PendingSend) -> Delivery | PendingSend:
        """Append what was checked, or park it."""
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
        """Append what was checked, or raise WouldBlock; a topic that is not known is asked for. Who cannot rest has its goes at once."""
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
        """Append; or what it would have to wait for."""
        assert record.topic is not None
        routing = self._partition_queues.routings.get(record.topic)
        if routing is None:
            return FOR_TOPIC
        if self._appender.is_missing(record, routing):  # before the line: at its head it would hold up everybody
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
        """Wait for what is parked; raises what it is given up for. Cancelled: it is not queued, and who stood behind it moves up."""
        try:
            await parked.wait()
        except BaseException:
            self._release_marks()
            self._next_turn()
            raise

    async def rest(self) -> None:
        """Wait for the next go."""
        await self.wait(self._rest(PendingSend(None)))

    async def routing(self, topic: str) -> TopicRouting:
        """Where a topic's records go, once metadata names it; waits as `wait` does."""
        if topic not in self._partition_queues.routings:
            await self.wait(self._stand(self.topics.lot(topic), PendingSend(topic, asks=True), FOR_TOPIC))
        routing = self._partition_queues.routings[topic]
        routing.used_at = self._loop.time()
        return routing

    # Parking

    def _rest(self, record: PendingSend) -> PendingSend:
        self._next_turn()
        if self._loop_budget.taker_is_cancelled:  # were its record placed meanwhile, it would go on again, and perhaps never hear of it
            return self._park(record, "")
        if record.topic is not None:
            self._fast_path.fast = {}
        self._number(record, "")
        self._resting.rest(record)
        return record

    def _place_unplaced(self) -> None:
        """Append the record of who rests: before that of anybody who calls now, or because it goes on. What finds no room stands in line."""
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
        """Who rests stands in line as everybody does."""
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
        self._deadlines.head()  # those who left are not kept
        self._deadlines.push(record)
        self._deadline_timer.check()
        return record

    def _number(self, record: PendingSend, reason: str) -> None:
        record.park(self._loop, next(self._numbers), reason, self._loop.time() + self._max_block_ms / 1000)

    def _flush_partial_batches(self) -> None:
        """Memory is short: nothing lingers until nobody waits."""
        if not self._partition_queues.eager:
            self._meter.memory(self._loop.time(), is_short=True)
        self._partition_queues.eager = True
        self._partition_queues.flush_partial_batches()
        self._next_turn()

    def serve(self, *, goes_on: bool = False) -> None:
        """Append for those in the line, in order, and wake them.

        Tasks that rest beside no line go on now if `goes_on`; else in the next round of the loop, as this one has drained.
        """
        if not self.has_line:
            self._open()
            if goes_on:
                self.go_on()
            if self._resting.waiters:
                self._next_turn()
            return
        self._line_up()  # who stands in the line may have called after it
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
        """Wake who rests, within the turn."""
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
        """Who is about to join the line serves two of it first, so that it gets shorter, however many join.

        Else a crowd whose records are acknowledged as fast as a turn takes them from the line would stand in it for ever, and a record
        that waits costs ten times as much as one that does not.
        """
        for _ in range(_MOVED_UP):
            first = self._aside.first(self._line)
            if first is None or first[1].is_to_hear or self._is_short or self._is_serving or not self._serve_first(*first):
                break
        self._reopen()

    def _serve_first(self, line: WaitQueue, record: PendingSend) -> bool:
        """Whether it is not in the way any more of those behind it."""
        if record.topic is not None and record.topic not in self._partition_queues.routings:  # forgotten meanwhile: once more for metadata
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
        """Take the next one out of its line, appended or given up; None: it must stay, or stands aside."""
        delivery: Delivery | None = None
        error: Exception | None = None
        if record.topic is not None:
            routing = self._partition_queues.routings[record.topic]
            self._is_serving = True  # the user's partitioner may send, too
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
            if delivery is None and self._appender.is_missing(record, routing):  # the topic was made anew, with fewer partitions
                record.reason = FOR_PARTITION
                error = self._overdue(record)
            if delivery is None and error is None:
                record.reason = FOR_MEMORY
                self._is_short = True
                if not self._partition_queues.eager:
                    self._flush_partial_batches()
                return None
        self._next_turn()  # what was appended is drained in the next turn
        line.pop()
        if error is not None:
            self._tell_given_up(record, error)
        return record.leave(delivery, error)

    def _reopen(self) -> None:
        if not self.has_line:
            self._open()

    def _open(self) -> None:
        """Nobody waits any more, but for a partition alone, or for its next go: the way is open."""
        if self._partition_queues.eager:
            self._meter.memory(self._loop.time(), is_short=False)
            self._partition_queues.eager = False
        if self._is_plain and not self._is_gated and not self._resting.holds:
            self._fast_path.fast = self._partition_queues.routings

    def gate(self, *, is_open: bool) -> None:
        """Open or close the fast way, whoever waits: a transactional producer's is closed but in a transaction."""
        self._is_gated = not is_open
        self._fast_path.fast = {}
        if is_open:
            self._reopen()

    # Partitions that hold as much as they may

    def freed(self, queue: PartitionQueue) -> None:
        """A partition holds less than before: it may take more, and so may others."""
        for eased in self._shares.eased(queue):
            self.rouse(eased)

    def rouse(self, queue: PartitionQueue) -> None:
        """Those who wait for a partition may be appended, there or elsewhere."""
        if self._aside.rouse(queue):
            self._fast_path.fast = {}
            self._next_turn()

    def _admit(self, parked: list[PendingSend]) -> None:
        """A topic is known: those who waited for it move into the line."""
        self._line.merge(parked)  # a key in the line may belong to a partition that others waited for since before
        if self.has_line:
            self._fast_path.fast = {}
        self._reopen()

    def _give_up(self, record: PendingSend, error: Exception) -> None:
        self._tell_given_up(record, error)
        record.leave(error=error if record.topic is not None else None).wake()

    def _tell_given_up(self, record: PendingSend, error: Exception) -> None:
        if record.topic is not None and not record.asks:
            self._meter.given_up(self._loop.time(), record.topic, error)
            if self.on_given_up is not None:
                self.on_given_up(record.topic, error)

    # Deadlines and the end

    def _next_deadline(self) -> float | None:
        first = self._deadlines.head()
        return first.deadline if first is not None else None

    def _on_deadline(self, now: float) -> None:
        self.serve()  # who can be served at the last moment is
        while (record := self._deadlines.head()) is not None and record.deadline <= now:
            self._deadlines.pop()
            self._give_up(record, self._overdue(record))
        self._release_marks()
        self._next_turn()

    def _overdue(self, record: PendingSend) -> KafkaError:
        routing = self._partition_queues.routings.get(record.topic or "")
        return wait_reasons.late(record, self._pool, routing, self.topics.trouble(record.topic or ""), self._max_block_ms)

    def mark(self) -> list[PendingSend]:
        """Marks at the end of every line; each is served once all before it have been."""
        self._line_up()
        marks = []
        for line in filter(None, self._lines()):
            mark = PendingSend(None)
            mark.park(self._loop, next(self._numbers), "", 0.0)
            line.push(mark)
            marks.append(mark)
        return marks

    def _release_marks(self) -> None:
        """Nobody stands before the marks at the head of a lot: who waits for them need not wait for its topic or partition."""
        for lot in (*self._aside.lines(), *self.topics.lots()):
            while (record := lot.head()) is not None and record.topic is None:
                lot.pop().leave().wake()

    @property
    def is_bursting(self) -> bool:
        """Whether a task that fills batches without pause goes on in the next turn, memory allowing."""
        return bool(self._resting.waiters)

    @property
    def has_line(self) -> bool:
        """Whether anybody waits for memory, not for its next go, or for a topic or a partition alone."""
        return bool(self._line) or self._aside.is_roused

    @property
    def waiting(self) -> int:
        """Records that are parked."""
        return sum(record.is_record for record in self._everybody())

    def explain(self) -> list[str]:
        """What the parked records wait for, and how many for each."""
        return wait_reasons.told(self._everybody())

    def _everybody(self) -> Iterator[PendingSend]:
        resting = [self._resting.unplaced] if self._resting.unplaced is not None and self._resting.holds else []
        return chain(resting, *self._lines())

    def _lines(self) -> tuple[WaitQueue, ...]:
        return (self._line, *self._aside.lines(), *self.topics.lots())

    def shut(self) -> None:
        """No new record is taken in; those that wait are still served."""
        self._fast_path.fast = {}
        self._is_plain = False

    def close(self, error: Callable[[], Exception]) -> None:
        """Nothing is taken in any more; who waits is told why."""
        self.shut()
        self._line_up()
        self._deadline_timer.stop()
        for line in self._lines():
            for record in line.take_all():
                self._give_up(record, error())
        self._resting.end()
        self.topics.clear()

    def drop(self, error: Callable[[], Exception]) -> None:
        """The records that wait are not queued, and who sends them is told why; who asks for a topic waits on."""
        self._line_up()
        for line in self._lines():
            for record in line.take_all():
                if record.asks:
                    line.push(record)
                else:
                    self._give_up(record, error())
        self._reopen()
