"""One line of the log when `start` or `stop` lasts: what the call waits for, and how long at most.

With Kafka down both wait for many seconds, and a person at a terminal who has pressed Ctrl-C cannot tell that from a hang.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator

__all__ = ["waiting_notice"]

_log = logging.getLogger("aioproducer")
_NOTICE_AFTER: Final = 2.0  # seconds


@contextmanager
def waiting_notice(loop: AbstractEventLoop, text: Callable[[], str]) -> Iterator[None]:
    """Log `text()` as a warning, once, if the body takes longer than two seconds."""
    timer = loop.call_later(_NOTICE_AFTER, lambda: _log.warning("%s", text()))
    try:
        yield
    finally:
        timer.cancel()
