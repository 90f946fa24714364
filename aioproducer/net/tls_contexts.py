"""The contexts of TLS connections, made from a producer's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioproducer.net.tls import HandshakeTurns

if TYPE_CHECKING:
    import ssl

__all__ = ["TlsContexts", "TlsSettings"]


class TlsSettings(NamedTuple):
    """Holds the values of the `ssl_*` options."""

    ssl_context: ssl.SSLContext | None = None


class TlsContexts:
    """Gives the context of each TLS connection of a producer.

    Attributes:
        turns: runs the steps of the connections' handshakes.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.turns = HandshakeTurns()
        self._settings = settings

    async def context(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        assert self._settings.ssl_context is not None
        return self._settings.ssl_context
