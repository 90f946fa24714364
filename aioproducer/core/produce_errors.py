"""Holds the table (error, batch) -> action for the answers to Produce requests.

1. A refusal by the broker is certain: that attempt was not written. The exceptions are errors that come after the append, or with
   an offset.
2. A missing answer is never certain: the batch may have been written.
3. A batch that was ever uncertain stays uncertain: its failure has `persisted=maybe`.
4. For errors about numbers (sequence, epoch, producer id) the action depends on the batch. It depends on whether batches numbered
   before it have not ended, and on whether it may be in the log. A batch that may be in the log is never sent under another number.
   A failure with `maybe` is better than a duplicate record (Java sends it again, IDM-04).

Source: Kafka's Java producer (Sender.completeBatch, canRetry, TransactionManager.canRetry) and Kafka's Errors.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import BrokerError, Persisted, TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.core.producer_batch import ProducerBatch


class Action(enum.Enum):
    """Lists the actions on a batch after an attempt."""

    COMPLETE = "complete"
    RETRY = "retry"
    # The attempt does not count as a failure.
    AWAIT = "await those before it, then retry"
    RENUMBER = "begin a new epoch, then retry"
    NEW_ID = "ask for another producer id, then retry"
    # Into smaller batches.
    SPLIT = "split"
    # The records that the broker named fail, the others are sent again.
    EXCLUDE = "exclude"
    FAIL = "fail"


class Standing(enum.Enum):
    """Lists the states of a batch among the numbered batches of its partition."""

    PLAIN = "has no number"
    FIRST = "all numbered before it have ended; it is not in the log"
    UNSURE = "all numbered before it have ended; it may be in the log"
    BEHIND = "others that were numbered before it have not ended"


class Verdict(NamedTuple):
    """Holds the action for a batch. `refresh`: the metadata is stale; `uncertain`: this attempt may have been written."""

    action: Action
    refresh: bool = False
    uncertain: bool = False


# Errors that a broker may return after it appended the batch.
_AFTER_APPEND: Final = frozenset(
    {
        "REQUEST_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "UNKNOWN_SERVER_ERROR",
        "KAFKA_STORAGE_ERROR",
    }
)
# Errors of a leader that appended the batch and was replaced while it waited for its followers. They come with the offset of that
# append (DelayedProduce).
_AFTER_APPEND_WITH_OFFSET: Final = frozenset(
    {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"}
)
# Errors that a batch with fewer records may avoid.
TOO_LARGE: Final = frozenset({"MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
# Errors with which a broker names the records that it refuses (KIP-467).
_OF_RECORDS: Final = frozenset({"INVALID_RECORD", "INVALID_TIMESTAMP"})

_GAP: Final = {
    Standing.PLAIN: Action.FAIL,
    Standing.FIRST: Action.RENUMBER,
    # The broker may have forgotten that it has the batch (KAFKA-9199).
    Standing.UNSURE: Action.FAIL,
    Standing.BEHIND: Action.AWAIT,
}
_FENCED: Final = {**_GAP, Standing.FIRST: Action.NEW_ID}
# Errors about numbers.
NUMBERS: Final[Mapping[str, Mapping[Standing, Action]]] = {
    "OUT_OF_ORDER_SEQUENCE_NUMBER": _GAP,
    # Retention deleted all records that the broker had of this producer.
    "UNKNOWN_PRODUCER_ID": _GAP,
    "INVALID_PRODUCER_EPOCH": _FENCED,
    "PRODUCER_FENCED": _FENCED,
    "INVALID_PRODUCER_ID_MAPPING": _FENCED,
    "DUPLICATE_SEQUENCE_NUMBER": {
        # The batch is in the log, and the broker does not know its offset any more.
        **dict.fromkeys(Standing, Action.COMPLETE),
        Standing.PLAIN: Action.FAIL,
    },
}
# Actions that are possible only if the producer counts its own epochs.
_OWN_EPOCHS: Final = frozenset({Action.RENUMBER, Action.NEW_ID})


def judge(
    error: BrokerError | TransportError | None,
    *,
    stands: Standing = Standing.PLAIN,
    transactional: bool = False,
    records: int = 1,
    named: int = 0,
    appended: bool = False,
) -> Verdict:
    """Return the verdict on one attempt.

    Args:
        error: the error that it ended with; None: it was acknowledged.
        stands: the standing of the batch in its partition.
        transactional: whether the transaction coordinator gives the epochs.
        records: number of records in the batch.
        named: number of records that the broker refused by name.
        appended: whether the error came with an offset.
    """
    if error is None:
        return Verdict(Action.COMPLETE)
    if isinstance(error, TransportError):
        return Verdict(Action.RETRY, refresh=True, uncertain=True)
    name = error.name
    if name in NUMBERS:
        action = NUMBERS[name][stands]
        return Verdict(Action.FAIL if transactional and action in _OWN_EPOCHS else action)
    uncertain = name in _AFTER_APPEND or (appended and name in _AFTER_APPEND_WITH_OFFSET)
    return Verdict(_action(error, records, named), error.refresh, uncertain)


def _action(error: BrokerError, records: int, named: int) -> Action:
    """Return the action for an error that is not about numbers."""
    if records > 1 and error.name in TOO_LARGE:
        return Action.SPLIT
    if 0 < named < records and error.name in _OF_RECORDS:
        return Action.EXCLUDE
    return Action.RETRY if error.retriable else Action.FAIL


def append_time(batch: ProducerBatch, told_ms: int) -> int:
    """Return the time that the broker gave the records of an acknowledged batch, in ms; -1: they keep their own times.

    For a duplicate, Kafka answers with the latest of the records' own times in place of a log append time (UnifiedLog.append). The
    answer does not show that the batch is a duplicate. A batch is none if it has no number, or if no earlier attempt may have written
    it: its answer shows which kind of time the topic has.
    """
    routing = batch.queue.routing
    if batch.sequence < 0 or not batch.may_be_written:
        routing.stamps_time = told_ms >= 0
    elif told_ms == batch.max_timestamp and not routing.stamps_time:
        return -1
    return told_ms


def standing(batch: ProducerBatch) -> Standing:
    """Return the standing of a batch, before its attempt is judged."""
    if batch.sequence < 0:
        return Standing.PLAIN
    numbers = batch.queue.numbers
    if numbers is not None and numbers.is_behind(batch):
        return Standing.BEHIND
    return Standing.UNSURE if batch.may_be_written else Standing.FIRST


def fate(batch: ProducerBatch) -> Persisted:
    """Return whether a failed batch may be in the log."""
    return Persisted.MAYBE if batch.may_be_written or batch.on_wire else Persisted.NO
