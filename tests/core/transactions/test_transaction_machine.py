"""Runs `core.transactions.transaction` against a coordinator that loses, delays and refuses requests.

In any order of calls, the client reports no outcome that the coordinator did not give. The coordinator models a few rules of Kafka's: a
transaction is open under one epoch, and a request of another epoch is fenced. A request that was lost may arrive at any later time, as
long as its epoch holds (Jepsen's find). Epochs exist for that reason.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aioproducer.core.sequence_numbers import NO_IDENTITY, ProducerIdAndEpoch
from aioproducer.core.transactions.transaction import Operation, Request, State, Transaction
from aioproducer.core.transactions.transaction_errors import Rpc
from aioproducer.errors import (
    ConnectionLost,
    KafkaError,
    TransactionError,
    TransactionMisuse,
    broker_error,
)
from aioproducer.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

VERDICTS = {Rpc.COMMIT: "committed", Rpc.ABORT: "aborted"}
NOBODYS = -1  # a transaction that a straggler opened
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
ANSWERS = st.sampled_from(
    ["ok"] * 10
    + ["lost before"] * 2
    + ["lost after"]
    + ["again", "moved", "abortable"]
    + ["straggler"] * 3
)
OFFSETS: dict[tuple[str, int], OffsetAndMetadata] = {TopicPartition("in", 0): OffsetAndMetadata(5)}


class Straggler(NamedTuple):
    """A request that may arrive yet."""

    request: Request
    identity: ProducerIdAndEpoch
    version: int
    number: int


class Coordinator:
    """Stands for the cluster's transaction coordinator."""

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.open: int | None = (
            None  # the number of the client's transaction that has its data here
        )
        self.ends: dict[int, str] = {}
        self.last = ""

    def carry_out(self, straggler: Straggler, number: int) -> ProducerIdAndEpoch:
        """Carry out a request that arrives. `number`: the client's transaction at that moment. The request applies to its data."""
        rpc = straggler.request.rpc
        if rpc is Rpc.INIT:
            self._end("aborted")
            self.identity = ProducerIdAndEpoch(7, self.identity.epoch + 1)
            return self.identity
        assert straggler.identity == self.identity
        if rpc in VERDICTS:
            if straggler.version == 1:
                self._end(VERDICTS[rpc])
            else:
                self.open = number if rpc is Rpc.ABORT and self.open is None else self.open
                self._end(VERDICTS[rpc])
                self.identity = ProducerIdAndEpoch(7, self.identity.epoch + 1)
                return self.identity
        else:
            self.open = number
        return NO_IDENTITY

    def _end(self, how: str) -> None:
        if self.open is not None:
            if self.open != NOBODYS:
                assert self.ends.setdefault(self.open, how) == how
            self.open = None


