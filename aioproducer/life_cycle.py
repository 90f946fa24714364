"""Holds what every producer makes of `start` and `stop`: context managers, and the name that asyncio's helpers call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic, Self, TypeVar

__all__ = ["LifeCycle", "Running"]


class LifeCycle(ABC):
    """Starts and stops, as a context manager."""

    @abstractmethod
    async def start(self, *, wait: bool = True) -> None:
        """Start; with `wait`, wait for the brokers."""

    @abstractmethod
    async def stop(self) -> None:
        """End. A second call does nothing."""

    async def aclose(self) -> None:
        """Call `stop`: `contextlib.aclosing` and other tools of asyncio know this name."""
        await self.stop()

    def running(self, *, wait: bool = True) -> AbstractAsyncContextManager[Self, None]:
        """Return a context manager that calls `start(wait=wait)`, gives the producer, and calls `stop` at the end of the body.

        ```python
        async with producer.running(wait=False):  # a service starts while Kafka is down
            yield
        ```

        Args:
            wait: as `start` takes it.
        """
        return Running(self, wait=wait)

    async def __aenter__(self) -> Self:
        """Call `start`. Returns the producer."""
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Call `stop`. After an exception or a cancellation it flushes too, within its limit, and keeps the original exception."""
        await self.stop()


P = TypeVar("P", bound=LifeCycle)


class Running(Generic[P]):
    """Starts a producer at its entry and stops it at its exit; the result of `running`."""

    def __init__(self, producer: P, *, wait: bool) -> None:
        self._producer = producer
        self._wait = wait

    async def __aenter__(self) -> P:
        """Call `start`. Returns the producer."""
        await self._producer.start(wait=self._wait)
        return self._producer

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Call `stop`."""
        await self._producer.stop()
