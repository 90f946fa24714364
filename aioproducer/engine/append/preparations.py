"""Prepares the serializers of topics: one task for each topic and pair of serializers, while sends wait for it or were refused for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer.errors import SerializationError
from aioproducer.interfaces import is_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.engine.context import EngineContext
    from aioproducer.serializers import Encoding


class Preparations:
    """Runs the first phase of two-phase serializers, for one producer.

    Args:
        is_waited_for: returns whether a send waits for the serializers of an encoding.
        on_end: called with an encoding once it is prepared, or with the error that prevents it.
    """

    def __init__(
        self,
        context: EngineContext,
        is_waited_for: Callable[[Encoding], bool],
        on_end: Callable[[Encoding, Exception | None], None],
    ) -> None:
        self._supervisor = context.supervisor
        self._max_block = context.config.max_block_ms / 1000
        self._is_waited_for = is_waited_for
        self._on_end = on_end
        self._running: set[Encoding] = set()

    def begin(self, encoding: Encoding) -> None:
        """Prepare the serializers of an encoding, unless a task does that already."""
        if encoding not in self._running:
            self._running.add(encoding)
            self._supervisor.spawn(self._prepare(encoding), f"serializer of {encoding.topic}")

    async def _prepare(self, encoding: Encoding) -> None:
        """Prepare an encoding, again after `max_block_ms` while a send waits for it, which may have begun to wait later."""
        error: Exception | None = None
        is_over = False
        try:
            while not is_over:
                try:
                    async with asyncio.timeout(self._max_block):
                        await encoding.prepare()
                    is_over = True
                except TimeoutError:
                    is_over = not self._is_waited_for(encoding)
                except asyncio.CancelledError as failed:
                    if is_cancelled():
                        raise
                    error, is_over = _own_cancellation(encoding), True
                    error.__cause__ = failed
                except Exception as failed:
                    error, is_over = failed, True
        finally:
            self._running.discard(encoding)
        self._on_end(encoding, error)


def _own_cancellation(encoding: Encoding) -> SerializationError:
    return SerializationError(
        f"{encoding.name} awaited something that was cancelled, while it was prepared for {encoding.topic!r}"
    )
