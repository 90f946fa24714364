"""The history of one run: records, transactions and events."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.errors import DeliveryError
    from aioproducer.model import FailedRecord

__all__ = [
    "End",
    "Event",
    "Fate",
    "HandedOut",
    "History",
    "Sent",
    "Transaction",
    "number_of",
    "value_of",
]

_DIGITS: Final = 6


class Fate(enum.StrEnum):
    """The outcome of a transaction, as the producer reported it to its caller."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Event(NamedTuple):
    """Holds one line of a history. `at` is the loop's time in seconds."""

    at: float
    who: str
    what: str


class End(NamedTuple):
    """Holds a delivery's outcome: the `offset` of an acknowledged record (-1: unknown), else `error`, and `persisted`: no, maybe or yes.

    `is_dropped`: its transaction dropped it, so that `on_failed` does not get it.
    """

    at: float
    partition: int
    offset: int
    error: str = ""
    persisted: str = "yes"
    is_dropped: bool = False


class HandedOut(NamedTuple):
    """Holds one record that `on_failed` got, and how often its batch had been sent."""

    record: FailedRecord
    attempts: int


@dataclass(slots=True, eq=False)
class Sent:
    """Holds one record. `refused` is set if it was not queued; `queued_at` is None until its `send` has returned.

    Attributes:
        number: the record's number in the run; its value begins with it.
        first, last: the range of call numbers in which it was sent: equal for `send`, from call to return for `send_many`.
        partition: the requested partition, if there is one.
        queued_at: when its `send` returned.
        refused: name of the error that kept it from the queue, a cancellation included.
        is_doubtful: whether it is unknown if it was queued: its handle was cancelled.
        ends: outcomes of its delivery; a correct delivery has one.
        size, key: its value has `size` bytes of padding.
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
    size: int = 0
    key: bytes | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Return whether the producer reported the record as written."""
        return bool(self.ends) and not self.ends[0].error

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"record {self.number} to {where}"


@dataclass(slots=True, eq=False)
class Transaction:
    """Holds one transaction: its records, its reported fate, and the offset that it commits.

    `has_offset` is True once the producer accepted the offset.
    """

    number: int
    records: list[Sent] = field(default_factory=list)
    offset: int | None = None
    has_offset: bool = False
    fate: Fate = Fate.OPEN


class History:
    """Holds all events, records and transactions, in order.

    Args:
        time: returns the time of an event.
        has_on_failed: the producers have `hand_out` as their `on_failed`.
    """

    def __init__(self, time: Callable[[], float], *, has_on_failed: bool = True) -> None:
        self.has_on_failed: bool = has_on_failed
        self.events: list[Event] = []
        self.sent: list[Sent] = []
        self.transactions: list[Transaction] = []
        self.handed_out: list[HandedOut] = []
        self.calls: int = 0
        self.overdue: list[str] = []
        """Descriptions of the calls that exceeded their limit."""
        self.now = time

    def tell(self, who: str, what: str) -> None:
        """Add one event."""
        self.events.append(Event(self.now(), who, what))

    def hand_out(self, error: DeliveryError, records: Sequence[FailedRecord]) -> None:
        """Add the records of a failed batch: the producers' `on_failed`."""
        self.handed_out += [HandedOut(record, error.attempts) for record in records]
        numbers = " ".join(str(number_of(record.value)) for record in records)
        self.tell(
            "on_failed", f"{error.topic}-{error.partition}: {numbers} (persisted={error.persisted})"
        )

    def next_call(self) -> int:
        """Return the next call number; numbers follow the order in which the calls first ran."""
        self.calls += 1
        return self.calls

    def lines(self) -> list[str]:
        """Return the events as readable text."""
        begin = self.events[0].at if self.events else 0.0
        return [f"{event.at - begin:10.4f}  {event.who:<12} {event.what}" for event in self.events]


def value_of(number: int, size: int) -> bytes:
    """Return a value with the record's number and `size` bytes of padding."""
    return b"%06d" % number + b"." * size


def number_of(value: Any) -> int | None:
    """Return the record's number in a value, or None for a value that is not a simulation's."""
    return (
        int(value[:_DIGITS])
        if isinstance(value, bytes) and len(value) >= _DIGITS and value[:_DIGITS].isdigit()
        else None
    )
