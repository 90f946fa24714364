"""The transactions of a fake cluster: holders, epochs, touched partitions, time-outs and markers.

They follow Kafka 4.3's TransactionCoordinator and TransactionMetadata, in both versions of the protocol:

1. InitProducerId fences: it adds 1 to the epoch. By KIP-360, a producer that names an epoch gets this only for the last epoch.
   An open transaction is aborted first; the coordinator answers CONCURRENT_TRANSACTIONS meanwhile.
2. Epoch 32766 is the last one of a producer id. The next step takes a new producer id with epoch 0.
3. In version 1 an end keeps the epoch. In version 2 (KIP-890, EndTxn from 5 on) an end raises the epoch.
   The raised epoch identifies an EndTxn that the producer sends again.
4. A transaction that is older than its time-out is aborted and fenced. Deviation: at once, where Kafka checks every 10 s.
5. Markers are written `marker_delay` after an end was answered, all together. Deviation: also to a partition without a leader.

All brokers share one state, whichever broker coordinates. The running loop's clock times everything here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aioproducer.errors import broker_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.testing.groups import Groups
    from aioproducer.testing.topics import Topics

__all__ = ["Holder", "ProducerIds", "State", "Touched", "Transaction", "Transactions"]

_NONE: Final = -1
_LAST_EPOCH: Final = 32_766  # Kafka's TransactionMetadata.isEpochExhausted; 32767 fences the holder
_FENCED_EPOCH: Final = 32_767
Touched: TypeAlias = tuple[bytes, int] | str
"""Names one target of a transaction: a partition by topic id and index, or a group's offsets by group id."""


