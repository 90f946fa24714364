"""Holds the states, events, requests and operations of a transactional producer."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from aioproducer.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from aioproducer.core.transactions.transaction_errors import Rpc
    from aioproducer.errors import TransactionError
    from aioproducer.model import ConsumerGroupMetadata, OffsetAndMetadata

__all__ = ["NEXT", "Coordinator", "Event", "OffsetsCommit", "Operation", "Request", "State"]


class State(enum.StrEnum):
    """Lists the states of a transactional producer."""

    UNINITIALIZED = "has no producer id"
    INITIALIZING = "is being given a producer id"
    READY = "has no transaction open: call begin_transaction()"
    IN_TRANSACTION = "has a transaction open"
    PREPARING = "prepares its transaction: call prepare_transaction() again to wait for the end"
    PREPARED = "has a prepared transaction: call commit_transaction() or abort_transaction(), or stop it, which leaves the transaction open"
    COMMITTING = "commits its transaction: call commit_transaction() again to wait for the end"
    ABORTING = "aborts its transaction: call abort_transaction() again to wait for the end"
    ABORTABLE_ERROR = "has a transaction that can only be aborted: call abort_transaction()"
    FATAL_ERROR = "has failed: stop it and start a new one"


class Event(enum.StrEnum):
    """Lists the events that change the state."""

    INITIALIZE = "initialization"
    RESTART = "init_transactions()"
    GRANT = "a producer id"
    REFUSE = "no producer id"
    BEGIN = "begin_transaction()"
    PREPARE = "prepare_transaction()"
    EMPTY = "nothing to prepare"
    HAND_OVER = "the prepared transaction"
    COMMIT = "commit_transaction()"
    ABORT = "abort_transaction()"
    END = "the end of the transaction"
    RENEW = "its end, with another epoch due"
    FAIL = "an error"


NEXT: Final[Mapping[tuple[State, Event], State]] = {
    (State.UNINITIALIZED, Event.INITIALIZE): State.INITIALIZING,
    (State.INITIALIZING, Event.GRANT): State.READY,
    (State.INITIALIZING, Event.REFUSE): State.UNINITIALIZED,
    (State.UNINITIALIZED, Event.RESTART): State.INITIALIZING,
    (State.READY, Event.RESTART): State.INITIALIZING,
    (State.PREPARED, Event.RESTART): State.INITIALIZING,
    (State.READY, Event.BEGIN): State.IN_TRANSACTION,
    (State.IN_TRANSACTION, Event.COMMIT): State.COMMITTING,
    (State.IN_TRANSACTION, Event.ABORT): State.ABORTING,
    (State.IN_TRANSACTION, Event.FAIL): State.ABORTABLE_ERROR,
    (State.IN_TRANSACTION, Event.PREPARE): State.PREPARING,
    (State.PREPARING, Event.ABORT): State.ABORTING,
    (State.PREPARING, Event.FAIL): State.ABORTABLE_ERROR,
    (State.PREPARING, Event.EMPTY): State.IN_TRANSACTION,
    (State.PREPARING, Event.HAND_OVER): State.PREPARED,
    (State.PREPARED, Event.COMMIT): State.COMMITTING,
    (State.PREPARED, Event.ABORT): State.ABORTING,
    # Only before the commit was sent.
    (State.COMMITTING, Event.ABORT): State.ABORTING,
    (State.COMMITTING, Event.FAIL): State.ABORTABLE_ERROR,
    (State.COMMITTING, Event.END): State.READY,
    (State.COMMITTING, Event.RENEW): State.INITIALIZING,
    (State.ABORTABLE_ERROR, Event.ABORT): State.ABORTING,
    (State.ABORTING, Event.END): State.READY,
    (State.ABORTING, Event.RENEW): State.INITIALIZING,
}


class Coordinator(NamedTuple):
    """Identifies a coordinator by its key: a group (key type 0) or a transactional id (1)."""

    key_type: int
    key: str


class Request(NamedTuple):
    """Holds a request that is due.

    Attributes:
        rpc: the kind of request.
        at: the coordinator that answers it; for FindCoordinator, the coordinator to find.
        partitions: the partitions to add.
        offsets: the offsets to commit, or the offsets of the group to add.
    """

    rpc: Rpc
    at: Coordinator
    partitions: tuple[tuple[str, int], ...] = ()
    offsets: OffsetsCommit | None = None

    @property
    def group_id(self) -> str:
        """Return the group of the offsets."""
        return "" if self.offsets is None else self.offsets.group.group_id


class Operation:
    """Holds the outcome of a call that the application waits for. `error`: the reason why it failed."""

    __slots__ = ("error", "is_over", "name")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.is_over: bool = False
        self.error: TransactionError | None = None

    def end(self, error: TransactionError | None = None) -> None:
        """End the operation, if it has not ended."""
        if not self.is_over:
            self.is_over = True
            self.error = error


class OffsetsCommit(Operation):
    """Holds the offsets of one group that are added to the transaction. `offsets`: those that are not yet part of it."""

    __slots__ = ("asked", "group", "offsets")

    def __init__(self, group: ConsumerGroupMetadata, offsets: Mapping[tuple[str, int], OffsetAndMetadata]) -> None:
        super().__init__("send_offsets_to_transaction()")
        self.group: ConsumerGroupMetadata = group
        self.asked: dict[tuple[str, int], OffsetAndMetadata] = dict(offsets)
        self.offsets: dict[tuple[str, int], OffsetAndMetadata] = dict(offsets)

    def keep(self, places: Container[str]) -> None:
        """Keep only the offsets of these partitions: the others are part of the transaction now (TXN-14)."""
        self.offsets = {(topic, at): offset for (topic, at), offset in self.offsets.items() if f"{topic}-{at}" in places}
