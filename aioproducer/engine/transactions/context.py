"""Holds the context manager of `producer.transaction()`, which begins one transaction and commits or aborts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.core.transactions.transaction import State
from aioproducer.errors import TransactionAbortable, TransactionTimeout

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from aioproducer.engine.transactions.transaction_manager import TransactionManager

__all__ = ["TransactionScope"]

_ENDED: Final = (State.READY, State.INITIALIZING, State.UNINITIALIZED)


class TransactionScope:
    """Holds one transaction: entry begins it, the end of the body commits it, and an exception from the body aborts it.

    Args:
        transaction_manager: returns the manager of the running producer, or raises.
        timeout: seconds for an abort.
    """

    _transaction_manager: TransactionManager

    def __init__(self, transaction_manager: Callable[[], TransactionManager], timeout: float) -> None:
        transaction_manager()
        self._running = transaction_manager
        self._timeout = timeout
        self._number = 0

    async def __aenter__(self) -> None:
        self._transaction_manager = self._running()
        await self._transaction_manager.begin()
        self._number = self._transaction_manager.transaction.number

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # The body ended the transaction itself, or `stop` did.
        if not self._is_open():
            if error is None:
                self._transaction_manager.check_running()
            return
        if error is not None:
            await self._transaction_manager.give_up(self._timeout, takes_back=True)
            return
        try:
            await self._transaction_manager.commit()
        except TransactionTimeout as late:
            if self._transaction_manager.transaction.is_told:
                raise
            await self._transaction_manager.give_up(self._timeout, takes_back=True)
            raise TransactionAbortable(late.reason) from late.__cause__
        except BaseException:
            if self._is_open():
                await self._transaction_manager.give_up(self._timeout, takes_back=True)
            raise

    def _is_open(self) -> bool:
        transaction = self._transaction_manager.transaction
        return transaction.number == self._number and transaction.state not in _ENDED
