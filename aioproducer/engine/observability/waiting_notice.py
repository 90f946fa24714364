"""Logs one warning if `start` or `stop` takes long: the reason of the wait, and its limit.

Without a reachable broker both wait for many seconds. After Ctrl-C at a terminal, that would look like a hang.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aioproducer.guarded_log import GuardedLog

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator

__all__ = ["waiting_notice"]

_log = GuardedLog("aioproducer")
# Seconds.
_NOTICE_AFTER: Final = 2.0


@contextmanager
def waiting_notice(loop: AbstractEventLoop, text: Callable[[], str]) -> Iterator[None]:
    """Log `text()` as a warning, once, if the body takes longer than two seconds."""
    timer = loop.call_later(_NOTICE_AFTER, lambda: _log.warning("%s", text()))
    try:
        yield
    finally:
        timer.cancel()
