"""How connections are encrypted and authenticated, made from a producer's options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioproducer.net.kerberos import Kerberos, KerberosSettings
from aioproducer.net.login_gate import LoginGate
from aioproducer.net.sasl_login import SaslLogin
from aioproducer.net.tls_contexts import TlsContexts, TlsSettings
from aioproducer.sasl.gssapi import Gssapi

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig

__all__ = ["Security", "security_of"]


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


def security_of(config: ProducerConfig, chance: Callable[[], float]) -> Security | None:
    """Return the security that a producer's options ask for; None: PLAINTEXT. `chance` returns a random number in [0, 1).

    Raises:
        ConfigError: GSSAPI needs a package that is not installed.
    """
    tls = sasl = None
    if config.security_protocol in {"SSL", "SASL_SSL"}:
        options: dict[str, Any] = {name: getattr(config, name) for name in TlsSettings._fields}
        tls = TlsContexts(TlsSettings(**options))
    if config.security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}:
        user: Any = config.sasl_username
        password: Any = config.sasl_password
        kerberos = None
        if config.sasl_mechanism == Gssapi.name:
            kerberos = Kerberos(KerberosSettings(*(getattr(config, f"sasl_kerberos_{name}") for name in KerberosSettings._fields)))
        sasl = SaslLogin(str(config.sasl_mechanism), user, password, token_auth=config.sasl_token_auth, kerberos=kerberos, chance=chance)
    return None if tls is None and sasl is None else Security(tls, sasl)
