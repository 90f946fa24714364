"""What an answer to a batch means: one table of (error, batch) -> action. Knows nothing of how it is carried out.

1. A broker's refusal is certain: that attempt was not written, unless the error says that the append came first.
2. No answer is never certain: the batch may have been written.
3. A batch that was ever uncertain stays so: its failure says `persisted=maybe`.

Source: java-producer.md 2.10 (Sender.completeBatch, canRetry) and Kafka's Errors.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import BrokerError, Persisted, TransportError

if TYPE_CHECKING:
    from aioproducer.core.batch import Batch

__all__ = ["TOO_LARGE", "Action", "Verdict", "fate", "judge"]


class Action(enum.Enum):
    """What becomes of the batch."""

    COMPLETE = "complete"
    RETRY = "retry"
    SPLIT = "split"  # into smaller ones
    EXCLUDE = "exclude"  # the records that the broker named fail, the rest is sent again
    FAIL = "fail"


class Verdict(NamedTuple):
    """What an answer means for its batch; `refresh`: metadata is stale; `uncertain`: this attempt may have been written."""

    action: Action
    refresh: bool
    uncertain: bool


# errors that a broker may give after it appended the batch
_AFTER_APPEND: Final = frozenset({"REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "UNKNOWN_SERVER_ERROR", "KAFKA_STORAGE_ERROR"})


# errors that fewer records may not meet
TOO_LARGE: Final = frozenset({"MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
# errors with which a broker names the records that it does not take (KIP-467)
_OF_RECORDS: Final = frozenset({"INVALID_RECORD", "INVALID_TIMESTAMP"})


def judge(error: BrokerError | TransportError | None, *, sent: bool = True, records: int = 1, named: int = 0) -> Verdict:
    """The verdict on one attempt.

    Args:
        error: what it ended with; None: it was acknowledged.
        sent: False when certainly none of its bytes left.
        records: how many the batch has.
        named: how many of them the broker blames.
    """
    if error is None:
        return Verdict(Action.COMPLETE, refresh=False, uncertain=False)
    if isinstance(error, TransportError):
        return Verdict(Action.RETRY, refresh=True, uncertain=sent)
    action = Action.RETRY if error.retriable else Action.FAIL
    if records > 1 and error.name in TOO_LARGE:
        action = Action.SPLIT
    elif 0 < named < records and error.name in _OF_RECORDS:
        action = Action.EXCLUDE
    return Verdict(action, error.refresh, error.name in _AFTER_APPEND)


def fate(batch: Batch) -> Persisted:
    """Whether a batch that failed may be in the log."""
    return Persisted.MAYBE if batch.may_be_written or batch.on_wire else Persisted.NO