class State(Enum):
    """The states of a transaction, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_NOT_ENDED: Final = frozenset({State.EMPTY, State.ONGOING})
_PREPARING: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
_COMMITTING: Final = frozenset({State.PREPARE_COMMIT, State.COMPLETE_COMMIT})
_COMPLETE: Final = {
    State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
    State.PREPARE_ABORT: State.COMPLETE_ABORT,
}


class Holder(NamedTuple):
    """Holds a producer id and one of its epochs."""

    producer_id: int
    epoch: int


class ProducerIds:
    """Gives out each producer id once. A test may set `next`, for instance to an id near the last one."""

    def __init__(self) -> None:
        self.next: int = 0

    def take(self) -> int:
        """Return the next producer id."""
        taken, self.next = self.next, self.next + 1
        return taken


@dataclass(slots=True, eq=False)
class Transaction:
    """Holds the coordinator's state of one transactional id. A test may set the fields, such as an `epoch` near the last one.

    Attributes:
        previous_id: the producer id before the last step.
        next_id: the producer id after completion, if this one's epochs are used up; -1: the same id.
        last_epoch: the epoch that a repeated InitProducerId or EndTxn may name.
        touched: the partitions and groups that get a marker at the end, in this order.
        raises_epoch: whether the end raises the epoch (version 2).
        started_ms: when the latest transaction began; -1: none has since the last InitProducerId.
    """

    producer_id: int
    epoch: int = _NONE
    timeout: float = 0.0
    state: State = State.EMPTY
    previous_id: int = _NONE
    next_id: int = _NONE
    last_epoch: int = _NONE
    touched: dict[Touched, None] = field(default_factory=dict)
    raises_epoch: bool = False
    started_ms: int = _NONE
    timer: asyncio.TimerHandle | None = None

    @property
    def holder(self) -> Holder:
        """Return the producer id and epoch that may write."""
        return Holder(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        """Return whether the producer id's epochs are used up."""
        return self.epoch >= _LAST_EPOCH

    def hush(self) -> None:
        """Cancel the transaction's timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    # --- steps

    def rotate(self, producer_id: int, *, was_named: bool) -> None:
        """Take another producer id, with epoch 0."""
        self.last_epoch = self.epoch if was_named else _NONE
        self.previous_id, self.producer_id, self.epoch = self.producer_id, producer_id, 0

    def bump(self, named: Holder | None) -> None:
        """Raise the epoch by 1. For a producer that names the epoch before the current one, keep the current one.

        Raises:
            BrokerError: PRODUCER_FENCED; UNKNOWN_SERVER_ERROR if there is no next epoch, which Kafka answers by mistake.
        """
        if self.is_exhausted:
            raise broker_error("UNKNOWN_SERVER_ERROR", "Cannot allocate any more producer epochs")
        if named is not None and self.epoch not in {_NONE, named.epoch}:
            if named.epoch == self.last_epoch:
                return
            raise broker_error(
                "PRODUCER_FENCED",
                f"epoch {named.epoch} is neither the current one nor the one before",
            )
        self.last_epoch = _NONE if named is None else self.epoch
        self.previous_id, self.epoch = self.producer_id, self.epoch + 1

    def prepare(self, *, is_commit: bool, raises_epoch: bool, next_id: int) -> None:
        """Move to PREPARE_COMMIT or PREPARE_ABORT."""
        self.hush()
        self.state = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
        self.previous_id = self.producer_id
        self.raises_epoch, self.next_id = raises_epoch, next_id
        if raises_epoch:
            self.last_epoch, self.epoch = self.epoch, min(self.epoch + 1, _FENCED_EPOCH)

    def complete(self) -> None:
        """Move to the complete state; the markers are written."""
        self.state = _COMPLETE[self.state]
        self.touched.clear()
        if self.next_id != _NONE:
            self.producer_id, self.epoch, self.next_id = self.next_id, 0, _NONE


class Transactions:
    """Holds all transactional ids of a cluster. Methods raise BrokerError with the error that a coordinator answers.

    Args:
        topics: the topics that get the markers.
        groups: the groups that get the committed offsets.
        now_ms: the brokers' clock.

    Attributes:
        ids: the producer ids.
        version: the finalized level of `transaction.version`.
        marker_delay: seconds between an end and its markers; with 0, the markers are written before the answer.
        max_timeout_ms: Kafka's `transaction.max.timeout.ms`.
    """

    def __init__(self, topics: Topics, groups: Groups, now_ms: Callable[[], int]) -> None:
        self.ids: ProducerIds = ProducerIds()
        self.version = 2
        self.marker_delay: float = 0.0
        self.max_timeout_ms = 900_000
        self._topics = topics
        self._groups = groups
        self._now_ms = now_ms
        self._known: dict[str, Transaction] = {}

    def __getitem__(self, transactional_id: str) -> Transaction:
        return self._known[transactional_id]

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._known

    def items(self) -> Iterable[tuple[str, Transaction]]:
        """Return each transactional id with its transaction."""
        return self._known.items()

    def close(self) -> None:
        """Cancel all timers."""
        for transaction in self._known.values():
            transaction.hush()

    # --- requests of producers

    def begin(self, transactional_id: str, timeout_ms: int, named: Holder | None) -> Holder:
        """Handle InitProducerId. Returns the producer id and epoch that write from now on.

        Args:
            transactional_id: the producer's transactional id.
            timeout_ms: the age at which a transaction is aborted.
            named: the producer id and epoch that the producer believes it has (KIP-360).

        Raises:
            BrokerError: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        _check_name(transactional_id)
        if not 0 < timeout_ms <= self.max_timeout_ms:
            raise broker_error(
                "INVALID_TRANSACTION_TIMEOUT",
                f"a transaction's time-out is up to {self.max_timeout_ms} ms",
            )
        transaction = self._known.get(transactional_id)
        if transaction is None:
            transaction = self._known[transactional_id] = Transaction(self.ids.take())
        if named is not None and not _may_be(transaction, named):
            raise broker_error(
                "PRODUCER_FENCED", f"producer id {named.producer_id} has been replaced"
            )
        if transaction.state in _PREPARING:
            raise broker_error("CONCURRENT_TRANSACTIONS")
        if transaction.state is State.ONGOING:
            self._fence(transaction)
            raise broker_error("CONCURRENT_TRANSACTIONS")
        if transaction.is_exhausted and (named is None or named.epoch == transaction.epoch):
            transaction.rotate(self.ids.take(), was_named=named is not None)
        else:
            transaction.bump(named)
        transaction.state, transaction.timeout, transaction.started_ms = (
            State.EMPTY,
            timeout_ms / 1000,
            _NONE,
        )
        return transaction.holder

    def add(
        self,
        transactional_id: str,
        holder: Holder,
        touched: Iterable[Touched],
        *,
        raises_epoch: bool = False,
    ) -> None:
        """Add partitions or groups to a transaction. The first one begins the transaction.

        Raises:
            BrokerError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        transaction = self._of(transactional_id, holder)
        added = dict.fromkeys(touched)
        if transaction.state is not State.ONGOING:
            transaction.state, transaction.previous_id = State.ONGOING, transaction.producer_id
            transaction.started_ms = self._now_ms()
            transaction.timer = self._later(transaction.timeout, lambda: self._fence(transaction))
        transaction.touched |= added
        transaction.raises_epoch = raises_epoch

    def verify(self, transactional_id: str, holder: Holder, touched: Touched) -> None:
        """Check that a transaction of version 1 contains a partition or group.

        Raises:
            BrokerError: as `add`; TRANSACTION_ABORTABLE, if the transaction does not contain it.
        """
        if touched not in self._of(transactional_id, holder).touched:
            raise broker_error(
                "TRANSACTION_ABORTABLE", "the partition was not added to the transaction"
            )

    def end(
        self, transactional_id: str, holder: Holder, *, is_commit: bool, raises_epoch: bool
    ) -> Holder:
        """Handle EndTxn. Returns the producer id and epoch of the next transaction.

        Raises:
            BrokerError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        transaction = self._existing(transactional_id)
        is_again = _is_again(transaction, holder, raises_epoch=raises_epoch)
        if transaction.state is State.ONGOING:
            self._end(transaction, is_commit=is_commit, raises_epoch=raises_epoch)
        elif (
            is_again
            and (transaction.state in _COMMITTING) is is_commit
            and transaction.state is not State.EMPTY
        ):
            if transaction.state in _PREPARING:
                raise broker_error("CONCURRENT_TRANSACTIONS")
        elif (
            raises_epoch and not is_again and not is_commit
        ):  # no record of this transaction reached a broker
            self._end(transaction, is_commit=False, raises_epoch=True)
        else:
            raise broker_error("INVALID_TXN_STATE", f"the transaction is {transaction.state.value}")
        # the transaction gets this producer id when the markers are written
        if transaction.next_id != _NONE:
            return Holder(transaction.next_id, 0)
        return transaction.holder

    # --- ends

    def _fence(self, transaction: Transaction) -> None:
        """Abort a transaction and fence its producer."""
        raises_epoch = self.version > 1
        if not raises_epoch:
            transaction.epoch, transaction.last_epoch = (
                min(transaction.epoch + 1, _FENCED_EPOCH),
                _NONE,
            )
        self._end(transaction, is_commit=False, raises_epoch=raises_epoch)

    def _end(self, transaction: Transaction, *, is_commit: bool, raises_epoch: bool) -> None:
        next_id = self.ids.take() if raises_epoch and transaction.is_exhausted else _NONE
        transaction.prepare(is_commit=is_commit, raises_epoch=raises_epoch, next_id=next_id)
        if self.marker_delay > 0:
            transaction.timer = self._later(self.marker_delay, lambda: self._complete(transaction))
        else:
            self._complete(transaction)

    def _complete(self, transaction: Transaction) -> None:
        """Write a transaction's markers."""
        transaction.hush()
        is_abort = transaction.state is State.PREPARE_ABORT
        for touched in transaction.touched:
            self._mark(touched, transaction.holder, is_abort=is_abort)
        transaction.complete()

    def _mark(self, touched: Touched, holder: Holder, *, is_abort: bool) -> None:
        if isinstance(touched, str):
            self._groups[touched].end_transaction(holder.producer_id, is_abort=is_abort)
            return
        topic = self._topics.identified(touched[0])
        partition = None if topic is None else topic.partition(touched[1])
        # a deleted topic gets no marker
        if partition is not None:
            partition.log.end_transaction(
                *holder,
                is_abort=is_abort,
                coordinator_epoch=0,
                leader_epoch=partition.leader_epoch,
                now_ms=self._now_ms(),
            )

    # --- checks of the producer that asks

    def _existing(self, transactional_id: str) -> Transaction:
        _check_name(transactional_id)
        if transactional_id not in self._known:
            raise broker_error(
                "INVALID_PRODUCER_ID_MAPPING", "no producer has this transactional id"
            )
        return self._known[transactional_id]

    def _of(self, transactional_id: str, holder: Holder) -> Transaction:
        transaction = self._existing(transactional_id)
        _check_holder(transaction, holder)
        if transaction.state in _PREPARING:
            raise broker_error("CONCURRENT_TRANSACTIONS")
        return transaction

    @staticmethod
    def _later(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, then)


