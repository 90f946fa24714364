"""Batches by partition until they are sent (Java's RecordAccumulator).

1. A partition has a queue of closed batches, oldest first, and at most one open batch behind them.
2. A request takes at most one batch of a partition (ACC-08), and partitions take turns: who was drained goes to the end.
3. Nothing scans partitions: who can be drained stands in its leader's ready queue; who waits stands in a heap by time.
4. A partition's batches in flight are all on one connection (KAFKA-18905). After a failure one goes at a time, until one succeeds.
5. A partition that may not be drained is passed over; it never stops the others (where Java breaks off, ACC-09).

Knows nothing of loops, memory, or how a record becomes bytes: an open batch is an `interfaces.OpenBatch`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.batch import Batch, Event, State
from aioproducer.core.metadata import NO_ID
from aioproducer.core.partitioner import murmur2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioproducer.core.metadata import TopicView

__all__ = ["Accumulator", "Cell", "Route"]

_KEYS: Final = 32_768  # keys whose partition a topic remembers
_STRANGERS: Final = 16 * _KEYS  # sends of other keys after which it learns anew
NOBODY: Final = -1  # the leader of a partition that has none


class Cell:
    """One partition's batches, and what keeps them from being drained.

    Attributes:
        open: takes records; the `full` sentinel when there is no open batch, so that the fast way asks nothing.
        lane: the connection that its batches in flight are on; opaque here.
        one_at_a_time: after a failure or a change of leader, until a batch succeeds.
    """

    __slots__ = ("closed", "current", "in_flight", "lane", "leader", "one_at_a_time", "open", "partition", "retry_at", "route", "topic")

    def __init__(self, route: Route, partition: int, leader: int, full: Any) -> None:
        self.route = route
        self.topic = route.topic
        self.partition = partition
        self.leader = leader
        self.open = full
        self.current: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.in_flight = 0
        self.lane: object = None
        self.one_at_a_time = False
        self.retry_at = 0.0

    def __repr__(self) -> str:
        return f"<Cell {self.topic}-{self.partition} leader {self.leader}: {len(self.closed)} closed, {self.in_flight} in flight>"


class Placement(dict[bytes, "Cell"]):
    """`placement[key]`: the cell of a key. Those of keys seen lately are remembered, which spares their hash.

    TypeError: a key is not bytes.
    """

    __slots__ = ("_cells", "_strangers")

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = cells
        self._strangers = 0

    def __missing__(self, key: bytes) -> Cell:
        cells = self._cells
        cell = cells[(murmur2(key) & 0x7FFFFFFF) % len(cells)]
        if len(self) < _KEYS:
            if type(key) is not bytes:  # a view of the same bytes would be found by them, and keep what it views
                raise TypeError("a key is bytes")
            self[key] = cell
        else:
            self._strangers += 1
            if self._strangers > _STRANGERS:  # other keys are in use by now, or keys hardly repeat
                self.forget()
        return cell

    def forget(self) -> None:
        """Keys belong elsewhere by now, or others are in use."""
        self.clear()
        self._strangers = 0


class Route:
    """Where the records of one topic go.

    Attributes:
        by_key: the cell of a key.
        sticky: the cell that records without a key go to until its batch closes.
    """

    __slots__ = ("by_key", "cells", "sticky", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.cells: list[Cell] = []
        self.by_key = Placement(self.cells)
        self.sticky: Cell | None = None


class Accumulator:
    """All partitions' batches.

    Args:
        full: what stands for no open batch; its `append` always says no.
        linger: seconds that a partial batch waits.
        lifetime: seconds from a batch's making to its end (`delivery_timeout_ms`).
        on_close: told of each batch that takes no more records; its credit can be settled.
    """

    def __init__(self, full: Any, *, linger: float, lifetime: float, on_close: Callable[[Batch], None]) -> None:
        self._on_close = on_close
        self.routes: dict[str, Route] = {}
        self.incomplete: OrderedDict[Batch, None] = OrderedDict()  # oldest first: all live equally long, so the first expires first
        self.eager = False  # memory is short, or the producer closes: partial batches go at once
        self._full = full
        self._linger = linger
        self._lifetime = lifetime
        self._ready: dict[int, OrderedDict[Cell, None]] = {}
        self._lingering: deque[tuple[float, Batch]] = deque()
        self._backing_off: list[tuple[float, int, Cell]] = []
        self._number = 0

    # Topics

    def install(self, topic: TopicView) -> Route:
        """Take over what is known of a topic: new partitions, new leaders. Its cells and their batches stay.

        A topic that was made anew may have fewer partitions: no record goes to the others any more; what they hold is still tried.
        """
        route = self.routes.get(topic.name)
        if route is None:
            route = self.routes[topic.name] = Route(topic.name, topic.topic_id)
        route.topic_id = topic.topic_id if topic.topic_id != NO_ID else route.topic_id
        is_other = len(topic.partitions) != len(route.cells)
        del route.cells[len(topic.partitions) :]
        for index in range(len(route.cells), len(topic.partitions)):
            route.cells.append(Cell(route, index, NOBODY, self._full))
        for cell, partition in zip(route.cells, topic.partitions, strict=True):
            self._lead(cell, partition.leader)
        if is_other:
            route.by_key.forget()
            route.sticky = None
        return route

    def _lead(self, cell: Cell, leader: int) -> None:
        if leader == cell.leader:
            return
        self._unready(cell)
        cell.leader = leader
        cell.one_at_a_time |= cell.in_flight > 0
        self._offer(cell)

    # Appending

    def open(self, cell: Cell, open_batch: Any, result: Any, *, credit: int, now: float) -> Batch:
        """Start a batch; it can be drained at once, or after `linger`."""
        self._number += 1
        batch = Batch(cell, self._number, open_batch, result, credit=credit, expires_at=now + self._lifetime)
        cell.current = batch
        cell.open = open_batch
        self.incomplete[batch] = None
        if self._linger:  # also an eager one: it may lose its place in the ready queue before it goes, and memory be no longer short
            self._lingering.append((now + self._linger, batch))
        self._offer(cell)
        return batch

    def close(self, cell: Cell) -> Batch | None:
        """Take the open batch from those who append; it is next in its queue. None if there was none."""
        batch = cell.current
        if batch is None:
            return None
        assert batch.open is not None
        batch.payload, batch.base_timestamp, batch.max_timestamp = batch.open.close()
        batch.count = batch.open.count
        batch.open = None
        batch.move(Event.CLOSE)
        cell.current = None
        cell.open = self._full
        cell.closed.append(batch)
        self._on_close(batch)
        self._offer(cell)
        return batch

    def open_cells(self) -> list[Cell]:
        """Cells whose batch takes records, oldest first."""
        return [batch.cell for batch in self.incomplete if batch.state is State.OPEN]

    # Ready queues

    def _may_go(self, cell: Cell) -> bool:
        if not cell.closed and (cell.current is None or (self._linger and not self.eager)):
            return False
        return not cell.retry_at and not (cell.one_at_a_time and cell.in_flight)

    def _offer(self, cell: Cell) -> None:
        if self._may_go(cell):
            self._ready.setdefault(cell.leader, OrderedDict())[cell] = None

    def _unready(self, cell: Cell) -> None:
        if (ready := self._ready.get(cell.leader)) is not None:
            ready.pop(cell, None)

    def ready_nodes(self) -> Iterator[int]:
        """Brokers with something to drain; `NOBODY` among them shows partitions that wait for a leader."""
        return (node_id for node_id, cells in self._ready.items() if cells)

    def has_ready(self, node_id: int) -> bool:
        """Whether a broker has something to drain."""
        return bool(self._ready.get(node_id))

    def ready_topics(self, node_id: int) -> set[str]:
        """Topics with something to drain to a broker; for `NOBODY`, those with records for partitions that have no leader."""
        return {cell.topic for cell in self._ready.get(node_id, ())}

    def wake(self, now: float) -> None:
        """Let go what lingered or backed off long enough."""
        lingering = self._lingering
        while lingering and (lingering[0][0] <= now or lingering[0][1].state is not State.OPEN):
            batch = lingering.popleft()[1]
            if batch.state is State.OPEN:
                self.close(batch.cell)
        waiting = self._backing_off
        while waiting and waiting[0][0] <= now:
            _, _, cell = heapq.heappop(waiting)
            if cell.retry_at and cell.retry_at <= now:
                cell.retry_at = 0.0
                self._offer(cell)

    def next_wake(self) -> float | None:
        """When to call `wake` next; None: not before something else happens."""
        moments = [self._lingering[0][0]] if self._lingering else []
        if self._backing_off:
            moments.append(self._backing_off[0][0])
        return min(moments, default=None)

    def hurry(self) -> None:
        """Let every partial batch go now, whatever it would linger: memory is short, a flush, or the end."""
        while self._lingering:
            self._offer_or_close(self._lingering.popleft()[1])

    def _offer_or_close(self, batch: Batch) -> None:
        if batch.state is State.OPEN:
            self.close(batch.cell)

    # Draining

    def drain(self, node_id: int, lane: object, limit: int, *, full_only: bool = False) -> list[Batch]:
        """The batches of one request to `node_id` over `lane`: one of each partition, at most `limit` bytes unless the first is larger.

        `full_only` leaves those open that still fill. Their state is ENCODING; they count as in flight.
        """
        ready = self._ready.get(node_id)
        batches: list[Batch] = []
        size = 0
        for _ in range(len(ready or ())):
            assert ready is not None
            cell, _ = ready.popitem(last=False)
            if cell.in_flight and cell.lane is not lane:
                continue  # offered again when those in flight elsewhere have ended
            if full_only and not cell.closed:
                ready[cell] = None
                continue
            if not cell.closed:
                self.close(cell)
                ready.pop(cell, None)
            batch = cell.closed[0]
            assert batch.payload is not None
            if batches and size + len(batch.payload) > limit:
                ready[cell] = None
                ready.move_to_end(cell, last=False)
                break
            size += len(batch.payload)
            cell.closed.popleft()
            cell.in_flight += 1
            cell.lane = lane
            batch.held = True
            batch.move(Event.DRAIN)
            batches.append(batch)
            self._offer(cell)
        return batches

    def landed(self, batch: Batch) -> None:
        """A drained batch is no longer in flight, whatever became of it."""
        cell = batch.cell
        batch.held = False
        cell.in_flight -= 1
        if not cell.in_flight:
            cell.lane = None
        self._offer(cell)

    def succeeded(self, cell: Cell) -> None:
        """A batch of it was acknowledged: several may be in flight again."""
        cell.one_at_a_time = False
        self._offer(cell)

    def requeue(self, batch: Batch, retry_at: float) -> None:
        """Put a batch back in its place, not to be drained before `retry_at` (0: at once)."""
        cell = batch.cell
        batch.move(Event.RETRY)
        closed = cell.closed
        at = 0
        while at < len(closed) and closed[at].number < batch.number:
            at += 1
        closed.insert(at, batch)
        cell.one_at_a_time = True
        self._unready(cell)
        if retry_at:
            cell.retry_at = max(cell.retry_at, retry_at)
            heapq.heappush(self._backing_off, (cell.retry_at, batch.number, cell))
        else:
            self._offer(cell)

    def end(self, batch: Batch, event: Event) -> None:
        """A batch was acknowledged or failed, wherever it stands."""
        if batch.state is State.OPEN:
            self.close(batch.cell)
        cell = batch.cell
        if batch.state is State.READY:
            cell.closed.remove(batch)
            if not self._may_go(cell):
                self._unready(cell)
        batch.move(event)
        del self.incomplete[batch]

    def expired(self, now: float) -> list[Batch]:
        """Batches whose time is over, oldest first. They are not ended yet."""
        batches = []
        for batch in self.incomplete:
            if batch.expires_at > now:
                break
            batches.append(batch)
        return batches

    def next_expiry(self) -> float | None:
        """When the oldest batch's time is over."""
        return next((batch.expires_at for batch in self.incomplete), None)
