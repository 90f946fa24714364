"""Decides which open batches leave when the Sender makes requests: the only rules for how full batches get.

`partition_queues` decides whether a batch waits for more records at all (`linger_ms`). `sender` decides whether the broker takes a
request now.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["Fill", "Linger", "is_due", "least_fill"]

# In a burst, all but the last of this many drains send only closed batches. The last one sends full batches, too.
_FULL_EVERY: Final = 4
# Drains of a burst until partial batches leave, a few ms.
_PARTIAL_EVERY: Final = 8
# Open batches that take about as long to send as an event-loop iteration lasts. With hundreds, each would leave with a record or
# two.
_FILLING_A_DRAIN: Final = 16
# Seconds between two drains of a burst, for each batch. To make and answer a batch takes some 30 us here, and as much at its
# broker. Measured on a broker beside the client, with 6 and 500 partitions and 2,000 topics. With twice this value, a loop that
# computes 5 us a record waits twice as long as with aiokafka. Without it, 500 partitions have a third of the rate.
_SECONDS_A_BATCH: Final = 0.000_15
# Maximum seconds between two drains, however many batches left.
_LATEST: Final = 0.3
# Maximum seconds without a partial batch, however many batches are open: some task may send one record meanwhile.
_LONGEST: Final = 0.5


class Linger(enum.Enum):
    """Lists the kinds of `linger_ms`."""

    NONE = "0"
    TIME = "milliseconds"
    LOAD = "auto"

    def __str__(self) -> str:
        return self.value


class Fill(enum.IntEnum):
    """Lists how full a batch must be to leave in a drain."""

    PARTIAL = 0
    # It has waited long enough or is full, and may accept more records.
    FULL = 1
    CLOSED = 2

    def __str__(self) -> str:
        return self.name.lower()


def is_due(linger: Linger, *, is_full: bool, seconds: float, batches: int) -> bool:
    """Return whether the Sender makes requests in this event-loop iteration, while some task sends without a pause.

    Without such a task, it does in every iteration.

    Args:
        linger: the kind of the producer's `linger_ms`.
        is_full: whether enough bytes were queued since the last requests, where records linger.
        seconds: since the last requests.
        batches: that left in them.
    """
    return seconds >= min(_SECONDS_A_BATCH * batches, _LATEST) if linger is Linger.NONE else is_full


def least_fill(linger: Linger, *, is_answer: bool = False, drains: int = 0, seconds: float = 0.0, filling: int = 0) -> Fill:
    """Return how full a batch must be at least to leave.

    Args:
        linger: the kind of the producer's `linger_ms`.
        is_answer: whether an answer freed the slot. Otherwise the event-loop iteration makes the drain.
        drains: drains of the current burst since partial batches left; 0: no task sends without a pause.
        seconds: since partial batches left.
        filling: open batches.
    """
    if linger is Linger.NONE:
        return Fill.PARTIAL
    if drains and seconds < _LONGEST and drains % max(_PARTIAL_EVERY, filling // _FILLING_A_DRAIN):
        return Fill.CLOSED if drains % _FULL_EVERY else Fill.FULL
    return Fill.FULL if is_answer and linger is Linger.LOAD else Fill.PARTIAL
