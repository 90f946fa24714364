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

__all__ = ["Action", "Verdict", "fate", "judge"]


class Action(enum.Enum):
    """What becomes of the batch."""

    COMPLETE = "complete"
    RETRY = "retry"
    FAIL = "fail"


class Verdict(NamedTuple):
    """What an answer means for its batch; `refresh`: metadata is stale; `uncertain`: this attempt may have been written."""

    action: Action
    refresh: bool
    uncertain: bool


# errors that a broker may give after it appended the batch
_AFTER_APPEND: Final = frozenset({"REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "UNKNOWN_SERVER_ERROR", "KAFKA_STORAGE_ERROR"})


def judge(error: BrokerError | TransportError | None, *, sent: bool = True) -> Verdict:
    """The verdict on one attempt. `sent` is False when certainly none of its bytes left."""
    if error is None:
        return Verdict(Action.COMPLETE, refresh=False, uncertain=False)
    if isinstance(error, TransportError):
        return Verdict(Action.RETRY, refresh=True, uncertain=sent)
    action = Action.RETRY if error.retriable else Action.FAIL
    return Verdict(action, error.refresh, error.name in _AFTER_APPEND)


def fate(batch: Batch) -> Persisted:
    """Whether a batch that failed may be in the log."""
    return Persisted.MAYBE if batch.may_be_written or batch.on_wire else Persisted.NO
