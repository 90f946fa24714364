"""Holds back the requests of a connection while it is authenticated: a broker takes no other request then (KIP-368)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AUTHENTICATION", "HeldRequests"]

# The requests that are sent meanwhile.
AUTHENTICATION: Final = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))


class _Holding(Protocol):
    """Is a connection that holds requests back while `held` is set."""

    held: HeldRequests | None
    used_at: float


class HeldRequests:
    """Holds the requests of one connection from the first request of an authentication until its end."""

    def __init__(self, connection: _Holding) -> None:
        self._connection = connection
        self._used_at = connection.used_at
        self._requests: list[tuple[Callable[[], None], Callable[[Any], None]]] = []
        connection.held = self

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._requests)

    def add(self, send: Callable[[], None], on_end: Callable[[Any], None]) -> None:
        """Keep a request: `send` is called after the authentication, or `on_end` with the error that ends the connection before."""
        self._requests.append((send, on_end))

    def release(self) -> None:
        """Let requests pass, and send those that wait, in the order of their calls.

        The authentication is no use of the connection: an idle connection stays as idle as before.
        """
        self._connection.held = None
        self._connection.used_at = self._used_at
        for send, _ in self._requests:
            send()

    def drop(self) -> list[Callable[[Any], None]]:
        """Drop the requests that wait, as the connection is lost. Returns the function of each that takes the error."""
        self._connection.held = None
        return [on_end for _, on_end in self._requests]
