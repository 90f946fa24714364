"""Holds the states of a batch and the transitions between them, which are Kafka's (seeds/003)."""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["NEXT", "Event", "InvalidTransition", "State"]


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


class InvalidTransition(AssertionError):
    """Raised for a bug in the caller, never for a runtime condition."""


class _Transitions(dict[tuple[State, Event], State]):
    """Maps a state and an event to the next state. Raises `InvalidTransition` if there is none."""

    def __missing__(self, key: tuple[State, Event]) -> State:
        raise InvalidTransition(f"a batch that is {key[0]} cannot {key[1]}")


NEXT: Final = _Transitions(
    {
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
)