def _may_be(transaction: Transaction, named: Holder) -> bool:
    """Return whether a producer may have the producer id that it names. Its epoch is checked later."""
    is_previous = named.producer_id == transaction.previous_id and named.epoch >= _LAST_EPOCH
    return transaction.epoch == _NONE or named.producer_id == transaction.producer_id or is_previous


def _is_again(transaction: Transaction, holder: Holder, *, raises_epoch: bool) -> bool:
    """Return whether an end repeats an earlier one.

    In version 1 no field shows that; every end counts as repeated, and the caller compares the state.

    Raises:
        BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    if raises_epoch:
        return _names_epoch_before(transaction, holder)
    _check_holder(transaction, holder)
    return True


def _names_epoch_before(transaction: Transaction, holder: Holder) -> bool:
    """Return True if an end of version 2 names the epoch that it raised, False if it names the current epoch.

    Raises:
        BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    has_rotated = (
        transaction.previous_id == holder.producer_id
        and holder.epoch == _LAST_EPOCH
        and transaction.epoch == 0
    )
    if not has_rotated:
        _check_id(transaction, holder)
    is_same = holder.epoch == transaction.epoch
    is_before = has_rotated or holder.epoch == transaction.epoch - 1
    if not (is_same or is_before) or transaction.state in (_PREPARING if is_same else _NOT_ENDED):
        raise _fenced(transaction, holder)
    return is_before


def _check_name(transactional_id: str) -> None:
    if not transactional_id:
        raise broker_error("INVALID_REQUEST", "the transactional id is empty")


def _check_holder(transaction: Transaction, holder: Holder) -> None:
    _check_id(transaction, holder)
    if transaction.epoch != holder.epoch:
        raise _fenced(transaction, holder)


def _check_id(transaction: Transaction, holder: Holder) -> None:
    if transaction.producer_id != holder.producer_id:
        raise broker_error(
            "INVALID_PRODUCER_ID_MAPPING",
            f"producer id {holder.producer_id} is not that of the transactional id",
        )


def _fenced(transaction: Transaction, holder: Holder) -> Exception:
    return broker_error(
        "PRODUCER_FENCED",
        f"epoch {holder.epoch} of producer {holder.producer_id} is not {transaction.epoch}",
    )
