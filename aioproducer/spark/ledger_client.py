"""Reads and writes the ledger of a query, ends its transactions, and holds the lock of its drivers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioproducer.errors import (
    BrokerError,
    KafkaError,
    ProducerFenced,
    TransactionError,
    TransactionMisuse,
    TransactionTimeout,
    UsageError,
)
from aioproducer.producer import Producer
from aioproducer.transaction_resolver import TransactionResolver

from .decisions import AnotherDriver, is_entry_committed
from .ledger import (
    Decision,
    Entry,
    Mark,
    QueryName,
    TornDecision,
    decode_decision,
    decode_mark,
    decode_parts,
    encode_decision,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from aioproducer.config import ProducerConfig
    from aioproducer.model import PreparedTransaction

__all__ = ["ABORT_SECONDS", "IdleProducers", "Ledger", "LedgerClients", "stop_producer"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")
# The definite answers to EndTxn of a transaction that was ended before: by a commit, an abort, its time-out or a newer producer. Every other
# error, such as a permission that is missing, says nothing of the transaction.
_ENDED: Final = frozenset(
    {
        "INVALID_TXN_STATE",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
    }
)
# Reads of a decision while others write it.
_MAX_READS: Final = 5
# The driver's own transaction is open for some requests only; an interrupted one must not hold up the next driver.
_DRIVER_TIMEOUT_MS: Final = 60_000
# Seconds that an abort may take: it is only a courtesy to readers, because the next attempt and the time-out abort too.
ABORT_SECONDS: Final = 10.0


# Idle producers of one process, in which one task or driver runs at a time.
_MAX_IDLE: Final = 1


class IdleProducers:
    """Keeps producers whose task or driver has ended, for the next ones of the process: they have connections, coordinators and metadata.

    Args:
        max_idle: the largest number of them.
    """

    def __init__(self, max_idle: int = _MAX_IDLE) -> None:
        self._max_idle = max_idle
        self._idle: list[Producer] = []

    def take(self, timeout_ms: float) -> Producer | None:
        """Return a producer whose transactions time out after `timeout_ms`, which is kept no more; None: there is none."""
        for producer in self._idle:
            if producer.config.transaction_timeout_ms == timeout_ms:
                self._idle.remove(producer)
                return producer
        return None

    async def keep(self, producer: Producer) -> None:
        """Keep a producer without an open transaction, or with one that it has prepared. Cancellation: it is kept."""
        self._idle.append(producer)
        while len(self._idle) > self._max_idle:
            await leave(self._idle.pop(0))

    async def stop(self) -> None:
        """Stop all producers."""
        while self._idle:
            await leave(self._idle.pop())


class LedgerClients:
    """Holds the clients of the ledgers of one process, which its tasks or drivers use one after the other.

    Args:
        config: the producer's options, without a transactional id.

    Attributes:
        config: as given.
        resolver: asks the coordinators.
        idle: the producers that the process keeps.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.config: ProducerConfig = config
        self.resolver: TransactionResolver = TransactionResolver(config)
        self.idle: IdleProducers = IdleProducers()

    async def start(self) -> None:
        """Connect. Raises: as `TransactionResolver.start`."""
        await self.resolver.start()

    async def stop(self) -> None:
        """Close all connections."""
        await self.idle.stop()
        await self.resolver.stop()


