"""Ends attempts to send batches: judges them by the batch's deadline and retries; completes, requeues, splits or fails batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.core.produce_errors import Action, Verdict, fate, judge, standing
from aioproducer.core.producer_batch import NEXT, NO_EPOCH, Event, State
from aioproducer.errors import BrokerError, Persisted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from aioproducer.core.batch_splitting import Piece
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.producer_batch import PartitionQueue, ProducerBatch
    from aioproducer.errors import TransportError

_MISSING: Final = ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")
_ANEW: Final = frozenset({Action.RENUMBER, Action.NEW_ID})
# Python 3.11 looks enum members up slowly, and every batch needs this one.
_ACKNOWLEDGE: Final = Event.ACKNOWLEDGE
# This state and all states after it.
_ENDED: Final = State.DONE
AGAIN: Final = frozenset({Action.RETRY, Action.AWAIT}) | _ANEW


def over(
    batch: ProducerBatch,
    error: BrokerError | TransportError | None,
    *,
    now: float,
    retries: int,
    transactional: bool,
    named: int = 0,
    appended: bool = False,
) -> Verdict:
    """Return the verdict on an attempt of a batch that has not ended. Mark the batch if the attempt is uncertain.

    Args:
        batch: no longer in flight.
        error: the error of the attempt; None: it was acknowledged.
        now: in seconds, as the batch's `expires_at`.
        retries: how often a batch may be sent again.
        transactional: whether the transaction coordinator gives the epochs.
        named: number of its records that the broker refused by name.
        appended: whether the error came with an offset, which shows an append.
    """
    if error is None:
        batch.error = None
        return judge(None)
    verdict = judge(
        error,
        stands=standing(batch),
        transactional=transactional,
        records=batch.count,
        named=named,
        appended=appended,
    )
    batch.error = error
    batch.may_be_written |= verdict.uncertain
    batch.spared += verdict.action is Action.AWAIT
    is_last = now >= batch.expires_at or (
        verdict.action in AGAIN and (failures(batch) > retries or _is_gone(batch, error))
    )
    return (
        verdict._replace(action=Action.FAIL)
        if is_last and verdict.action is not Action.COMPLETE
        else verdict
    )


def _is_gone(batch: ProducerBatch, error: BrokerError | TransportError) -> bool:
    """Return whether a broker misses a partition that its topic no longer has: a topic loses partitions only when it is made anew."""
    return (
        batch.queue.partition >= len(batch.queue.routing.queues)
        and isinstance(error, BrokerError)
        and error.name in _MISSING
    )


def failures(batch: ProducerBatch) -> int:
    """Return the attempts that count as failures."""
    return batch.attempts - batch.spared


class ProduceAttempts:
    """Ends the attempts of drained batches, and batches (Java's `Sender.completeBatch`, `reenqueueBatch` and `failBatch`).

    Each attempt ends with `remove_in_flight`. Unless the batch has ended by then, one of the other methods follows.

    Args:
        partition_queues: the queues that the batches were drained from.
    """

    def __init__(self, partition_queues: PartitionQueues) -> None:
        self._partition_queues = partition_queues
        self._ready = partition_queues.ready
        self._deadlines = partition_queues.deadlines
        self._incomplete = partition_queues.incomplete
        self._idempotence = partition_queues.idempotence

    def remove_in_flight(self, batch: ProducerBatch) -> bool:
        """Note that a drained batch is no longer in flight. Returns whether it has ended."""
        queue = batch.queue
        batch.on_wire = batch.held = False
        queue.in_flight -= 1
        if not queue.in_flight:
            queue.connection = None
        has_ended = batch.state >= _ENDED
        if has_ended:
            self._ready.offer(queue)
        return has_ended

    def complete(self, batch: ProducerBatch) -> None:
        """End a batch that the log has.

        If it was sent alone, several batches may be in flight again, unless the next one is a part of a batch that was too large.
        """
        queue = batch.queue
        if queue.numbers is not None:
            queue.numbers.acknowledged(batch)
        batch.state = NEXT[batch.state, _ACKNOWLEDGE]
        self._incomplete.end(batch)
        if batch.is_alone and not (queue.closed and queue.closed[0].root is not None):
            queue.one_at_a_time = False
        # An acknowledgement never makes another batch unsendable.
        if queue.closed or queue.current is not None:
            self._ready.offer(queue)

    def complete_late(self, batch: ProducerBatch) -> None:
        """Note that the log has a batch that ended before its answer arrived."""
        if batch.queue.numbers is not None:
            batch.queue.numbers.acknowledged(batch)
            self._ready.check(batch.queue)

    def close(self, batch: ProducerBatch) -> None:
        """Close a batch if it is open: only then it has its records and their number."""
        if batch.state is State.OPEN:
            self._partition_queues.close(batch.queue)

    def fail(self, batch: ProducerBatch) -> None:
        """End a batch without an acknowledgement, in any state."""
        queue = batch.queue
        self.close(batch)
        if queue.numbers is not None:
            queue.numbers.failed(batch, may_be_written=fate(batch) is not Persisted.NO)
        if batch.state is State.READY:
            self._ready.closed -= 1
            queue.closed.remove(batch)
        batch.state = NEXT[batch.state, Event.FAIL]
        self._incomplete.end(batch)
        self._ready.check(queue)

    def retry(self, batch: ProducerBatch, action: Action, retry_at: float) -> None:
        """Requeue a batch for an action of `AGAIN`, with another sequence number if the broker refused its number.

        It gets the number when all batches before it have ended. It is not drained before `retry_at`; 0: at once.
        """
        numbers = batch.queue.numbers
        if action in _ANEW and numbers is not None:
            numbers.lose(batch, is_fenced=action is Action.NEW_ID)
            self._ready.check(batch.queue)
        # Only if the producer has no other id already.
        if (
            action is Action.NEW_ID
            and numbers is not None
            and numbers.granted == self._idempotence.granted
        ):
            self._idempotence.lose_identity()
        self.requeue(batch, retry_at)

    def requeue(self, batch: ProducerBatch, retry_at: float = 0.0) -> None:
        """Put a batch back in its place in its queue.

        It is not drained before `retry_at` (0: at once), or before the next election.
        """
        queue = batch.queue
        self._put_back(queue, [batch], _place_of(batch, queue.closed))
        batch.state = NEXT[batch.state, Event.RETRY]
        self._ready.remove(queue)
        if retry_at and not NO_EPOCH < batch.epoch < queue.epoch:
            self._deadlines.back_off(queue, retry_at)
        else:
            self._ready.offer(queue)

    def split(
        self, batch: ProducerBatch, pieces: Sequence[tuple[Piece, Any]]
    ) -> list[ProducerBatch]:
        """Replace a refused batch by smaller ones and return them.

        `pieces` has the pieces with their results. The parts are in front of all later batches (BAT-03).
        """
        queue = batch.queue
        parts = [batch.part(nth, piece, result) for nth, (piece, result) in enumerate(pieces)]
        self._put_back(queue, parts, _place_of(parts[0], queue.closed))
        # The batch stays among the incomplete ones until its parts take its place.
        self._incomplete.split(batch, parts)
        batch.state = NEXT[batch.state, Event.SPLIT]
        if queue.numbers is not None:
            queue.numbers.split(batch, parts)
        self._ready.remove(queue)
        self._ready.offer(queue)
        return parts

    def _put_back(self, queue: PartitionQueue, batches: Sequence[ProducerBatch], at: int) -> None:
        queue.closed[at:at] = batches
        self._ready.closed += len(batches)
        queue.one_at_a_time = True


def _place_of(batch: ProducerBatch, closed: Sequence[ProducerBatch]) -> int:
    """Return the index of a batch among the closed batches of its queue, which it is not one of."""
    return next((at for at, other in enumerate(closed) if other.place > batch.place), len(closed))


# Kafka's ExponentialBackoff: +-20 %.
_JITTER: Final = 0.2
# 2 to this power exceeds any maximum, and is still a float.
_MAX_DOUBLINGS: Final = 62


class Backoff(NamedTuple):
    """Holds the limits of an exponential backoff with jitter (KIP-580, KIP-144): `first` seconds, doubled at each failure up to `longest`."""

    first: float
    longest: float

    def after(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after `failures` failures in a row (1 = the first). `chance`: a random number in [0, 1)."""
        pause = min(self.longest, self.first * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))
        return min(self.longest, pause * (1 - _JITTER + 2 * _JITTER * chance))
