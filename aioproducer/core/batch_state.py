"""Holds the states of a batch and the transitions between them, which are Kafka's (seeds/003)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NEXT", "Event", "InvalidTransition", "State", "next_state"]


class State(enum.IntEnum):
    """Lists the states of a batch. They are integers because the hash of a plain Enum is a Python function."""

    OPEN = 0
    READY = 1
    ENCODING = 2
    IN_FLIGHT = 3
    DONE = 4
    FAILED = 5
    SPLIT = 6

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


class Event(enum.IntEnum):
    """Lists the events that change the state of a batch."""

    CLOSE = 0
    DRAIN = 1
    SEND = 2
    RETRY = 3
    ACKNOWLEDGE = 4
    FAIL = 5
    SPLIT = 6

    def __str__(self) -> str:
        return self.name.lower()


NEXT: Final[Mapping[tuple[State, Event], State]] = {
    (State.OPEN, Event.CLOSE): State.READY,
    (State.READY, Event.DRAIN): State.ENCODING,
    (State.ENCODING, Event.SEND): State.IN_FLIGHT,
    # The connection was lost while the batch was compressed. The batch was not sent.
    (State.ENCODING, Event.RETRY): State.READY,
    # The batch keeps its place.
    (State.IN_FLIGHT, Event.RETRY): State.READY,
    (State.IN_FLIGHT, Event.ACKNOWLEDGE): State.DONE,
    # The batch was too large, or the broker refused some of its records. Smaller batches replace it.
    (State.IN_FLIGHT, Event.SPLIT): State.SPLIT,
    # The batch expired, or the producer stops.
    (State.READY, Event.FAIL): State.FAILED,
    (State.ENCODING, Event.FAIL): State.FAILED,
    # Its bytes stay reserved until the connection no longer uses them (KAFKA-19012).
    (State.IN_FLIGHT, Event.FAIL): State.FAILED,
}


class InvalidTransition(AssertionError):
    """Raised for a bug in the caller, never for a runtime condition."""


def next_state(state: State, event: Event) -> State:
    """Return the state after `event`. Raises `InvalidTransition` if there is none."""
    try:
        return NEXT[state, event]
    except KeyError:
        raise InvalidTransition(f"a batch that is {state} cannot {event}") from None
