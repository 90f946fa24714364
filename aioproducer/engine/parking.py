"""Who waits, and in which order: a record is appended at once, or parked until it can be, or until its time is over.

1. Who comes first is appended first. A record that must wait parks: for its topic until metadata names it, then in one line for
   memory and for the next loop turn. While anybody stands in that line, everybody stands in it.
2. What parks is the record; its task wakes in the step in which it is appended or given up. Cancelled, it leaves no trace.

Knows nothing of how a record is checked, where it goes or what it takes: `appender` appends it, or says that it cannot.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final

from aioproducer.core.installing import elect, installing, retiring
from aioproducer.engine import reasons
from aioproducer.engine.pool import Line, Parked
from aioproducer.engine.reasons import FOR_MEMORY, FOR_METADATA, FOR_OTHERS, FOR_PARTITION, FOR_TOPIC, FOR_TURN
from aioproducer.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable, Iterator

    from aioproducer.core.accumulator import Accumulator, Route
    from aioproducer.core.metadata import TopicView
    from aioproducer.core.steps import Steps
    from aioproducer.engine.alarm import Alarm
    from aioproducer.engine.appender import Appender
    from aioproducer.engine.hot import Delivery, Way
    from aioproducer.engine.pool import BufferPool
    from aioproducer.engine.waiter import Waiter
    from aioproducer.errors import KafkaError, SendTimeout

__all__ = ["Parking"]

_TURN_SECONDS: Final = 0.002  # of appending for those who wait, and of what their tasks then do
_STRIDE: Final = 16  # records between two looks at the clock


class Parking:
    """Those who wait: for each topic, and in the line.

    Args:
        way: what `send` looks at; closed while anybody stands in the line.
        pool: `buffer_memory`, to tell of.
        max_block_ms: how long anybody waits.
        is_plain: records go the fast way, where nobody waits.
        want: asks for a topic's metadata.
        trouble: why nobody answers such questions now, if so.
        turn: sees to a loop turn that drains and serves who waits.
        alarm: makes one.

    Attributes:
        on_given_up: told of each record that waited in vain: its topic, and why.
    """

    on_given_up: Callable[[str, Exception], object] | None = None

    def __init__(
        self,
        loop: AbstractEventLoop,
        way: Way,
        accumulator: Accumulator,
        pool: BufferPool,
        appender: Appender,
        *,
        max_block_ms: float,
        is_plain: bool,
        want: Callable[[str], None],
        trouble: Callable[[], KafkaError | None],
        turn: Callable[[], None],
        alarm: Callable[[Callable[[], float | None], Callable[[float], None]], Alarm],
    ) -> None:
        self._loop = loop
        self._way = way
        self._accumulator = accumulator
        self._pool = pool
        self._appender = appender
        self._max_block_ms = max_block_ms
        self._is_plain = is_plain
        self._is_gated = False
        self._want = want
        self._trouble = trouble
        self._turn = turn
        self._line = Line()
        self._lots: dict[str, Line] = {}
        self._asked: dict[str, None] = {}  # topics that somebody would send to, and does not wait for
        self._troubles: dict[str, KafkaError] = {}
        self._deadlines: deque[Parked] = deque()
        self._numbers = count()
        self._alarm = alarm(self._next_deadline, self._on_deadline)

    # In

    def take_in(self, record: Parked) -> Delivery | Parked:
        """Append what was checked, or park it."""
        obstacle = self._try(record)
        if obstacle is None:
            assert record.delivery is not None
            return record.delivery
        if obstacle in FOR_METADATA:
            return self._park_for_topic(record, obstacle)
        if obstacle is FOR_MEMORY:
            self._hurry()
        self._turn()
        return self._park(record, "" if obstacle is FOR_TURN else FOR_MEMORY)

    def take_now(self, record: Parked) -> Delivery:
        """Append what was checked, or raise WouldBlock; a topic that is not known is asked for."""
        obstacle = self._try(record)
        if obstacle is None:
            assert record.delivery is not None
            return record.delivery
        assert record.topic is not None
        if obstacle in FOR_METADATA:
            self._asked[record.topic] = None
            self._want(record.topic)
        elif obstacle is FOR_MEMORY:
            self._hurry()
        raise reasons.would_block(record.topic, obstacle)

    def _try(self, record: Parked) -> str | None:
        """Append; or what it would have to wait for."""
        assert record.topic is not None
        route = self._accumulator.routes.get(record.topic)
        if route is None:
            return FOR_TOPIC
        if self._appender.is_missing(record, route):  # before the line: at its head it would hold up everybody
            return FOR_PARTITION
        if self._line:
            return FOR_OTHERS
        if self._appender.must_pause():
            return FOR_TURN
        record.delivery = self._appender.place(record, route)
        if record.delivery is None:
            return FOR_MEMORY
        self._turn()
        return None

    async def wait(self, parked: Parked) -> None:
        """Wait for what is parked; raises what it is given up for. Cancelled: it is not queued, and who stood behind it moves up."""
        try:
            await parked.wait()
        except BaseException:
            self._release_marks()
            self._turn()
            raise

    async def next_turn(self) -> None:
        """Wait for the next turn, in the line in which every send stands."""
        mark = Parked(None)
        self._turn()
        await self.wait(self._park(mark, ""))

    async def route(self, topic: str) -> Route:
        """Where a topic's records go, once metadata names it; waits as `wait` does."""
        if topic not in self._accumulator.routes:
            await self.wait(self._park_for_topic(Parked(topic, asks=True), FOR_TOPIC))
        return self._accumulator.routes[topic]

    # Parking

    def _park(self, record: Parked, reason: str) -> Parked:
        self._stand(self._line, record, reason)
        self._way.fast = {}
        return record

    def _park_for_topic(self, record: Parked, reason: str) -> Parked:
        assert record.topic is not None
        lot = self._lots.setdefault(record.topic, Line())
        self._want(record.topic)
        self._stand(lot, record, reason)
        return record

    def _stand(self, line: Line, record: Parked, reason: str) -> None:
        max_block = self._max_block_ms / 1000
        record.park(self._loop, next(self._numbers), reason, self._loop.time() + max_block)
        line.push(record)
        while self._deadlines and not self._deadlines[0].is_waiting:
            self._deadlines.popleft()
        self._deadlines.append(record)
        self._alarm.check()

    def _hurry(self) -> None:
        """Memory is short: nothing lingers until nobody waits."""
        self._accumulator.eager = True
        self._accumulator.hurry()
        self._turn()

    def serve(self) -> None:
        """Append for those in the line, in order, and wake each in its step. Only from a callback of the loop."""
        self._appender.serving_ms = self._appender.now_ms()
        try:
            self._serve()
        finally:
            self._appender.serving_ms = 0

    def _serve(self) -> None:
        until, served = self._loop.time() + _TURN_SECONDS, 0
        while (record := self._line.head()) is not None:
            served += 1
            if self._appender.is_spent or (not served % _STRIDE and self._loop.time() > until):
                self._turn()
                return
            waiter = self._serve_one(record)
            if waiter is None:
                record.reason = FOR_MEMORY
                self._hurry_once()
                return
            self._turn()  # what was appended is drained in the next turn
            self._reopen()
            waiter.wake()
        self._reopen()

    def _hurry_once(self) -> None:
        if not self._accumulator.eager:
            self._hurry()

    def _serve_one(self, record: Parked) -> Waiter | None:
        """Take the head out of the line, appended or given up; None: it must stay."""
        delivery: Delivery | None = None
        error: Exception | None = None
        if record.topic is not None:
            route = self._accumulator.routes[record.topic]
            try:
                delivery = self._appender.place(record, route)
            except UsageError as refused:
                error = refused
            if delivery is None and self._appender.is_missing(record, route):  # the topic was made anew, with fewer partitions
                record.reason = FOR_PARTITION
                error = self._overdue(record)
            if delivery is None and error is None:
                return None
        self._line.pop()
        if error is not None:
            self._tell_given_up(record, error)
        return record.leave(delivery, error)

    def _reopen(self) -> None:
        """Nobody waits any more: the way is open."""
        if not self._line:
            self._accumulator.eager = False
            if self._is_plain and not self._is_gated:
                self._way.fast = self._accumulator.routes

    def gate(self, *, is_open: bool) -> None:
        """Open or close the fast way, whoever waits: a transactional producer's is closed but in a transaction."""
        self._is_gated = not is_open
        if is_open:
            self._reopen()
        else:
            self._way.fast = {}

    # Topics

    def waited_for(self) -> Iterable[str]:
        """Topics that somebody waits for."""
        for topic in [topic for topic, lot in self._lots.items() if not lot]:
            del self._lots[topic]
            self._troubles.pop(topic, None)
        return dict.fromkeys((*self._lots, *self._asked))

    def on_topic(self, topic: TopicView) -> Steps[None]:
        """The cluster told of a topic: those who wait for it move into the line, or learn why they cannot.

        In the step in which a route is there they move: who comes next must not go ahead of them.
        """
        name = topic.name
        if topic.error is None and (name in self._lots or name in self._asked or name in self._accumulator.routes):
            route = yield from installing(self._accumulator, topic)
            lot = self._forget(name)
            self._troubles.pop(name, None)
            self._admit(route, lot.take_all() if lot is not None else [])
            self._turn()
            yield from retiring(self._accumulator, topic)
        elif (lot := self._forget(name)) is not None:
            self._refuse(topic, lot)

    def _forget(self, topic: str) -> Line | None:
        """Nobody waits for it any more; those who did."""
        self._asked.pop(topic, None)
        return self._lots.pop(topic, None)

    def on_leader(self, topic: TopicView, partition: int) -> None:
        """A partition has another leader."""
        elect(self._accumulator, topic, partition)
        self._turn()

    def _admit(self, route: Route, parked: list[Parked]) -> None:
        """A topic is known: those who waited for it move into the line, but for those whose partition it does not have."""
        known: list[Parked] = []
        for record in parked:
            if record.asks:
                self._loop.call_soon(record.leave().wake)
            elif self._is_still_early(record, route):
                self._lots.setdefault(route.topic, Line()).push(record)
                record.reason = FOR_PARTITION
            else:
                record.reason = ""
                known.append(record)
        self._line.merge(known)  # a key in the line may belong to a partition that others waited for since before
        if self._line:
            self._way.fast = {}
        self._reopen()

    def _is_still_early(self, record: Parked, route: Route) -> bool:
        """Whether it waits on for a partition; a mark does while a record before it does."""
        return self._appender.is_missing(record, route) or (record.topic is None and route.topic in self._lots)

    def _refuse(self, topic: TopicView, lot: Line) -> None:
        assert topic.error is not None
        if topic.error.retriable:
            self._lots[topic.name] = lot
            self._troubles[topic.name] = topic.error
            return
        for record in lot.take_all():
            self._give_up(record, type(topic.error)(topic.error.error, f"topic {topic.name!r} cannot be produced to"))

    def _give_up(self, record: Parked, error: Exception) -> None:
        mark = record.topic is None
        if not mark:
            self._tell_given_up(record, error)
        self._loop.call_soon(record.leave(error=None if mark else error).wake)

    def _tell_given_up(self, record: Parked, error: Exception) -> None:
        if self.on_given_up is not None and record.topic is not None and not record.asks:
            self.on_given_up(record.topic, error)

    # Deadlines and the end

    def _next_deadline(self) -> float | None:
        deadlines = self._deadlines
        while deadlines and not deadlines[0].is_waiting:
            deadlines.popleft()
        return deadlines[0].deadline if deadlines else None

    def _on_deadline(self, now: float) -> None:
        self.serve()  # who can be served at the last moment is
        while (when := self._next_deadline()) is not None and when <= now:
            record = self._deadlines.popleft()
            self._give_up(record, self._overdue(record))
        self._release_marks()
        self._turn()

    def _overdue(self, record: Parked) -> SendTimeout:
        if record.reason not in FOR_METADATA:
            return reasons.late_memory(record, self._pool, self._max_block_ms)
        assert record.topic is not None
        trouble = self._trouble() or self._troubles.get(record.topic)
        return reasons.late_metadata(record, self._accumulator.routes.get(record.topic), self._max_block_ms, trouble)

    def mark(self) -> list[Parked]:
        """Marks at the end of every line; each is served once all before it have been."""
        marks = []
        for line in (self._line, *self._lots.values()):
            if line:
                mark = Parked(None)
                mark.park(self._loop, next(self._numbers), "", 0.0)
                line.push(mark)
                marks.append(mark)
        return marks

    def _release_marks(self) -> None:
        """Nobody stands before the marks at the head of a topic's lot: who waits for them need not wait for the topic."""
        for lot in self._lots.values():
            while (record := lot.head()) is not None and record.topic is None:
                self._loop.call_soon(lot.pop().leave().wake)

    @property
    def is_bursting(self) -> bool:
        """Whether a task that fills batches without pause goes on in the next turn, memory allowing."""
        head = self._line.head()
        return head is not None and not head.reason

    @property
    def has_line(self) -> bool:
        """Whether anybody waits for memory or for the next turn."""
        return bool(self._line)

    @property
    def waiting(self) -> int:
        """Records that are parked."""
        return sum(record.topic is not None and not record.asks for record in self._everybody())

    def explain(self) -> list[str]:
        """What the parked records wait for, and how many for each."""
        return reasons.told(self._everybody())

    def _everybody(self) -> Iterator[Parked]:
        return (record for line in (self._line, *self._lots.values()) for record in line)

    def shut(self) -> None:
        """No new record is taken in; those that wait are still served."""
        self._way.fast = {}
        self._is_plain = False

    def close(self, error: Callable[[], Exception]) -> None:
        """Nothing is taken in any more; who waits is told why."""
        self.shut()
        self._alarm.stop()
        for line in (self._line, *self._lots.values()):
            for record in line.take_all():
                self._give_up(record, error())
        self._lots.clear()

    def drop(self, error: Callable[[], Exception]) -> None:
        """The records that wait are not queued, and who sends them is told why; who asks for a topic waits on."""
        for line in (self._line, *self._lots.values()):
            for record in line.take_all():
                if record.asks:
                    line.push(record)
                else:
                    self._give_up(record, error())
        self._reopen()
