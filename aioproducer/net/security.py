"""How connections are encrypted and authenticated, made from a producer's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aioproducer.net.sasl_login import SaslLogin
    from aioproducer.net.tls_contexts import TlsContexts

__all__ = ["Security"]


class Security(NamedTuple):
    """Holds the security of all connections of a producer.

    Attributes:
        tls: gives the context of each TLS connection; None: connections are not encrypted.
        sasl: authenticates each connection; None: connections are not authenticated by SASL.
    """

    tls: TlsContexts | None = None
    sasl: SaslLogin | None = None