@dataclass(frozen=True)
class Ledger:
    """Holds what the tasks and the driver of one query share, and reads and writes its decision and marks.

    Args:
        name: of the query.
        topic: its partition 0 has the offsets.
        config: the producer's options, without a transactional id.
        resolver: asks the coordinators.
        make_producer: makes a producer that is not started.
        max_ends: the largest number of transactions that end at the same time.
        idle: the producers that the process keeps; None: it keeps none.
    """

    name: QueryName
    topic: str
    config: ProducerConfig
    resolver: TransactionResolver
    make_producer: Callable[[ProducerConfig], Producer] = Producer
    max_ends: int = 64
    idle: IdleProducers | None = None

    async def producer(self, transactional_id: str, timeout_ms: float | None = None) -> Producer:
        """Return a started producer that has fenced older ones with its transactional id. It is an idle one, or a new one.

        Args:
            transactional_id: the id.
            timeout_ms: of its transactions; None: that of `config`.

        Raises:
            BootstrapFailed: no broker answered.
            TransactionError: the coordinator assigns no producer id, or not in time.
        Cancellation: the producer is stopped.
        """
        timeout_ms = self.config.transaction_timeout_ms if timeout_ms is None else timeout_ms
        idle = None if self.idle is None else self.idle.take(timeout_ms)
        if idle is not None:
            try:
                await idle.init_transactions(transactional_id)
            # Cancelled, too, the producer that was taken is left to nobody else: it is closed.
            except BaseException as error:
                await leave(idle)
                # A new producer would wait as long for the same coordinator. Any other error may be of the old producer alone.
                if isinstance(error, TransactionTimeout) or not isinstance(error, KafkaError):
                    raise
            else:
                return idle
        producer = self.make_producer(
            self.config.replace(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
        )
        try:
            await producer.start()
        # A start that is cancelled leaves connections, as one that fails.
        except BaseException:
            await stop_producer(producer)
            raise
        return producer

    async def keep(self, producer: Producer) -> None:
        """Keep a producer that is used no more, or stop it. What it prepared stays open. Errors are logged."""
        if self.idle is None:
            await leave(producer)
        else:
            await self.idle.keep(producer)

    async def decision(self, *, stable: bool, since: int = 0) -> Decision | None:
        """Return the latest decision; None: there is none.

        Args:
            stable: wait for a driver that is writing one. Without it, the decision may be the one before.
            since: a batch; a decision of an earlier batch is none. Only its first group is read then, however many tasks it has.

        Raises:
            LedgerError: the groups have other offsets.
        """
        for reads_left in reversed(range(_MAX_READS)):
            head = await self._position(0, stable=stable)
            if head is None:
                return None
            count = decode_parts(self.name.decision_group(), head)
            # The offset of a decision is its batch and 1.
            if head.number <= since:
                return None
            rest = await asyncio.gather(
                *[self._position(part, stable=stable) for part in range(1, count)]
            )
            try:
                return decode_decision(self.name, [head, *rest])
            except TornDecision:
                if not reads_left:
                    raise
                # The broker shows the groups of one transaction one after the other. A stable read waits for the last one.
                stable = True
        raise AssertionError("unreachable")

    async def _position(self, part: int, *, stable: bool) -> Any:
        return await self.resolver.committed_offset(
            self.name.decision_group(part), self.topic, stable=stable
        )

    async def mark(self, task: int, *, stable: bool) -> Mark | None:
        """Return the mark of a task; None: there is none. Raises LedgerError if the group has other offsets."""
        group = self.name.mark_group(task)
        position = await self.resolver.committed_offset(group, self.topic, stable=stable)
        return None if position is None else decode_mark(group, position)

    async def commits(self, batch: int, task: int, entry: Entry) -> str | None:
        """Commit a decided transaction. Returns None if it is committed, now or before; else the coordinator's definite answer.

        A fenced producer may have committed before, which its mark says. No stable read: a newer attempt may hold an open transaction. After
        a definite answer no marker of this transaction is outstanding.
        """
        try:
            await self.resolver.commit(entry.prepared)
        except BrokerError as error:
            if error.name not in _ENDED:
                raise
            mark = await self.mark(task, stable=False)
            return None if is_entry_committed(self.name.text, mark, batch, entry) else error.name
        return None

    async def abort(self, transactions: Iterable[PreparedTransaction]) -> None:
        """Abort transactions, also those that ended before."""

        async def one(prepared: PreparedTransaction) -> None:
            try:
                await self.resolver.abort(prepared)
            except BrokerError as error:
                if error.name not in _ENDED:
                    raise

        await self.each(one, transactions)

    async def abandon(self, prepared: PreparedTransaction) -> None:
        """Abort a transaction that no driver will hear of. Errors are logged: its time-out aborts it."""
        try:
            async with asyncio.timeout(ABORT_SECONDS):
                await self.abort([prepared])
        except (KafkaError, TimeoutError) as error:
            _logger.warning(
                "the transaction %s was not aborted, its time-out does it: %s", prepared, error
            )

    async def each(self, call: Callable[[T], Awaitable[object]], arguments: Iterable[T]) -> None:
        """Call with each argument, `max_ends` at the same time. The first error cancels the others."""
        slots = asyncio.Semaphore(self.max_ends)

        async def one(argument: T) -> None:
            async with slots:
                await call(argument)

        tasks = [asyncio.ensure_future(one(argument)) for argument in arguments]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def lock(self) -> AsyncIterator[Producer]:
        """Fence all older drivers: their decisions are refused from now on. The body is in a transaction."""
        driver = await self.producer(self.name.driver_id(), _DRIVER_TIMEOUT_MS)
        try:
            await driver.begin_transaction()
            yield driver
        # The lock is an open transaction: whatever ends the block, it is aborted and its producer closed.
        except BaseException:
            await stop_producer(driver)
            raise
        try:
            await driver.abort_transaction()
        except TransactionMisuse:
            # `decide` has committed it.
            await self.keep(driver)
        # A cancelled abort closes the producer, too.
        except BaseException as error:
            await stop_producer(driver)
            if not isinstance(error, KafkaError):
                raise
        else:
            await self.keep(driver)

    async def decide(self, driver: Producer, decision: Decision) -> None:
        """Write a decision, in the transaction that `lock` began.

        Raises:
            AnotherDriver: a newer driver has the lock.
        """
        try:
            for part, position in enumerate(encode_decision(decision)):
                await driver.send_position_to_transaction(
                    self.name.decision_group(part),
                    position.number,
                    position.cursor,
                    topic=self.topic,
                )
            await driver.commit_transaction()
        except ProducerFenced as error:
            raise AnotherDriver(
                f"batch {decision.batch} of {self.name.text!r}: another driver with the same checkpoint has begun, or this one stood still for "
                "a minute. Let one query run with a checkpoint"
            ) from error


async def stop_producer(producer: Producer) -> None:
    """Abort the transaction of a producer, and stop it. Errors are logged."""
    try:
        async with asyncio.timeout(ABORT_SECONDS):
            # `stop` aborts too, but leaves a prepared transaction open. An error: none is open, or it cannot be aborted any more.
            with contextlib.suppress(TransactionError, UsageError):
                await producer.abort_transaction()
            await producer.stop()
    except (KafkaError, TimeoutError) as error:
        _logger.warning(
            "the transaction of %r was not aborted, its time-out does it: %s",
            producer.config.transactional_id,
            error,
        )


async def leave(producer: Producer) -> None:
    """Stop a producer without aborting the transaction that it has prepared: that is the driver's to end. Errors are logged."""
    try:
        async with asyncio.timeout(ABORT_SECONDS):
            await producer.stop()
    except (KafkaError, TimeoutError) as error:
        _logger.warning("a producer did not stop: %s", error)
