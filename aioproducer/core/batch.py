"""The life of a batch.

1. A batch ends once: acknowledged or failed. What arrives later is counted and dropped.
2. Its bytes are fixed when it is encoded. A retry sends the same bytes.
3. A batch that was on the wire may have been written, whatever the client saw: its failure says `persisted=maybe`.

States are Kafka's (seeds/003). Knows nothing of clocks, loops, sockets, or who waits for it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.core.accumulator import Cell
    from aioproducer.interfaces import Buffer, OpenBatch

__all__ = ["Batch", "Event", "InvalidTransition", "State", "next_state"]


class State(enum.IntEnum):
    """Where a batch is in its life. Numbers: an Enum's own hash is a Python function."""

    OPEN = 0
    READY = 1
    ENCODING = 2
    IN_FLIGHT = 3
    DONE = 4
    FAILED = 5

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


class Event(enum.IntEnum):
    """What happens to a batch."""

    CLOSE = 0
    DRAIN = 1
    SEND = 2
    RETRY = 3
    ACKNOWLEDGE = 4
    FAIL = 5

    def __str__(self) -> str:
        return self.name.lower()


_NEXT: Final[Mapping[tuple[State, Event], State]] = {
    (State.OPEN, Event.CLOSE): State.READY,
    (State.READY, Event.DRAIN): State.ENCODING,
    (State.ENCODING, Event.SEND): State.IN_FLIGHT,
    (State.ENCODING, Event.RETRY): State.READY,  # the connection went while it was compressed; it was not sent
    (State.IN_FLIGHT, Event.RETRY): State.READY,  # keeps its place
    (State.IN_FLIGHT, Event.ACKNOWLEDGE): State.DONE,
    (State.READY, Event.FAIL): State.FAILED,  # expired, or the producer stops
    (State.ENCODING, Event.FAIL): State.FAILED,
    (State.IN_FLIGHT, Event.FAIL): State.FAILED,  # its bytes stay reserved until the connection lets go (KAFKA-19012)
}


class InvalidTransition(AssertionError):
    """A bug in the caller, never bad luck."""


def next_state(state: State, event: Event) -> State:
    """The state after `event`, or `InvalidTransition`."""
    try:
        return _NEXT[state, event]
    except KeyError:
        raise InvalidTransition(f"a batch that is {state} cannot {event}") from None


class Batch:
    """Records of one partition on their way (Java's `ProducerBatch`).

    Attributes:
        open: takes records while the state is OPEN, then None (an `engine.hot.OpenBatch`).
        result: what its deliveries share; opaque here.
        credit: bytes of `buffer_memory` that it holds.
        may_be_written: some attempt ended without a broker's word.
        on_wire: sent, and neither answered nor lost yet.
        held: drained, and the connection is not done with its bytes: until then they and the credit are not free.
        is_encoded: the payload is compressed, if it is to be.
    """

    __slots__ = (
        "attempts",
        "base_timestamp",
        "cell",
        "count",
        "credit",
        "expires_at",
        "header",
        "held",
        "is_encoded",
        "max_timestamp",
        "may_be_written",
        "number",
        "on_wire",
        "open",
        "payload",
        "result",
        "settled",
        "state",
    )

    def __init__(self, cell: Cell, number: int, open_batch: OpenBatch, result: Any, *, credit: int, expires_at: float) -> None:
        self.cell = cell
        self.number = number
        self.open: OpenBatch | None = open_batch
        self.result = result
        self.credit = credit
        self.expires_at = expires_at
        self.state = State.OPEN
        self.attempts = 0
        self.count = 0
        self.settled = 0
        self.base_timestamp = self.max_timestamp = -1
        self.payload: Buffer | None = None
        self.header: bytes | None = None
        self.may_be_written = False
        self.on_wire = self.held = self.is_encoded = False

    def move(self, event: Event) -> None:
        """Go to the state that `event` leads to."""
        self.state = next_state(self.state, event)

    @property
    def ended(self) -> bool:
        """Whether it was acknowledged or failed."""
        return self.state is State.DONE or self.state is State.FAILED

    def __repr__(self) -> str:
        return f"<Batch {self.number} of {self.cell.topic}-{self.cell.partition}: {self.count} records, {self.state}, sent {self.attempts} times>"
