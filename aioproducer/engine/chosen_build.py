"""The classes of a record's way, of the build that `aioproducer.build` chooses: compiled, or their twins in plain Python.

Both builds have the same names and behaviour, which one contract suite checks (tests/contract).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from aioproducer.build import ENGINE, extension

__all__ = [
    "FULL",
    "REASON",
    "RECORD_OVERHEAD",
    "SLICE_BYTES",
    "SLICE_RECORDS",
    "Delivery",
    "DeliveryContext",
    "Encoded",
    "EncodingFastPath",
    "FastPath",
    "MemoryRecordsBuilder",
    "ProduceRequestResult",
    "are_in_order",
    "here",
    "make_delivery",
    "measured",
    "uncollected",
    "wake",
]

# The reason why plain Python runs; empty if the compiled build runs.
REASON: Final = extension(ENGINE).reason

# Only the chosen build is imported: the plain records builder has large tables.
_result, _delivery, _builder, _fast_path = (
    importlib.import_module(f"aioproducer.engine.{room}.{'' if REASON else '_'}{name}")
    for room, name in (
        ("delivery", "produce_request_result"),
        ("delivery", "delivery"),
        ("delivery", "records_builder"),
        ("append", "fast_path"),
    )
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.engine.append.fast_path import Encoded, EncodingFastPath, FastPath, here
    from aioproducer.engine.delivery.delivery import Delivery, are_in_order, make_delivery, wake
    from aioproducer.engine.delivery.produce_request_result import (
        DeliveryContext,
        ProduceRequestResult,
    )
    from aioproducer.engine.delivery.records_builder import MemoryRecordsBuilder, measured

    uncollected: Callable[[ProduceRequestResult], None] | None
else:
    ProduceRequestResult, DeliveryContext = _result.ProduceRequestResult, _result.DeliveryContext
    Delivery, make_delivery = _delivery.Delivery, _delivery.make_delivery
    are_in_order, wake = _delivery.are_in_order, _delivery.wake
    # Only the compiled build can remove an acknowledged batch's result from the cyclic collector; None: plain Python leaves it there.
    uncollected = None if REASON else _delivery.uncollected
    MemoryRecordsBuilder, measured = _builder.MemoryRecordsBuilder, _builder.measured
    Encoded, here = _fast_path.Encoded, _fast_path.here
    EncodingFastPath, FastPath = _fast_path.EncodingFastPath, _fast_path.FastPath

FULL: Final[MemoryRecordsBuilder] = _builder.FULL
RECORD_OVERHEAD: Final[int] = _builder.RECORD_OVERHEAD
SLICE_BYTES: Final[int] = _fast_path.SLICE_BYTES
SLICE_RECORDS: Final[int] = _fast_path.SLICE_RECORDS
