"""The way of a record, in whichever of its two builds this installation has: compiled (`_hot.pyx`), or plain Python (`plain`).

Both are one to everybody else: the same names, bytes and behaviour, which one contract suite holds (tests/contract). The environment
variable `AIOPRODUCER_PURE=1` chooses plain Python; `AIOPRODUCER_REQUIRE_EXT=1` makes the lack of the compiled build an error.
"""

from __future__ import annotations

import os
import sysconfig
from typing import TYPE_CHECKING, Final

from aioproducer.engine.plain import EFFORT, here

__all__ = [
    "BUILD",
    "EFFORT",
    "FULL",
    "REASON",
    "RECORD_OVERHEAD",
    "TURN",
    "Delivery",
    "OpenBatch",
    "SendPath",
    "Way",
    "here",
    "make_delivery",
    "wake",
]


def _why_plain() -> str:
    """Why the compiled build is not even tried; empty: it is."""
    if os.environ.get("AIOPRODUCER_PURE", "") not in {"", "0"}:
        return "AIOPRODUCER_PURE is set"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no global interpreter lock, which the compiled build needs"
    return ""


REASON: str = _why_plain()  # for plain Python; empty where the compiled build runs
if not REASON and not TYPE_CHECKING:
    try:
        from aioproducer.engine._hot import FULL, RECORD_OVERHEAD, TURN, Delivery, OpenBatch, SendPath, Way, make_delivery, wake
    except ImportError as error:
        REASON = f"the compiled build is not installed ({error})"
if REASON or TYPE_CHECKING:
    from aioproducer.engine.plain import FULL, RECORD_OVERHEAD, TURN, Delivery, OpenBatch, SendPath, Way, make_delivery, wake

BUILD: Final = "plain Python" if REASON else "compiled"
if REASON and os.environ.get("AIOPRODUCER_REQUIRE_EXT", "") not in {"", "0"}:
    raise ImportError(f"AIOPRODUCER_REQUIRE_EXT is set, and the way of a record is plain Python: {REASON}")
