"""Batches by partition until they are sent (Java's RecordAccumulator).

1. A partition has a queue of closed batches, oldest first, and at most one open batch behind them.
2. A request takes at most one batch of a partition (ACC-08), and partitions take turns: who was drained goes to the end.
3. Nothing scans partitions: who can be drained stands in its leader's ready queue; who waits for a time is one of `pauses`.
4. A partition's batches in flight are all on one connection (KAFKA-18905). After a failure one goes at a time, until one that went alone
   succeeds: those that were in flight beside the failed one prove nothing. What was cut from a batch that was too large may be too
   large again: it always goes alone.
5. With idempotence, a batch is numbered when it is first drained (`core.sequence_numbers`), and nothing is drained before the producer has an id.
   The first after a long silence goes alone: a broker that has forgotten the producer takes any number for the first.
6. A partition that may not be drained is passed over; it never stops the others (where Java breaks off, ACC-09).
7. An open batch may wait for more records: for a time, or by load: while something of its partition is in flight. It goes when the last
   of that has landed, however that ended, so that nothing can be left behind. What has waited enough, or is full, is ripe: it waits for its
   turn, and takes more until that comes, or it is too old (KIP-782). Nothing waits so while memory is short; but nothing is
   closed then that stands behind other batches, either (`flush_partial_batches`).

Knows nothing of loops, memory, where routes come from (`core.topic_updates`), or how a record becomes bytes: an open batch is an `interfaces.OpenBatch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.availability import Availability
from aioproducer.core.batch_state import Event, State
from aioproducer.core.deadlines import Deadlines
from aioproducer.core.drain_policy import Fill
from aioproducer.core.incomplete_batches import IncompleteBatches
from aioproducer.core.produce_errors import fate
from aioproducer.core.producer_batch import NO_EPOCH, ProducerBatch
from aioproducer.core.ready_partitions import ReadyPartitions
from aioproducer.core.sequence_numbers import LAST_EPOCH, NO_IDENTITY, Past, ProducerIdAndEpoch, SequenceNumbers
from aioproducer.core.topic_routing import NOBODY, PartitionQueue, TopicRouting
from aioproducer.errors import Persisted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.core.batch_splitting import Piece

__all__ = ["NOBODY", "PartitionQueue", "PartitionQueues", "TopicRouting"]

_LOOKS: Final = 256  # partitions of which one drain asks whether their batch is full; the next one goes on behind them
_FRESH: Final = 1 / 16  # of its lifetime in which a batch takes records while it waits for its turn
_REMEMBERED: Final = 60.0  # seconds of silence after which a broker may have forgotten a producer: its own limit is a day
_OPEN, _READY, _CLOSE, _DRAIN, _FAIL = (
    State.OPEN,
    State.READY,
    Event.CLOSE,
    Event.DRAIN,
    Event.FAIL,
)  # looked up once: each batch comes by them


class PartitionQueues:
    """All partitions' batches.

    Args:
        full: what stands for no open batch; its `append` always says no.
        linger: seconds that a partial batch waits.
        by_load: whether it waits while a batch of its partition is in flight.
        lifetime: seconds from a batch's making to its end (`delivery_timeout_ms`).
        on_close: told of each batch that takes no more records; its credit can be settled.
        availability: which partitions records without a key may go to.

    Attributes:
        by_load: as given.
        routings: by topic; `installing` keeps them.
        incomplete: batches that have not ended.
        ready: partitions with something to drain.
        granted: who we are to brokers; NO_IDENTITY while that is asked for, None without idempotence.
        is_transactional: batches belong to transactions, and epochs to their coordinator.
        on_open: told of each batch that is opened.
        on_identity_lost: called when the producer needs another id; `identify` gives it.
        on_send: asked before a batch is drained: 0, or until when its partition is left out.
        on_another_leader: told of a muted partition that another broker leads now.
    """

    def __init__(
        self,
        full: Any,
        *,
        linger: float,
        by_load: bool = False,
        lifetime: float,
        on_close: Callable[[ProducerBatch], None],
        availability: Availability | None = None,
    ) -> None:
        self._on_close = on_close
        self.availability = availability or Availability()
        self.by_load = by_load
        self.routings: dict[str, TopicRouting] = {}
        self.incomplete = IncompleteBatches()
        self.eager = False  # memory is short, or the producer closes: partial batches go at once
        self.full = full
        self._linger = linger
        # Whether any partial batch waits: without linger no batch is asked.
        self._lingers = bool(linger or by_load)
        self._ages = max(lifetime * _FRESH, linger)  # seconds for which a batch takes records
        self._filling: dict[PartitionQueue, None] = {}  # whose batch is open, oldest first
        self._lifetime = lifetime
        self.ready = ReadyPartitions()
        self._pauses = Deadlines()
        self._number = 0
        self._past: Past | None = None
        self.granted: ProducerIdAndEpoch | None = None
        self.is_transactional = False
        self.on_open: Callable[[ProducerBatch], object] | None = None
        self.on_identity_lost: Callable[[], object] = lambda: None
        self.on_send: Callable[[ProducerBatch], float] | None = None
        self.on_another_leader: Callable[[PartitionQueue], object] | None = None

    # Leaders

    def lead(self, queue: PartitionQueue, leader: int, epoch: int) -> None:
        """Another leader, or a later election: what backs off from the last one need not any more (LDR-02)."""
        if leader == queue.leader and epoch <= queue.epoch:
            return
        self.ready.remove(queue)
        queue.one_at_a_time |= leader != queue.leader and (queue.in_flight > 0 or queue.numbers is not None)
        is_another = leader not in (queue.leader, NOBODY)
        queue.leader = leader
        if leader < 0:
            queue.routing.leave(queue)
        if NO_EPOCH < queue.epoch < epoch and leader >= 0:
            queue.retry_at = 0.0
        queue.epoch = max(queue.epoch, epoch)
        self._offer(queue)
        if queue.is_muted and is_another and self.on_another_leader is not None:
            self.on_another_leader(queue)

    def lead_anew(self, queue: PartitionQueue) -> None:
        """Its topic is another of that name: elections are counted anew, and so are its batches."""
        queue.epoch = NO_EPOCH
        if queue.numbers is not None:
            queue.numbers.restart()
            self._look_at(queue)

    # Forgetting

    def may_be_forgotten(self, queue: PartitionQueue) -> bool:
        """Whether nothing of a partition is under way, and it can be known anew."""
        if queue.current is not None or queue.closed or queue.in_flight:
            return False
        return queue.numbers is None or queue.numbers.may_be_forgotten(self.granted)

    def forget(self, queue: PartitionQueue) -> None:
        """Keep of a partition what those that come after it must know. Epochs that are used up end the producer's id."""
        if queue.numbers is not None:
            self._past = queue.numbers.past(self.granted, self._past)
            if self._past is not None and self._past.granted == self.granted and self._past.identity.epoch >= LAST_EPOCH:
                self.lose_identity()

    # Appending

    def open(self, queue: PartitionQueue, open_batch: Any, result: Any, *, credit: int, now: float) -> ProducerBatch:
        """Start a batch; it can be drained at once, or after `linger`."""
        self._number += 1
        batch = ProducerBatch(queue, self._number, open_batch, result, credit=credit, expires_at=now + self._lifetime)
        queue.routing.used_at = now
        queue.current = batch
        queue.bytes += credit
        queue.open = open_batch
        self._filling[queue] = None
        self.incomplete.add(batch)
        if self._linger:  # also an eager one: it may lose its place in the ready queue before it goes, and memory be no longer short
            self._pauses.linger(batch, now + self._linger)
        self._pauses.age(batch, now + self._ages)
        if self.on_open is not None:
            self.on_open(batch)
        if not self._offer(queue) and not self._linger:
            self.watch(queue, now)
        return batch

    def close(self, queue: PartitionQueue) -> ProducerBatch | None:
        """Take the open batch from those who append; it is next in its queue. None if there was none."""
        batch = queue.current
        if batch is not None:
            self._close(batch)
            self._offer(queue)
        return batch

    def _close(self, batch: ProducerBatch) -> None:
        queue, records = batch.queue, batch.open
        assert records is not None
        batch.payload, batch.base_timestamp, batch.max_timestamp = records.close()
        batch.count = records.count
        batch.raw_size = len(batch.payload)
        batch.open = None
        batch.move(_CLOSE)
        queue.current = None
        queue.is_sendable = False
        queue.open = self.full
        del self._filling[queue]
        queue.closed.append(batch)
        self._on_close(batch)

    def mark_sendable(self, queue: PartitionQueue) -> None:
        """Its open batch has waited enough: it goes when its turn comes, and takes more until then."""
        if not queue.is_sendable:
            queue.is_sendable = True
            self._offer(queue)

    def closes_at(self, batch: ProducerBatch) -> float:
        """When one that waits for its turn takes no more records: they share the deadline that began with its first, and would have less time."""
        return batch.expires_at - self._lifetime * (1 - _FRESH)

    @property
    def filling(self) -> int:
        """How many batches take records."""
        return len(self._filling)

    def open_queues(self) -> list[PartitionQueue]:
        """Cells whose batch takes records, oldest first."""
        return list(self._filling)

    # Ready queues

    def _may_go(self, queue: PartitionQueue) -> bool:
        closed, granted = queue.closed, self.granted
        if not closed and (queue.current is None or (self._lingers and not self.eager and self._waits(queue))):
            return False
        if queue.retry_at or queue.is_held or queue.is_muted or (queue.one_at_a_time and queue.in_flight):
            return False
        if granted is None:
            return True
        numbers = queue.numbers
        return granted != NO_IDENTITY if numbers is None else numbers.admits(granted, closed[0] if closed else None, queue.in_flight)

    def _waits(self, queue: PartitionQueue) -> bool:
        return not queue.is_sendable and bool(self._linger or (self.by_load and queue.in_flight))

    def _offer(self, queue: PartitionQueue) -> bool:
        """Whether it has a turn; who has one already is asked again when that comes."""
        ready = self.ready[queue.leader]
        if queue in ready:
            return True
        may_go = self._may_go(queue)
        if may_go:
            ready[queue] = None
        return may_go

    def watch(self, queue: PartitionQueue, now: float) -> None:
        """Whether what it has waits until its broker answers what is in flight before it."""
        has_more = queue.closed or queue.current is not None
        if has_more and queue.in_flight and not queue.is_muted and queue not in self.ready.get(queue.leader, ()):
            self.availability.blocked(queue.leader, now, queue)

    def wake(self, now: float) -> None:
        """Let go what lingered or backed off long enough, and close what waited for its turn too long to take more."""
        for batch in self._pauses.lingered(now):
            self.mark_sendable(batch.queue)
            self.watch(batch.queue, now)
        for batch in self._pauses.aged(now):
            self.close(batch.queue)
        for queue in self._pauses.backed_off(now):
            self._offer(queue)

    def next_wake(self) -> float | None:
        """When to call `wake` next; None: not before something else happens."""
        return self._pauses.next()

    def flush_partial_batches(self) -> None:
        """Memory is short: let every partial batch go now, whatever it would linger.

        One that stands behind others would not go sooner for being closed: it stays open, and takes what memory comes. Else a backlog
        that has used up the memory would be cut into batches of a few records, and be the slower for it.
        """
        for queue in self.open_queues():
            if not queue.closed and (queue.is_sendable or self._waits(queue)):
                self.close(queue)

    # Draining

    def drain(
        self, node_id: int, connection: object, limit: int, most: int | None = None, *, least: Fill = Fill.PARTIAL
    ) -> list[ProducerBatch]:
        """The batches of one request to `node_id` over `connection`: one of each partition, at most `limit` bytes unless the first is larger.

        No more than `most`; those that are less than `least` stay open, and of thousands some are looked at. Their state is ENCODING; they
        count as in flight.
        """
        ready = self.ready[node_id]
        batches: list[ProducerBatch] = []
        size = 0
        for _ in range(min(len(ready), _LOOKS) if least else len(ready)):
            if len(batches) == most or not ready:  # none: who was asked whether to send has muted others
                break
            queue, _ = ready.popitem(last=False)
            if not queue.closed and least > queue.is_sendable:
                ready[queue] = None
                continue
            if self._is_passed_over(queue, connection):
                continue  # offered again when those in flight elsewhere have ended, or what it waits for
            batch = self._first(queue)
            assert batch.payload is not None
            if batches and size + len(batch.payload) > limit:
                ready[queue] = None
                ready.move_to_end(queue, last=False)
                break
            if self.on_send is not None and self._is_left_out(batch, self.on_send):
                continue
            size += len(batch.payload)
            self._take_off(batch, connection)
            batches.append(batch)
        return batches

    def _first(self, queue: PartitionQueue) -> ProducerBatch:
        """Its oldest batch; one that is open closes for that."""
        if not queue.closed:
            assert queue.current is not None
            self._close(queue.current)
        return queue.closed[0]

    def _is_passed_over(self, queue: PartitionQueue, connection: object) -> bool:
        return (queue.in_flight > 0 and queue.connection is not connection) or (self.granted is not None and not self._may_go(queue))

    def _is_left_out(self, batch: ProducerBatch, ask: Callable[[ProducerBatch], float]) -> bool:
        """Whether a batch that could go is held for now."""
        until = ask(batch)
        if until:
            self._pauses.back_off(batch.queue, until)
        return bool(until) or batch.queue.is_muted

    def _take_off(self, batch: ProducerBatch, connection: object) -> None:
        """The first of its partition goes, over that connection."""
        queue = batch.queue
        if self.granted is not None:
            self._number_batch(batch, self.granted)
        del queue.closed[0]
        queue.in_flight += 1
        queue.connection = connection
        batch.held = True
        batch.is_alone = queue.one_at_a_time
        batch.epoch = queue.epoch
        batch.move(_DRAIN)
        if queue.closed or queue.current is not None:
            self._offer(queue)

    def _number_batch(self, batch: ProducerBatch, granted: ProducerIdAndEpoch) -> None:
        queue = batch.queue
        if queue.numbers is None:
            queue.numbers = SequenceNumbers(renews=not self.is_transactional, past=self._past)
        # until the first of an epoch, or after a silence, is acknowledged, its broker may take any number for the first
        is_first = queue.numbers.number(batch, granted) or (batch.expires_at > queue.remembered_until and not queue.in_flight)
        queue.one_at_a_time |= is_first
        queue.remembered_until = batch.expires_at + _REMEMBERED

    def identify(self, identity: ProducerIdAndEpoch | None) -> None:
        """Who the producer is from now on; None: nobody. Partitions go on under what they have until all of that has ended."""
        self.granted = identity
        for batch in self.incomplete:
            self._offer(batch.queue)

    def lose_identity(self) -> None:
        """Another id is needed: no new batch is drained until `identify`."""
        if self.granted not in (None, NO_IDENTITY):
            self.granted = NO_IDENTITY
            self.on_identity_lost()

    def release(self, queue: PartitionQueue) -> None:
        """Let a held partition be drained."""
        queue.is_held = False
        self._offer(queue)

    # Partitions that fail, or hold too much

    def fill(self, queue: PartitionQueue) -> None:
        """It holds as much as it may. Its open batch closes: who comes next must not go ahead of those who wait for room."""
        self.availability.fill(queue)
        self.close(queue)

    def mute(self, queue: PartitionQueue) -> None:
        """Drain nothing of it. Its open batch closes: who goes the fast way to it is to be asked where else to go."""
        queue.is_muted = True
        self.close(queue)
        self.ready.remove(queue)

    def unmute(self, queue: PartitionQueue, *, is_trial: bool) -> None:
        """Drain what it has, now; a trial: one batch, and more when that has succeeded."""
        queue.is_muted = False
        queue.retry_at = 0.0
        queue.one_at_a_time |= is_trial
        self._offer(queue)

    def landed(self, batch: ProducerBatch) -> bool:
        """A drained batch is no longer in flight, whatever became of it. Returns whether it has ended; if not, it is to be ended, put back or split next."""
        queue = batch.queue
        batch.held = False
        queue.in_flight -= 1
        if not queue.in_flight:
            queue.connection = None
        has_ended = batch.ended
        if has_ended:
            self._offer(queue)
        return has_ended

    def succeeded(self, batch: ProducerBatch) -> None:
        """A batch was acknowledged: several may be in flight again, if it was sent alone and what is next was not cut from one too large."""
        queue = batch.queue
        if batch.is_alone and not (queue.closed and queue.closed[0].is_part):
            queue.one_at_a_time = False
            self._offer(queue)

    def requeue(self, batch: ProducerBatch, retry_at: float) -> None:
        """Put a batch back in its place, not to be drained before `retry_at` (0: at once), or before the next election."""
        queue = batch.queue
        batch.move(Event.RETRY)
        self._put_back(queue, [batch])
        if retry_at and not NO_EPOCH < batch.epoch < queue.epoch:
            self._pauses.back_off(queue, retry_at)
        else:
            self._offer(queue)

    def split(self, batch: ProducerBatch, pieces: Sequence[tuple[Piece, Any]]) -> list[ProducerBatch]:
        """Put smaller batches, of pieces and their results, in the place of one that was refused: ahead of what came after it (BAT-03)."""
        queue = batch.queue
        batch.move(Event.SPLIT)
        parts = [batch.part(nth, piece, result) for nth, (piece, result) in enumerate(pieces)]
        if queue.numbers is not None:
            queue.numbers.split(batch, parts)
        self.incomplete.split(batch, parts)
        self._put_back(queue, parts)
        self._offer(queue)
        return parts

    def _put_back(self, queue: PartitionQueue, batches: Sequence[ProducerBatch]) -> None:
        closed = queue.closed
        at = 0
        while at < len(closed) and closed[at].place < batches[0].place:
            at += 1
        closed[at:at] = batches
        queue.one_at_a_time = True
        self.ready.remove(queue)

    def end(self, batch: ProducerBatch, event: Event) -> None:
        """A batch was acknowledged or failed, wherever it stands."""
        queue = batch.queue
        if batch.state is _OPEN:
            self.close(queue)
        if queue.numbers is not None and event is _FAIL:
            queue.numbers.failed(batch, may_be_written=fate(batch) is not Persisted.NO)
        elif queue.numbers is not None:
            queue.numbers.acknowledged(batch)
        if batch.state is _READY:
            queue.closed.remove(batch)
        batch.move(event)
        if event is _FAIL:
            self._look_at(queue)
        else:  # an acknowledgement takes nobody's turn away
            self._offer(queue)
        self.incomplete.end(batch)

    def acknowledged_late(self, batch: ProducerBatch) -> None:
        """The answer to one that has ended: it is in the log."""
        if batch.queue.numbers is not None:
            batch.queue.numbers.acknowledged(batch)
            self._look_at(batch.queue)

    def renumber(self, batch: ProducerBatch, *, is_fenced: bool) -> None:
        """Its broker will not take its number; it gets another one when all before it have ended."""
        numbers = batch.queue.numbers
        if numbers is not None:
            numbers.lose(batch, is_fenced=is_fenced)
            self._look_at(batch.queue)

    def _look_at(self, queue: PartitionQueue) -> None:
        """A batch of it ended, or its numbers have changed: it may go, or not any more, or the whole producer needs another id for it."""
        if self.granted is not None and queue.numbers is not None and queue.numbers.needs_identity(self.granted):
            self.lose_identity()
        if self._may_go(queue):
            self.ready[queue.leader][queue] = None
        else:
            self.ready.remove(queue)
