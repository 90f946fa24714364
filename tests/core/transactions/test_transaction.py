"""Tests of `aioproducer.core.transactions.transaction`: states, due requests in order, effects of answers."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from aioproducer.core.sequence_numbers import NO_IDENTITY, ProducerIdAndEpoch
from aioproducer.core.transactions.transaction import (
    NEXT,
    Coordinator,
    Event,
    OffsetsCommit,
    Request,
    State,
    Transaction,
)
from aioproducer.core.transactions.transaction_errors import COURSES, Course, Rpc
from aioproducer.errors import (
    ConnectionLost,
    RecordTooLarge,
    TransactionAbortable,
    TransactionAborted,
    TransactionError,
    TransactionExpired,
    TransactionFatal,
    TransactionMisuse,
    broker_error,
)
from aioproducer.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

HOME = Coordinator(1, "tx")
GROUP = Coordinator(0, "g")
ORDERS = TopicPartition("orders", 0)
OFFSETS: dict[tuple[str, int], OffsetAndMetadata] = {
    TopicPartition("in", 0): OffsetAndMetadata(5),
    TopicPartition("in", 1): OffsetAndMetadata(7),
}
TIMEOUT = 60_000
FIRST = ProducerIdAndEpoch(7, 0)


class Level:
    """The finalized feature, as a test sets it."""

    def __init__(self, level: int | None) -> None:
        self.level = level

    def __call__(self) -> int | None:
        return self.level


def made(version: int = 2, *, init_version: int = 5) -> Transaction:
    """One with a producer id, and nothing open."""
    level = Level(version)
    one = Transaction("tx", TIMEOUT, level)
    one.level = level  # type: ignore[attr-defined]
    one.initialize()
    one.coordinators[HOME] = 1
    one.granted(FIRST, init_version)
    return one


def begun(version: int = 2, *, init_version: int = 5) -> Transaction:
    """One in a transaction that began at 0, with coordinators known."""
    one = made(version, init_version=init_version)
    one.coordinators[GROUP] = 2
    one.begin(0.0)
    return one


def due(one: Transaction, rpc: Rpc) -> Request:
    """Return the request that is due, and check its kind."""
    request = one.due()
    assert request is not None
    assert request.rpc is rpc
    return request


def add_offsets(one: Transaction) -> OffsetsCommit:
    return one.add_offsets(ConsumerGroupMetadata("g"), OFFSETS)


def written(version: int = 2, *, init_version: int = 5) -> Transaction:
    """One with a record in its transaction."""
    one = begun(version, init_version=init_version)
    if one.add(ORDERS):
        one.done(due(one, Rpc.ADD_PARTITIONS))
    return one


def committing(version: int = 2, *, init_version: int = 5) -> Transaction:
    one = written(version, init_version=init_version)
    one.commit()
    one.flushed()
    return one


def aborting(version: int = 2, *, init_version: int = 5) -> Transaction:
    one = written(version, init_version=init_version)
    one.abort()
    one.flushed()
    return one


def at_init() -> Transaction:
    one = Transaction("tx", TIMEOUT, Level(2))
    one.initialize()
    one.coordinators[HOME] = 1
    return one


def at_find() -> Transaction:
    one = written(1)
    add_offsets(one)
    one.done(due(one, Rpc.ADD_OFFSETS))
    one.coordinators.pop(GROUP, None)
    return one


def at_add_partitions() -> Transaction:
    one = begun(1)
    assert one.add(ORDERS)
    return one


def at_add_offsets() -> Transaction:
    one = written(1)
    add_offsets(one)
    return one


def at_commit_offsets() -> Transaction:
    one = written(2)
    add_offsets(one)
    return one


DUE: dict[Rpc, Callable[[], Transaction]] = {
    Rpc.INIT: at_init,
    Rpc.FIND_COORDINATOR: at_find,
    Rpc.ADD_PARTITIONS: at_add_partitions,
    Rpc.ADD_OFFSETS: at_add_offsets,
    Rpc.COMMIT_OFFSETS: at_commit_offsets,
    Rpc.COMMIT: lambda: committing(1),
    Rpc.ABORT: lambda: aborting(1),
}

# One test for each row of the table of errors


@pytest.mark.parametrize(
    ("rpc", "name"),
    [(rpc, name) for rpc, row in COURSES.items() if rpc in DUE for name in row],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_refusal(rpc: Rpc, name: str) -> None:
    """A refusal of the due request changes the transaction as its row of the table says."""
    one = DUE[rpc]()
    before, operation = one.state, one.operation
    request = due(one, rpc)
    one.sent(request)
    told = one.refused(request, {"": broker_error(name)}, 1.0)
    course = COURSES[rpc][name]
    if course in (Course.QUICK, Course.RETRY, Course.LOOKUP):
        assert told is course
        assert one.state is before
        assert due(one, Rpc.FIND_COORDINATOR if course is Course.LOOKUP else rpc).at == request.at
        return
    if course is Course.RENEW and rpc is Rpc.ABORT:
        assert one.state is State.INITIALIZING  # another epoch aborts it, too
        assert operation.is_over
        assert operation.error is None
        return
    if course is Course.RESET and before is State.INITIALIZING:
        assert one.state is State.UNINITIALIZED
        kind: type[TransactionError] = TransactionError
    elif course in (Course.ABORTABLE, Course.RENEW):
        assert one.state is State.ABORTABLE_ERROR
        kind = TransactionAbortable
    else:
        assert one.state is State.FATAL_ERROR
        kind = TransactionFatal
    assert isinstance(one.error, kind)
    assert one.error.hint
    assert one.due() is None
    if before in (State.COMMITTING, State.ABORTING, State.INITIALIZING):
        assert operation.is_over
        assert operation.error is one.error


@pytest.mark.parametrize("name", COURSES[Rpc.PRODUCE])
@pytest.mark.parametrize("start", [begun, committing])
def test_a_produce_error_of_the_table(name: str, start: Callable[[], Transaction]) -> None:
    """The table's rows of Produce are fatal."""
    one = start()
    one.fail(broker_error(name), "orders-0", 1.0)
    assert one.state is State.FATAL_ERROR
    with pytest.raises(TransactionFatal, match=name):
        one.commit()
    with pytest.raises(TransactionFatal, match=name):
        one.abort()
    with pytest.raises(TransactionFatal, match=name):
        one.begin(2.0)


