"""What brokers saw: the requests they took, and what no broker takes. Knows nothing of what it is told."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Journal", "Request", "Violation"]

_REMEMBERED: Final = 100_000


class Request(NamedTuple):
    """A request that a broker took. `at` is the loop's time in seconds; `connection` counts them over the whole cluster."""

    at: float
    broker: int
    connection: int
    api: str
    version: int
    client_id: str | None
    message: Any


class Violation(NamedTuple):
    """What a client sent that no broker takes; its connection was closed."""

    at: float
    broker: int
    connection: int
    what: str


class Journal:
    """The requests and violations of one cluster, in their order; of the last 100,000."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._requests: deque[Request] = deque(maxlen=_REMEMBERED)
        self._seen: Counter[str] = Counter()
        self._watchers: list[asyncio.Future[None]] = []

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def add(self, request: Request) -> None:
        """A broker took a request: who waits for it looks again."""
        self._requests.append(request)
        self._seen[request.api] += 1
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def seen(self, api: str, count: int) -> None:
        """Wait until so many requests of a kind have come, since the beginning. RuntimeError: it was closed before."""
        while self._seen[api] < count:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher

    def close(self) -> None:
        """Nothing will come any more."""
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_exception(RuntimeError("the fake cluster was stopped before the requests came"))
