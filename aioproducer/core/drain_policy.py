"""Decides when a partition's batches may leave: one table of rules, and the pure functions that read it.

A closed batch may always leave. It is full, or a flush, the end of a transaction or an overdue batch has closed it. The rules concern
open batches, and what one drain or one request takes. Each rule is a row: `docs/topics/drain.md` shows what each row gives and costs.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Sized

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

    def __str__(self) -> str:
        return self.value


class Fill(enum.IntEnum):
    """Lists how full a batch must be to leave in a drain."""

    PARTIAL = 0
    # It has waited long enough or is full, and may accept more records.
    FULL = 1
    CLOSED = 2
    # No batch leaves: there is no drain now.
    NEVER = 3

    def __str__(self) -> str:
        return self.name.lower()


class DrainState:
    """Holds what rules of a drain read. The Sender updates it; times are in seconds of the loop's clock.

    Args:
        continuing: the tasks that send without a pause, while they wait for their next slice.

    Attributes:
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

    __slots__ = (
        "_continuing",
        "batches",
        "closed_batches",
        "drained_at",
        "due_since",
        "full_at",
        "is_budget_full",
        "is_burst",
        "now",
        "open_batches",
        "partial_at",
        "partial_began",
        "partial_left",
    )

    def __init__(self, continuing: Sized = ()) -> None:
        self._continuing = continuing
        self.now: float = 0.0
        self.is_burst: bool = False
        self.is_budget_full: bool = False
        self.due_since: float = 0.0
        self.drained_at: float = 0.0
        self.batches: int = 0
        self.full_at: float = 0.0
        self.partial_at: float = 0.0
        self.partial_began: float = 0.0
        self.partial_left: int = 0
        self.open_batches: int = 0
        self.closed_batches: int = 0

    @property
    def may_be_burst(self) -> bool:
        """Return whether there is a burst. A task that was woken since the last drain of one may be about to send."""
        return self.is_burst or bool(self._continuing)

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


class Rule(NamedTuple):
    """Holds one rule. Exactly one of its last five fields is given.

    Attributes:
        name: names the rule in the documentation and in experiments.
        lingers: the kinds of `linger_ms` that it applies to.
        reason: why it is there.
        holds: takes the number of batches of the partition that are in flight; returns whether an open batch waits for more records.
        frees: True if no other rule holds an open batch while memory is short.
        drain: returns the least fill of the batches that leave in a drain of a burst.
        answer: takes whether a drain is scheduled in a burst; returns the least fill of the batches that leave at an answer.
        most: maximum batches of a request during a burst.
    """

    name: str
    lingers: frozenset[Linger]
    reason: str
    holds: Callable[[int], bool] | None = None
    frees: bool | None = None
    drain: Callable[[DrainState], Fill] | None = None
    answer: Callable[[bool], Fill] | None = None
    most: int | None = None


def _waits_for_partial(state: DrainState) -> bool:
    """Return whether partial batches still wait in this burst."""
    if state.goes_on:
        return False
    return state.now - state.partial_at < min(
        state.open_batches * _SECONDS_AN_OPEN_BATCH, _MAX_SECONDS_WITHOUT_PARTIAL
    )


def _always(_in_flight: int) -> bool:
    return True


def _while_in_flight(in_flight: int) -> bool:
    return in_flight > 0


def _broker_queue(state: DrainState) -> Fill:
    seconds = min(_SECONDS_A_BATCH, _MAX_SECONDS_OF_ALL / max(state.open_batches, 1))
    # More batches may have left than are open: those of many brokers.
    if state.now - state.drained_at >= min(seconds * state.batches, _MAX_SECONDS_OF_ALL):
        return Fill.PARTIAL
    # A closed batch does not get fuller by waiting.
    return Fill.CLOSED if state.closed_batches else Fill.NEVER


def _full_interval(state: DrainState) -> Fill:
    is_full = state.is_budget_full or state.now - state.due_since >= _SECONDS_OF_FULL
    return Fill.PARTIAL if is_full else Fill.NEVER


def _partial_batches(state: DrainState) -> Fill:
    return Fill.FULL if _waits_for_partial(state) else Fill.PARTIAL


def _full_batches(state: DrainState) -> Fill:
    is_recent = state.now - state.full_at < _SECONDS_OF_FULL
    return Fill.CLOSED if is_recent and _waits_for_partial(state) else Fill.PARTIAL


def _scheduled_drain(is_in_scheduled_burst: bool) -> Fill:
    return Fill.NEVER if is_in_scheduled_burst else Fill.PARTIAL


