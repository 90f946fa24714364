"""The drawn workload of a transactional producer: transactions in sequence that commit, abort or are cancelled.

A transaction's fate is the one that its caller learned: committed and aborted are certain, any other is all or nothing. After a fatal
error the producer is stopped, and a new one with the same transactional id continues.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from aioproducer.errors import (
    KafkaError,
    ProducerClosed,
    TransactionAbortable,
    TransactionFatal,
    TransactionMisuse,
    TransactionTimeout,
)
from tests.simulation.history import Fate
from tests.simulation.workload import cancelled_somewhere, rest, send_once

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.history import Transaction
    from tests.simulation.plan import Workload

__all__ = ["run_transactions", "transact"]


_TRIES: Final = 50  # most calls to end a transaction; each waits `max_block_ms`
_MOST: Final = 12  # most records of one task in one transaction


class _Refused(Exception):
    """Raised by a body that decides not to commit."""


async def run_transactions(client: Client, workload: Workload) -> None:
    """Run transactions one after another, until all records were sent."""
    rng, left = client.rng, workload.records
    while left > 0:
        tasks = [rng.randint(0, min(_MOST, left)) for _ in range(workload.tasks)]
        left -= max(sum(tasks), 1)
        await transact(client, workload, tasks)
        if workload.pause and rng.random() < 0.5:
            await asyncio.sleep(rng.uniform(0, workload.pause))
        await rest(rng, workload)


async def transact(client: Client, workload: Workload, tasks: list[int]) -> None:
    """Run one transaction, in which each task sends its number of records. Sets the transaction's fate before it returns."""
    if client.rng.random() < 0.3:
        await _scoped(client, workload, tasks)
        return
    if not await _begin(client, workload):
        return
    await _fill(client, workload, tasks)
    await _end(client, workload, wants_commit=client.rng.random() < 0.75)


async def _scoped(client: Client, workload: Workload, tasks: list[int]) -> None:
    """Run a transaction by `async with producer.transaction()`."""
    changes_mind = client.rng.random() < 0.2
    transaction: Transaction | None = None
    commits = False

    async def call() -> None:
        nonlocal transaction, commits
        async with client.producer.transaction():
            transaction = client.opened()
            await _fill(client, workload, tasks, swallows=False)
            if changes_mind:
                raise _Refused
            commits = True
        client.closed(Fate.COMMITTED)

    try:
        await cancelled_somewhere(client, call, workload.cancelled, "transaction")
    except _Refused:
        client.told("changes its mind")
    # the block raised or was cancelled: find out whether it aborted
    if transaction is not None and client.transaction is transaction:
        await _end(
            client,
            workload,
            wants_commit=False,
            fate_of_scope=Fate.UNKNOWN if commits else Fate.ABORTED,
        )


async def _begin(client: Client, workload: Workload) -> bool:
    for _ in range(_TRIES):
        try:
            was_cancelled = await cancelled_somewhere(
                client, client.begin, workload.cancelled, "transaction", raises=True
            )
        except (TransactionFatal, ProducerClosed):
            if not await client.renew():
                return False
            continue
        except KafkaError as error:
            if client.is_stopping:
                return False
            if isinstance(error, TransactionMisuse):
                # The end of the last transaction was given up, and it has failed since.
                with contextlib.suppress(KafkaError):
                    await client.producer.abort_transaction()
            await asyncio.sleep(0.05)
            continue
        if not was_cancelled or client.transaction is not None:
            return True
    return False


async def _fill(
    client: Client, workload: Workload, tasks: list[int], *, swallows: bool = True
) -> None:
    """Send the transaction's records, and in some transactions an offset."""

    async def one(records: int) -> None:
        for _ in range(records):
            if swallows:
                await cancelled_somewhere(
                    client, lambda: send_once(client, workload), workload.cancelled, "send"
                )
            else:
                await send_once(client, workload)
            if workload.pause and client.rng.random() < 0.2:
                await asyncio.sleep(client.rng.uniform(0, workload.pause))

    if swallows:
        await asyncio.gather(*[one(records) for records in tasks])
    else:
        await one(sum(tasks))
    if client.rng.random() < 0.3:
        topic = next(iter(workload.topics))

        async def commit_offset() -> None:
            await client.send_offset(topic, "group")

        if swallows:
            await cancelled_somewhere(client, commit_offset, workload.cancelled, "transaction")
        else:
            await commit_offset()


async def _end(
    client: Client, workload: Workload, *, wants_commit: bool, fate_of_scope: Fate | None = None
) -> None:
    """Commit or abort, with retries, until the outcome is known or cannot be known."""
    ending = _Ending(client, workload, wants_commit=wants_commit, fate_of_scope=fate_of_scope)
    fate = None
    for _ in range(_TRIES):
        fate = await ending.call()
        if fate is not None:
            break
    client.closed(fate or Fate.UNKNOWN)


class _Ending:
    """Ends one transaction, call by call."""

    def __init__(
        self, client: Client, workload: Workload, *, wants_commit: bool, fate_of_scope: Fate | None
    ) -> None:
        self._client = client
        self._probability = workload.cancelled
        self._wants_commit = wants_commit
        self._fate_of_scope = fate_of_scope
        self._asked_commit = fate_of_scope is Fate.UNKNOWN

    async def call(self) -> Fate | None:
        """Make one call. Returns the transaction's fate; None: call again."""
        client = self._client
        self._asked_commit |= self._wants_commit
        call = client.commit if self._wants_commit else client.abort
        try:
            was_cancelled = await cancelled_somewhere(
                client, call, self._probability, "transaction", raises=True
            )
        except (
            TransactionAbortable,
            TransactionMisuse,
            TransactionFatal,
            ProducerClosed,
            TransactionTimeout,
        ) as error:
            return self._failed(error)
        if not was_cancelled:
            return Fate.COMMITTED if self._wants_commit else Fate.ABORTED
        if client.rng.random() < 0.3:
            self._wants_commit = not self._wants_commit
        return None

    def _failed(self, error: KafkaError) -> Fate | None:
        if isinstance(error, TransactionAbortable):
            self._wants_commit = False
            return None
        if isinstance(error, TransactionMisuse):
            return self._misused(error)
        # a requested commit may have happened although its answer was lost
        if isinstance(error, TransactionFatal):
            return Fate.UNKNOWN if self._asked_commit else Fate.ABORTED
        return (
            Fate.UNKNOWN if self._client.is_stopping or isinstance(error, ProducerClosed) else None
        )

    def _misused(self, error: TransactionMisuse) -> Fate | None:
        """Handle TransactionMisuse: no transaction is open any more, or its commit is in flight."""
        self._client.told(f"{error}")
        if self._fate_of_scope is not None:
            return self._fate_of_scope
        self._wants_commit = not self._wants_commit
        return Fate.UNKNOWN if self._client.is_stopping else None
