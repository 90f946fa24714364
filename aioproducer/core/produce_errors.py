"""What an answer to a batch means: one table of (error, batch) -> action. Knows nothing of how it is carried out.

1. A broker's refusal is certain: that attempt was not written, unless the error says that the append came first, or has an offset.
2. No answer is never certain: the batch may have been written.
3. A batch that was ever uncertain stays so: its failure says `persisted=maybe`.
4. What a broker says of numbers (sequence, epoch, producer id) depends on the batch: whether others that were numbered before it have
   not ended, and whether it may be in the log. What may be there already is never sent under another number: better a failure that
   says `maybe` than a record twice (where Java sends it again, IDM-04).

Source: java-producer.md 2.10, 2.11 (Sender.completeBatch, canRetry, TransactionManager.canRetry) and Kafka's Errors.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import BrokerError, Persisted, TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.core.producer_batch import ProducerBatch

__all__ = ["NUMBERS", "TOO_LARGE", "Action", "Standing", "Verdict", "append_time", "fate", "judge", "standing"]


class Action(enum.Enum):
    """What becomes of the batch."""

    COMPLETE = "complete"
    RETRY = "retry"
    AWAIT = "await those before it, then retry"  # that it was sent is not held against it
    RENUMBER = "begin a new epoch, then retry"
    NEW_ID = "ask for another producer id, then retry"
    SPLIT = "split"  # into smaller ones
    EXCLUDE = "exclude"  # the records that the broker named fail, the rest is sent again
    FAIL = "fail"


class Standing(enum.Enum):
    """How a batch stands among the numbered ones of its partition."""

    PLAIN = "has no number"
    FIRST = "all numbered before it have ended; it is not in the log"
    UNSURE = "all numbered before it have ended; it may be in the log"
    BEHIND = "others that were numbered before it have not ended"


class Verdict(NamedTuple):
    """What an answer means for its batch; `refresh`: metadata is stale; `uncertain`: this attempt may have been written."""

    action: Action
    refresh: bool = False
    uncertain: bool = False


# errors that a broker may give after it appended the batch
_AFTER_APPEND: Final = frozenset({"REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "UNKNOWN_SERVER_ERROR", "KAFKA_STORAGE_ERROR"})
# and those of a leader that appended, waited for its followers and was followed itself: with the offset of that append (DelayedProduce)
_AFTER_APPEND_WITH_OFFSET: Final = frozenset({"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"})
# errors that fewer records may not meet
TOO_LARGE: Final = frozenset({"MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
# errors with which a broker names the records that it does not take (KIP-467)
_OF_RECORDS: Final = frozenset({"INVALID_RECORD", "INVALID_TIMESTAMP"})

_GAP: Final = {
    Standing.PLAIN: Action.FAIL,
    Standing.FIRST: Action.RENUMBER,
    Standing.UNSURE: Action.FAIL,  # the broker may have forgotten that it has it (KAFKA-9199)
    Standing.BEHIND: Action.AWAIT,
}
_FENCED: Final = {**_GAP, Standing.FIRST: Action.NEW_ID}
# errors about numbers
NUMBERS: Final[Mapping[str, Mapping[Standing, Action]]] = {
    "OUT_OF_ORDER_SEQUENCE_NUMBER": _GAP,
    "UNKNOWN_PRODUCER_ID": _GAP,  # retention took all that the broker had of us
    "INVALID_PRODUCER_EPOCH": _FENCED,
    "PRODUCER_FENCED": _FENCED,
    "INVALID_PRODUCER_ID_MAPPING": _FENCED,
    "DUPLICATE_SEQUENCE_NUMBER": {
        **dict.fromkeys(Standing, Action.COMPLETE),  # it is there, and the broker forgot where
        Standing.PLAIN: Action.FAIL,
    },
}
# what only who counts its own epochs may do
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
    """The verdict on one attempt.

    Args:
        error: what it ended with; None: it was acknowledged.
        stands: how the batch stands among those of its partition.
        transactional: epochs are the coordinator's.
        records: how many the batch has.
        named: how many of them the broker blames.
        appended: the error came with an offset.
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
    """On an error that is not about numbers."""
    if records > 1 and error.name in TOO_LARGE:
        return Action.SPLIT
    if 0 < named < records and error.name in _OF_RECORDS:
        return Action.EXCLUDE
    return Action.RETRY if error.retriable else Action.FAIL


def append_time(batch: ProducerBatch, told_ms: int) -> int:
    """The time that its broker gave the records of an acknowledged batch, in ms; -1: they keep their own.

    Kafka answers a duplicate with the latest of the records' own times where it tells a log append time else (UnifiedLog.append), and
    does not say that it is one. A batch that was sent once is none: its answer shows which kind of time the topic has.
    """
    routing = batch.queue.routing
    if batch.attempts == 1:
        routing.stamps_time = told_ms >= 0
    elif told_ms == batch.max_timestamp and not routing.stamps_time:
        return -1
    return told_ms


def standing(batch: ProducerBatch) -> Standing:
    """How a batch stands, before its attempt is judged."""
    if batch.sequence < 0:
        return Standing.PLAIN
    numbers = batch.queue.numbers
    if numbers is not None and numbers.is_behind(batch):
        return Standing.BEHIND
    return Standing.UNSURE if batch.may_be_written else Standing.FIRST


def fate(batch: ProducerBatch) -> Persisted:
    """Whether a batch that failed may be in the log."""
    return Persisted.MAYBE if batch.may_be_written or batch.on_wire else Persisted.NO
