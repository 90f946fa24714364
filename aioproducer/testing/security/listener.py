"""What the listeners of a fake cluster demand of clients: the security protocol, users, SASL mechanisms, sessions and TLS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from aioproducer.testing.security.accounts import Accounts
from aioproducer.testing.security.mechanisms import MechanismServer, PlainServer
from aioproducer.testing.security.oauthbearer import ListenerTokens

__all__ = [
    "MECHANISMS",
    "SIMPLE_SERVERS",
    "WITH_TOKENS",
    "ClientAuth",
    "ListenerSecurity",
    "ListenerTls",
    "SecurityProtocol",
    "ServerCertificate",
    "TlsVersion",
]

SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ClientAuth: TypeAlias = Literal["none", "requested", "required"]
TlsVersion: TypeAlias = Literal["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"]
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WITH_TOKENS: Final = "OAUTHBEARER"
SIMPLE_SERVERS: Final[dict[str, Callable[[Accounts], MechanismServer]]] = {"PLAIN": PlainServer}
"""The mechanisms that need nothing but the accounts; our own tests add GSSAPI (tests/support/kerberos.py)."""
_LEAST_ITERATIONS: Final = 4096  # as Kafka's ScramMechanism


class ServerCertificate(Protocol):
    """Gives a certificate with its key; `aioproducer.testing.certificates.Certificate` is one."""

    @property
    def pem(self) -> bytes:
        """Return the private key, then the certificate and its intermediates, in PEM."""


class Authority(Protocol):
    """Gives the certificate of an authority; `aioproducer.testing.certificates.CertificateAuthority` is one."""

    @property
    def pem(self) -> bytes:
        """Return the certificate in PEM."""


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """Holds the TLS of a listener.

        ca = CertificateAuthority()
        ListenerTls(ca.server())
        ListenerTls(ca.server(), client_auth="required", client_authority=ca)
        ListenerTls(CertificateAuthority(key_type="rsa").server(), versions=("TLSv1", "TLSv1.1"))

    Args:
        certificate: the server's certificate and key.
        client_auth: whether a client must, may or cannot show a certificate (Kafka's `ssl.client.auth`).
        client_authority: signs the certificates of clients.
        versions: the lowest and the highest version of TLS. TLSv1 and TLSv1.1 need a key of type RSA; the listener lowers
            OpenSSL's security level for them.
        ciphers: OpenSSL's names of cipher suites, for TLS 1.2; None: OpenSSL's choice.
        tickets: number of session tickets that follow a handshake of TLS 1.3.
    """

    certificate: ServerCertificate
    client_auth: ClientAuth = "none"
    client_authority: Authority | None = None
    versions: tuple[TlsVersion, TlsVersion] = ("TLSv1.2", "TLSv1.3")
    ciphers: str | None = None
    tickets: int = 2

    def __post_init__(self) -> None:
        if self.client_auth not in get_args(ClientAuth):
            raise ValueError(
                f"client_auth is none, requested or required, not {self.client_auth!r}"
            )
        if self.client_auth != "none" and self.client_authority is None:
            raise ValueError(
                f"client_auth={self.client_auth!r} needs a client_authority, which signs the certificates of clients"
            )
        unknown = [version for version in self.versions if version not in get_args(TlsVersion)]
        if unknown:
            raise ValueError(f"versions are {', '.join(get_args(TlsVersion))}, not {unknown[0]!r}")


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """Holds what the listeners of a fake cluster demand of clients.

        FakeCluster(security=ListenerSecurity("SASL_PLAINTEXT", users={"alice": "canary-alice"}))
        FakeCluster(security=ListenerSecurity("SSL", tls=ListenerTls(ca.server())))
        FakeCluster(security=ListenerSecurity("SASL_SSL", users={"alice": "canary-alice"}, session_ms=3000))

    Args:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        users: passwords by user; `ClusterSecurity.grant` and `revoke` change them while the cluster runs.
        mechanisms: the enabled SASL mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.
        tokens: the bearer tokens that OAUTHBEARER takes, which it enables; None: it is not enabled, or takes unsecured JWTs.
        session_ms: the length of a session (Kafka's `connections.max.reauth.ms`); 0: sessions do not end.
        scram_iterations: the iteration count of the users' SCRAM credentials, from 4096 on.
        tls: the TLS of SSL and SASL_SSL. Without it, the cluster makes an authority and a certificate for its brokers' addresses, which
            needs the extra `crypto`; `FakeCluster.client_options` then contains the authority's certificate.
    """

    protocol: SecurityProtocol = "PLAINTEXT"
    users: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    mechanisms: tuple[str, ...] = MECHANISMS
    session_ms: int = 0
    scram_iterations: int = _LEAST_ITERATIONS
    tls: ListenerTls | None = None
    tokens: ListenerTokens | None = None

    def __post_init__(self) -> None:
        if self.tokens is not None and WITH_TOKENS not in self.mechanisms:
            object.__setattr__(self, "mechanisms", (*self.mechanisms, WITH_TOKENS))
        if self.protocol not in get_args(SecurityProtocol):
            raise ValueError(
                f"protocol is {', '.join(get_args(SecurityProtocol))}, not {self.protocol!r}"
            )
        known = dict.fromkeys((*MECHANISMS, WITH_TOKENS, *SIMPLE_SERVERS))
        unknown = [name for name in self.mechanisms if name not in known]
        if unknown:
            raise ValueError(f"the fake has the mechanisms {', '.join(known)}, not {unknown[0]!r}")
        if self.session_ms < 0:
            raise ValueError(f"session_ms is 0 or more, not {self.session_ms}")
        if self.scram_iterations < _LEAST_ITERATIONS:
            raise ValueError(
                f"scram_iterations is {_LEAST_ITERATIONS} or more, as in Kafka, not {self.scram_iterations}"
            )
        if self.tls is not None and not self.has_tls:
            raise ValueError(
                f"a listener of {self.protocol} has no TLS: leave out tls, or choose SSL or SASL_SSL"
            )

    @property
    def has_tls(self) -> bool:
        """Return whether connections begin with a TLS handshake."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def has_sasl(self) -> bool:
        """Return whether connections authenticate by SASL."""
        return self.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    def __getstate__(self) -> Any:
        """Refuse a pickle, which would contain the passwords."""
        raise TypeError("the security of a listener holds passwords, and is not pickled")