@pytest.mark.parametrize(
    "cause",
    [
        broker_error("INVALID_TXN_STATE"),
        broker_error("NOT_LEADER_OR_FOLLOWER"),
        ConnectionLost("gone"),
        RecordTooLarge("large"),
    ],
    ids=repr,
)
def test_any_other_failed_record(cause: TransactionError) -> None:
    """TXN-08: the transaction cannot be committed; an abort helps, and the first error stays."""
    one = written()
    one.fail(cause, "orders-0", 1.0)
    one.fail(broker_error("POLICY_VIOLATION"), "orders-1", 1.0)
    for call in (one.commit, lambda: one.check("send()"), lambda: add_offsets(one)):
        with pytest.raises(TransactionAbortable) as raised:
            call()
        assert raised.value.__cause__ is cause
        assert raised.value is not one.error
    with pytest.raises(TransactionMisuse, match="only be aborted"):
        one.begin(2.0)
    operation = one.abort()
    one.flushed()
    one.done(due(one, Rpc.ABORT), ProducerIdAndEpoch(7, 1))
    assert (operation.is_over, operation.error) == (True, None)
    one.begin(3.0)


def test_errors_while_it_aborts_change_nothing() -> None:
    """EPO-02: an error leaves the abort as it is. A producer that was fenced still fails for good."""
    one = aborting(1)
    one.fail(ConnectionLost("gone"), "orders-0", 1.0)
    assert due(one, Rpc.ABORT)
    one.fail(broker_error("PRODUCER_FENCED"), "orders-0", 1.0)
    assert one.state is State.FATAL_ERROR


@pytest.mark.parametrize(
    ("numbered", "init_version", "version", "state"),
    [
        (True, 2, 1, State.FATAL_ERROR),
        (False, 2, 1, State.ABORTABLE_ERROR),
        (True, 3, 1, State.ABORTABLE_ERROR),
        (True, 5, 2, State.ABORTABLE_ERROR),
    ],
)
def test_a_missing_number_needs_another_epoch(
    numbered: bool, init_version: int, version: int, state: State
) -> None:
    """EPO-01: before InitProducerId 3 no broker gives another epoch, and the partition's log takes nothing after the gap."""
    one = written(version, init_version=init_version)
    one.fail(ConnectionLost("gone"), "orders-0", 1.0, is_numbered=numbered)
    assert one.state is state


