"""The path of `send` before `start` has succeeded: every send raises ProducerClosed.

It references no producer, so that an engine does not keep its producer from being collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.append.chosen_build import FastPath
from aioproducer.errors import ProducerClosed

if TYPE_CHECKING:
    from aioproducer.engine.delivery.chosen_build import Delivery

__all__ = ["NOT_STARTED", "closed_path"]

NOT_STARTED: Final = "the producer was not started: use `async with Producer(...)`, or `await producer.start()`"


async def _send(*_record: Any) -> Delivery:
    raise ProducerClosed(NOT_STARTED)


def _send_now(*_record: Any) -> Delivery:
    raise ProducerClosed(NOT_STARTED)


def closed_path() -> FastPath:
    """Return a path on which every send raises ProducerClosed."""
    path = FastPath(lambda: 0, _send)
    path.now = _send_now
    return path
