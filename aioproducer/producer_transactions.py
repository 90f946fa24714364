"""Holds the calls of transactions, as the base of `Producer`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from aioproducer.config import ProducerConfig
from aioproducer.model import ConsumerGroupMetadata, OffsetAndMetadata, Position, PreparedTransaction
from aioproducer.offsets import POSITION_PARTITION, read_group, read_offsets, read_position, read_position_key, read_transactional_id
from aioproducer.transaction_runs import RunsTransactions

if TYPE_CHECKING:
    from aioproducer.engine.runtime import Runtime

__all__ = ["TransactionCalls"]

P = TypeVar("P", bound="tuple[str, int]")


class TransactionCalls(RunsTransactions):
    """Has the calls of transactions.

    Each call waits at most `max_block_ms`. Then it raises TransactionTimeout, which names the cause of the wait, and the operation goes on.
    """

    config: ProducerConfig

    @abstractmethod
    def _running_engine(self) -> Runtime:
        """Return the running engine, or raise ProducerClosed."""

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager: all records that the body of `async with producer.transaction():` sends become visible, or none.

        The end of the body commits the transaction. An exception or a cancellation that leaves the body aborts it, and then propagates
        unchanged. The exit waits for the abort, at most `max_block_ms`, and no longer than until a second cancellation. A commit that
        fails is aborted too.

        Raises:
            UsageError: the producer has no `transactional_id`. All other errors are those of `begin_transaction` and
                `commit_transaction`.
        """
        # Most producers have no transactions.
        from aioproducer.engine.transactions.context import TransactionScope

        return TransactionScope(lambda: self._running_engine().transaction_manager, self.config.max_block_ms / 1000)

    async def init_transactions(self, transactional_id: str) -> None:
        """Take a transactional id, as a new producer with it does; connections and metadata stay.

        The coordinator aborts the open transaction of the id, and fences older producers that have it. A prepared transaction of this
        producer stays open, for a `TransactionResolver`: so one producer can prepare the transactions of several ids, one after the other.
        `config` and the client id keep the first id.

        Args:
            transactional_id: the id, which may be the present one.

        Raises:
            UsageError: the producer was made without a `transactional_id`, or this is none.
            TransactionMisuse: a transaction is open that is not prepared.
            TransactionTimeout: the coordinator did not answer in time. `begin_transaction` waits for it again.
            TransactionError: the cluster assigns no producer id.
        Cancellation: the request goes on.
        """
        manager = self._running_engine().transaction_manager
        await manager.start(transactional_id=read_transactional_id(transactional_id))

    async def begin_transaction(self) -> None:
        """Begin a transaction: every later send belongs to it. Waits while the producer has no producer id.

        Raises:
            TransactionMisuse: a transaction is open.
            TransactionTimeout: the producer had no producer id in time.
            TransactionError: the cluster assigns no producer id, or the producer was fenced; `hint` says what to do.
        Cancellation: no transaction is open.
        """
        await self._running_engine().transaction_manager.begin()

    async def commit_transaction(self) -> None:
        """Send the queued records, wait for them, then commit. The transaction's records and offsets are visible once it returns.

        Raises:
            TransactionMisuse: no transaction is open.
            TransactionAbortable: a record or an offset of the transaction failed; nothing is committed. Call `abort_transaction`.
            TransactionFatal: the producer was fenced, or had a similar error; nothing is committed.
            TransactionTimeout: it is not known yet whether the transaction was committed. Call `commit_transaction` again. The
                transaction can no longer be aborted once the coordinator may have received the commit request.
        Cancellation: the commit goes on. `abort_transaction` aborts instead as long as the commit request was not sent.
        """
        await self._running_engine().transaction_manager.commit()

    async def prepare_transaction(self) -> PreparedTransaction:
        """Send the queued records, wait for them, and leave the transaction open, for a `TransactionResolver` to commit or abort.

        Several producers can thus write one result, and one process decides on it: it commits their transactions once it has recorded
        that it will. After this call the producer takes no records: it only commits or aborts the transaction itself, or is stopped.
        `stop` leaves the transaction open. Its time-out, `transaction_timeout_ms`, counts on, and the next producer with this
        transactional id aborts it.

        Returns:
            The name of the transaction, for a `TransactionResolver` in any process. Called again, the same.

        Raises:
            TransactionMisuse: no transaction is open, or no record or offset was sent in it; the transaction is still open then.
            TransactionAbortable: a record or an offset of the transaction failed. Call `abort_transaction`.
            TransactionFatal: the producer was fenced, or had a similar error.
            TransactionTimeout: the records have not ended within `max_block_ms`. Call `prepare_transaction` again.
        Cancellation: the transaction is not prepared yet: call this again, or `abort_transaction`; `stop` aborts it.
        """
        return await self._running_engine().transaction_manager.prepare()

    async def abort_transaction(self) -> None:
        """Drop the records that were not sent, wait for the batches in flight, then abort. Readers of committed records see none of it.

        Raises:
            TransactionMisuse: no transaction is open, or its commit request is in flight to the coordinator.
            TransactionFatal: the producer was fenced, or had a similar error: the transaction is aborted then too.
            TransactionTimeout: the coordinator did not answer in time. Call `abort_transaction` again.
        Cancellation: the abort goes on.
        """
        await self._running_engine().transaction_manager.abort()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[P, int | OffsetAndMetadata | tuple[int, str]], group: str | ConsumerGroupMetadata
    ) -> None:
        """Add a consumer's offsets to the transaction: they are committed with it, or not at all (KIP-447).

        Args:
            offsets: offsets of the next record to read, by (topic, partition); aiokafka's named tuples are accepted.
            group: the consumer group. With the member's generation and id, the group refuses offsets of a member that is no longer part
                of it. A group id alone identifies no member.

        Raises:
            UsageError: `offsets` are no offsets, or `group` is no group.
            TransactionMisuse: no transaction is open.
            CommitFailed: the member is no longer part of the group.
            TransactionError, TransactionTimeout: as `commit_transaction`.
        Cancellation: the request goes on.
        """
        transaction_manager = self._running_engine().transaction_manager
        await transaction_manager.send_offsets(read_group(group), read_offsets(offsets))

    async def send_position_to_transaction(self, job: str, number: int, cursor: str = "", *, topic: str) -> None:
        """Add the position of a job in its source to the transaction: it is committed with the records, or not at all.

        After a crash the job reads its position by `committed_position`, and continues behind it: each of its records is in Kafka once,
        for readers of committed records. Kafka keeps the position as the offset of a consumer group, whose id is the name of the job,
        and forgets it when the job has not sent one for `offsets.retention.minutes` of the brokers (7 days).

        Args:
            job: names the job. Two jobs that run at the same time need different names and transactional ids.
            number: how far the job has read its source, from 0 on; what it counts is the job's own business.
            cursor: a text beside it, such as a file name or a page token; brokers take 4,096 bytes (`offset.metadata.max.bytes`).
            topic: a topic that exists, always the same one: Kafka keeps the position with its partition 0. The producer needs the
                permission READ on it, and READ on the group.

        Raises:
            UsageError: an argument is not valid.
            TransactionMisuse: no transaction is open.
            TransactionError, TransactionTimeout: as `commit_transaction`.
        Cancellation: the request goes on.
        """
        transaction_manager = self._running_engine().transaction_manager
        group = read_position_key(job, topic)
        position = {(topic, POSITION_PARTITION): read_position(number, cursor)}
        await transaction_manager.send_offsets(group, position, "send_position_to_transaction()")

    async def committed_position(self, job: str, *, topic: str) -> Position | None:
        """Return the position that the latest committed transaction of a job sent; None: there is none.

        The producer has fenced older producers with its transactional id, and aborted what they left open. So the position is final.
        The producer needs the permission DESCRIBE on the group and on the topic.

        Args:
            job: as `send_position_to_transaction` was given it.
            topic: the same topic, too.

        Raises:
            UsageError: an argument is not valid.
            TransactionMisuse: a transaction is open. Read the position before it, or after its end.
            MetadataTimeout: the topic does not exist.
            BrokerError: the broker refuses the request, or is older than Kafka 2.5.
            TransactionTimeout: no coordinator answered within `max_block_ms`, or another producer's transaction holds the position.
        Cancellation: nothing goes on.
        """
        # Most producers have no transactions.
        from aioproducer.engine.transactions.committed_offsets import committed_offset

        engine = self._running_engine()
        transaction_manager = engine.transaction_manager
        group = read_position_key(job, topic)
        await transaction_manager.idle("committed_position()")
        await engine.parts.accumulator.partitions(topic)
        assert engine.parts.coordinator_calls is not None
        return await committed_offset(engine.parts.coordinator_calls, group.group_id, topic, "committed_position()")
