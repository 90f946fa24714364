"""Failures that nobody looked at: the user's hook is told of each, and the log of each kind, now and then.

Knows nothing of who could have looked, or when it is sure that nobody will.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import TransactionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.errors import DeliveryError

__all__ = ["UnhandledFailures"]

_log = logging.getLogger(__name__)
_WARN_EVERY: Final = 10.0  # seconds: each kind is told of once in so long,
_KINDS: Final = 20  # and no more of them than that: behind a broker that is gone thousands of topics fail at once


class UnhandledFailures:
    """Tells of one producer's.

    Args:
        warns: there is no transaction, whose commit would raise them.

    Attributes:
        hook: the user's `on_delivery_error`; called in the loop.
    """

    hook: Callable[[DeliveryError, int], Any] | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop, *, warns: bool) -> None:
        self._loop = loop
        self._warns = warns
        self._told: set[tuple[str, str]] = set()
        self._since = -_WARN_EVERY
        self._untold = 0

    def on_failure(self, error: DeliveryError, count: int) -> None:
        """So many records of a batch failed and nobody looked. Any thread may say so."""
        if isinstance(error.__cause__, TransactionError):  # dropped with its transaction
            return
        if self.hook is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_tell, self.hook, error, count, context=Context())  # who let go of it may be in another thread
        if self._warns:
            self._warn(error, count)

    def _warn(self, error: DeliveryError, count: int) -> None:
        now = self._loop.time()
        if now - self._since >= _WARN_EVERY:
            self._since = now
            self._told.clear()
        kind = (error.topic, type(error.__cause__).__name__)
        if kind in self._told or len(self._told) >= _KINDS:
            self._untold += count
            return
        self._told.add(kind)
        untold, self._untold = self._untold, 0
        more = f"; so did {untold} more since the last of these lines" if untold else ""
        _log.warning("%d records failed and nobody looked at their deliveries: %s%s", count, error, more)


def _tell(hook: Callable[[DeliveryError, int], Any], error: DeliveryError, count: int) -> None:
    told = hook(error, count)  # what it raises is the loop's exception handler's business
    if asyncio.iscoroutine(told):
        told.close()
        raise UsageError("on_delivery_error gave a coroutine: it is a plain function, called with the error and the number of records")
