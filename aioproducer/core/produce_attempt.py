"""The end of one attempt to send a batch: the verdict on it, within the batch's time and retries, and its way back into its queue.

Knows nothing of who waits for the records, of how long to pause, or of connections.
"""

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
    """Judge an attempt of a batch that has not ended; what is uncertain is noted in the batch.

    Args:
        batch: landed.
        error: what the attempt ended with; None: it was acknowledged.
        now: in seconds, as the batch's `expires_at`.
        retries: how often a batch may be sent again.
        transactional: epochs are the coordinator's.
        named: how many of its records the broker blames.
        appended: the error came with an offset, which it has from an append.
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
    """Attempts that count as such."""
    return batch.attempts - batch.spared


def go_again(partition_queues: PartitionQueues, batch: ProducerBatch, action: Action, retry_at: float) -> None:
    """Put a batch back in its place (one of `AGAIN`), not to be drained before `retry_at`; 0: at once."""
    if action in _ANEW:
        partition_queues.renumber(batch, is_fenced=action is Action.NEW_ID)
    numbers = batch.queue.numbers
    if action is Action.NEW_ID and numbers is not None and numbers.granted == partition_queues.granted:
        partition_queues.lose_identity()  # unless another one is there already
    partition_queues.requeue(batch, retry_at)