def test_fatal_stays_fatal() -> None:
    """Nothing that comes later changes it, or its reason."""
    one = committing()
    request = due(one, Rpc.COMMIT)
    one.refused(request, {"": broker_error("PRODUCER_FENCED")}, 1.0)
    error = one.error
    one.fail(broker_error("INVALID_PRODUCER_ID_MAPPING"), "orders-0", 1.0)
    assert (one.state, one.error, one.due()) == (State.FATAL_ERROR, error, None)


# States and calls

CALLS: dict[Event, Callable[[Transaction], object]] = {
    Event.INITIALIZE: lambda one: one.initialize(),
    Event.RESTART: lambda one: one.initialize("other"),
    Event.BEGIN: lambda one: one.begin(1.0),
    Event.PREPARE: lambda one: one.prepare(),
    Event.COMMIT: lambda one: one.commit(),
    Event.ABORT: lambda one: one.abort(),
}
JOINED = {
    (State.COMMITTING, Event.COMMIT),
    (State.ABORTING, Event.ABORT),
    (State.PREPARING, Event.PREPARE),
    (State.PREPARED, Event.PREPARE),
}


@pytest.mark.parametrize(
    ("state", "event"), list(product(State, CALLS)), ids=lambda value: value.name
)
def test_a_call_in_a_state(state: State, event: Event) -> None:
    """The table allows it, or it raises and changes nothing (TXN-01); a call that goes on is joined (TXN-03)."""
    one = begun()
    one.state = state
    one.error = TransactionFatal("why") if state is State.FATAL_ERROR else None
    if state is State.ABORTABLE_ERROR:
        one.error = TransactionAbortable("why")
    if (state, event) in JOINED:
        operation = one.operation
        assert CALLS[event](one) is operation
        assert one.state is state
    elif (state, event) in NEXT:
        CALLS[event](one)
        assert one.state is NEXT[state, event]
    else:
        with pytest.raises((TransactionMisuse, TransactionAbortable, TransactionFatal)) as raised:
            CALLS[event](one)
        assert one.state is state
        assert str(state) in str(raised.value) or raised.value.__class__ is type(one.error)


@pytest.mark.parametrize("state", [state for state in State if state is not State.IN_TRANSACTION])
def test_records_and_offsets_outside_a_transaction(state: State) -> None:
    """Both say which call is missing."""
    one = begun()
    one.state = state
    one.error = TransactionFatal("why")
    for call in (lambda: one.check("send()"), lambda: add_offsets(one)):
        with pytest.raises((TransactionMisuse, TransactionFatal)):
            call()
    assert one.due() is None or one.state is State.INITIALIZING


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            State.READY,
            r"send\(\) has no place here: the producer has no transaction open: call begin_transaction\(\)",
        ),
        (State.PREPARING, r"call prepare_transaction\(\) again"),
        (State.PREPARED, r"call commit_transaction\(\) or abort_transaction\(\)"),
        (State.COMMITTING, r"call commit_transaction\(\) again"),
        (State.ABORTING, r"call abort_transaction\(\) again"),
    ],
)
def test_a_misuse_says_what_to_call(state: State, text: str) -> None:
    one = begun()
    one.state = state
    with pytest.raises(TransactionMisuse, match=text):
        one.check("send()")


def test_a_preparation_step_by_step() -> None:
    """In version 1: the partition, the group and its offsets, then the records; nothing ends it, and it is handed over once it is asked for."""
    one = begun(1)
    assert one.add(ORDERS)
    add_offsets(one)
    operation = one.prepare()
    one.flushed()
    for rpc in (Rpc.ADD_PARTITIONS, Rpc.ADD_OFFSETS, Rpc.COMMIT_OFFSETS):
        assert not operation.is_over
        request = due(one, rpc)
        one.sent(request)
        one.done(request)
    assert (operation.is_over, operation.error, one.state, one.due()) == (
        True,
        None,
        State.PREPARING,
        None,
    )
    assert one.hand_over() == ("tx", FIRST.producer_id, FIRST.epoch, 1)
    assert one.hand_over() == ("tx", FIRST.producer_id, FIRST.epoch, 1)
    assert one.state is State.PREPARED
    one.commit()
    one.flushed()
    assert due(one, Rpc.COMMIT).at == HOME


