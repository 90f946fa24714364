"""Holds the batches of each partition until the Sender drains them (Java's RecordAccumulator).

1. A partition queue has closed batches, oldest first, and at most one open batch behind them.
2. A request has at most one batch of a partition (ACC-08). Partitions are drained round-robin: a drained partition queue moves to
   the end.
3. No operation scans all partitions. A partition queue with a batch to drain is in the ready queue of its leader. A batch or
   partition queue that waits for a time is in `deadlines`.
4. All in-flight batches of a partition are on one connection (KAFKA-18905). After a failure the partition has one batch in flight
   at a time, until a batch that was sent alone succeeds. The success of a batch that was in flight beside the failed batch does not
   end that. A part of a batch that was too large may be too large again: it is always sent alone.
5. With idempotence, a batch gets its sequence number when it is first drained (`core.sequence_numbers`). No batch is drained before
   the producer has a producer id. The first batch after a long silence is sent alone: a broker that has forgotten the producer
   accepts any sequence number as the first.
6. A partition that may not be drained is skipped. It never stops the others (Java's drain loop breaks off there, ACC-09).
7. An open batch may wait for more records, either for a time, or by load: while its partition has a batch in flight. By load, it
   becomes sendable when the last of those batches is no longer in flight, however that batch ended. So no batch can be left behind.
   A batch that is full or has waited long enough is sendable: it waits for the next drain. It accepts records until then, or until
   it is too old (KIP-782). No batch lingers while memory is short. But a batch that has other batches of its partition before it is
   not closed for that (`flush_partial_batches`).
8. A signal handler may raise in any call, as Ctrl-C does. That fails the producer (`GuardedLoop`), and nothing here is built to go on. But
   the producer must be able to fail: each delivery ends, and each task wakes. Schedule first, set the flag last. Wake first, remove last.
9. A log handler, or an object that the garbage collector finalizes, may send within a send. After its last call, the outer send checks
   whether the inner one has opened or closed the batch.

`core.topic_updates` makes the topic routings. An open batch encodes its records: it is an `interfaces.OpenBatch`.
It has a record when it is opened.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.availability import Availability
from aioproducer.core.deadlines import Deadlines, IncompleteBatches
from aioproducer.core.drain_policy import DrainPolicy, Fill, Linger
from aioproducer.core.producer_batch import NEXT, NO_EPOCH, Event, PartitionQueue, ProducerBatch
from aioproducer.core.sequence_numbers import NO_IDENTITY, Idempotence
from aioproducer.core.topic_routing import NO_LEADER, TopicRouting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch

__all__ = ["NO_LEADER", "PartitionQueue", "PartitionQueues", "ReadyPartitions", "TopicRouting"]

# Partition queues among which one drain looks at most for full or closed batches.
_LOOKS: Final = 1024
# The part of its lifetime in which a sendable batch accepts records.
_FRESH: Final = 1 / 16
# Looked up once: every batch passes through them.
_CLOSE, _DRAIN = Event.CLOSE, Event.DRAIN


class PartitionQueues:
    """Holds the batches of all partitions.

    Args:
        full: the object that replaces a missing open batch; its `append` always refuses.
        linger: seconds that a partial batch waits.
        policy: decides whether an open batch waits for more records; None: the rules of `linger`.
        lifetime: seconds from the creation of a batch to its expiry (`delivery_timeout_ms`).
        on_close: called with each batch that accepts no more records; its credit can be settled.
        on_open: called with each batch that is opened, before it may be drained.
        availability: decides which partitions records without a key may go to.
        idempotence: the producer id, and the numbers of batches; None: without idempotence.

    Attributes:
        policy: as given.
        routings: the topic routings by topic; `topic_updates.installing` maintains them.
        incomplete: batches that have not ended.
        ready: partitions with a batch to drain.
        deadlines: of lingering and aging batches, and of partitions that back off.
        idempotence: as given.
        moved: muted partition queues that got another broker as their leader. The caller handles them, and empties the list.
    """

    def __init__(
        self,
        full: Any,
        *,
        linger: float,
        policy: DrainPolicy | None = None,
        lifetime: float,
        on_close: Callable[[ProducerBatch], None],
        on_open: Callable[[ProducerBatch], object] | None = None,
        availability: Availability | None = None,
        idempotence: Idempotence | None = None,
    ) -> None:
        self._on_close = on_close
        self.availability: Availability = availability or Availability()
        self.policy: DrainPolicy = policy or DrainPolicy(Linger.of(linger))
        self.routings: dict[str, TopicRouting] = {}
        self.incomplete: IncompleteBatches = IncompleteBatches()
        self.full = full
        self._linger = linger
        self._lifetime = lifetime
        self.idempotence: Idempotence = idempotence or Idempotence()
        self.ready: ReadyPartitions = ReadyPartitions(self.policy, self.idempotence)
        self.deadlines: Deadlines = Deadlines(max(lifetime * _FRESH, linger), lifetime)
        self._filling = self.deadlines.filling
        self._number = 0
        self._on_open = on_open
        self.moved: list[PartitionQueue] = []

    # Leaders

    def lead(self, queue: PartitionQueue, leader: int, epoch: int) -> None:
        """Set the leader of a partition, elected at `epoch`.

        A later election ends the backoff of the partition: the backoff concerned the previous leader (LDR-02).
        """
        if leader == queue.leader and epoch <= queue.epoch:
            return
        self.ready.remove(queue)
        queue.one_at_a_time |= leader != queue.leader and (
            queue.in_flight > 0 or queue.numbers is not None
        )
        is_another = leader not in (queue.leader, NO_LEADER)
        queue.leader = leader
        if leader < 0:
            queue.routing.leave(queue)
        if NO_EPOCH < queue.epoch < epoch and leader >= 0:
            queue.retry_at = 0.0
        queue.epoch = max(queue.epoch, epoch)
        self.ready.offer(queue)
        if queue.is_muted and is_another:
            self.moved.append(queue)

    def lead_anew(self, queue: PartitionQueue) -> None:
        """Reset the epoch and the sequence numbers of a partition after its topic was created again under the same name.

        The new topic counts elections from the start.
        """
        queue.epoch = NO_EPOCH
        if queue.numbers is not None:
            queue.numbers.restart()
            self.ready.check(queue)

    # Appending

    def open(
        self, queue: PartitionQueue, open_batch: Any, result: Any, *, now: float
    ) -> ProducerBatch:
        """Open a batch that has its first record, and return it. It can be drained at once, or after `linger`."""
        batch = ProducerBatch(
            queue, self._number, open_batch, result, expires_at=now + self._lifetime
        )
        if queue.current is not None:
            # A send within this send has opened it: rule 9.
            self.close(queue)
        self._number = batch.number = self._number + 1
        queue.routing.used_at = now
        self.incomplete.roots[batch] = None
        self._filling[queue] = None
        queue.current = batch
        queue.open = open_batch
        # Also while memory is short: the batch may leave the ready queue before it is drained, and memory may no longer be short then.
        if self._linger:
            self.deadlines.linger(batch, now + self._linger)
        if self.idempotence.granted is NO_IDENTITY:
            self.idempotence.on_identity_lost()
        if self._on_open is not None:
            self._on_open(batch)
        if not self.ready.offer(queue) and not self._linger:
            self.watch(queue, now)
        return batch

    def close(self, queue: PartitionQueue) -> ProducerBatch | None:
        """Close the open batch and append it to the closed batches of its queue. Returns None if there was none."""
        batch = queue.current
        if batch is not None:
            self._close(batch)
            self.ready.offer(queue)
        return batch

    def _close(self, batch: ProducerBatch) -> ProducerBatch:
        queue, records = batch.queue, batch.open
        # Here and below: a send within this one has closed it (rule 9).
        if records is None:
            return batch
        payload, base_timestamp, max_timestamp = records.close()
        size = len(payload)
        if batch.open is None:
            return batch
        state = NEXT[batch.state, _CLOSE]
        batch.payload, batch.base_timestamp, batch.max_timestamp = (
            payload,
            base_timestamp,
            max_timestamp,
        )
        batch.count = records.count
        batch.raw_size = size
        batch.open = None
        batch.state = state
        queue.current = None
        queue.is_sendable = False
        queue.open = self.full
        del self._filling[queue]
        self.ready.closed += 1
        queue.closed.append(batch)
        self._on_close(batch)
        return batch

    def mark_sendable(self, queue: PartitionQueue) -> None:
        """Mark the open batch as sendable: it has waited long enough.

        It is drained with its partition queue, and accepts records until then.
        """
        if not queue.is_sendable and queue.current is not None:
            queue.is_sendable = True
            self.ready.offer(queue)

    @property
    def filling(self) -> int:
        """Return the number of open batches."""
        return len(self._filling)

    def open_queues(self) -> list[PartitionQueue]:
        """Return the partition queues that have an open batch, oldest batch first."""
        return list(self._filling)

    # Waiting

    def watch(self, queue: PartitionQueue, now: float) -> None:
        """Report the leader as blocked if the partition has batches that wait for its in-flight batches."""
        has_more = queue.closed or queue.current is not None
        if (
            has_more
            and queue.in_flight
            and not queue.is_muted
            and queue not in self.ready.get(queue.leader, ())
        ):
            self.availability.blocked(queue.leader, now, queue)

    def watch_drained(self, node_id: int, batches: Iterable[ProducerBatch], now: float) -> None:
        """Note that a broker was drained, and watch the leaders of partitions with more batches, which wait for the drained ones.

        Without a time after which a broker is late, this does nothing.
        """
        if not self.availability.timeout:
            return
        self.availability.drained(node_id)
        for batch in batches:
            self.watch(batch.queue, now)

    def wake(self, now: float) -> None:
        """Offer batches that have lingered and partitions that have backed off. Close open batches that are too old."""
        for batch in self.deadlines.lingered(now):
            self.mark_sendable(batch.queue)
            self.watch(batch.queue, now)
        for queue in self.deadlines.aged(now):
            self.close(queue)
        for queue in self.deadlines.backed_off(now):
            self.ready.offer(queue)

    def flush_partial_batches(self) -> None:
        """Close every partial batch that lingers or is sendable, because memory is short. None lingers until `linger_again`.

        A batch that has closed batches before it would not be sent sooner if it were closed. It stays open and accepts records as
        memory becomes free. If it were closed, a backlog that has used up the memory would be cut into batches of a few records.
        The producer would drain that backlog more slowly.
        """
        self.ready.memory_is_short = True
        for queue in self.open_queues():
            if not queue.closed and (
                queue.is_sendable or self.policy.waits(queue.in_flight, memory_is_short=False)
            ):
                self.close(queue)

    def linger_again(self) -> None:
        """Let partial batches linger, because memory is no longer short."""
        self.ready.memory_is_short = False

    # Draining

    def drain(
        self,
        node_id: int,
        connection: object,
        limit: int,
        most: int | None = None,
        *,
        least: Fill = Fill.PARTIAL,
        ask: Callable[[ProducerBatch], float] | None = None,
    ) -> list[ProducerBatch]:
        """Return the batches of one request to `node_id` over `connection`: at most one of each partition.

        Their payloads have at most `limit` bytes together, unless the first alone is larger. There are at most `most` of them.
        Batches that are less than `least` stay open, and their partitions keep their places. With a `least` above PARTIAL, at most 1,024
        partitions are checked: those that have waited longest. The returned batches are in the state ENCODING and count as in flight.
        `ask` is called with each batch before it is drained. It returns 0, or the time until which the partition is skipped.
        """
        ready = self.ready[node_id]
        batches: list[ProducerBatch] = []
        size = 0
        looks = _bring_forward(ready, least) if least else len(ready)
        # `ready` may be empty sooner: `ask` may have muted other partitions.
        while looks and ready and len(batches) != most:
            looks -= 1
            queue, _ = ready.popitem(last=False)
            if self._is_passed_over(queue, connection):
                continue
            batch = self._first(queue)
            assert batch.payload is not None
            if batches and size + len(batch.payload) > limit:
                ready[queue] = None
                ready.move_to_end(queue, last=False)
                break
            if ask is not None and self._is_left_out(batch, ask):
                continue
            size += len(batch.payload)
            batches.append(batch)
            self._take_off(batch, connection)
        return batches

    def _first(self, queue: PartitionQueue) -> ProducerBatch:
        """Return the first batch of a partition; an open one is closed."""
        if queue.closed:
            return queue.closed[0]
        batch = queue.current
        assert batch is not None
        return self._close(batch)

    def _is_passed_over(self, queue: PartitionQueue, connection: object) -> bool:
        """Return whether no batch of a partition may be drained over this connection now.

        The partition is offered again when its batches in flight on another connection have ended, or when its other condition is met.
        """
        is_elsewhere = bool(queue.in_flight) and queue.connection is not connection
        return is_elsewhere or (
            self.idempotence.granted is not None and not self.ready.may_be_drained(queue)
        )

    def _is_left_out(self, batch: ProducerBatch, ask: Callable[[ProducerBatch], float]) -> bool:
        """Return whether a batch that could be drained is held back for now."""
        until = ask(batch)
        if until:
            self.deadlines.back_off(batch.queue, until)
        return bool(until) or batch.queue.is_muted

    def _take_off(self, batch: ProducerBatch, connection: object) -> None:
        """Remove the first batch of its partition queue, to be sent over `connection`."""
        queue = batch.queue
        if self.idempotence.granted is not None:
            self.idempotence.number(batch, queue)
        del queue.closed[0]
        self.ready.closed -= 1
        queue.in_flight += 1
        queue.connection = connection
        batch.held = True
        batch.is_alone = queue.one_at_a_time
        batch.epoch = queue.epoch
        batch.state = NEXT[batch.state, _DRAIN]
        if queue.closed or queue.current is not None:
            self.ready.offer(queue)

    def identify(self, identity: ProducerIdAndEpoch | None) -> None:
        """Set the producer id and epoch; None: no idempotence.

        A partition continues under its old ones until all batches numbered under them have ended.
        """
        self.idempotence.identify(identity)
        for batch in self.incomplete:
            self.ready.offer(batch.queue)

    def release(self, queue: PartitionQueue) -> None:
        """Allow the drain of a partition that was held."""
        queue.is_held = False
        self.ready.offer(queue)

    # Partitions that fail, or hold too much

    def fill(self, queue: PartitionQueue) -> None:
        """Mark a partition as full: it holds as much memory as it may.

        Its open batch closes: a later send must not pass the sends that wait for memory.
        """
        self.availability.fill(queue)
        self.close(queue)

    def mute(self, queue: PartitionQueue) -> None:
        """Stop the drain of a partition.

        Its open batch closes: a send on the fast path then takes the slow path, which may choose another partition.
        """
        queue.is_muted = True
        self.close(queue)
        self.ready.remove(queue)

    def unmute(self, queue: PartitionQueue, *, is_trial: bool) -> None:
        """Allow the drain of a muted partition at once. If `is_trial`, it sends one batch alone, and more after that batch succeeds."""
        queue.is_muted = False
        queue.retry_at = 0.0
        queue.one_at_a_time |= is_trial
        self.ready.offer(queue)


def _bring_forward(ready: OrderedDict[PartitionQueue, None], least: Fill) -> int:
    """Move the partitions with a batch of `least` or more before the others, in their order. Returns their number."""
    found = [queue for queue in islice(ready, _LOOKS) if queue.closed or queue.is_sendable >= least]
    for queue in reversed(found):
        ready.move_to_end(queue, last=False)
    return len(found)


class ReadyPartitions(dict[int, OrderedDict["PartitionQueue", None]]):
    """Maps a broker to its partition queues with a batch to drain, in the order of their drains. Those without a leader are under -1.

    Args:
        policy: decides whether an open batch waits for more records.
        idempotence: has the producer id, without which no batch is drained.

    Attributes:
        closed: number of closed batches of all partitions that are not drained yet. `PartitionQueues` and `ProduceAttempts` count them.
        memory_is_short: memory is short, or the producer closes: no partial batch lingers. `PartitionQueues` sets it.
    """

    __slots__ = ("_idempotence", "_policy", "closed", "memory_is_short")

    def __init__(self, policy: DrainPolicy, idempotence: Idempotence) -> None:
        super().__init__()
        self._policy = policy
        self._idempotence = idempotence
        self.closed: int = 0
        self.memory_is_short: bool = False

    def __missing__(self, node_id: int) -> OrderedDict[PartitionQueue, None]:
        queues = self[node_id] = OrderedDict()
        return queues

    def may_be_drained(self, queue: PartitionQueue) -> bool:
        """Return whether a partition has a batch that may be drained now, over the connection of its in-flight batches."""
        closed, granted = queue.closed, self._idempotence.granted
        if not closed and (
            queue.current is None or (self._policy.has_holds and self._waits(queue))
        ):
            return False
        if (
            queue.retry_at
            or queue.is_held
            or queue.is_muted
            or (queue.one_at_a_time and queue.in_flight)
        ):
            return False
        if granted is None:
            return True
        numbers = queue.numbers
        return (
            granted != NO_IDENTITY
            if numbers is None
            else numbers.admits(granted, closed, queue.in_flight)
        )

    def _waits(self, queue: PartitionQueue) -> bool:
        return not queue.is_sendable and self._policy.waits(
            queue.in_flight, memory_is_short=self.memory_is_short
        )

    def offer(self, queue: PartitionQueue) -> bool:
        """Add a partition if it may be drained. Returns whether it is ready.

        A partition that is ready already is not checked here: with idempotence, `PartitionQueues.drain` checks it again.
        """
        queues = self[queue.leader]
        if queue in queues:
            return True
        may_be_drained = self.may_be_drained(queue)
        if may_be_drained:
            queues[queue] = None
        return may_be_drained

    def check(self, queue: PartitionQueue) -> None:
        """Check a partition again after a batch of it ended or its sequence numbers changed.

        It may become ready, or stop being ready, or the producer may need another producer id for it.
        """
        self._idempotence.check(queue)
        if self.may_be_drained(queue):
            self[queue.leader][queue] = None
        else:
            self.remove(queue)

    def remove(self, queue: PartitionQueue) -> None:
        """Remove a partition queue, if it is ready."""
        if (queues := self.get(queue.leader)) is not None:
            queues.pop(queue, None)

    def nodes(self) -> list[int]:
        """Return the brokers that have partitions to drain. -1 among them shows partitions that wait for a leader."""
        return [node_id for node_id, queues in self.items() if queues]

    def queues(self, node_id: int) -> tuple[PartitionQueue, ...]:
        """Return the partitions with a batch to drain to a broker."""
        return tuple(self.get(node_id, ()))

    def topics(self, node_id: int) -> set[str]:
        """Return the topics with a batch to drain to a broker; for -1, the topics with batches for partitions that have no leader."""
        return {queue.topic for queue in self.get(node_id, ())}
