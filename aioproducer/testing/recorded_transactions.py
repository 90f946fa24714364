"""The transactions of a `RecordingProducer`: states, and the records and offsets of the open transaction.

As in Java's `MockProducer`, `history` has committed records and `uncommitted` those of the open transaction; an abort drops them. Calls
in a wrong state raise the errors of `Producer`. `fence` and `raise_on` simulate failures.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final

from aioproducer.errors import (
    DeliveryError,
    KafkaError,
    Persisted,
    ProducerFenced,
    RecordTooLarge,
    SendTimeout,
    TransactionAbortable,
    TransactionAborted,
    TransactionError,
    TransactionMisuse,
    UsageError,
)
from aioproducer.model import ConsumerGroupMetadata, OffsetAndMetadata, Position, PreparedTransaction
from aioproducer.offsets import POSITION_PARTITION, read_group, read_offsets, read_position, read_position_key, read_transactional_id
from aioproducer.testing.recorded import RecordedDelivery, RecordedSend
from aioproducer.transaction_runs import RunsTransactions

__all__ = ["TRANSACTION_METHODS", "RecordedScope", "RecordedTransactions"]

TRANSACTION_METHODS: Final = (
    "init_transactions",
    "begin_transaction",
    "prepare_transaction",
    "commit_transaction",
    "abort_transaction",
    "send_offsets_to_transaction",
    "send_position_to_transaction",
    "committed_position",
)
_READY: Final = "has no transaction open: call begin_transaction()"
_OPEN: Final = "has a transaction open"
_PREPARED: Final = (
    "has a prepared transaction: call commit_transaction() or abort_transaction(), or stop it, which leaves the transaction open"
)
_FAILED: Final = "has a transaction that can only be aborted: call abort_transaction()"
_MISSING: Final = (RecordTooLarge, SendTimeout)


class RecordedTransactions(RunsTransactions):
    """The transaction methods and state of a recording producer.

    Attributes:
        history: records that were committed, or sent without transactions.
        uncommitted: records of the open transaction.
        offsets: committed groups and offsets of `send_offsets_to_transaction`, in the order of the calls.
        uncommitted_offsets: groups and offsets of the open transaction.
        commits, aborts: numbers of transactions that ended so.
    """

    config: Any  # a ProducerConfig
    history: list[RecordedSend]
    flush: Callable[[], Awaitable[object]]

    def __init__(self) -> None:
        self.uncommitted: list[RecordedSend] = []
        self.offsets: list[tuple[ConsumerGroupMetadata, dict[tuple[str, int], OffsetAndMetadata]]] = []
        self.uncommitted_offsets: list[tuple[ConsumerGroupMetadata, dict[tuple[str, int], OffsetAndMetadata]]] = []
        self.commits: int = 0
        self.aborts: int = 0
        self._transaction = _READY
        self._transactional_id = ""
        self._transaction_error: TransactionError | None = None

    # --- called by the test

    @property
    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return self._transaction != _READY

    @property
    def is_prepared(self) -> bool:
        """Return whether the open transaction is prepared to be ended by a `TransactionResolver`."""
        return self._transaction == _PREPARED

    def fence(self) -> None:
        """Let a newer producer take the transactional_id.

        Later transactional calls raise ProducerFenced, and the open transaction is dropped.
        """
        self._transaction_error = ProducerFenced("another producer has this transactional_id")
        self._drop()

    # --- the interface of `Producer`

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Return a scope for `async with`: the end of the body commits, an error in the body aborts."""
        self._check_transactional()
        return RecordedScope(self)

    async def init_transactions(self, transactional_id: str) -> None:
        """Take a transactional id. The records of a prepared transaction are in `uncommitted` no more.

        Raises:
            UsageError: it is no transactional id.
            TransactionMisuse: a transaction is open that is not prepared.
        """
        self._raise("init_transactions")
        self._check_transactional()
        name = read_transactional_id(transactional_id)
        self._refuse("init_transactions()", (_READY, _PREPARED))
        self._transactional_id = name
        self._close()

    async def begin_transaction(self) -> None:
        """Open a transaction.

        Raises:
            TransactionMisuse: a transaction is open.
        """
        self._enter("begin_transaction", _READY)
        self._transaction = _OPEN

    async def prepare_transaction(self) -> PreparedTransaction:
        """Acknowledge all pending records, and leave the transaction open, also after `stop`: `uncommitted` has its records.

        Raises:
            TransactionMisuse: no transaction is open, or it is empty.
            TransactionAbortable: a record of the transaction failed.
        """
        self._enter("prepare_transaction", _OPEN, _PREPARED)
        await self.flush()
        self._refuse("prepare_transaction()", (_OPEN, _PREPARED))
        if not (self.uncommitted or self.uncommitted_offsets):
            raise TransactionMisuse("prepare_transaction() has no place here: no record or offset was sent in this transaction")
        self._transaction = _PREPARED
        return PreparedTransaction(self._transactional_id or self.config.transactional_id, 0, self.commits + self.aborts, 2)

    async def commit_transaction(self) -> None:
        """Acknowledge all pending records, then move the transaction's records to `history`.

        Raises:
            TransactionAbortable: a record of the transaction failed.
        """
        self._enter("commit_transaction", _OPEN, _PREPARED)
        await self.flush()
        self._refuse("commit_transaction()", (_OPEN, _PREPARED))
        self.history += self.uncommitted
        self.offsets += self.uncommitted_offsets
        self.commits += 1
        self._close()

    async def abort_transaction(self) -> None:
        """Drop the transaction's records; those that are pending fail."""
        self._enter("abort_transaction", _OPEN, _PREPARED, _FAILED)
        self._transaction_error = None
        self._drop()
        self.aborts += 1

    async def send_offsets_to_transaction(self, offsets: Any, group: Any) -> None:
        """Add offsets to the transaction; the commit moves them to `offsets`.

        Raises:
            UsageError: an argument is no valid offsets or group.
        """
        self._raise("send_offsets_to_transaction")
        self._check_transactional()
        read = read_group(group), read_offsets(offsets)
        self._refuse("send_offsets_to_transaction()", (_OPEN,))
        if read[1]:
            self.uncommitted_offsets.append(read)

    async def send_position_to_transaction(self, job: Any, number: Any, cursor: Any = "", *, topic: Any) -> None:
        """Add the position of a job to the transaction; the commit moves it to `offsets`, of the group that the job names.

        Raises:
            UsageError: an argument is not valid.
        """
        self._raise("send_position_to_transaction")
        self._check_transactional()
        read = read_position_key(job, topic), {(topic, POSITION_PARTITION): read_position(number, cursor)}
        self._refuse("send_position_to_transaction()", (_OPEN,))
        self.uncommitted_offsets.append(read)

    async def committed_position(self, job: Any, *, topic: Any) -> Position | None:
        """Return the position of a job that was committed last; None: there is none.

        Raises:
            UsageError: an argument is not valid.
            TransactionMisuse: a transaction is open.
        """
        self._raise("committed_position")
        self._check_transactional()
        group = read_position_key(job, topic)
        self._refuse("committed_position()", (_READY,))
        found = [
            offsets[topic, POSITION_PARTITION]
            for other, offsets in self.offsets
            if other == group and (topic, POSITION_PARTITION) in offsets
        ]
        return Position(*found[-1][:2]) if found else None

    # --- implemented by the producer

    @abstractmethod
    def _raise(self, method: str) -> None:
        """Raise the error that the test set for this method, if there is one."""

    @abstractmethod
    def _check(self) -> None:
        """Check that the producer runs in this loop.

        Raises:
            ProducerClosed: it does not.
        """

    @abstractmethod
    def _take_pending(self) -> list[RecordedDelivery]:
        """Return the records that have not ended, and remove them from the pending ones."""

    # --- implementation

    def _check_transactional(self) -> None:
        self._check()
        if self.config.transactional_id is None:
            raise UsageError("transactions need a name that outlives this producer: give it transactional_id")

    def _enter(self, method: str, *states: str) -> None:
        self._raise(method)
        self._check_transactional()
        self._refuse(f"{method}()", states)

    def _refuse(self, call: str, states: tuple[str, ...]) -> None:
        error = self._transaction_error
        if error is not None and (isinstance(error, ProducerFenced) or (self._transaction not in states and _OPEN in states)):
            raise error.again()
        if self._transaction not in states:
            raise TransactionMisuse(f"{call} has no place here: the producer {self._transaction}")

    def _check_send(self) -> None:
        if self.config.transactional_id is not None:
            self._refuse("send()", (_OPEN,))

    def _on_refused(self, topic: Any, error: KafkaError) -> None:
        """Fail the open transaction if a refused record is missing in it."""
        if isinstance(error, _MISSING):
            self._spoil(error, repr(topic))

    def _on_failed(self, error: DeliveryError) -> None:
        self._spoil(error.__cause__ or error, f"{error.topic}-{error.partition}")

    def _spoil(self, cause: BaseException, where: str) -> None:
        if self._transaction == _OPEN:
            self._transaction = _FAILED
            self._transaction_error = TransactionAbortable(f"a record of the transaction was not sent for {where}: {cause}")
            self._transaction_error.__cause__ = cause

    def _drop(self) -> None:
        aborted = TransactionAborted("the transaction was aborted")
        self._close()
        for delivery in self._take_pending():
            failure = DeliveryError(str(aborted), delivery.sent.topic, delivery.sent.partition, Persisted.NO, 0)
            failure.__cause__ = aborted
            delivery.settle(failure)

    def _close(self) -> None:
        self._transaction = _READY
        self.uncommitted = []
        self.uncommitted_offsets = []


class RecordedScope:
    """One transaction, for `async with`."""

    def __init__(self, producer: RecordedTransactions) -> None:
        self._producer = producer
        self._ended = 0

    async def __aenter__(self) -> None:
        await self._producer.begin_transaction()
        self._ended = self._count()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._count() != self._ended or not self._producer.in_transaction:
            if error is None and self._count() == self._ended:
                # raises the reason why no transaction is open
                await self._producer.commit_transaction()
            return
        if error is not None:
            await self._producer.abort_transaction()
            return
        try:
            await self._producer.commit_transaction()
        except BaseException:
            if self._producer.in_transaction:
                await self._producer.abort_transaction()
            raise

    def _count(self) -> int:
        return self._producer.commits + self._producer.aborts
