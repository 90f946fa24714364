"""`async with producer.transaction():` from the beginning of one transaction to its end, whatever happens in between.

Knows nothing of what a commit or an abort consists of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.core.transactions.transaction_state import State
from aioproducer.errors import TransactionAbortable, TransactionTimeout

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from aioproducer.engine.transactions.transaction_manager import TransactionManager

__all__ = ["TransactionScope"]

_ENDED: Final = (State.READY, State.INITIALIZING, State.UNINITIALIZED)


class TransactionScope:
    """Begins a transaction; the end of the body commits it, whatever leaves the body aborts it.

    Args:
        transactor: gives the running producer's, or raises.
        timeout: seconds for an abort.
    """

    _transactor: TransactionManager

    def __init__(self, transactor: Callable[[], TransactionManager], timeout: float) -> None:
        transactor()
        self._running = transactor
        self._timeout = timeout
        self._number = 0

    async def __aenter__(self) -> None:
        self._transactor = self._running()
        await self._transactor.begin()
        self._number = self._transactor.transaction.number

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._is_open():  # the body ended it itself, or `stop` did
            if error is None:
                self._transactor.check_running()
            return
        if error is not None:
            await self._transactor.give_up(self._timeout, takes_back=True)
            return
        try:
            await self._transactor.commit()
        except TransactionTimeout as late:
            if self._transactor.transaction.is_told:
                raise
            await self._transactor.give_up(self._timeout, takes_back=True)
            raise TransactionAbortable(late.reason) from late.__cause__
        except BaseException:
            if self._is_open():
                await self._transactor.give_up(self._timeout, takes_back=True)
            raise

    def _is_open(self) -> bool:
        transaction = self._transactor.transaction
        return transaction.number == self._number and transaction.state not in _ENDED
