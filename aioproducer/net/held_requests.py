"""Holds back the requests of a connection while it is authenticated: a broker takes no other request then (KIP-368)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AUTHENTICATION", "HeldRequests"]

# The requests that are sent meanwhile.
AUTHENTICATION: Final = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))


class HeldRequests:
    """Holds the requests of one connection from the first request of an authentication until its end.

    Attributes:
        used_at: the time of the connection's latest request or answer before the authentication, which is no use of the connection.
    """

    def __init__(self, used_at: float) -> None:
        self.used_at = used_at
        self._requests: list[tuple[Callable[[], None], Callable[[Any], None]]] = []

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._requests)

    def add(self, send: Callable[[], None], on_end: Callable[[Any], None]) -> None:
        """Keep a request: `send` is called after the authentication, or `on_end` with the error that ends the connection before."""
        self._requests.append((send, on_end))

    def release(self) -> None:
        """Send the requests that wait, in the order of their calls. The connection holds none any more."""
        for send, _ in self._requests:
            send()

    def drop(self) -> list[Callable[[Any], None]]:
        """Drop the requests that wait, as the connection is lost. Returns the function of each that takes the error."""
        return [on_end for _, on_end in self._requests]
