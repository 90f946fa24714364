"""What `KafkaServer(security=...)` listens with: TLS, SASL, sessions, ACLs; its users, its listeners and its certificates.

    security = KafkaSecurity(users={"alice": "canary-alice", "bob": "canary-bob"}, session_ms=3000, acls=True, super_users=("alice",))
    async with KafkaServer(security=security) as kafka:
        kafka.address("SASL_SSL")                            # "localhost:40123"
        kafka.certificates.ca                                # paths of PEM files, which `stop` removes
        kafka.certificates.clients["alice"].pem              # CN=alice, for the listener MTLS
        await kafka.admin.delete_user("alice")               # and: set_user, create_token, allow, withdraw

The listeners, by the names that `address` takes:

    PLAINTEXT               for the node itself, its tools and `KafkaServer`'s methods; User:ANONYMOUS
    SSL                     TLS without a client certificate; User:ANONYMOUS
    MTLS                    TLS with `ssl.client.auth=required`; the principal is the certificate's common name
    SASL_PLAINTEXT          PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, the latter two with delegation tokens, too; OAUTHBEARER with unsecured
                            JWTs, as `aioproducer.testing.unsecured_token` makes them; with `kerberos` GSSAPI
    SASL_SSL                the same over TLS
    SESSIONS_PLAINTEXT      as SASL_PLAINTEXT, with `connections.max.reauth.ms`
    SESSIONS_SSL            as SASL_SSL, with `connections.max.reauth.ms`
    OIDC_PLAINTEXT          OAUTHBEARER with the tokens of `oidc`, if that is given; the principal is the claim `sub`
    OIDC_SSL                the same over TLS

It needs the extra `crypto`, and Kafka 3.5 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aioproducer.testing.kdc import BrokerKerberos

if TYPE_CHECKING:
    from aioproducer.testing.certificates import Certificate, CertificateAuthority, CertificateFiles

__all__ = ["ADVERTISED_HOST", "LISTENERS", "KafkaSecurity", "Listener", "OidcValidator", "ServerCertificates"]

Listener: TypeAlias = Literal[
    "PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL", "SESSIONS_PLAINTEXT", "SESSIONS_SSL", "OIDC_PLAINTEXT", "OIDC_SSL"
]

LISTENERS: Final[Mapping[Listener, str]] = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SESSIONS_PLAINTEXT": "SASL_PLAINTEXT",
    "SESSIONS_SSL": "SASL_SSL",
    "OIDC_PLAINTEXT": "SASL_PLAINTEXT",
    "OIDC_SSL": "SASL_SSL",
}
"""Each listener's security protocol."""

# a name, so that clients send it as SNI and check the certificate by it
ADVERTISED_HOST: Final = "localhost"
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_ITERATIONS: Final = 4096  # the fewest that Kafka takes
_TOKENS: Final = "OAUTHBEARER"
_PACKAGE: Final = "org.apache.kafka.common.security"
_OIDC: Final = "OIDC_"


@dataclass(frozen=True)
class OidcValidator:
    """Says which tokens the OIDC listeners take: those that a key of a URL verifies, as `TokenServer` signs them.

    Args:
        jwks_url: the URL of the public keys, which must answer when the node starts: `TokenServer.jwks_url`.
        audience: the claim `aud` that tokens must have.
        issuer: the claim `iss` that tokens must have.
    """

    jwks_url: str
    audience: str = "kafka"
    issuer: str = "https://issuer.test"

    def settings(self, prefix: str) -> dict[str, object]:
        """Return the properties of a listener."""
        package = f"{_PACKAGE}.oauthbearer"
        return {
            f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
            f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": self.jwks_url,
            f"{prefix}.sasl.oauthbearer.expected.audience": self.audience,
            f"{prefix}.sasl.oauthbearer.expected.issuer": self.issuer,
        }


