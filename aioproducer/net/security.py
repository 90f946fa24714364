"""How connections are encrypted and authenticated, made from a producer's options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioproducer.net.login_gate import LoginGate

if TYPE_CHECKING:
    from aioproducer.net.sasl_login import SaslLogin
    from aioproducer.net.tls_contexts import TlsContexts

__all__ = ["Security"]


@dataclass(frozen=True, slots=True)
class Security:
    """Holds the security of all connections of a producer.

    Attributes:
        tls: gives the context of each TLS connection; None: connections are not encrypted.
        sasl: authenticates each connection; None: connections are not authenticated by SASL.
        gate: the gate that connections pass before they are made, so that refused credentials cause few attempts.
    """

    tls: TlsContexts | None = None
    sasl: SaslLogin | None = None
    gate: LoginGate = field(default_factory=LoginGate)
