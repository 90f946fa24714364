"""Ends one attempt to send a batch: judges it by the batch's deadline and retries, and requeues the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.core.produce_errors import Action, Verdict, judge, standing

if TYPE_CHECKING:
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.errors import BrokerError, TransportError

__all__ = ["AGAIN", "failures", "go_again", "over"]

_ANEW: Final = frozenset({Action.RENUMBER, Action.NEW_ID})
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
    verdict = judge(error, stands=standing(batch), transactional=transactional, records=batch.count, named=named, appended=appended)
    batch.error = error
    batch.may_be_written |= verdict.uncertain
    batch.spared += verdict.action is Action.AWAIT
    is_last = now >= batch.expires_at or (verdict.action in AGAIN and failures(batch) > retries)
    return verdict._replace(action=Action.FAIL) if is_last and verdict.action is not Action.COMPLETE else verdict


def failures(batch: ProducerBatch) -> int:
    """Return the attempts that count as failures."""
    return batch.attempts - batch.spared


def go_again(partition_queues: PartitionQueues, batch: ProducerBatch, action: Action, retry_at: float) -> None:
    """Requeue a batch in its place, for an action of `AGAIN`. It is not drained before `retry_at`; 0: at once."""
    if action in _ANEW:
        partition_queues.renumber(batch, is_fenced=action is Action.NEW_ID)
    numbers = batch.queue.numbers
    if action is Action.NEW_ID and numbers is not None and numbers.granted == partition_queues.granted:
        # Only if the producer has no other id already.
        partition_queues.lose_identity()
    partition_queues.requeue(batch, retry_at)
