"""The chosen build of the records builder, deliveries and results: compiled, or the twins in plain Python.

The compiled modules are `_records_builder`, `_delivery` and `_produce_request_result`. Both builds have the same names and behaviour,
which one contract suite checks (tests/contract). `aioproducer.compiled_modules` says which one runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from aioproducer.compiled_modules import ENGINE, extension
from aioproducer.engine.delivery.outcome import Outcome

__all__ = [
    "CHOSEN",
    "FULL",
    "REASON",
    "RECORD_OVERHEAD",
    "Delivery",
    "DeliveryContext",
    "MemoryRecordsBuilder",
    "Outcome",
    "ProduceRequestResult",
    "are_in_order",
    "make_delivery",
    "measured",
    "uncollected",
    "wake",
]

# The engine's compiled modules, all or none of them; `append.chosen_build` takes the fast path of the same choice.
CHOSEN: Final = extension(ENGINE)
# The reason why plain Python runs; empty if the compiled build runs.
REASON: Final = CHOSEN.reason

# Only the chosen build is imported: the plain records builder has large tables.
_builder, _delivery, _result = (
    importlib.import_module(f"aioproducer.engine.delivery.{name if REASON else f'_{name}'}")
    for name in ("records_builder", "delivery", "produce_request_result")
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.engine.delivery.delivery import Delivery, are_in_order, make_delivery, wake
    from aioproducer.engine.delivery.produce_request_result import DeliveryContext, ProduceRequestResult
    from aioproducer.engine.delivery.records_builder import MemoryRecordsBuilder, measured

    uncollected: Callable[[ProduceRequestResult], None] | None
else:
    ProduceRequestResult, DeliveryContext = _result.ProduceRequestResult, _result.DeliveryContext
    Delivery, make_delivery = _delivery.Delivery, _delivery.make_delivery
    are_in_order, wake = _delivery.are_in_order, _delivery.wake
    # Only the compiled build can remove an acknowledged batch's result from the cyclic collector; None: plain Python leaves it there.
    uncollected = None if REASON else _delivery.uncollected
    MemoryRecordsBuilder, measured = _builder.MemoryRecordsBuilder, _builder.measured

FULL: Final[MemoryRecordsBuilder] = _builder.FULL
RECORD_OVERHEAD: Final[int] = _builder.RECORD_OVERHEAD
