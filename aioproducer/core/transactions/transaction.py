"""Holds the state of a transactional producer: the allowed calls, the next request, the effect of each answer.

1. The state changes as the table `NEXT` says. A call that the table does not allow raises, and changes nothing (TXN-01).
2. The next request follows from the state alone. The TransactionManager sends one request at a time (TXN-09).
3. A verdict that may be on the wire is never changed. After `EndTxn (commit)` was sent once, only that request is sent again.
4. In version 1 a partition, or a group, is added to the transaction before it is written to. A request without an answer may still
   arrive, even in the next transaction (Jepsen). So the next transaction begins under a new epoch. In version 2 each transaction
   has its own epoch (KIP-890).
5. The version is read when a producer id was granted, and at the end of each transaction, never within one (TV2-01).

`transaction_errors` decides how an error changes a transaction.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.core.sequence_numbers import NO_IDENTITY, ProducerIdAndEpoch
from aioproducer.core.transactions.transaction_errors import (
    Course,
    Rpc,
    course_of,
    error_of,
    gravest,
)
from aioproducer.errors import BrokerError, TransactionAborted, TransactionMisuse
from aioproducer.model import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from aioproducer.core.transactions.transaction_errors import Rpc
    from aioproducer.errors import KafkaError, TransactionError
    from aioproducer.model import ConsumerGroupMetadata, OffsetAndMetadata


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

    def __str__(self) -> str:
        return f"{'transactional_id' if self.key_type else 'group'} {self.key!r}"


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

    def __init__(
        self, group: ConsumerGroupMetadata, offsets: Mapping[tuple[str, int], OffsetAndMetadata]
    ) -> None:
        super().__init__("send_offsets_to_transaction()")
        self.group: ConsumerGroupMetadata = group
        self.asked: dict[tuple[str, int], OffsetAndMetadata] = dict(offsets)
        self.offsets: dict[tuple[str, int], OffsetAndMetadata] = dict(offsets)

    def keep(self, places: Container[str]) -> None:
        """Keep only the offsets of these partitions: the others are part of the transaction now (TXN-14)."""
        self.offsets = {
            (topic, at): offset
            for (topic, at), offset in self.offsets.items()
            if f"{topic}-{at}" in places
        }


_ADDING: Final = (State.IN_TRANSACTION, State.PREPARING, State.COMMITTING)
_PREPARING: Final = (State.PREPARING, State.PREPARED)
# The request that ends the transaction in each of these states.
_ENDING: Final = {State.COMMITTING: Rpc.COMMIT, State.ABORTING: Rpc.ABORT}
# Until the answer to one of these arrives, the producer does not know whether the coordinator has begun the transaction.
_BEGINS: Final = (Rpc.ADD_PARTITIONS, Rpc.ADD_OFFSETS, Rpc.COMMIT_OFFSETS)
# The InitProducerId version that renews an epoch without taking it from a newer producer (KIP-360).
_FIRST_RENEWABLE: Final = 3


class Transaction:
    """Holds the state of one transactional producer.

    Args:
        transactional_id: the transactional id of the producer.
        timeout_ms: how long the coordinator lets a transaction last.
        level: returns the level of the finalized feature `transaction.version`; None: no connected broker can report it now.

    Attributes:
        identity: the producer id and epoch that were granted last.
        version: 1, or 2, in which a write to a partition adds it.
        coordinators: the node ids of the known coordinators. The caller adds those that answers name, and removes those that are gone.
        pending: partitions that are to be added, in version 1.
        partitions: partitions that are part of the transaction.
        error: the reason why no call succeeds, in the two error states; or the reason why there is no producer id.
        operation: the latest operation that the application asked for.
        number: the number of the transaction, counted from 1.
        is_flushed: in an ending or preparing transaction, every record of it has ended.
        is_told: a commit was sent, and not refused since.
    """

    def __init__(
        self, transactional_id: str, timeout_ms: float, level: Callable[[], int | None]
    ) -> None:
        self.transactional_id = transactional_id
        self.state: State = State.UNINITIALIZED
        self.identity: ProducerIdAndEpoch = NO_IDENTITY
        self.version: int = 1
        self.coordinators: dict[Coordinator, int] = {}
        self.pending: dict[tuple[str, int], None] = {}
        self.partitions: set[tuple[str, int]] = set()
        self.error: TransactionError | None = None
        self.operation: Operation = Operation("")
        self.number: int = 0
        self.is_flushed: bool = False
        self.is_told: bool = False
        self._delivery_context = Coordinator(1, transactional_id)
        self._timeout_ms = timeout_ms
        self._level = level
        self._began_at = 0.0
        self._groups: set[str] = set()
        self._offsets: list[OffsetsCommit] = []
        self._can_renew = False
        # The answer to a commit was lost.
        self._is_unsure = False
        # The coordinator knows of the transaction, so it needs an EndTxn.
        self._is_begun = False
        # The coordinator may know of the transaction: an answer decides.
        self._is_beginning = False
        self._needs_renewal = False

    # The application

    def initialize(self, transactional_id: str | None = None) -> Operation:
        """Request a producer id and return the operation.

        With a transactional id, the producer takes it, as a new producer does. A prepared transaction is left to another client. The known
        coordinators stay.
        """
        if transactional_id is None:
            return self._start(Event.INITIALIZE)
        operation = self._start(Event.RESTART)
        self.transactional_id = transactional_id
        self._delivery_context = Coordinator(1, transactional_id)
        # InitProducerId of an old id and epoch would be refused if another producer had taken its place, instead of taking its place.
        self.identity = NO_IDENTITY
        self.error = None
        self.partitions.clear()
        self._groups.clear()
        self._is_begun = self._is_beginning = self._is_unsure = self._needs_renewal = False
        return operation

    def begin(self, now: float) -> None:
        """Open a transaction."""
        self._go(Event.BEGIN)
        self._began_at = now
        self.number += 1

    def commit(self) -> Operation:
        """Commit the transaction after its last record was written. Returns the operation; the same one while the commit continues."""
        return self.operation if self.state is State.COMMITTING else self._start(Event.COMMIT)

    def prepare(self) -> Operation:
        """Prepare the transaction to be ended by another client. Returns the operation; the same one until the transaction ends."""
        return self.operation if self.state in _PREPARING else self._start(Event.PREPARE)

    def hand_over(self) -> PreparedTransaction:
        """Return the prepared transaction, after the operation of `prepare` has ended. From now on another client may end it."""
        if self.state is State.IN_TRANSACTION:
            raise TransactionMisuse(
                "prepare_transaction() has no place here: no record or offset was sent in this transaction"
            )
        if self.state is not State.PREPARED:
            self._go(Event.HAND_OVER)
        return PreparedTransaction(
            self.transactional_id, self.identity.producer_id, self.identity.epoch, self.version
        )

    def abort(self) -> Operation:
        """Abort the transaction and return the operation; the same one while the abort continues.

        Additions that were not sent are dropped. The abort waits until every record has ended.
        """
        if self.state is State.ABORTING:
            return self.operation
        if self.state is State.COMMITTING and self.is_told:
            raise TransactionMisuse(
                "commit_transaction() was sent and cannot be taken back: call it again, to learn how it ends"
            )
        waiting, operation = self.operation, self._start(Event.ABORT)
        self._drop()
        waiting.end(
            TransactionAborted(
                f"the transaction was aborted while {waiting.name} waited for records", ""
            )
        )
        return operation

    def add_offsets(
        self, group: ConsumerGroupMetadata, offsets: Mapping[tuple[str, int], OffsetAndMetadata]
    ) -> OffsetsCommit:
        """Add the offsets of a group to the transaction. Returns the operation; the same one while an equal commit continues."""
        self.check("send_offsets_to_transaction()")
        for commit in self._offsets:
            if (commit.group, commit.asked) == (group, offsets):
                return commit
        self._offsets.append(OffsetsCommit(group, offsets))
        return self._offsets[-1]

    def check(self, call: str, state: State = State.IN_TRANSACTION) -> None:
        """Raise unless the producer is in `state`: the error of the transaction, if it has one."""
        if self.state is not state:
            raise _refusal(call, self.state, self.error)

    def add(self, partition: tuple[str, int]) -> bool:
        """Add the partition of a record. Returns True if the record must wait until the coordinator has added the partition."""
        if partition in self.partitions:
            return False
        if self.version > 1:
            self.partitions.add(partition)
            self._is_begun = True
            return False
        self.pending[partition] = None
        return True

    def flushed(self) -> None:
        """Note that every record of the ending or preparing transaction has ended."""
        self.is_flushed = True
        self._settle()

    def fail(self, cause: KafkaError, where: str, now: float, *, is_numbered: bool = False) -> None:
        """Fail the transaction after a record of it failed.

        `is_numbered`: the record had a sequence number, which leaves a gap in the log.
        """
        course = (
            course_of(Rpc.PRODUCE, cause) if isinstance(cause, BrokerError) else Course.ABORTABLE
        )
        if course < Course.FATAL and is_numbered and self.version == 1 and not self._can_renew:
            course = Course.FATAL
        self._fail(Rpc.PRODUCE, course, cause, where, now)

    # Due requests

    def due(self) -> Request | None:
        """Return the next request: a FindCoordinator request if its coordinator is not known. None: none before another event."""
        request = self.step()
        if request is None or request.at in self.coordinators:
            return request
        return Request(Rpc.FIND_COORDINATOR, request.at)

    def step(self) -> Request | None:
        """Return the next request of the transaction, also if its coordinator is not known."""
        if self.state is State.INITIALIZING:
            return Request(Rpc.INIT, self._delivery_context)
        if self.state in _ADDING and self.pending:
            return Request(Rpc.ADD_PARTITIONS, self._delivery_context, tuple(self.pending))
        if self.state in _ADDING and self._offsets:
            offsets = self._offsets[0]
            group_id = offsets.group.group_id
            if self.version == 1 and group_id not in self._groups:
                return Request(Rpc.ADD_OFFSETS, self._delivery_context, offsets=offsets)
            return Request(Rpc.COMMIT_OFFSETS, Coordinator(0, group_id), offsets=offsets)
        if self.state in _ENDING and self.is_flushed:
            return Request(_ENDING[self.state], self._delivery_context)
        return None

    def sent(self, request: Request) -> None:
        """Note that a request is written now. Its answer may be lost."""
        self.is_told |= request.rpc is Rpc.COMMIT
        self._is_begun |= request.rpc is Rpc.COMMIT_OFFSETS
        self._is_beginning = request.rpc in _BEGINS

    # Answers

    def granted(self, identity: ProducerIdAndEpoch, init_version: int) -> None:
        """Set the producer id and epoch that InitProducerId of version `init_version` returned."""
        self.identity = identity
        self._can_renew = init_version >= _FIRST_RENEWABLE
        self._needs_renewal = False
        self.version = _version_of(self._level(), self.version)
        self.error = None
        self._go(Event.GRANT)
        self.operation.end()

    def done(self, request: Request, identity: ProducerIdAndEpoch = NO_IDENTITY) -> None:
        """Note an answer without an error. `identity`: the producer id and epoch of the next transaction, in version 2."""
        self._is_beginning = False
        if request.rpc is Rpc.ADD_PARTITIONS:
            self._is_begun = True
            self.partitions.update(request.partitions)
            for partition in request.partitions:
                self.pending.pop(partition, None)
        elif request.rpc in (Rpc.COMMIT, Rpc.ABORT):
            if _is_newer(identity, self.identity):
                self.identity = identity
                self._needs_renewal = False
            # In version 2, each transaction has an epoch of its own. Records under an old one could become part of the one that has ended.
            elif self.version > 1:
                self._needs_renewal = True
            self._finish()
        elif request.offsets is not None:
            self._is_begun = True
            if request.rpc is Rpc.ADD_OFFSETS:
                self._groups.add(request.group_id)
            elif request.offsets in self._offsets:
                self._offsets.remove(request.offsets)
                request.offsets.end()
        self._settle()

    def refused(self, request: Request, errors: Mapping[str, BrokerError], now: float) -> Course:
        """Note an answer with errors, by the partitions that they concern.

        Returns:
            QUICK, RETRY or LOOKUP: how to send the next request, which may cover less. Any other course: the state has changed.
        """
        self._is_beginning = False
        course, error, places = gravest(request.rpc, errors)
        if course is Course.LOOKUP:
            self.coordinators.pop(request.at, None)
        if course <= Course.LOOKUP:
            if request.rpc is Rpc.COMMIT_OFFSETS and request.offsets is not None:
                request.offsets.keep(errors)
        # A new epoch aborts the transaction, too.
        elif course is Course.RENEW and request.rpc is Rpc.ABORT and self._can_renew:
            self._needs_renewal = True
            self._finish()
        else:
            course = _course_now(course, self.state, can_renew=self._can_renew)
            self.is_told &= request.rpc is not Rpc.COMMIT
            group = str(Coordinator(0, request.group_id)) if request.offsets is not None else ""
            about = (*sorted(places), group, str(request.at), str(self._delivery_context))
            self._fail(
                request.rpc, course, error, ", ".join(dict.fromkeys(filter(None, about))), now
            )
        self._settle()
        return course

    def lost(self, request: Request) -> None:
        """Note that a request got no answer: the coordinator may have executed it, or may still execute it."""
        self.coordinators.pop(request.at, None)
        self._is_unsure |= request.rpc is Rpc.COMMIT
        if request.rpc not in (Rpc.FIND_COORDINATOR, Rpc.INIT):
            self._needs_renewal |= self._can_renew
            self._is_begun |= not self._can_renew
        self._is_beginning = False
        self._settle()

    # States

    def _start(self, event: Event) -> Operation:
        self._go(event)
        self.is_flushed = self.is_told = False
        self.operation = Operation(event)
        return self.operation

    def _go(self, event: Event) -> None:
        after = NEXT.get((self.state, event))
        if after is None:
            raise _refusal(event, self.state, self.error)
        self.state = after

    def _settle(self) -> None:
        """Finish an ending transaction that the coordinator does not know of (TXN-07), and the preparation of one that it knows of."""
        if not self.is_flushed or self._is_beginning or self.pending or self._offsets:
            return
        if self.state is State.PREPARING:
            if not self._is_begun:
                self._go(Event.EMPTY)
            self.operation.end()
        elif self.state in _ENDING and not self._is_begun:
            self._finish()

    def _finish(self) -> None:
        before, self.version = self.version, _version_of(self._level(), self.version)
        # Version 2 needs epochs of its own (TV2-04).
        self._needs_renewal |= before < self.version
        self._drop()
        self.partitions.clear()
        self._groups.clear()
        self._is_begun = self.is_told = self._is_unsure = False
        self.error = None
        self._go(Event.RENEW if self._needs_renewal else Event.END)
        self.operation.end()

    def _drop(self) -> None:
        """Drop the partitions and offsets that were still to be added."""
        self.pending.clear()
        for commit in self._offsets:
            commit.end(
                TransactionAborted(
                    "the transaction was aborted before these offsets were part of it"
                )
            )
        self._offsets.clear()

    def _fail(self, rpc: Rpc, course: Course, cause: KafkaError, where: str, now: float) -> None:
        is_expired = (
            self.state in (*_ADDING, State.ABORTING, State.ABORTABLE_ERROR)
            and now - self._began_at > self._timeout_ms / 1000
        )
        error = error_of(
            rpc,
            course,
            cause,
            where,
            self._timeout_ms if is_expired else None,
            is_unsure=self._is_unsure,
        )
        if course >= Course.FATAL:
            after: State | None = State.FATAL_ERROR if self.state is not State.FATAL_ERROR else None
        else:
            after = NEXT.get((self.state, Event.REFUSE if course is Course.RESET else Event.FAIL))
            self._needs_renewal |= (
                after is State.ABORTABLE_ERROR and self._can_renew and self.version == 1
            )
        # The transaction ends already: a later failure changes nothing.
        if after is None:
            return
        self.state = after
        self.error = error
        self.operation.end(error)
        for commit in self._offsets:
            commit.end(error)
        self._drop()


def _refusal(call: str, state: State, error: TransactionError | None) -> KafkaError:
    """Return what a call raises that has no place in `state`: the error of the transaction, if it has one."""
    is_told_why = state is State.FATAL_ERROR or (
        state is State.ABORTABLE_ERROR and call != Event.BEGIN
    )
    if is_told_why and error is not None:
        return error.again()
    return TransactionMisuse(f"{call} has no place here: the producer {state}")


def _course_now(course: Course, state: State, *, can_renew: bool) -> Course:
    """Return the course in `state` of an error that is not retried."""
    if course is Course.RENEW:
        course = Course.ABORTABLE if can_renew else Course.FATAL
    if state is State.INITIALIZING and course < Course.FATAL:
        return Course.RESET
    return Course.FATAL if course is Course.RESET else course


def _is_newer(identity: ProducerIdAndEpoch, known: ProducerIdAndEpoch) -> bool:
    """Return whether an answer has the identity of the next transaction: another producer id, or a higher epoch."""
    return identity != NO_IDENTITY and (
        identity.producer_id != known.producer_id or identity.epoch > known.epoch
    )


def _version_of(level: int | None, before: int) -> int:
    """Return the version of transactions at a level of the feature; `before`, if the level is not known."""
    return before if level is None else min(max(level, 1), 2)
