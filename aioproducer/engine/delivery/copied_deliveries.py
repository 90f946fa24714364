"""Holds copies of deliveries that leave their process, with the state of their records that is known by then.

A copy learns no later state. A run of records is copied as a few columns. So the records of an error from `send_many`
cost bytes, not objects.
"""

from __future__ import annotations

import time
from array import array
from asyncio import get_running_loop
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from aioproducer.engine.chosen_build import DeliveryContext, ProduceRequestResult
from aioproducer.engine.delivery.outcome import Outcome
from aioproducer.errors import ProducerClosed
from aioproducer.model import TimestampType
from aioproducer.records.varints import varint

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence
    from contextvars import Context

    from aioproducer.engine.delivery.produce_request_result import Column
    from aioproducer.errors import DeliveryError
    from aioproducer.model import RecordMetadata

__all__ = ["RunState", "restored", "state_of"]

_WRITTEN: Final = frozenset({Outcome.ACKNOWLEDGED, Outcome.DONE})


class RunState(NamedTuple):
    """Holds the known state of a run of records. `moments` has the attributes and timestamp delta of all, or the delta of each."""

    topic: str
    partition: int
    records: int
    outcome: Outcome = Outcome.PENDING
    error: DeliveryError | None = None
    base_offset: int = -1
    base_timestamp: int = -1
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    key_sizes: Column = b""
    value_sizes: Column = b""
    moments: Column = b""


def state_of(result: ProduceRequestResult, metadata: Sequence[RecordMetadata], count: int) -> RunState:
    """Return the state of a run.

    Args:
        result: the result of its batch.
        metadata: the metadata of its records, if they are acknowledged.
        count: the number of its records.
    """
    outcome = Outcome.ACKNOWLEDGED if result.outcome in _WRITTEN else result.outcome
    if not metadata:
        return RunState(result.topic, result.partition, count, outcome, result.error)
    topic, partition, base_offset, base_timestamp, timestamp_type = metadata[0][:5]
    deltas = [each.timestamp_ms - base_timestamp for each in metadata]
    return RunState(
        topic,
        partition,
        count,
        outcome,
        None,
        base_offset,
        base_timestamp,
        timestamp_type,
        _column([each.serialized_key_size for each in metadata]),
        _column([each.serialized_value_size for each in metadata]),
        array("q", deltas) if any(deltas) else b"\0\0",
    )


def _column(sizes: list[int]) -> Column:
    return varint(sizes[0]) if sizes.count(sizes[0]) == len(sizes) else array("q", sizes)


def restored(state: RunState) -> ProduceRequestResult:
    """Return a result that has exactly the records of the run."""
    result = ProduceRequestResult(_delivery_context(), state.topic, state.partition, state.base_timestamp)
    result.count = state.records
    if state.outcome is Outcome.FAILED:
        assert state.error is not None
        # The process that sent the records reports the failures that no code looked at.
        result.look()
        result.fail(state.error)
    elif state.outcome is Outcome.ACKNOWLEDGED:
        result.complete(state.base_offset, state.base_timestamp if state.timestamp_type is TimestampType.LOG_APPEND_TIME else -1)
        result.record_sizes = (state.key_sizes, state.value_sizes, state.moments)
    else:
        result.outcome = state.outcome
    return result


class _Elsewhere:
    """Replaces the loop of a producer that is in another process."""

    def time(self) -> float:
        return time.monotonic()

    def call_soon(self, callback: Callable[..., object], *given: Any, context: Context | None = None) -> Any:
        return get_running_loop().call_soon(callback, *given, context=context)


@cache
def _delivery_context() -> DeliveryContext:
    delivery_context = DeliveryContext(cast("AbstractEventLoop", _Elsewhere()), lambda _error, _count: None)
    delivery_context.refusal = lambda: ProducerClosed(
        "these deliveries are a copy: only the process that sent the records learns how the pending ones end"
    )
    return delivery_context
