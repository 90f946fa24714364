"""What an open batch must be to leave when its broker's requests are made: the one place of the rules by which batches fill.

Whether a batch waits for more records at all (`linger_ms`), and whether its broker takes a request now, is decided elsewhere
(`partition_queues`, `sender`).
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["Fill", "Linger", "is_due", "least_fill"]

_FULL_EVERY: Final = 4  # drains of a burst in which only closed batches leave, and the last one full ones, too
_PARTIAL_EVERY: Final = 8  # likewise until partial ones leave, a few ms
# Open batches that take about as long to send as a turn lasts: of hundreds, each would leave with a record or two.
_FILLING_A_DRAIN: Final = 16
# Between two drains of a burst: to make and answer a batch takes some 30 us here, and as much at its broker. Measured on a broker beside
# the client, with 6 and 500 partitions and 2,000 topics: twice as long, and a loop that computes 5 us a record waits twice as long as
# with aiokafka; without it, 500 partitions have a third of the rate.
_SECONDS_A_BATCH: Final = 0.000_15
# Seconds between two drains, however many batches left.
_LATEST: Final = 0.3
_LONGEST: Final = 0.5  # seconds without a partial batch, however many fill: some task may send one record meanwhile


class Linger(enum.Enum):
    """What `linger_ms` says."""

    NONE = "0"
    TIME = "milliseconds"
    LOAD = "auto"

    def __str__(self) -> str:
        return self.value


class Fill(enum.IntEnum):
    """What a batch must be to leave in a drain."""

    PARTIAL = 0
    FULL = 1  # it has what it waited for, and may take more
    CLOSED = 2

    def __str__(self) -> str:
        return self.name.lower()


def is_due(linger: Linger, *, is_full: bool, seconds: float, batches: int) -> bool:
    """Whether the loop makes requests, while some task sends without a pause. Else it does each time that it comes round.

    Args:
        linger: of the producer.
        is_full: whether enough was queued since the last ones, where records linger.
        seconds: since the last ones.
        batches: that left then.
    """
    return seconds >= min(_SECONDS_A_BATCH * batches, _LATEST) if linger is Linger.NONE else is_full


def least_fill(linger: Linger, *, is_answer: bool = False, drains: int = 0, seconds: float = 0.0, filling: int = 0) -> Fill:
    """The least that leaves.

    Args:
        linger: of the producer.
        is_answer: whether an answer gave the free slot. Else the loop came round.
        drains: those of the burst at hand since partial batches left; 0: no task sends without a pause.
        seconds: likewise.
        filling: open batches.
    """
    if linger is Linger.NONE:
        return Fill.PARTIAL
    if drains and seconds < _LONGEST and drains % max(_PARTIAL_EVERY, filling // _FILLING_A_DRAIN):
        return Fill.CLOSED if drains % _FULL_EVERY else Fill.FULL
    return Fill.FULL if is_answer and linger is Linger.LOAD else Fill.PARTIAL
