"""asyncio's debug mode in the programs that tests start: they inherit it by the variable PYTHONASYNCIODEBUG."""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = ["environment_without_debug_mode", "without_slow_steps"]

_SLOW_STEP: Final = re.compile(r"^Executing <.* took \d+\.\d{3} seconds\n", re.MULTILINE)


def environment_without_debug_mode() -> dict[str, str]:
    """Return the environment of a program that measures time, or whose whole log is compared."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONASYNCIODEBUG"}


def without_slow_steps(log: str) -> str:
    """Return what a program wrote to standard error, without asyncio's lines on steps that took 0.1 s: a busy machine has such steps.

    All else that the debug mode shows is left: calls from a wrong thread, where a coroutine was made that nothing awaited.
    """
    return _SLOW_STEP.sub("", log)
