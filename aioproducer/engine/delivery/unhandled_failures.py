"""Reports failures that no code looked at: each to the user's hook, and each kind to the log at intervals."""

from __future__ import annotations

import asyncio
import logging
import os
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.observability.diagnostics import SlowCallbacks
from aioproducer.errors import TransactionError, UsageError
from aioproducer.model import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.errors import DeliveryError

_log = logging.getLogger(__name__)
# Seconds in which each kind of failure is logged once.
_WARN_EVERY: Final = 10.0
# The most kinds that are logged in that time: if a broker is gone, thousands of topics fail at once.
_KINDS: Final = 20


class UnhandledFailures:
    """Reports the unhandled failures of one producer.

    Args:
        client_id: of the producer; each line of the log begins with it.
        hook: the user's `on_delivery_error`; called in the loop.
        warns: failures are logged. False with transactions: their commit raises the failures.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client_id: str,
        hook: Callable[[DeliveryError, int], Any] | None = None,
        *,
        warns: bool,
    ) -> None:
        self._loop = loop
        self._client_id = client_id
        self._hook = (
            hook if hook is None else SlowCallbacks(loop.time).over("on_delivery_error", hook)
        )
        self._pid = os.getpid()
        self._warns = warns
        self._told: set[tuple[str, str]] = set()
        self._since = -_WARN_EVERY
        self._untold = 0

    def on_failure(self, error: DeliveryError, count: int) -> None:
        """Report that `count` records of a batch failed and no code looked at them. Any thread may call this."""
        # In a forked child, the parent reports it. Or the batch was dropped with its transaction.
        if os.getpid() != self._pid or isinstance(error.__cause__, TransactionError):
            return
        if self._hook is not None and not self._loop.is_closed():
            # The last reference to the result may have been released in another thread.
            self._loop.call_soon_threadsafe(_tell, self._hook, error, count, context=Context())
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
        _log.warning(
            "%s: %s failed, and no code looked at the outcome: %s%s",
            self._client_id,
            counted(count, "record"),
            error,
            more,
        )


def _tell(hook: Callable[[DeliveryError, int], Any], error: DeliveryError, count: int) -> None:
    # An exception of the hook goes to the loop's exception handler.
    told = hook(error, count)
    if asyncio.iscoroutine(told):
        told.close()
        raise UsageError(
            "on_delivery_error gave a coroutine: it is a plain function, called with the error and the number of records"
        )
