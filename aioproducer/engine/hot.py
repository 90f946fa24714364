"""The way of a record, in whichever of its two builds this installation has: compiled (`_hot.pyx`), or plain Python (`plain`).

Both are one to everybody else: the same names, bytes and behaviour, which one contract suite holds (tests/contract). `aioproducer.extensions`
says which one it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine import plain
from aioproducer.engine.plain import here
from aioproducer.extensions import extension

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
    "measured",
    "uncollected",
    "wake",
]

_found: Final = extension("aioproducer.engine._hot")
BUILD: Final = _found.build
REASON: str = _found.reason  # for plain Python; empty where the compiled build runs

if REASON or TYPE_CHECKING:
    from aioproducer.engine.plain import Delivery, OpenBatch, SendPath, Way, make_delivery, measured, uncollected, wake
else:
    _hot = _found.module
    make_delivery, measured, uncollected, wake = _hot.make_delivery, _hot.measured, _hot.uncollected, _hot.wake
    Delivery, OpenBatch, SendPath, Way = _hot.Delivery, _hot.OpenBatch, _hot.SendPath, _hot.Way

# not known before it runs: a compiled module would have the constants of `plain` in it
_unit: Any = plain if REASON else _found.module
FULL: OpenBatch = _unit.FULL
RECORD_OVERHEAD: int = _unit.RECORD_OVERHEAD
TURN: int = _unit.TURN
TURN_RECORDS: int = _unit.TURN_RECORDS
