"""Decides when a partition's batches may leave.

A closed batch may always leave. It is full, or a flush, the end of a transaction or an overdue batch has closed it. The rules concern
open batches, and what one drain or one request takes. `docs/topics/drain.md` shows what each rule gives and costs, by its name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sized

# Maximum seconds between two drains of a burst, and between two that take full batches. A loop that only sends 100 bytes makes a drain
# interval of 128 KiB in 0.5 ms, and six partitions grow by as much in this time. With 3 ms, such a loop had the same rate, and one of 300
# bytes waited twice as long, at 0.8 of the rate.
_SECONDS_OF_FULL: Final = 0.001
# Seconds without a partial batch in a burst, for each open batch. With hundreds, each would leave with a record or two.
_SECONDS_AN_OPEN_BATCH: Final = 0.00025
# Seconds between two drains of a burst, for each batch. To make and answer a batch takes some 30 us here, and as much at its
# broker. Measured on a broker beside the client, with 6 and 500 partitions and 2,000 topics. With twice this value, a loop that
# computes 5 us a record waits twice as long as with aiokafka. Without it, 500 partitions have a third of the rate.
_SECONDS_A_BATCH: Final = 0.000_125
# Maximum seconds in which every open batch leaves, however many there are.
_MAX_SECONDS_OF_ALL: Final = 0.3
# Maximum seconds without a partial batch, however many batches are open: some task may send one record meanwhile.
_MAX_SECONDS_WITHOUT_PARTIAL: Final = 0.5
# Maximum seconds in which drains take the partial batches that were open at the first of them: the broker of some may be away.
_MAX_SECONDS_OF_PARTIAL: Final = 0.25
# Maximum batches of a request during a burst. A broker that answers late would get a record or two of each partition at once.
_MAX_BATCHES_IN_A_BURST: Final = 64
# Maximum batches of any request. A broker appends them one after the other. Thousands of them, in topics that are new to it, would take
# longer than a request may take.
MAX_BATCHES: Final = 1024


class Linger(enum.Enum):
    """Lists the kinds of `linger_ms`."""

    NONE = "0"
    TIME = "milliseconds"
    LOAD = "auto"

    @classmethod
    def of(cls, linger_ms: float | str) -> Linger:
        """Return the kind of a value of the option."""
        if linger_ms == "auto":
            return cls.LOAD
        return cls.TIME if linger_ms else cls.NONE


class Fill(enum.IntEnum):
    """Lists how full a batch must be to leave in a drain."""

    PARTIAL = 0
    # It has waited long enough or is full, and may accept more records.
    FULL = 1
    CLOSED = 2
    # No batch leaves: there is no drain now.
    NEVER = 3


@dataclass
class DrainState:
    """Holds what rules of a drain read. The Sender updates it; times are in seconds of the loop's clock.

    Attributes:
        continuing: the tasks that send without a pause, while they wait for their next slice.
        now: time of this drain, or of the last one of a burst.
        is_burst: some task sends without a pause; the other fields count only then.
        is_budget_full: the bytes or slices since the last drain suffice for one.
        due_since: time at which this drain was scheduled, before it was put off.
        drained_at: time of the last drain that took partial batches, too.
        batches: batches of that drain; without a burst, those of one request at most.
        full_at: time at which full batches left.
        partial_at: time at which partial batches left.
        partial_began: time of the first of several drains in a row in which partial batches left.
        partial_left: batches that were open at that time and have not left.
        open_batches: number of open batches.
        closed_batches: number of closed batches that are not drained yet.
    """

    continuing: Sized = ()
    now: float = 0.0
    is_burst: bool = False
    is_budget_full: bool = False
    due_since: float = 0.0
    drained_at: float = 0.0
    batches: int = 0
    full_at: float = 0.0
    partial_at: float = 0.0
    partial_began: float = 0.0
    partial_left: int = 0
    open_batches: int = 0
    closed_batches: int = 0

    @property
    def may_be_burst(self) -> bool:
        """Return whether there is a burst. A task that was woken since the last drain of one may be about to send."""
        return self.is_burst or bool(self.continuing)

    def note(self, least: Fill) -> None:
        """Note that a drain begins in which the batches leave that are not less than `least`."""
        if least <= Fill.FULL:
            self.full_at = self.now
        if not least:
            self.drained_at, self.batches = self.now, 0
            if not self.is_burst:
                self.partial_left = 0
            elif not self.goes_on:
                self.partial_began, self.partial_left = self.now, self.open_batches
            self.partial_at = self.now

    def count(self, batches: int, most: int, *, is_burst: bool) -> None:
        """Count batches of a drain that takes partial ones, too.

        Outside a burst, brokers append many at once: they delay a burst no longer than one request of it does, with `most` batches.
        """
        counted = self.batches + batches
        self.batches = counted if is_burst else min(counted, most)

    @property
    def goes_on(self) -> bool:
        """Return whether more of the partial batches leave that were open when the first of them left.

        One drain takes as many as there are free slots for. Were it the only one until partial batches leave again, others of hundreds
        would wait several times as long.
        """
        return self.partial_left > 0 and self.now - self.partial_began < _MAX_SECONDS_OF_PARTIAL


def _waits_for_partial(state: DrainState) -> bool:
    """Return whether partial batches still wait in this burst."""
    if state.goes_on:
        return False
    return state.now - state.partial_at < min(
        state.open_batches * _SECONDS_AN_OPEN_BATCH, _MAX_SECONDS_WITHOUT_PARTIAL
    )


class DrainPolicy:
    """Holds the rules that apply to one kind of `linger_ms`.

    Args:
        linger: the kind of the producer's `linger_ms`.

    Attributes:
        linger: as given.
        max_batches: maximum batches of a request: MAX_BATCHES, and by True those while some task sends without a pause. "burst, requests":
            a request then takes part of the partitions, so that the others fill their batches.
        has_holds: whether an open batch may wait for more records. Without, no batch is checked.
        is_by_broker: whether a drain of partial batches, in a burst, makes one request for each broker, and the next one comes when the
            broker can have appended it. Else it waits for several slices of the loop budget, which continue without one.
    """

    max_batches = (MAX_BATCHES, _MAX_BATCHES_IN_A_BURST)

    def __init__(self, linger: Linger) -> None:
        self.linger = linger
        self.is_by_broker: bool = linger is Linger.NONE
        self.has_holds: bool = not self.is_by_broker

    def waits(self, in_flight: int, *, memory_is_short: bool) -> bool:
        """Return whether an open batch, which has not waited long enough and is not full, waits for more records.

        Args:
            in_flight: batches of its partition that are in flight.
            memory_is_short: whether sends wait for memory, or the producer closes.
        """
        # Rule "memory": sends wait for memory that only answers give back, so no batch waits for more records.
        if memory_is_short or not self.has_holds:
            return False
        # "linger": until its time is over. "load": while its partition has a batch in flight, as the broker would only queue it.
        return self.linger is Linger.TIME or in_flight > 0

    def drain(self, state: DrainState) -> Fill:
        """Return how full a batch must be to leave in the drain of an event-loop iteration, in a burst.

        Without a burst, every batch leaves that does not wait for more records.
        """
        if self.is_by_broker:
            # "broker queue": the next drain comes when the broker can have appended the last one. More batches would only wait there.
            seconds = min(_SECONDS_A_BATCH, _MAX_SECONDS_OF_ALL / max(state.open_batches, 1))
            # More batches may have left than are open: those of many brokers.
            if state.now - state.drained_at >= min(seconds * state.batches, _MAX_SECONDS_OF_ALL):
                return Fill.PARTIAL
            # A closed batch does not get fuller by waiting.
            return Fill.CLOSED if state.closed_batches else Fill.NEVER
        # "burst interval": several slices of the loop budget make one drain, which costs as much as dozens of records.
        if not state.is_budget_full and state.now - state.due_since < _SECONDS_OF_FULL:
            return Fill.NEVER
        # "burst, partial batches": the next records fill them. "burst, full batches": they may grow while their partitions wait for their turn.
        if not _waits_for_partial(state):
            return Fill.PARTIAL
        return Fill.CLOSED if state.now - state.full_at < _SECONDS_OF_FULL else Fill.FULL

    def answer(self, *, is_burst: bool, is_scheduled: bool) -> Fill:
        """Return how full a batch must be to leave in the drain that an answer makes.

        Args:
            is_burst: whether some task sends without a pause.
            is_scheduled: whether a drain is scheduled for the next event-loop iteration.
        """
        # "burst, answers": the scheduled drain also takes what an answer lets go.
        if is_burst and is_scheduled:
            return Fill.NEVER
        # "answer": the tasks that it wakes send their next records, which leave together with the partial batches that it lets go.
        return Fill.FULL if self.linger is Linger.LOAD else Fill.PARTIAL
