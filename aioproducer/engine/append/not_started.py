"""The path of `send` before `start` has succeeded: every send raises ProducerClosed.

It references no producer, so that an engine does not keep its producer from being collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.append.hooked_path import HookedFastPath
from aioproducer.engine.chosen_build import EncodingFastPath, FastPath
from aioproducer.errors import ProducerClosed

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.engine.chosen_build import Delivery

NOT_STARTED: Final = (
    "the producer was not started: use `async with Producer(...)`, or `await producer.start()`"
)


async def _send(*_record: Any) -> Delivery:
    raise ProducerClosed(NOT_STARTED)


def _send_now(*_record: Any) -> Delivery:
    raise ProducerClosed(NOT_STARTED)


def closed_path(config: ProducerConfig) -> FastPath:
    """Return a fast path for a producer with these options, on which every send raises ProducerClosed until its engine opens it."""
    path = _kind_of(config)(lambda: 0, _send)
    path.now = _send_now
    return path


def has_hooks(config: ProducerConfig) -> bool:
    """Return whether a producer has a `HookedFastPath`."""
    return bool(config.interceptors) or config.partitioner is not None


def _kind_of(config: ProducerConfig) -> type[FastPath]:
    if has_hooks(config):
        return HookedFastPath
    return (
        FastPath
        if config.key_serializer is None and config.value_serializer is None
        else EncodingFastPath
    )
