"""Holds `run_in_transaction`, which every producer has: it runs a function in a transaction, again if the transaction was aborted."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from aioproducer.errors import CommitFailed, DeliveryError, TransactionAbortable, TransactionMisuse, UsageError, may_succeed
from aioproducer.model import exact_int

__all__ = ["RunsTransactions"]

T = TypeVar("T")

# Codes of failed records that Kafka does not call retriable, and that end with the transaction: another one has a new epoch.
_OF_THE_TRANSACTION: Final = frozenset(
    {"TRANSACTION_ABORTABLE", "INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE"}
)


class RunsTransactions(ABC):
    """Runs functions in transactions."""

    config: Any  # a ProducerConfig

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager of one transaction."""

    async def run_in_transaction(self, func: Callable[[], Awaitable[T]], attempts: int = 5) -> T:
        """Run `await func()` in a transaction, and once more in a new one if the transaction was aborted. Returns the result.

        ```python
        async def transfer() -> None:
            await producer.send("accounts", b"-5", key=b"ada")
            await producer.send("accounts", b"+5", key=b"bob")

        await producer.run_in_transaction(transfer)
        ```

        The function runs again after `TransactionAbortable`, except after `CommitFailed`, and after a `DeliveryError` that another try may
        avoid. Its earlier records were aborted. All its other effects happen again, so it has none outside the transaction. Before each further
        attempt it waits `retry_backoff_ms`, doubled each time up to `retry_backoff_max_ms`. It never runs again after `TransactionFatal`,
        such as `ProducerFenced`, nor after `TransactionTimeout`, as the transaction may be committed.

        Args:
            func: a function without arguments that returns an awaitable.
            attempts: how often it runs at most.

        Raises:
            UsageError: `attempts` is not a number from 1 on, `func` returns no awaitable, or the producer has no `transactional_id`.
            TransactionError, DeliveryError: those of the last attempt; or such that no other attempt may avoid.
            The errors of `func`: the transaction was aborted.
        Cancellation: as for `transaction`; `func` does not run again.
        """
        most = _checked(attempts)
        failed: TransactionAbortable | DeliveryError | None = None
        for attempt in range(most):
            if failed is not None:
                await self._wait_before_attempt(attempt)
            is_begun = False
            try:
                async with self.transaction():
                    is_begun = True
                    return await _started(func)
            except (TransactionAbortable, DeliveryError) as error:
                failed = error
                if not _is_worth_another(error):
                    raise
            except TransactionMisuse:
                # The abort of the last attempt has not ended within `max_block_ms`.
                if failed is None or is_begun:
                    raise
                break
        assert failed is not None
        raise failed

    async def _wait_before_attempt(self, attempt: int) -> None:
        """Wait before an attempt; the first one is 0."""
        pause_ms = min(self.config.retry_backoff_ms * 2.0 ** (attempt - 1), self.config.retry_backoff_max_ms)
        await asyncio.sleep(pause_ms / 1000)


def _checked(attempts: Any) -> int:
    number = exact_int(attempts)
    if number is None or number < 1:
        raise UsageError(f"attempts={attempts!r}: it is a number from 1 on")
    return number


def _started(func: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Call `func`. Returns its awaitable."""
    work: Any = func()
    if not isinstance(work, Awaitable):
        raise UsageError(
            f"run_in_transaction: func returned {type(work).__name__}, no awaitable: write `async def`. The transaction is aborted"
        )
    return work


def _is_worth_another(error: TransactionAbortable | DeliveryError) -> bool:
    """Return whether the same function may succeed in another transaction. The transaction of the error was aborted."""
    if isinstance(error, DeliveryError):
        return may_succeed(error) or error.code in _OF_THE_TRANSACTION
    return not isinstance(error, CommitFailed)
