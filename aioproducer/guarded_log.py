"""Logs for code that is not to end by an exception of the application's logging."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from typing import Any

__all__ = ["GuardedLog"]


class GuardedLog(logging.LoggerAdapter[logging.Logger]):
    """Logs as `logging.getLogger(name)` does. An exception of a filter or handler goes to stderr, as logging's own `handleError` does it.

    Most handlers catch their exceptions. A filter does not, nor does a handler that overrides `handle` or `handleError`. A producer logs
    while it opens and closes its connections, and in the middle of other steps.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name))

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log a message; all other methods call this one."""
        try:
            # The caller is the one before this method.
            self.logger.log(level, msg, *args, stacklevel=2, **kwargs)
        except Exception:
            if logging.raiseExceptions and sys.stderr is not None:
                with contextlib.suppress(Exception):
                    traceback.print_exc()
