"""Choose the build of what every record passes: compiled (`_fast_path`, `_records_builder`, `_delivery`, `_result`), or their twins in plain Python.

Both have the same names and behaviour, which one contract suite holds (tests/contract). `aioproducer.extensions` says which one runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine import delivery, fast_path, records_builder, result
from aioproducer.extensions import extension

__all__ = [
    "BUILD",
    "FULL",
    "REASON",
    "RECORD_OVERHEAD",
    "TURN",
    "TURN_RECORDS",
    "BatchResult",
    "Delivery",
    "FastPath",
    "Home",
    "MemoryRecordsBuilder",
    "Outcome",
    "here",
    "make_delivery",
    "measured",
    "uncollected",
    "wake",
]

_found: Final = extension("aioproducer.engine._fast_path")
BUILD: Final = _found.build
REASON: Final[str] = _found.reason  # for plain Python; empty where the compiled build runs

_fast_path: Any = fast_path
_builder: Any = records_builder
_delivery: Any = delivery
_result: Any = result
if not REASON:
    _fast_path = _found.module
    _builder, _delivery, _result = (
        importlib.import_module(f"aioproducer.engine.{name}") for name in ("_records_builder", "_delivery", "_result")
    )

if TYPE_CHECKING:
    from aioproducer.engine.delivery import Delivery, make_delivery, uncollected, wake
    from aioproducer.engine.fast_path import FastPath, here
    from aioproducer.engine.records_builder import MemoryRecordsBuilder, measured
    from aioproducer.engine.result import BatchResult, Home, Outcome
else:
    BatchResult, Home, Outcome = _result.BatchResult, _result.Home, _result.Outcome
    Delivery, make_delivery, uncollected, wake = _delivery.Delivery, _delivery.make_delivery, _delivery.uncollected, _delivery.wake
    MemoryRecordsBuilder, measured = _builder.MemoryRecordsBuilder, _builder.measured
    FastPath, here = _fast_path.FastPath, _fast_path.here

FULL: Final[MemoryRecordsBuilder] = _builder.FULL
RECORD_OVERHEAD: Final[int] = _builder.RECORD_OVERHEAD
TURN: Final[int] = _fast_path.TURN
TURN_RECORDS: Final[int] = _fast_path.TURN_RECORDS