@dataclass(frozen=True)
class KafkaSecurity:
    """Says how a `KafkaServer` is secured.

    Args:
        users: the password of each user, for PLAIN and SCRAM alike. `SecurityAdmin` changes those of SCRAM; PLAIN's stay.
        session_ms: the length of a session on the listeners SESSIONS_PLAINTEXT and SESSIONS_SSL (`connections.max.reauth.ms`).
        acls: whether users may do only what ACLs allow (StandardAuthorizer).
        super_users: users without the limits of ACLs; User:ANONYMOUS, which administrates the node, is always one of them.
        key_type: "ecdsa" or "rsa", for every key.
        oidc: the tokens of the listeners OIDC_PLAINTEXT and OIDC_SSL; None: there are no such listeners.
        kerberos: the node's principal and realm, for GSSAPI (see `aioproducer.testing.kdc`); None: the node has no GSSAPI.

    Raises:
        ValueError: a name or password that Kafka's own files cannot hold.
    """

    users: Mapping[str, str] = field(repr=False)
    session_ms: int = 3000
    acls: bool = False
    super_users: tuple[str, ...] = ()
    key_type: Literal["ecdsa", "rsa"] = "ecdsa"
    oidc: OidcValidator | None = None
    kerberos: BrokerKerberos | None = None

    def __post_init__(self) -> None:
        if self.session_ms <= 0:
            raise ValueError(f"session_ms={self.session_ms}: it is the positive number of milliseconds of a session")
        for user, password in self.users.items():
            # SCRAM's names are ASCII in Kafka; what the tools' words cannot hold is set by no test
            if not user.isascii() or not user.isalnum():
                raise ValueError(f"user {user!r}: a name here has ASCII letters and digits alone")
            if not password or set(password) & set('[],"\\\r\n'):
                raise ValueError(f'the password of {user!r} is empty, or has one of the characters []," or a backslash or line end')

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Return the listeners of the node."""
        return tuple(name for name in LISTENERS if self.oidc is not None or not name.startswith(_OIDC))

    def jvm_options(self) -> list[str]:
        """Return what Java is told besides: the URLs that the node may fetch keys from, and the realm of Kerberos."""
        urls = [] if self.oidc is None else [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.oidc.jwks_url}"]
        return urls if self.kerberos is None else [*urls, f"-Djava.security.krb5.conf={self.kerberos.config}"]

    def format_arguments(self) -> list[str]:
        """Return what `kafka-storage format` takes besides: the users' SCRAM credentials (KIP-900)."""
        return [
            word
            for user, password in self.users.items()
            for mechanism in _SCRAM
            for word in ("--add-scram", f"{mechanism}=[name={user},password={password},iterations={_ITERATIONS}]")
        ]

    def settings(self, certificates: ServerCertificates) -> dict[str, object]:
        """Return the node's properties besides its listeners and ports."""
        made: dict[str, object] = {
            # one file with the PKCS#8 key, then the chain
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificates.server.pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": certificates.ca,
            "listener.name.mtls.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
            "delegation.token.secret.key": "canary-token-key",
        }
        for name in self.listeners:
            if LISTENERS[name].startswith("SASL_"):
                made |= self._sasl(name, f"listener.name.{name.lower()}")
            if name.startswith("SESSIONS_"):
                made[f"listener.name.{name.lower()}.connections.max.reauth.ms"] = self.session_ms
        if self.acls:
            made["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            made["super.users"] = ";".join(f"User:{user}" for user in ("ANONYMOUS", *self.super_users))
        return made

    def _sasl(self, listener: Listener, prefix: str) -> dict[str, object]:
        if self.oidc is not None and listener.startswith(_OIDC):
            return self.oidc.settings(prefix)
        users = " ".join(f'user_{user}="{_escaped(password)}"' for user, password in self.users.items())
        return {
            f"{prefix}.sasl.enabled.mechanisms": ",".join(("PLAIN", *_SCRAM, _TOKENS, *([] if self.kerberos is None else ["GSSAPI"]))),
            f"{prefix}.plain.sasl.jaas.config": f"{_PACKAGE}.plain.PlainLoginModule required {users};",
            **{f"{prefix}.{name.lower()}.sasl.jaas.config": f"{_PACKAGE}.scram.ScramLoginModule required;" for name in _SCRAM},
            # the broker logs in, too, as any user
            f"{prefix}.{_TOKENS.lower()}.sasl.jaas.config": (
                f'{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            **self._gssapi(prefix),
        }

    def _gssapi(self, prefix: str) -> dict[str, object]:
        if self.kerberos is None:
            return {}
        login = f'useKeyTab=true storeKey=true keyTab="{self.kerberos.keytab}" principal="{self.kerberos.principal}"'
        return {
            f"{prefix}.gssapi.sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required {login};",
            f"{prefix}.sasl.kerberos.service.name": self.kerberos.principal.partition("/")[0],
        }


@dataclass(frozen=True)
class ServerCertificates:
    """Holds the certificates of one node: paths of PEM files in its folder, and the authority that issues more.

    Attributes:
        authority: the root that the node trusts, and that signed the authority of its own certificate.
        ca: the root's certificate, for clients' trust stores.
        server: the node's key and chain.
        clients: the key and chain of each user, with the common name of the user.
    """

    authority: CertificateAuthority
    ca: Path
    server: CertificateFiles
    clients: Mapping[str, CertificateFiles]

    @classmethod
    def make(cls, folder: Path, security: KafkaSecurity) -> ServerCertificates:
        """Make the certificates of a node and its users, and write them.

        Raises:
            ModuleNotFoundError: the extra `crypto` is not installed.
        """
        # the extra is needed here alone
        from aioproducer.testing.certificates import CertificateAuthority

        root = CertificateAuthority(key_type=security.key_type)
        server: Certificate = root.intermediate().server()
        clients = {user: root.client(user).write(folder, user) for user in security.users}
        return cls(root, root.write(folder / "ca.pem"), server.write(folder, "server"), clients)


def _escaped(text: str) -> str:
    """Return text as a Java properties file holds it, which is Latin-1 besides its escapes."""
    units = text.encode("utf-16-be")
    return "".join(
        chr(unit) if 0x20 <= unit < 0x7F else f"\\u{unit:04x}"
        for unit in (int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2))
    )
