"""The way of a record, in whichever of its two builds this installation has: compiled (`_hot.pyx`), or plain Python (`plain`).

Both are one to everybody else: the same names, bytes and behaviour, which one contract suite holds (tests/contract). The environment
variable `AIOPRODUCER_PURE=1` chooses plain Python; else `AIOPRODUCER_REQUIRE_EXT=1` makes the lack of the compiled build an error.
"""

from __future__ import annotations

import os
import pathlib
import sysconfig
import zlib
from typing import TYPE_CHECKING, Final

from aioproducer.engine.plain import here

__all__ = [
    "BUILD",
    "FULL",
    "REASON",
    "RECORD_OVERHEAD",
    "TURN",
    "TURN_RECORDS",
    "Delivery",
    "OpenBatch",
    "SendPath",
    "Way",
    "here",
    "make_delivery",
    "wake",
]


def _is_set(name: str) -> bool:
    return os.environ.get(name, "") not in {"", "0"}


def _why_plain() -> str:
    """Why the compiled build is not even tried; empty: it is."""
    if _is_set("AIOPRODUCER_PURE"):
        return "AIOPRODUCER_PURE is set"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no global interpreter lock, which the compiled build needs"
    return ""


def _is_stale(made_of: int | None) -> bool:
    """Whether it was made of another `_hot.pyx` than lies beside it: somebody edits that one. A wheel has none. 0: not by setup.py."""
    source = pathlib.Path(__file__).with_name("_hot.pyx")
    return source.exists() and made_of not in {0, zlib.crc32(source.read_bytes())}


REASON: str = _why_plain()  # for plain Python; empty where the compiled build runs
if not REASON and not TYPE_CHECKING:
    try:
        from aioproducer.engine import _hot
    except ImportError as error:
        is_missing = error.name == __package__  # "cannot import name"; else it is there, and for another Python or the like
        REASON = "the compiled build is not installed" if is_missing else f"the compiled build cannot be loaded ({error})"
    else:
        if _is_stale(getattr(_hot, "SOURCE", None)):
            raise ImportError("the compiled build is not of the _hot.pyx beside it: `pip install -e .` again, or set AIOPRODUCER_PURE=1")
if REASON or TYPE_CHECKING:
    from aioproducer.engine.plain import FULL, RECORD_OVERHEAD, TURN, TURN_RECORDS, Delivery, OpenBatch, SendPath, Way, make_delivery, wake
else:
    FULL, RECORD_OVERHEAD, TURN, TURN_RECORDS = _hot.FULL, _hot.RECORD_OVERHEAD, _hot.TURN, _hot.TURN_RECORDS
    make_delivery, wake = _hot.make_delivery, _hot.wake
    Delivery, OpenBatch, SendPath, Way = _hot.Delivery, _hot.OpenBatch, _hot.SendPath, _hot.Way

BUILD: Final = "plain Python" if REASON else "compiled"
if REASON and _is_set("AIOPRODUCER_REQUIRE_EXT") and not _is_set("AIOPRODUCER_PURE"):  # a wish is no lack
    raise ImportError(f"AIOPRODUCER_REQUIRE_EXT is set, and the way of a record is plain Python: {REASON}")