def test_a_preparation_that_fails() -> None:
    """The operation has the error of the record, and nothing is handed over."""
    one = written()
    operation = one.prepare()
    one.fail(RecordTooLarge("large"), "orders", 1.0)
    assert isinstance(operation.error, TransactionAbortable)
    with pytest.raises(TransactionAbortable):
        one.hand_over()


# The order of things


@pytest.mark.parametrize("version", [1, 2])
def test_what_was_sent_to_is_ended_even_if_nothing_arrived(version: int) -> None:
    """TV2-05: in version 2 a partition is one from its first record on; in version 1 once it was added."""
    one = begun(version)
    one.add(ORDERS)
    one.abort()
    one.flushed()
    if version == 2:
        due(one, Rpc.ABORT)
    else:
        assert one.state is State.READY


def test_the_end_waits_for_records_and_offsets() -> None:
    """TXN-05."""
    one = written()
    offsets = add_offsets(one)
    one.commit()
    request = due(one, Rpc.COMMIT_OFFSETS)
    one.flushed()
    assert due(one, Rpc.COMMIT_OFFSETS) == request
    one.done(request)
    assert offsets.is_over
    due(one, Rpc.COMMIT)


def test_offsets_that_are_given_twice_are_one() -> None:
    """TXN-03: the second call joins the first; other offsets wait behind."""
    one = begun()
    first, again = add_offsets(one), add_offsets(one)
    assert first is again
    other = one.add_offsets(ConsumerGroupMetadata("g", 3, "m"), OFFSETS)
    assert other is not first
    one.done(due(one, Rpc.COMMIT_OFFSETS))
    assert (first.is_over, other.is_over) == (True, False)
    assert due(one, Rpc.COMMIT_OFFSETS).offsets is other


def test_offsets_are_tried_again_alone() -> None:
    """TXN-14: those that are in are not sent again; equal ones still join."""
    one = begun()
    offsets = add_offsets(one)
    one.refused(
        due(one, Rpc.COMMIT_OFFSETS), {"in-1": broker_error("COORDINATOR_LOAD_IN_PROGRESS")}, 1.0
    )
    assert list(offsets.offsets) == [TopicPartition("in", 1)]
    assert add_offsets(one) is offsets


# Verdicts


@pytest.mark.parametrize(("lost", "persisted"), [(False, "no"), (True, "maybe")])
def test_a_commit_that_fails_after_its_answer_was_lost(lost: bool, persisted: str) -> None:
    """Its first attempt may have been carried out; the error says so, and each that is raised for it."""
    one = committing(1)
    request = due(one, Rpc.COMMIT)
    one.sent(request)
    if lost:
        one.lost(request)
        one.coordinators[HOME] = 2
    one.refused(due(one, Rpc.COMMIT), {"": broker_error("PRODUCER_FENCED")}, 1.0)
    assert one.operation.error is not None
    with pytest.raises(TransactionFatal) as raised:
        one.begin(2.0)
    for error in (one.operation.error, raised.value):
        assert error.persisted == persisted
        assert ("may have been committed" in str(error)) is lost


def test_a_commit_that_was_refused_can_be_aborted() -> None:
    """The coordinator said that nothing came of it."""
    one = committing(2)
    request = due(one, Rpc.COMMIT)
    one.sent(request)
    one.refused(request, {"": broker_error("TRANSACTION_ABORTABLE")}, 1.0)
    abort = one.abort()
    one.flushed()
    one.done(due(one, Rpc.ABORT))
    assert (abort.is_over, abort.error) == (True, None)


def test_an_abort_drops_what_was_to_be_added() -> None:
    """TXN-06: the abort drops pending offsets and partitions. The caller that waits for the offsets gets the error."""
    one = written(1)
    offsets = add_offsets(one)
    one.add(TopicPartition("orders", 1))
    one.abort()
    assert isinstance(offsets.error, TransactionAborted)
    assert not one.pending
    one.flushed()
    due(one, Rpc.ABORT)


# Epochs


