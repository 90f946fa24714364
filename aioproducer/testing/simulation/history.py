"""What happened in one run: every record from its call to its end, every transaction, every fault. Data; knows no checker."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["End", "Event", "Fate", "History", "Sent", "Transaction", "number_of", "value_of"]

_DIGITS: Final = 6


class Fate(enum.StrEnum):
    """What a transaction came to, as its user was told."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Event(NamedTuple):
    """One line of a history. `at` is the loop's time in seconds."""

    at: float
    who: str
    what: str


class End(NamedTuple):
    """How a delivery ended: `offset` of an acknowledged record (-1: not told), else `error`, and `persisted`: no, maybe, yes."""

    at: float
    partition: int
    offset: int
    error: str = ""
    persisted: str = "yes"


@dataclass(slots=True, eq=False)
class Sent:
    """One record. It is refused if it was not queued, `waits` while its `send` has not returned.

    Attributes:
        number: which of the run; its value begins with it.
        first, last: between which calls of the run its own came; one of `send` has both alike, one of `send_many` from its call to its return.
        partition: that was asked for, if one was.
        queued_at: when its `send` returned.
        refused: why it was not queued; "cancelled" among it.
        is_doubtful: it may have been queued or not: a cancellation came between, or its handle was cancelled.
        ends: of its delivery; a sound one has one.
    """

    number: int
    topic: str
    partition: int | None
    first: int
    last: int
    called_at: float
    queued_at: float | None = None
    refused: str = ""
    is_doubtful: bool = False
    ends: list[End] = field(default_factory=list)
    transaction: Transaction | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether its user was told that it is in the log."""
        return bool(self.ends) and not self.ends[0].error

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"record {self.number} to {where}"


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction: its records, what its user was told, and the offset that it commits; `has_offset`: that was taken."""

    number: int
    records: list[Sent] = field(default_factory=list)
    offset: int | None = None
    has_offset: bool = False
    fate: Fate = Fate.OPEN


class History:
    """All of it, in its order."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.events: list[Event] = []
        self.sent: list[Sent] = []
        self.transactions: list[Transaction] = []
        self.calls = 0
        self.overdue: list[str] = []
        """Calls that took longer than they may."""
        self.now = time

    def tell(self, who: str, what: str) -> None:
        """One more line."""
        self.events.append(Event(self.now(), who, what))

    def next_call(self) -> int:
        """The number of a call: they are in the order in which the calls first ran."""
        self.calls += 1
        return self.calls

    def lines(self) -> list[str]:
        """To read."""
        begin = self.events[0].at if self.events else 0.0
        return [f"{event.at - begin:10.4f}  {event.who:<12} {event.what}" for event in self.events]


def value_of(number: int, size: int) -> bytes:
    """A value that says which record it is of, and is so much longer."""
    return b"%06d" % number + b"." * size


def number_of(value: Any) -> int | None:
    """The record's number in a value, if it is one of a simulation's."""
    return int(value[:_DIGITS]) if isinstance(value, bytes) and len(value) >= _DIGITS and value[:_DIGITS].isdigit() else None
