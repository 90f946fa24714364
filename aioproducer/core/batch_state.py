"""The states of a batch, and which follow each other. They are Kafka's (seeds/003). Knows nothing of what a batch is."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NEXT", "Event", "InvalidTransition", "State", "next_state"]


class State(enum.IntEnum):
    """Where a batch is in its life. Numbers: an Enum's own hash is a Python function."""

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
    """What happens to a batch."""

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
    (State.ENCODING, Event.RETRY): State.READY,  # the connection went while it was compressed; it was not sent
    (State.IN_FLIGHT, Event.RETRY): State.READY,  # keeps its place
    (State.IN_FLIGHT, Event.ACKNOWLEDGE): State.DONE,
    (State.IN_FLIGHT, Event.SPLIT): State.SPLIT,  # too large, or some of its records refused: smaller ones stand for it
    (State.READY, Event.FAIL): State.FAILED,  # expired, or the producer stops
    (State.ENCODING, Event.FAIL): State.FAILED,
    (State.IN_FLIGHT, Event.FAIL): State.FAILED,  # its bytes stay reserved until the connection lets go (KAFKA-19012)
}


class InvalidTransition(AssertionError):
    """A bug in the caller, never bad luck."""


def next_state(state: State, event: Event) -> State:
    """The state after `event`, or `InvalidTransition`."""
    try:
        return NEXT[state, event]
    except KeyError:
        raise InvalidTransition(f"a batch that is {state} cannot {event}") from None