@pytest.mark.parametrize("rpc", [Rpc.ADD_PARTITIONS, Rpc.ADD_OFFSETS, Rpc.COMMIT, Rpc.ABORT])
def test_after_a_lost_answer_version_1_takes_another_epoch(rpc: Rpc) -> None:
    """Row 69: what was asked may arrive late, in the next transaction too."""
    one = DUE[rpc]()
    request = due(one, rpc)
    one.sent(request)
    one.lost(request)
    one.coordinators[HOME] = 2
    one.done(due(one, rpc))
    if one.state is State.IN_TRANSACTION:
        one.abort()
        one.flushed()
        one.done(due(one, Rpc.ABORT))
    assert one.operation.is_over  # it does not wait for the epoch
    assert due(one, Rpc.INIT).at == HOME
    one.granted(ProducerIdAndEpoch(7, 1), 5)
    assert (one.state, one.identity) == (State.READY, ProducerIdAndEpoch(7, 1))


def test_an_added_partition_that_nobody_confirmed() -> None:
    """In version 1: the coordinator may know of the transaction or not. Another epoch aborts it if it does."""
    one = at_add_partitions()
    request = due(one, Rpc.ADD_PARTITIONS)
    one.sent(request)
    one.lost(request)
    operation = one.abort()
    one.flushed()
    assert operation.is_over
    one.coordinators[HOME] = 2
    due(one, Rpc.INIT)


def test_the_same_where_nobody_gives_another_epoch() -> None:
    """Then it must be told."""
    one = begun(1, init_version=2)
    one.add(ORDERS)
    one.lost(due(one, Rpc.ADD_PARTITIONS))
    one.abort()
    one.flushed()
    one.coordinators[HOME] = 2
    one.done(due(one, Rpc.ABORT))
    assert one.state is State.READY


def test_version_2_has_its_epoch_already() -> None:
    """KIP-890: the client asks for no other epoch after a lost request, since the answer to the commit has it."""
    one = committing(2)
    one.lost(due(one, Rpc.COMMIT))
    one.coordinators[HOME] = 2
    one.done(due(one, Rpc.COMMIT), ProducerIdAndEpoch(7, 1))
    assert (one.state, one.identity, one.due()) == (State.READY, ProducerIdAndEpoch(7, 1), None)


@pytest.mark.parametrize("start", [committing, aborting])
@pytest.mark.parametrize("identity", [NO_IDENTITY, FIRST, FIRST._replace(epoch=FIRST.epoch - 1)])
def test_an_end_of_version_2_without_a_newer_epoch(
    start: Callable[[], Transaction], identity: ProducerIdAndEpoch
) -> None:
    """Under the old epoch, records of the next transaction could become part of the one before (KIP-890): a new one is asked for."""
    one = start()
    request = one.due()
    assert request is not None
    one.done(request, identity)
    assert (one.identity, due(one, Rpc.INIT).rpc) == (FIRST, Rpc.INIT)
    one.granted(ProducerIdAndEpoch(7, 1), 5)
    assert one.state is State.READY


def test_a_plain_end_of_version_1_keeps_the_epoch() -> None:
    one = committing(1)
    one.done(due(one, Rpc.COMMIT))
    assert (one.state, one.identity, one.due()) == (State.READY, FIRST, None)


def test_nobody_to_ask_for_the_version() -> None:
    """No connection stands at the end: it stays what it was."""
    for version in (1, 2):
        one = written(version)
        one.level.level = None  # type: ignore[attr-defined]
        one.commit()
        one.flushed()
        one.done(due(one, Rpc.COMMIT), ProducerIdAndEpoch(7, 1) if version == 2 else NO_IDENTITY)
        assert (one.version, one.state) == (version, State.READY)


@pytest.mark.parametrize(("now", "kind"), [(60.0, "ProducerFenced"), (60.1, "TransactionExpired")])
@pytest.mark.parametrize("rpc", [Rpc.COMMIT, Rpc.ABORT, Rpc.PRODUCE])
def test_a_transaction_that_took_too_long(now: float, kind: str, rpc: Rpc) -> None:
    """Row 67: by how long it was open."""
    one = DUE.get(rpc, lambda: written(1))()
    if rpc is Rpc.PRODUCE:
        one.fail(broker_error("INVALID_PRODUCER_EPOCH"), "orders-0", now)
    else:
        one.refused(due(one, rpc), {"": broker_error("PRODUCER_FENCED")}, now)
    assert type(one.error).__name__ == kind


def test_who_is_idle_did_not_take_too_long() -> None:
    """However long ago the last one began."""
    one = made()
    one.fail(broker_error("PRODUCER_FENCED"), "orders-0", 1e6)
    assert not isinstance(one.error, TransactionExpired)
