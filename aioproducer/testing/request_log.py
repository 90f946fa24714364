"""Records the requests that brokers received, clients' protocol violations, dials and authentications."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Authentication",
    "Dial",
    "ExpiredSession",
    "Journal",
    "Request",
    "TlsFailure",
    "Violation",
]

_REMEMBERED: Final = 100_000


class Request(NamedTuple):
    """Holds a request that a broker received.

    `at` is the loop's time in seconds; `connection` is unique within the cluster.
    """

    at: float
    broker: int
    connection: int
    api: str
    version: int
    client_id: str | None
    message: Any


class Violation(NamedTuple):
    """Holds a client's protocol violation; the broker closed the connection."""

    at: float
    broker: int
    connection: int
    what: str


class Dial(NamedTuple):
    """Holds a connection that a broker accepted."""

    at: float
    broker: int
    connection: int


class Authentication(NamedTuple):
    """Holds how an authentication ended.

    `error` is Kafka's error code, 0 for success; `principal` is the authenticated user, or the name that a refused client gave, if it gave
    one; `mechanism` is SASL's, or "TLS" for a client certificate; `is_renewal` is True for a re-authentication.
    """

    at: float
    broker: int
    connection: int
    principal: str | None
    mechanism: str | None
    is_renewal: bool
    error: int


class ExpiredSession(NamedTuple):
    """Holds a connection that was closed because a request came after the end of its session."""

    at: float
    broker: int
    connection: int


class TlsFailure(NamedTuple):
    """Holds why TLS failed on a connection, in OpenSSL's words or the fake's."""

    at: float
    broker: int
    connection: int
    reason: str


class Journal:
    """Holds the requests and violations of one cluster, in order; at most the last 100,000 requests."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.dials: list[Dial] = []
        self.authentications: list[Authentication] = []
        self.expired_sessions: list[ExpiredSession] = []
        self.tls_failures: list[TlsFailure] = []
        self._requests: deque[Request] = deque(maxlen=_REMEMBERED)
        self._seen: Counter[str] = Counter()
        self._watchers: list[asyncio.Future[None]] = []

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def add(self, request: Request) -> None:
        """Add a request and wake the tasks that wait in `seen`."""
        self._requests.append(request)
        self._seen[request.api] += 1
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def seen(self, api: str, count: int) -> None:
        """Wait until `count` requests of a kind have come since the cluster's start.

        Raises:
            RuntimeError: the journal was closed before that.
        """
        while self._seen[api] < count:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher

    def close(self) -> None:
        """Fail the tasks that wait in `seen`."""
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_exception(
                    RuntimeError("the fake cluster was stopped before the requests came")
                )
