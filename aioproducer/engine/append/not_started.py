"""The path of `send` before `start` has succeeded: every send raises ProducerClosed.

It references no producer, so that an engine does not keep its producer from being collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.append.chosen_build import EncodingFastPath, FastPath
from aioproducer.errors import ProducerClosed

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.engine.delivery.chosen_build import Delivery

__all__ = ["NOT_STARTED", "closed_path"]

NOT_STARTED: Final = "the producer was not started: use `async with Producer(...)`, or `await producer.start()`"


async def _send(*_record: Any) -> Delivery:
    raise ProducerClosed(NOT_STARTED)


def _send_now(*_record: Any) -> Delivery:
    raise ProducerClosed(NOT_STARTED)


def closed_path(config: ProducerConfig) -> FastPath:
    """Return a fast path for a producer with these options, on which every send raises ProducerClosed until its engine opens it."""
    has_serializers = config.key_serializer is not None or config.value_serializer is not None
    path = (EncodingFastPath if has_serializers else FastPath)(lambda: 0, _send)
    path.now = _send_now
    return path