class Machine(RuleBasedStateMachine):
    """Calls of the application, answers of the coordinator, in any order."""

    @initialize(level=st.sampled_from([1, 2]))
    def begin_with(self, level: int) -> None:
        self.level = level
        self.one = Transaction("tx", 60_000, lambda: self.level)
        self.coordinator = Coordinator()
        self.stragglers: list[Straggler] = []
        self.calls: list[tuple[str, int, Operation]] = [("init", 0, self.one.initialize())]
        self.written: dict[int, set[TopicPartition]] = {}
        self.answered: tuple[Straggler, ProducerIdAndEpoch] | None = (
            None  # carried out, and the answer was lost: a retry is known again
        )

    def call(self, name: str) -> None:
        before = self.one.state
        try:
            operation: Operation = getattr(self.one, name)()
        except (TransactionMisuse, TransactionError):
            assert self.one.state is before
        else:
            self.calls.append((name, self.one.number, operation))

    @rule(name=st.sampled_from(["commit", "abort", "begin"]))
    def call_something(self, name: str) -> None:
        if name == "begin":
            self.begin()
        else:
            self.call(name)

    def begin(self) -> None:
        if self.one.state is State.UNINITIALIZED:
            self.calls.append(("init", 0, self.one.initialize()))
            return
        before = self.one.state
        try:
            self.one.begin(0.0)
        except KafkaError:
            assert self.one.state is before

    @precondition(lambda self: self.one.state is State.IN_TRANSACTION)
    @rule(partition=st.sampled_from(PARTITIONS))
    def write(self, partition: TopicPartition) -> None:
        """In version 2 the data itself opens the transaction."""
        must_wait = self.one.add(partition)
        assert must_wait is (self.one.version == 1 and partition not in self.one.partitions)
        self.written.setdefault(self.one.number, set()).add(partition)
        if self.one.version > 1:
            self.coordinator.open = self.one.number

    @precondition(lambda self: self.one.state is State.IN_TRANSACTION)
    @rule()
    def offsets(self) -> None:
        operation = self.one.add_offsets(ConsumerGroupMetadata("g"), OFFSETS)
        self.calls.append(("offsets", self.one.number, operation))

    @rule(numbered=st.booleans(), happens=st.integers(0, 5))
    def fail(self, numbered: bool, happens: int) -> None:
        if not happens:
            self.one.fail(ConnectionLost("gone"), "orders-0", 1.0, is_numbered=numbered)

    @rule(level=st.sampled_from([1, 2]), happens=st.integers(0, 5))
    def change_feature(self, level: int, happens: int) -> None:
        version = self.one.version
        self.level = self.level if happens else level
        assert self.one.version == version

    @rule(
        answers=st.lists(ANSWERS, min_size=1, max_size=40),
        verdict=st.sampled_from(["commit", "abort"]),
    )
    def go_on(self, answers: list[str], verdict: str) -> None:
        """Transactions, one step after another; `verdict`: of what is open."""
        for answer in answers:
            if answer == "straggler":
                self.arrive()
            elif self.one.due() is not None:
                self.answer(answer)
            elif self.one.state in (State.COMMITTING, State.ABORTING):
                self.one.flushed()
            elif self.one.state is not State.IN_TRANSACTION:
                self.begin()
            elif self.one.partitions:
                self.call(verdict)
            else:
                self.write(PARTITIONS[0])

    def answer(self, answer: str) -> None:
        request = self.one.due()
        assert request is not None
        if request.rpc is Rpc.FIND_COORDINATOR:
            self.one.coordinators[request.at] = 1
            return
        self.one.sent(request)
        sent = Straggler(request, self.one.identity, self.one.version, self.one.number)
        if answer == "lost before":
            if request.rpc is not Rpc.INIT:
                self.stragglers.append(sent)
            self.one.lost(request)
        elif answer == "lost after" and (
            request.rpc is Rpc.INIT or sent.identity == self.coordinator.identity
        ):
            self.answered = (sent, self._carry_out(sent))
            self.one.lost(request)
        elif answer in ("again", "moved"):
            self.one.refused(
                request,
                {
                    "": broker_error(
                        "NOT_COORDINATOR" if answer == "moved" else "CONCURRENT_TRANSACTIONS"
                    )
                },
                1.0,
            )
        elif answer == "abortable":
            self.one.refused(request, {"": broker_error("TRANSACTION_ABORTABLE")}, 1.0)
        elif (
            request.rpc is not Rpc.INIT
            and sent.identity != self.coordinator.identity
            and not self._is_known_again(sent)
        ):
            self.one.refused(request, {"": broker_error("PRODUCER_FENCED")}, 1.0)
        elif (
            self.coordinator.ends.get(self.one.number, VERDICTS.get(request.rpc))
            != VERDICTS.get(request.rpc)
            and request.rpc in VERDICTS
        ):
            self.one.refused(request, {"": broker_error("INVALID_TXN_STATE")}, 1.0)
        else:
            identity = self._carry_out(sent)
            if request.rpc is Rpc.INIT:
                self.one.granted(identity, 5)
            else:
                self.one.done(request, identity)

    def _is_known_again(self, sent: Straggler) -> bool:
        return self.answered is not None and self.answered[0] == sent

    def _carry_out(self, sent: Straggler) -> ProducerIdAndEpoch:
        if self.answered is not None and self._is_known_again(sent):
            return self.answered[1]
        self.answered = None
        return self.coordinator.carry_out(sent, self.one.number)

    @rule()
    def arrive(self) -> None:
        """An old request arrives. The coordinator carries it out if its epoch holds, on the transaction that is open by then."""
        straggler = self.stragglers.pop(0) if self.stragglers else None
        if straggler is not None and straggler.identity == self.coordinator.identity:
            is_current = (
                straggler.number == self.one.number
                and straggler.number not in self.coordinator.ends
            )
            identity = self.coordinator.carry_out(
                straggler, straggler.number if is_current else self.coordinator.open or NOBODYS
            )
            self.answered = (straggler, identity)
            self.ends_are_what_was_asked()
            self.nothing_is_committed_that_nobody_commits()

    @invariant()
    def ends_are_what_was_asked(self) -> None:
        """A commit that succeeded was carried out, and so was an abort. No other transaction has such an end."""
        if not hasattr(self, "one"):
            return
        for name, number, operation in self.calls:
            if (
                not operation.is_over
                or operation.error is not None
                or name not in ("commit", "abort")
            ):
                continue
            end = self.coordinator.ends.get(number)
            others = [
                other for called, of, other in self.calls if (called, of) == ("abort", number)
            ]
            if name == "commit" and number in self.written:
                assert end == "committed", (number, end)
            elif name == "abort" or others:
                assert end != "committed", (number, end)

    @invariant()
    def nothing_is_committed_that_nobody_commits(self) -> None:
        if not hasattr(self, "one"):
            return
        asked = {number for name, number, _ in self.calls if name == "commit"}
        assert {
            number for number, end in self.coordinator.ends.items() if end == "committed"
        } <= asked

    @invariant()
    def operations_end_with_their_transaction(self) -> None:
        """No operation is pending while no transaction is open."""
        if hasattr(self, "one") and self.one.state in (
            State.READY,
            State.FATAL_ERROR,
            State.UNINITIALIZED,
        ):
            assert all(operation.is_over for _, _, operation in self.calls)
            assert self.one.due() is None
            assert not self.one.pending

    @invariant()
    def one_verdict_at_a_time(self) -> None:
        """Once a commit may have arrived, nothing but the same commit is due, until it is answered."""
        if hasattr(self, "one") and self.one.is_told:
            request = self.one.due()
            assert request is None or request.rpc in (Rpc.COMMIT, Rpc.FIND_COORDINATOR)


Machine.TestCase.settings = settings(max_examples=200, stateful_step_count=10, deadline=None)
TestTransactionMachine = Machine.TestCase