def _next_iteration(_is_in_scheduled_burst: bool) -> Fill:
    return Fill.FULL


_NONE, _TIME, _LOAD = (frozenset({linger}) for linger in Linger)

RULES: Final[Sequence[Rule]] = (
    Rule(
        "linger",
        _TIME,
        "linger_ms: a partial batch waits that long for more records",
        holds=_always,
    ),
    Rule(
        "load",
        _LOAD,
        "a partial batch waits while its partition has a batch in flight: the broker would only queue it",
        holds=_while_in_flight,
    ),
    Rule(
        "memory",
        _TIME | _LOAD,
        "sends wait for memory that only answers give back: no batch waits for more records",
        frees=True,
    ),
    Rule(
        "broker queue",
        _NONE,
        "in a burst, the next drain comes when the broker can have appended the last one: more batches would only wait there",
        drain=_broker_queue,
    ),
    Rule(
        "burst interval",
        _TIME | _LOAD,
        "in a burst, several slices of the loop budget make one drain: a drain costs as much as dozens of records",
        drain=_full_interval,
    ),
    Rule(
        "burst, partial batches",
        _TIME | _LOAD,
        "in a burst, the next records fill the partial batches",
        drain=_partial_batches,
    ),
    Rule(
        "burst, full batches",
        _TIME | _LOAD,
        "in a burst, a full batch may grow while its partition waits for its turn",
        drain=_full_batches,
    ),
    Rule(
        "burst, answers",
        frozenset(Linger),
        "in a burst, the scheduled drain also takes what an answer lets go",
        answer=_scheduled_drain,
    ),
    Rule(
        "answer",
        _LOAD,
        "the tasks that an answer wakes send their next records: these leave together with the partial batches that it lets go",
        answer=_next_iteration,
    ),
    Rule(
        "burst, requests",
        frozenset(Linger),
        "in a burst, a request takes part of the partitions, so that the others fill their batches",
        most=_MAX_BATCHES_IN_A_BURST,
    ),
)


class DrainPolicy:
    """Reads the rules that apply to one kind of `linger_ms`.

    Args:
        linger: the kind of the producer's `linger_ms`.

    Attributes:
        linger: as given.
        max_batches: maximum batches of a request: MAX_BATCHES, and by True those while some task sends without a pause.
        has_holds: whether an open batch may wait for more records. Without, no batch is checked.
        is_by_budget: whether a drain of a burst waits for several slices of the loop budget; they continue without one.
        is_by_broker: whether a drain of partial batches, in a burst, makes one request for each broker, and the next one comes when the
            broker can have appended it.
    """

    def __init__(self, linger: Linger) -> None:
        self.linger = linger
        rules = [rule for rule in RULES if linger in rule.lingers]
        self._holds = [rule.holds for rule in rules if rule.holds is not None]
        self._frees = any(rule.frees for rule in rules)
        self._drain = [rule.drain for rule in rules if rule.drain is not None]
        self._answer = [rule.answer for rule in rules if rule.answer is not None]
        in_a_burst = min(
            (rule.most for rule in rules if rule.most is not None), default=MAX_BATCHES
        )
        self.max_batches: tuple[int, int] = (MAX_BATCHES, in_a_burst)
        self.has_holds: bool = bool(self._holds)
        self.is_by_budget: bool = _full_interval in self._drain
        self.is_by_broker: bool = _broker_queue in self._drain

    def waits(self, in_flight: int, *, memory_is_short: bool) -> bool:
        """Return whether an open batch, which has not waited long enough and is not full, waits for more records.

        Args:
            in_flight: batches of its partition that are in flight.
            memory_is_short: whether sends wait for memory, or the producer closes.
        """
        return not (memory_is_short and self._frees) and any(
            holds(in_flight) for holds in self._holds
        )

    def drain(self, state: DrainState) -> Fill:
        """Return how full a batch must be to leave in the drain of an event-loop iteration, in a burst.

        Without a burst, every batch leaves that does not wait for more records.
        """
        return max([rule(state) for rule in self._drain], default=Fill.PARTIAL)

    def answer(self, *, is_burst: bool, is_scheduled: bool) -> Fill:
        """Return how full a batch must be to leave in the drain that an answer makes.

        Args:
            is_burst: whether some task sends without a pause.
            is_scheduled: whether a drain is scheduled for the next event-loop iteration.
        """
        return max([rule(is_burst and is_scheduled) for rule in self._answer], default=Fill.PARTIAL)
